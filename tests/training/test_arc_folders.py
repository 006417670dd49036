"""Folders of deltas as fireworks-delta-compression writes them become snapshots with the bits that the package itself restores."""
import pytest
import torch
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
def test_a_folder_of_deltas_is_pushed(pair, tmp_path, format):
    before, after, new = pair
    first = run("snapshot", "push", before, tmp_path / "store", "--channel", "c", "--json")["id"]
    told = run("snapshot", "push", delta(tmp_path, before, after, format), tmp_path / "store", "--channel", "c", "--base", before, "--json")
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
    assert "--base" in run(*push, status=1).stderr
    assert "digest" in run(*push, "--base", after, status=1).stderr  # another previous identity
    data = bytearray((arc / "model.safetensors").read_bytes())
    data[-20] ^= 1
    (arc / "model.safetensors").write_bytes(data)
    assert "delta of tensor" in run(*push, "--base", before, status=1).stderr
    third = delta(tmp_path, before, after, "arc_v3")
    said = run("snapshot", "push", third, tmp_path / "store", "--channel", "c", "--base", before, "--quiet", status=1).stderr
    assert "arc_v3 is refused" in said and "pickles" in said and len(said.strip().splitlines()) == 1, said
