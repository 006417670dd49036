"""Folders of deltas as fireworks-delta-compression writes them become snapshots with the bits that the package itself restores."""
import shutil

import httpx
import pytest
import torch
from conftest import MODEL
from fireworks.training.sdk.deployment import DeploymentManager
from fireworks_delta_compression import compression
from safetensors.torch import load_file, save_file
from store_tools import run


def folder(root, name, tensors):
    place = root / name
    place.mkdir()
    (place / "config.json").write_text('{"model_type": "llama"}\n')
    save_file(tensors, place / "model.safetensors", metadata={"format": "pt"})
    return place


def delta(root, before, after, format):
    """What delta_compress_dirs writes, in this process."""
    place = root / format
    place.mkdir()
    (place / "config.json").write_bytes((after / "config.json").read_bytes())
    compression.delta_compress_files_to_file(src=str(before / "model.safetensors"), dst=str(after / "model.safetensors"), diff_file=str(place / "model.safetensors"),
                                             compression_format=format)
    return place


@pytest.fixture
def pair(tmp_path):
    torch.manual_seed(7)
    old = {"a.weight": torch.randn(64, 48).bfloat16(), "b.scale": torch.randn(300), "c.empty": torch.zeros(0, 4), "d.codes": torch.randint(0, 255, (500,), dtype=torch.uint8)}
    new = {n: t.clone() for n, t in old.items()}
    new["a.weight"][3] += 0.25
    new["b.scale"][::7] *= -1
    return folder(tmp_path, "old", old), folder(tmp_path, "new", new), new


@pytest.mark.parametrize("format", ["arc_v1", "arc_v2"])
@pytest.mark.parametrize("base", [True, False])  # else the store's own
def test_a_folder_of_deltas_is_pushed(pair, tmp_path, format, base):
    before, after, new = pair
    first = run("snapshot", "push", before, tmp_path / "store", "--channel", "c", "--json")["id"]
    told = run("snapshot", "push", delta(tmp_path, before, after, format), tmp_path / "store", "--channel", "c", *(("--base", before) if base else ()), "--json")
    assert told["parent"] == first
    run("snapshot", "pull", tmp_path / "store", "c", tmp_path / "out", "--json")
    found = load_file(tmp_path / "out/model.safetensors")
    assert all(torch.equal(found[n].view(torch.uint8), new[n].view(torch.uint8)) and found[n].dtype == new[n].dtype for n in new) and found.keys() == new.keys()
    # The same snapshot as the folder itself makes.
    assert run("snapshot", "push", after, tmp_path / "store", "--parent", first, "--json")["id"] == told["id"]


def test_what_does_not_match_is_refused(pair, tmp_path):
    before, after, _ = pair
    run("snapshot", "push", before, tmp_path / "store", "--channel", "c", "--json")
    arc = delta(tmp_path, before, after, "arc_v2")
    push = ["snapshot", "push", arc, tmp_path / "store", "--channel", "c"]
    assert "as the parent" in run(*push, "--parent", "none", status=1).stderr
    assert "digest" in run(*push, "--base", after, status=1).stderr  # another previous identity
    data = bytearray((arc / "model.safetensors").read_bytes())
    data[-20] ^= 1
    (arc / "model.safetensors").write_bytes(data)
    assert "delta of tensor" in run(*push, "--base", before, status=1).stderr
    third = delta(tmp_path, before, after, "arc_v3")
    said = run("snapshot", "push", third, tmp_path / "store", "--channel", "c", "--base", before, "--quiet", status=1).stderr
    assert "arc_v3 is refused" in said and "pickles" in said and len(said.strip().splitlines()) == 1, said


def stepped(tensors, seed):
    """A step of training: a few numbers of each tensor go by a unit in the last place."""
    torch.manual_seed(seed)
    after = {name: tensor.clone() for name, tensor in tensors.items()}
    for tensor in after.values():
        words = tensor.view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[tensor.element_size()]).view(-1)
        words[torch.randint(len(words), (max(1, len(words) // 99),))] ^= 1
    return after


def test_folders_of_another_trainer_are_hot_loaded(tmp_path, start_sampler):
    """The package's manager posts what another trainer left: all weights, then deltas, each against the identity that it names. What does not match changes nothing."""
    left = tmp_path / "left"
    left.mkdir()
    steps = [load_file(MODEL / "model.safetensors")]
    for number in range(4):
        steps.append(stepped(steps[-1], number))
    for number, tensors in enumerate(steps):
        whole = tmp_path / f"whole-{number}"
        shutil.copytree(MODEL, whole)
        save_file(tensors, whole / "model.safetensors", metadata={"format": "pt"})

    def leave(name, before, after, format):
        (left / name).mkdir()
        for file in ("config.json", "tokenizer.json"):
            shutil.copy(MODEL / file, left / name / file)
        arguments = {"src": tmp_path / f"whole-{before}" / "model.safetensors", "dst": tmp_path / f"whole-{after}" / "model.safetensors", "diff_file": left / name / "model.safetensors"}
        compression.delta_compress_files_to_file(**{key: str(value) for key, value in arguments.items()}, compression_format=format)

    shutil.copytree(tmp_path / "whole-0", left / "base")
    for name, before, after, format in (("one", 0, 1, "arc_v1"), ("two", 1, 2, "arc_v2"), ("skips", 1, 3, "arc_v2"), ("code", 3, 4, "arc_v3")):
        leave(name, before, after, format)
    shutil.copytree(tmp_path / "whole-4", left / "heals")

    fleet = [start_sampler("--follow", f"{tmp_path}/store/chat", "--hot-load-folder", str(left), "--replica", f"r{i}") for i in range(2)]
    managers = [DeploymentManager(api_key="k", base_url=server.url, inference_url=server.url, hotload_api_url=server.url) for server in fleet]

    def post(name, previous=None, through=0):
        told = {"previous_snapshot_identity": previous, "compression_format": "arc_v2", "checksum_format": "alder32"} if previous else None
        return managers[through].hotload("rollouts", "countdown-glm", name, incremental_snapshot_metadata=told)

    def serves(number, name):
        rows = [row for manager in managers for row in manager.hotload_check_status("rollouts", "countdown-glm")["replicas"]]
        assert {(row["current_snapshot_identity"], row["readiness"]) for row in rows} == {(name, True)}
        run("snapshot", "pull", tmp_path / "store", name, tmp_path / f"out-{name}", "--json")
        pulled = load_file(tmp_path / f"out-{name}/model.safetensors")
        assert all(torch.equal(pulled[n].view(torch.uint8), t.view(torch.uint8)) for n, t in steps[number].items())
        for server in fleet:
            answer = httpx.post(f"{server.url}/inference/v1/completions", json={"model": "m", "prompt": [1, 5, 7], "max_tokens": 2}).json()
            assert answer["model"] == f"m@{name}"

    def refused(name, previous, *words):
        answer = httpx.post(f"{fleet[0].url}/hot_load/v1/models/hot_load", json={"identity": name, "incremental_snapshot_metadata": previous and {"previous_snapshot_identity": previous}})
        assert 400 <= answer.status_code < 500 and all(word in answer.text for word in words), answer.text
        assert str(tmp_path) not in answer.text  # a client sees no folders of the server
        first = httpx.get(f"{fleet[0].url}/hot_load/v1/models/hot_load").json()["replicas"][0]
        assert first["loading_state"]["stage"] == "error" and first["loading_state"]["target_snapshot_identity"] == name  # as the package's waiter looks for it

    assert post("base")["ready"]
    serves(0, "base")
    assert post("one", "base", through=1)["ready"]
    serves(1, "one")
    refused("two", "base", "Adler-32")  # deltas against other weights
    refused("two", "absent", "absent", "must be loaded before")
    refused("two", None, "incremental_snapshot_metadata")
    refused("code", "one", "arc_v3 is refused", "pickles")
    serves_still = httpx.get(f"{fleet[1].url}/hot_load/v1/models/hot_load").json()["replicas"]
    assert all(row["current_snapshot_identity"] == "one" and row["readiness"] for row in serves_still)
    assert post("two", "one")["ready"] and post("two", "one", through=1)["ready"]  # again: nothing happens
    serves(2, "two")
    assert post("skips", "one", through=1)["ready"]  # against one that is live no more
    serves(3, "skips")
    data = bytearray((left / "heals/model.safetensors").read_bytes())
    (left / "heals/model.safetensors").write_bytes(data[:-5])  # not written to its end
    refused("heals", None, "is truncated")
    (left / "heals/model.safetensors").write_bytes(data)
    assert post("heals")["ready"]
    serves(4, "heals")
