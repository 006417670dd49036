"""What a failure leaves behind, on the wire: checkpoints that cannot be read, writes that a full disk or a kill ends in the middle."""
import contextlib
import shutil
import signal
import time

import pytest
import requests

from test_wire import BASE, OTHER, TOKENS, Client

PROMPT = {"chunks": [{"type": "encoded_text", "tokens": TOKENS[:4]}]}


class Trainer(Client):
    """A client that counts the numbers of its models."""

    def __init__(self, url, key="tml-damage"):
        super().__init__(url, key)
        self.numbers = {}

    def made(self, number, rank):
        answer = self.post("create_model", session_id=self.session, model_seq_id=number, base_model=BASE, lora_config={"rank": rank, "seed": 5})
        return self.result(answer["request_id"])["model_id"]

    def do(self, model, route, **fields):
        number = self.numbers[model] = self.numbers.get(model, 0) + 1
        return self.result(self.post(route, model_id=model, seq_id=number, **fields)["request_id"])

    def trained(self, model, tokens=TOKENS):
        """A gradient and a step; the number of steps then."""
        number = self.numbers.get(model, 0)
        self.numbers[model] = number + 2
        self.backward(model, number + 1, tokens)
        return self.result(self.step(model, number + 2))["metrics"]["weights_version"]

    def scored(self, model, tokens=TOKENS):
        """The bytes of a forward's result: its bits. Or its error."""
        datum = {"model_input": {"chunks": [{"type": "encoded_text", "tokens": tokens[:-1]}]}, "loss_fn_inputs": {"target_tokens": {"dtype": "int64", "data": tokens[1:]}}}
        return self.do(model, "forward", forward_input={"data": [datum], "loss_fn": "cross_entropy"})

    def sampled(self, path, number):
        """The bytes of a sample of a sampler's checkpoint, with the log-probabilities of its prompt."""
        made = self.post("create_sampling_session", session_id=self.session, sampling_session_seq_id=number, model_path=path)
        body = {"num_samples": 1, "prompt": PROMPT, "prompt_logprobs": True, "sampling_params": {"max_tokens": 6, "seed": 3, "stop": []}}
        return self.result(self.post("asample", sampling_session_id=made["sampling_session_id"], seq_id=0, **body)["request_id"])


def folder_of(state, kind, model, *names):
    return state.joinpath(kind, model.replace(":", "_"), *names)


def damage(folder):
    """One byte of the largest file below it is another."""
    file = max((f for f in folder.rglob("*") if f.is_file()), key=lambda f: f.stat().st_size)
    whole = file.read_bytes()
    file.write_bytes(whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:])


@pytest.mark.parametrize("rank", [0, 4])
def test_a_load_that_fails_leaves_the_model_as_it_was(start_server, tmp_path, rank):
    client = Trainer(start_server().url)
    model = client.made(0, rank)
    fresh = client.scored(model)
    client.trained(model)
    for name in ("damaged", "gone", "empty"):
        client.do(model, "save_weights", path=name)
    client.trained(model, OTHER)
    client.do(model, "save_weights", path="now")
    before = client.scored(model)
    assert isinstance(before, bytes) and before != fresh
    damage(folder_of(tmp_path / "state", "checkpoints", model, "weights", "damaged"))
    shutil.rmtree(folder_of(tmp_path / "state", "checkpoints", model, "weights", "gone"))
    for file in folder_of(tmp_path / "state", "checkpoints", model, "weights", "empty").rglob("*"):
        if file.is_file():
            file.write_bytes(b"")
    for optimizer in (True, False):
        for name in ("damaged", "gone", "empty", "never-was"):
            failed = client.do(model, "load_weights", path=f"tinker://{model}/weights/{name}", optimizer=optimizer)
            assert "error" in failed and client.scored(model) == before, (name, failed)
    client.trained(model)  # with the optimizer's state that it had
    after = client.scored(model)
    assert client.do(model, "load_weights", path="now", optimizer=True)["model_id"] == model
    assert client.scored(model) == before and client.trained(model) == 3 and client.scored(model) == after


@pytest.mark.parametrize("rank", [0, 4])
def test_a_model_that_cannot_come_back_from_disk_is_not_taken_for_a_fresh_one(start_server, tmp_path, rank):
    client = Trainer(start_server("--max-models", "1").url)
    model = client.made(0, rank)
    client.trained(model)
    before = client.scored(model)
    other = client.made(1, rank)  # now the first is on disk
    living = folder_of(tmp_path / "state", "living", model)
    shutil.copytree(living, tmp_path / "kept")
    damage(living)
    for _ in range(2):  # nor is it on the second try, when something may have been left in memory
        assert client.scored(model)["category"] == "server"
    assert isinstance(client.scored(other), bytes)
    shutil.rmtree(living)
    assert "not on disk any more" in client.scored(model)["error"]
    shutil.copytree(tmp_path / "kept", living)
    assert client.scored(model) == before


# What is written, what it replaces. A write of a checkpoint puts one folder in its place.
WRITES = [("merged_base", "merged_base"), ("merged_base", "base"), ("base", "merged_base"), ("base", "base")]


@pytest.mark.parametrize("new,old", WRITES)
def test_a_write_that_the_disk_refuses_leaves_the_checkpoint_that_it_would_replace(start_server, monkeypatch, new, old):
    monkeypatch.setenv("LOCKSTEP_FAIL_AT", "folder.synced:2")
    client = Trainer(start_server().url)
    model = client.made(0, 4)
    client.trained(model)
    path = client.do(model, "save_weights_for_sampler", path="one", checkpoint_type=old)["path"]
    before = client.sampled(path, 0)
    client.trained(model, OTHER)
    refused = client.do(model, "save_weights_for_sampler", path="one", checkpoint_type=new)
    assert "already" in refused["error"]
    failed = client.do(model, "save_weights_for_sampler", path="one", checkpoint_type=new, overwrite=True)
    assert failed["category"] == "server" and "No space left" in failed["error"], failed
    assert isinstance(before, bytes) and client.sampled(path, 1) == before
    assert client.do(model, "save_weights_for_sampler", path="one", checkpoint_type=new, overwrite=True)["path"] == path
    after = client.sampled(path, 2)
    assert isinstance(after, bytes) and after != before
    assert client.do(model, "save_weights_for_sampler", path="control", checkpoint_type=new)["path"] and client.sampled(path.replace("/one", "/control"), 3) == after


@pytest.mark.parametrize("point", ["folder.written:2", "folder.synced:2", "folder.renamed:2", "folder.old_removed:1"])
@pytest.mark.parametrize("new,old", WRITES)
def test_a_kill_in_a_write_leaves_one_of_the_two(start_server, monkeypatch, new, old, point):
    monkeypatch.setenv("LOCKSTEP_KILL_AT", point)
    server = start_server()
    client = Trainer(server.url)
    model = client.made(0, 4)
    client.trained(model)
    path = client.do(model, "save_weights_for_sampler", path="one", checkpoint_type=old)["path"]
    before = client.sampled(path, 0)
    client.trained(model, OTHER)
    with contextlib.suppress(requests.ConnectionError):  # it may end before it answers
        client.post("save_weights_for_sampler", model_id=model, seq_id=client.numbers[model] + 1, path="one", checkpoint_type=new, overwrite=True)
    exchanges = new == old == "merged_base"  # else nothing stands there yet that would be removed
    if "old_removed" in point and not exchanges:
        time.sleep(0.5)
        server.stop(signal.SIGKILL)
    assert server.process.wait(timeout=30) == -signal.SIGKILL
    monkeypatch.delenv("LOCKSTEP_KILL_AT")
    client.url = start_server().url + "/api/v1/"
    now = client.sampled(path, 1)
    assert isinstance(before, bytes) and isinstance(now, bytes)
    if "renamed" not in point and "removed" not in point:
        assert now == before
    elif exchanges:
        assert now != before  # the exchange is the moment


def test_a_promotion_that_the_disk_refuses_is_none(start_server, monkeypatch, tmp_path):
    monkeypatch.setenv("LOCKSTEP_FAIL_AT", "folder.synced:2")
    client = Trainer(start_server().url)
    model = client.made(0, 4)
    client.trained(model)
    client.do(model, "save_weights_for_sampler", path="one", checkpoint_type="base")
    body = {"output_model": "accounts/local/models/mine", "base_model": BASE}

    def promote():
        return requests.post(client.url.removesuffix("/api/v1/") + "/v1/accounts/local/checkpoints/one:promote", json=body, headers={"X-API-Key": client.key}, timeout=60)

    refused = promote()
    assert refused.status_code == 500 and "No space left" in refused.text
    assert not [f for f in (tmp_path / "state/models").rglob("*") if f.is_file()]
    made = promote()
    assert made.status_code == 200 and made.json()["model"]["state"] == "READY", made.text
