"""The arithmetic of bench/critic_right.py, ppo_study.py, distillations.py and specialists.py: correlation, intervals and budgets against NumPy and formulas written out, and what their pages say
where little or nothing was measured."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
import critic_right  # noqa: E402
import distillations  # noqa: E402
import ppo_study  # noqa: E402
import ppo_study_page  # noqa: E402
import specialists  # noqa: E402

RANDOM = np.random.default_rng(7)


def measured(values, means, zeros=None, failing=(-0.5, -0.3), routine=((1.0, 10), (-2.0, 40))):
    """A result of critic_states."""
    row = {"lambda": critic_right.JUDGED, "failing": list(failing), "routine_sum": [s for s, _ in routine], "routine_tokens": [n for _, n in routine]}
    other = row | {"lambda": 0.95, "failing": [1.0]}
    silent = row | {"failing": [0.0], "routine_sum": [0.0], "routine_tokens": [5]}
    states = [{"value": v, "mean": m, "zeros": z} for v, m, z in zip(values, means, zeros or [0.5] * len(values), strict=True)]
    return {"reward": 0.5, "continuations": 64, "states": states, "advantages": [other, row], "advantages_zeros": [silent | {"lambda": 0.95}, silent], "explained_variance": 0.25}


def test_values_are_compared_as_numpy_does():
    values, means = RANDOM.random(100), RANDOM.random(100)
    got = critic_right.figures(measured(list(values), list(means)))
    assert got["correlation"] == pytest.approx(np.corrcoef(values, means)[0, 1], rel=1e-12)
    assert got["error"] == pytest.approx(np.sqrt(np.mean((values - means) ** 2)), rel=1e-12)
    assert got["failing"] == pytest.approx(-0.4)
    assert got["routine"] == pytest.approx(-1.0 / 50)  # over tokens, not over rollouts
    assert got["failed"] == 2


def test_a_critic_that_says_one_number_meets_no_bar():
    means = list(RANDOM.random(50))
    got = critic_right.figures(measured(means, means), zeros=True)
    assert got["correlation"] is None
    assert critic_right.bars(got) == {"values": False, "advantages": False}
    assert critic_right.bars(critic_right.figures(measured(means, means))) == {"values": True, "advantages": True}


@pytest.mark.parametrize("change", [{"correlation": 0.79}, {"error": 0.16}])
def test_bars_of_values(change):
    good = {"correlation": 0.9, "error": 0.1, "failing": -0.4, "routine": 0.0}
    assert critic_right.bars(good) == {"values": True, "advantages": True}
    assert critic_right.bars(good | change) == {"values": False, "advantages": True}


@pytest.mark.parametrize("change", [{"failing": -0.29}, {"routine": 0.11}, {"routine": -0.11}, {"failing": None, "routine": None}])
def test_bars_of_advantages(change):
    good = {"correlation": 0.9, "error": 0.1, "failing": -0.4, "routine": 0.0}
    assert critic_right.bars(good | change) == {"values": True, "advantages": False}


def test_the_page_says_what_is_missing():
    settings = {"policy": "p", "rollouts": 2, "states": 3, "continuations": 4, "version": "v"}
    said = critic_right.text("lockbox", settings, {(critic_right.MAIN, 1): measured([0.0, 0.0], [0.0, 0.0], failing=(), routine=())})
    assert "| carried, summaries trained | 1 | 0.250 | - | 0.000 | - | - |" in said
    assert "Not measured yet: carried, summaries not trained" in said and said.count("not met") == 2
    assert "Not measured yet" not in critic_right.text("dozen", settings, {(critic_right.MAIN, 1): measured([0.0, 0.1], [0.0, 0.1])})


def test_the_page_shows_every_lambda_and_every_number_of_steps():
    settings = {"policy": "p", "rollouts": 2, "states": 3, "continuations": 4, "version": "v"}
    good, bad = measured([0.2, 0.8], [0.2, 0.8], zeros=[0.1, 0.1]), measured([0.8, 0.2], [0.2, 0.8])
    said = critic_right.text("dozen", settings, {(critic_right.MAIN, 100): bad, (critic_right.MAIN, 1000): good})
    assert "| the critic | 100 | 0.250 | -1.000 |" in said and "| the critic | 1,000 | 0.250 | 1.000 | 0.000 | -0.400 | -0.020 |" in said
    assert said.count("fed zeros (control)") == 1 and ": met; failing action" in said  # the bars are of the most steps
    assert "| 0.95 | 1.000 | -0.020 | 0.000 | 0.000 |" in said and "| 0 (judged) | -0.400 | -0.020 | 0.000 | 0.000 |" in said
    assert f"at most {np.sqrt(0.16 / 64):.3f}" in said


def test_results_of_fewer_steps_come_first(tmp_path):
    (tmp_path / "results").mkdir()
    for name in ("dozen", f"dozen-{critic_right.named(critic_right.MAIN)}-1000", f"dozen-{critic_right.named(critic_right.MAIN)}-400", "lockbox-terminal-summaries-trained-100"):
        (tmp_path / f"results/{name}.json").write_text("{}")
    assert list(critic_right.results_of(tmp_path, "dozen")) == [(critic_right.MAIN, 400), (critic_right.MAIN, 1000)]
    assert list(critic_right.results_of(tmp_path, "lockbox")) == [("terminal, summaries trained", 100)]


def test_intervals_are_students():
    values = [0.1, 0.4, 0.2, 0.5, 0.3]
    mean, low, high = ppo_study_page.interval(values)
    half = 2.776 * np.std(values, ddof=1) / np.sqrt(5)
    assert (mean, low, high) == pytest.approx((np.mean(values), np.mean(values) - half, np.mean(values) + half))
    assert ppo_study_page.interval([0.1, 0.9])[1:] == (None, None)


def test_ahead_only_where_intervals_are_disjoint():
    low, high, over = (0.2, 0.1, 0.3), (0.5, 0.4, 0.6), (0.3, 0.25, 0.45)
    assert ppo_study_page.verdict({"ppo": high, "grpo": low}) == "PPO ahead"
    assert ppo_study_page.verdict({"ppo": low, "grpo": high}) == "GRPO ahead"
    assert ppo_study_page.verdict({"ppo": over, "grpo": low}) == "not told apart"
    assert ppo_study_page.verdict({"ppo": high, "grpo": over}) == "not told apart"
    assert ppo_study_page.verdict({"ppo": high, "grpo": (0.1, None, None)}) == "too few seeds"


def rows(count, rollout=0.5, train=0.25, critic=0.25):
    return [{"reward": i / count, "rollout_seconds": rollout, "train_seconds": train, "critic_seconds": critic, "zero_spread": 0.5} for i in range(count)]


def test_a_processors_seconds_are_divided_as_the_clock_divides_them():
    steps = ppo_study.steps_of(rows(10), 5.0, 32)  # 10 s by the clock, half of them rollouts
    assert [step[1] for step in steps] == [32 * (i + 1) for i in range(10)]
    assert steps[-1][2:4] == [2.5, 5.0]
    assert ppo_study.steps_of(rows(10), None, 32)[-1][2:4] == [5.0, 10.0]  # of a resumed cell: the clock's


def test_success_is_of_the_steps_within_the_budget():
    steps = ppo_study.steps_of(rows(100), None, 10)
    rewards = np.arange(100) / 100
    assert ppo_study_page.success(steps, ppo_study_page.SAMPLES, 500) == pytest.approx(np.mean(rewards[40:50]))
    assert ppo_study_page.success(steps, ppo_study_page.SAMPLES, 509) == ppo_study_page.success(steps, ppo_study_page.SAMPLES, 500)
    assert ppo_study_page.success(steps, ppo_study_page.WHOLE, 100) == pytest.approx(np.mean(rewards[90:]))
    assert ppo_study_page.success(steps, ppo_study_page.SAMPLES, 90) is None  # nine steps are no window


def test_rates_are_chosen_by_the_last_third():
    def cell(rate, late, early):
        return {"rate": rate, "steps": [[early, 0, 0, 0, 0]] * 20 + [[late, 0, 0, 0, 0]] * 10}

    assert ppo_study.chosen_rate([cell(1e-4, 0.5, 0.9), cell(1e-4, 0.5, 0.9), cell(3e-4, 0.6, 0.1), cell(3e-4, 0.5, 0.1)]) == 3e-4
    assert ppo_study.chosen_rate([cell(3e-4, 0.5, 0.1), cell(1e-4, 0.5, 0.1)]) == 1e-4
    assert not set(ppo_study.CHOOSING) & {1, 2, 3, 4, 5}


def whole_cell(algorithm, seed, reward, size=32):
    return {"task": "countdown", "algorithm": algorithm, "size": size, "rate": 1e-4, "seed": seed, "different_bits": 0, "clock": False,
            "steps": ppo_study.steps_of([row | {"reward": reward + seed / 1000} for row in rows(50)], None, size),
            "end": {key: {"value": reward, "low": reward, "high": reward} for key in ("pass_at_1", "greedy")}}  # fmt: skip


def test_the_page_compares_seeds_that_both_have():
    start = {key: {"value": 0.3, "low": 0.2, "high": 0.4} for key in ("pass_at_1", "greedy")}
    settings = {"choosing": [101], "rates": [1e-4], "version": "v", "tasks": {task: {"steps": {"32": 1, "256": 1}} for task in ("countdown", "lockbox", "other")}}
    data = {"settings": settings, "start": {"countdown": start, "lockbox": {k: v | {"value": 0.0} for k, v in start.items()}},
            "cells": [whole_cell("ppo", seed, 0.6) for seed in (1, 2, 3, 4)] + [whole_cell("grpo", seed, 0.4) for seed in (1, 2, 3)] + [whole_cell("ppo", 101, 0.9)]}  # fmt: skip
    said = ppo_study_page.text(data)
    assert "Seeds 1, 2, 3; rates PPO 0.0001, GRPO 0.0001" in said
    assert "| 1,600 rollouts | 0.602" in said and "PPO ahead" in said and "GRPO ahead" not in said
    assert "| groups without signal | none | 50.0% | |" in said
    assert said.index("## lockbox") < said.index("no cell was run") < said.index("(../models/agent-glm/README.md#limits). The bar, 0.8 in every seed, is not met.")
    assert said.index("Not run yet: 256 rollouts a step.") < said.index("## lockbox") and "## other\n\nNot run yet." in said


def test_losses_of_distillation_are_means_of_equal_parts():
    losses = list(RANDOM.random(203))
    assert distillations.parts(losses) == pytest.approx([np.mean(losses[i * 50 : (i + 1) * 50]) for i in range(4)])
    rate = {"value": 0.5, "low": 0.4, "high": 0.6}
    rates = dict.fromkeys(distillations.TASKS, rate)
    row = {"way": "top", "steps": 200, "losses": [4.0, 3.0, 2.0, 1.0], "processor_seconds": None, "different_bits": 0, "tokens": 1000, "end": rates}
    said = distillations.table(rates, rates, [row], ["forward", "top"])
    assert "| `distill_top` | 4 | 3 | 2 | 1 | 0.500 [0.400, 0.600] | 0.500 [0.400, 0.600] |  | 0 of 1,000 |" in said
    assert "steps 1-50 | 51-100 | 101-150 | 151-200 |" in said and said.endswith("Not measured yet: `forward`.")
    header, line, *rows = said.splitlines()[:5]
    assert all(row.count("|") == header.count("|") == line.count("|") for row in rows)


SPECIALISTS = {"method": "sft", "steps": "200", "batch": "32", "distill_steps": "600", "distill_prompts": "4", "problems": "1000", "version": "v"}


def of_tasks(distilled, tasks=specialists.TASKS):
    """Rows of one seed, as results.json has them."""
    labels = {"specialist": 0.9, "before": 0.5, "distilled": distilled, "sequential": 0.6, "mixed": 0.8, "sequential, after its turn": 0.7}
    return {task: {label: {"value": value} for label, value in labels.items()} for task in tasks}


def test_specialists_are_compared_with_their_own_seed():
    near, far = of_tasks(0.881), of_tasks(0.881)
    far["sort"]["distilled"] = {"value": 0.87}
    said = specialists.text(SPECIALISTS, {"1": near, "2": near, "3": near})
    assert "| `sort` | 0.500 | 0.900 | 0.881 | 0.600 (0.700) | 0.800 |" in said and "12 of 12 tasks. The bar, all 12 tasks in 3 seeds: met." in said
    assert "runs on all tasks of 2,400 steps" in said and "600 steps of 48 prompts" in said and "average" not in said
    said = specialists.text(SPECIALISTS, {"1": near, "2": far, "3": near})  # one seed is enough
    assert "11 of 12 tasks; further below, at most: `sort` 3.0. The bar, all 12 tasks in 3 seeds: not met." in said
    assert f"| `sort` | 0.500 | 0.900 | {np.mean([0.881, 0.87, 0.881]):.3f} |" in said
    for results in ({"1": near, "2": near}, {str(seed): of_tasks(0.9, ["sort", "add"]) for seed in (1, 2, 3)}):  # too few seeds, too few tasks
        assert "in 3 seeds: not met." in specialists.text(SPECIALISTS, results)
