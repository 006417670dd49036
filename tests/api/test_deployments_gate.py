"""`lockstep deploy --gate`: a version goes live when it is not worse than the live one by more than the file allows; a worse one, one with a wrong tensor and one whose
objects are damaged leave the alias where it was, with one reason; reports are told over HTTP, after a restart too. What a channel brings passes the same gate, with
the bits that it has once it is live."""
import json
import shutil
import struct

import openai
import pytest
import requests
from conftest import MODEL
from test_deployments import answer
from test_fleet import lockstep, push, stepped, wait_for

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
    warned = lambda: [line for line in server.errors if "moved all the same" in line]  # noqa: E731
    wait_for("the server's log has who moved it", lambda: any(all(word in line for word in ("gate-6", "chat", "v13", "nats a token")) for line in warned()))
    assert len(warned()) == 1, warned()


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


def test_what_a_channel_brings_passes_the_gate(own_server, tmp_path):
    """A worse snapshot stays out of the alias and of the deployment, a good one goes live; a gate that is set over HTTP lasts over a restart; without it all goes live."""
    store = tmp_path / "store"
    (tmp_path / "gate.toml").write_text(GATE)
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    good = stepped(MODEL, tmp_path / "good", 3)
    wrong = without(MODEL, tmp_path / "wrong", "model.layers.1.self_attn.o_proj.weight")
    first = push(store, MODEL, "chat", "none")
    options = ["--deploy", f"moves={store}/chat", "--deploy-follow", "moves", "--route", "chat=moves", "--deploy-state", str(tmp_path / "state"), "--name", "own"]
    server = own_server(*options, "--route-gate", f"chat={tmp_path / 'gate.toml'}")
    live = lambda: openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0).completions.create(model="chat", prompt="3 7 12=48:", max_tokens=1).model_extra["snapshot"]  # noqa: E731
    gates = lambda: requests.get(f"{server.url}/v1/gates", timeout=30).json()["data"]  # noqa: E731
    replica = lambda: (json.loads(lockstep("fleet", "status", f"{store}/chat", "--json", status=None).stdout)["replicas"] or [{"stage": "none yet"}])[0]  # noqa: E731
    wait_for("it follows", lambda: replica()["stage"] == "ready")
    assert gates() == []  # these weights were live
    second = push(store, wrong, "chat", first)
    wait_for("it is kept out", lambda: replica()["stage"] == "error")
    assert "'moves' keeps the weights that it has, for the gate of 'chat'" in replica()["error"] and "/v1/gates/gate-1" in replica()["error"]
    report = gates()[0]
    assert report["deployment"] == f"moves@{second[:12]}" and report["live"] == "moves" and not report["passed"] and not report["forced"]
    assert live() == first and answer(server.url, "moves")["snapshot"] == first and len(gates()) == 1
    # A good one after it goes live, with the bits of its folder, and the same bits as when it was asked.
    third = push(store, good, "chat", first)
    wait_for("the good one is live", lambda: live() == third)
    alone = own_server("--name", "moves", model=good)
    assert answer(server.url, "chat")["choices"] == answer(alone.url, "moves")["choices"]
    alone.stop()
    # Over a restart an alias that was changed over HTTP has its gate.
    gate = {"texts": TEXTS, "logprob_drop": 0.05}
    assert requests.put(f"{server.url}/v1/aliases/chat", json={"deployments": "own", "gate": {**gate, "digests": False}}, timeout=60).json()["gated"]
    assert requests.put(f"{server.url}/v1/aliases/chat", json={"deployments": "moves", "gate": gate}, timeout=60).json()["gated"]
    server.stop()
    server = own_server(*options)
    wait_for("the third is live", lambda: live() == third and replica()["stage"] == "ready")
    fourth = push(store, wrong, "chat", third)
    wait_for("it is kept out", lambda: replica()["stage"] == "error")
    assert live() == third and gates()[0]["alias"] == "chat" and [check["name"] for check in gates()[0]["checks"]] == ["digests", "log-probability"]
    # Without the gate it goes live.
    assert not requests.put(f"{server.url}/v1/aliases/chat", json={"deployments": "moves", "gate": None}, timeout=60).json()["gated"]
    wait_for("the fourth is live", lambda: live() == fourth)
    server.stop()
    # What is written over the live weights cannot be asked before.
    for arguments, status, words in (
        (["--follow", f"{store}/chat", "--swap-memory", "single", "--name", "own", "--route", "chat=own", "--route-gate", f"chat={tmp_path / 'gate.toml'}"], 1, "'chat' cannot have a gate and lead to 'own', which follows a channel: --swap-memory single"),
        (["--route", "chat=countdown-glm", "--route-gate", f"talk={tmp_path / 'gate.toml'}"], 2, "allowed is the alias of a --route"),
        (["--route", "chat=countdown-glm", "--route-gate", "chat=nowhere.toml"], 1, "cannot open 'nowhere.toml'"),
    ):
        assert words in lockstep("serve", "--model", MODEL, "--port", "0", *arguments, status=status).stderr, words
