"""INT4 folders that the `compressed-tensors` package packed (`pack-quantized`, groups of 32, symmetric: as Kimi's experts are). They are read to the
bits of its own decompression; under the profiles of int4 their own numbers and scales are what is computed with, and `lockstep convert --profile`
writes the same bytes again. And FP8 folders that hold all experts of a layer in one tensor, with blocks that do not divide it: read and converted to
the bits of transformers' own dequantisation.
"""

import json
import subprocess

import numpy as np
import pytest
import torch
from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor as Packer
from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.utils import calculate_qparams
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers.integrations.finegrained_fp8 import _dequantize_fp8_weight as dequantised

HIDDEN, WIDTH, EXPERTS, LAYERS, HEADS, KV, HEAD, VOCABULARY = 96, 64, 6, 2, 4, 2, 24, 150
PACKED, PLAIN = "cpu-int4-experts", "cpu-bf16w"
CONFIG = {"model_type": "qwen3_moe", "vocab_size": VOCABULARY, "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
          "num_key_value_heads": KV, "head_dim": HEAD, "intermediate_size": WIDTH, "moe_intermediate_size": WIDTH, "num_experts": EXPERTS,
          "num_experts_per_tok": 2, "norm_topk_prob": True, "max_position_embeddings": 256, "rms_norm_eps": 1e-6, "tie_word_embeddings": False,
          "hidden_act": "silu", "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "dtype": "bfloat16"}  # fmt: skip
ARGUMENTS = QuantizationArgs(num_bits=4, type="int", symmetric=True, strategy="group", group_size=32)
SCHEME = QuantizationScheme(targets=["Linear"], weights=ARGUMENTS)


def quantization(**changes):
    weights = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32, "dynamic": False, "actorder": None} | changes
    return {"quant_method": "compressed-tensors", "format": "pack-quantized", "quantization_status": "compressed",
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": None, "output_activations": None}},
            "ignore": ["lm_head", "re:.*self_attn.*", "re:.*gate$"], "kv_cache_scheme": None}  # fmt: skip


def write(folder, tensors, **keys):
    folder.mkdir()
    save_file({n: t.contiguous() for n, t in tensors.items()}, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(CONFIG | keys))
    return folder


def model_tensors(seed=5):
    g = torch.Generator().manual_seed(seed)
    shapes = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN), "model.norm.weight": (HIDDEN,), "lm_head.weight": (VOCABULARY, HIDDEN)}
    for i in range(LAYERS):
        name = f"model.layers.{i}."
        shapes |= {name + "input_layernorm.weight": (HIDDEN,), name + "post_attention_layernorm.weight": (HIDDEN,),
                   name + "self_attn.q_norm.weight": (HEAD,), name + "self_attn.k_norm.weight": (HEAD,), name + "mlp.gate.weight": (EXPERTS, HIDDEN),
                   name + "self_attn.q_proj.weight": (HEADS * HEAD, HIDDEN), name + "self_attn.k_proj.weight": (KV * HEAD, HIDDEN),
                   name + "self_attn.v_proj.weight": (KV * HEAD, HIDDEN), name + "self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD)}  # fmt: skip
        for e in range(EXPERTS):
            shapes |= {f"{name}mlp.experts.{e}.{part}_proj.weight": (HIDDEN, WIDTH) if part == "down" else (WIDTH, HIDDEN) for part in ("gate", "up", "down")}
    return {n: (torch.randn(s, generator=g) * (0.15 if len(s) == 2 else 0.1) + (len(s) == 1)).to(torch.bfloat16) for n, s in shapes.items()}


def scales_of(weight, dtype):
    groups = weight.reshape(weight.shape[0], -1, 32)
    return calculate_qparams(groups.amin(-1), groups.amax(-1), ARGUMENTS)[0].to(dtype)


def pack(tensors, scale_dtype=torch.bfloat16, only=".experts."):
    """The folder's tensors as the package packs them, and the numbers that they stand for: in fp32, and as the package decompresses them."""
    stored, exact, decompressed = {}, {}, {}
    for name, weight in tensors.items():
        if only not in name:
            stored[name] = exact[name] = decompressed[name] = weight
            continue
        scale = scales_of(weight.to(torch.float32), scale_dtype)
        packed = Packer.compress({"weight": weight.to(scale_dtype), "weight_scale": scale}, SCHEME)
        stored |= {name.removesuffix("weight") + part: value for part, value in packed.items()}
        exact[name] = Packer.decompress(packed | {"weight_scale": scale.to(torch.float32)}, SCHEME)["weight"]
        assert exact[name].dtype == torch.float32
        decompressed[name] = Packer.decompress(packed, SCHEME)["weight"]
    return stored, exact, decompressed


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("packed")
    stored, exact, decompressed = pack(model_tensors())
    numbers = [unpack_from_int32(t, 4, stored[n.replace("_packed", "_shape")]) for n, t in stored.items() if n.endswith("_packed")]
    assert min(int(t.min()) for t in numbers) == -8 and max(int(t.max()) for t in numbers) == 7
    return {"packed": write(root / "packed", stored, quantization_config=quantization()), "exact": write(root / "exact", exact),
            "bf16": write(root / "bf16", decompressed), "plain": write(root / "plain", model_tensors())}  # fmt: skip


def bits(lockstep, folder, profile, via="prefill"):
    random = np.random.default_rng(1)
    tokens = lockstep.tokens_file([random.integers(0, VOCABULARY, n).tolist() for n in (2, 17, 40, 65)])
    output = lockstep.run("score", "--model", folder, "--tokens", tokens, "--via", via, "--profile", profile)
    return [json.loads(line)["bits"] for line in output.splitlines()]


def info(lockstep, folder):
    return json.loads(lockstep.run("info", folder, "--json"))


def test_values_are_those_of_the_package(lockstep, folders, tmp_path):
    lockstep.run("convert", folders["packed"], tmp_path / "f32")
    ours, theirs = load_file(tmp_path / "f32" / "model.safetensors"), load_file(folders["exact"] / "model.safetensors")
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        assert torch.equal(ours[name].view(torch.int32), value.to(torch.float32).view(torch.int32)), name
    assert bits(lockstep, folders["packed"], "cpu-f32") == bits(lockstep, folders["exact"], "cpu-f32")
    assert bits(lockstep, folders["packed"], PLAIN) == bits(lockstep, folders["bf16"], PLAIN), "rounded to bf16 as the package rounds"
    assert bits(lockstep, folders["packed"], "cpu-f32") != bits(lockstep, folders["plain"], "cpu-f32"), "the control"


def test_the_files_own_numbers_are_computed_with(lockstep, folders, tmp_path):
    own = bits(lockstep, folders["packed"], PACKED)
    for via in ("chunked", "decode", "train"):
        assert bits(lockstep, folders["packed"], PACKED, via) == own, via
    assert own != bits(lockstep, folders["exact"], PACKED), "the control: our quantiser has no -8, and rounds again"
    # Numbers from -7 to 7 with a 7 in each group are those of our own quantiser, so there the two must agree.
    stored, exact = {}, {}
    for name, value in load_file(folders["exact"] / "model.safetensors").items():
        if ".experts." in name:
            scale = torch.full((value.shape[0], value.shape[1] // 32), 0.0078125 * 1.25, dtype=torch.bfloat16)
            numbers = torch.randint(-7, 8, value.shape, generator=torch.Generator().manual_seed(len(stored)))
            numbers.view(value.shape[0], -1, 32)[:, :, 3] = 7
            exact[name] = numbers.to(torch.float32) * scale.to(torch.float32).repeat_interleave(32, dim=1)
            packed = Packer.compress({"weight": exact[name].to(torch.bfloat16), "weight_scale": scale}, SCHEME)
            assert torch.equal(Packer.decompress(packed | {"weight_scale": scale.to(torch.float32)}, SCHEME)["weight"], exact[name])
            stored |= {name.removesuffix("weight") + part: v for part, v in packed.items()}
        else:
            stored[name] = exact[name] = value
    a, b = write(tmp_path / "a", stored, quantization_config=quantization()), write(tmp_path / "b", exact)
    for profile in (PACKED, "cpu-int4-base"):
        assert bits(lockstep, a, profile) == bits(lockstep, b, profile), profile


def test_an_export_writes_the_same_bytes(lockstep, folders, tmp_path):
    lockstep.run("convert", folders["packed"], tmp_path / "again", "--profile", PACKED)
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (folders["packed"] / "model.safetensors").read_bytes()
    assert json.loads((tmp_path / "again" / "config.json").read_text()) == json.loads((folders["packed"] / "config.json").read_text())
    # Of a folder in bf16: what the profile computes with, so that it has the same bits and is a fixed point. The package reads it.
    lockstep.run("convert", folders["plain"], tmp_path / "ours", "--profile", PACKED)
    assert bits(lockstep, tmp_path / "ours", PACKED) == bits(lockstep, folders["plain"], PACKED)
    lockstep.run("convert", tmp_path / "ours", tmp_path / "ours2", "--profile", PACKED)
    assert (tmp_path / "ours" / "model.safetensors").read_bytes() == (tmp_path / "ours2" / "model.safetensors").read_bytes()
    with safe_open(tmp_path / "ours" / "model.safetensors", "pt") as file:
        name = "model.layers.1.mlp.experts.3.down_proj.weight"
        packed = {f"weight_{part}": file.get_tensor(f"{name}_{part}") for part in ("packed", "scale", "shape")}
    assert packed["weight_shape"].dtype == torch.int64 and packed["weight_shape"].tolist() == [HIDDEN, WIDTH]
    numbers = Packer.decompress(packed | {"weight_scale": packed["weight_scale"].to(torch.float32)}, SCHEME)["weight"]
    lockstep.run("convert", tmp_path / "ours", tmp_path / "numbers")
    assert torch.equal(load_file(tmp_path / "numbers" / "model.safetensors")[name], numbers)
    # cpu-int4-base has matrices that no folder packs, the embedding: they are in fp32, and the bits are kept.
    lockstep.run("convert", folders["plain"], tmp_path / "base", "--profile", "cpu-int4-base")
    assert bits(lockstep, tmp_path / "base", "cpu-int4-base") == bits(lockstep, folders["plain"], "cpu-int4-base")


def test_info_says_what_is_rounded_again(lockstep, folders, tmp_path):
    told = info(lockstep, folders["packed"])
    experts = LAYERS * EXPERTS * 3
    assert {"type": "INT4, groups of 32", "bits_a_weight": 4.5, "tensors": experts, "weights": experts * HIDDEN * WIDTH} in told["stored_as"]
    assert told["exact_under"]["INT4, groups of 32"] == ["cpu-f32", "cpu-int4-base", "cpu-int4-experts"]
    assert info(lockstep, folders["plain"])["exact_under"] == {"BF16": ["cpu-f32", "cpu-bf16w"]}
    # Scales that bf16 does not have: int4 profiles round again too.
    stored, exact, _ = pack(model_tensors(), torch.float32)
    folder = write(tmp_path / "wide", stored, quantization_config=quantization())
    assert info(lockstep, folder)["exact_under"]["INT4, groups of 32"] == ["cpu-f32"]
    numbers = write(tmp_path / "numbers", exact)
    assert bits(lockstep, folder, "cpu-f32") == bits(lockstep, numbers, "cpu-f32")
    assert bits(lockstep, folder, PACKED) == bits(lockstep, numbers, PACKED), "what our quantiser makes of the numbers"
    done = subprocess.run([str(lockstep.binary), "generate", "--model", str(folders["packed"]), "--tokens", "1,2", "--max-tokens", "1"], capture_output=True, text=True)
    assert "rounded again under cpu-bf16w" in done.stdout + done.stderr, done.stderr


def refused(lockstep, folder):
    done = subprocess.run([str(lockstep.binary), "info", str(folder)], capture_output=True, text=True)
    assert done.returncode not in (0, -6, -11) and len(done.stderr.strip().splitlines()) == 1, done.stderr
    return done.stderr


@pytest.mark.parametrize("changes,key", [({"symmetric": False}, "symmetric"), ({"group_size": 64}, "group_size"), ({"strategy": "channel", "group_size": None}, "strategy"),
                                         ({"num_bits": 8}, "num_bits"), ({"actorder": "group"}, "actorder"), ({"type": "float"}, "type")])  # fmt: skip
def test_other_schemes_are_refused_by_key(lockstep, folders, tmp_path, changes, key):
    folder = write(tmp_path / "m", load_file(folders["packed"] / "model.safetensors"), quantization_config=quantization(**changes))
    assert f"'{key}' is " in refused(lockstep, folder)


@pytest.mark.parametrize("method", ["gptq", "awq", "bitsandbytes"])
def test_other_methods_are_refused(lockstep, folders, tmp_path, method):
    folder = write(tmp_path / "m", load_file(folders["packed"] / "model.safetensors"), quantization_config={"quant_method": method, "bits": 4})
    assert f"'quant_method' is \"{method}\"" in refused(lockstep, folder)


def test_damaged_folders_are_refused(lockstep, folders, tmp_path):
    whole = load_file(folders["packed"] / "model.safetensors")
    name = "model.layers.0.mlp.experts.2.up_proj.weight"

    def of(change, folder=iter(range(100))):
        tensors = dict(whole)
        change(tensors)
        return refused(lockstep, write(tmp_path / str(next(folder)), tensors, quantization_config=quantization()))

    assert f"no '{name}_scale'" in of(lambda t: t.pop(name + "_scale"))
    assert f"no '{name}_shape'" in of(lambda t: t.pop(name + "_shape"))
    assert f"'{name}'" in of(lambda t: t.pop(name + "_packed"))
    assert "has the shape [64, 2], allowed is [64, 3]" in of(lambda t: t.update({name + "_scale": torch.ones(WIDTH, 2)}))  # groups of 64
    assert "has the shape [64, 1], allowed is [64, 3]" in of(lambda t: t.update({name + "_scale": torch.ones(WIDTH, 1)}))  # channels
    assert "has the shape [64, 24], config.json says [64, 12]" in of(lambda t: t.update({name + "_packed": torch.zeros(WIDTH, 24, dtype=torch.int32)}))  # 8 bits
    assert "holds [64, 95], config.json says [64, 96]" in of(lambda t: t.update({name + "_shape": torch.tensor([64, 95])}))
    assert "allowed is I32" in of(lambda t: t.update({name + "_packed": torch.zeros(WIDTH, 12, dtype=torch.uint8)}))
    assert "weight_zero_point" in of(lambda t: t.update({name + "_zero_point": torch.zeros(WIDTH // 8, 3, dtype=torch.int32)}))
    bad = whole[name + "_scale"].clone()
    bad[5, 1] = float("nan")
    assert f"element 16 of tensor '{name}_scale' is nan" in of(lambda t: t.update({name + "_scale": bad}))


@pytest.mark.parametrize("power_of_two", [True, False])
def test_fp8_experts_are_computed_with_and_written_as_they_are(lockstep, tmp_path, power_of_two):
    """As DeepSeek's folders have each expert, under the profile of that format; scales need not be powers of two."""
    width, profile = 160, "cpu-fp8-experts"
    g = torch.Generator().manual_seed(8)
    stored = {n: t for n, t in model_tensors().items() if ".experts." not in n}
    exact = dict(stored)
    for i in range(LAYERS):
        for e in range(EXPERTS):
            for part, (rows, columns) in {"gate": (width, HIDDEN), "up": (width, HIDDEN), "down": (HIDDEN, width)}.items():
                name = f"model.layers.{i}.mlp.experts.{e}.{part}_proj.weight"
                scale = torch.rand((-(-rows // 128), -(-columns // 128)), generator=g) * 0.001 + 0.0005
                if power_of_two:
                    scale = torch.exp2(torch.ceil(torch.log2(scale)))
                wide = scale.repeat_interleave(128, 0)[:rows].repeat_interleave(128, 1)[:, :columns]
                codes = (torch.randn((rows, columns), generator=g) * 0.15 / wide).clamp(-448, 448).to(torch.float8_e4m3fn)
                stored |= {name: codes, name + "_scale_inv": scale}
                exact[name] = dequantised(codes, scale, [128, 128], torch.float32)
    fp8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
    folder = write(tmp_path / "fp8", stored, moe_intermediate_size=width, quantization_config=fp8)
    numbers = write(tmp_path / "numbers", exact, moe_intermediate_size=width)
    own = bits(lockstep, folder, profile)
    for via in ("chunked", "decode", "train"):
        assert bits(lockstep, folder, profile, via) == own, via
    if power_of_two:
        assert own == bits(lockstep, numbers, profile) == bits(lockstep, numbers, PLAIN), "bf16 has these numbers, and our quantiser makes them again"
        assert own == bits(lockstep, folder, "cpu-mxfp8-experts-base"), "which has a place for each of them"
        assert own != bits(lockstep, numbers, "cpu-mxfp8-experts-base"), "the control: its quantiser makes 224 of 240"
    else:
        assert own != bits(lockstep, numbers, profile), "the control: our quantiser rounds them again"
    told = info(lockstep, folder)["exact_under"]["FP8, blocks of 128 x 128"]
    assert "cpu-fp8-experts" in told and "cpu-fp8-base" in told and ("cpu-bf16w" in told) == power_of_two, told
    lockstep.run("convert", folder, tmp_path / "again", "--profile", profile)
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()
    assert json.loads((tmp_path / "again" / "config.json").read_text()) == json.loads((folder / "config.json").read_text())


@pytest.mark.parametrize("power_of_two", [True, False])
def test_fp8_of_all_experts_in_one_tensor(lockstep, tmp_path, power_of_two):
    """Blocks of 128 x 128 counted from 0 in each expert's rows of gate and up together: the up projection begins inside a block."""
    width, hidden = 160, HIDDEN  # 320 rows in three blocks, the up projection from row 160 on
    g = torch.Generator().manual_seed(3)
    plain = {n: t for n, t in model_tensors().items() if ".experts." not in n}
    stored, exact = dict(plain), dict(plain)
    for i in range(LAYERS):
        name = f"model.layers.{i}.mlp.experts."
        for part, (rows, columns) in {"gate_up_proj": (2 * width, hidden), "down_proj": (hidden, width)}.items():
            w = torch.randn((EXPERTS, rows, columns), generator=g) * 0.15
            scale = torch.rand((EXPERTS, -(-rows // 128), -(-columns // 128)), generator=g) * 0.001 + 0.0005
            if power_of_two:
                scale = torch.exp2(torch.ceil(torch.log2(scale)))
            wide = scale.repeat_interleave(128, 1)[:, :rows].repeat_interleave(128, 2)[:, :, :columns]
            codes = (w / wide).clamp(-448, 448).to(torch.float8_e4m3fn)
            stored |= {name + part: codes, name + part + "_scale_inv": scale}
            exact[name + part] = dequantised(codes, scale, [128, 128], torch.float32)
    fp8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
    folder = write(tmp_path / "fp8", stored, moe_intermediate_size=width, quantization_config=fp8)
    numbers = write(tmp_path / "numbers", exact, moe_intermediate_size=width)
    for profile in ("cpu-f32", "cpu-bf16w"):
        assert bits(lockstep, folder, profile) == bits(lockstep, numbers, profile), profile
    lockstep.run("convert", folder, tmp_path / "out")
    ours = load_file(tmp_path / "out" / "model.safetensors")
    for i in range(LAYERS):
        name = f"model.layers.{i}.mlp.experts."
        for e in range(EXPERTS):
            gate, up = exact[name + "gate_up_proj"][e].chunk(2)
            for part, want in {"gate": gate, "up": up, "down": exact[name + "down_proj"][e]}.items():
                got = ours.pop(f"{name}{e}.{part}_proj.weight")
                assert got.dtype == torch.float32 and torch.equal(got.view(torch.int32), want.contiguous().view(torch.int32)), f"{name}{e}.{part}"
    assert not [n for n in ours if ".experts." in n or "scale_inv" in n]
    assert "quantization_config" not in json.loads((tmp_path / "out" / "config.json").read_text())
    assert bits(lockstep, tmp_path / "out", "cpu-f32") == bits(lockstep, folder, "cpu-f32")
    told = info(lockstep, folder)["exact_under"]["FP8, blocks of 128 x 128"]
    assert told == (["cpu-f32", "cpu-bf16w"] if power_of_two else ["cpu-f32"]) + (["cpu-mxfp8-base", "cpu-mxfp8-experts-base"] if power_of_two else [])
    shifted = dict(stored)
    shifted["model.layers.1.mlp.experts.gate_up_proj_scale_inv"] = stored["model.layers.1.mlp.experts.gate_up_proj_scale_inv"].roll(1, 1)
    assert bits(lockstep, write(tmp_path / "shifted", shifted, moe_intermediate_size=width, quantization_config=fp8), "cpu-f32") != bits(lockstep, folder, "cpu-f32")
    lacking = {n: t for n, t in stored.items() if n != "model.layers.0.mlp.experts.down_proj_scale_inv"}
    assert "down_proj_scale_inv" in refused(lockstep, write(tmp_path / "lacking", lacking, moe_intermediate_size=width, quantization_config=fp8))


def test_fp8_of_all_experts_in_one_tensor_is_computed_with_where_no_block_has_two_matrices(lockstep, tmp_path):
    """Gate and up of 128 rows each: a block of the fused tensor belongs to one of them, so its numbers and scales are those of the profile. Written again, each
    expert has its own tensors, with the same bytes."""
    width, profile = 128, "cpu-fp8-experts"
    g = torch.Generator().manual_seed(4)
    stored = {n: t for n, t in model_tensors().items() if ".experts." not in n}
    apart = dict(stored)
    for i in range(LAYERS):
        name = f"model.layers.{i}.mlp.experts."
        for parts, (rows, columns) in {("gate", "up"): (2 * width, HIDDEN), ("down",): (HIDDEN, width)}.items():
            scale = torch.rand((EXPERTS, -(-rows // 128), -(-columns // 128)), generator=g) * 0.001 + 0.0005
            codes = (torch.randn((EXPERTS, rows, columns), generator=g) * 150).clamp(-448, 448).to(torch.float8_e4m3fn)
            fused = name + "_".join(parts) + "_proj"
            stored |= {fused: codes, fused + "_scale_inv": scale}
            for e in range(EXPERTS):
                for part, ours, scales in zip(parts, codes[e].chunk(len(parts)), scale[e].chunk(len(parts)), strict=True):
                    apart |= {f"{name}{e}.{part}_proj.weight": ours, f"{name}{e}.{part}_proj.weight_scale_inv": scales}
    keys = {"moe_intermediate_size": width, "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}}
    folder, each = write(tmp_path / "fused", stored, **keys), write(tmp_path / "apart", apart, **keys)
    assert info(lockstep, folder)["exact_under"] == info(lockstep, each)["exact_under"] and profile in info(lockstep, folder)["exact_under"]["FP8, blocks of 128 x 128"]
    own = bits(lockstep, each, profile)
    for via in ("prefill", "train"):
        assert bits(lockstep, folder, profile, via) == own, via
    lockstep.run("convert", folder, tmp_path / "again", "--profile", profile)
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (each / "model.safetensors").read_bytes()
    # The control: halves that change places have other bits.
    swapped = stored | {f"model.layers.{i}.mlp.experts.gate_up_proj": stored[f"model.layers.{i}.mlp.experts.gate_up_proj"].roll(width, 1) for i in range(LAYERS)}
    assert bits(lockstep, write(tmp_path / "swapped", swapped, **keys), profile) != own
