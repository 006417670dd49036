#!/usr/bin/env python3
"""Writes the folder of recall-glm, a model of 8 layers for the environment `recall`: tokenizer, configuration and initial weights, which recipes/recall_sft.toml trains.

Every word of the environment `recall` (src/rl/recall.h) is one token: 256 keys and 32 filler words with the blank before them, 100 values, the question mark and the
colon. So a document of N words has N tokens. The tokenizer is a byte-level BPE; the bytes are tokens too, as ever.

Initial weights are uniform, with three things that save a small model most of its lesson (docs/long-context.md has it without them):
- the head is the embedding times a quarter, so that what a layer copies from a word is that word to the head at once, for all words;
- 16 columns of the embedding are larger by 1 in every word. Nothing in these models has a bias, so without such columns attention by position, as "the word before
  this one", has nothing to grow from;
- the rotary rows of queries and keys are twice as large, so that heads prefer some distances from the start.

    python3 tools/make_recall_folder.py runs/recall-glm        (no package needed)
    make_recall_folder.make(folder, num_hidden_layers=4, ...)  # a model of other dimensions with the same tokenizer: keys of config.json to change
"""
import json
import math
import random
import re
import struct
import sys
from pathlib import Path

from make_agent_folder import byte_alphabet

CONTEXT = 1 << 20
LAYERS = 8
END = "<|endoftext|>"

CONSONANTS, VOWELS, ENDS, FILLER = "BDFGHJKLMNPRSTVZ", "aeio", "lnr", "bdfgklmn"  # of src/rl/recall.cpp


def merges():
    blank = byte_alphabet()[32]
    pairs = [[str(a), str(b)] for a in range(10) for b in range(10)]
    for consonant in CONSONANTS + FILLER:
        pairs.append([blank, consonant])
        for vowel in VOWELS:
            pairs.append([blank + consonant, vowel])
            if consonant in CONSONANTS:
                pairs += [[blank + consonant + vowel, end] for end in ENDS]
    return pairs


def tokenizer():
    pairs = merges()
    words = byte_alphabet() + ["".join(pair) for pair in pairs]
    tokens = words + [END]
    assert len(tokens) == len(set(tokens))
    vocab = {token: place for place, token in enumerate(tokens)}
    added = [{"id": vocab[END], "content": END, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None, "pre_tokenizer": byte_level, "post_processor": None,
            "decoder": byte_level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
                      "byte_fallback": False, "ignore_merges": False, "vocab": {t: vocab[t] for t in words}, "merges": pairs}}  # fmt: skip


def config(end, size):
    return {"architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa", "attention_bias": False, "attention_dropout": 0.0, "dtype": "bfloat16",
            "eos_token_id": end, "first_k_dense_replace": 1, "hidden_act": "silu", "hidden_size": 64, "index_head_dim": 32,
            "index_n_heads": 4, "index_topk": 64, "indexer_types": ["full"] * LAYERS, "initializer_range": 0.04, "intermediate_size": 128,
            "kv_lora_rank": 32, "max_position_embeddings": CONTEXT, "mlp_layer_types": ["dense"] + ["sparse"] * (LAYERS - 1), "moe_intermediate_size": 16,
            "n_group": 1, "n_routed_experts": 8, "n_shared_experts": 1, "norm_topk_prob": True, "num_attention_heads": 4, "num_experts_per_tok": 2,
            "num_hidden_layers": LAYERS, "num_key_value_heads": 4, "pad_token_id": end, "q_lora_rank": 32, "qk_nope_head_dim": 16,
            "qk_rope_head_dim": 16, "rms_norm_eps": 1e-06, "rope_parameters": {"rope_theta": 8000000.0, "rope_type": "default"}, "routed_scaling_factor": 1.0,
            "tie_word_embeddings": False, "topk_group": 1, "use_cache": True, "v_head_dim": 16, "vocab_size": size}  # fmt: skip


EMBEDDING, HEAD = 0.5, 0.25  # deviation of the embedding; the head's part of it
OUTPUT, ROTARY = 0.25, 2  # sizes of matrices that write to the residual stream, and of rotary rows, beside 1 / sqrt(inputs)
ALIKE = 16  # columns of the embedding that are larger by 1


def bfloat(value):
    """The bits of the nearest bf16, ties to even."""
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def weights(c):
    """Tensors as (shape, values): random.Random(1)'s numbers in the order of this function."""
    draws, made = random.Random(1), {}

    def uniform(count, deviation):
        most = deviation * math.sqrt(3)
        return [most * (2 * draws.random() - 1) for _ in range(count)]

    def matrix(name, outputs, inputs, size=1.0, rotary=lambda row: False):
        values = uniform(outputs * inputs, size / math.sqrt(inputs))
        made[name + ".weight"] = ([outputs, inputs], [x * (ROTARY if rotary(i // inputs) else 1) for i, x in enumerate(values)])

    def norm(*names):
        for name, size in names:
            made[name + ".weight"] = ([size], [1.0] * size)

    def mlp(name, width):
        matrix(name + "gate_proj", width, hidden)
        matrix(name + "up_proj", width, hidden)
        matrix(name + "down_proj", hidden, width, OUTPUT)

    hidden, heads, q, kv = c["hidden_size"], c["num_attention_heads"], c["q_lora_rank"], c["kv_lora_rank"]
    nope, turning, value = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
    table = uniform(c["vocab_size"] * hidden, EMBEDDING)
    made["model.embed_tokens.weight"] = ([c["vocab_size"], hidden], [x + (i % hidden < ALIKE) for i, x in enumerate(table)])
    made["lm_head.weight"] = ([c["vocab_size"], hidden], [HEAD * struct.unpack("<f", struct.pack("<I", bfloat(x) << 16))[0] for x in table])
    norm(("model.norm", hidden))
    for layer in range(c["num_hidden_layers"]):
        name = f"model.layers.{layer}."
        a = name + "self_attn."
        norm((name + "input_layernorm", hidden), (name + "post_attention_layernorm", hidden), (a + "q_a_layernorm", q), (a + "kv_a_layernorm", kv))
        matrix(a + "q_a_proj", q, hidden)
        matrix(a + "q_b_proj", heads * (nope + turning), q, rotary=lambda row: row % (nope + turning) >= nope)
        matrix(a + "kv_a_proj_with_mqa", kv + turning, hidden, rotary=lambda row: row >= kv)
        matrix(a + "kv_b_proj", heads * (nope + value), kv)
        matrix(a + "o_proj", hidden, heads * value, OUTPUT)
        if c["indexer_types"][layer] == "full":
            size = c["index_head_dim"]
            matrix(a + "indexer.wq_b", c["index_n_heads"] * size, q)
            matrix(a + "indexer.wk", size, hidden)
            norm((a + "indexer.k_norm", size))
            made[a + "indexer.k_norm.bias"] = ([size], [0.0] * size)
            matrix(a + "indexer.weights_proj", c["index_n_heads"], hidden)
        if c["mlp_layer_types"][layer] == "dense":
            mlp(name + "mlp.", c["intermediate_size"])
            continue
        matrix(name + "mlp.gate", c["n_routed_experts"], hidden)
        made[name + "mlp.gate.e_score_correction_bias"] = ([c["n_routed_experts"]], [0.0] * c["n_routed_experts"])
        for expert in range(c["n_routed_experts"]):
            mlp(f"{name}mlp.experts.{expert}.", c["moe_intermediate_size"])
        mlp(name + "mlp.shared_experts.", c["moe_intermediate_size"] * c["n_shared_experts"])
    return made


def safetensors(tensors):
    head, data = {}, b""
    for name, (shape, values) in sorted(tensors.items()):
        exact = name.endswith("correction_bias")
        packed = struct.pack(f"<{len(values)}f", *values) if exact else struct.pack(f"<{len(values)}H", *map(bfloat, values))
        head[name] = {"dtype": "F32" if exact else "BF16", "shape": shape, "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def files(**changes):
    made = tokenizer()
    end = made["added_tokens"][0]["id"]
    text = json.dumps(made, ensure_ascii=False, indent=1)
    text = re.sub(r'\[\n\s+("(?:[^"\\]|\\.)*"),\n\s+("(?:[^"\\]|\\.)*")\n\s+\]', r"[\1, \2]", text)  # one merge a line
    assert json.loads(text) == made
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "pad_token": END, "add_bos_token": False, "clean_up_tokenization_spaces": False,
             "model_input_names": ["input_ids", "attention_mask"], "model_max_length": CONTEXT}
    generation = {"_from_model_config": True, "eos_token_id": end, "pad_token_id": end}
    pretty = lambda value: json.dumps(value, indent=2) + "\n"  # noqa: E731
    return {"tokenizer.json": text + "\n", "tokenizer_config.json": pretty(about), "config.json": pretty(config(end, end + 1) | changes), "generation_config.json": pretty(generation)}


def make(folder, **changes):
    """The sizes of the files that were written, by name."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {name: text.encode() for name, text in files(**changes).items()}
    made["model.safetensors"] = safetensors(weights(json.loads(made["config.json"])))
    for name, content in made.items():
        (folder / name).write_bytes(content)
    return {name: len(content) for name, content in made.items()}


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: python3 tools/make_recall_folder.py FOLDER")
    for name, size in make(Path(sys.argv[1])).items():
        print(f"{name}: {size} bytes")


if __name__ == "__main__":
    main()
