#!/usr/bin/env python3
"""Multi-token prediction of the families with latent attention (MLA) in plain NumPy, float64: one layer, several depths.

Depth 1 has a row for each position p >= 1: it joins Emb(t_p) with the trunk's h_(p-1), selects keys among the rows up to its own and attends to
them. Depth k >= 2 joins Emb(t_(p+k-1)) with the output of depth k - 1 in that row, rotates its query by position p + k - 1, and attends to the keys
that depth 1 selected, with depth 1's keys and values. Where config.json has `index_share_for_mtp_iteration` false, each depth selects among and
attends to its own rows, whose keys are rotated as its queries are. Where it has `normed_state_for_mtp_iteration` false, the output of depth k - 1 is
taken before its norm. Here the tokens of all depths are those of the text.

Shapes: T tokens, R = T - 1 rows of depth 1, those of depth k the first T - k of them; V vocabulary, h hidden; the rest as numpy_glm_moe_dsa.py.
"""

from dataclasses import dataclass

import numpy as np

import numpy_glm_moe_dsa as trunk_of
import numpy_rope
from numpy_glm_moe_dsa import layer_norm, mixture, rms_norm, select


@dataclass(frozen=True)
class Knobs:
    """Wrong variants, which a golden must be able to tell apart; `other_state` is the right one of another engine."""

    hidden_first: bool = False  # the order of what eh_proj joins
    other_keys: bool = False  # each depth selects and attends among its own rows where they are to share depth 1's, and the other way round
    trunk_selection: bool = False  # depth 1 attends to what the trunk's last indexer chose
    rope_stays: bool = False  # RoPE of later depths by the position of their row
    zero_seen: bool = False  # position 0 has a row, which joins Emb(t_0) with zeros
    other_state: bool = False  # depth k + 1 is given y, not its norm, where it is to be given the norm, and the other way round
    own_token_again: bool = False  # later depths join the row's own token


def shares_keys(config):
    return config.get("index_share_for_mtp_iteration", True)


def normed_state(config):
    return config.get("normed_state_for_mtp_iteration", True)


def depths(config, weights, tokens, count, knobs=Knobs(), selections=None):
    """[logits [T - k, V] of depth k = 1 .. count], the trunk's logits [T, V], the smallest gap between a chosen and a rejected score. `selections`:
    a list that gets the mask of the keys of each depth, [rows, rows]."""
    w = {name: np.asarray(value, np.float64) for name, value in weights.items()}
    seen = {}
    logits, gap = trunk_of.forward(config, w, tokens, record=seen.__setitem__)
    hidden, eps, layer = seen["final_norm"], config["rms_norm_eps"], f"model.layers.{config['num_hidden_layers']}."
    embedded = w["model.embed_tokens.weight"][np.asarray(tokens)]
    first = 0 if knobs.zero_seen else 1
    rows = np.arange(first, len(tokens))  # positions
    carried = np.concatenate([np.zeros((1, hidden.shape[1])), hidden])[rows]
    chosen_by_trunk = seen[f"layer{config['num_hidden_layers'] - 1:02d}.selected"]
    result, keys = [], None
    for depth in range(1, count + 1):
        rows, carried = rows[: len(tokens) - depth + 1 - first], carried[: len(tokens) - depth + 1 - first]
        of_tokens = embedded[rows if knobs.own_token_again else rows + depth - 1]
        parts = [rms_norm(of_tokens, w[layer + "enorm.weight"], eps), rms_norm(carried, w[layer + "hnorm.weight"], eps)]
        u = np.concatenate(parts[::-1] if knobs.hidden_first else parts, axis=-1) @ w[layer + "eh_proj.weight"].T
        x_norm = rms_norm(u, w[layer + "input_layernorm.weight"], eps)
        turned = rows if knobs.rope_stays else rows + depth - 1
        qr, q = queries(config, w, layer + "self_attn.", x_norm, turned)
        if keys is None or shares_keys(config) == knobs.other_keys:
            keys, near = keys_of(config, w, layer + "self_attn.", x_norm, qr, turned)
            gap = min(gap, near)
            if knobs.trunk_selection:
                keys["selected"] = chosen_by_trunk[first:, first:] | np.eye(len(rows), dtype=bool)
        if selections is not None:
            selections.append(keys["selected"])
        after = u + attend(config, w, layer + "self_attn.", q, keys)
        normed = rms_norm(after, w[layer + "post_attention_layernorm.weight"], eps)
        output, near = mixture(config, w, layer + "mlp.", normed, trunk_of.Knobs(), lambda **values: None)
        gap = min(gap, near)
        y = after + output
        n = rms_norm(y, w[layer + "shared_head.norm.weight"], eps)
        carried = n if normed_state(config) != knobs.other_state else y
        result.append((n @ w["lm_head.weight"].T)[1 - first :])
    return result, logits, gap


def guessed(config, weights, tokens, position, count):
    """[logits [V] of depth k = 1 .. count] of a draft from the row of `position`, by a layer whose depths share nothing: depth k's row is at
    position + k - 1, and sees depth 1's rows up to `position` and those of the depths before it."""
    w = {name: np.asarray(value, np.float64) for name, value in weights.items()}
    seen = {}
    trunk_of.forward(config, w, tokens, record=seen.__setitem__)
    eps, layer = config["rms_norm_eps"], f"model.layers.{config['num_hidden_layers']}."
    embedded, hidden = w["model.embed_tokens.weight"][np.asarray(tokens)], seen["final_norm"]
    rows = np.arange(1, position + 1)
    carried, result = hidden[rows - 1], []
    us = np.zeros((0, hidden.shape[1]))
    for _ in range(count):
        parts = [rms_norm(embedded[rows], w[layer + "enorm.weight"], eps), rms_norm(carried, w[layer + "hnorm.weight"], eps)]
        us = np.concatenate([us, np.concatenate(parts, axis=-1) @ w[layer + "eh_proj.weight"].T])
        x_norm = rms_norm(us, w[layer + "input_layernorm.weight"], eps)
        qr, q = queries(config, w, layer + "self_attn.", x_norm, np.arange(1, len(us) + 1))
        keys, _ = keys_of(config, w, layer + "self_attn.", x_norm, qr, np.arange(1, len(us) + 1))
        after = (us + attend(config, w, layer + "self_attn.", q, keys))[-1:]
        normed = rms_norm(after, w[layer + "post_attention_layernorm.weight"], eps)
        y = after + mixture(config, w, layer + "mlp.", normed, trunk_of.Knobs(), lambda **values: None)[0]
        n = rms_norm(y, w[layer + "shared_head.norm.weight"], eps)
        carried = n if normed_state(config) else y
        result.append((n @ w["lm_head.weight"].T)[0])
        rows = rows[-1:] + 1
    return result


def turn(config, x_THR, pairs, positions):
    inverse, factor = numpy_rope.inverse_frequencies(config, config["qk_rope_head_dim"])
    return numpy_rope.rotate(x_THR, inverse, factor, pairs, positions)


def mla_pairs(config):
    return config.get("rope_interleave", True) if config["model_type"] in ("deepseek_v3", "kimi_k2") else True


def queries(config, w, attention, x_norm, positions):
    """The query's latent, and the heads' queries [R, H, nope + rope] after RoPE."""
    heads, nope, rope_dim = (config[k] for k in ("num_attention_heads", "qk_nope_head_dim", "qk_rope_head_dim"))
    if attention + "q_proj.weight" in w:
        qr, q = x_norm, x_norm @ w[attention + "q_proj.weight"].T
    else:
        qr = rms_norm(x_norm @ w[attention + "q_a_proj.weight"].T, w[attention + "q_a_layernorm.weight"], 1e-6)
        q = qr @ w[attention + "q_b_proj.weight"].T
    q = q.reshape(len(x_norm), heads, nope + rope_dim)
    q[..., nope:] = turn(config, q[..., nope:], mla_pairs(config), positions)
    return qr, q


def keys_of(config, w, attention, x_norm, qr, positions):
    """The keys of the rows: latents, rope keys, which of them each row selects, and the smallest gap of the selection."""
    kv_rank, rope_dim, indexer = config["kv_lora_rank"], config["qk_rope_head_dim"], attention + "indexer."
    kv_a = x_norm @ w[attention + "kv_a_proj_with_mqa.weight"].T
    c = rms_norm(kv_a[:, :kv_rank], w[attention + "kv_a_layernorm.weight"], 1e-6)
    k_pe = turn(config, kv_a[:, None, kv_rank:], mla_pairs(config), positions)[:, 0]
    visible = np.tril(np.ones((len(x_norm), len(x_norm)), bool))
    if indexer + "wk.weight" not in w:
        return dict(c=c, k_pe=k_pe, selected=visible), np.inf
    heads, size, pairs = config["index_n_heads"], config["index_head_dim"], config["model_type"] == "glm_moe_dsa"
    q = (qr @ w[indexer + "wq_b.weight"].T).reshape(len(x_norm), heads, size)
    q[..., :rope_dim] = turn(config, q[..., :rope_dim], pairs, positions)
    k = layer_norm(x_norm @ w[indexer + "wk.weight"].T, w[indexer + "k_norm.weight"], w[indexer + "k_norm.bias"], 1e-6)
    k[:, :rope_dim] = turn(config, k[:, None, :rope_dim], pairs, positions)[:, 0]
    scores = np.maximum(np.einsum("tji,si->tjs", q, k) * size**-0.5, 0)
    scores = np.einsum("tj,tjs->ts", x_norm @ w[indexer + "weights_proj.weight"].T * heads**-0.5, scores)
    selected, gap = select(np.where(visible, scores, -np.inf), config["index_topk"])
    return dict(c=c, k_pe=k_pe, selected=selected), gap


def attend(config, w, attention, q, keys):
    """The attention's output of as many first rows as q has, over depth 1's keys."""
    heads, nope, v = (config[k] for k in ("num_attention_heads", "qk_nope_head_dim", "v_head_dim"))
    scale = (nope + config["qk_rope_head_dim"]) ** -0.5 * numpy_rope.softmax_factor(config)
    kv_b = w[attention + "kv_b_proj.weight"].reshape(heads, nope + v, config["kv_lora_rank"])
    k = np.concatenate([np.einsum("sc,hnc->shn", keys["c"], kv_b[:, :nope]), np.repeat(keys["k_pe"][:, None], heads, axis=1)], axis=-1)
    scores = np.where(keys["selected"][: len(q), None], np.einsum("thk,shk->ths", q, k) * scale, -np.inf)
    probabilities = np.exp(scores - scores.max(axis=-1, keepdims=True))
    probabilities /= probabilities.sum(axis=-1, keepdims=True)
    values = np.einsum("ths,shv->thv", probabilities, np.einsum("sc,hvc->shv", keys["c"], kv_b[:, nope:]))
    return values.reshape(len(q), heads * v) @ w[attention + "o_proj.weight"].T
