"""A replica that follows a store over HTTP whose server cuts, stalls, lies and refuses: each answer is that of the snapshot that it names, and every fault that ends is got over.
No secret of a store stands in its log."""
import re
import sys
import time

import httpx
from store_tools import REPOSITORY, StoreServer, run, wait_until
from test_s3_signatures import VARIABLES, Bucket

sys.path.insert(0, str(REPOSITORY / "bench"))
from regions import PROMPT, stepped  # noqa: E402

MODEL = REPOSITORY / "models/countdown-glm"
FAULTS = [("cut", "objects/"), ("stall", "objects/"), (503, "objects/"), ("lie", "objects/"), ("lie", "manifests/"), ("missing", "manifests/"), ("lie", "channels/")]


class Wrong:
    """A fault of so many answers for paths that begin so."""

    def __init__(self, fault, of, times=1):
        self.fault, self.of, self.left = fault, of, times

    def __call__(self, path, number):
        if not path.startswith(self.of) or self.left == 0:
            return None
        self.left -= 1
        return self.fault


def choices(server):
    answer = httpx.post(f"{server.url}/v1/completions", json=PROMPT, timeout=60).json()
    return answer.get("snapshot"), answer["choices"]


def figure(server, name):
    return float(re.search(rf"^{re.escape(name)} (\S+)$", httpx.get(f"{server.url}/metrics").text, re.M)[1])


def test_a_replica_goes_on_whatever_the_server_does(tmp_path, start_sampler):
    store, folders = tmp_path / "store", [stepped(MODEL, tmp_path / "odd", 1, 1), MODEL]
    push = lambda folder: run("snapshot", "push", folder, store, "--channel", "chat", "--profile", "cpu-bf16w", "--json")["id"]  # noqa: E731
    plain = start_sampler("--threads", "1", model=folders[0])
    said = [choices(plain)[1]]
    plain.stop()
    first = push(MODEL)
    with StoreServer(store) as source:
        server = start_sampler("--follow", f"{source.url}/chat", "--replica", "r", "--downloads", str(tmp_path / "downloads"), "--threads", "1", "--in-flight", "finish")
        wait_until(lambda: choices(server)[0] == first)
        said.append(choices(server)[1])
        assert said[0] != said[1]
        expected = {first: said[1]}

        def goes_to(snapshot):
            ended = time.monotonic() + 60
            while (now := choices(server))[0] != snapshot:
                assert now[1] == expected[now[0]], "an answer is not that of its snapshot"
                assert time.monotonic() < ended, f"it did not come to {snapshot} in a minute"
                time.sleep(0.05)
            assert now[1] == expected[snapshot]

        for number, (fault, of) in enumerate(FAULTS):
            source.fault = wrong = Wrong(fault, of)
            snapshot = push(folders[number % 2])
            expected[snapshot] = said[number % 2]
            goes_to(snapshot)
            wait_until(lambda: wrong.left == 0)
        wait_until(lambda: figure(server, 'lockstep_sync_stage{stage="ready"}') == 1)
        # A server that lies for ever: an error that stays, on the old snapshot; once it is honest, that heals.
        source.fault, errors = Wrong("lie", "objects/", -1), figure(server, "lockstep_sync_errors_total")
        other = len(FAULTS) % 2
        snapshot, before = push(folders[other]), choices(server)
        expected[snapshot] = said[other]
        wait_until(lambda: figure(server, 'lockstep_sync_stage{stage="error"}') == 1)
        assert choices(server) == before and before[0] != snapshot and figure(server, "lockstep_sync_errors_total") > errors
        source.fault = Wrong(None, "")
        goes_to(snapshot)


def test_a_followers_log_has_no_secret(tmp_path, start_sampler, monkeypatch):
    def log_of(place, *words):
        server = start_sampler("--follow", place, "--replica", "r", "--downloads", str(tmp_path / "downloads"), "--threads", "1", "--log-level", "debug")
        wait_until(lambda: figure(server, 'lockstep_sync_stage{stage="error"}') == 1)
        server.stop()
        log = "".join(server.errors)
        assert all(word in log for word in words), log
        return log

    (tmp_path / "channels").mkdir()
    monkeypatch.setenv("LOCKSTEP_STORE_KEY", "wrong-key-66")
    with StoreServer(tmp_path, key="open-sesame-77") as source:
        assert "wrong-key-66" not in log_of(f"{source.url}/chat", "status 401", "LOCKSTEP_STORE_KEY")
    with Bucket() as bucket:
        secrets = {"AWS_SECRET_ACCESS_KEY": "another-secret", "AWS_SESSION_TOKEN": "another-token"}
        for name, value in {**VARIABLES, **secrets, "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{bucket.http.server_port}"}.items():
            monkeypatch.setenv(name, value)
        log = log_of("s3://weights/models/chat", "status 403 (SignatureDoesNotMatch)", "AWS_SECRET_ACCESS_KEY")
        assert bucket.wrong and not [value for value in secrets.values() if value in log], log
