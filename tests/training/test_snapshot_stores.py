"""Stores over HTTP and S3: what comes through has the bits, whatever the server does; a kill costs at most 4 MB; no secret is shown."""
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest
from store_tools import FAULTS, Model, StoreServer, nginx, run, same, wait_for


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """(folder of a store with two snapshots, tensors of both, ids)."""
    root = tmp_path_factory.mktemp("store")
    model, ids, tensors = Model(root), [], []
    for _ in range(2):
        ids.append(run("snapshot", "push", model.step(), root / "store", "--channel", "chat", "--json")["id"])
        tensors.append({n: v.copy() for n, v in model.now.items()})
    assert sum(p.stat().st_size for p in (root / "store/objects").glob("*/*")) > 9_000_000
    return root / "store", tensors, ids


def object_bytes(folder):
    return sum(p.stat().st_size for p in (folder / "objects").glob("*/*"))


def pull(url, out, *more, **options):
    return run("snapshot", "pull", url, "chat", out, "--json", *more, **options)


def test_a_store_over_http_is_a_store(store, tmp_path):
    folder, tensors, ids = store
    with StoreServer(folder, lambda path, number: "late") as server:
        told = pull(server.url, tmp_path / "out")
        assert told["id"] == ids[1] and told["downloaded_bytes"] == object_bytes(folder) == server.objects_sent(), told
        assert same(tmp_path / "out", tensors[1]) and not list(tmp_path.glob("*.downloads"))
        shown = run("snapshot", "show", server.url, "--json")
        assert {s["id"] for s in shown["snapshots"]} == set(ids) and [c["name"] for c in shown["channels"]] == ["chat"]
        assert run("snapshot", "verify", server.url, ids[0][:9], "--json")["sound"]
        # From a folder that was pulled before, only what is new comes.
        run("snapshot", "pull", server.url, ids[0], tmp_path / "old", "--json")
        before = server.objects_sent()
        assert pull(server.url, tmp_path / "new", "--base", tmp_path / "old")["downloaded_bytes"] < 200_000
        assert same(tmp_path / "new", tensors[1]) and server.objects_sent() - before < 200_000
        refused = run("snapshot", "push", tmp_path / "new", server.url, status=1)
        assert "is read alone" in refused.stderr, refused


def test_a_static_server_without_ranges(store, tmp_path):
    folder, tensors, _ = store
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory", str(folder)], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)
    try:
        wait_for(port)
        assert pull(f"http://127.0.0.1:{port}/", tmp_path / "out")["downloaded_bytes"] == object_bytes(folder)
        assert same(tmp_path / "out", tensors[1])
        assert len(run("snapshot", "show", f"http://127.0.0.1:{port}", "--json")["snapshots"]) == 2
    finally:
        server.kill()
        server.wait()


def test_nginx(store, tmp_path):
    folder, tensors, ids = store
    with nginx(tmp_path, f"location /w/ {{ alias {folder}/; autoindex on; }}") as url:
        assert pull(f"{url}/w", tmp_path / "out")["downloaded_bytes"] == object_bytes(folder)
        assert same(tmp_path / "out", tensors[1])
        assert {s["id"] for s in run("snapshot", "show", f"{url}/w", "--json")["snapshots"]} == set(ids)


def test_a_training_server_gives_a_store_out_under_its_key(store, tmp_path, start_server, monkeypatch):
    folder, tensors, ids = store
    monkeypatch.setenv("LOCKSTEP_API_KEY", "key-of-the-server")
    server = start_server("--store", str(folder))
    url = f"{server.url}/store"
    assert "status 401" in run("snapshot", "show", url, status=1).stderr
    key = {"LOCKSTEP_STORE_KEY": "key-of-the-server"}
    told = run("snapshot", "pull", url, "chat", tmp_path / "out", "--parallel", "2", "--downloads", tmp_path / "there", "--json", **key)
    assert told["downloaded_bytes"] == object_bytes(folder) and same(tmp_path / "out", tensors[1]) and not (tmp_path / "there").exists()
    assert {s["id"] for s in run("snapshot", "show", url, "--json", **key)["snapshots"]} == set(ids)
    request = urllib.request.Request(f"{url}/manifests/{ids[0]}.json", headers={"Authorization": "Bearer key-of-the-server", "Range": "bytes=1-9"})
    with urllib.request.urlopen(request) as answer:
        text = (folder / f"manifests/{ids[0]}.json").read_bytes()
        assert answer.status == 206 and answer.read() == text[1:10] and answer.headers["Content-Range"] == f"bytes 1-9/{len(text)}"
    for path in ("manifests/../lock", "lock", ".lockstep", "objects/", "objects/../../secret", "manifests/%2e%2e/lock.json", "channels/nothing.json"):
        request = urllib.request.Request(f"{url}/{path}", headers={"Authorization": "Bearer key-of-the-server"})
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request)
        assert refused.value.code == 404, path


def first_times(fault, count=1, of="objects/"):
    return lambda path, number: fault if path.startswith(of) and number <= count else None


@pytest.mark.parametrize("fault", ["cut", "stall", 503, 429, "lie", "missing-then-there"])
def test_what_passes_by_itself(store, tmp_path, fault):
    folder, tensors, _ = store
    faults = {"missing-then-there": first_times(500, 3, "channels/")}
    with StoreServer(folder, faults.get(fault) or first_times(fault)) as server:
        told = pull(server.url, tmp_path / "out", "--stall-seconds", "1")
        assert same(tmp_path / "out", tensors[1])
        # A broken transfer goes on where it ended; bytes with a wrong digest come once more.
        assert told["downloaded_bytes"] <= object_bytes(folder) * (2 if fault == "lie" else 1) and server.asked.total() > 5


@pytest.mark.parametrize("fault, words", [
    ("lie", ["came with the SHA-256", "twice"]), ("short", ["objects/", "4"]), ("missing", ["object", "is not in"]), (403, ["objects/", "status 403"]),
    ("other range", ["were asked for", "objects/"])])
def test_what_does_not_is_an_error_that_names_it(store, tmp_path, fault, words):
    folder, _, _ = store
    if fault == "missing":
        shutil.copytree(folder, tmp_path / "less")
        folder = tmp_path / "less"
        max((folder / "objects").glob("*/*"), key=lambda p: p.stat().st_size).unlink()
    with StoreServer(folder, lambda path, number: fault if path.startswith("objects/") and fault != "missing" else None) as server:
        refused = run("snapshot", "pull", server.url, "chat", tmp_path / "out", "--json", status=1)
        assert all(word in refused.stderr for word in [*words, server.url]), refused.stderr
        assert not (tmp_path / "out").exists()


def test_a_manifest_or_a_record_that_lies_is_refused(store, tmp_path):
    folder, _, ids = store
    with StoreServer(folder, lambda path, number: "lie" if path.startswith("manifests/") else None) as server:
        assert "has the SHA-256" in run("snapshot", "pull", server.url, ids[0], tmp_path / "out", status=1).stderr
    with StoreServer(folder, lambda path, number: "lie" if path.startswith("channels/") else None) as server:
        assert "the channel's record is not one" in run("snapshot", "pull", server.url, "chat", tmp_path / "out", status=1).stderr
    with StoreServer(folder, lambda path, number: "endless" if path.startswith("channels/") else None) as server:
        assert "reading channel" in run("snapshot", "pull", server.url, "chat", tmp_path / "out", status=1).stderr


def test_a_key_is_sent_and_never_shown(store, tmp_path):
    folder, tensors, _ = store
    with StoreServer(folder, key="open-sesame-77") as server:
        refused = run("snapshot", "pull", server.url, "chat", tmp_path / "no", status=1, LOCKSTEP_STORE_KEY="wrong-key-66")
        assert "status 401" in refused.stderr and "LOCKSTEP_STORE_KEY" in refused.stderr and "wrong-key-66" not in refused.stderr, refused.stderr
        pull(server.url, tmp_path / "out", LOCKSTEP_STORE_KEY="open-sesame-77")
        assert same(tmp_path / "out", tensors[1])
    refused = run("snapshot", "pull", "https://me:hidden@host/x", "chat", tmp_path / "no", status=1)
    assert "hidden" not in refused.stderr and "LOCKSTEP_STORE_KEY" in refused.stderr


def test_a_killed_follower_goes_on_where_it_was(store, tmp_path):
    folder, tensors, _ = store
    kills = 0
    points = [("download.bytes", n) for n in (1, 7, 40, 111, 250)] + [("download.whole", 1), ("download.whole", 2), ("pull.tensor", 1), ("file.renamed", 1),
                                                                      ("folder.renamed", 1)]
    with StoreServer(folder) as server:
        for point, number in points:
            out = tmp_path / f"out-{point}-{number}"
            before = server.objects_sent()
            killed = run("snapshot", "pull", server.url, "chat", out, "--quiet", program=FAULTS, status=None, LOCKSTEP_KILL_AT=f"{point}:{number}")
            kills += killed.returncode == -signal.SIGKILL
            assert not out.exists() or same(out, tensors[1]), (point, number)
            if not out.exists():
                pull(server.url, out)
            assert same(out, tensors[1])
            twice = server.objects_sent() - before - object_bytes(folder)
            assert twice <= 4 << 20, (point, number, twice)
    assert kills >= 8, kills


@pytest.fixture(scope="module", params=["rclone", "moto"])
def s3(request, tmp_path_factory):
    """Variables for a bucket `weights` of an S3 server."""
    root = tmp_path_factory.mktemp("s3")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    tools = os.path.dirname(sys.executable)
    (root / "weights").mkdir()
    if request.param == "rclone":
        command = [f"{tools}/rclone", "serve", "s3", "--auth-key", "key-of-tests,secret-of-tests", "--addr", f"127.0.0.1:{port}", str(root)]
    else:
        command = [f"{tools}/moto_server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(port)
    if request.param == "moto":
        urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/weights", method="PUT")).read()
    yield request.param, {"AWS_ACCESS_KEY_ID": "key-of-tests", "AWS_SECRET_ACCESS_KEY": "secret-of-tests", "AWS_REGION": "eu-central-1",
                          "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}
    server.kill()
    server.wait()


def test_a_store_in_s3_is_a_store(s3, tmp_path):
    kind, variables = s3
    model = Model(tmp_path, seed=8)
    place = "s3://weights/models/chat"
    ids, tensors = [], []
    for _ in range(3):
        ids.append(run("snapshot", "push", model.step(), place, "--channel", "chat", "--json", **variables)["id"])
        tensors.append({n: v.copy() for n, v in model.now.items()})
    shown = run("snapshot", "show", place, "--json", **variables)
    assert {s["id"] for s in shown["snapshots"]} == set(ids) and shown["channels"][0]["sequence"] == 3, shown
    told = pull(place, tmp_path / "out", **variables)
    assert told["id"] == ids[2] and same(tmp_path / "out", tensors[2])
    assert run("snapshot", "verify", place, "chat", "--json", **variables)["sound"]
    run("snapshot", "squash", place, "none", "chat", "--json", **variables)
    run("snapshot", "push", tmp_path / "step-0", place, "--parent", "none", "--channel", "other", "--json", **variables)
    pruned = run("snapshot", "prune", place, "--json", **variables)
    assert len(pruned["snapshots"]) == 1 and pruned["kept"] == 3, pruned
    # Two writers at once: where the server heeds conditions one of them is refused, or waits its turn.
    if kind == "moto":
        environment = {"PATH": "/usr/bin:/bin", "HOME": "/", **variables}
        lock = ["snapshot", "push", str(tmp_path / "step-1"), place, "--parent", "none", "--quiet"]
        both = [subprocess.Popen([str(FAULTS), *lock], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
        said = [p.communicate(timeout=120) for p in both]
        assert all(p.returncode == 0 or "another process writes" in s[1] for p, s in zip(both, said)), said
    if kind == "rclone":
        wrong = run("snapshot", "show", place, status=1, **{**variables, "AWS_SECRET_ACCESS_KEY": "a-wrong-secret"})
        assert "status 403 (SignatureDoesNotMatch)" in wrong.stderr and "a-wrong-secret" not in wrong.stderr, wrong.stderr
    nobody = run("snapshot", "show", place, status=1)
    assert "AWS_ACCESS_KEY_ID" in nobody.stderr
    nothing = run("snapshot", "show", "s3://no-such-bucket/x", status=1, **variables)
    assert "no-such-bucket" in nothing.stderr and "NoSuchBucket" in nothing.stderr, nothing.stderr


def test_a_killed_writer_of_s3_leaves_the_old_or_the_new(s3, tmp_path):
    _, variables = s3
    model = Model(tmp_path, seed=9)
    place = f"s3://weights/kills-{random.Random(3).getrandbits(30)}"
    first = model.step()
    old = {n: v.copy() for n, v in model.now.items()}
    ids = [run("snapshot", "push", first, place, "--channel", "chat", "--json", **variables)["id"]]
    second = model.step()
    for point in ("store.object:1", "store.manifest:1", "store.channel:1"):
        killed = run("snapshot", "push", second, place, "--channel", "chat", "--quiet", program=FAULTS, status=None, LOCKSTEP_KILL_AT=point, **variables)
        assert killed.returncode == -signal.SIGKILL, (point, killed)
        out = tmp_path / point.replace(":", "-")
        assert pull(place, out, **variables)["id"] == ids[0] and same(out, old)
        # The dead writer's lease is in the way, and says for how long.
        assert "its lease ends in" in run("snapshot", "prune", place, "--dry-run", status=1, **variables).stderr
        remove_lock(variables, place)
    run("snapshot", "push", second, place, "--channel", "chat", "--json", **variables)
    pull(place, tmp_path / "new", **variables)
    assert same(tmp_path / "new", model.now)


def remove_lock(variables, place):
    """As an operator does who knows that the writer is dead; the lease would run out by itself."""
    url = f"{variables['AWS_ENDPOINT_URL']}/{place.removeprefix('s3://')}/lock"
    subprocess.run(["/usr/bin/curl", "-sSf", "-X", "DELETE", "--user", f"{variables['AWS_ACCESS_KEY_ID']}:{variables['AWS_SECRET_ACCESS_KEY']}", "--aws-sigv4",
                    f"aws:amz:{variables['AWS_REGION']}:s3", "-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD", url], check=True)
