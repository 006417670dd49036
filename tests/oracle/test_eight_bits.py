"""Training in 8 bits (`cpu-fp8`, `cpu-mxfp8`, `cpu-mxfp8-experts`): quantisers and rounded rows bit by bit against torch's float8 casts, a layer's forward, dX
and dW against a NumPy writing of the orders, gradients of a model against straight-through in torch float64, and short runs whose sampler has the trainer's
bits. The bridge is build/eight_bit_bridge (tests/tools).
"""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from test_int4_qat import gradients, is_matrix, model_tensors, run_json, sequences, write

REPOSITORY = Path(__file__).resolve().parents[2]
BRIDGE = Path(os.environ.get("LOCKSTEP_BINARY", REPOSITORY / "build" / "lockstep")).resolve().parent / "eight_bit_bridge"
F32 = np.float32


def e4m3(x):
    """Numbers of at most 448 by torch's cast."""
    return torch.from_numpy(np.clip(x, -448, 448)).to(torch.float8_e4m3fn).to(torch.float32).numpy()


def in_groups(x, format):
    """x [groups, numbers] in fp32, each group rounded under its own power of two."""
    largest = np.abs(x).max(axis=1)
    exponent = np.frexp(largest)[1].astype(np.int64) - 1 - 8
    if format == "fp8":
        exponent += largest > 448 * np.ldexp(1.0, exponent)
    finite = np.isfinite(largest)
    good = finite & (exponent >= -110) & (largest >= 2.0**-126)
    scale = np.ldexp(F32(1), exponent[good]).astype(F32)[:, None]
    out = np.full_like(x, np.nan)
    out[finite] = 0
    out[good] = e4m3(x[good] / scale) * scale
    return out


def blocks(x, height, width, format):
    (n, k), down, across = x.shape, -(-x.shape[0] // height), -(-x.shape[1] // width)
    padded = np.zeros((down * height, across * width), F32)
    padded[:n, :k] = x
    groups = padded.reshape(down, height, across, width).transpose(0, 2, 1, 3)
    rounded = in_groups(groups.reshape(down * across, height * width), format)
    return rounded.reshape(groups.shape).transpose(0, 2, 1, 3).reshape(padded.shape)[:n, :k].copy()


def rows(x, format):
    return blocks(x, 1, 128 if format == "fp8" else 32, format)


def forward_weight(w, format):
    return blocks(w, 128, 128, format) if format == "fp8" else blocks(w, 1, 32, format)


def gradient_weight(w, format):
    return blocks(w, 128, 128, format) if format == "fp8" else blocks(w, 32, 1, format)


def chain(a, b, most):
    """chain(G) of docs/numerics.md over the last axis of a [T, K] and b [N, K]: fma by extended precision, whose own rounding is far below fp32's."""
    k = a.shape[1]
    leaves = next(g for g in (8, 4, 2, 1) if g <= most and (g == 1 or (k % g == 0 and k // g >= 32)))
    sums = []
    for leaf in range(leaves):
        acc = np.zeros((a.shape[0], b.shape[0]), F32)
        for i in range(leaf * k // leaves, (leaf + 1) * k // leaves):
            acc = (a[:, None, i].astype(np.longdouble) * b[None, :, i] + acc).astype(F32)
        sums.append(acc)
    while len(sums) > 1:
        sums = [left + right for left, right in zip(sums[::2], sums[1::2])]
    return sums[0]


def bits(x):
    return np.where(np.isnan(x), np.uint32(0x7FC00000), np.ascontiguousarray(x, F32).view(np.uint32))


def ask(format, x, w, dy, leaves=8):
    if not os.access(BRIDGE, os.X_OK):
        pytest.fail(f"there is no eight_bit_bridge at {BRIDGE}; build the tests first")
    as_bits = lambda a: np.ascontiguousarray(a, F32).view(np.uint32).ravel().tolist()  # noqa: E731
    request = {"format": format, "rows": len(x), "inputs": x.shape[1], "outputs": len(w), "x": as_bits(x), "w": as_bits(w), "dy": as_bits(dy), "leaves": leaves}
    done = subprocess.run([BRIDGE], input=json.dumps(request) + "\n", capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    shapes = {"x": x.shape, "dy": dy.shape, "forward_w": w.shape, "gradient_w": w.shape, "y": dy.shape, "dx": x.shape, "dw": w.shape}
    return {name: np.array(value, np.uint32).view(F32).reshape(shapes[name]) for name, value in json.loads(done.stdout).items()}


def same(got, want):
    return np.array_equal(bits(got), bits(want))


@pytest.mark.parametrize("format", ["fp8", "mxfp8"])
@pytest.mark.parametrize("shape", [(5, 64, 48), (13, 290, 150), (1, 33, 17), (3, 256, 160)], ids=str)
def test_a_layer_is_the_definitions_to_the_bit(format, shape):
    t, k, n = shape
    random = np.random.default_rng(7)
    spread = lambda *size: (random.standard_normal(size) * 10.0 ** random.uniform(-3, 3, size)).astype(F32)  # noqa: E731
    x, w, dy = spread(t, k), spread(n, k), spread(t, n)
    if k >= 64:  # zeros of both signs, numbers without a scale, ties, the largest of a group above and at 448 units
        x[0, :32], w[3, :32], x[0, 40] = 0.0, -0.0, -0.0
        w[5, :32] = 2.0**-120
        w[7, :16] = np.arange(16) / 16 + 8
        x[-1, 32:40] = [511.9, 449, 448, 464, 463.9, -500, 1e-3, 2.0**-9]
    got = ask(format, x, w, dy)
    want = {"x": rows(x, format), "dy": rows(dy, format), "forward_w": forward_weight(w, format), "gradient_w": gradient_weight(w, format)}
    want |= {"y": chain(want["x"], want["forward_w"], 8), "dx": chain(want["dy"], np.ascontiguousarray(want["gradient_w"].T), 8), "dw": chain(dy.T.copy(), x.T.copy(), 1)}
    for name, value in want.items():
        assert same(got[name], value), (name, int((bits(got[name]) != bits(value)).sum()))
    assert not same(got["x"], x) and not same(got["forward_w"], w), "the control: rounding changes numbers"
    assert not same(got["y"], chain(x, want["forward_w"], 8)) and not same(got["dx"], chain(dy, np.ascontiguousarray(want["gradient_w"].T), 8))
    assert not same(got["dw"], chain(want["dy"].T.copy(), x.T.copy(), 1)), "the control: rounded rows would give another dW"
    if format == "mxfp8" and n > 32 and k > 32:
        assert not same(got["forward_w"], got["gradient_w"])
    if k == 256:
        assert not same(ask(format, x, w, dy, leaves=2)["y"], got["y"]), "the control: another number of leaves"


@pytest.mark.parametrize("format", ["fp8", "mxfp8"])
def test_numbers_that_are_none_are_seen_and_stay_in_their_group(format):
    random = np.random.default_rng(3)
    x, w, dy = (random.standard_normal(s).astype(F32) for s in ((4, 256), (64, 256), (4, 64)))
    x[1, 5], x[2, 200], dy[3, 1] = np.nan, np.inf, -np.inf
    got = ask(format, x, w, dy)
    assert same(got["x"], rows(x, format)) and same(got["dy"], rows(dy, format))
    assert np.isnan(got["x"][1, 0]) and np.isfinite(got["x"][1, 128:]).all()
    assert np.isnan(got["y"][[1, 2]]).all() and np.isfinite(got["y"][[0, 3]]).all()
    assert np.isnan(got["dx"][3]).all() and np.isfinite(got["dx"][:3]).all()


@pytest.mark.parametrize("format", ["fp8", "mxfp8"])
def test_exported_folders_hold_the_forwards_numbers_and_come_back(lockstep, format, tmp_path):
    """What `convert` writes are torch's types: E4M3 under fp32 scales, or under scales that are torch's E8M0 of these powers of two. Read again they have the same bits."""
    profile, tensors = f"cpu-{format}", model_tensors()
    plain = write(tmp_path / "plain", tensors)
    lockstep.run("convert", plain, tmp_path / "packed", "--profile", profile)
    stored, matrices = load_file(tmp_path / "packed" / "model.safetensors"), 0
    for name, weight in tensors.items():
        if not is_matrix(name):
            continue
        codes, scale = stored[name], stored[name + "_scale_inv"]
        assert codes.dtype == torch.float8_e4m3fn and tuple(codes.shape) == tuple(weight.shape), name
        height, width = (128, 128) if format == "fp8" else (1, 32)
        if format == "mxfp8":
            power = scale.view(torch.uint8)
            scale = torch.ldexp(torch.tensor(1.0), power.to(torch.int32) - 127)
            normal = power > 0  # below it is no normal number of fp32; such groups are zeros
            assert torch.equal(scale.to(torch.float8_e8m0fnu).view(torch.uint8)[normal], power[normal]), name
        wide = scale.repeat_interleave(height, 0)[: weight.shape[0]].repeat_interleave(width, 1)[:, : weight.shape[1]]
        assert np.array_equal((codes.to(torch.float32) * wide).numpy(), forward_weight(weight.numpy(), format)), name
        matrices += 1
    assert matrices == 14
    score = lambda folder, name: [row["bits"] for row in lockstep.score(folder, sequences(), "prefill", name)]  # noqa: E731
    assert score(tmp_path / "packed", profile) == score(plain, profile)
    assert score(tmp_path / "packed", profile) != score(plain, "cpu-bf16w"), "the control"


@pytest.mark.parametrize("format", ["fp8", "mxfp8"])
def test_the_bench_of_experts_rounds_so_too(format, monkeypatch):
    """The roundings of bench/expert_errors.py are those of the definitions: numbers of many sizes, ties, a group whose largest is above and at 448 units."""
    monkeypatch.syspath_prepend(str(REPOSITORY / "bench"))
    import expert_errors

    random = np.random.default_rng(11)
    w = (random.standard_normal((256, 384)) * 10.0 ** random.uniform(-3, 3, (256, 384))).astype(F32)
    w[7, :16] = np.arange(16) / 16 + 8
    w[9, 32:40] = [511.9, 449, 448, 464, 463.9, -500, 1e-3, 2.0**-9]
    assert same(expert_errors.rounded_rows(w, format), rows(w, format))
    assert same(expert_errors.forward_weight(w, format), forward_weight(w, format))
    assert same(expert_errors.gradient_weight(w, format), gradient_weight(w, format))
    bits16 = torch.from_numpy(w).to(torch.bfloat16).to(torch.float32).numpy()
    assert same(expert_errors.bf16(w), bits16) and not same(bits16, w)


def rounded_linear(format):
    as_f32 = lambda t: t.detach().to(torch.float32).numpy()  # noqa: E731
    as_f64 = lambda a: torch.from_numpy(a).to(torch.float64)  # noqa: E731

    class Linear(torch.autograd.Function):
        """Both operands rounded; dX of rounded rows and weights, dW of rows as they are, straight through to the master."""

        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return as_f64(rows(as_f32(x), format)) @ as_f64(forward_weight(as_f32(w), format)).T

        @staticmethod
        def backward(ctx, gradient):
            x, w = ctx.saved_tensors
            return as_f64(rows(as_f32(gradient), format)) @ as_f64(gradient_weight(as_f32(w), format)), gradient.T @ x

    return Linear.apply


@pytest.mark.parametrize("format", ["fp8", "mxfp8"])
def test_gradients_are_torchs_straight_through(lockstep, format, tmp_path):
    plain = write(tmp_path / "plain", model_tensors())
    got = lockstep.grad(plain, sequences(), f"cpu-{format}")
    want, unrounded = gradients(None, rounded_linear(format)), gradients(lambda w: w)
    assert got.keys() == want.keys()
    error = lambda a, b: np.abs(a.astype(np.float64) - b).mean() / np.abs(b).mean()  # noqa: E731
    for name, value in want.items():  # a number between two of E4M3 may fall to the other side
        assert error(got[name], value) < 5e-3, (name, error(got[name], value))
    assert min(error(got[n], unrounded[n]) for n in want if "_proj" in n) > 2e-2, "the control: gradients of a model that rounds nothing"


@pytest.mark.parametrize("profile", ["cpu-fp8", "cpu-mxfp8", "cpu-mxfp8-experts"])
def test_reinforcement_learning_has_the_samplers_bits(lockstep, tmp_path, profile):
    model = REPOSITORY / "models/countdown-glm"
    told = run_json(lockstep, "train", "rl", "--model", model, "--problems", 2, "--rollouts", 8, "--steps", 2, "--schedule", "constant", "--warmup", 0,
                    "--learning-rate", 1e-4, "--profile", profile, "--runs", tmp_path / "runs", "--name", "eight", "--no-page")  # fmt: skip
    assert told["steps"] == 2 and told["different_bits"] == 0
    lines = [json.loads(line) for line in (tmp_path / "runs/eight/metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "k1" in line]
    assert len(steps) == 2 and all(line["different_bits"] == 0 and line["k1"] == line["k2"] == line["k3"] == 0 for line in steps)
    export = tmp_path / "runs/eight/export"
    score = lambda folder, name: [r["bits"] for r in lockstep.score(folder, [[1, 5, 9, 3, 7, 2, 8]], "prefill", name)]  # noqa: E731
    assert score(export, profile) != score(model, profile)
    assert score(export, profile) != score(export, "cpu-bf16w"), "the control"


def test_ranks_train_it(lockstep, tmp_path):
    model = REPOSITORY / "models/countdown-glm"
    shared = ["train", "sft", "--model", model, "--environment", "countdown", "--steps", 2, "--batch", 2, "--profile", "cpu-mxfp8", "--runs", tmp_path]
    told = [run_json(lockstep, *shared, "--name", f"r{i}", *(["--ranks", ranks] if ranks else [])) for i, ranks in enumerate(["", "tp=2", "dp=2"])]
    assert told[0]["weights_sha256"] == told[1]["weights_sha256"] == told[2]["weights_sha256"]
