#!/usr/bin/env python3
"""Rollouts that are guessed ahead, over a whole run of reinforcement learning: how many tokens a forward gives as the policy moves, and that its weights are those of a run without.

    bench/drafted_rollouts.py --work FOLDER [--seeds 1,2,3] [--steps 150] [--threads 2] [--json FILE] [--page docs/speculation.md]

`lockstep train rl --config recipes/countdown_rl.toml`, the numbers of the demo, once for each way: `absent`, no guesses; `frozen`, by a layer of multi-token prediction that
stays; `on line`, by the same layer, which learns from each step's rollouts; `siblings`, by the other answers to a prompt. 5 guesses at most, coupled. The layer is that of
recipes/countdown_mtp.toml, made in FOLDER where it is not there yet. Means over the first, second and last third of the steps, with 95% intervals over steps (of a mean whose
terms are taken for independent, which neighbouring steps are not quite). What is measured stays in FOLDER/drafted-rollouts.json, cell by cell, as long as the program is the same: a run
that was stopped goes on. Ends with status 1 where a way ends with other weights than `absent` or a log-probability was not the trainer's. Needs no package.
"""

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tools")]

from layer_files import without_layer  # noqa: E402
from marked_page import write_between_marks  # noqa: E402
from write_performance import binary, machine, version  # noqa: E402

MARKS = "drafted_rollouts"
DEPTHS = DRAFT_TOKENS = 5
DRAFTS = ["--draft-tokens", DRAFT_TOKENS, "--rollout-speculation"]
WAYS = {
    "absent": [],
    "frozen": [*DRAFTS, "mtp"],
    "on line": [*DRAFTS, "mtp", "--mtp-depths", DEPTHS, "--mtp-loss", "both"],
    "siblings": [*DRAFTS, "siblings"],
}


def run(words):
    done = subprocess.run([str(word) for word in [binary(), *words]], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"drafted_rollouts: lockstep {' '.join(map(str, words))}: {done.stderr.strip()[-600:]}")
    return json.loads(done.stdout.splitlines()[-1])


def goes_on(runs, name):
    """--resume where a run of this name has a checkpoint; otherwise what is left of it is removed."""
    if any((runs / name / "checkpoints").glob("step-*")):
        return ["--resume"]
    shutil.rmtree(runs / name, ignore_errors=True)
    return []


def made_layer(options):
    """The shipped model with a trained layer beside it, made anew where it comes with one, so that seeds and steps are those of the recipe."""
    runs, export = options.work / "runs", options.work / "runs/layer/export"
    if not (export / "model.safetensors").is_file():
        bare = options.work / "model"
        if not bare.exists():
            part = bare.with_suffix(".partial")
            shutil.rmtree(part, ignore_errors=True)
            os.replace(without_layer(ROOT / "models/countdown-glm", part), bare)
        run(["train", "sft", "--config", "recipes/countdown_mtp.toml", "--model", bare, "--runs", runs, "--name", "layer", "--threads", options.threads, "--no-page", "--quiet", "--json", *goes_on(runs, "layer")])
    return export


def thirds(values):
    size = len(values) // 3
    return [values[:size], values[size : len(values) - size], values[len(values) - size :]]


def mean_of(values):
    """A mean with its 95% interval over steps; none of no steps."""
    if not values:
        return None
    mean = statistics.fmean(values)
    half = 1.96 * statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return [mean, mean - half, mean + half]


def measured(options, model, way, seed):
    runs, name = options.work / "runs", f"{way.replace(' ', '-')}-{seed}"
    told = run(["train", "rl", "--config", "recipes/countdown_rl.toml", "--model", model, "--runs", runs, "--name", name, "--steps", options.steps, "--seed", seed, "--threads", options.threads,
                "--transcripts", 0, "--no-page", "--quiet", "--json", *WAYS[way], *goes_on(runs, name)])  # fmt: skip
    steps = [json.loads(line) for line in (runs / name / "metrics.jsonl").read_text().splitlines()]
    lengths = [step["accepted_length"] for step in steps if "accepted_length" in step]
    shutil.rmtree(runs / name)
    return {"way": way, "seed": seed, "steps": len(steps), "lengths": [mean_of(part) for part in thirds(lengths)], "rollout_seconds": sum(step["rollout_seconds"] for step in steps),
            "reward": [statistics.fmean(step["reward"] for step in part) for part in thirds(steps)], "different_bits": sum(step["different_bits"] for step in steps),
            "weights_sha256": told["weights_sha256"]}  # fmt: skip


class Cells:
    """What is measured, in a file: of one program with so many threads and steps."""

    def __init__(self, options):
        self.file, self.made_by, self.cells = options.work / "drafted-rollouts.json", [version().splitlines()[0], options.threads, options.steps], {}
        if self.file.is_file() and (kept := json.loads(self.file.read_text()))["made_by"] == self.made_by:
            self.cells = kept["cells"]

    def measure(self, key, f):
        if key not in self.cells:
            self.cells[key] = f()
            part = self.file.with_suffix(".partial")
            part.write_text(json.dumps({"made_by": self.made_by, "cells": self.cells}) + "\n")
            os.replace(part, self.file)
        return self.cells[key]


def differing(rows):
    """What is not as without guesses."""
    wrong = [f"{row['way']}, seed {row['seed']}: {row['different_bits']} log-probabilities are not the trainer's" for row in rows if row["different_bits"]]
    for seed in sorted({row["seed"] for row in rows}):
        found = {row["way"]: row["weights_sha256"] for row in rows if row["seed"] == seed}
        if len(set(found.values())) > 1:
            wrong.append(f"seed {seed}: the weights are {found}")
    return wrong


def table(rows):
    lines = ["| seed | guessed by | accepted length, first third | second | last | reward, first third | last | rollouts, s | weights |", "|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        lengths = " | ".join("" if part is None else f"{part[0]:.3f} [{part[1]:.3f}, {part[2]:.3f}]" for part in row["lengths"])
        lines.append(f"| {row['seed']} | {row['way']} | {lengths} | {row['reward'][0]:.3f} | {row['reward'][-1]:.3f} | {row['rollout_seconds']:.1f} | `{row['weights_sha256'][:12]}` |")
    return lines


def verdict(rows):
    """Whether a layer that learns on line says no less than one that stays, of the last third."""
    last = {(row["way"], row["seed"]): row["lengths"][-1] for row in rows if row["lengths"][-1]}
    seeds = [seed for way, seed in last if way == "on line" and ("frozen", seed) in last]
    if not seeds:
        return []
    gains = [last["on line", seed][0] - last["frozen", seed][0] for seed in seeds]
    said = "met" if min(gains) >= 0 else "missed"
    return ["", f"In the last third a layer that learns on line gives {min(gains):+.3f} to {max(gains):+.3f} tokens a forward beside the frozen one, over {len(seeds)} seed{'s' if len(seeds) > 1 else ''} "
                f"(aim, not below: {said})."]  # fmt: skip


def page_text(rows, options):
    head = (f"Measured by `bench/drafted_rollouts.py`, {version().splitlines()[0]}, {options.threads} threads, {options.steps} steps of `recipes/countdown_rl.toml`, at most {DRAFT_TOKENS} guesses a forward; "
            "intervals over steps. Weights of one seed are the same in all rows.")  # fmt: skip
    return "\n".join([head, "", f"Machine: {machine()}", "", *table(rows), *verdict(rows)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="for the layer, runs and results")
    parser.add_argument("--seeds", type=lambda text: [int(n) for n in text.split(",")], default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    if options.steps < 3:
        parser.error(f"--steps is {options.steps}, allowed is 3 or more: a third of them is one at least")
    options.work = options.work.resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    model, cells, rows = made_layer(options), Cells(options), []
    for seed in options.seeds:
        for way in WAYS:
            rows.append(cells.measure(f"{way}, {seed}", lambda way=way, seed=seed: measured(options, model, way, seed)))
            print(table(rows)[-1], flush=True)
    if wrong := differing(rows):
        raise SystemExit("drafted_rollouts: " + "; ".join(wrong))
    print("\n".join(["", *table(rows), *verdict(rows)]))
    if options.json:
        options.json.write_text(json.dumps({"threads": options.threads, "steps": options.steps, "version": version().splitlines()[0], "machine": machine(), "rows": rows}, indent=1) + "\n")
    if options.page:
        write_between_marks(options.page, MARKS, page_text(rows, options))


if __name__ == "__main__":
    main()
