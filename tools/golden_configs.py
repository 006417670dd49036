"""The configs of the goldens (reference results; make_goldens.py): small and of odd sizes; together they reach every branch of every family."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Golden:
    tokens: int
    config: dict  # arguments of the family's configuration class, with model_type
    variants: tuple = ()  # names in the family's wrong variants that must move the logits
    no_effect: tuple = ()  # and those that must not


GLM_MOE_DSA_SHARED = dict(
    model_type="glm_moe_dsa", n_group=1, topk_group=1, max_position_embeddings=512, bos_token_id=None, eos_token_id=None, index_n_heads=16
)

DEEPSEEK_SHARED = dict(model_type="deepseek_v3", max_position_embeddings=512, bos_token_id=None, eos_token_id=None)

# Families that transformers computes with another family's class.
ORACLE_TYPES = {"kimi_k2": "deepseek_v3"}

GOLDENS = {
    # Index sharing, sparse selection, dense and MoE layers; an epsilon so large that a wrong one shows.
    "glm_moe_dsa/sharing": Golden(
        tokens=23,
        config=GLM_MOE_DSA_SHARED | dict(
            hidden_size=48, num_hidden_layers=11, num_attention_heads=3, num_key_value_heads=3, q_lora_rank=40,
            kv_lora_rank=24, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=20, index_head_dim=16, index_topk=5,
            index_topk_freq=4, index_skip_topk_offset=3, first_k_dense_replace=3, intermediate_size=50,
            moe_intermediate_size=7, n_routed_experts=12, num_experts_per_tok=3, n_shared_experts=2,
            norm_topk_prob=True, routed_scaling_factor=1.7, rms_norm_eps=0.03, vocab_size=101,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        ),
        variants=("eps_a", "no_relu", "indexer_other_rope", "mla_other_rope", "bias_in_weights"),
    ),
    # Sums long enough for eight leaves (288 = 8 * 36), more than one block of 64 keys visible, heads 6 = 2 * 3,
    # weights of the experts not renormalised.
    "glm_moe_dsa/wide": Golden(
        tokens=71,
        config=GLM_MOE_DSA_SHARED | dict(
            hidden_size=288, num_hidden_layers=4, num_attention_heads=6, num_key_value_heads=6, q_lora_rank=20,
            kv_lora_rank=18, qk_nope_head_dim=7, qk_rope_head_dim=6, v_head_dim=7, index_head_dim=10, index_topk=7,
            indexer_types=["full", "full", "shared", "shared"], first_k_dense_replace=1, intermediate_size=11,
            moe_intermediate_size=3, n_routed_experts=9, num_experts_per_tok=3, n_shared_experts=1,
            norm_topk_prob=False, routed_scaling_factor=2.5, rms_norm_eps=1e-5, vocab_size=67,
            rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
        ),
        variants=("no_relu", "indexer_other_rope", "mla_other_rope", "bias_in_weights"),
    ),
    # Every visible key selected, over two blocks of 64; experts that do not divide eight; two and four leaves.
    "glm_moe_dsa/dense-range": Golden(
        tokens=81,
        config=GLM_MOE_DSA_SHARED | dict(
            hidden_size=40, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=4, q_lora_rank=28,
            kv_lora_rank=20, qk_nope_head_dim=10, qk_rope_head_dim=8, v_head_dim=16, index_head_dim=12, index_topk=96,
            indexer_types=["full", "shared", "full", "shared"], first_k_dense_replace=1, intermediate_size=128,
            moe_intermediate_size=13, n_routed_experts=5, num_experts_per_tok=2, n_shared_experts=1,
            norm_topk_prob=True, routed_scaling_factor=2.5, rms_norm_eps=1e-6, vocab_size=515,
            rope_parameters={"rope_type": "default", "rope_theta": 8000000.0},
        ),
        variants=("mla_other_rope", "bias_in_weights"),
        no_effect=("no_relu", "indexer_other_rope"),
    ),
    # All three bands of llama3's RoPE scaling, positions beyond the original context; groups of three heads; H * D is not h; tied head.
    "llama/scaled": Golden(
        tokens=150,
        config=dict(
            model_type="llama", hidden_size=48, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2, head_dim=16,
            intermediate_size=20, vocab_size=61, rms_norm_eps=1e-5, max_position_embeddings=512, tie_word_embeddings=True,
            bos_token_id=None, eos_token_id=None,
            rope_parameters={"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
                             "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
        ),
        variants=("rope_pairs", "no_scaling", "heads_interleaved"),
    ),
    # Sums of eight leaves (288), one key for four heads, untied.
    "llama/wide": Golden(
        tokens=70,
        config=dict(
            model_type="llama", hidden_size=288, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=1, head_dim=10,
            intermediate_size=11, vocab_size=35, rms_norm_eps=1e-6, max_position_embeddings=256, tie_word_embeddings=False,
            bos_token_id=None, eos_token_id=[3, 7], rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
        ),
        variants=("rope_pairs",),
        no_effect=("no_scaling", "heads_interleaved"),
    ),
    # Norms of heads, YaRN with its factor on cosines and sines, groups of three, untied.
    "qwen3/yarn": Golden(
        tokens=81,
        config=dict(
            model_type="qwen3", hidden_size=40, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2, head_dim=16,
            intermediate_size=30, vocab_size=67, rms_norm_eps=1e-6, max_position_embeddings=128, tie_word_embeddings=False,
            bos_token_id=None, eos_token_id=None,
            rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "beta_fast": 8.0,
                             "original_max_position_embeddings": 32},
        ),
        variants=("rope_pairs", "no_scaling", "no_attention_factor", "heads_interleaved", "no_head_norms", "norm_after_rope"),
    ),
    # Every head its own key, linear scaling, an epsilon so large that a wrong one shows, tied.
    "qwen3/tied": Golden(
        tokens=71,
        config=dict(
            model_type="qwen3", hidden_size=35, num_hidden_layers=2, num_attention_heads=5, num_key_value_heads=5, head_dim=12,
            intermediate_size=24, vocab_size=101, rms_norm_eps=0.03, max_position_embeddings=128, tie_word_embeddings=True,
            bos_token_id=None, eos_token_id=5,
            rope_parameters={"rope_type": "linear", "rope_theta": 1000000.0, "factor": 2.0},
        ),
        variants=("rope_pairs", "no_scaling", "no_head_norms"),
        no_effect=("heads_interleaved",),
    ),
    # Biases of q, k and v, YaRN, groups of three, tied; no head_dim in the config.
    "qwen2/biased": Golden(
        tokens=81,
        config=dict(
            model_type="qwen2", hidden_size=48, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
            intermediate_size=20, vocab_size=41, rms_norm_eps=1e-6, max_position_embeddings=128, tie_word_embeddings=True,
            bos_token_id=None, eos_token_id=None,
            rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "beta_fast": 8.0,
                             "original_max_position_embeddings": 32},
        ),
        variants=("rope_pairs", "no_scaling", "no_attention_factor", "heads_interleaved", "no_biases"),
    ),
    # Sums of eight leaves in the MLP (256), one key for two heads, untied.
    "qwen2/wide": Golden(
        tokens=70,
        config=dict(
            model_type="qwen2", hidden_size=20, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
            intermediate_size=256, vocab_size=35, rms_norm_eps=1e-6, max_position_embeddings=256, tie_word_embeddings=False,
            bos_token_id=None, eos_token_id=[3, 7], rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
        ),
        variants=("rope_pairs", "no_biases"),
        no_effect=("no_scaling", "heads_interleaved"),
    ),
    # A window shorter than a block of 64 keys, groups of three; H * D is not h.
    "mistral/window": Golden(
        tokens=100,
        config=dict(
            model_type="mistral", hidden_size=24, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2, head_dim=8,
            intermediate_size=20, vocab_size=61, rms_norm_eps=1e-5, max_position_embeddings=256, tie_word_embeddings=False,
            bos_token_id=None, eos_token_id=2, sliding_window=20, rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        ),
        variants=("rope_pairs", "heads_interleaved", "no_window", "window_longer", "window_shorter"),
    ),
    # A window longer than a block, that begins inside one; sums of eight leaves in the MLP (256), one key for all heads.
    "mistral/wide": Golden(
        tokens=150,
        config=dict(
            model_type="mistral", hidden_size=16, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=1, head_dim=6,
            intermediate_size=256, vocab_size=35, rms_norm_eps=1e-5, max_position_embeddings=256, tie_word_embeddings=False,
            bos_token_id=None, eos_token_id=2, sliding_window=70, rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        ),
        variants=("rope_pairs", "no_window", "window_longer", "window_shorter"),
        no_effect=("no_scaling", "heads_interleaved"),
    ),
    # No window: every key is seen.
    "mistral/whole": Golden(
        tokens=40,
        config=dict(
            model_type="mistral", hidden_size=16, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
            intermediate_size=20, vocab_size=35, rms_norm_eps=1e-5, max_position_embeddings=256, tie_word_embeddings=False,
            bos_token_id=None, eos_token_id=2, sliding_window=None, rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        ),
        variants=("rope_pairs", "heads_interleaved"),
        no_effect=("no_window", "window_longer"),
    ),
    # A plain MLP between layers with experts; weights that are not renormalised.
    "qwen3_moe/between": Golden(
        tokens=60,
        config=dict(
            model_type="qwen3_moe", hidden_size=24, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
            intermediate_size=20, moe_intermediate_size=6, num_experts=10, num_experts_per_tok=3, norm_topk_prob=False,
            mlp_only_layers=[1], decoder_sparse_step=1, vocab_size=41, rms_norm_eps=1e-6, max_position_embeddings=128,
            tie_word_embeddings=False, bos_token_id=None, eos_token_id=None,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        ),
        variants=("rope_pairs", "heads_interleaved", "no_head_norms", "norm_after_rope", "other_renormalisation", "other_scores"),
    ),
    # Every second layer has experts, renormalised; sums of eight leaves in the plain MLP (256); YaRN; tied.
    "qwen3_moe/every-second": Golden(
        tokens=71,
        config=dict(
            model_type="qwen3_moe", hidden_size=14, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
            intermediate_size=256, moe_intermediate_size=5, num_experts=6, num_experts_per_tok=2, norm_topk_prob=True,
            mlp_only_layers=[], decoder_sparse_step=2, vocab_size=35, rms_norm_eps=0.03, max_position_embeddings=128,
            tie_word_embeddings=True, bos_token_id=None, eos_token_id=5,
            rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "beta_fast": 8.0,
                             "original_max_position_embeddings": 32},
        ),
        variants=("rope_pairs", "no_scaling", "no_attention_factor", "no_head_norms", "other_renormalisation", "other_scores"),
    ),
    # A window shorter than the text on the first and third layer, sinks, every bias, gate and up values beyond the limit, YaRN as published.
    "gpt_oss/window": Golden(
        tokens=60,
        config=dict(
            model_type="gpt_oss", hidden_size=20, num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2, head_dim=8,
            intermediate_size=6, num_local_experts=6, num_experts_per_tok=3, sliding_window=17, swiglu_limit=1.0, vocab_size=41,
            rms_norm_eps=1e-5, max_position_embeddings=128, tie_word_embeddings=False, bos_token_id=None, eos_token_id=2, pad_token_id=None,
            rope_parameters={"rope_type": "yarn", "rope_theta": 150000.0, "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                             "original_max_position_embeddings": 32},
        ),
        variants=("rope_pairs", "no_scaling", "no_attention_factor", "heads_interleaved", "no_biases", "no_window", "window_longer",
                  "window_shorter", "windows_swapped", "other_renormalisation", "no_sinks", "no_router_bias", "no_expert_biases", "no_clamp",
                  "no_gain", "halves_of_experts"),
    ),
    # Sums of eight leaves in the experts (256), one key for both heads, a window longer than a block, the full layer first.
    "gpt_oss/wide": Golden(
        tokens=90,
        config=dict(
            model_type="gpt_oss", hidden_size=4, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=10,
            intermediate_size=256, num_local_experts=3, num_experts_per_tok=2, sliding_window=70, swiglu_alpha=1.5, swiglu_limit=2.0,
            layer_types=["full_attention", "sliding_attention"], vocab_size=35, rms_norm_eps=1e-5, max_position_embeddings=128,
            tie_word_embeddings=True, bos_token_id=None, eos_token_id=[3, 7], pad_token_id=None,
            rope_parameters={"rope_type": "default", "rope_theta": 150000.0},
        ),
        variants=("rope_pairs", "no_biases", "no_window", "window_longer", "window_shorter", "windows_swapped", "other_renormalisation", "no_sinks",
                  "no_router_bias", "no_expert_biases", "no_clamp", "no_gain", "halves_of_experts"),
        no_effect=("no_scaling", "heads_interleaved"),
    ),
    # Norms over all heads, RoPE on half of each head.
    "minimax_m2/norms": Golden(
        tokens=60,
        config=dict(
            model_type="minimax_m2", hidden_size=24, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2, head_dim=8,
            intermediate_size=6, num_local_experts=10, num_experts_per_tok=3, vocab_size=41, rms_norm_eps=1e-6,
            max_position_embeddings=128, tie_word_embeddings=False, bos_token_id=None, eos_token_id=None,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
        ),
        variants=("rope_pairs", "heads_interleaved", "no_head_norms", "norm_by_head", "whole_heads_turn", "bias_in_weights", "other_scores",
                  "other_renormalisation"),
    ),
    # Sums of eight leaves in the experts (256), one key for both heads.
    "minimax_m2/wide": Golden(
        tokens=70,
        config=dict(
            model_type="minimax_m2", hidden_size=6, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=12,
            intermediate_size=256, num_local_experts=4, num_experts_per_tok=2, vocab_size=35, rms_norm_eps=1e-6,
            max_position_embeddings=128, tie_word_embeddings=False, bos_token_id=None, eos_token_id=5,
            rope_parameters={"rope_type": "default", "rope_theta": 5000000.0, "partial_rotary_factor": 0.34},
        ),
        variants=("rope_pairs", "no_head_norms", "norm_by_head", "whole_heads_turn", "bias_in_weights"),
        no_effect=("heads_interleaved",),
    ),
    # Two of four groups of experts are kept and all of their experts chosen, some with a score below 0; YaRN beyond the original context, with its
    # square on the softmax's scale; a dense layer first; an epsilon so large that a wrong one shows.
    "deepseek_v3/groups": Golden(
        tokens=90,
        config=DEEPSEEK_SHARED | dict(
            hidden_size=20, num_hidden_layers=3, num_attention_heads=3, num_key_value_heads=3, q_lora_rank=12, kv_lora_rank=10,
            qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=5, first_k_dense_replace=1, intermediate_size=16,
            moe_intermediate_size=3, n_routed_experts=16, num_experts_per_tok=8, n_shared_experts=1, n_group=4, topk_group=2,
            norm_topk_prob=True, routed_scaling_factor=1.7, rms_norm_eps=0.03, vocab_size=41,
            rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 40.0, "beta_fast": 32.0, "beta_slow": 1.0,
                             "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 64},
        ),
        variants=("eps_a", "mla_other_rope", "bias_in_weights", "no_scaling", "no_softmax_factor", "no_groups", "groups_left_at_zero"),
    ),
    # No query latent, RoPE rotates halves, weights not renormalised, one group; sums of eight leaves in the dense MLP (256); YaRN with a factor on
    # cosines and sines too.
    "deepseek_v3/halves": Golden(
        tokens=71,
        config=DEEPSEEK_SHARED | dict(
            hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4, q_lora_rank=None, kv_lora_rank=9,
            qk_nope_head_dim=5, qk_rope_head_dim=6, v_head_dim=4, first_k_dense_replace=1, intermediate_size=256,
            moe_intermediate_size=5, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=2, n_group=1, topk_group=1,
            norm_topk_prob=False, routed_scaling_factor=2.5, rms_norm_eps=1e-6, vocab_size=35, rope_interleave=False,
            rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "mscale": 0.707, "mscale_all_dim": 1.0,
                             "original_max_position_embeddings": 32},
        ),
        variants=("mla_other_rope", "bias_in_weights", "no_scaling", "no_softmax_factor"),
        no_effect=("no_groups", "groups_left_at_zero"),
    ),
    # Kimi K2: deepseek_v3 under its own name, without groups.
    "kimi_k2/small": Golden(
        tokens=50,
        config=DEEPSEEK_SHARED | dict(
            model_type="kimi_k2", hidden_size=20, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, q_lora_rank=12,
            kv_lora_rank=10, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=5, first_k_dense_replace=1, intermediate_size=16,
            moe_intermediate_size=6, n_routed_experts=12, num_experts_per_tok=3, n_shared_experts=1, n_group=1, topk_group=1,
            norm_topk_prob=True, routed_scaling_factor=2.827, rms_norm_eps=1e-6, vocab_size=41,
            rope_parameters={"rope_type": "yarn", "rope_theta": 50000.0, "factor": 32.0, "beta_fast": 1.0, "beta_slow": 1.0,
                             "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 32},
        ),
        variants=("mla_other_rope", "bias_in_weights", "no_scaling", "no_softmax_factor"),
    ),
    # An indexer on every layer, whose RoPE rotates halves; groups and YaRN as deepseek_v3's.
    "deepseek_v32/indexed": Golden(
        tokens=81,
        config=DEEPSEEK_SHARED | dict(
            model_type="deepseek_v32", hidden_size=20, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=3, q_lora_rank=12,
            kv_lora_rank=10, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=5, first_k_dense_replace=1, intermediate_size=16,
            moe_intermediate_size=3, n_routed_experts=12, num_experts_per_tok=4, n_shared_experts=1, n_group=4, topk_group=2,
            norm_topk_prob=True, routed_scaling_factor=2.5, rms_norm_eps=0.03, vocab_size=41, index_n_heads=16, index_head_dim=10,
            index_topk=7,
            rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 40.0, "beta_fast": 32.0, "beta_slow": 1.0,
                             "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 64},
        ),
        variants=("eps_a", "no_relu", "indexer_other_rope", "mla_other_rope", "bias_in_weights", "no_scaling", "no_softmax_factor",
                  "no_groups"),
    ),
}  # fmt: skip
