"""Mirrors: a follower that is far behind reads few deltas, whatever order versions come in; a kill leaves the old or the new."""
import json
import math
import shutil
import signal
import subprocess
import time

import pytest
from store_tools import BINARY, FAULTS, Model, StoreServer, run, same


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    """A store with 14 snapshots of a small model, the tensors of each, and its mirror's report."""
    root = tmp_path_factory.mktemp("chain")
    model, ids, tensors = Model(root, seed=11, elements=40_000), [], []
    mirrored = []
    for _ in range(14):
        ids.append(run("snapshot", "push", model.step(60), root / "store", "--channel", "chat", "--json")["id"])
        tensors.append({n: v.copy() for n, v in model.now.items()})
        if len(ids) in (1, 2, 5, 14):  # not after each: several come at once then
            with StoreServer(root / "store") as server:
                mirrored.append(run("snapshot", "mirror", server.url, root / "mirror", "--channel", "chat", "--full-every", "8", "--json"))
    return root, ids, tensors, mirrored


def test_a_follower_applies_few_deltas_from_anywhere(chain, tmp_path):
    root, ids, tensors, mirrored = chain
    assert [len(m["snapshots"]) for m in mirrored] == [1, 1, 3, 9] and mirrored[-1]["sequence"] == 14
    # Depths 2, 4, 6, ... have one skip, 4, 8, 12 one more, 8 a third; 8 has a full copy.
    assert sum(len(m["skips"]) for m in mirrored) == 6 + 3 + 1 and sum(len(m["fulls"]) for m in mirrored) == 1, mirrored
    newest = len(ids) - 1
    with StoreServer(root / "mirror") as server:
        for have in (0, 1, 3, 4, 7, 9, 12):
            old, new = tmp_path / f"old-{have}", tmp_path / f"new-{have}"
            run("snapshot", "pull", server.url, ids[have], old, "--json")
            told = run("snapshot", "pull", server.url, "chat", new, "--base", old, "--json")
            assert same(old, tensors[have]) and same(new, tensors[newest]), have
            behind = newest - have
            assert 1 <= told["path"] <= 2 * math.log2(behind) + 1, (have, told)
            assert told["read_bytes"] < 0.2 * told["full_bytes"], told
        whole = run("snapshot", "pull", server.url, "chat", tmp_path / "whole", "--json")
        assert same(tmp_path / "whole", tensors[newest]) and whole["path"] <= 2 * math.log2(newest) + 2, whole
    # A control: the trainer's own store has no such ways, and the same follower reads every delta.
    plain = run("snapshot", "pull", root / "store", "chat", tmp_path / "plain", "--base", tmp_path / "old-0", "--json")
    assert plain["path"] == 0 and same(tmp_path / "plain", tensors[newest])


def test_pruning_keeps_the_ways_of_what_is_kept(chain, tmp_path):
    root, ids, tensors, _ = chain
    shutil.copytree(root / "mirror", tmp_path / "mirror")
    before = run("snapshot", "show", tmp_path / "mirror", "--json")
    assert run("snapshot", "prune", tmp_path / "mirror", "--json")["snapshots"] == []
    assert run("snapshot", "show", tmp_path / "mirror", "--json") == before
    # A damaged record of ways is a hint that is not taken.
    record = tmp_path / "mirror/ways" / f"{ids[-1]}.json"
    record.write_text(record.read_text().replace('"back":1', '"back":9'))
    told = run("snapshot", "pull", tmp_path / "mirror", "chat", tmp_path / "out", "--json")
    assert same(tmp_path / "out", tensors[-1]) and told["path"] == 0
    # A way that names a snapshot of other content is not believed.
    other = json.loads((root / "mirror/ways" / f"{ids[-1]}.json").read_text())
    wrong = json.loads((root / "mirror/ways" / f"{ids[8]}.json").read_text())
    other["ways"] = [{"back": 0, "bytes": 1, "id": [w for w in wrong["ways"] if w["parent"] is None][0]["id"], "parent": None}]
    record.write_text(json.dumps(other, sort_keys=True, separators=(",", ":")))
    run("snapshot", "pull", tmp_path / "mirror", "chat", tmp_path / "again", "--json")
    assert same(tmp_path / "again", tensors[-1])


def test_older_and_repeated_records_change_nothing(chain, tmp_path):
    root, ids, _, _ = chain
    shutil.copytree(root / "mirror", tmp_path / "mirror")
    shutil.copytree(root / "store", tmp_path / "store")
    record = tmp_path / "store/channels/chat.json"
    again = run("snapshot", "mirror", tmp_path / "store", tmp_path / "mirror", "--channel", "chat", "--json")
    assert again["snapshots"] == [] and again["target"] == ids[-1]
    record.write_text(json.dumps({"sequence": 3, "target": ids[2], "transition": "immediate"}, separators=(",", ":")))
    late = run("snapshot", "mirror", tmp_path / "store", tmp_path / "mirror", "--channel", "chat", "--json")
    assert late["target"] == ids[-1] and late["sequence"] == 14
    # A missing parent is named, and heals when it appears.
    model = Model(tmp_path, seed=12, elements=4_000)
    lost = run("snapshot", "push", model.step(9), tmp_path / "source", "--channel", "c", "--json")["id"]
    run("snapshot", "push", model.step(9), tmp_path / "source", "--channel", "c", "--json")
    (tmp_path / "source/manifests" / f"{lost}.json").rename(tmp_path / "away")
    assert lost in run("snapshot", "mirror", tmp_path / "source", tmp_path / "fresh", "--channel", "c", status=1).stderr
    (tmp_path / "away").rename(tmp_path / "source/manifests" / f"{lost}.json")
    assert len(run("snapshot", "mirror", tmp_path / "source", tmp_path / "fresh", "--channel", "c", "--json")["snapshots"]) == 2


def test_a_killed_mirror_leaves_the_old_or_the_new(tmp_path):
    model, kills = Model(tmp_path, seed=13, elements=1_300_000), 0
    first = run("snapshot", "push", model.step(), tmp_path / "store", "--channel", "chat", "--json")["id"]
    old = {n: v.copy() for n, v in model.now.items()}
    run("snapshot", "mirror", tmp_path / "store", tmp_path / "mirror", "--channel", "chat", "--json")
    for value in model.now.values():  # all of it changes: there is something to fetch
        value += 1
    run("snapshot", "push", model.write(), tmp_path / "store", "--channel", "chat", "--json")
    newest = run("snapshot", "push", model.step(), tmp_path / "store", "--channel", "chat", "--json")["id"]
    points = [("download.bytes", 1), ("download.bytes", 30), ("download.whole", 1), ("mirror.object", 1), ("store.object", 2), ("mirror.manifest", 1),
              ("mirror.manifest", 2), ("mirror.skip", 1), ("mirror.ways", 1), ("mirror.ways", 2), ("mirror.channel", 1), ("store.channel", 1)]
    for point, number in points:
        place = tmp_path / f"mirror-{point}-{number}"
        shutil.copytree(tmp_path / "mirror", place)
        with StoreServer(tmp_path / "store") as server:
            command = ["snapshot", "mirror", server.url, place, "--channel", "chat"]
            killed = run(*command, "--quiet", program=FAULTS, status=None, LOCKSTEP_KILL_AT=f"{point}:{number}")
            kills += killed.returncode == -signal.SIGKILL
            target = run("snapshot", "pull", place, "chat", tmp_path / "out", "--json", "--overwrite")["id"]
            assert target in (first, newest) and same(tmp_path / "out", old if target == first else model.now), (point, number)
            killed_bytes = server.objects_sent()
            run(*command, "--json")
            run("snapshot", "pull", place, "chat", tmp_path / "out", "--json", "--overwrite")
            assert same(tmp_path / "out", model.now) and run("snapshot", "verify", place, "chat", "--json")["sound"], (point, number)
            new = sum(p.stat().st_size for p in (tmp_path / "store/objects").glob("*/*")) - sum(p.stat().st_size for p in (tmp_path / "mirror/objects").glob("*/*"))
            assert server.objects_sent() - new <= 4 << 20, (point, number, killed_bytes, server.objects_sent(), new)
        shutil.rmtree(place)
    assert kills == len(points), kills


def until(reached):
    for _ in range(6000):
        if reached():
            return
        time.sleep(0.02)
    raise AssertionError("two minutes went by")


def test_a_mirror_that_follows_heals(tmp_path):
    model = Model(tmp_path, seed=14, elements=4_000)
    run("snapshot", "push", model.step(9), tmp_path / "store", "--channel", "chat", "--json")
    down = {"is": False}
    with StoreServer(tmp_path / "store", lambda path, number: 404 if down["is"] else None) as server:
        mirror = subprocess.Popen([str(BINARY), "snapshot", "mirror", server.url, str(tmp_path / "mirror"), "--channel", "chat", "--follow", "--poll-seconds", "0.1",
                                   "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        lines = [json.loads(mirror.stdout.readline())]
        until(lambda: server.not_modified > 0)  # it looks, and nothing is sent
        down["is"], asked = True, server.asked["channels/chat.json"]
        until(lambda: server.asked["channels/chat.json"] > asked + 1)
        newest = run("snapshot", "push", model.step(9), tmp_path / "store", "--channel", "chat", "--json")["id"]
        down["is"] = False
        lines.append(json.loads(mirror.stdout.readline()))
        mirror.send_signal(signal.SIGINT)
        _, errors = mirror.communicate(timeout=60)
    assert lines[1]["target"] == newest and lines[1]["sequence"] == 2 and server.not_modified > 0, lines
    assert "has no channel 'chat'" in errors and "tried again" in errors, errors
