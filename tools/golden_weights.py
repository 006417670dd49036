#!/usr/bin/env python3
"""Random weights that Python and C++ regenerate bit for bit, so that goldens need not carry them.

Definition. For the Hugging Face tensor `name`, its row-major element `i` and a 64-bit `seed`:

    key     = (seed mod 2^32, seed div 2^32)
    counter = (i div 4, w0, w1, 0)      w0, w1: first two little-endian uint32 of SHA-256(name in UTF-8)
    word    = Philox4x32-10(counter, key)[i mod 4]
    u       = float32((word >> 8) * 2^-23 - 1)                  exact, in [-1, 1)
    value   = float32(offset + float32(u * amplitude))          one rounding for the product, one for the sum

Everything after `u` is float32; no fused multiply-add. Offset and amplitude depend on the name alone:

    name                                              offset  amplitude
    ends in norm.weight (layernorm, indexer k_norm)   1       0.3
    ends in .sinks                                    0       3.0
    ends in .bias or _bias                            0       0.3
    model.embed_tokens.weight                         0       1.0
    any other matrix [out, in]                        0       float32(2.0 / sqrt(float64(in)))
    experts [count, in, out]                          0       the same

A matrix thus has standard deviation 1.155 / sqrt(in): real spread, which the default initialisation (0.02) lacks.
Source of Philox: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011); the known answers below
are those of its Random123 library.

Use: golden_weights.tensor(7, "model.norm.weight", (48,)), or `golden_weights.py SEED NAME DIM...` to print a tensor.
"""

import hashlib
import math
import sys

import numpy as np

MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
KEY_STEPS = 0x9E3779B9, 0xBB67AE85
MASK = np.uint64(0xFFFFFFFF)
SHIFT = np.uint64(32)

KNOWN_ANSWERS = [  # counter, key, output
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((MASK,) * 4, (MASK,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def philox4x32_10(counters, key):
    """Ten rounds. counters: four uint64 arrays of one shape holding 32-bit values; returns [..., 4] uint32."""
    c0, c1, c2, c3 = counters
    k0, k1 = int(key[0]), int(key[1])
    for _ in range(10):
        p0, p1 = MULTIPLIERS[0] * c0, MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (p1 >> SHIFT) ^ c1 ^ np.uint64(k0), p1 & MASK, (p0 >> SHIFT) ^ c3 ^ np.uint64(k1), p0 & MASK
        k0, k1 = (k0 + KEY_STEPS[0]) & 0xFFFFFFFF, (k1 + KEY_STEPS[1]) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=-1).astype(np.uint32)


def words(seed, name, count):
    """The first `count` random words of a name: uint32 [count]."""
    blocks = np.arange((count + 3) // 4, dtype=np.uint64)
    if len(blocks) > 2**32:
        raise ValueError(f"{name}: {count} elements exceed the 2^34 that one counter reaches")
    digest = hashlib.sha256(name.encode("utf-8")).digest()
    w0, w1 = (np.full_like(blocks, int.from_bytes(digest[at : at + 4], "little")) for at in (0, 4))
    key = seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF
    return philox4x32_10((blocks, w0, w1, np.zeros_like(blocks)), key).reshape(-1)[:count]


def offset_and_amplitude(name, shape):
    if name.endswith("norm.weight"):
        return np.float32(1), np.float32(0.3)
    if name.endswith(".sinks"):
        return np.float32(0), np.float32(3.0)
    if name.endswith((".bias", "_bias")):
        return np.float32(0), np.float32(0.3)
    if name == "model.embed_tokens.weight":
        return np.float32(0), np.float32(1)
    if len(shape) not in (2, 3):
        raise ValueError(f"{name}: no rule for a tensor of shape {tuple(shape)}; a matrix [out, in] or experts [count, in, out] were expected")
    return np.float32(0), np.float32(2.0 / math.sqrt(float(shape[1])))


def tensor(seed, name, shape):
    """The tensor `name` of this seed: float32, row-major."""
    offset, amplitude = offset_and_amplitude(name, shape)
    top_bits = (words(seed, name, math.prod(shape)) >> np.uint32(8)).astype(np.float64)
    u = (top_bits * 2.0**-23 - 1.0).astype(np.float32)
    return (offset + u * amplitude).reshape(shape)


def tokens(seed, count, vocab_size):
    """Token ids of a golden: words of the name `tokens`, modulo the vocabulary. int32 [count]."""
    return (words(seed, "tokens", count) % np.uint32(vocab_size)).astype(np.int32)


def add_mlp(shapes, prefix, h, inner, names=("gate_proj", "up_proj", "down_proj")):
    gate, up, down = names
    shapes[f"{prefix}{gate}.weight"] = shapes[f"{prefix}{up}.weight"] = (inner, h)
    shapes[f"{prefix}{down}.weight"] = (h, inner)


def latent_manifest(config):
    """Hugging Face name -> shape of GLM-5.x, DeepSeek-V3 and V3.2, as their files hold them. config: the parsed config.json as transformers writes it."""
    h, layers = config["hidden_size"], config["num_hidden_layers"]
    has_indexer = config["model_type"] in ("glm_moe_dsa", "deepseek_v32")
    owners = config.get("indexer_types") or ["full" if has_indexer else "none"] * layers
    dense = config.get("first_k_dense_replace", 0)
    kinds = config.get("mlp_layer_types") or ["dense" if i < dense else "sparse" for i in range(layers)]
    shapes = {"model.embed_tokens.weight": (config["vocab_size"], h)}
    for i in range(layers):
        layer = f"model.layers.{i}."
        add_latent_layer(shapes, config, layer, owners[i] == "full", kinds[i] == "dense")
    shapes["model.norm.weight"] = (h,)
    shapes["lm_head.weight"] = (config["vocab_size"], h)
    return shapes


def mtp_manifest(config):
    """The same for the layer of multi-token prediction, which the trunk's manifest lacks: always with experts, with the family's indexer if any."""
    h, layer = config["hidden_size"], f"model.layers.{config['num_hidden_layers']}."
    shapes = {layer + name: (h,) for name in ("enorm.weight", "hnorm.weight", "shared_head.norm.weight")}
    shapes[layer + "eh_proj.weight"] = (h, 2 * h)
    add_latent_layer(shapes, config, layer, config["model_type"] in ("glm_moe_dsa", "deepseek_v32"), False)
    return shapes


def mtp_weights(config, seed):
    return {name: tensor(seed, name, shape) for name, shape in mtp_manifest(config).items()}


def add_latent_layer(shapes, config, layer, indexer, dense):
    h, heads, q_rank, kv_rank = (config[k] for k in ("hidden_size", "num_attention_heads", "q_lora_rank", "kv_lora_rank"))
    nope, rope, v = (config[k] for k in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    attention = layer + "self_attn."
    shapes[layer + "input_layernorm.weight"] = shapes[layer + "post_attention_layernorm.weight"] = (h,)
    if q_rank is None:
        shapes[attention + "q_proj.weight"] = (heads * (nope + rope), h)
    else:
        shapes[attention + "q_a_proj.weight"] = (q_rank, h)
        shapes[attention + "q_a_layernorm.weight"] = (q_rank,)
        shapes[attention + "q_b_proj.weight"] = (heads * (nope + rope), q_rank)
    shapes[attention + "kv_a_proj_with_mqa.weight"] = (kv_rank + rope, h)
    shapes[attention + "kv_a_layernorm.weight"] = (kv_rank,)
    shapes[attention + "kv_b_proj.weight"] = (heads * (nope + v), kv_rank)
    shapes[attention + "o_proj.weight"] = (h, heads * v)
    if indexer:
        index_heads, index_dim = config["index_n_heads"], config["index_head_dim"]
        shapes[attention + "indexer.wq_b.weight"] = (index_heads * index_dim, q_rank)
        shapes[attention + "indexer.wk.weight"] = (index_dim, h)
        shapes[attention + "indexer.k_norm.weight"] = shapes[attention + "indexer.k_norm.bias"] = (index_dim,)
        shapes[attention + "indexer.weights_proj.weight"] = (index_heads, h)
    if dense:
        return add_mlp(shapes, layer + "mlp.", h, config["intermediate_size"])
    shapes[layer + "mlp.gate.weight"] = (config["n_routed_experts"], h)
    shapes[layer + "mlp.gate.e_score_correction_bias"] = (config["n_routed_experts"],)
    for e in range(config["n_routed_experts"]):
        add_mlp(shapes, f"{layer}mlp.experts.{e}.", h, config["moe_intermediate_size"])
    add_mlp(shapes, layer + "mlp.shared_experts.", h, config["moe_intermediate_size"] * config["n_shared_experts"])


def expert_count(config):
    return config.get("num_experts", config.get("num_local_experts"))


def grouped_manifest(config):
    """The same for the families of grouped-query attention. A tied head is not in the files."""
    kind, h, heads = config["model_type"], config["hidden_size"], config["num_attention_heads"]
    d = config.get("head_dim") or h // heads
    q, kv = heads * d, config["num_key_value_heads"] * d
    shapes = {"model.embed_tokens.weight": (config["vocab_size"], h)}
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        shapes[layer + "input_layernorm.weight"] = shapes[layer + "post_attention_layernorm.weight"] = (h,)
        shapes |= {f"{layer}self_attn.{part}_proj.weight": shape for part, shape in (("q", (q, h)), ("k", (kv, h)), ("v", (kv, h)), ("o", (h, q)))}
        if kind in ("qwen2", "gpt_oss"):
            shapes |= {f"{layer}self_attn.{part}_proj.bias": (size,) for part, size in (("q", q), ("k", kv), ("v", kv))}
        if kind in ("qwen3", "qwen3_moe"):
            shapes[layer + "self_attn.q_norm.weight"] = shapes[layer + "self_attn.k_norm.weight"] = (d,)
        if kind == "minimax_m2":
            shapes[layer + "self_attn.q_norm.weight"], shapes[layer + "self_attn.k_norm.weight"] = (q,), (kv,)
            moe = layer + "block_sparse_moe."
            shapes[moe + "gate.weight"] = (expert_count(config), h)
            shapes[moe + "e_score_correction_bias"] = (expert_count(config),)
            for e in range(expert_count(config)):
                add_mlp(shapes, f"{moe}experts.{e}.", h, config["intermediate_size"], ("w1", "w3", "w2"))
        elif kind == "gpt_oss":
            shapes[layer + "self_attn.o_proj.bias"], shapes[layer + "self_attn.sinks"] = (h,), (heads,)
            count, width, moe = expert_count(config), config["intermediate_size"], layer + "mlp."
            shapes[moe + "router.weight"], shapes[moe + "router.bias"] = (count, h), (count,)
            shapes[moe + "experts.gate_up_proj"], shapes[moe + "experts.gate_up_proj_bias"] = (count, h, 2 * width), (count, 2 * width)
            shapes[moe + "experts.down_proj"], shapes[moe + "experts.down_proj_bias"] = (count, width, h), (count, h)
        elif kind == "qwen3_moe" and i not in config["mlp_only_layers"] and (i + 1) % config["decoder_sparse_step"] == 0:
            shapes[layer + "mlp.gate.weight"] = (expert_count(config), h)
            for e in range(expert_count(config)):
                add_mlp(shapes, f"{layer}mlp.experts.{e}.", h, config["moe_intermediate_size"])
        else:
            add_mlp(shapes, layer + "mlp.", h, config["intermediate_size"])
    shapes["model.norm.weight"] = (h,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], h)
    return shapes


LATENT = ("glm_moe_dsa", "deepseek_v3", "deepseek_v32", "kimi_k2")
GROUPED = ("llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "minimax_m2", "gpt_oss")
MANIFESTS = dict.fromkeys(LATENT, latent_manifest) | dict.fromkeys(GROUPED, grouped_manifest)


def manifest(config):
    return MANIFESTS[config["model_type"]](config)


def weights(config, seed):
    return {name: tensor(seed, name, shape) for name, shape in manifest(config).items()}


def check_known_answers():
    for counter, key, expected in KNOWN_ANSWERS:
        output = philox4x32_10([np.asarray([c], np.uint64) for c in counter], key)[0]
        if tuple(output.tolist()) != expected:
            raise AssertionError(f"Philox4x32-10 of {counter}, {key} is {output}, expected {expected}")


if __name__ == "__main__":
    check_known_answers()
    if len(sys.argv) < 4:
        sys.exit("usage: golden_weights.py SEED NAME DIM...   (Philox known answers hold)")
    for value in tensor(int(sys.argv[1], 0), sys.argv[2], tuple(map(int, sys.argv[3:]))).reshape(-1):
        print(f"0x{value.view(np.uint32):08x} {value!r}")
