"""Training whose weights are 4-bit integers of fp32 masters (`cpu-int4-qat`): the quantiser against NumPy and torch bit by bit, gradients against
straight-through in torch float64, packed folders and back, and short runs whose sampler has the trainer's bits.
"""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from comparison import relative_error
from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32
from safetensors.torch import load_file, save_file

REPOSITORY = Path(__file__).resolve().parents[2]
QAT, PLAIN = "cpu-int4-qat", "cpu-bf16w"
HIDDEN, LAYERS, HEADS, KV, HEAD, INNER, VOCABULARY, EPS, THETA = 80, 2, 4, 2, 20, 200, 150, 1e-5, 10000.0  # 32 divides none of the inputs
CONFIG = {"model_type": "llama", "vocab_size": VOCABULARY, "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
          "num_key_value_heads": KV, "head_dim": HEAD, "intermediate_size": INNER, "max_position_embeddings": 256, "rms_norm_eps": EPS,
          "tie_word_embeddings": False, "hidden_act": "silu", "rope_parameters": {"rope_type": "default", "rope_theta": THETA}}  # fmt: skip
MATRICES = {"self_attn.q_proj": (HEADS * HEAD, HIDDEN), "self_attn.k_proj": (KV * HEAD, HIDDEN), "self_attn.v_proj": (KV * HEAD, HIDDEN),
            "self_attn.o_proj": (HIDDEN, HEADS * HEAD), "mlp.gate_proj": (INNER, HIDDEN), "mlp.up_proj": (INNER, HIDDEN), "mlp.down_proj": (HIDDEN, INNER)}  # fmt: skip


def model_tensors():
    g = torch.Generator().manual_seed(5)
    shapes = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN), "model.norm.weight": (HIDDEN,), "lm_head.weight": (VOCABULARY, HIDDEN)}
    for i in range(LAYERS):
        name = f"model.layers.{i}."
        shapes |= {name + "input_layernorm.weight": (HIDDEN,), name + "post_attention_layernorm.weight": (HIDDEN,)}
        shapes |= {f"{name}{part}.weight": shape for part, shape in MATRICES.items()}
    tensors = {n: torch.randn(s, generator=g) * (0.15 if len(s) == 2 else 0.1) + (len(s) == 1) for n, s in shapes.items()}
    # Zeros, signed ones, numbers whose scale is nothing, halves of a unit (ties), and a large one.
    odd = tensors["model.layers.0.mlp.up_proj.weight"]
    odd[3, :32] = 0.0
    odd[4, :32] = -0.0
    odd[5, :32] = 1e-38
    odd[6, :32] = (torch.arange(32) * 0.5 - 8).clamp(-7, 7) / 32
    odd[7, 64:] = 2.0
    return tensors


def write(folder, tensors):
    folder.mkdir()
    save_file({n: t.contiguous() for n, t in tensors.items()}, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


def quantise(w):
    """Integers, scales in fp32 (bf16 numbers), and the numbers that they stand for; w: fp32."""
    rows, columns = w.shape
    padded = np.zeros((rows, -(-columns // 32) * 32), np.float32)
    padded[:, :columns] = w
    groups = padded.reshape(rows, -1, 32)
    scale = torch.from_numpy(np.abs(groups).max(axis=2) / np.float32(7)).to(torch.bfloat16).to(torch.float32).numpy()
    scale[scale < np.float32(2.0**-110)] = 0
    with np.errstate(divide="ignore", invalid="ignore"):
        q = np.where(scale[..., None] > 0, np.rint(groups * (np.float32(1) / scale)[..., None]), 0).astype(np.float32)
    assert np.abs(q).max() <= 7
    numbers = (q * scale[..., None]).astype(np.float32)
    flat = lambda x: x.reshape(rows, -1)[:, :columns]  # noqa: E731
    return flat(q), scale, flat(numbers)


def is_matrix(name):
    return "_proj." in name


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return write(tmp_path_factory.mktemp("qat") / "plain", model_tensors())


def sequences():
    random = np.random.default_rng(1)
    return [random.integers(0, VOCABULARY, n).tolist() for n in (2, 17, 40, 65)]


def bits(lockstep, folder, profile=QAT, via="prefill"):
    return [row["bits"] for row in lockstep.score(folder, sequences(), via, profile)]


def test_packed_folders_hold_the_quantisers_integers_and_come_back(lockstep, plain, tmp_path):
    lockstep.run("convert", plain, tmp_path / "packed", "--profile", QAT)
    stored = load_file(tmp_path / "packed" / "model.safetensors")
    for name, weight in model_tensors().items():
        if not is_matrix(name):
            assert stored[name].dtype == torch.bfloat16 and torch.equal(stored[name], weight.to(torch.bfloat16)), name
            continue
        stem = name.removesuffix("weight")
        q, scale, _ = quantise(weight.numpy())
        numbers = unpack_from_int32(stored[stem + "weight_packed"], 4, stored[stem + "weight_shape"])
        assert np.array_equal(numbers.numpy().astype(np.float32), q), name
        assert stored[stem + "weight_scale"].dtype == torch.bfloat16
        assert np.array_equal(stored[stem + "weight_scale"].to(torch.float32).numpy().view(np.int32), scale.view(np.int32)), name
    want = bits(lockstep, plain)
    for via in ("prefill", "chunked", "decode", "train"):
        assert bits(lockstep, tmp_path / "packed", via=via) == want, via
        assert bits(lockstep, plain, via=via) == want, via
    assert all(a != b for a, b in zip(bits(lockstep, plain, PLAIN), want)), "the control: weights that are not quantised"
    assert bits(lockstep, plain, "cpu-int4-base") != want, "the control: a head and a table in integers too"
    lockstep.run("convert", tmp_path / "packed", tmp_path / "again", "--profile", QAT)
    for file in ("model.safetensors", "config.json"):
        assert (tmp_path / "packed" / file).read_bytes() == (tmp_path / "again" / file).read_bytes()


class StraightThrough(torch.autograd.Function):
    """Rounded forward, and the gradient as it is."""

    @staticmethod
    def forward(_, x, rounded):
        return rounded(x)

    @staticmethod
    def backward(_, gradient):
        return gradient, None


def to_bf16(x):
    return x.to(torch.float32).to(torch.bfloat16).to(torch.float64)


def to_int4(w):
    return torch.from_numpy(quantise(w.detach().to(torch.float32).numpy())[2]).to(torch.float64)


def loss_of(masters, tokens, matrix=to_int4, linear=None):
    """The summed cross-entropy of a Llama in float64, whose weights and cache are rounded as the profile says. `linear(x, master)` makes the product of a
    linear layer, if it is more than x times the rounded master."""

    def rounded(x, how):
        return StraightThrough.apply(x, how)

    def weight(name):
        return rounded(masters[name], matrix if is_matrix(name) else to_bf16)

    def norm(x, name):
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + EPS) * weight(name)

    n = len(tokens) - 1
    angles = torch.arange(n)[:, None].to(torch.float32) * torch.tensor(THETA ** (-2 * np.arange(HEAD // 2) / HEAD)).to(torch.float32)
    cos, sin = angles.to(torch.float64).cos()[:, None], angles.to(torch.float64).sin()[:, None]

    def rope(x):
        a, b = x[..., : HEAD // 2], x[..., HEAD // 2 :]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    x = weight("model.embed_tokens.weight")[torch.tensor(tokens[:-1])]
    mask = torch.full((n, n), -torch.inf, dtype=torch.float64).triu(1)
    for i in range(LAYERS):
        name = f"model.layers.{i}."
        project = lambda y, part: linear(y, masters[f"{name}{part}.weight"]) if linear else y @ weight(f"{name}{part}.weight").T  # noqa: E731, B023
        h = norm(x, name + "input_layernorm.weight")
        q = rope(project(h, "self_attn.q_proj").view(n, HEADS, HEAD))
        k = rounded(rope(project(h, "self_attn.k_proj").view(n, KV, HEAD)), to_bf16).repeat_interleave(HEADS // KV, 1)
        v = rounded(project(h, "self_attn.v_proj").view(n, KV, HEAD), to_bf16).repeat_interleave(HEADS // KV, 1)
        p = torch.softmax(torch.einsum("thd,shd->hts", q, k) / HEAD**0.5 + mask, -1)
        x = x + project(torch.einsum("hts,shd->thd", p, v).reshape(n, -1), "self_attn.o_proj")
        h = norm(x, name + "post_attention_layernorm.weight")
        x = x + project(torch.nn.functional.silu(project(h, "mlp.gate_proj")) * project(h, "mlp.up_proj"), "mlp.down_proj")
    logits = norm(x, "model.norm.weight") @ weight("lm_head.weight").T
    return torch.nn.functional.cross_entropy(logits, torch.tensor(tokens[1:]), reduction="sum")


def gradients(matrix, linear=None):
    tensors = model_tensors()
    masters = {n: t.to(torch.float64).requires_grad_() for n, t in tensors.items()}
    sum(loss_of(masters, tokens, matrix, linear) for tokens in sequences()).backward()
    return {n: m.grad.numpy() for n, m in masters.items()}


def test_gradients_are_torchs_straight_through(lockstep, plain):
    got = lockstep.grad(plain, sequences(), QAT)
    want, unrounded = gradients(to_int4), gradients(lambda w: w)
    assert got.keys() == want.keys()
    for name, value in want.items():
        assert relative_error(got[name], value) < 5e-4, (name, relative_error(got[name], value))  # a key or value may round to its other neighbour in bf16
    assert max(relative_error(got[n], unrounded[n]) for n in want) > 0.05, "the control: gradients of weights that are not quantised"


def run_json(lockstep, *arguments):
    return json.loads(lockstep.run(*arguments, "--json").splitlines()[-1])


def test_reinforcement_learning_has_the_samplers_bits_and_its_export_packs(lockstep, tmp_path):
    model = REPOSITORY / "models/countdown-glm"
    told = run_json(lockstep, "train", "rl", "--model", model, "--problems", 2, "--rollouts", 8, "--steps", 3, "--schedule", "constant", "--warmup", 0,
                    "--learning-rate", 1e-4, "--profile", QAT, "--runs", tmp_path / "runs", "--name", "qat", "--no-page")  # fmt: skip
    assert told["steps"] == 3 and told["different_bits"] == 0
    lines = [json.loads(line) for line in (tmp_path / "runs/qat/metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "k1" in line]
    assert len(steps) == 3 and all(line["different_bits"] == 0 and line["k1"] == line["k2"] == line["k3"] == 0 for line in steps)
    export, packed = tmp_path / "runs/qat/export", tmp_path / "packed"
    assert {t.dtype for t in load_file(export / "model.safetensors").values()} == {torch.float32}, "masters as they are"
    lockstep.run("convert", export, packed, "--profile", QAT)
    score = lambda folder, profile: [r["bits"] for r in lockstep.score(folder, [[1, 5, 9, 3, 7, 2, 8]], "prefill", profile)]  # noqa: E731
    assert score(export, QAT) == score(packed, QAT) != score(model, QAT)
    assert score(export, PLAIN) != score(export, QAT), "the control"


def test_ranks_train_it_and_frozen_bases_still_refuse_them(lockstep, tmp_path):
    model = REPOSITORY / "models/countdown-glm"
    shared = ["train", "sft", "--model", model, "--environment", "countdown", "--steps", 2, "--batch", 2, "--profile", QAT, "--runs", tmp_path]
    told = [run_json(lockstep, *shared, "--name", f"r{i}", *(["--ranks", ranks] if ranks else [])) for i, ranks in enumerate(["", "tp=2", "dp=2"])]
    assert told[0]["weights_sha256"] == told[1]["weights_sha256"] == told[2]["weights_sha256"]
    done = subprocess.run([str(lockstep.binary), *map(str, shared), "--name", "no", "--profile", "cpu-int4-base"], capture_output=True, text=True)
    assert done.returncode != 0 and "cpu-int4-qat" in done.stderr
