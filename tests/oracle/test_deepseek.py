"""deepseek_v3, its other name kimi_k2, and deepseek_v32 against transformers: files written by one side are read by the other, and the numbers agree."""

import json
import shutil

from family_tests import (  # noqa: F401
    test_a_trained_export_loads_in_transformers_and_scores_alike,
    test_fresh_gradients_of_two_sequences, test_fresh_scores, test_golden_gradients, test_golden_scores,
    test_oracle_in_float32_meets_the_tolerances_on_fresh_configs, test_oracle_in_float32_meets_the_tolerances_on_goldens,
)  # fmt: skip
import golden_configs
import make_goldens
import numpy as np
import pytest
from oracle_cases import check_gradients_of_two_sequences, check_scores, fresh_case, fresh_seeds, golden_case

FAMILIES = ("deepseek_v3", "deepseek_v32")
EXPANDED = "cpu-f32-expanded"


@pytest.fixture(scope="module", params=[name for name in make_goldens.GOLDENS if name.split("/")[0] in (*FAMILIES, "kimi_k2")])
def golden(request, tmp_path_factory):
    return golden_case(request.param, tmp_path_factory.mktemp("golden"))


def random_config(family, seed):
    """Arguments of a random 2-layer config of odd sizes, and a sequence length: with and without groups, YaRN, a latent of the query."""
    rng = np.random.default_rng(seed)

    def between(low, high):
        return int(rng.integers(low, high + 1))

    heads, rope, groups, size = between(1, 6), 2 * between(2, 5), between(1, 4), between(3, 4)
    kept = between(1, groups)
    scaling = {"rope_type": "default"}
    if between(0, 2):
        scaling = {"rope_type": "yarn", "factor": float(rng.uniform(2, 40)), "mscale": [0.707, 1.0][between(0, 1)], "mscale_all_dim": 1.0,
                   "original_max_position_embeddings": between(16, 48)}  # fmt: skip
    config = golden_configs.DEEPSEEK_SHARED | dict(
        model_type=family, hidden_size=between(24, 80), num_hidden_layers=2, num_attention_heads=heads, num_key_value_heads=heads,
        q_lora_rank=between(12, 40), kv_lora_rank=between(12, 40), qk_nope_head_dim=between(5, 16), qk_rope_head_dim=rope,
        v_head_dim=between(5, 20), first_k_dense_replace=between(0, 1), intermediate_size=between(20, 80), moe_intermediate_size=between(8, 24),
        n_routed_experts=groups * size, num_experts_per_tok=between(2, kept * size), n_shared_experts=between(1, 2), n_group=groups, topk_group=kept,
        norm_topk_prob=bool(between(0, 1)), routed_scaling_factor=float(rng.uniform(0.5, 2.5)), rms_norm_eps=float(10 ** rng.uniform(-6, -1.5)),
        vocab_size=between(50, 300), rope_parameters=scaling | {"rope_theta": float(10 ** rng.uniform(4, 7))},
    )  # fmt: skip
    if family == "deepseek_v32":
        config |= dict(index_n_heads=between(16, 24), index_head_dim=rope + between(2, 10), index_topk=between(3, 20))
    else:
        config |= dict(q_lora_rank=[None, config["q_lora_rank"]][between(0, 1)], rope_interleave=bool(between(0, 1)))
    return config, between(24, 90)


@pytest.fixture(scope="module", params=[(f, s) for f in FAMILIES for s in fresh_seeds()], ids=lambda p: f"{p[0]}-seed{p[1]}")
def fresh(request, tmp_path_factory):
    family, seed = request.param
    return fresh_case(*random_config(family, seed), seed, tmp_path_factory.mktemp("fresh"))


# Each head's own keys and values in the cache, in training and serving alike.


def test_expanded_attention(lockstep, fresh):
    if fresh.config["model_type"] == "deepseek_v32":
        with pytest.raises(Exception, match="has an indexer, which selects keys that all heads share; allowed is cpu-f32"):
            lockstep.score(fresh.folder, [fresh.tokens], "train", EXPANDED)
        return
    check_scores(lockstep, fresh, EXPANDED)
    check_gradients_of_two_sequences(lockstep, fresh, EXPANDED)
    absorbed, expanded = (lockstep.score(fresh.folder, [fresh.tokens], "train", profile)[0]["bits"] for profile in ("cpu-f32", EXPANDED))
    assert absorbed != expanded


def test_kimi_k2_is_deepseek_v3_by_another_name(lockstep, tmp_path):
    golden = golden_case("kimi_k2/small", tmp_path / "kimi")
    shutil.copytree(golden.folder, tmp_path / "deepseek")
    config = json.loads((tmp_path / "deepseek" / "config.json").read_text())
    (tmp_path / "deepseek" / "config.json").write_text(json.dumps(config | {"model_type": "deepseek_v3"}))
    kimi, deepseek = (lockstep.score(folder, [golden.tokens], "train") for folder in (golden.folder, tmp_path / "deepseek"))
    assert config["model_type"] == "kimi_k2" and kimi == deepseek
