"""llama and qwen3 against transformers: files written by one side are read by the other, and the numbers agree."""

import json

import make_goldens
import numpy as np
import pytest
from oracle_cases import (
    check_float32_oracle, check_gradients, check_gradients_of_two_sequences, check_scores, check_transformers_agrees,
    fresh_case, fresh_seeds, golden_case,
)  # fmt: skip


@pytest.fixture(scope="module", params=[name for name in make_goldens.GOLDENS if not name.startswith("glm_moe_dsa/")])
def golden(request, tmp_path_factory):
    return golden_case(request.param, tmp_path_factory.mktemp("golden"))


def random_config(family, seed):
    """Arguments of a random 2-layer config of odd sizes, and a sequence length: every scaling, groups of 1 to 5 heads."""
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
    return config, between(24, 90)


@pytest.fixture(scope="module", params=[(f, s) for f in ("llama", "qwen3") for s in fresh_seeds()], ids=lambda p: f"{p[0]}-seed{p[1]}")
def fresh(request, tmp_path_factory):
    family, seed = request.param
    return fresh_case(*random_config(family, seed), seed, tmp_path_factory.mktemp("fresh"))


# The oracle by itself: the folder transformers saved loads again, and float32 meets the tolerances asked of lockstep.


def test_oracle_in_float32_meets_the_tolerances_on_goldens(golden):
    check_float32_oracle(golden)


def test_oracle_in_float32_meets_the_tolerances_on_fresh_configs(fresh):
    check_float32_oracle(fresh)


# Their checkpoint, our numbers.


def test_golden_scores(lockstep, golden):
    check_scores(lockstep, golden)


def test_golden_gradients(lockstep, golden):
    check_gradients(lockstep.grad(golden.folder, [golden.tokens]), golden, golden.grads)


def test_fresh_scores(lockstep, fresh):
    check_scores(lockstep, fresh)


def test_fresh_gradients_of_two_sequences(lockstep, fresh):
    check_gradients_of_two_sequences(lockstep, fresh)


# Our checkpoint, their numbers.


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_a_trained_export_loads_in_transformers_and_scores_alike(lockstep, fresh, tmp_path, dtype):
    data = tmp_path / "data.jsonl"
    line = {"tokens": [int(t) for t in fresh.tokens], "weights": [1.0] * (len(fresh.tokens) - 1)}
    data.write_text(json.dumps(line) + "\n")
    lockstep.run(
        "train", "sft", "--model", fresh.folder, "--data", data, "--runs", tmp_path, "--name", "run", "--steps", 3, "--batch", 2,
        "--learning-rate", 0.01, "--warmup", 0, "--export-dtype", dtype, "--export-to", tmp_path / "export", "--quiet",
    )  # fmt: skip
    before, after = (lockstep.score(folder, [fresh.tokens], "decode")[0]["logprobs"] for folder in (fresh.folder, tmp_path / "export"))
    assert np.mean(after) > np.mean(before) + 0.1, "three steps on one text did not make it likelier"
    check_transformers_agrees(lockstep, tmp_path / "export", fresh.tokens)
