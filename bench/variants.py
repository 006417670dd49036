#!/usr/bin/env python3
"""What one choice costs or gains: lockstep with it and lockstep without it, in turns, so that what else the machine does falls on both.

    bench/variants.py tax|threads|bandwidth|prefix|state [--model FOLDER/fp32] [--threads N] [--rounds 5] [--seconds 0.3] [--json FILE]

tax        linear layers with the contract's summation tree (8 leaves) against the same kernels with one leaf, and against sums in whatever
           order suits the tile; with --model the accumulators' part of a training step
threads    two threads against one: linear layers, and with --model prefill, decoding and a training step
bandwidth  linear layers at 4096 x 4096 whose weights lie in memory, against the fastest read of memory (lockstep bench memory)
prefix     training steps on groups of samples of one prompt: nothing shared, the forward shared, the backward too (needs --model)
state      training steps with the optimizer's state in a file against in memory (needs --model)

--model: SmolLM2 as tools/make_smollm2.py writes it. Prints medians over rounds and the range of the rounds' ratios; on a machine
that others use too, the ratio of the least times beside them is the steadier number.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHAPES = ["1536x576", "576x1536", "4096x4096"]


def lockstep(*arguments):
    command = [os.environ.get("LOCKSTEP_BINARY", str(ROOT / "build/lockstep")), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"variants: {' '.join(map(str, arguments))}: {done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def in_turns(rounds, first, second):
    """Two measurements {median, least} of seconds -> both medians, the second's over the first's, of medians and of least times."""
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(first())
        theirs.append(second())
    ratios = [b["median"] / a["median"] for a, b in zip(ours, theirs)]
    return {"first": statistics.median(a["median"] for a in ours), "second": statistics.median(b["median"] for b in theirs),
            "ratio": statistics.median(ratios), "ratio_range": [min(ratios), max(ratios)],
            "least_ratio": min(b["least"] for b in theirs) / min(a["least"] for a in ours)}  # fmt: skip


def gemm(options, shape, rows, threads=None, **more):
    extra = [part for name, value in more.items() for part in (f"--{name.replace('_', '-')}", value)]
    return lockstep("bench", "gemm", "--json", "--shape", shape, "--rows", rows, "--threads", threads or options.threads, "--seconds", options.seconds,
                    *extra)[0]  # fmt: skip


def model_bench(options, kind, *arguments, threads=None):
    return lockstep("bench", kind, "--json", "--model", options.model, "--profile", "cpu-f32", "--threads", threads or options.threads, "--seconds",
                    options.seconds, *arguments)[0]["seconds"]  # fmt: skip


def tax(options):
    for shape in SHAPES:
        for rows in (1, 8, 64, 256):
            for against, how in (("one leaf", {"leaves": 1}), ("free order", {"order": "free"})):
                yield {"case": f"{shape.replace('x', ' x ')}, M = {rows}", "against": against,
                       **in_turns(options.rounds, lambda: gemm(options, shape, rows, **how)["seconds"], lambda: gemm(options, shape, rows, leaves=8)["seconds"])}  # fmt: skip
    for name, model, shape in (("SmolLM2, 4 x 64 tokens", options.model, (4, 64)), ("countdown-glm, 64 x 64 tokens", ROOT / "models/countdown-glm", (64, 64))):
        if not model:
            continue
        shares = [lockstep("bench", "train", "--json", "--model", model, "--profile", "cpu-f32", "--threads", options.threads, "--seconds", max(options.seconds, 2),
                           "--sequences", shape[0], "--length", shape[1], "--deposits")[0]["deposit_share"] for _ in range(options.rounds)]  # fmt: skip
        yield {"case": name, "share": statistics.median(shares), "share_range": [min(shares), max(shares)]}


def threads(options):
    for shape, rows in (("1536x576", 64), ("4096x4096", 64), ("4096x4096", 1)):
        yield {"case": f"linear {shape.replace('x', ' x ')}, M = {rows}",
               **in_turns(options.rounds, lambda: gemm(options, shape, rows, 2)["seconds"], lambda: gemm(options, shape, rows, 1)["seconds"])}  # fmt: skip
    if options.model:
        for kind, arguments in (("prefill", ["--tokens", 512]), ("decode", ["--streams", 8]), ("train", ["--sequences", 4, "--length", 64])):
            label = {"prefill": "SmolLM2: prefill of 512", "decode": "SmolLM2: decode, 8 streams", "train": "SmolLM2: training step of 4 x 64 tokens"}[kind]
            yield {"case": label, **in_turns(options.rounds, lambda: model_bench(options, kind, *arguments, threads=2),
                                             lambda: model_bench(options, kind, *arguments, threads=1))}  # fmt: skip


def agree(a, b):
    return max(a, b) <= 1.1 * min(a, b)


def bandwidth(options):
    """Layers between two readings of the ruler. A guest's memory may have two speeds, by where its processors run at the moment, that last for seconds:
    a reading counts where the ruler says the same before and after it."""
    cases = list(itertools.product(sorted({1, options.threads}), ("f32", "bf16", "int8"), (1, 4)))
    ruler = lambda threads: lockstep("bench", "memory", "--json", "--threads", threads)[0]["gigabytes_per_second"]
    read = {case: [] for case in cases}
    for _ in range(options.rounds):
        for threads, weights, rows in cases:
            before = ruler(threads)
            for _ in range(5):
                layer = gemm(options, "4096x4096", rows, threads, weights=weights, cold_megabytes=512)
                after, previous = ruler(threads), before
                if agree(previous, after):
                    read[threads, weights, rows].append((layer, max(previous, after)))
                    break
                before = after
    for (threads, weights, rows), found in read.items():
        name = f"{weights}, M = {rows}, {threads} thread{'s' if threads > 1 else ''}"
        if not found:
            sys.exit(f"variants: {name}: the ruler never said the same before and after a layer, in {5 * options.rounds} tries: the memory's speed changes too often")
        shares = [layer["gigabytes_per_second"] / speed for layer, speed in found]
        if max(shares) > 1.1:
            sys.exit(f"variants: {name}: a layer read {max(shares):.2f} of what the fastest read of memory did: the ruler is too short, so no share is told")
        yield {"case": name, "first": statistics.median(speed for _, speed in found), "second": statistics.median(layer["gigabytes_per_second"] for layer, _ in found),
               "ratio": statistics.median(shares), "ratio_range": [min(shares), max(shares)],
               "least_ratio": max(layer["gigabytes_per_second"] * layer["seconds"]["median"] / layer["seconds"]["least"] / speed for layer, speed in found)}  # fmt: skip


def prefix(options):
    # In turns within one process already; a round is one more.
    rounds = [lockstep("bench", "prefix", "--json", "--model", options.model, "--profile", "cpu-f32", "--threads", options.threads, "--seconds", options.seconds,
                       "--samples", 8, "--prompt", options.length, "--tokens", options.length) for _ in range(options.rounds)]  # fmt: skip
    for i, share in ((1, "forward"), (2, "backward")):
        ratios = [r[0]["seconds"]["median"] / r[i]["seconds"]["median"] for r in rounds]
        yield {"case": f"{share} shared, {options.length} + {options.length} tokens", "first": statistics.median(r[i]["seconds"]["median"] for r in rounds),
               "second": statistics.median(r[0]["seconds"]["median"] for r in rounds), "ratio": statistics.median(ratios),
               "ratio_range": [min(ratios), max(ratios)],
               "least_ratio": min(r[0]["seconds"]["least"] for r in rounds) / min(r[i]["seconds"]["least"] for r in rounds)}  # fmt: skip


def state(options):
    with tempfile.TemporaryDirectory(dir=options.disk) as folder:
        step = ["--sequences", 4, "--length", options.length]
        yield {"case": f"4 x {options.length} tokens",
               **in_turns(options.rounds, lambda: model_bench(options, "train", *step),
                          lambda: model_bench(options, "train", *step, "--optimizer-folder", folder))}  # fmt: skip


KINDS = {"tax": tax, "threads": threads, "bandwidth": bandwidth, "prefix": prefix, "state": state}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--length", type=int, default=64, help="tokens of a prompt and of a sample, or of a sequence")
    parser.add_argument("--disk", type=Path, help="a folder on the disk where the state's file goes")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.kind in ("prefix", "state") and not options.model:
        parser.error(f"{options.kind} needs --model")
    rows = []
    for row in KINDS[options.kind](options):
        rows.append(row)
        if "share" in row:
            print(f"{row['case']:44} deposits {row['share']:.3f} of a step ({row['share_range'][0]:.3f} .. {row['share_range'][1]:.3f})", flush=True)
            continue
        print(f"{row['case']:44} {row.get('against', ''):12} {row['ratio']:7.3f} ({row['ratio_range'][0]:.3f} .. {row['ratio_range'][1]:.3f}), of least times {row['least_ratio']:.3f}", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"threads": options.threads, "rounds": options.rounds, "seconds": options.seconds, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
