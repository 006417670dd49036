"""A server that publishes keeps samplers' checkpoints as snapshots of its store, and nowhere else. What clients do with checkpoints has the same bits there,
also after a kill; a kill at any point of a save leaves the old checkpoint or the new one; one that is deleted lets `prune` remove its snapshot."""
import contextlib
import signal
import time

import pytest
import requests
import tinker
import torch
from conftest import Server
from safetensors.torch import load_file
from store_tools import run
from test_damage import Trainer
from test_fireworks import test_weights_are_synced_and_sampled  # noqa: F401
from test_fireworks_control import test_checkpoints_are_listed_and_promoted, test_deployments_outlive_the_server  # noqa: F401
from test_fireworks_lora import lora, test_a_promoted_adapter_is_loaded_sampled_and_refused_where_it_does_not_fit, test_an_adapter_is_trained_and_sampled_with_equal_bits  # noqa: F401
from test_fireworks_serverless import test_a_session_is_trained_sampled_and_resumed, test_sessions_are_listed_promoted_and_closed  # noqa: F401
from test_sessions import test_a_copy_outlives_its_source  # noqa: F401
from test_wire import BASE, OTHER

# Tests of other files run here again: their servers publish.


@pytest.fixture
def start_server(tmp_path):
    started = []

    def start(*arguments, **model):
        started.append(Server("--training", "--state", str(tmp_path / "state"), "--publish", f"{tmp_path}/store/chat", *arguments, **model))
        return started[-1]

    yield start
    for server in started:
        server.stop()
    assert not list(tmp_path.glob("state/checkpoints/*/sampler_weights/**/*.safetensors")), "a sampler's checkpoint has a file of its own"


@pytest.fixture
def training_server(start_server):
    return start_server()


def channels(folder):
    """Names, and the snapshot of each, of the store below `folder`."""
    return {one["name"]: one["target"] for one in run("snapshot", "show", folder / "store", "--json")["channels"]}


def soon(folder, wanted):
    for _ in range(200):
        if (found := channels(folder)) == wanted:
            return
        time.sleep(0.05)
    assert found == wanted


def save(client, model, name, **fields):
    answer = client.do(model, "save_weights_for_sampler", path=name, **fields)
    assert "path" in answer, answer
    return answer["path"]


@pytest.mark.parametrize("rank", [0, 4])
def test_what_was_acknowledged_is_there_after_a_kill_with_the_same_bits(start_server, tmp_path, rank):
    server = start_server()
    client = Trainer(server.url)
    model = client.made(0, rank)
    client.trained(model)
    one = save(client, model, "one")
    begun = client.sampled(one, 0)
    client.trained(model, OTHER)
    two = save(client, model, "two", checkpoint_type="delta")
    server.stop(signal.SIGKILL)  # at once
    assert channels(tmp_path).keys() == {"one", "two"}
    client.url = start_server().url + "/api/v1/"
    again, second = client.sampled(one, 1), client.sampled(two, 2)
    assert isinstance(begun, bytes) and isinstance(second, bytes)
    assert again == begun != second
    # The snapshot is a delta, and the listing says what it took.
    listed = {c.tinker_path: c.size_bytes for c in tinker.RestClient(base_url=client.url.removesuffix("/api/v1/"), api_key=client.key).list_checkpoints(model).result().checkpoints}
    shown = {name: run("snapshot", "show", tmp_path / "store", id, "--json") for name, id in channels(tmp_path).items()}
    assert shown["two"]["parent"] == shown["one"]["id"] and shown["one"]["parent"] is None
    for path, name in ((one, "one"), (two, "two")):
        assert listed[path] >= shown[name]["payload_bytes"] > 0 and shown[name]["payload_bytes"] <= shown[name]["full_bytes"], (listed, shown)
    # What is promoted has the snapshot's values, which are the model's in bf16.
    body = {"output_model": "accounts/local/models/mine", "base_model": BASE}
    made = requests.post(client.url.removesuffix("/api/v1/") + "/v1/accounts/local/checkpoints/two:promote", json=body, headers={"X-API-Key": client.key}, timeout=60)
    assert made.status_code == 200, made.text
    run("snapshot", "pull", tmp_path / "store", "two", tmp_path / "pulled", "--json")
    name = "adapter_model.safetensors" if rank else "model.safetensors"
    promoted, pulled = load_file(next((tmp_path / "state/models").glob("*/mine")) / name), load_file(tmp_path / "pulled" / name)
    assert promoted.keys() >= pulled.keys()
    for key, value in pulled.items():
        assert promoted[key].dtype == torch.float32 and torch.equal(promoted[key], value.float()), key
    run("snapshot", "pull", tmp_path / "store", "one", tmp_path / "before", "--json")
    before = load_file(tmp_path / "before" / name)
    assert any(not torch.equal(before[key], pulled[key]) for key in pulled)
    # A server of the folder that was pulled is another program that reads it.
    if rank == 0:
        alone = Server(model=tmp_path / "pulled")
        try:
            prompt = {"model": "pulled", "prompt": [1, 5, 7, 9], "max_tokens": 6, "seed": 3, "temperature": 1, "logprobs": 0}
            from_folder = requests.post(alone.url + "/v1/completions", json=prompt, timeout=60).json()["choices"][0]
            served = requests.post(client.url.removesuffix("/api/v1/") + "/inference/v1/completions", headers={"X-API-Key": client.key}, timeout=60,
                                   json={**prompt, "model": "accounts/local/models/mine", "logprobs": True}).json()["choices"][0]
            assert from_folder["text"] == served["text"]
        finally:
            alone.stop()


@pytest.mark.parametrize("rank", [0, 4])
@pytest.mark.parametrize("point", ["store.manifest:2", "store.channel:2", "store.channel:3"])
def test_a_kill_in_a_save_leaves_one_of_the_two(start_server, monkeypatch, tmp_path, rank, point):
    monkeypatch.setenv("LOCKSTEP_KILL_AT", point)
    server = start_server()
    client = Trainer(server.url)
    model = client.made(0, rank)
    client.trained(model)
    path = save(client, model, "one")
    before = client.sampled(path, 0)
    client.trained(model, OTHER)
    with contextlib.suppress(requests.ConnectionError):  # it ends before it answers
        client.post("save_weights_for_sampler", model_id=model, seq_id=client.numbers[model] + 1, path="one", overwrite=True)
    assert server.process.wait(timeout=60) == -signal.SIGKILL
    monkeypatch.delenv("LOCKSTEP_KILL_AT")
    client.url = start_server().url + "/api/v1/"
    now = client.sampled(path, 1)
    assert isinstance(before, bytes) and isinstance(now, bytes)
    assert (now == before) == (point != "store.channel:3")  # the third gives the new one, which is there, the name of the old one
    assert run("snapshot", "verify", tmp_path / "store", next(iter(channels(tmp_path))), "--json")["sound"]
    # Of what the kill left nothing is held, and the checkpoint goes like any other.
    kept = channels(tmp_path)
    for _ in range(100):
        if len(kept := channels(tmp_path)) == 1:
            break
        time.sleep(0.05)
    assert len(kept) == 1, kept
    rest = tinker.RestClient(base_url=client.url.removesuffix("/api/v1/"), api_key=client.key)
    rest.delete_checkpoint_from_tinker_path(path).result()
    soon(tmp_path, {})


def test_one_that_is_deleted_is_pruned_and_training_goes_on(start_server, tmp_path):
    client = Trainer(start_server().url)
    model = client.made(0, 0)
    client.trained(model)
    kept, gone = save(client, model, "kept"), save(client, model, "gone")
    before = client.sampled(kept, 0)
    held = channels(tmp_path)
    assert run("snapshot", "prune", tmp_path / "store", "--json")["snapshots"] == []
    rest = tinker.RestClient(base_url=client.url.removesuffix("/api/v1/"), api_key=client.key)
    rest.delete_checkpoint_from_tinker_path(gone).result()
    soon(tmp_path, {"kept": held["kept"]})
    assert run("snapshot", "prune", tmp_path / "store", "--json")["snapshots"] == [held["gone"]]
    assert "there is no checkpoint" in str(client.raw("create_sampling_session", json={"session_id": client.session, "sampling_session_seq_id": 1, "model_path": gone}).json())
    # What the next save would have followed is gone, so that one begins anew.
    client.trained(model, OTHER)
    new = save(client, model, "new")
    assert run("snapshot", "show", tmp_path / "store", "new", "--json")["parent"] in (None, held["kept"])
    assert client.sampled(kept, 2) == before != client.sampled(new, 3)


def test_names_of_two_models_and_one_that_is_overwritten(start_server, start_sampler, tmp_path):
    """The same name of two models: each is its own, and hot load takes the caller's."""
    server = start_server()
    replica = start_sampler("--follow", f"{tmp_path}/store/chat", "--replica", "r")
    client, other = Trainer(server.url, "tml-one"), Trainer(server.url, "tml-other")
    models = client.made(0, 0), other.made(0, 0)
    client.trained(models[0])
    other.trained(models[1], OTHER)
    path, others = save(client, models[0], "same"), save(other, models[1], "same")
    assert client.sampled(path, 0) != other.sampled(others, 0)

    def loaded(who):
        headers = {"X-API-Key": who.key, "fireworks-deployment": "accounts/local/deployments/d", "fireworks-model": BASE}
        requests.post(server.url + "/v1/accounts/local/deployments?deploymentId=d", json={"baseModel": BASE}, headers=headers, timeout=60)
        answer = requests.post(server.url + "/hot_load/v1/models/hot_load", json={"identity": "same"}, headers=headers, timeout=60)
        assert answer.status_code == 200 and answer.json()["ready"], answer.text
        rows = requests.get(server.url + "/hot_load/v1/models/hot_load", headers=headers, timeout=60).json()["replicas"]
        assert [row["current_snapshot_identity"] for row in rows] == ["same"], rows
        prompt = {"model": "countdown-glm", "prompt": [1, 5, 7, 9], "max_tokens": 8, "seed": 3, "temperature": 1, "logprobs": 0}
        return requests.post(replica.url + "/v1/completions", json=prompt, timeout=60).json()

    one, two = loaded(client), loaded(other)
    assert one["snapshot"] == channels(tmp_path)["same"] != two["snapshot"]
    assert one["choices"][0]["logprobs"] != two["choices"][0]["logprobs"]
    client.trained(models[0], OTHER)
    assert "exists already" in client.do(models[0], "save_weights_for_sampler", path="same")["error"]
    assert save(client, models[0], "same", overwrite=True) == path
    new = loaded(client)
    assert new["snapshot"] == channels(tmp_path)["same"] != one["snapshot"]
    assert len(channels(tmp_path)) == 3  # chat, same, and the other's


def test_a_server_without_its_store_says_so(start_server, tmp_path):
    server = start_server()
    client = Trainer(server.url)
    model = client.made(0, 4)
    client.trained(model)
    path = save(client, model, "one")
    before = client.sampled(path, 0)
    server.stop()
    plain = Server("--training", "--state", str(tmp_path / "state"))
    try:
        client.url = plain.url + "/api/v1/"
        failed = client.sampled(path, 1)
        assert "--publish" in failed["error"], failed
        assert isinstance(client.scored(model), bytes)
    finally:
        plain.stop()
    client.url = start_server().url + "/api/v1/"
    assert client.sampled(path, 2) == before
