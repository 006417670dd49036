"""The first tenth of a lesson of bench/families.py: qwen3_moe, 300 steps of Countdown from random weights, then two of reinforcement learning.

It learns (the loss falls, some held-out problems are solved), and no token of the rollouts has other bits than the trainer's. The whole
lessons, of 3,000 steps and every family, are docs/families.md. And every recipe makes a model of its family, of at most a million active parameters.
Every algorithm of train rl has a recipe that runs, every way of train distill too, and every loss of train preference one whose pairs are learnt, to the published
weights (with --publish: which are then written). PPO with single rollouts learns Countdown, to the published weights.
"""
import json
import os
import re
import sys
from statistics import fmean

from harness import AGENT, BINARY, ROOT, TMP, check, lockstep
from learned import published

os.environ["LOCKSTEP_BINARY"] = str(BINARY)
sys.path.insert(0, str(ROOT / "bench"))
import algorithms  # noqa: E402
import distillations  # noqa: E402
import families  # noqa: E402
import preferences  # noqa: E402

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

with check("recipes"):
    told = families.lockstep("info", "--families")["families"]
    assert families.all_families() == sorted(f["model_type"] for f in told), "recipes/families and the registry differ"
    for family in families.all_families():
        folder = families.model_folder(family, TMP / "models" / family)
        assert lockstep("plan", "--model", folder, "--length", "16", "--memory-megabytes", "4096").returncode == 0, family
        assert families.recipe_of(family)["model"]["model_type"] == family

with check("algorithms"):
    names = re.search(r"--algorithm NAME.*?default custom;([^)]*)\)", lockstep("train", "rl", "--help").stdout, re.S)[1]
    assert algorithms.all_algorithms() == sorted(set(re.findall(r"\w+", names)) - {"custom"}), names
    for name in algorithms.all_algorithms():
        few = [word for key, value in {"steps": 1, "warmup": 1, "problems": 2}.items() for word in ("--set", f"{key}={value}")]
        done = lockstep("train", "rl", "--config", ROOT / f"recipes/countdown_{name}.toml", "--runs", TMP / "runs", "--no-page", "--json", *few)
        assert done.returncode == 0 and families.metrics(TMP / "runs" / f"countdown-{name.replace('_', '-')}")[0]["different_bits"] == 0, (name, done.stderr)

with check("single-rollouts"):
    hash_of_page = re.search(r"`recipes/countdown_ppo.toml` ends with\s+the weights `([0-9a-f]{64})`", (ROOT / "docs/rl.md").read_text())[1]
    run = TMP / "single"
    told = families.lockstep("train", "rl", "--config", ROOT / "recipes/countdown_ppo.toml", "--set", f"model={ROOT / 'models/countdown-glm'}", "--runs", run, "--no-page")
    before, after = (families.evaluate(model, 2)["pass_at_1"] for model in (ROOT / "models/countdown-glm", run / "countdown-ppo/export"))
    print(f"pass@1 {before} to {after}, {told['different_bits']} bits differ")
    assert told["weights_sha256"] == hash_of_page and told["different_bits"] == 0, (told, hash_of_page)
    assert after["value"] >= before["value"] + 0.06 and after["low"] > before["high"], (before, after)

with check("distillation"):
    help_of = lockstep("train", "distill", "--help").stdout
    divergences, ways = (re.findall(r"\w+", re.search(rf"--{option} NAME.*?default \w+;([^;)]*)", help_of, re.S)[1]) for option in ("divergence", "over"))
    assert distillations.all_ways() == sorted({*divergences, *ways} - {"vocabulary"}), (divergences, ways)
    listed = (ROOT / "recipes/teachers.toml").read_text()
    assert re.findall(r'domains = \["(\w+)"\]', listed) == distillations.TASKS, listed
    itself = TMP / "teachers.toml"  # the student's own weights: nothing to learn from, but the way is gone
    itself.write_text(re.sub(r'folder = ".*?"', f'folder = "{AGENT}"', listed))
    for name in distillations.all_ways():
        few = [word for key, value in {"steps": 1, "warmup": 1, "prompts": 2, "teachers": itself, "model": AGENT}.items() for word in ("--set", f"{key}={value}")]
        done = lockstep("train", "distill", "--config", ROOT / f"recipes/distill_{name}.toml", "--runs", TMP / "runs", "--no-page", "--json", *few)
        assert done.returncode == 0, (name, done.stderr)
        (row,) = families.metrics(TMP / "runs" / f"distill-{name.replace('_', '-')}")
        assert row["completions"] == 2 and abs(row["loss"]) < 1e-3, (name, row)

with check("preferences"):
    names = re.search(r"--loss NAME.*?default dpo;([^)]*)\)", lockstep("train", "preference", "--help").stdout, re.S)[1]
    assert preferences.all_losses() == sorted(re.findall(r"\w+", names)), names
    assert preferences.answers((19, 16, 14))[17] and "19-16=3,14+3=17" in preferences.answers((19, 16, 14))[17]
    work = TMP / "preferences"
    preferences.make_data(work / "pairs")
    pairs = [json.loads(line) for name in ("train", "held_out") for line in (work / f"pairs/{name}.jsonl").read_text().splitlines()]
    assert len(pairs) == preferences.TRAIN + preferences.HELD_OUT and len({pair["prompt"] for pair in pairs}) == len(pairs)
    # Half of a recipe's steps teach what is asked here, a head's values take all of them; held-out pairs are scored at the end alone.
    for name, least, steps in (("dpo", 0.9, 30), ("kto", 0.9, 30), ("simpo", 0.9, 30), ("orpo", 0.9, 30), ("reward", 0.95, 60)):
        preferences.run_one(name, work, 2, (("steps", steps), ("eval_every", steps)))
        learnt = json.loads((work / f"results/{name}.json").read_text())
        # What is compared with a reference is told apart by nobody at first, nor is what zeros say; a model's own likelihood has a slight taste.
        near = 0.2 if name in ("simpo", "orpo") else 0.1
        assert abs(learnt["held_out_before"] - 0.5) <= near and learnt["held_out"][-1][1] >= least, learnt
        published(f"preference_{name}, {steps} steps", learnt["weights_sha256"])
