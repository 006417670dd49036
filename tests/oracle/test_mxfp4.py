"""gpt-oss folders with their experts in MXFP4, as they are published: blocks and scales, gate and up in turn. Their numbers are those of transformers' own
decoder, bit for bit."""

import json
import subprocess

import numpy as np
import pytest
import torch
from comparison import relative_error
from conftest import REPOSITORY
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GptOssConfig
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

HIDDEN, WIDTH = 64, 96


def write(folder, tensors, config):
    folder.mkdir()
    save_file({n: t.contiguous() for n, t in tensors.items()}, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("mxfp4")
    config = json.loads((REPOSITORY / "tests/golden/gpt_oss/window/config.json").read_text()) | {"hidden_size": HIDDEN, "intermediate_size": WIDTH}
    torch.manual_seed(2)
    AutoModelForCausalLM.from_config(GptOssConfig(**config), dtype=torch.bfloat16).save_pretrained(root / "made")
    tensors = load_file(root / "made" / "model.safetensors")
    tensors = {n: t if "norm" in n else (torch.randn_like(t, dtype=torch.float32) * 0.1).to(torch.bfloat16) for n, t in tensors.items()}
    stored, decoded = dict(tensors), dict(tensors)
    for name, t in tensors.items():
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            experts, inputs, outputs = t.shape
            blocks = torch.randint(0, 256, (experts, outputs, inputs // 32, 16), dtype=torch.uint8)
            scales = torch.randint(118, 126, (experts, outputs, inputs // 32), dtype=torch.uint8)
            del stored[name]
            stored |= {name + "_blocks": blocks, name + "_scales": scales}
            decoded[name] = convert_moe_packed_tensors(blocks, scales)
            assert decoded[name].shape == t.shape and decoded[name].dtype == torch.bfloat16
    assert len(stored) > len(tensors)
    quantised = config | {"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}}
    return {"mxfp4": write(root / "mxfp4", stored, quantised), "decoded": write(root / "decoded", decoded, config), "plain": write(root / "plain", tensors, config)}


def bits(lockstep, folder, profile):
    random = np.random.default_rng(1)
    vocabulary = json.loads((folder / "config.json").read_text())["vocab_size"]
    tokens = lockstep.tokens_file([random.integers(0, vocabulary, n).tolist() for n in (2, 17, 40)])
    output = lockstep.run("score", "--model", folder, "--tokens", tokens, "--profile", profile)
    return [json.loads(line)["bits"] for line in output.splitlines()]


def test_numbers_are_those_of_transformers(lockstep, folders, tmp_path):
    for profile in ("cpu-f32", "cpu-bf16w", "cpu-int4-experts", "cpu-fp8-base"):
        assert bits(lockstep, folders["mxfp4"], profile) == bits(lockstep, folders["decoded"], profile), profile
    assert bits(lockstep, folders["mxfp4"], "cpu-f32") != bits(lockstep, folders["plain"], "cpu-f32"), "the control"
    lockstep.run("convert", folders["mxfp4"], tmp_path / "out", "--dtype", "bf16")
    ours, theirs = load_file(tmp_path / "out" / "model.safetensors"), load_file(folders["decoded"] / "model.safetensors")
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        assert torch.equal(ours[name].view(torch.int16), value.view(torch.int16)), name


def test_info_names_the_format(lockstep, folders):
    told = json.loads(lockstep.run("info", folders["mxfp4"], "--json"))
    (kind,) = [kind for kind in told["stored_as"] if kind["type"] == "MXFP4"]
    assert kind["bits_a_weight"] == 4.25
    assert told["exact_under"]["MXFP4"] == ["cpu-f32", "cpu-bf16w", "cpu-mxfp8-base", "cpu-mxfp4-base", "cpu-mxfp8-experts-base", "cpu-mxfp4-experts"]


PACKED = "cpu-mxfp4-experts"


def test_the_files_own_numbers_are_computed_with(lockstep, folders):
    """MXFP4 fits bf16, so experts in four bits have the bits of those that transformers decoded to bf16; and no others."""
    own = bits(lockstep, folders["mxfp4"], PACKED)
    assert own == bits(lockstep, folders["decoded"], "cpu-bf16w")
    assert own != bits(lockstep, folders["mxfp4"], "cpu-int4-experts")
    assert bits(lockstep, folders["plain"], PACKED) != bits(lockstep, folders["plain"], "cpu-bf16w"), "the control: these are quantised"


def test_an_export_writes_the_same_bytes(lockstep, folders, tmp_path):
    lockstep.run("convert", folders["mxfp4"], tmp_path / "again", "--profile", PACKED)
    with safe_open(folders["mxfp4"] / "model.safetensors", "pt") as theirs, safe_open(tmp_path / "again" / "model.safetensors", "pt") as ours:
        assert set(theirs.keys()) == set(ours.keys())
        for name in theirs.keys():
            a, b = theirs.get_tensor(name), ours.get_tensor(name)
            assert a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.view(torch.uint8), b.view(torch.uint8)), name
    config = {name: json.loads((folder / "config.json").read_text()) for name, folder in (("a", folders["mxfp4"]), ("b", tmp_path / "again"))}
    assert config["a"]["quantization_config"] == config["b"]["quantization_config"]


def test_a_folder_of_numbers_is_packed_so_that_transformers_decodes_what_is_computed_with(lockstep, folders, tmp_path):
    lockstep.run("convert", folders["plain"], tmp_path / "packed", "--profile", PACKED)
    packed, plain = load_file(tmp_path / "packed" / "model.safetensors"), load_file(folders["plain"] / "model.safetensors")
    config = json.loads((tmp_path / "packed" / "config.json").read_text())
    assert config["quantization_config"]["quant_method"] == "mxfp4"
    decoded, changed = dict(plain), 0
    for name in plain:
        if name + "_blocks" in packed:
            decoded[name] = convert_moe_packed_tensors(packed.pop(name + "_blocks"), packed.pop(name + "_scales"))
            changed += int((decoded[name] != plain[name]).sum())
            assert relative_error(decoded[name].float(), plain[name].float()) < 0.3
    assert changed > 1000 and not [n for n in packed if "_blocks" in n or "_scales" in n]
    numbers = write(tmp_path / "numbers", decoded, json.loads((folders["plain"] / "config.json").read_text()))
    want = bits(lockstep, folders["plain"], PACKED)
    assert bits(lockstep, tmp_path / "packed", PACKED) == want
    assert bits(lockstep, numbers, "cpu-bf16w") == want
    done = subprocess.run([str(lockstep.binary), "convert", str(REPOSITORY / "models/countdown-glm"), str(tmp_path / "glm"), "--profile", PACKED], capture_output=True, text=True)
    assert done.returncode != 0 and "MXFP4 of all experts in one tensor" in done.stderr


def test_missing_scales_are_refused(lockstep, folders, tmp_path):
    tensors = load_file(folders["mxfp4"] / "model.safetensors")
    name = next(n for n in tensors if n.endswith("down_proj_scales"))
    del tensors[name]
    folder = write(tmp_path / "m", tensors, json.loads((folders["mxfp4"] / "config.json").read_text()))
    done = subprocess.run([str(lockstep.binary), "info", str(folder)], capture_output=True, text=True)
    assert done.returncode != 0 and f"'{name}'" in done.stderr and len(done.stderr.strip().splitlines()) == 1
