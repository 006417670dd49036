"""Low-bit weight profiles against torch and NumPy, bit by bit: a folder whose matrices are rounded to a format here, with torch's own cast to
float8_e4m3fn, must score as the original folder does under the profile of that format. fp8 and mxfp8 values fit bf16, so their rounded folders
are scored under cpu-bf16w, which decodes nothing; int4 values do not, so that folder is quantised again.
"""

import json
import subprocess

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from safetensors.torch import save_file as save_torch

HIDDEN, LAYERS, HEADS, KV, HEAD, INNER, VOCABULARY = 272, 2, 4, 2, 68, 200, 150  # neither 32 nor 128 divides them all
F32 = np.float32
FORMATS = ["int4", "fp8", "mxfp8", "mxfp4"]


def bf16(x):
    return torch.from_numpy(np.ascontiguousarray(x)).to(torch.bfloat16).to(torch.float32).numpy()


def cast(x, scale):
    """x in units of `scale`, rounded to E4M3, at most 448."""
    units = torch.from_numpy((x / scale).astype(F32)).clamp(-448, 448)
    return units.to(torch.float8_e4m3fn).to(torch.float32).numpy() * scale


def fp8(w):
    out = np.empty_like(w)
    for n in range(0, w.shape[0], 128):
        for k in range(0, w.shape[1], 128):
            block = w[n : n + 128, k : k + 128]
            mantissa, exponent = np.frexp(np.abs(block).max() / F32(448))
            out[n : n + 128, k : k + 128] = cast(block, F32(2.0) ** (exponent - (mantissa == 0.5)))
    return out


def groups(w):
    n, k = w.shape
    padded = np.zeros((n, -(-k // 32) * 32), F32)
    padded[:, :k] = w
    return padded.reshape(n, -1, 32)


def mxfp8(w):
    x = groups(w)
    largest = np.abs(x).max(axis=2, keepdims=True)
    scale = np.exp2(np.floor(np.log2(largest)) - 8).astype(F32)
    return cast(x, scale).reshape(w.shape[0], -1)[:, : w.shape[1]]


def mxfp4(w):
    x = groups(w)
    scale = np.exp2(np.floor(np.log2(np.abs(x).max(axis=2, keepdims=True))) - 2).astype(F32)
    numbers = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], F32)
    distance = np.abs(np.abs(x / scale)[..., None] - numbers)
    nearest = (distance * 16 + np.arange(8) % 2 * 1e-6).argmin(axis=-1)  # of two as near the even code
    return (np.copysign(numbers[nearest], x) * scale).reshape(w.shape[0], -1)[:, : w.shape[1]]


def int4(w):
    x = groups(w)
    scale = bf16(np.abs(x).max(axis=2, keepdims=True) / F32(7))
    q = np.rint(x * (F32(1) / scale))
    assert np.abs(q).max() <= 7
    return (q * scale).astype(F32).reshape(w.shape[0], -1)[:, : w.shape[1]]


def write(folder, tensors, save=save_file):
    folder.mkdir()
    save(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = {"model_type": "llama", "vocab_size": VOCABULARY, "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
              "num_key_value_heads": KV, "head_dim": HEAD, "intermediate_size": INNER, "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
              "tie_word_embeddings": True, "hidden_act": "silu", "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The model, and what its matrices are in each format."""
    root = tmp_path_factory.mktemp("low_bit")
    random = np.random.default_rng(5)
    shapes = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN), "model.norm.weight": (HIDDEN,)}
    for i in range(LAYERS):
        name = f"model.layers.{i}."
        shapes |= {
            name + "input_layernorm.weight": (HIDDEN,),
            name + "post_attention_layernorm.weight": (HIDDEN,),
            name + "self_attn.q_proj.weight": (HEADS * HEAD, HIDDEN),
            name + "self_attn.k_proj.weight": (KV * HEAD, HIDDEN),
            name + "self_attn.v_proj.weight": (KV * HEAD, HIDDEN),
            name + "self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD),
            name + "mlp.gate_proj.weight": (INNER, HIDDEN),
            name + "mlp.up_proj.weight": (INNER, HIDDEN),
            name + "mlp.down_proj.weight": (HIDDEN, INNER),
        }
    tensors = {n: (random.standard_normal(s) * (0.15 if len(s) == 2 else 0.1) + (len(s) == 1)).astype(F32) for n, s in shapes.items()}
    out = {"plain": write(root / "plain", tensors)}
    for kind in (int4, fp8, mxfp8, mxfp4):
        rounded = {n: np.ascontiguousarray(kind(w)) if w.ndim == 2 else w for n, w in tensors.items()}  # safetensors writes memory as it lies
        assert all((rounded[n] != w).any() for n, w in tensors.items() if w.ndim == 2)
        if kind is not int4:
            assert all((bf16(w) == w).all() for w in rounded.values() if w.ndim == 2)
        out[kind.__name__] = write(root / kind.__name__, rounded)
    return out


def bits(lockstep, folder, profile, via="prefill"):
    random = np.random.default_rng(1)
    tokens = lockstep.tokens_file([random.integers(0, VOCABULARY, n).tolist() for n in (2, 17, 40, 65)])
    output = lockstep.run("score", "--model", folder, "--tokens", tokens, "--via", via, "--profile", profile)
    return [json.loads(line)["bits"] for line in output.splitlines()]


@pytest.mark.parametrize("kind", FORMATS)
def test_scores_are_those_of_weights_rounded_by_torch(lockstep, folders, kind):
    profile = f"cpu-{kind}-base"
    want = bits(lockstep, folders[kind], profile if kind == "int4" else "cpu-bf16w")
    for via in ("prefill", "chunked", "decode", "train"):
        assert bits(lockstep, folders["plain"], profile, via) == want, via
    assert all(a != b for a, b in zip(bits(lockstep, folders["plain"], "cpu-bf16w"), want)), "the control: weights that are not quantised"
    for other in FORMATS:
        if other != kind:
            assert bits(lockstep, folders["plain"], f"cpu-{other}-base") != want


def test_int4_has_the_weights_of_the_integer_profile(lockstep, folders):
    # One position sees the embedding and every matrix; the integer profile rounds its inputs too, and is near, not equal.
    tokens = lockstep.tokens_file([[3, 5]])
    got = {}
    for profile in ("cpu-int4-base", "cpu-int4w", "cpu-bf16w"):
        output = lockstep.run("score", "--model", folders["plain"], "--tokens", tokens, "--profile", profile)
        got[profile] = json.loads(output)["logprobs"][0]
    assert 0 < abs(got["cpu-int4-base"] - got["cpu-int4w"]) < abs(got["cpu-int4-base"] - got["cpu-bf16w"])


def test_what_cannot_be_done_is_refused_in_one_sentence(lockstep, folders):
    tokens = lockstep.tokens_file([[1, 2, 3]])

    def refused(*arguments):
        done = subprocess.run([str(lockstep.binary), *map(str, arguments)], capture_output=True, text=True)
        assert done.returncode != 0
        return done.stderr

    model = folders["plain"]
    assert "adapters" in refused("grad", "--model", model, "--tokens", tokens, "--profile", "cpu-fp8-base", "--out", lockstep.folder / "g")
    assert "the model has none" in refused("score", "--model", model, "--tokens", tokens, "--profile", "cpu-fp8-experts")


def block_fp8(tensors, power_of_two):
    """As published folders have it: E4M3 and `weight_scale_inv`; and the numbers that they stand for."""
    stored, stands_for = {}, {}
    for name, w in tensors.items():
        stored[name], stands_for[name] = torch.from_numpy(w), w
        if w.ndim != 2 or "embed" in name:
            continue
        scales = np.empty((-(-w.shape[0] // 128), -(-w.shape[1] // 128)), F32)
        codes, numbers = torch.empty(w.shape, dtype=torch.float8_e4m3fn), np.empty_like(w)
        for i, j in np.ndindex(scales.shape):
            at = (slice(i * 128, i * 128 + 128), slice(j * 128, j * 128 + 128))
            scale = np.abs(w[at]).max() / F32(448)
            scales[i, j] = np.exp2(np.ceil(np.log2(scale))) if power_of_two else scale
            codes[at] = torch.from_numpy(w[at] / scales[i, j]).clamp(-448, 448).to(torch.float8_e4m3fn)
            numbers[at] = codes[at].to(torch.float32).numpy() * scales[i, j]
        stored[name], stored[name + "_scale_inv"], stands_for[name] = codes, torch.from_numpy(scales), numbers
    return stored, stands_for


@pytest.mark.parametrize("power_of_two", [True, False])
def test_published_block_fp8_folders_are_read(lockstep, folders, tmp_path, power_of_two):
    tensors = load_file(folders["plain"] / "model.safetensors")
    stored, stands_for = block_fp8(tensors, power_of_two)
    folder, numbers = write(tmp_path / "fp8", stored, save_torch), write(tmp_path / "numbers", stands_for)
    for profile in ("cpu-f32", "cpu-bf16w"):
        assert bits(lockstep, folder, profile) == bits(lockstep, numbers, profile), profile
    assert bits(lockstep, folder, "cpu-f32") != bits(lockstep, folders["plain"], "cpu-f32"), "the control"
    if power_of_two:  # quantised again they are the numbers of the file
        embedded = {n: w if "embed" not in n else fp8(w) for n, w in stands_for.items()}
        assert bits(lockstep, folder, "cpu-fp8-base") == bits(lockstep, write(tmp_path / "again", embedded), "cpu-bf16w")
    lacking = write(tmp_path / "lacking", {n: w for n, w in stored.items() if n != "model.layers.1.mlp.up_proj.weight_scale_inv"}, save_torch)
    done = subprocess.run([str(lockstep.binary), "info", str(lacking)], capture_output=True, text=True)
    assert done.returncode != 0 and "weight_scale_inv" in done.stderr


@pytest.mark.parametrize("kind,most", [("int4", 0.29), ("fp8", 0.53), ("mxfp8", 0.53), ("mxfp4", 0.28)])
def test_bytes_of_a_large_model(lockstep, kind, most):
    config = lockstep.folder / "config.json"
    config.write_text(json.dumps({"model_type": "llama", "vocab_size": 32000, "hidden_size": 2048, "num_hidden_layers": 4, "num_attention_heads": 32,
                                  "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 5632, "max_position_embeddings": 512, "rms_norm_eps": 1e-5,
                                  "tie_word_embeddings": True, "hidden_act": "silu", "rope_theta": 10000.0}))  # fmt: skip

    def weights(profile):
        plan = json.loads(lockstep.run("plan", "--model", config, "--for", "serve", "--profile", profile, "--json", "--sequences", 1, "--length", 64, "--memory-megabytes", 65536))
        return plan["bytes"]["weights"]

    assert weights(f"cpu-{kind}-base") <= most * weights("cpu-bf16w")
