"""GGUF files written by the `gguf` package, with its own map of tensor names: models as llama.cpp's converter lays them out, and tokenizers."""

import json

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind

ARCHITECTURES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "qwen3_moe": "qwen3moe"}  # by model_type
ENUM = {name: number for number, name in gguf.MODEL_ARCH_NAMES.items()}
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
# Read by lockstep; the last three have no quantiser in the package.
QUANTISED = [Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1, Kind.Q8_0, Kind.Q4_K, Kind.Q5_K, Kind.Q6_K]
HALVES = {Kind.Q4_0: [0], Kind.Q4_1: [0, 2], Kind.Q5_0: [0], Kind.Q5_1: [0, 2], Kind.Q8_0: [0], Kind.Q4_K: [0, 2], Kind.Q5_K: [0, 2], Kind.Q6_K: [208]}


def paired(weight, heads):
    """Rows of each head as llama.cpp's rope takes them (LlamaModel.permute of convert_hf_to_gguf.py)."""
    return weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def random_blocks(source, kind, shape, scale=None):
    """Bytes of random blocks: every bit of them is random, but the halves are finite, or of the size of `scale`."""
    values, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = source.integers(0, 256, (*shape[:-1], shape[-1] // values, size), dtype=np.uint8)
    for at in HALVES[kind]:
        halves = source.integers(0, 1 << 16, blocks.shape[:-1], dtype=np.uint16)
        halves = np.where((halves >> 10 & 31) == 31, halves & 0x83FF, halves).astype(np.uint16)
        if scale is not None:
            halves = (source.standard_normal(blocks.shape[:-1]) * scale).astype(np.float16).view(np.uint16)
        blocks[..., at : at + 2] = halves[..., None].view(np.uint8)
    return blocks.reshape(*shape[:-1], -1)


def metadata(writer, config, vocabulary):
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config.get("rope_theta", 10000.0))
    writer.add_vocab_size(vocabulary)
    if "head_dim" in config:
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
        writer.add_rope_dimension_count(config["head_dim"])
    if config["model_type"] == "qwen3_moe":
        writer.add_expert_count(config["num_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])


def stacked_experts(weights, config):
    """Hugging Face's tensors an expert as llama.cpp has them: one of all experts."""
    weights = dict(weights)
    for layer in range(config["num_hidden_layers"] if config["model_type"] == "qwen3_moe" else 0):
        for part in ("gate", "up", "down"):
            names = [f"model.layers.{layer}.mlp.experts.{e}.{part}_proj.weight" for e in range(config["num_experts"])]
            weights[f"model.layers.{layer}.mlp.experts.{part}_proj.weight"] = np.stack([weights.pop(name) for name in names])
    return weights


def write_model(path, config, weights, kind_of=lambda name: Kind.F32, source=None, more=lambda writer: None):
    """`weights`: Hugging Face name -> fp32. Returns what the file holds under the same names, decoded by the package. K-quants, which it does
    not write, are random blocks."""
    architecture = ARCHITECTURES[config["model_type"]]
    names = gguf.get_tensor_name_map(ENUM[architecture], config["num_hidden_layers"])
    writer = gguf.GGUFWriter(path, architecture)
    metadata(writer, config, weights["model.embed_tokens.weight"].shape[0])
    more(writer)
    held = {}
    for name, value in stacked_experts(weights, config).items():
        stem, end = name.rsplit(".", 1)
        theirs = f"{names.get_name(stem)}.{end}"
        assert not theirs.startswith("None"), name
        heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}.get(stem.rsplit(".", 1)[-1])
        heads = heads if architecture == "llama" else None
        if heads:
            value = paired(value, heads)
        kind = kind_of(name) if value.ndim > 1 else Kind.F32
        if kind in (Kind.Q4_K, Kind.Q5_K, Kind.Q6_K):
            data = random_blocks(source, kind, value.shape, scale=2e-3 if kind != Kind.Q6_K else 2e-4)
        else:
            data = gguf.quants.quantize(np.ascontiguousarray(value, np.float32), kind)
        writer.add_tensor(theirs, data, raw_dtype=kind)
        value = gguf.quants.dequantize(data, kind)
        if heads:
            value = value.reshape(heads, value.shape[0] // heads // 2, 2, *value.shape[1:]).swapaxes(1, 2).reshape(value.shape)
        if ".experts." in name:
            for e, one in enumerate(value):
                held[name.replace(".experts.", f".experts.{e}.")] = one
        else:
            held[name] = value
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return held


def add_tokenizer(writer, model, tokens, kinds, pre=None, merges=None, scores=None, **ids_and_flags):
    writer.add_tokenizer_model(model)
    if pre:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    if merges is not None:
        writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    if scores is not None:
        writer.add_token_scores(scores)
    for name, value in ids_and_flags.items():
        getattr(writer, f"add_{name}")(value)


def tokens_and_kinds(tokenizer_json):
    """Of a tokenizer.json, as llama.cpp's converter reads them."""
    document = json.loads(tokenizer_json)
    by_id = {i: token for token, i in document["model"]["vocab"].items()}
    kinds = dict.fromkeys(by_id, NORMAL)
    for token in document["added_tokens"]:
        by_id[token["id"]], kinds[token["id"]] = token["content"], CONTROL if token["special"] else USER_DEFINED
    return [by_id[i] for i in range(len(by_id))], [kinds[i] for i in range(len(by_id))], document["model"]["merges"]
