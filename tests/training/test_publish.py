"""lockstep.publish from a torch loop: what `lockstep snapshot pull` writes has the trainer's bits, seen by digests of another program."""
import copy
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap

import httpx
import numpy as np
import pytest
import torch
import transformers
import xxhash
from comparison import largest_difference
from safetensors.torch import load_file
from store_tools import REPOSITORY, run

sys.path.insert(0, str(REPOSITORY / "python"))
import lockstep  # noqa: E402
from lockstep import _digest, _publish  # noqa: E402


@pytest.fixture
def base(tmp_path):
    folder = tmp_path / "base"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "llama", "note": "\\u00e4 \\" \\\\"}\n')
    (folder / "tokenizer.json").write_text("{}\n")
    return folder


def network():
    torch.manual_seed(3)
    net = torch.nn.Sequential(torch.nn.Embedding(200, 32), torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 200))
    return net.to(torch.bfloat16)


def pulled(store, out):
    run("snapshot", "pull", store, "chat", out, "--json")
    return load_file(out / "model.safetensors")


def bits(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def test_a_torch_loop_publishes_and_a_pull_has_its_bits(base, tmp_path):
    net = network()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    sizes = []
    for step in range(4):
        if step:
            tokens = torch.randint(0, 200, (4, 16))
            loss = torch.nn.functional.cross_entropy(net(tokens).float().reshape(-1, 200), tokens.reshape(-1))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        state = net.state_dict()
        id = lockstep.publish(state, tmp_path / "store", "chat", **({"files": base} if step == 0 else {}))
        found = pulled(tmp_path / "store", tmp_path / f"out-{step}")
        assert found.keys() == state.keys() and all(bits(found[n]) == bits(state[n]) and found[n].dtype == state[n].dtype for n in state)
        shown = run("snapshot", "show", tmp_path / "store", id, "--tensors", "--json")
        for row in shown["tensors"]:
            assert row["result"] == xxhash.xxh3_128_hexdigest(bits(state[row["name"]])), row
        sizes.append(shown["payload_bytes"])
        assert (tmp_path / f"out-{step}/config.json").read_bytes() == (base / "config.json").read_bytes()
    assert run("snapshot", "verify", tmp_path / "store", "chat", "--json")["snapshots"] == 4
    # The program pushes after it, and a new process of Python, which remembers nothing, goes on with what it can read.
    assert lockstep.publish(net.state_dict(), tmp_path / "store", "chat") == id
    _publish._last.clear()
    net[1].weight.data[0, 0] += 1
    sparse = lockstep.publish(net.state_dict(), tmp_path / "store", "chat")
    assert run("snapshot", "show", tmp_path / "store", sparse, "--json")["payload_bytes"] < 20
    assert bits(pulled(tmp_path / "store", tmp_path / "last")["1.weight"]) == bits(net[1].weight)
    run("snapshot", "push", tmp_path / "out-0", tmp_path / "store", "--channel", "chat", "--json")  # codecs that Python does not read
    _publish._last.clear()
    whole = lockstep.publish(net.state_dict(), tmp_path / "store", "chat")
    assert run("snapshot", "show", tmp_path / "store", whole, "--json")["parent"] is None


def test_a_torch_loop_drives_a_follower(tmp_path, start_sampler):
    """A server that follows what a torch loop publishes scores as transformers does with the loop's weights, at each step."""
    torch.manual_seed(5)
    settings = {"vocab_size": 512, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    net = transformers.LlamaForCausalLM(transformers.LlamaConfig(**settings, max_position_embeddings=128, tie_word_embeddings=False)).bfloat16()
    net.save_pretrained(tmp_path / "base")
    shutil.copy(REPOSITORY / "models/countdown-glm/tokenizer.json", tmp_path / "base")
    server = start_sampler("--profile", "cpu-f32", "--follow", f"{tmp_path}/store/chat", model=tmp_path / "base")
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    tokens = torch.randint(0, 64, (4, 24))
    before = None
    for step in range(3):
        if step:
            net(tokens, labels=tokens).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        id = lockstep.publish(net.state_dict(), tmp_path / "store", "chat", **({"files": tmp_path / "base"} if step == 0 else {}))
        loaded = httpx.post(f"{server.url}/hot_load/v1/models/hot_load", json={"identity": id}, timeout=60).json()
        assert loaded["ready"], loaded
        with torch.no_grad():
            logits = copy.deepcopy(net).double()(tokens[:1]).logits[0, :-1]
        expected = torch.log_softmax(logits, -1).gather(-1, tokens[0, 1:, None])[:, 0]
        body = {"model": "base", "prompt": tokens[0].tolist(), "max_tokens": 0, "echo": True, "logprobs": 0}
        answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60).json()
        assert answer.get("snapshot") == id, answer
        found = torch.tensor(answer["choices"][0]["logprobs"]["token_logprobs"][1:], dtype=torch.float64)
        assert largest_difference(found, expected) < 1e-4  # fp32 beside float64
        if step:
            assert largest_difference(found, before) > 0.05  # the control: a step is far more than that
        before = found


def test_every_type_and_odd_values_come_through(base, tmp_path):
    random = np.random.default_rng(4)
    types = [torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]
    raw = {t: random.integers(0, 2 if t is torch.bool else 256, 8 * 1000, np.uint8) for t in types}
    for step in range(3):
        for t in types:
            at = random.integers(0, 8000, (0, 1, 700)[step])
            raw[t][at] = random.integers(0, 2 if t is torch.bool else 256, len(at))
        state = {str(t): torch.from_numpy(raw[t].copy()).view(t) for t in types} | {"scalar": torch.tensor(float(step)), "empty": torch.zeros(0, 3)}
        lockstep.publish(state, tmp_path / "store", "chat", files=base)
        found = pulled(tmp_path / "store", tmp_path / f"out-{step}")
        assert all(bits(found[n]) == bits(state[n]) and found[n].shape == state[n].shape for n in state), step


def test_the_digest_without_the_package():
    random, package = np.random.default_rng(6), _digest.xxhash
    _digest.xxhash = None
    try:
        for size in [*range(0, 300), 1023, 1024, 1025, 1088, 2048, 2049, 5000, (4 << 20) + 77]:
            data = random.integers(0, 256, size, np.uint8)
            assert _digest.digest(data) == xxhash.xxh3_128_hexdigest(data.tobytes()), size
    finally:
        _digest.xxhash = package


def test_the_payload_is_that_of_the_format():
    """The pair of tests/golden/sync that the program and a decoder from the page read too."""
    (row,) = (row for row in json.loads((REPOSITORY / "tests/golden/sync/payloads.json").read_text()) if row["codec"] == "changes")
    old, new = (_publish._Tensor("a", np.frombuffer(bytes.fromhex(row[key]), np.uint16)) for key in ("old", "new"))
    assert _publish._encode(old, new) == ("changes", bytes.fromhex(row["payload"]))


def test_it_is_as_short_as_the_page_says():
    for module, most in ((_publish, 300), (_digest, 150)):
        with open(module.__file__) as file:
            assert len(file.readlines()) < most, module.__name__
    assert "fewer than 300\nlines, and `_digest.py`, which a trainer with xxhash does not need, fewer than 150" in (REPOSITORY / "docs/weight-sync.md").read_text()


def test_errors_say_what_is_wrong(base, tmp_path):
    with pytest.raises(lockstep.LockstepError, match="files=FOLDER"):
        lockstep.publish({"a": np.zeros(3, np.float32)}, tmp_path / "one", "chat")
    with pytest.raises(lockstep.LockstepError, match="complex64"):
        lockstep.publish({"a": np.zeros(3, np.complex64)}, tmp_path / "one", "chat", files=base)
    with pytest.raises(lockstep.LockstepError, match="snapshot mirror"):
        lockstep.publish({}, "s3://bucket/x", "chat", files=base)
    with pytest.raises(lockstep.LockstepError, match="channel's name"):
        lockstep.publish({}, tmp_path / "one", "a/b", files=base)
    with pytest.raises(lockstep.LockstepError, match="holds other files"):
        lockstep.publish({}, base, "chat", files=base)


def test_a_killed_publisher_leaves_the_old_or_the_new(base, tmp_path):
    script = textwrap.dedent(f"""
        import os, signal, sys
        sys.path.insert(0, {str(REPOSITORY / "python")!r})
        import numpy as np, lockstep
        from lockstep import _publish
        at, calls = int(sys.argv[1]), 0
        def dying(call):
            def one(*a):
                global calls
                calls += 1
                if calls == at: os.kill(os.getpid(), signal.SIGKILL)
                return call(*a)
            return one
        os.replace, os.fsync = dying(os.replace), dying(os.fsync)
        weights = {{"a": np.arange(9000, dtype=np.float32)}}
        weights["a"][::50] += 1
        lockstep.publish(weights, {str(tmp_path / "store")!r}, "chat")
    """)
    old = np.arange(9000, dtype=np.float32)
    new = old.copy()
    new[::50] += 1
    first = lockstep.publish({"a": old}, tmp_path / "origin", "chat", files=base)
    kills = 0
    for at in range(1, 20):
        subprocess.run(["rm", "-rf", str(tmp_path / "store")], check=True)
        subprocess.run(["cp", "-a", str(tmp_path / "origin"), str(tmp_path / "store")], check=True)
        done = subprocess.run([sys.executable, "-c", script, str(at)], capture_output=True, text=True, env={**os.environ})
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        found = run("snapshot", "pull", tmp_path / "store", "chat", tmp_path / "out", "--json", "--overwrite")
        values = load_file(tmp_path / "out/model.safetensors")["a"].numpy()
        assert np.array_equal(values, old if found["id"] == first else new), at
        assert run("snapshot", "verify", tmp_path / "store", "chat", "--json")["sound"]
        if done.returncode == 0:
            assert np.array_equal(values, new)
            break
        kills += 1
    assert kills >= 8, kills
