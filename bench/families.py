#!/usr/bin/env python3
"""Lessons: every model family learns Countdown from nothing, then by reinforcement learning.

    bench/families.py run --work FOLDER [--families qwen3_moe,llama] [--steps 3000] [--rl-steps 60] [--threads 1]
    bench/families.py page --work FOLDER

run: a family of recipes/families is `lockstep train sft --from-scratch`, `lockstep eval`, `lockstep train rl` and `lockstep eval` again. It may be
stopped at any time and goes on where it was: runs resume from their checkpoints, to the same bits; a stage that is done is not repeated.
One file of results a family.
page: writes docs/families.md and docs/families.json from the families that are done.

The recipes are of 3,000 and 60 steps; what was taught with other --steps is marked so.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECIPES = ROOT / "recipes/families"
TOKENIZER = ROOT / "models/countdown-glm"  # every family reads and writes Countdown with its tokens
STEPS, RL_STEPS = 3000, 60
MOST_ACTIVE = 1_000_000
# The settings of recipes/countdown_sft.toml and countdown_rl.toml for all families: nothing is tuned for one.
SFT = {"environment": "countdown", "init_seed": 1, "init_deviation": 0.04, "seed": 1, "batch": 32, "learning_rate": 2e-3, "schedule": "linear",
       "final_fraction": 0.05, "beta1": 0.9, "beta2": 0.98, "weight_decay": 0.1, "max_norm": 1.0, "checkpoint_every": 100}  # fmt: skip
WARMUP = 0.03  # of the steps
RL = {"environment": "countdown", "problems": 32, "rollouts": 8, "max_tokens": 16, "temperature": 1.0, "seed": 1, "advantages": "mean-only",
      "clip_low": 0.2, "clip_high": 0.28, "learning_rate": 1.5e-4, "schedule": "linear", "warmup": 10, "beta1": 0.95, "beta2": 0.999,
      "weight_decay": 0.0, "max_norm": 1.0, "checkpoint_every": 10}  # fmt: skip
PROFILE = "cpu-bf16w"
PROBLEMS, SAMPLES = 2000, 4


def binary():
    return os.environ.get("LOCKSTEP_BINARY", str(ROOT / "build/lockstep"))


def version():
    """The program's name, version and commit."""
    return subprocess.run([binary(), "--version"], capture_output=True, text=True).stdout.split("\n")[0]


def recipe_of(family):
    return tomllib.loads((RECIPES / f"{family}.toml").read_text())


def all_families():
    return sorted(path.stem for path in RECIPES.glob("*.toml"))


def model_folder(family, folder):
    """A folder with the recipe's config.json and the tokenizer, without weights."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(recipe_of(family)["model"], indent=1) + "\n")
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copyfile(TOKENIZER / name, folder / name)
    return folder


def lockstep(*arguments):
    """Runs the program and returns its JSON. Progress goes to stderr."""
    done = subprocess.run([binary(), *map(str, arguments), "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"lockstep {arguments[0]} {arguments[1]}: exit code {done.returncode}: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def settings(values):
    return [part for key, value in values.items() for part in ("--set", f"{key}={str(value).lower() if isinstance(value, bool) else value}")]


def train(kind, work, family, model, values, threads):
    """A run of work/runs, begun or resumed; its folder."""
    name = f"{family}-{kind}"
    folder = work / "runs" / name
    begun = any((folder / "checkpoints").glob("*"))
    if not begun:
        shutil.rmtree(folder, ignore_errors=True)
    command = ["train", kind, "--model", model, "--runs", work / "runs", "--name", name, "--profile", PROFILE, "--no-page", "--threads", threads]
    if kind == "sft":
        command.append("--from-scratch")
    if begun:
        command.append("--resume")
    lockstep(*command, *settings(values))
    return folder


def teach(family, work, steps, threads):
    """The taught model's folder."""
    recipe = recipe_of(family)
    values = SFT | {"steps": steps, "warmup": max(1, round(WARMUP * steps))} | recipe["sft"]
    for key in ("index_from", "sparse_from"):
        if key in values:
            values[key] = values[key] * steps // STEPS
    done = work / "runs" / f"{family}-sft" / "export"
    if not (done / "model.safetensors").is_file():
        train("sft", work, family, model_folder(family, work / "models" / family), values, threads)
    return done


def metrics(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def evaluate(model, threads):
    measured = lockstep("eval", "countdown", "--model", model, "--profile", PROFILE, "--n", PROBLEMS, "--samples", SAMPLES, "--threads", threads)
    return {key: measured[key] for key in ("greedy", "pass_at_1")}


def once(path, make):
    """The stage's result; from its file if it was done before."""
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        value = make()
        path.with_suffix(".tmp").write_text(json.dumps(value, indent=1) + "\n")
        path.with_suffix(".tmp").rename(path)
    return json.loads(path.read_text())


def reinforce(family, work, taught, steps, threads):
    values = RL | {"steps": steps, "warmup": min(RL["warmup"], steps)} | recipe_of(family)["rl"]
    folder = train("rl", work, family, taught, values, threads)
    rows = metrics(folder)
    tokens = sum(row["tokens"] for row in rows)
    return {"steps": len(rows), "tokens": tokens, "different_bits": sum(row["different_bits"] for row in rows),
            "k3": sum(row["k3"] * row["tokens"] for row in rows) / tokens, "largest_log_ratio": max(row["largest_log_ratio"] for row in rows),
            "reward": [sum(row["reward"] for row in part) / len(part) for part in (rows[: max(1, len(rows) // 10)], rows[-max(1, len(rows) // 10) :])]}  # fmt: skip


def run_family(family, options):
    work, threads = options.work, options.threads
    begin = time.monotonic()
    info = work / "results" / family
    taught = teach(family, work, options.steps, threads)
    size = once(info / "size.json", lambda: lockstep("info", taught)["parameters"])
    if size["active"] > MOST_ACTIVE:
        sys.exit(f"{family}: {size['active']} active parameters, allowed are {MOST_ACTIVE}")
    print(f"{family}: taught, {time.monotonic() - begin:.0f} s", flush=True)
    start = once(info / "start.json", lambda: evaluate(taught, threads))
    learned = once(info / "rl.json", lambda: reinforce(family, work, taught, options.rl_steps, threads))
    end = once(info / "end.json", lambda: evaluate(work / "runs" / f"{family}-rl" / "export", threads))
    result = {"family": family, "steps": options.steps, "parameters": size["total"], "active": size["active"], "start": start, "rl": learned, "end": end}
    (info / "result.json").write_text(json.dumps(result, indent=1) + "\n")
    print(f"{family}: greedy {start['greedy']['value']:.3f} -> {end['greedy']['value']:.3f}, {learned['different_bits']} of {learned['tokens']} tokens with other "
          f"bits; {time.monotonic() - begin:.0f} s", flush=True)  # fmt: skip


def interval(measured):
    return f"{measured['value']:.3f} [{measured['low']:.3f}, {measured['high']:.3f}]"


def page(options):
    results = [json.loads(path.read_text()) for path in sorted((options.work / "results").glob("*/result.json"))]
    if not results:
        sys.exit("no family is done")
    (ROOT / "docs/families.json").write_text(json.dumps({"version": version(), "families": results}, indent=1) + "\n")
    missing = [family for family in all_families() if family not in {r["family"] for r in results}]
    lines = [
        "# Lessons: what small models of each family learn",
        "",
        "Measured by `bench/families.py` ([data](families.json)): a small model of a family is taught Countdown from random weights and then trained by",
        f"reinforcement learning (GRPO, {RL['problems']} x {RL['rollouts']} rollouts a step), all families with the same settings, those of the shipped model's",
        f"recipe; none was tuned. Greedy answers and samples are of {PROBLEMS} held-out problems, with 95% intervals. Recipes: `recipes/families`. The page was",
        f"written by {version()}, after the last family's run.",
        "",
        "| family | active parameters | steps | greedy, taught | after RL | pass@1, taught | after RL | RL steps | KL (k3) | other bits, of tokens |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in results:
        rl = r["rl"]
        lines.append(f"| `{r['family']}` | {r['active']:,} | {r['steps']}{'' if r['steps'] == STEPS else ' *'} | {interval(r['start']['greedy'])} | "
                     f"{interval(r['end']['greedy'])} | {interval(r['start']['pass_at_1'])} | {interval(r['end']['pass_at_1'])} | "
                     f"{rl['steps']}{'' if rl['steps'] == RL_STEPS else ' *'} | {rl['k3']:.3g} | {rl['different_bits']:,} of {rl['tokens']:,} |")  # fmt: skip
    if any(r["steps"] != STEPS or r["rl"]["steps"] != RL_STEPS for r in results):
        lines += ["", f"\\* fewer than the recipe's {STEPS:,} and {RL_STEPS} steps: a measurement of that, not of what the family can learn."]
    if missing:
        lines += ["", f"Not measured yet: {', '.join(f'`{m}`' for m in missing)}. `bench/families.py run --work FOLDER` goes on with them."]
    (ROOT / "docs/families.md").write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("run", "page"))
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--families", type=lambda text: text.split(","), default=all_families())
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--rl-steps", type=int, default=RL_STEPS)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    options.work = options.work.resolve()
    if unknown := set(options.families) - set(all_families()):
        sys.exit(f"no recipe of {', '.join(sorted(unknown))}; there are {', '.join(all_families())}")
    if options.what == "page":
        page(options)
        return
    for family in options.families:
        run_family(family, options)


if __name__ == "__main__":
    main()
