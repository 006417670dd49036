"""The first tenth of a lesson of bench/families.py: qwen3_moe, 300 steps of Countdown from random weights, then two of reinforcement learning.

It learns (the loss falls, some held-out problems are solved), and no token of the rollouts has other bits than the trainer's. The whole
lessons, of 3,000 steps and every family, are docs/families.md. PPO with a critic learns from single rollouts, by the recipe of its own. And every recipe makes a model of its family, of at most a million active parameters.
"""
import os
import sys
from statistics import fmean

from harness import BINARY, ROOT, TMP, check, lockstep

os.environ["LOCKSTEP_BINARY"] = str(BINARY)
sys.path.insert(0, str(ROOT / "bench"))
import families  # noqa: E402

FAMILY, STEPS = "qwen3_moe", 300

with check("learns"):
    taught = families.teach(FAMILY, TMP, STEPS, 2)
    losses = [row["loss"] for row in families.metrics(TMP / "runs" / f"{FAMILY}-sft")]
    first, last = fmean(losses[:5]), fmean(losses[-10:])
    assert len(losses) == STEPS and first > 5 and last < 0.8, f"the loss fell from {first:.2f} to {last:.2f} in {len(losses)} steps, expected is below 0.8"
    solved = families.lockstep("eval", "countdown", "--model", taught, "--n", 500, "--samples", 1)["greedy"]["value"]
    assert solved > 0.02, f"{solved:.3f} of held-out problems are solved, expected is more than 0.02"

with check("no-bit-differs"):
    learned = families.reinforce(FAMILY, TMP, taught, 2, 2)
    assert learned["tokens"] > 4000 and learned["different_bits"] == 0 and learned["k3"] == 0, learned

with check("ppo-from-single-rollouts"):
    # A critic learns beside the policy from one rollout a problem; fixed seeds, so the numbers are the same on every machine.
    before = families.lockstep("eval", "countdown", "--model", ROOT / "models" / "countdown-glm", "--n", 2000, "--samples", 2)["pass_at_1"]
    done = families.lockstep("train", "rl", "--config", ROOT / "recipes" / "countdown_ppo.toml", "--runs", TMP / "ppo", "--no-page", "--quiet")
    assert done["different_bits"] == 0 and done["kl"]["k3"] == 0, done
    after = families.lockstep("eval", "countdown", "--model", done["export"], "--n", 2000, "--samples", 2)["pass_at_1"]
    print(f"pass@1 {before['value']:.3f} [{before['low']:.3f}, {before['high']:.3f}] before, {after['value']:.3f} [{after['low']:.3f}, {after['high']:.3f}] after")
    assert after["value"] >= before["value"] + 0.06 and after["low"] > before["high"], (before, after)

with check("recipes"):
    told = families.lockstep("info", "--families")["families"]
    assert families.all_families() == sorted(f["model_type"] for f in told), "recipes/families and the registry differ"
    for family in families.all_families():
        folder = families.model_folder(family, TMP / "models" / family)
        assert lockstep("plan", "--model", folder, "--length", "16", "--memory-megabytes", "4096").returncode == 0, family
        assert families.recipe_of(family)["model"]["model_type"] == family
