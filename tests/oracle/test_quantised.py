"""Integer weight profiles against NumPy: a small Llama is quantised and run in float64 by the definition of docs/numerics.md section 2,
and `lockstep score` under cpu-int8w and cpu-int4w must agree on every way of serving.

Rows of x are rounded to integers, so a number that lies within a rounding error of a tie may fall to the other side: the bulk must
agree to fp32's accuracy, the worst to one such step. The products themselves are held to the bit in quantised_test.cpp.
"""

import json
import subprocess

import numpy as np
import pytest
from comparison import largest_difference
from safetensors.numpy import save_file

HIDDEN, LAYERS, HEADS, KV, HEAD, INNER, VOCABULARY = 80, 2, 4, 2, 20, 104, 120  # groups of 32 do not divide hidden or inner
F32 = np.float32


def bf16(x):
    bits = np.asarray(x, F32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(F32)


def quantise(x, limit, round_scale):
    """Integers and scales of rows [n, K], in fp32 as written: [n, groups, 32] and [n, groups]."""
    n, k = x.shape
    padded = np.zeros((n, -(-k // 32) * 32), F32)
    padded[:, :k] = x
    groups = padded.reshape(n, -1, 32)
    scale = np.abs(groups).max(axis=2) / F32(limit)
    if round_scale:
        scale = bf16(scale)
    inverse = np.where(scale >= 2.0**-110, F32(1) / np.maximum(scale, F32(2.0**-110)), F32(0))
    return np.rint(groups * inverse[:, :, None]).astype(np.int64), np.where(scale >= 2.0**-110, scale, F32(0))


class Quantised:
    def __init__(self, weight, bits):
        self.q, self.scale = quantise(weight, 127 if bits == 8 else 7, True)
        self.inputs = weight.shape[1]
        assert np.abs(self.q).max() <= (127 if bits == 8 else 7)

    def table(self):
        return (self.q * self.scale[:, :, None].astype(np.float64)).reshape(len(self.q), -1)[:, : self.inputs]

    def __call__(self, x):
        q, scale = quantise(x.astype(F32), 127, False)
        exact = np.einsum("tgk,ngk->tng", q, self.q)
        return (exact * scale[:, None, :].astype(np.float64) * self.scale[None].astype(np.float64)).sum(axis=2)


class Plain:
    """The negative control: the same model under cpu-bf16w."""

    def __init__(self, weight, bits):
        self.weight = bf16(weight).astype(np.float64)

    def table(self):
        return self.weight

    def __call__(self, x):
        return x @ self.weight.T


def norm(x, w):
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-5) * bf16(w).astype(np.float64)


def logprobs(tensors, tokens, bits, kind):
    matrix = {name: kind(w, bits) for name, w in tensors.items() if w.ndim == 2}
    angles = np.arange(len(tokens))[:, None] * 10000.0 ** (-2.0 * np.arange(HEAD // 2) / HEAD)[None]
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]

    def rope(x, heads):
        x = x.reshape(len(tokens), heads, HEAD)
        a, b = x[..., : HEAD // 2], x[..., HEAD // 2 :]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

    x = matrix["model.embed_tokens.weight"].table()[tokens]
    mask = np.triu(np.full((len(tokens), len(tokens)), -np.inf), 1)
    for i in range(LAYERS):
        name = f"model.layers.{i}."
        h = norm(x, tensors[name + "input_layernorm.weight"])
        q = rope(matrix[name + "self_attn.q_proj.weight"](h), HEADS)
        k = bf16(rope(matrix[name + "self_attn.k_proj.weight"](h), KV)).astype(np.float64)  # as the cache keeps them
        v = bf16(matrix[name + "self_attn.v_proj.weight"](h)).astype(np.float64).reshape(len(tokens), KV, HEAD)
        out = np.zeros((len(tokens), HEADS, HEAD))
        for head in range(HEADS):
            kv = head // (HEADS // KV)
            scores = q[:, head] @ k[:, kv].T / np.sqrt(HEAD) + mask
            p = np.exp(scores - scores.max(axis=1, keepdims=True))
            out[:, head] = p / p.sum(axis=1, keepdims=True) @ v[:, kv]
        x = x + matrix[name + "self_attn.o_proj.weight"](out.reshape(len(tokens), -1))
        h = norm(x, tensors[name + "post_attention_layernorm.weight"])
        gate, up = matrix[name + "mlp.gate_proj.weight"](h), matrix[name + "mlp.up_proj.weight"](h)
        x = x + matrix[name + "mlp.down_proj.weight"](gate / (1 + np.exp(-gate)) * up)
    z = matrix["model.embed_tokens.weight"](norm(x, tensors["model.norm.weight"]))
    z = z - z.max(axis=1, keepdims=True)
    z = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
    return z[np.arange(len(tokens) - 1), tokens[1:]]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quantised")
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
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = {"model_type": "llama", "vocab_size": VOCABULARY, "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
              "num_key_value_heads": KV, "head_dim": HEAD, "intermediate_size": INNER, "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
              "tie_word_embeddings": True, "hidden_act": "silu", "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    return folder, tensors


def scored(lockstep, folder, sequences, profile, via):
    tokens = lockstep.tokens_file(sequences)
    output = lockstep.run("score", "--model", folder, "--tokens", tokens, "--via", via, "--profile", profile)
    return [json.loads(line) for line in output.splitlines()]


@pytest.mark.parametrize("bits", [8, 4])
def test_score_agrees_with_the_definition(lockstep, model, bits):
    folder, tensors = model
    random = np.random.default_rng(bits)
    sequences = [random.integers(0, VOCABULARY, n).tolist() for n in (2, 17, 40, 65)]
    profile = f"cpu-int{bits}w"
    rows = scored(lockstep, folder, sequences, profile, "prefill")
    got = np.concatenate([row["logprobs"] for row in rows])
    want = np.concatenate([logprobs(tensors, np.array(s), bits, Quantised) for s in sequences])
    plain = np.concatenate([logprobs(tensors, np.array(s), bits, Plain) for s in sequences])
    largest_difference(got, want)  # as many, and all finite
    errors = np.abs(got - want)

    # Where an activation lies between two integers the last bit decides, and what follows hangs on it: the definition itself, with
    # inputs known to seven digits, is the measure of how near anything in fp32 can be.
    def noisy(seed):
        noise = np.random.default_rng(seed)

        class Noisy(Quantised):
            def __call__(self, x):
                return super().__call__(x * (1 + 1e-7 * noise.standard_normal(x.shape)))

        return np.concatenate([logprobs(tensors, np.array(s), bits, Noisy) for s in sequences])

    itself = [np.abs(noisy(seed) - want) for seed in range(4)]
    print(f"{profile}: mean {errors.mean():.2g}, the definition against itself {max(e.mean() for e in itself):.2g}, plain weights {np.abs(plain - want).mean():.2g}")
    assert errors[0] < 1e-5, "one position: nothing hangs on it yet"
    assert errors.mean() < 1.5 * max(e.mean() for e in itself)
    assert errors.max() < 1.5 * max(e.max() for e in itself)
    assert np.abs(plain - want).mean() > 2 * errors.mean(), "the control: unquantised weights are further away"
    for via in ("chunked", "decode", "train"):
        assert [row["bits"] for row in scored(lockstep, folder, sequences, profile, via)] == [row["bits"] for row in rows], via


def test_training_is_refused_in_one_sentence(lockstep, model):
    folder, _ = model
    tokens = lockstep.tokens_file([[1, 2, 3]])
    command = [str(lockstep.binary), "grad", "--model", str(folder), "--tokens", str(tokens), "--profile", "cpu-int8w", "--out", str(lockstep.folder / "g")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    assert "profile 'cpu-int8w' is for serving alone" in done.stderr
