#!/usr/bin/env python3
"""The long study: the cost of a sampler whose numerics differ from the trainer's, and whether truncated importance sampling corrects it.

    bench/mismatch_study.py run --work FOLDER [--threads 1] [--seeds 1,2,3] [--rates 1.5e-4,5e-4,5e-5] [--hours H]
                                [--known docs/mismatch-study.json]
    bench/mismatch_study.py page --work FOLDER

run: every cell of rollout profile x correction x learning rate x seed is one `lockstep train rl` of recipes/mismatch_study.toml and
one `lockstep eval` of the exported model. Learning rates are the outermost loop and seeds the next, so that the finished cells can be
compared at any time. It may be stopped at any time and goes on where it was: a cell that began resumes from its checkpoint, to the same bits.
One file of results a cell.
--known: takes the cells of an earlier page over, of whatever release, if the first of them, run again here, ends with the same weights to
the bit; that is what the contract promises, and what joins cells of different days and machines.
page: writes docs/mismatch-study.md, its plots and docs/mismatch-study.json, from the cells that are done.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import mismatch_study_page

ROOT = Path(__file__).resolve().parents[1]
RECIPE = ROOT / "recipes/mismatch_study.toml"
MODEL = ROOT / "models/countdown-glm"
ROLLOUT_PROFILES = {"none": "", "bf16": "study-bf16-activations", "int8": "cpu-int8w", "int4": "cpu-int4w"}
CAP = 2.0  # of truncated importance sampling
PROBLEMS, SAMPLES = 1000, 4  # held-out problems of a measurement
CURVE = 20  # points of a curve that are kept


def binary():
    return os.environ.get("LOCKSTEP_BINARY", str(ROOT / "build/lockstep"))


def cells(seeds, rates):
    for rate in rates:
        for seed in seeds:
            for mismatch in ROLLOUT_PROFILES:
                for correction in ("none", "tis"):
                    # Without a mismatch every weight is exactly 1: one cell shows that nothing changes.
                    if mismatch == "none" and correction == "tis" and (seed, rate) != (seeds[0], rates[0]):
                        continue
                    yield {"mismatch": mismatch, "correction": correction, "rate": rate, "seed": seed}


def name_of(cell):
    return f"{cell['mismatch']}-{cell['correction']}-{cell['rate']:g}-{cell['seed']}"


def evaluate(model, threads):
    command = [binary(), "eval", "countdown", "--model", str(model), "--profile", "cpu-bf16w", "--n", str(PROBLEMS), "--samples", str(SAMPLES),
               "--threads", str(threads), "--json"]  # fmt: skip
    measured = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {key: measured[key] for key in ("pass_at_1", "greedy", "ended")}


def curve_of(steps, key):
    """Means over equal pieces of the run: [[last step of the piece, mean], ...]."""
    size = max(1, len(steps) // CURVE)
    pieces = [steps[i : i + size] for i in range(0, len(steps), size)]
    return [[piece[-1]["step"], round(statistics.fmean(s[key] for s in piece), 9)] for piece in pieces]


def run_cell(cell, work, threads):
    name = name_of(cell)
    folder = work / "runs" / name
    command = [binary(), "train", "rl", "--config", str(RECIPE), "--runs", str(work / "runs"), "--name", name, "--model", str(MODEL), "--no-page",
               "--threads", str(threads), "--learning-rate", repr(cell["rate"]), "--seed", str(cell["seed"]), "--json"]  # fmt: skip
    if cell["mismatch"] != "none":
        command += ["--rollout-profile", ROLLOUT_PROFILES[cell["mismatch"]], "--allow-profile-mix"]
    if cell["correction"] == "tis":
        command += ["--importance-cap", str(CAP)]
    if any((folder / "checkpoints").glob("*")):
        command.append("--resume")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode in (130, 143) or done.returncode < 0:
        sys.exit(f"{name}: interrupted; the same command goes on")
    steps = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()] if (folder / "metrics.jsonl").exists() else []
    if not steps:
        sys.exit(f"{name}: {done.stderr.strip() or 'no step was taken'}")
    tenth = max(1, len(steps) // 10)
    result = {**cell, "steps": len(steps)}
    for key in ("reward", "k3", "clipped", "entropy"):
        result[key] = {"first": statistics.fmean(s[key] for s in steps[:tenth]), "last": statistics.fmean(s[key] for s in steps[-tenth:]),
                       "curve": curve_of(steps, key)}  # fmt: skip
    tokens = sum(s["tokens"] for s in steps)
    result.update(tokens=tokens, different_bits=sum(s["different_bits"] for s in steps) / tokens, truncated=sum(s["truncated"] for s in steps) / tokens,
                  largest_gradient_norm=max(s["gradient_norm"] for s in steps))  # fmt: skip
    if done.returncode == 0:
        ended = json.loads(done.stdout)
        result.update(weights_sha256=ended["weights_sha256"], end=evaluate(ended["export"], threads))
    else:
        result["failed"] = done.stderr.strip().splitlines()[-1][:300]
    for part in ("checkpoints", "export"):
        shutil.rmtree(folder / part, ignore_errors=True)
    return result


def write_json(path, value):
    path.with_suffix(".tmp").write_text(json.dumps(value, indent=1) + "\n")
    path.with_suffix(".tmp").rename(path)


def take_known(path, here, options):
    known = json.loads(path.read_text())
    if any(known["settings"][key] != here[key] for key in ("recipe", "problems", "samples", "cap")):
        sys.exit(f"{path} is of other settings: its cells cannot be joined with new ones")
    missing = [cell for cell in known["cells"] if not (options.work / "results" / f"{name_of(cell)}.json").is_file()]
    if not missing:
        return
    first = min(missing, key=name_of)
    again = run_cell({key: first[key] for key in ("mismatch", "correction", "rate", "seed")}, options.work, options.threads)
    if (again.get("weights_sha256"), again.get("end")) != (first.get("weights_sha256"), first.get("end")):
        sys.exit(f"{path}: {name_of(first)} ended with the weights {first.get('weights_sha256')}, run again with {again.get('weights_sha256')}: not the same study")
    print(f"{name_of(first)}: run again, the same weights to the bit; {len(missing)} cells are taken over", flush=True)
    for cell in missing:
        write_json(options.work / "results" / f"{name_of(cell)}.json", {"version": known["settings"]["version"], "proof": name_of(first), **cell})


def run(options):
    results = options.work / "results"
    results.mkdir(parents=True, exist_ok=True)
    settings = options.work / "settings.json"
    here = {"recipe": RECIPE.read_text(), "problems": PROBLEMS, "samples": SAMPLES, "cap": CAP,
            "version": subprocess.run([binary(), "--version"], capture_output=True, text=True).stdout.split("\n")[0]}  # fmt: skip
    if settings.is_file() and json.loads(settings.read_text()) != here:
        sys.exit(f"{settings} is of other settings or of another program: its cells cannot be joined with new ones; take another --work")
    write_json(settings, here)
    if options.known:
        take_known(options.known, here, options)
    if not (options.work / "start.json").is_file():
        write_json(options.work / "start.json", evaluate(MODEL, options.threads))
    begin = time.monotonic()
    for cell in cells(options.seeds, options.rates):
        if (results / f"{name_of(cell)}.json").is_file():
            continue
        if time.monotonic() - begin > options.hours * 3600:
            print("the time is over; the same command goes on")
            return
        at = time.monotonic()
        result = run_cell(cell, options.work, options.threads)
        write_json(results / f"{name_of(cell)}.json", result)
        outcome = result.get("failed") or f"pass@1 {result['end']['pass_at_1']['value']:.3f}, k3 {result['k3']['last']:.3g}"
        print(f"{name_of(cell)}: {outcome}; {time.monotonic() - at:.0f} s", flush=True)


def page(options):
    data = {"settings": json.loads((options.work / "settings.json").read_text()), "start": json.loads((options.work / "start.json").read_text()),
            "grid": sum(1 for _ in cells(options.seeds, options.rates)),
            "cells": [json.loads(path.read_text()) for path in sorted((options.work / "results").glob("*.json"))]}  # fmt: skip
    if not data["cells"]:
        sys.exit("no cell is done")
    mismatch_study_page.write(data, ROOT / "docs")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("run", "page"))
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seeds", type=lambda text: [int(s) for s in text.split(",")], default=[1, 2, 3])
    parser.add_argument("--rates", type=lambda text: [float(r) for r in text.split(",")], default=[1.5e-4, 5e-4, 5e-5])
    parser.add_argument("--known", type=Path, help="an earlier page's JSON, whose cells are taken over")
    parser.add_argument("--hours", type=float, default=1000)
    options = parser.parse_args()
    (run if options.what == "run" else page)(options)


if __name__ == "__main__":
    main()
