"""Whose things are whose, and how many one may have, on the wire: names of promoted models, names of the base, shares of one key, models
in memory, weights under another base or another numerics profile, numbers that a kill left behind."""
import signal
import time
from pathlib import Path

import pytest
import requests

from test_damage import Trainer, folder_of
from test_wire import BASE, OTHER, TOKENS

MODEL = Path(__file__).resolve().parents[2] / "models" / BASE


class Promoter(Trainer):
    """A client that names its samplers' checkpoints."""

    def at_root(self, method, path, **fields):
        return requests.request(method, self.url.removesuffix("/api/v1/") + path, json=fields, headers={"X-API-Key": self.key}, timeout=60)

    def saved(self, model, name, kind="base"):
        return self.do(model, "save_weights_for_sampler", path=name, checkpoint_type=kind)["path"]

    def promote(self, checkpoint, name):
        return self.at_root("POST", f"/v1/accounts/local/checkpoints/{checkpoint}:promote", output_model=name, base_model=BASE)

    def complete(self, name, **fields):
        return self.at_root("POST", "/inference/v1/completions", **{"model": name, "prompt": TOKENS[:4], "max_tokens": 6, "seed": 3, "logprobs": True, **fields})

    def rows(self, name):
        answer = self.complete(name)
        assert answer.status_code == 200, answer.text
        return answer.json()["choices"][0]["logprobs"]["content"]


def two_checkpoints(client, model):
    client.trained(model)
    client.saved(model, "first")
    client.trained(model, OTHER)
    client.saved(model, "second")


def test_promoted_names_that_are_paths(start_server, tmp_path):
    client = Promoter(start_server().url)
    model = client.made(0, 4)
    two_checkpoints(client, model)
    before = {f for f in tmp_path.rglob("*") if "models" in f.parts}
    for name in ("accounts/local/models/../x", "accounts/local/models/a/b", "accounts/local/models/..", "accounts/local/models/.", "accounts/local/models/", "accounts/local/models/A",
                 "accounts/local/models/a.b", "accounts/local/models/a\0b", "accounts/local/models/" + "a" * 64, "accounts/local/models/%2e%2e", "accounts/local/models//a", "models/x",
                 "accounts/local/deployments/x", "../x", "/x", ""):  # fmt: skip
        refused = client.promote("first", name)
        assert refused.status_code in (400, 422) and "allowed" in refused.json()["detail"], (name, refused.text)
    assert {f for f in tmp_path.rglob("*") if "models" in f.parts} == before
    # An account is a part of the name alone: no folder of it is made or reached.
    assert client.promote("first", "accounts/../models/fine").status_code == 200
    files = [f for f in (tmp_path / "state/models").rglob("*") if f.is_file()]
    assert files and all(len(f.relative_to(tmp_path / "state/models").parts) == 3 for f in files), files
    assert client.rows("accounts/../models/fine")


def test_promoted_names_of_several_accounts_and_keys_are_several_models(start_server):
    server = start_server()
    client, other = Promoter(server.url), Promoter(server.url, "tml-other-owner")
    model, others = client.made(0, 4), other.made(0, 4)
    two_checkpoints(client, model)
    other.trained(others, OTHER)
    other.saved(others, "first")
    one, two = "accounts/a/models/same", "accounts/b/models/same"
    assert client.promote("first", one).status_code == 200
    first = client.rows(one)
    assert client.promote("second", two).status_code == 200
    assert other.promote("first", one).status_code == 200
    assert client.rows(one) == first  # also where it is read anew
    second, theirs = client.rows(two), other.rows(one)
    assert first != second and first != theirs and second != theirs
    again = client.promote("second", one)
    assert again.status_code in (409, 422) and "exists already" in again.text and client.rows(one) == first
    assert other.complete(two).status_code == 404 and "there is no model" in other.complete(two).text
    server.stop()
    client.url = other.url = start_server().url + "/api/v1/"
    assert [client.rows(one), client.rows(two), other.rows(one)] == [first, second, theirs]  # from their folders
    assert other.at_root("DELETE", "/v1/accounts/a/models/same").status_code == 200
    assert other.complete(one).status_code == 404 and client.rows(one) == first


def test_samplers_under_another_base_are_refused(start_server):
    server = start_server("--frozen-base", "int4")
    client = Promoter(server.url)
    model = client.made(0, 4)
    client.trained(model)
    path = client.saved(model, "here")
    snapshot = client.do(model, "save_weights_for_sampler")["sampling_session_id"]
    before = client.sampled(path, 0)
    assert client.promote("here", "accounts/local/models/packed").status_code == 200
    rows = client.rows("accounts/local/models/packed")
    server.stop()
    same = start_server("--frozen-base", "int4")
    client.url = same.url + "/api/v1/"
    assert client.sampled(path, 1) == before and client.rows("accounts/local/models/packed") == rows
    same.stop()
    client.url = start_server().url + "/api/v1/"
    refused = client.sampled(path, 2)
    assert refused["category"] == "user" and "profile digest" in refused["error"], refused
    request = client.post("asample", sampling_session_id=snapshot, seq_id=0, prompt={"chunks": [{"type": "encoded_text", "tokens": TOKENS[:4]}]}, sampling_params={"max_tokens": 2})
    assert "profile digest" in client.result(request["request_id"])["error"]
    promoted = client.complete("accounts/local/models/packed")
    assert promoted.status_code == 400 and "accounts/local/models/packed' was written under profile digest" in promoted.text


def test_whole_weights_under_another_profile_are_refused(start_server):
    """Merged, exported and promoted weights are plain folders: the server knows what they were trained under."""
    server = start_server()
    client = Promoter(server.url)
    model, whole = client.made(0, 4), client.made(1, 0)
    client.trained(model), client.trained(whole)
    paths = [client.saved(model, "merged", "merged_base"), client.saved(whole, "whole")]
    paths += [client.do(m, "save_weights_external", path="external")["path"] for m in (model, whole)]
    names = [f"accounts/local/models/{name}" for name in ("merged", "whole")]
    for checkpoint, name in zip(("merged", "whole"), names):
        assert client.promote(checkpoint, name).status_code == 200
    assert all(isinstance(client.sampled(path, i), bytes) for i, path in enumerate(paths)) and all(client.rows(name) for name in names)
    server.stop()
    client.url = start_server("--profile", "cpu-f32").url + "/api/v1/"
    for i, path in enumerate(paths):
        refused = client.sampled(path, 10 + i)
        assert refused["category"] == "user" and "was written under profile digest" in refused["error"] and "('cpu-f32')" in refused["error"], refused
    for name in names:
        refused = client.complete(name)
        assert refused.status_code == 400 and f"the model '{name}' was written under profile digest" in refused.text, refused.text
    made = client.result(client.post("create_model", session_id=client.session, model_seq_id=7, base_model=names[1])["request_id"])
    assert made["category"] == "user" and "profile digest" in made["error"], made
    adapter = client.made(8, 4)
    for route, fields in (("load_adapter", {"adapter_path": paths[2]}), ("load_weights", {"path": paths[2], "optimizer": False})):
        loaded = client.do(adapter, route, **fields)
        assert loaded["category"] == "user" and "profile digest" in loaded["error"], loaded
    assert isinstance(client.scored(adapter), bytes)  # and stays as it was


@pytest.mark.parametrize("rank", [0, 4])
def test_a_load_counts_as_a_model_in_memory(start_server, tmp_path, rank):
    client = Promoter(start_server("--max-models", "1").url)
    loads, holds = client.made(0, rank), client.made(1, rank)
    client.trained(loads)
    client.do(loads, "save_weights", path="kept")
    client.saved(loads, "adapter")
    before = client.scored(loads)
    client.numbers[holds] = 1
    assert client.result(client.backward(holds, 1))  # in the one place
    waits = [("load_weights", {"path": "kept", "optimizer": True})] + ([("load_adapter", {"adapter_path": "adapter"})] if rank else [])
    for route, fields in waits:
        assert client.do(loads, route, **fields)["model_id"] == loads
        assert folder_of(tmp_path / "state", "gradients", holds).exists()  # it made room, with its gradient
        assert client.scored(loads) == before
    made = client.result(client.post("create_model", session_id=client.session, model_seq_id=9, base_model=BASE)["request_id"])
    assert "error" not in made, made
    client.do(holds, "optim_step", adam_params={"learning_rate": 1e-3})
    assert not folder_of(tmp_path / "state", "gradients", holds).exists()
    assert client.scored(loads) == before
    assert folder_of(tmp_path / "state", "living", loads).exists()


def test_one_key_cannot_take_what_others_need(start_server):
    """Disk for gradients: a key has its share, and is told its own figures; another's is there."""
    server = start_server("--max-models", "1", "--gradient-megabytes", "8", "--key-share", "50")
    client, other = Trainer(server.url), Trainer(server.url, "tml-other-owner")
    models = [client.made(number, 0) for number in range(2)]
    assert isinstance(client.result(client.backward(models[0], 1)), bytes)
    client.numbers[models[1]] = 1
    refused = client.result(client.backward(models[1], 1))
    assert "of gradients that no optim_step has taken and asks for" in refused["error"] and "allowed are 4.0 MB of the server's 8.0 MB (--gradient-megabytes, --key-share)" in refused["error"], refused
    theirs = other.made(0, 0)
    assert other.trained(theirs) == 1 and isinstance(other.scored(theirs), bytes)
    assert isinstance(client.scored(models[1]), bytes)  # forwards hold nothing
    client.numbers[models[0]] = 1
    client.do(models[0], "optim_step", adam_params={"learning_rate": 1e-3})
