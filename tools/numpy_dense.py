#!/usr/bin/env python3
"""Llama 3.x and Qwen3 in plain NumPy, float64: the formulas, one after the other.

It is documentation that runs: no caches, batches, rounding or torch. Both families are one: Qwen3 also norms each head of
q and k before RoPE. Shapes: T tokens, h hidden, H query heads, K key and value heads, D head size.
"""

import math
from dataclasses import dataclass

import numpy as np

from numpy_glm_moe_dsa import rms_norm, swiglu


@dataclass(frozen=True)
class Knobs:
    """What the families fix. Other values are wrong variants, which a golden must be able to tell apart."""

    rope_pairs: bool = False  # neighbouring columns turn together, instead of the two halves
    rope_scaling: bool = True
    attention_factor: bool = True  # YaRN's, on cosines and sines
    heads_interleaved: bool = False  # query head i uses key head i mod K, instead of i div (H / K)
    head_norms: bool = True
    norm_after_rope: bool = False


def inverse_frequencies(config, knobs):
    """(theta^(-2j/D) scaled as rope_parameters say, the factor of cosines and sines)"""
    rope, d = config["rope_parameters"], config["head_dim"]
    j = np.arange(d // 2)
    theta, kind = rope["rope_theta"], rope["rope_type"] if knobs.rope_scaling else "default"
    inverse = theta ** (-2 * j / d)
    if kind == "default":
        return inverse, 1.0
    if kind == "linear":
        return inverse / rope["factor"], 1.0
    original = rope.get("original_max_position_embeddings", config["max_position_embeddings"])
    if kind == "llama3":
        low, high, wave = rope["low_freq_factor"], rope["high_freq_factor"], 2 * np.pi / inverse
        smooth = (original / wave - low) / (high - low)
        mixed = (1 - smooth) * inverse / rope["factor"] + smooth * inverse
        return np.where(wave > original / low, inverse / rope["factor"], np.where(wave < original / high, inverse, mixed)), 1.0
    if kind == "yarn":
        turns = [d * math.log(original / (b * 2 * math.pi)) / (2 * math.log(theta))
                 for b in (rope.get("beta_fast") or 32, rope.get("beta_slow") or 1)]  # fmt: skip
        if rope.get("truncate", True):
            turns = [math.floor(turns[0]), math.ceil(turns[1])]
        low, high = max(turns[0], 0), min(turns[1], d - 1)
        ramp = np.clip((j - low) / ((high if high != low else high + 0.001) - low), 0, 1)

        def mscale(m):
            return 1.0 if rope["factor"] <= 1 else 0.1 * m * math.log(rope["factor"]) + 1

        factor = rope.get("attention_factor")
        if factor is None and rope.get("mscale") and rope.get("mscale_all_dim"):
            factor = mscale(rope["mscale"]) / mscale(rope["mscale_all_dim"])
        factor = mscale(1) if factor is None else factor
        return inverse / rope["factor"] * ramp + inverse * (1 - ramp), factor if knobs.attention_factor else 1.0
    raise ValueError(f"rope_type {kind}")


def forward(config, weights, tokens, knobs=Knobs()):
    """(logits float64 [T, V], infinity: nothing is selected here)"""
    w = {name: np.asarray(value, np.float64) for name, value in weights.items()}
    heads, kv_heads, d, eps = (config[k] for k in ("num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps"))
    count = len(tokens)
    inverse, factor = inverse_frequencies(config, knobs)
    angle = np.arange(count)[:, None, None] * inverse
    cos, sin = factor * np.cos(angle), factor * np.sin(angle)
    first, second = (slice(0, d, 2), slice(1, d, 2)) if knobs.rope_pairs else (slice(0, d // 2), slice(d // 2, d))

    def rotate(x_THD):
        out, a, b = np.empty_like(x_THD), x_THD[..., first], x_THD[..., second]
        out[..., first], out[..., second] = a * cos - b * sin, b * cos + a * sin
        return out

    key_head = np.arange(heads) % kv_heads if knobs.heads_interleaved else np.arange(heads) // (heads // kv_heads)
    hidden = np.tril(np.ones((count, count), bool))
    x = w["model.embed_tokens.weight"][np.asarray(tokens)]
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        attention = layer + "self_attn."

        def heads_of(part, n):
            y = (normed @ w[attention + f"{part}_proj.weight"].T).reshape(count, n, d)
            norm = w.get(attention + f"{part}_norm.weight") if knobs.head_norms else None
            if part == "v":
                return y
            if norm is None:
                return rotate(y)
            return rms_norm(rotate(y), norm, eps) if knobs.norm_after_rope else rotate(rms_norm(y, norm, eps))

        normed = rms_norm(x, w[layer + "input_layernorm.weight"], eps)
        q, k, v = heads_of("q", heads), heads_of("k", kv_heads)[:, key_head], heads_of("v", kv_heads)[:, key_head]
        scores = np.where(hidden[None], np.einsum("thd,shd->hts", q, k) / math.sqrt(d), -np.inf)
        p = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = np.einsum("hts,shd->thd", p / p.sum(axis=-1, keepdims=True), v).reshape(count, heads * d)
        x = x + mixed @ w[attention + "o_proj.weight"].T
        x = x + swiglu(rms_norm(x, w[layer + "post_attention_layernorm.weight"], eps), w, layer + "mlp.")
    head = w.get("lm_head.weight", w["model.embed_tokens.weight"])
    return rms_norm(x, w["model.norm.weight"], eps) @ head.T, math.inf
