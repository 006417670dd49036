"""Random models that benches make for themselves, as Hugging Face folders in fp32: no download, the same numbers each time.

    made_models.qwen3_moe(folder, **changes), made_models.deepseek(folder, family, **changes)   # config keys to change; made once

A folder is complete when its weights are there. Needs numpy and safetensors; gguf_of needs the package gguf.
"""

import json

import numpy as np

# About half a billion parameters, 32 experts of which 4 a token.
QWEN3_MOE = {
    "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "vocab_size": 32000, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "num_key_value_heads": 4, "head_dim": 64, "intermediate_size": 2048, "moe_intermediate_size": 448, "num_experts": 32, "num_experts_per_tok": 4,
    "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [], "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
    "tie_word_embeddings": False, "hidden_act": "silu", "eos_token_id": None, "bos_token_id": None,
}  # fmt: skip
DEEPSEEK = {
    "model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "vocab_size": 32000, "hidden_size": 512, "num_hidden_layers": 8, "num_attention_heads": 8,
    "num_key_value_heads": 8, "q_lora_rank": 192, "kv_lora_rank": 128, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64, "intermediate_size": 1408,
    "moe_intermediate_size": 256, "n_routed_experts": 16, "num_experts_per_tok": 4, "n_shared_experts": 1, "n_group": 4, "topk_group": 2, "norm_topk_prob": True,
    "routed_scaling_factor": 2.5, "first_k_dense_replace": 1, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
    "tie_word_embeddings": False, "hidden_act": "silu", "eos_token_id": None, "bos_token_id": None, "num_nextn_predict_layers": 0,
}  # fmt: skip


def head_shapes(c):
    return {"model.embed_tokens.weight": (c["vocab_size"], c["hidden_size"]), "model.norm.weight": (c["hidden_size"],), "lm_head.weight": (c["vocab_size"], c["hidden_size"])}


def mlp_shapes(prefix, hidden, width):
    return {prefix + "gate_proj.weight": (width, hidden), prefix + "up_proj.weight": (width, hidden), prefix + "down_proj.weight": (hidden, width)}


def qwen3_moe_shapes(c):
    hidden, size = c["hidden_size"], c["head_dim"]
    shapes = head_shapes(c)
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        shapes |= {p + "input_layernorm.weight": (hidden,), p + "post_attention_layernorm.weight": (hidden,), p + "self_attn.q_norm.weight": (size,),
                   p + "self_attn.k_norm.weight": (size,), p + "self_attn.q_proj.weight": (c["num_attention_heads"] * size, hidden),
                   p + "self_attn.k_proj.weight": (c["num_key_value_heads"] * size, hidden), p + "self_attn.v_proj.weight": (c["num_key_value_heads"] * size, hidden),
                   p + "self_attn.o_proj.weight": (hidden, c["num_attention_heads"] * size), p + "mlp.gate.weight": (c["num_experts"], hidden)}  # fmt: skip
        for e in range(c["num_experts"]):
            shapes |= mlp_shapes(f"{p}mlp.experts.{e}.", hidden, c["moe_intermediate_size"])
    return shapes


def deepseek_shapes(c):
    hidden, heads, rope, latent = c["hidden_size"], c["num_attention_heads"], c["qk_rope_head_dim"], c["kv_lora_rank"]
    key = c["qk_nope_head_dim"] + rope
    indexers = c.get("indexer_types") or ["full"] * c["num_hidden_layers"] if "index_topk" in c else []
    shapes = head_shapes(c)
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        shapes |= {p + "input_layernorm.weight": (hidden,), p + "post_attention_layernorm.weight": (hidden,), p + "self_attn.q_a_proj.weight": (c["q_lora_rank"], hidden),
                   p + "self_attn.q_a_layernorm.weight": (c["q_lora_rank"],), p + "self_attn.q_b_proj.weight": (heads * key, c["q_lora_rank"]),
                   p + "self_attn.kv_a_proj_with_mqa.weight": (latent + rope, hidden), p + "self_attn.kv_a_layernorm.weight": (latent,),
                   p + "self_attn.kv_b_proj.weight": (heads * (c["qk_nope_head_dim"] + c["v_head_dim"]), latent), p + "self_attn.o_proj.weight": (hidden, heads * c["v_head_dim"])}  # fmt: skip
        if indexers and indexers[i] == "full":
            q = p + "self_attn.indexer."
            shapes |= {q + "wq_b.weight": (c["index_n_heads"] * c["index_head_dim"], c["q_lora_rank"]), q + "wk.weight": (c["index_head_dim"], hidden),
                       q + "k_norm.weight": (c["index_head_dim"],), q + "k_norm.bias": (c["index_head_dim"],), q + "weights_proj.weight": (c["index_n_heads"], hidden)}  # fmt: skip
        if i < c["first_k_dense_replace"]:
            shapes |= mlp_shapes(p + "mlp.", hidden, c["intermediate_size"])
            continue
        shapes |= {p + "mlp.gate.weight": (c["n_routed_experts"], hidden), p + "mlp.gate.e_score_correction_bias": (c["n_routed_experts"],)}
        shapes |= mlp_shapes(p + "mlp.shared_experts.", hidden, c["n_shared_experts"] * c["moe_intermediate_size"])
        for e in range(c["n_routed_experts"]):
            shapes |= mlp_shapes(f"{p}mlp.experts.{e}.", hidden, c["moe_intermediate_size"])
    return shapes


def numbers(shapes):
    """Norms are 1, biases 0, matrices normal with a deviation of 0.02."""
    random = np.random.default_rng(1)
    for name, shape in shapes.items():
        if len(shape) == 1:
            yield name, np.full(shape, 0.0 if name.endswith("bias") else 1.0, np.float32)
        else:
            yield name, random.standard_normal(shape, np.float32) * np.float32(0.02)


def write(folder, config, shapes):
    from safetensors.numpy import save_file

    if not (folder / "model.safetensors").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(config, indent=1))
        save_file(dict(numbers(shapes)), folder / "model.tmp", metadata={"format": "pt"})
        (folder / "model.tmp").rename(folder / "model.safetensors")
    return folder


def qwen3_moe(folder, **changes):
    config = QWEN3_MOE | changes
    return write(folder, config, qwen3_moe_shapes(config))


def deepseek(folder, **changes):
    config = DEEPSEEK | changes
    return write(folder, config, deepseek_shapes(config))


# Of a training step: what all parameters with their state take is then 1.5 GB.
TRAINED = {
    "qwen3_moe": lambda folder: qwen3_moe(folder, hidden_size=512, num_attention_heads=8, num_key_value_heads=4, num_hidden_layers=8, num_experts=16, moe_intermediate_size=256),
    "deepseek_v3": deepseek,
}


def gguf_of(folder, target):
    """A folder of qwen3_moe as the GGUF file that llama.cpp reads: the same numbers, all experts of a layer in one tensor."""
    import gguf
    from safetensors import safe_open

    c = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(target, "qwen3moe")
    writer.add_context_length(c["max_position_embeddings"])
    writer.add_embedding_length(c["hidden_size"])
    writer.add_block_count(c["num_hidden_layers"])
    writer.add_feed_forward_length(c["intermediate_size"])
    writer.add_expert_feed_forward_length(c["moe_intermediate_size"])
    writer.add_head_count(c["num_attention_heads"])
    writer.add_head_count_kv(c["num_key_value_heads"])
    writer.add_key_length(c["head_dim"])
    writer.add_value_length(c["head_dim"])
    writer.add_layer_norm_rms_eps(c["rms_norm_eps"])
    writer.add_rope_freq_base(c["rope_theta"])
    writer.add_expert_count(c["num_experts"])
    writer.add_expert_used_count(c["num_experts_per_tok"])
    writer.add_vocab_size(c["vocab_size"])
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("none")
    parts = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "self_attn.q_proj": "attn_q",
             "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate": "ffn_gate_inp"}  # fmt: skip
    with safe_open(folder / "model.safetensors", "np") as file:
        for name, ours in {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}.items():
            writer.add_tensor(name + ".weight", file.get_tensor(ours + ".weight"))
        for i in range(c["num_hidden_layers"]):
            for ours, theirs in parts.items():
                writer.add_tensor(f"blk.{i}.{theirs}.weight", file.get_tensor(f"model.layers.{i}.{ours}.weight"))
            for part in ("gate", "up", "down"):
                experts = [file.get_tensor(f"model.layers.{i}.mlp.experts.{e}.{part}_proj.weight") for e in range(c["num_experts"])]
                writer.add_tensor(f"blk.{i}.ffn_{part}_exps.weight", np.stack(experts))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
