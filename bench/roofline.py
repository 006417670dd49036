#!/usr/bin/env python3
"""Measures each operation of a prompt, of decoding, of a training step and of a GRPO step against the machine's limits: `lockstep bench roofline`,
then `lockstep bench KIND --profile-operations` (docs/profiling.md).

    bench/roofline.py --model FOLDER/fp32 [--threads N] [--rounds 3] [--seconds 2] [--json FILE]

Prints, of each operation that takes a hundredth of a run or more: its share of the run, the limit that binds it, what it reached and the share of that.
Rounds go through all runs; each has a roofline of its own, measured before it, and each figure is the median over rounds.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RUNS = [  # title, what is run; of SmolLM2
    ("SmolLM2, fp32: a prompt of 512 tokens", ["prefill", "--tokens", 512]),
    ("SmolLM2, fp32: a prompt of 2,048 tokens", ["prefill", "--tokens", 2048]),
    ("SmolLM2, fp32: a prompt of 8,191 tokens", ["prefill", "--tokens", 8191]),  # and the one after it
    ("SmolLM2, fp32: a token of one stream behind a prompt of 512", ["decode", "--streams", 1, "--prompt", 512]),
    ("SmolLM2, fp32: a token of one stream behind a prompt of 2,048", ["decode", "--streams", 1, "--prompt", 2048]),
    ("SmolLM2, fp32: a token of each of 8 streams behind prompts of 512", ["decode", "--streams", 8, "--prompt", 512]),
    ("SmolLM2, fp32: a training step of 4 x 256 tokens", ["train", "--sequences", 4, "--length", 256]),
    ("SmolLM2, fp32: a training step of 1 x 2,048 tokens", ["train", "--sequences", 1, "--length", 2048]),
    ("SmolLM2, fp32: a GRPO step of 4 x 8 samples of 64 tokens", ["rl", "--prompts", 4, "--samples", 8, "--prompt", 64, "--tokens", 64]),
]  # fmt: skip


def lockstep(*arguments):
    program = os.environ.get("LOCKSTEP_BINARY", str(ROOT / "build/lockstep"))
    done = subprocess.run([program, "bench", *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"roofline: {' '.join(map(str, arguments))} failed: {done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def against_limits(report):
    """Of a report of operations: each with the limit that binds it, what it reached and the share."""
    flops, read = report["limit"]["gigaflops"] * 1e9, report["limit"]["gigabytes_per_second"] * 1e9
    for o in report["operations"]:
        by_flop, by_bytes = o["flop"] / flops, o["bytes"] / read
        bound = "memory" if by_bytes > by_flop else "arithmetic"
        amount, limit = (o["bytes"], read) if bound == "memory" else (o["flop"], flops)
        yield {"operation": o["operation"], "calls": o["calls"], "seconds": o["seconds"], "of_run": o["seconds"] / report["seconds"], "bound": bound, "limit": limit / 1e9,
               "reached": amount / o["seconds"] / 1e9 if o["seconds"] else 0.0, "share": max(by_flop, by_bytes) / o["seconds"] if o["seconds"] else 0.0}  # fmt: skip


def median_of(rounds):
    """The operations of a run over rounds, the longest first; those of the first round, which every round has."""
    found = []
    for first in rounds[0]:
        same = [next(o for o in one if o["operation"] == first["operation"]) for one in rounds]
        found.append({**first, **{key: statistics.median(o[key] for o in same) for key in ("calls", "seconds", "of_run", "limit", "reached", "share")}})
    return sorted(found, key=lambda o: -o["seconds"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    limits, found, steps = [], [[] for _ in RUNS], [[] for _ in RUNS]
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds):
            file = Path(folder) / f"{number}.json"
            lockstep("roofline", "--threads", ",".join(str(t) for t in sorted({1, options.threads})), "--json", "--out", file)
            limits.append(json.loads(file.read_text())["points"])
            for i, (_, what) in enumerate(RUNS):
                row, report = lockstep(*what, "--model", options.model, "--profile", "cpu-f32", "--threads", options.threads, "--seconds", options.seconds, "--json", "--profile-operations", "--roofline", file)
                # Of one run of those that were profiled: the one that is not timed is among them.
                runs = row["runs"] + 1
                found[i].append([{**o, "calls": o["calls"] / runs, "seconds": o["seconds"] / runs} for o in against_limits(report)])
                steps[i].append(row["seconds"]["median"])
    middle = [{key: statistics.median(one[i][key] for one in limits) for key in ("threads", "gigaflops", "gigabytes_per_second")} for i in range(len(limits[0]))]
    runs = [{"title": title, "step": statistics.median(steps[i]), "operations": median_of(found[i])} for i, (title, _) in enumerate(RUNS)]
    for run in runs:
        print(f"{run['title']}: {run['step'] * 1e3:.1f} ms")
        for o in run["operations"]:
            if o["of_run"] >= 0.01:
                print(f"  {o['operation']:28} {o['of_run']:6.1%}  {o['reached']:8.1f} of {o['limit']:6.1f} {'GB/s' if o['bound'] == 'memory' else 'GFLOP/s':8} {o['share']:6.1%}", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"threads": options.threads, "rounds": options.rounds, "limits": middle, "runs": runs}, indent=1) + "\n")


if __name__ == "__main__":
    main()
