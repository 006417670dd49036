#!/usr/bin/env python3
"""PPO with a critic and single rollouts against GRPO with groups of eight: what is learned from the same number of rollouts, and in the same time.

    bench/ppo_study.py run --work FOLDER [--threads 1] [--tasks countdown,lockbox] [--sizes 32,256] [--seeds 1,2,3,4,5] [--hours H]
                           [--lockbox-model DIR]
    bench/ppo_study.py page --work FOLDER

run: a cell is a task, an algorithm, a number of rollouts a step, a learning rate and a seed: one `lockstep train rl` and one `lockstep eval` of what it
exported. First cells of other seeds (CHOOSING) try each rate; the rate of an algorithm is the one whose rollouts earned most in the last third of the steps, then it is used
for all --seeds. It may be stopped at any time and goes on where it was: a cell resumes from its checkpoint, to the same bits. One file of results a
cell. A task whose rewards the start never earns teaches neither, so it has no cells; the page says so.
page: writes docs/ppo-study.md and docs/ppo-study.json from the cells that are done.

Success over samples and over time is the reward of the rollouts that are trained: problems do not come again, and they are sampled before they are
trained. Time is seconds of a processor with one thread, divided over rollouts and training as the clock divides them, which programs beside it change less than the clock.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import fmean

import ppo_study_page
from families import binary, metrics, once, version

ROOT = Path(__file__).resolve().parents[1]
ALGORITHMS = {"ppo": {"algorithm": "ppo", "rollouts": 1, "critic_warmup": 5, "critic_learning_rate": 1e-3, "lambda": 0.95, "critic_lambda": 1.0},
              "grpo": {"algorithm": "grpo", "rollouts": 8}}  # fmt: skip
# Of a task: its settings, the steps by rollouts a step, and what the answers of an evaluation are.
TASKS = {"countdown": {"settings": {"environment": "countdown", "max_tokens": 16}, "steps": {32: 150, 256: 60}},
         "lockbox": {"settings": {"environment": "lockbox", "max_tokens": 16, "compact_at": 80}, "steps": {32: 150, 256: 60}}}  # fmt: skip
COMMON = {"profile": "cpu-bf16w", "schedule": "linear", "warmup": 5, "beta1": 0.95, "beta2": 0.999, "weight_decay": 0.0, "max_norm": 1.0, "checkpoint_every": 20,
          "keep_last": 1, "transcripts": 0}  # fmt: skip
RATES = [7.5e-5, 1.5e-4, 3e-4]
CHOOSING = [101, 102]  # seeds of problems and sampling that no result is made of
PROBLEMS, SAMPLES = 1000, 4  # held out
LEAST_START = 0.005  # the rate of a start from which something can be learned


def model_of(task, options):
    return options.lockbox_model if task == "lockbox" else ROOT / "models/countdown-glm"


def evaluate(task, model, threads):
    words = [binary(), "eval", task, "--model", str(model), "--n", str(PROBLEMS), "--samples", str(SAMPLES), "--threads", str(threads), "--json"]
    for key in ("max_tokens", "compact_at"):
        if key in TASKS[task]["settings"]:
            words += [f"--{key.replace('_', '-')}", str(TASKS[task]["settings"][key])]
    told = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    return {key: told[key] for key in ("pass_at_1", "greedy")}


def name_of(cell):
    return f"{cell['task']}-{cell['algorithm']}-{cell['size']}-{cell['rate']:g}-{cell['seed']}"


def words_of(cell, work, model, threads):
    settings = COMMON | TASKS[cell["task"]]["settings"] | ALGORITHMS[cell["algorithm"]]
    settings |= {"problems": cell["size"] // settings["rollouts"], "steps": TASKS[cell["task"]]["steps"][cell["size"]], "learning_rate": cell["rate"],
                 "seed": cell["seed"], "threads": threads, "runs": work / "runs", "name": name_of(cell), "model": model}  # fmt: skip
    return ["train", "rl", "--no-page", "--quiet", "--json", *(word for key, value in settings.items() for word in ("--set", f"{key}={value}"))]


def steps_of(rows, processor_seconds, size):
    """By step: what the rollouts earned, rollouts up to its end, seconds up to its end with and without training, groups without signal."""
    clock = sum(row["rollout_seconds"] + row["train_seconds"] + row.get("critic_seconds", 0) for row in rows)
    share = processor_seconds / clock if processor_seconds else 1
    steps, sampled, whole = [], 0.0, 0.0
    for i, row in enumerate(rows):
        sampled += share * row["rollout_seconds"]
        whole += share * (row["rollout_seconds"] + row["train_seconds"] + row.get("critic_seconds", 0))
        steps.append([round(row["reward"], 6), (i + 1) * size, round(sampled, 3), round(whole, 3), row["zero_spread"]])
    return steps


def run_cell(cell, options):
    name, work = name_of(cell), options.work
    folder = work / "runs" / name
    words = words_of(cell, work, model_of(cell["task"], options), options.threads)
    resumed = any((folder / "checkpoints").glob("*"))
    if not resumed:
        shutil.rmtree(folder, ignore_errors=True)
    seconds = lambda: sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])  # noqa: E731
    before = seconds()
    done = subprocess.run([binary(), *words, *(["--resume"] if resumed else [])], capture_output=True, text=True)
    took = seconds() - before
    if done.returncode:
        sys.exit(f"{name}: exit code {done.returncode}: {done.stderr.strip()[-300:]}; the same command goes on")
    told, rows = json.loads(done.stdout.splitlines()[-1]), metrics(folder)
    steps = steps_of(rows, None if resumed else took, cell["size"])
    result = {**cell, "weights_sha256": told["weights_sha256"], "different_bits": sum(row["different_bits"] for row in rows),
              "tokens": sum(row["tokens"] for row in rows), "clock": resumed, "steps": steps}  # fmt: skip
    if "explained_variance" in rows[-1]:
        result["explained_variance"] = round(fmean(row["explained_variance"] for row in rows[-max(1, len(rows) // 3) :]), 4)
    if cell["seed"] not in CHOOSING:
        result["end"] = evaluate(cell["task"], told["export"], options.threads)
    shutil.rmtree(folder, ignore_errors=True)
    return result


def last_third(cell):
    steps = cell["steps"]
    return fmean(step[0] for step in steps[-max(1, len(steps) // 3) :])


def chosen_rate(cells):
    """The rate with the highest mean over cells of the reward in the last third; of equal ones the smallest."""
    rates = sorted({cell["rate"] for cell in cells})
    return max(rates, key=lambda rate: (fmean(last_third(cell) for cell in cells if cell["rate"] == rate), -rate))


def run(options):
    here = {"version": version(), "common": COMMON, "algorithms": ALGORITHMS, "tasks": {task: TASKS[task] for task in TASKS}, "rates": RATES, "choosing": CHOOSING,
            "problems": PROBLEMS, "samples": SAMPLES}  # fmt: skip
    here = json.loads(json.dumps(here))
    settings = options.work / "settings.json"
    if once(settings, lambda: here) != here:
        sys.exit(f"{settings} is of other settings or of another program: its cells cannot be joined with new ones; take another --work")
    begin = time.monotonic()

    def cell(task, algorithm, size, rate, seed):
        wanted = {"task": task, "algorithm": algorithm, "size": size, "rate": rate, "seed": seed}
        file = options.work / "cells" / f"{name_of(wanted)}.json"
        if not file.is_file() and time.monotonic() - begin > options.hours * 3600:
            print("the time is over; the same command goes on")
            sys.exit(0)
        at = time.monotonic()
        result = once(file, lambda: run_cell(wanted, options))
        print(f"{name_of(wanted)}: {last_third(result):.3f} in the last third, {time.monotonic() - at:.0f} s", flush=True)
        return result

    for task in options.tasks:
        start = once(options.work / f"start-{task}.json", lambda task=task: evaluate(task, model_of(task, options), options.threads))
        if start["pass_at_1"]["value"] < LEAST_START:
            print(f"{task}: the start solves {start['pass_at_1']['value']:.4f} of its problems: nothing to learn from")
            continue
        for size in options.sizes:
            rates = {}
            for algorithm in ALGORITHMS:
                rates[algorithm] = chosen_rate([cell(task, algorithm, size, rate, seed) for seed in CHOOSING for rate in RATES])
            for seed in options.seeds:
                for algorithm, rate in rates.items():
                    cell(task, algorithm, size, rate, seed)


def page(options):
    read = lambda path: json.loads(path.read_text())  # noqa: E731
    data = {"settings": read(options.work / "settings.json"), "start": {path.stem.removeprefix("start-"): read(path) for path in sorted(options.work.glob("start-*.json"))},
            "cells": [read(path) for path in sorted((options.work / "cells").glob("*.json"))]}  # fmt: skip
    ppo_study_page.write(data, ROOT / "docs")


def main():
    numbers = lambda text: [int(n) for n in text.split(",")]  # noqa: E731
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "page"))
    parser.add_argument("--work", type=lambda text: Path(text).resolve(), required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tasks", type=lambda text: text.split(","), default=list(TASKS))
    parser.add_argument("--sizes", type=numbers, default=[32, 256])
    parser.add_argument("--seeds", type=numbers, default=[1, 2, 3, 4, 5])
    parser.add_argument("--lockbox-model", type=lambda text: Path(text).resolve(), default=ROOT / "models/agent-glm")
    parser.add_argument("--hours", type=float, default=1000)
    options = parser.parse_args()
    if unknown := [task for task in options.tasks if task not in TASKS]:
        parser.error(f"unknown tasks {', '.join(unknown)}; there are {', '.join(TASKS)}")
    if wrong := [size for size in options.sizes if size not in TASKS["countdown"]["steps"]]:
        parser.error(f"unknown sizes {', '.join(map(str, wrong))}; there are {', '.join(map(str, TASKS['countdown']['steps']))}")
    if same := sorted(set(options.seeds) & set(CHOOSING)):
        parser.error(f"rates are chosen on the seeds {', '.join(map(str, same))}: no result is made of them")
    os.chdir(ROOT)
    (run if options.what == "run" else page)(options)


if __name__ == "__main__":
    main()
