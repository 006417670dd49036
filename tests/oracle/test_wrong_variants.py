"""Planted faults: what a wrong program would compute is further from a golden than the golden's bar allows, for every mistake that a golden is meant to
catch (tools/golden_configs.py). The wrong logits come from the NumPy forward, one knob turned; the right ones lie far below the bar."""

import json

import golden_weights
import make_goldens
import numpy as np
import pytest
from comparison import relative_error
from safetensors import safe_open

BAR = 1e-5  # of tests/system/golden_test.cpp
# What can go wrong in a family of this kind, and the variants that do it: each is caught by some golden.
FAULTS = {
    "a group's mask is 0 instead of -infinity": ["groups_left_at_zero"],
    "groups are not looked at": ["no_groups"],
    "YaRN's square is left out of the softmax's scale": ["no_softmax_factor"],
    "the indexer turns pairs for halves, or halves for pairs": ["indexer_other_rope"],
    "attention turns the other way": ["mla_other_rope", "rope_pairs"],
    "a norm of each head for one of all heads": ["norm_by_head"],
    "the window is one key longer, or shorter": ["window_longer", "window_shorter"],
    "no window": ["no_window"],
    "no sinks": ["no_sinks"],
    "no biases: of linear layers, of the router, of experts": ["no_biases", "no_router_bias", "no_expert_biases"],
    "the correction bias stays in the weights": ["bias_in_weights"],
    "no clamp, no gain": ["no_clamp", "no_gain"],
    "gate and up in halves for in turn": ["halves_of_experts"],
    "weights are renormalised, or are not": ["other_renormalisation"],
    "a sigmoid for a softmax, or the other way": ["other_scores"],
    "the whole head turns": ["whole_heads_turn"],
}


def golden(name):
    config = json.loads((make_goldens.FOLDER / name / "config.json").read_text())
    with safe_open(make_goldens.FOLDER / name / "golden.safetensors", "np") as file:
        seed, tokens, logits = int(file.metadata()["seed"]), file.get_tensor("tokens"), file.get_tensor("logits")
    return config, golden_weights.weights(config, seed), tokens, logits


@pytest.mark.parametrize("name", list(make_goldens.GOLDENS))
def test_every_wrong_variant_misses_the_bar_of_its_golden(name):
    config, weights, tokens, logits = golden(name)
    assert relative_error(make_goldens.numpy_forward(config, weights, tokens)[0], logits) < BAR / 10
    variants, wrong = make_goldens.wrong_variants(config), {}
    for variant in make_goldens.GOLDENS[name].variants:
        error = relative_error(make_goldens.numpy_forward(config, weights, tokens, variants[variant])[0], logits)
        if not error > 10 * BAR:
            wrong[variant] = error
    assert not wrong, f"the golden cannot tell these from the right program: {wrong}"


def test_every_fault_has_a_golden_that_catches_it():
    caught = {variant for g in make_goldens.GOLDENS.values() for variant in g.variants}
    assert not {fault: lacking for fault, variants in FAULTS.items() if (lacking := [v for v in variants if v not in caught])}


@pytest.mark.parametrize("name,key,change", [("mistral/window", "sliding_window", 1), ("gpt_oss/window", "sliding_window", -1), ("gpt_oss/wide", "swiglu_limit", 1.0),
                                             ("deepseek_v3/groups", "topk_group", 1), ("deepseek_v32/indexed", "index_topk", 1), ("kimi_k2/small", "mscale_all_dim", -1.0),
                                             ("minimax_m2/norms", "partial_rotary_factor", 0.5)])  # fmt: skip
def test_a_wrong_config_misses_the_bar_in_lockstep(lockstep, tmp_path, name, key, change):
    """The program itself, told something else than the golden was made with."""
    from oracle_cases import golden_case

    case = golden_case(name, tmp_path / "right")
    config = json.loads((case.folder / "config.json").read_text())
    holder = config if key in config else config["rope_parameters"]

    def error():
        return relative_error(np.array(lockstep.score(case.folder, [case.tokens], "train")[0]["logprobs"]), case.logprobs)

    assert error() <= BAR
    holder[key] += change
    (case.folder / "config.json").write_text(json.dumps(config))
    assert error() > 10 * BAR
