"""glm_moe_dsa against transformers: files written by one side are read by the other, and the numbers agree."""

import json

import golden_configs
import make_goldens
import numpy as np
import pytest
import torch
from conftest import REPOSITORY
from family_tests import (  # noqa: F401
    test_fresh_gradients_of_two_sequences, test_fresh_scores, test_golden_gradients, test_golden_scores,
    test_oracle_in_float32_meets_the_tolerances_on_fresh_configs, test_oracle_in_float32_meets_the_tolerances_on_goldens,
)  # fmt: skip
from oracle_cases import check_transformers_agrees, fresh_case, fresh_seeds, golden_case, tokens_far_from_ties
from safetensors.torch import load_file

EXPORTED_MODEL = REPOSITORY / "models" / "countdown-glm"


@pytest.fixture(scope="module", params=[name for name in make_goldens.GOLDENS if name.startswith("glm_moe_dsa/")])
def golden(request, tmp_path_factory):
    return golden_case(request.param, tmp_path_factory.mktemp("golden"))


def random_config(seed):
    """Arguments of a random 2-layer config of odd sizes, and a sequence length.

    At least two experts a token: a single renormalised one has weight 1, so that the router gets no gradient but noise.
    """
    rng = np.random.default_rng(seed)

    def between(low, high):
        return int(rng.integers(low, high + 1))

    heads, rope, experts = between(1, 8), 2 * between(2, 5), between(3, 13)
    config = golden_configs.GLM_MOE_DSA_SHARED | dict(
        hidden_size=between(24, 100), num_hidden_layers=2, num_attention_heads=heads, num_key_value_heads=heads,
        q_lora_rank=between(12, 48), kv_lora_rank=between(12, 48), qk_nope_head_dim=between(5, 16),
        qk_rope_head_dim=rope, v_head_dim=between(5, 20), index_head_dim=rope + between(2, 10),
        index_n_heads=between(16, 24), index_topk=between(3, 20), indexer_types=["full", ["full", "shared"][between(0, 1)]],
        first_k_dense_replace=between(0, 1), intermediate_size=between(20, 80), moe_intermediate_size=between(8, 24),
        n_routed_experts=experts, num_experts_per_tok=between(2, min(4, experts - 1)), n_shared_experts=between(1, 2),
        norm_topk_prob=bool(between(0, 1)), routed_scaling_factor=float(rng.uniform(0.5, 2.5)),
        rms_norm_eps=float(10 ** rng.uniform(-6, -1.5)), vocab_size=between(50, 300),
        rope_parameters={"rope_type": "default", "rope_theta": float(10 ** rng.uniform(4, 7))},
    )  # fmt: skip
    return config, between(24, 90)


@pytest.fixture(scope="module", params=fresh_seeds(), ids=lambda seed: f"seed{seed}")
def fresh(request, tmp_path_factory):
    return fresh_case(*random_config(request.param), request.param, tmp_path_factory.mktemp("fresh"))


def test_exported_model_loads_in_transformers_and_scores_alike(lockstep):
    if not (EXPORTED_MODEL / "config.json").exists() and not list(EXPORTED_MODEL.glob("*.safetensors")):
        pytest.skip(f"{EXPORTED_MODEL} holds no model yet (neither config.json nor weights); nothing to load")
    config = json.loads((EXPORTED_MODEL / "config.json").read_text())
    stored = {k: t for file in EXPORTED_MODEL.glob("*.safetensors") for k, t in load_file(file).items()}
    for name, value in stored.items():
        expected = torch.float32 if name.endswith("e_score_correction_bias") else torch.bfloat16
        assert value.dtype == expected, f"{name} is {value.dtype} in the file"
    weights = {name: value.float().numpy() for name, value in stored.items()}
    check_transformers_agrees(lockstep, EXPORTED_MODEL, tokens_far_from_ties(config, weights, min(96, config["max_position_embeddings"])))
