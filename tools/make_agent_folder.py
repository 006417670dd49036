#!/usr/bin/env python3
"""Writes the files of models/agent-glm beside its weights: tokenizer, configuration, GLM's chat template.

The tokenizer is a byte-level BPE of 448 tokens, GLM's special tokens among them. Every digit is a token, and so is a blank with a digit ("482" is
three tokens, so that sums are learned digit by digit); every name in a task is a token; the other merges are learned from texts that the chat
template writes.

    python3 tools/make_agent_folder.py            writes the files (no package needed)
    python3 tools/make_agent_folder.py --check    exits 1 when they differ from what it would write
"""
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "models" / "agent-glm"
TEMPLATE = ROOT / "tests" / "templates" / "real" / "GLM-4.6.jinja"
SIZE = 448
CONTEXT = 2048

TASKS = "reverse sort add subtract maximum count parity shift deduplicate interleave compare remainder even odd".split()
# GLM-4.6's; the last eleven are text that a model may write and read, not special.
SPECIAL = ["<|endoftext|>", "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"]
MARKUP = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "/nothink"]
ENDS = ["<|endoftext|>", "<|user|>", "<|observation|>"]
TOOL = '{"type": "function", "function": {"name": "write", "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}}}'


def byte_alphabet():
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = iter(range(256, 512))
    return [chr(byte) if byte in kept else chr(next(other)) for byte in range(256)]


def pieces(text):
    """GPT-2's pattern, for ASCII."""
    return re.findall(r"'(?:[sdmt]|ll|ve|re)| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+", text)


def joined(word, pair):
    i = 0
    while i + 1 < len(word):
        if (word[i], word[i + 1]) == pair:
            word[i:i + 2] = ["".join(pair)]
        i += 1


def learn(words, merges, finished):
    """Plain BPE over words of letters, weighted by how often they occur; the most frequent pair first, ties by the smaller pair of texts."""
    for pair in merges:
        for word in words:
            joined(word, tuple(pair))
    while not finished(words, merges):
        counts = {}
        for word in words:
            for pair in zip(word, word[1:]):
                counts[pair] = counts.get(pair, 0) + 1
        pair = min(counts, key=lambda p: (-counts[p], p))
        merges.append(list(pair))
        for word in words:
            joined(word, pair)


def tokenizer():
    letters = byte_alphabet()
    spelled = lambda text: [letters[byte] for byte in text.encode()]  # noqa: E731
    blank = letters[32]
    merges = [[blank, str(digit)] for digit in range(10)] + [[blank, "|"]]
    learn([spelled(task) for task in TASKS], merges, lambda words, _: all(len(word) == 1 for word in words))
    room = SIZE - 256 - len(SPECIAL) - len(MARKUP)
    told = re.sub(r"\{[%{].*?[%}]\}", "\n", TEMPLATE.read_text(encoding="utf-8"), flags=re.S)
    for text in SPECIAL + MARKUP:
        told = told.replace(text, "\n")
    told = re.sub(r"\s*\n\s*", "\n", told)
    made = lambda pairs: list(dict.fromkeys("".join(pair) for pair in pairs))  # noqa: E731  two pairs may make one token
    learn([spelled(piece) for piece in pieces(told + TOOL)], merges, lambda _, pairs: len(made(pairs)) == room)
    tokens = letters + made(merges) + SPECIAL + MARKUP
    assert len(tokens) == len(set(tokens)) == SIZE, len(tokens)
    vocab = {token: place for place, token in enumerate(tokens)}
    added = [{"id": vocab[text], "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": text in SPECIAL} for text in SPECIAL + MARKUP]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None, "pre_tokenizer": byte_level, "post_processor": None,
            "decoder": byte_level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
                      "byte_fallback": False, "ignore_merges": False, "vocab": {t: vocab[t] for t in tokens[:SIZE - len(SPECIAL) - len(MARKUP)]}, "merges": merges}}  # fmt: skip


def config(ids):
    return {"architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa", "attention_bias": False, "attention_dropout": 0.0, "dtype": "bfloat16",
            "eos_token_id": [ids[end] for end in ENDS], "first_k_dense_replace": 1, "hidden_act": "silu", "hidden_size": 96, "index_head_dim": 16,
            "index_n_heads": 4, "index_topk": 32, "indexer_types": ["full", "shared", "full", "shared"], "initializer_range": 0.04, "intermediate_size": 192,
            "kv_lora_rank": 32, "max_position_embeddings": CONTEXT, "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"], "moe_intermediate_size": 48,
            "n_group": 1, "n_routed_experts": 8, "n_shared_experts": 1, "norm_topk_prob": True, "num_attention_heads": 4, "num_experts_per_tok": 2,
            "num_hidden_layers": 4, "num_key_value_heads": 4, "pad_token_id": ids["<|endoftext|>"], "q_lora_rank": 48, "qk_nope_head_dim": 16,
            "qk_rope_head_dim": 16, "rms_norm_eps": 1e-06, "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}, "routed_scaling_factor": 1.0,
            "tie_word_embeddings": False, "topk_group": 1, "use_cache": True, "v_head_dim": 32, "vocab_size": SIZE}  # fmt: skip


def files():
    made = tokenizer()
    ids = {token["content"]: token["id"] for token in made["added_tokens"]}
    text = json.dumps(made, ensure_ascii=False, indent=1)
    text = re.sub(r'\[\n\s+("(?:[^"\\]|\\.)*"),\n\s+("(?:[^"\\]|\\.)*")\n\s+\]', r"[\1, \2]", text)  # one merge a line
    assert json.loads(text) == made
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>", "add_bos_token": False,
             "clean_up_tokenization_spaces": False, "model_input_names": ["input_ids", "attention_mask"], "model_max_length": CONTEXT}
    generation = {"_from_model_config": True, "eos_token_id": [ids[end] for end in ENDS], "pad_token_id": ids["<|endoftext|>"]}
    pretty = lambda value: json.dumps(value, indent=2) + "\n"  # noqa: E731
    return {"tokenizer.json": text + "\n", "tokenizer_config.json": pretty(about), "config.json": pretty(config(ids)), "generation_config.json": pretty(generation),
            "chat_template.jinja": TEMPLATE.read_text(encoding="utf-8")}


def main():
    wanted = files()
    if "--check" in sys.argv[1:]:
        wrong = [name for name, text in wanted.items() if not (MODEL / name).exists() or (MODEL / name).read_text(encoding="utf-8") != text]
        if wrong:
            sys.exit(f"models/agent-glm differs from what this script writes: {', '.join(wrong)}")
        print("the files are what this script writes")
        return
    MODEL.mkdir(parents=True, exist_ok=True)
    for name, text in wanted.items():
        (MODEL / name).write_text(text, encoding="utf-8")
        print(f"{name}: {len(text.encode())} bytes")


if __name__ == "__main__":
    main()
