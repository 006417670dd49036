#!/usr/bin/env python3
"""The families with grouped-query attention in plain NumPy, float64: the formulas, one after another.

It is documentation that runs: no caches, batches, rounding or torch. The families are one model with a few differences: Qwen2 has biases of q, k and
v; Qwen3 norms each head of q and k before RoPE, MiniMax-M2 all heads of a row together; Mistral may see only a window of keys; Qwen3-MoE and
MiniMax-M2 have experts. gpt-oss has biases everywhere, sinks, a window on some layers, and experts with a clamped SwiGLU. Shapes: T tokens, h hidden, H query heads, K key and value heads, D head size, E experts.
"""

import math
from dataclasses import dataclass

import numpy as np

import numpy_rope
from numpy_glm_moe_dsa import rms_norm, select, sigmoid, swiglu


@dataclass(frozen=True)
class Knobs:
    """Choices that the families fix. Other values are wrong variants, which a golden must be able to tell apart."""

    rope_pairs: bool = False  # RoPE rotates neighbouring columns together, instead of the two halves
    rope_scaling: bool = True
    attention_factor: bool = True  # YaRN's, on cosines and sines
    whole_heads_turn: bool = False  # RoPE on whole heads, where it should be on a part of each
    heads_interleaved: bool = False  # query head i uses key head i mod K, instead of i div (H / K)
    head_norms: bool = True
    norm_after_rope: bool = False
    norm_by_head: bool = False  # each head by itself, where one norm of all heads should be
    biases: bool = True
    window_change: int = 0  # keys added to the window; None: there is no window
    renormalise: bool = True  # False: the opposite of what the config says
    softmax_router: bool = True  # False: the other kind of scores than the family's
    bias_in_router_weights: bool = False
    sinks: bool = True
    router_bias: bool = True
    expert_biases: bool = True
    clamp: bool = True
    gain: bool = True  # of the gate inside the sigmoid
    interleaved: bool = True  # gate and up columns in turn; else the first half and the second
    windows_swapped: bool = False  # the other layers have it


def experts_of(config, w, prefix, x, knobs):
    """(the weighted sum of the chosen experts, the smallest gap between a chosen and a rejected score)"""
    gate, up, down = ("w1", "w3", "w2") if config["model_type"] == "minimax_m2" else ("gate_proj", "up_proj", "down_proj")
    softmax = (config["model_type"] == "qwen3_moe") == knobs.softmax_router
    bias = w.get(prefix + "e_score_correction_bias", 0.0)
    logits = x @ w[prefix + "gate.weight"].T
    if softmax:
        scores = np.exp(logits - logits.max(axis=-1, keepdims=True))
        scores, choice = scores / scores.sum(axis=-1, keepdims=True), logits + bias
    else:
        scores = sigmoid(logits)
        choice = scores + bias
    chosen, gap = select(choice, config["num_experts_per_tok"])
    weight = np.where(chosen, choice if knobs.bias_in_router_weights else scores, 0)
    if config.get("norm_topk_prob", True) == knobs.renormalise:
        weight = weight / weight.sum(axis=-1, keepdims=True)
    total = 0
    for e in range(logits.shape[1]):
        of = f"{prefix}experts.{e}."
        a, b = x @ w[f"{of}{gate}.weight"].T, x @ w[f"{of}{up}.weight"].T
        total = total + weight[:, e : e + 1] * ((a * sigmoid(a) * b) @ w[f"{of}{down}.weight"].T)
    return total, gap


def interleaved_experts(config, w, prefix, x, knobs):
    """The same for gpt-oss: biases, gate and up columns in turn, both clamped."""
    logits = x @ w[prefix + "router.weight"].T + (w[prefix + "router.bias"] if knobs.router_bias else 0.0)
    chosen, gap = select(logits, config["num_experts_per_tok"])
    odds = np.exp(logits - logits.max(axis=-1, keepdims=True))
    weight = np.where(chosen, odds, 0.0)
    weight = weight / (weight if knobs.renormalise else odds).sum(axis=-1, keepdims=True)
    limit, gain = config["swiglu_limit"], config["swiglu_alpha"] if knobs.gain else 1.0
    width, biases = config["intermediate_size"], 1.0 if knobs.expert_biases else 0.0
    total = 0
    for e in range(logits.shape[1]):
        both = x @ w[prefix + "experts.gate_up_proj"][e] + biases * w[prefix + "experts.gate_up_proj_bias"][e]
        gate, up = (both[:, ::2], both[:, 1::2]) if knobs.interleaved else (both[:, :width], both[:, width:])
        if knobs.clamp:
            gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
        y = ((up + 1) * gate * sigmoid(gain * gate)) @ w[prefix + "experts.down_proj"][e] + biases * w[prefix + "experts.down_proj_bias"][e]
        total = total + weight[:, e : e + 1] * y
    return total, gap


def forward(config, weights, tokens, knobs=Knobs()):
    """(logits float64 [T, V], the smallest gap between a selected and a rejected score; infinity where nothing is selected)"""
    w = {name: np.asarray(value, np.float64) for name, value in weights.items()}
    heads, kv_heads, eps = (config[k] for k in ("num_attention_heads", "num_key_value_heads", "rms_norm_eps"))
    d = config.get("head_dim") or config["hidden_size"] // heads
    part = config["rope_parameters"].get("partial_rotary_factor", 1.0)
    rotary = d if knobs.whole_heads_turn else int(d * part)
    count = len(tokens)
    inverse, factor = numpy_rope.inverse_frequencies(config, rotary, knobs.rope_scaling)
    factor = factor if knobs.attention_factor else 1.0

    def rotate(x_THD):
        return np.concatenate([numpy_rope.rotate(x_THD[..., :rotary], inverse, factor, knobs.rope_pairs), x_THD[..., rotary:]], axis=-1)

    key_head = np.arange(heads) % kv_heads if knobs.heads_interleaved else np.arange(heads) // (heads // kv_heads)
    causal = np.tril(np.ones((count, count), bool))
    window = config.get("sliding_window") if config["model_type"] in ("mistral", "gpt_oss") else None

    def visible_in(layer):
        kinds = config.get("layer_types") if config["model_type"] == "gpt_oss" else None
        windowed = kinds is None or (kinds[layer] == "sliding_attention") != knobs.windows_swapped
        if window is None or knobs.window_change is None or not windowed:
            return causal
        return causal & (np.arange(count)[:, None] - np.arange(count) < window + knobs.window_change)

    smallest_gap = math.inf
    x = w["model.embed_tokens.weight"][np.asarray(tokens)]
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        attention = layer + "self_attn."

        def heads_of(part, n):
            y = normed @ w[attention + f"{part}_proj.weight"].T
            if knobs.biases:
                y = y + w.get(attention + f"{part}_proj.bias", 0.0)
            norm = w.get(attention + f"{part}_norm.weight") if knobs.head_norms else None
            if norm is not None and len(norm) == n * d and not knobs.norm_by_head:  # of all heads together
                return rotate(rms_norm(y, norm, eps).reshape(count, n, d))
            y = y.reshape(count, n, d)
            if part == "v":
                return y
            if norm is None:
                return rotate(y)
            norm = norm.reshape(-1, d)
            return rms_norm(rotate(y), norm, eps) if knobs.norm_after_rope else rotate(rms_norm(y, norm, eps))

        normed = rms_norm(x, w[layer + "input_layernorm.weight"], eps)
        q, k, v = heads_of("q", heads), heads_of("k", kv_heads)[:, key_head], heads_of("v", kv_heads)[:, key_head]
        scores = np.where(visible_in(i)[None], np.einsum("thd,shd->hts", q, k) / math.sqrt(d), -np.inf)
        largest = scores.max(axis=-1, keepdims=True)
        p = np.exp(scores - largest)
        total = p.sum(axis=-1, keepdims=True)
        if knobs.sinks and attention + "sinks" in w:
            total = total + np.exp(w[attention + "sinks"][:, None, None] - largest)
        mixed = np.einsum("hts,shd->thd", p / total, v).reshape(count, heads * d)
        x = x + mixed @ w[attention + "o_proj.weight"].T + (w.get(attention + "o_proj.bias", 0.0) if knobs.biases else 0.0)
        normed = rms_norm(x, w[layer + "post_attention_layernorm.weight"], eps)
        routed = next((p for p in (layer + "mlp.", layer + "block_sparse_moe.") if p + "gate.weight" in w), None)
        if layer + "mlp.router.weight" in w:
            y, gap = interleaved_experts(config, w, layer + "mlp.", normed, knobs)
            x, smallest_gap = x + y, min(smallest_gap, gap)
        elif routed is None:
            x = x + swiglu(normed, w, layer + "mlp.")
        else:
            y, gap = experts_of(config, w, routed, normed, knobs)
            x, smallest_gap = x + y, min(smallest_gap, gap)
    head = w.get("lm_head.weight", w["model.embed_tokens.weight"])
    return rms_norm(x, w["model.norm.weight"], eps) @ head.T, smallest_gap
