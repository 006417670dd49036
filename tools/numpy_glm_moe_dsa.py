#!/usr/bin/env python3
"""The families with latent attention (MLA) in plain NumPy, float64: the formulas, one after another, with absorbed MLA.

GLM-5.x (glm_moe_dsa), DeepSeek-V3 (deepseek_v3, kimi_k2: no indexer, groups of experts, YaRN) and V3.2 (deepseek_v32: those and an indexer
on every layer, whose RoPE rotates halves).

It is documentation that runs, and a debugging aid: --dump writes every named intermediate of every layer as .npy.
It knows nothing of caches, batches, rounding or torch (torch only reads the weights of a Hugging Face folder).

    numpy_glm_moe_dsa.py tests/golden/glm_moe_dsa/sharing --dump /tmp/sharing      weights from the golden's seed
    numpy_glm_moe_dsa.py MODEL_DIR --tokens 3,17,5 --dump /tmp/out                 weights from its safetensors

Shapes: T tokens, V vocabulary, h hidden, H heads, Q/C ranks of query/key-value latents, N/R/D nope, rope, value sizes of
a head, J index heads of I, E experts, K of them per token.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import golden_weights
import numpy_rope
from comparison import relative_error


@dataclass(frozen=True)
class Knobs:
    """Choices that the families fix; None: as the family and its config say. Other values are wrong variants, which a golden must tell apart."""

    mla_norm_eps: float = 1e-6  # of q_a_layernorm and kv_a_layernorm, whatever rms_norm_eps says
    indexer_relu: bool = True
    indexer_rope_pairs: bool | None = None
    mla_rope_pairs: bool | None = None
    bias_in_router_weights: bool = False
    rope_scaling: bool = True
    softmax_factor: bool = True  # YaRN's square on the scale of attention
    groups: bool = True  # experts are chosen among the best groups alone
    left_out: float = -np.inf  # the score of experts in the other groups


def rms_norm(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def layer_norm(x, weight, bias, eps):
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + eps) * weight + bias


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def swiglu(x, weights, prefix):
    gate, up = x @ weights[prefix + "gate_proj.weight"].T, x @ weights[prefix + "up_proj.weight"].T
    return (gate * sigmoid(gate) * up) @ weights[prefix + "down_proj.weight"].T


def select(scores, k):
    """Row-wise top k: score descending, lower index first, -inf excluded; and the smallest chosen-to-rejected gap."""
    order = np.argsort(-scores, axis=-1, kind="stable")
    ranked = np.take_along_axis(scores, order, axis=-1)
    chosen = np.zeros(scores.shape, bool)
    np.put_along_axis(chosen, order[:, :k], True, axis=-1)
    chosen &= scores > -np.inf
    contested = ranked[:, k] > -np.inf if k < scores.shape[1] else np.zeros(len(scores), bool)
    gap = np.min(ranked[contested, k - 1] - ranked[contested, k]) if contested.any() else np.inf
    return chosen, gap


def forward(config, weights, tokens, knobs=Knobs(), record=lambda name, value: None):
    """Logits [T, V] of one sequence and the smallest gap between a selected and a rejected score (experts, keys)."""
    w = {name: np.asarray(value, np.float64) for name, value in weights.items()}
    heads, kv_rank, eps = config["num_attention_heads"], config["kv_lora_rank"], config["rms_norm_eps"]
    nope, rope_dim, v = (config[k] for k in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    index_heads, index_dim = config.get("index_n_heads"), config.get("index_head_dim")
    kind, count = config["model_type"], len(tokens)
    inverse, factor = numpy_rope.inverse_frequencies(config, rope_dim, knobs.rope_scaling)
    by_config = config.get("rope_interleave", True) if kind in ("deepseek_v3", "kimi_k2") else True
    mla_pairs = by_config if knobs.mla_rope_pairs is None else knobs.mla_rope_pairs
    indexer_pairs = kind == "glm_moe_dsa" if knobs.indexer_rope_pairs is None else knobs.indexer_rope_pairs
    scale = (nope + rope_dim) ** -0.5 * (numpy_rope.softmax_factor(config) if knobs.softmax_factor else 1.0)
    visible = np.tril(np.ones((count, count), bool))
    smallest_gap, selected = np.inf, visible

    def turn(x_THR, pairs):
        return numpy_rope.rotate(x_THR, inverse, factor, pairs)

    x = w["model.embed_tokens.weight"][np.asarray(tokens)]
    record("embedding", x)

    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        attention, indexer = layer + "self_attn.", layer + "self_attn.indexer."
        note = lambda **values: [record(f"layer{i:02d}.{name}", value) for name, value in values.items()]
        x_norm = rms_norm(x, w[layer + "input_layernorm.weight"], eps)
        note(x_norm=x_norm)
        # Query latent and query heads [T, H, N + R]; the last R dimensions carry the position.
        if attention + "q_proj.weight" in w:  # without a latent
            qr, q = x_norm, x_norm @ w[attention + "q_proj.weight"].T
        else:
            qr = rms_norm(x_norm @ w[attention + "q_a_proj.weight"].T, w[attention + "q_a_layernorm.weight"], knobs.mla_norm_eps)
            q = qr @ w[attention + "q_b_proj.weight"].T
        q = q.reshape(count, heads, nope + rope_dim)
        q[..., nope:] = turn(q[..., nope:], mla_pairs)
        note(qr=qr, q=q)
        # Key-value latent [T, C] and the one rope key [T, R] that all heads share: this pair is what a cache holds.
        kv_a = x_norm @ w[attention + "kv_a_proj_with_mqa.weight"].T
        c = rms_norm(kv_a[:, :kv_rank], w[attention + "kv_a_layernorm.weight"], knobs.mla_norm_eps)
        k_pe = turn(kv_a[:, None, kv_rank:], mla_pairs)[:, 0]
        note(c=c, k_pe=k_pe)
        # Indexer: which keys this layer, and the shared layers after it, attend to. No gradient flows here.
        if indexer + "wk.weight" in w:
            index_q = (qr @ w[indexer + "wq_b.weight"].T).reshape(count, index_heads, index_dim)
            index_q[..., :rope_dim] = turn(index_q[..., :rope_dim], indexer_pairs)
            index_k = layer_norm(x_norm @ w[indexer + "wk.weight"].T, w[indexer + "k_norm.weight"], w[indexer + "k_norm.bias"], 1e-6)
            index_k[:, :rope_dim] = turn(index_k[:, None, :rope_dim], indexer_pairs)[:, 0]
            head_scores = np.einsum("tji,si->tjs", index_q, index_k) * index_dim**-0.5
            head_scores = np.maximum(head_scores, 0) if knobs.indexer_relu else head_scores
            head_weights = x_norm @ w[indexer + "weights_proj.weight"].T * index_heads**-0.5
            index_scores = np.where(visible, np.einsum("tj,tjs->ts", head_weights, head_scores), -np.inf)
            selected, gap = select(index_scores, config["index_topk"])
            smallest_gap = min(smallest_gap, gap)
            note(index_q=index_q, index_k=index_k, index_head_weights=head_weights, index_scores=index_scores)
        note(selected=selected)

        # Absorbed MLA: query [W_uk^T q_nope | q_pe] against key [c | k_pe]; the value is c, W_uv comes afterwards.
        kv_b = w[attention + "kv_b_proj.weight"].reshape(heads, nope + v, kv_rank)
        w_uk, w_uv = kv_b[:, :nope], kv_b[:, nope:]
        q_absorbed = np.concatenate([np.einsum("thn,hnc->thc", q[..., :nope], w_uk), q[..., nope:]], axis=-1)
        scores = np.einsum("thk,sk->ths", q_absorbed, np.concatenate([c, k_pe], axis=-1)) * scale
        scores = np.where(selected[:, None], scores, -np.inf)
        probabilities = np.exp(scores - scores.max(axis=-1, keepdims=True))
        probabilities /= probabilities.sum(axis=-1, keepdims=True)
        latent = np.einsum("ths,sc->thc", probabilities, c)
        values = np.einsum("thc,hvc->thv", latent, w_uv).reshape(count, heads * v)
        attention_output = values @ w[attention + "o_proj.weight"].T
        x = x + attention_output
        note(q_absorbed=q_absorbed, attention_latent=latent, attention_values=values, attention_output=attention_output)

        x_norm = rms_norm(x, w[layer + "post_attention_layernorm.weight"], eps)
        note(mlp_x_norm=x_norm)
        if layer + "mlp.gate.weight" not in w:
            mlp_output, gap = swiglu(x_norm, w, layer + "mlp."), np.inf
        else:
            mlp_output, gap = mixture(config, w, layer + "mlp.", x_norm, knobs, note)
        smallest_gap = min(smallest_gap, gap)
        x = x + mlp_output
        note(mlp_output=mlp_output, output=x)

    x = rms_norm(x, w["model.norm.weight"], eps)
    logits = x @ w["lm_head.weight"].T
    record("final_norm", x)
    record("logits", logits)
    return logits, smallest_gap


def mixture(config, w, mlp, x_norm, knobs, note):
    """Experts chosen by score + correction bias, weighted by the score alone; the shared expert is added unscaled."""
    scores = sigmoid(x_norm @ w[mlp + "gate.weight"].T)
    choice = scores + w[mlp + "gate.e_score_correction_bias"]
    groups, group_gap = config.get("n_group", 1) if knobs.groups else 1, np.inf
    kept = choice
    if groups > 1:  # a group counts its two largest choices
        by_group = choice.reshape(len(choice), groups, -1)
        stay, group_gap = select(np.sort(by_group, axis=-1)[..., -2:].sum(axis=-1), config["topk_group"])
        kept = np.where(stay[..., None], by_group, knobs.left_out).reshape(choice.shape)
    chosen, gap = select(kept, config["num_experts_per_tok"])
    gap = min(gap, group_gap)
    weight = np.where(chosen, choice if knobs.bias_in_router_weights else scores, 0)
    if config["norm_topk_prob"]:
        weight = weight / (weight.sum(axis=-1, keepdims=True) + 1e-20)
    weight = weight * config["routed_scaling_factor"]
    routed = sum(weight[:, e : e + 1] * swiglu(x_norm, w, f"{mlp}experts.{e}.") for e in range(config["n_routed_experts"]))
    ids = np.nonzero(chosen)[1].reshape(len(x_norm), -1).astype(np.int32)  # ascending
    router_weights = np.take_along_axis(weight, ids, axis=-1)
    note(router_scores=scores, router_ids=ids, router_weights=router_weights, routed_output=routed)
    return routed + swiglu(x_norm, w, mlp + "shared_experts."), gap


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a golden, or a Hugging Face folder")
    parser.add_argument("--tokens", help="comma-separated ids (a golden has its own)")
    parser.add_argument("--dump", metavar="DIR", type=Path, help="print every intermediate and save it as DIR/NAME.npy")
    args = parser.parse_args()
    from safetensors import safe_open
    from safetensors.torch import load_file  # NumPy has no bf16

    config = json.loads((args.folder / "config.json").read_text())
    tensors = {k: t.float().numpy() for file in args.folder.glob("*.safetensors") for k, t in load_file(file).items()}
    weights = tensors
    if "tokens" in tensors:
        with safe_open(args.folder / "golden.safetensors", "np") as file:
            weights = golden_weights.weights(config, int(file.metadata()["seed"]))
    tokens = list(map(int, args.tokens.split(","))) if args.tokens else tensors["tokens"].astype(np.int32)

    def save(name, value):
        largest = np.abs(value[np.isfinite(value)]).max()
        print(f"{name:32} {str(value.shape):16} {value.dtype} first {value.flat[0]:.9g} largest {largest:.9g}")
        np.save(args.dump / f"{name}.npy", value)

    if args.dump:
        args.dump.mkdir(parents=True, exist_ok=True)
    logits, gap = forward(config, weights, tokens, **({"record": save} if args.dump else {}))
    print(f"smallest gap between a selected and a rejected score: {gap:.3g}")
    if "logits" in tensors and not args.tokens:
        error = relative_error(logits, tensors["logits"])
        print(f"logits against the golden: relative error {error:.3g}")


if __name__ == "__main__":
    main()
