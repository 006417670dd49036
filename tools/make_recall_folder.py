#!/usr/bin/env python3
"""Writes the folder of recall-glm, a model of 8 layers for the environment `recall`: tokenizer and configuration; recipes/recall_sft.toml trains its weights.

Every word of the environment `recall` (src/rl/recall.h) is one token: 256 keys and 32 filler words with the blank before them, 100 values, the question mark and the
colon. So a document of N words has N tokens. The tokenizer is a byte-level BPE; the bytes are tokens too, as ever.

    python3 tools/make_recall_folder.py runs/recall-glm        (no package needed)
"""
import json
import re
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


def files():
    made = tokenizer()
    end = made["added_tokens"][0]["id"]
    text = json.dumps(made, ensure_ascii=False, indent=1)
    text = re.sub(r'\[\n\s+("(?:[^"\\]|\\.)*"),\n\s+("(?:[^"\\]|\\.)*")\n\s+\]', r"[\1, \2]", text)  # one merge a line
    assert json.loads(text) == made
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "pad_token": END, "add_bos_token": False, "clean_up_tokenization_spaces": False,
             "model_input_names": ["input_ids", "attention_mask"], "model_max_length": CONTEXT}
    generation = {"_from_model_config": True, "eos_token_id": end, "pad_token_id": end}
    pretty = lambda value: json.dumps(value, indent=2) + "\n"  # noqa: E731
    return {"tokenizer.json": text + "\n", "tokenizer_config.json": pretty(about), "config.json": pretty(config(end, end + 1)), "generation_config.json": pretty(generation)}


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: python3 tools/make_recall_folder.py FOLDER")
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (folder / name).write_text(text, encoding="utf-8")
        print(f"{name}: {len(text.encode())} bytes")


if __name__ == "__main__":
    main()
