"""`lockstep deploy --gate`: a version goes live when it is not worse than the live one by more than the file allows; a worse one, one with a wrong tensor and one whose
objects are damaged leave the alias where it was, with one reason; reports are told over HTTP, after a restart too."""
import json
import shutil
import struct

import pytest
import requests
from conftest import MODEL
from test_fleet import lockstep, stepped

GATE = """environment = "countdown"
problems = 60
max_tokens = 16
accuracy_drop = 0.05
texts = "texts.jsonl"
logprob_drop = 0.05
"""

TEXTS = ["3 7 12=48:7-3=4,12*4=48", "2 4 10=60:4+2=6,10*6=60", "1 5 8=32:5-1=4,8*4=32", "3 5 7=56:5+3=8,8*7=56"]


def without(before, folder, tensor):
    """A copy of a model in which one tensor is nought."""
    shutil.copytree(before, folder)
    content = bytearray((folder / "model.safetensors").read_bytes())
    (length,) = struct.unpack("<Q", content[:8])
    begin, end = json.loads(content[8 : 8 + length])[tensor]["data_offsets"]
    content[8 + length + begin : 8 + length + end] = bytes(end - begin)
    (folder / "model.safetensors").write_bytes(content)
    return folder


@pytest.fixture
def gated(own_server, tmp_path):
    """A server whose alias `chat` is v7, a store below its folder of models, and a gate."""
    store = tmp_path / "models/store"
    store.parent.mkdir()
    lockstep("snapshot", "push", MODEL, store, "--channel", "v7", "--parent", "none")
    (tmp_path / "gate.toml").write_text(GATE)
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    start = lambda: own_server("--deploy", f"v7={store}/v7", "--route", "chat=v7", "--deploy-folder", str(tmp_path / "models"), "--deploy-state", str(tmp_path / "state"), model=None)  # noqa: E731
    return start(), store, start


def deploy(server, gate, source, name, status, *more):
    done = lockstep("deploy", source, "--name", name, "--to", "chat", "--gate", gate, *more, "--url", server.url, "--seconds", 300, status=status)
    (alias,) = requests.get(f"{server.url}/v1/aliases", timeout=30).json()["data"]
    return done, alias["deployments"]


def test_only_what_is_not_worse_goes_live(gated, tmp_path):
    server, store, start = gated
    gate = tmp_path / "gate.toml"
    lockstep("snapshot", "push", stepped(MODEL, tmp_path / "good", 3), store, "--channel", "good", "--parent", "v7")
    done, leads = deploy(server, gate, "store/good", "v8", 0)
    assert leads == {"v8": 1}
    for words in ("gate-1: digests passed", "gate-1: accuracy passed", "gate-1: company passed", "gate-1: divergence passed", "gate-1: speed passed", "gate-1: log-probability passed", "chat: v8:1"):
        assert words in done.stdout, done.stdout
    # A wrong tensor, in a snapshot that is whole.
    lockstep("snapshot", "push", without(MODEL, tmp_path / "wrong", "model.layers.1.self_attn.o_proj.weight"), store, "--channel", "wrong", "--parent", "v7")
    done, leads = deploy(server, gate, "store/wrong", "v9", 1)
    assert leads == {"v8": 1} and "'chat' stays as it is" in done.stderr and "'v8', which is live" in done.stderr and "/v1/gates/gate-2" in done.stderr, done.stderr
    report = requests.get(f"{server.url}/v1/gates/gate-2", timeout=30).json()
    checks = {check["name"]: check for check in report["checks"]}
    assert not report["passed"] and report["deployment"] == "v9" and report["live"] == "v8"
    assert checks["digests"]["passed"] and checks["company"]["passed"]
    assert checks["accuracy"]["difference"]["value"] < -0.05 and checks["log-probability"]["logprob"] < checks["log-probability"]["live_logprob"] - 0.05
    assert checks["divergence"]["kl"] > 0.02 and checks["speed"]["tokens_per_second"] > 0 and not report["forced"]
    # One of a folder has no digests.
    shutil.copytree(MODEL, tmp_path / "models/plain")
    done, leads = deploy(server, gate, "plain", "v10", 1)
    assert leads == {"v8": 1} and "was not made of a snapshot" in done.stderr
    # A bound that the live version sets alone is kept by its own weights.
    (tmp_path / "again.toml").write_text(GATE.replace("0.05", "0"))
    assert deploy(server, tmp_path / "again.toml", "store/good", "v11", 0)[1] == {"v11": 1}
    reports = requests.get(f"{server.url}/v1/gates", timeout=30).json()["data"]
    assert [(one["id"], one["passed"]) for one in reports] == [("gate-4", True), ("gate-3", False), ("gate-2", False), ("gate-1", True)]
    server.stop()
    server = start()
    assert requests.get(f"{server.url}/v1/gates", timeout=30).json()["data"] == reports
    (alias,) = requests.get(f"{server.url}/v1/aliases", timeout=30).json()["data"]
    assert alias["deployments"] == {"v11": 1} and alias["before"] == {"v8": 1}
    # Far from the live version is a reason by itself; who forces it has the alias moved, and a report that says so.
    (tmp_path / "near.toml").write_text('environment = "countdown"\nproblems = 40\nmax_tokens = 16\naccuracy_drop = 1\nkl_limit = 0.02\nspeed_drop = 0.99\n')
    done, leads = deploy(server, tmp_path / "near.toml", "store/wrong", "v12", 1)
    assert leads == {"v11": 1} and "nats a token from 'v11', which is live" in done.stderr, done.stderr
    done, leads = deploy(server, tmp_path / "near.toml", "store/wrong", "v13", 0, "--force")
    assert leads == {"v13": 1} and "gate-6: divergence failed" in done.stdout and "gate-6: failed, and was overruled by --force" in done.stdout, done.stdout
    report = requests.get(f"{server.url}/v1/gates/gate-6", timeout=30).json()
    assert report["forced"] and not report["passed"] and "nats a token" in report["reason"]


def test_a_damaged_object_never_becomes_a_deployment(gated, tmp_path):
    server, store, _ = gated
    before = {path.name for path in (store / "objects").rglob("*") if path.is_file()}
    lockstep("snapshot", "push", stepped(MODEL, tmp_path / "next", 4), store, "--channel", "next", "--parent", "v7")
    for path in (store / "objects").rglob("*"):
        if path.is_file() and path.name not in before:
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 1
            path.chmod(0o644)
            path.write_bytes(content)
    done, leads = deploy(server, tmp_path / "gate.toml", "store/next", "v8", 1)
    assert leads == {"v7": 1}, done.stderr
    assert [row["id"] for row in requests.get(f"{server.url}/v1/deployments", timeout=30).json()["data"]] == ["v7"]
