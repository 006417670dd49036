#!/usr/bin/env python3
"""How the accepted length of a layer of multi-token prediction depends on shared keys, its loss and how guesses are checked: layers that are trained alike but for one thing, held-out problems.

    bench/draft_ladder.py --work FOLDER [--model models/countdown-glm] [--environment countdown] [--seeds 1,2,3] [--steps 600] [--count 400] [--threads 2] [--json FILE] [--page docs/speculation.md]

Each layer is that of recipes/countdown_mtp.toml beside the same model, of whose own layer, if it has one, nothing is taken, with other keys or another loss: depths that share nothing, cross-entropy; shared keys, cross-entropy; shared keys,
cross-entropy and total variation. `lockstep eval drafts` then guesses 5 tokens at temperatures 0 and 1 in --count problems, coupled and by rejection sampling (at temperature 0 guesses are taken
alike, and both stand there once). The accepted length counts the model's own token, so it is 6 at most. Means over seeds with 95% intervals (Student's t). What is measured stays in
FOLDER/draft-ladder.json, cell by cell, as long as the program is the same: a run that was stopped goes on. A layer takes about 15 minutes of two processors, nine of them
some 2 hours 20 minutes; their answers take seconds. Needs no package.
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
from performance_tables import judged  # noqa: E402
from write_performance import binary, machine, version  # noqa: E402

MARKS = "draft_ladder"
GUESSES = 5
LAYERS = {"own, ce": ("own", "ce"), "shared, ce": ("shared", "ce"), "shared, both": ("shared", "both")}
# What each rung adds: a layer, and how guesses are checked.
RUNGS = [("keys of its own in each depth, cross-entropy", "own, ce", "coupled"), ("+ shared keys", "shared, ce", "coupled"), ("+ rejection sampling", "shared, ce", "rejection"),
         ("+ total variation", "shared, both", "rejection")]  # fmt: skip
LEAST = {0: 4.0, 1: 3.0}  # aims for the last rung, by temperature
STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365}  # two-sided, 95%, by degrees of freedom


def run(words):
    done = subprocess.run([str(word) for word in [binary(), *words]], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"draft_ladder: lockstep {' '.join(map(str, words))}: {(done.stderr or done.stdout).strip()[-600:]}")
    return json.loads(done.stdout.splitlines()[-1])


def bare(options):
    """The model without any layer, where each one begins anew."""
    folder = options.work / "model"
    if not (folder / "config.json").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        part = folder.with_suffix(".partial")
        shutil.rmtree(part, ignore_errors=True)
        os.replace(without_layer(options.model, part), folder)
    return folder


def trained(options, layer, seed):
    """The folder of the model with this layer beside it."""
    keys, loss = LAYERS[layer]
    runs, name = options.work / "runs", f"{keys}-{loss}-{seed}"
    export = runs / name / "export"
    if not (export / "model.safetensors").is_file():
        goes_on = ["--resume"] if any((runs / name / "checkpoints").glob("step-*")) else []
        if not goes_on:
            shutil.rmtree(runs / name, ignore_errors=True)
        run(["train", "sft", "--config", "recipes/countdown_mtp.toml", "--model", bare(options), "--environment", options.environment, "--runs", runs, "--name", name, "--steps", options.steps,
             "--seed", seed, "--init-seed", seed, "--mtp-keys", keys, "--mtp-loss", loss, "--threads", options.threads, "--no-page", "--quiet", "--json", *goes_on])  # fmt: skip
    return export


def measured(options, layer, seed, temperature, acceptance):
    told = run(["eval", "drafts", "--model", trained(options, layer, seed), "--environment", options.environment, "--n", options.count, "--speculate", "mtp", "--draft-tokens", GUESSES,
                "--temperature", temperature, "--acceptance", acceptance, "--seed", seed, "--at-once", 32, "--threads", options.threads, "--json"])  # fmt: skip
    return {key: told[key] for key in ("accepted_length", "accepted_by_position", "drafts", "tokens", "different_bits")}


class Cells:
    """What is measured, in a file: of one program and one way to call this."""

    def __init__(self, options):
        self.file, self.cells = options.work / "draft-ladder.json", {}
        self.made_by = [version().splitlines()[0], options.threads, str(options.model), options.environment, options.steps, options.count]
        if self.file.is_file() and (kept := json.loads(self.file.read_text()))["made_by"] == self.made_by:
            self.cells = kept["cells"]
        else:
            for made in ("runs", "model"):
                shutil.rmtree(options.work / made, ignore_errors=True)
            self.write()

    def write(self):
        part = self.file.with_suffix(".partial")
        part.write_text(json.dumps({"made_by": self.made_by, "cells": self.cells}) + "\n")
        os.replace(part, self.file)

    def measure(self, key, f):
        if key not in self.cells:
            self.cells[key] = f()
            self.write()
        return self.cells[key]


def mean_of(values):
    """Mean over seeds, and the ends of its 95% interval; of one seed no ends."""
    mean = statistics.fmean(values)
    if len(values) == 1:
        return [mean, None, None]
    half = STUDENT.get(len(values) - 1, 2.0) * statistics.stdev(values) / math.sqrt(len(values))
    return [mean, mean - half, mean + half]


def shown(value):
    return f"{value[0]:.3f}" if value[1] is None else f"{value[0]:.3f} [{value[1]:.3f}, {value[2]:.3f}]"


def rows_of(cells, seeds):
    """Of each rung and temperature: the accepted length in its way, and coupled."""
    rows = []
    for name, layer, acceptance in RUNGS:
        for temperature in (0, 1):
            by = {way: mean_of([cells[f"{layer}, {seed}, {temperature}, {way}"]["accepted_length"] for seed in seeds])
                  for way in {acceptance if temperature else "coupled", "coupled"}}  # fmt: skip
            rows.append({"rung": name, "temperature": temperature, "length": by[acceptance if temperature else "coupled"], "coupled": by["coupled"]})
    return rows


def table(rows):
    lines = ["| rung | temperature 0 | temperature 1 | temperature 1, coupled |", "|---|---|---|---|"]
    for cold, warm in zip(rows[::2], rows[1::2]):
        lines.append(f"| {cold['rung']} | {shown(cold['length'])} | {shown(warm['length'])} | {shown(warm['coupled'])} |")
    return lines


def verdicts(rows):
    lines = [""]
    for temperature in (0, 1):
        of = [row["length"] for row in rows if row["temperature"] == temperature]
        first, last = of[0], of[-1]
        apart = "one seed has no interval" if first[1] is None else "the intervals are disjoint" if last[1] > first[2] else "the intervals are not disjoint"
        lines.append(f"- Temperature {temperature}: {last[0] - first[0]:+.3f} from the first rung to the last; {apart} (aim: above, disjoint). The last has {judged(last[0], least=LEAST[temperature])} (aim {LEAST[temperature]}).")
    return lines


def page_text(rows, options):
    head = (f"Measured by `bench/draft_ladder.py`, {version().splitlines()[0]}, layers beside `{options.model.name}` after {options.steps} steps, {options.count} held-out problems of `{options.environment}`, "
            f"{GUESSES} guesses, {len(options.seeds)} seeds: accepted length, 95% intervals over seeds.")  # fmt: skip
    return "\n".join([head, "", f"Machine: {machine()}", "", *table(rows), *verdicts(rows)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="for layers and results")
    parser.add_argument("--model", type=Path, default=ROOT / "models/countdown-glm")
    parser.add_argument("--environment", default="countdown")
    parser.add_argument("--seeds", type=lambda text: [int(n) for n in text.split(",")], default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    options.work, options.model = options.work.resolve(), options.model.resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    cells = Cells(options)
    for seed in options.seeds:
        for layer in LAYERS:
            for temperature, acceptance in ((0, "coupled"), (1, "coupled"), (1, "rejection")):
                key = f"{layer}, {seed}, {temperature}, {acceptance}"
                cell = cells.measure(key, lambda layer=layer, seed=seed, temperature=temperature, acceptance=acceptance: measured(options, layer, seed, temperature, acceptance))
                print(f"{key}: {cell['accepted_length']:.3f}", flush=True)
    rows = rows_of(cells.cells, options.seeds)
    print("\n".join(["", *table(rows), *verdicts(rows)]))
    if options.json:
        options.json.write_text(json.dumps({"model": options.model.name, "environment": options.environment, "steps": options.steps, "seeds": options.seeds, "version": version().splitlines()[0],
                                            "machine": machine(), "rows": rows}, indent=1) + "\n")  # fmt: skip
    if options.page:
        write_between_marks(options.page, MARKS, page_text(rows, options))


if __name__ == "__main__":
    main()
