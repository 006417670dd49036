"""The families of grouped attention against transformers: files written by one side are read by the other, and the numbers agree."""

import json
import shutil

from family_tests import (  # noqa: F401
    test_a_trained_export_loads_in_transformers_and_scores_alike,
    test_fresh_gradients_of_two_sequences, test_fresh_scores, test_golden_gradients, test_golden_scores,
    test_oracle_in_float32_meets_the_tolerances_on_fresh_configs, test_oracle_in_float32_meets_the_tolerances_on_goldens,
)  # fmt: skip
import golden_weights
import make_goldens
import numpy as np
import pytest
from oracle_cases import fresh_case, fresh_seeds, golden_case, with_fused_experts
from transformers import AutoConfig


@pytest.fixture(scope="module", params=[name for name in make_goldens.GOLDENS if name.split("/")[0] in golden_weights.GROUPED])
def golden(request, tmp_path_factory):
    return golden_case(request.param, tmp_path_factory.mktemp("golden"))


def random_config(family, seed):
    """Arguments of a random 2-layer config of odd sizes, and a sequence length: every scaling, groups of 1 to 5 heads, windows, experts."""
    rng = np.random.default_rng(seed)

    def between(low, high):
        return int(rng.integers(low, high + 1))

    group, kv_heads, original = between(1, 5), between(1, 3), between(16, 48)
    heads = group * kv_heads
    rope = {"rope_theta": float(10 ** rng.uniform(4, 6.5)), "rope_type": ["default", "linear", "llama3", "yarn"][between(0, 3)]}
    if rope["rope_type"] != "default":
        rope["factor"] = float(rng.uniform(1.5, 9))
    if rope["rope_type"] in ("llama3", "yarn"):
        rope["original_max_position_embeddings"] = original
    if rope["rope_type"] == "llama3":
        rope |= {"low_freq_factor": 1.0, "high_freq_factor": float(rng.uniform(2, 5))}
    if rope["rope_type"] == "yarn":
        rope |= {"beta_fast": float(rng.uniform(3, 32)), "truncate": bool(between(0, 1))}
    config = dict(
        # transformers wants a Llama's hidden size to be a multiple of its heads, whatever head_dim is
        model_type=family, hidden_size=heads * between(3, 9), num_hidden_layers=2, num_attention_heads=heads,
        num_key_value_heads=kv_heads, head_dim=2 * between(3, 12), intermediate_size=between(20, 80),
        rms_norm_eps=float(10 ** rng.uniform(-6, -1.5)), vocab_size=between(50, 300), max_position_embeddings=512,
        tie_word_embeddings=bool(between(0, 1)), bos_token_id=None, eos_token_id=1, rope_parameters=rope,
    )  # fmt: skip
    experts = between(3, 13)
    chosen = between(2, min(4, experts - 1))  # a single renormalised one has weight 1, so that the router gets no gradient but noise
    if family == "qwen2":
        config["hidden_size"] = config["num_attention_heads"] * config.pop("head_dim")
    if family == "mistral":
        config["sliding_window"] = [None, between(1, 40), between(60, 80)][between(0, 2)]
    if family == "qwen3_moe":
        config |= dict(num_experts=experts, num_experts_per_tok=chosen, moe_intermediate_size=between(8, 24), norm_topk_prob=bool(between(0, 1)),
                       mlp_only_layers=[[], [0], [1]][between(0, 2)], decoder_sparse_step=1)  # fmt: skip
    if family == "minimax_m2":
        config |= dict(num_local_experts=experts, num_experts_per_tok=chosen, tie_word_embeddings=False)
        rope["partial_rotary_factor"] = 2 * between(1, config["head_dim"] // 2) / config["head_dim"]
    if family == "gpt_oss":
        kinds = ["full_attention", "sliding_attention"]
        config |= dict(num_local_experts=experts, num_experts_per_tok=chosen, sliding_window=[between(1, 40), between(60, 80)][between(0, 1)],
                       layer_types=[None, [kinds[between(0, 1)], kinds[between(0, 1)]]][between(0, 1)], swiglu_limit=float(rng.uniform(0.5, 4)),
                       swiglu_alpha=float(rng.uniform(0.8, 2)))  # fmt: skip
    return config, between(24, 90)


@pytest.fixture(scope="module", params=[(f, s) for f in golden_weights.GROUPED for s in fresh_seeds()], ids=lambda p: f"{p[0]}-seed{p[1]}")
def fresh(request, tmp_path_factory):
    family, seed = request.param
    return fresh_case(*random_config(family, seed), seed, tmp_path_factory.mktemp("fresh"))


def check_same_model(lockstep, folder, other, tokens):
    """Equal log-probabilities and gradients, bit for bit."""
    scores = [lockstep.score(f, [tokens], "train") for f in (folder, other)]
    gradients = [lockstep.grad(f, [tokens]) for f in (folder, other)]
    assert scores[0] == scores[1] and gradients[0].keys() == gradients[1].keys()
    assert not [name for name, value in gradients[0].items() if not np.array_equal(value.view(np.uint32), gradients[1][name].view(np.uint32))]


@pytest.mark.parametrize("name", ["qwen3_moe/between", "minimax_m2/norms", "deepseek_v3/groups", "deepseek_v32/indexed", "kimi_k2/small"])
def test_fused_experts_are_the_same_model(lockstep, tmp_path, name):
    case = golden_case(name, tmp_path / "apart")
    check_same_model(lockstep, case.folder, with_fused_experts(case, tmp_path / "fused"), case.tokens)


def with_older_keys(config):
    """The same config.json as folders of earlier years have it."""
    older = dict(config)
    rope = dict(older.pop("rope_parameters"))
    older["rope_theta"] = rope.pop("rope_theta")
    if "partial_rotary_factor" in rope:
        older["rotary_dim"] = int(older["head_dim"] * rope.pop("partial_rotary_factor"))
    kind = rope.pop("rope_type")
    older["rope_scaling"] = {"type": kind, **rope} if kind != "default" else None
    for now, before in (("num_local_experts", "num_experts"), ("num_experts", "num_local_experts")):
        if now in config and before not in config:
            older[before] = older.pop(now)
            break
    return older


@pytest.mark.parametrize("name", ["llama/scaled", "qwen2/biased", "qwen3/yarn", "mistral/window", "qwen3_moe/every-second", "minimax_m2/norms", "gpt_oss/window",
                                  "deepseek_v3/groups", "deepseek_v32/indexed", "glm_moe_dsa/wide"])  # fmt: skip
def test_older_config_keys_are_the_same_model(lockstep, tmp_path, name):
    case = golden_case(name, tmp_path / "now")
    shutil.copytree(case.folder, tmp_path / "older")
    config = json.loads((case.folder / "config.json").read_text())
    older = with_older_keys(config)
    assert "rope_parameters" not in older and older.keys() != config.keys()
    (tmp_path / "older" / "config.json").write_text(json.dumps(older))
    check_same_model(lockstep, case.folder, tmp_path / "older", case.tokens)
    theirs = AutoConfig.from_pretrained(tmp_path / "older").rope_parameters  # transformers reads them alike
    assert theirs["rope_theta"] == config["rope_parameters"]["rope_theta"] and theirs["rope_type"] == config["rope_parameters"]["rope_type"]
