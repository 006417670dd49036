#!/usr/bin/env python3
"""Measures the cost or gain of one choice: lockstep with it and without it, in turns, so that other load on the machine falls on both.

    bench/variants.py tax|threads|bandwidth|prefix|prompts|state|counters [--model FOLDER/fp32] [--threads N] [--rounds 5] [--seconds 0.3] [--json FILE]
    bench/variants.py commits --before PROGRAM [--after PROGRAM] --model FOLDER/fp32 ...

tax        linear layers with the contract's summation tree (8 leaves) against the same kernels with one leaf, and against sums in whatever
           order suits the tile; with --model the accumulators' part of a training step
threads    two threads against one: linear layers, and with --model prefill, decoding and a training step
bandwidth  linear layers at 4096 x 4096 whose weights lie in memory, against the fastest read of memory (lockstep bench memory)
prefix     training steps on groups of samples of one prompt: nothing shared, the forward shared, the backward too (needs --model)
prompts    a training step on 8 samples of 64 tokens after one prompt of 2,048: the same three, each in a process of its own, with its memory (needs --model)
state      training steps with the optimizer's state in a file against in memory (needs --model)
counters   forwards with the kernels' work counters against without them; with --model of SmolLM2 too
commits    two builds of lockstep: prompts, decoding of 1, 8 and 32 streams, training steps, a GRPO step, and a short completion over HTTP (needs
           --model, beside whose fp32/ bf16/ stands)

--model: SmolLM2 as tools/make_smollm2.py writes it. Prints medians over rounds and the range of the rounds' ratios; on a machine
that others use too, the ratio of the least times beside them is the steadier number (of times: a share of the memory's speed has none).
"""

import argparse
import http.client
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import memory_ruler
from started_server import StartedServer

ROOT = Path(__file__).resolve().parents[1]
SHAPES = ["1536x576", "576x1536", "4096x4096"]


def binary():
    return os.environ.get("LOCKSTEP_BINARY", str(ROOT / "build/lockstep"))


def lockstep(*arguments, program=None):
    command = [str(program or binary()), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"variants: {' '.join(map(str, arguments))}: {done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def in_turns(rounds, first, second):
    """Two measurements {median, least} of seconds -> both medians, and the ratios second over first of medians and of least times. The order changes
    with each round, so that a machine that slows down under load favours neither."""
    ours, theirs = [], []
    for turn in range(rounds):
        for measure, found in ((first, ours), (second, theirs))[:: -1 if turn % 2 else 1]:
            found.append(measure())
    return compared(ours, theirs)


def compared(ours, theirs):
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
    a reading counts where the ruler says the same before and after it, and where the layer is not above it, of further readings if need be."""
    cases = list(itertools.product(sorted({1, options.threads}), ("f32", "bf16", "int8"), (1, 4)))
    read, above = {case: [] for case in cases}, {case: 0 for case in cases}
    for _ in range(options.rounds):
        for case in cases:
            threads, weights, rows = case
            before = memory_ruler.speed(threads)
            for _ in range(5):
                layer = gemm(options, "4096x4096", rows, threads, weights=weights, cold_megabytes=512)["gigabytes_per_second"]
                after, previous = memory_ruler.speed(threads), before
                before = after
                if not agree(previous, after):
                    continue
                fastest = memory_ruler.lengthened(threads, layer, previous, after)
                if layer <= fastest:
                    read[case].append((layer, fastest))
                    break
                above[case] = max(above[case], layer / fastest)
    for (threads, weights, rows), found in read.items():
        name = f"{weights}, M = {rows}, {threads} thread{'s' if threads > 1 else ''}"
        if not found and above[threads, weights, rows]:
            sys.exit(f"variants: {name}: a layer read {above[threads, weights, rows]:.2f} of what the fastest read of memory did: the ruler is too short, so no share is told")
        if not found:
            sys.exit(f"variants: {name}: the ruler never said the same before and after a layer, in {5 * options.rounds} tries: the memory's speed changes too often")
        shares = [layer / speed for layer, speed in found]
        yield {"case": name, "first": statistics.median(speed for _, speed in found), "second": statistics.median(layer for layer, _ in found),
               "ratio": statistics.median(shares), "ratio_range": [min(shares), max(shares)]}  # fmt: skip


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


def prompts(options):
    samples, prompt, tokens = options.prompts
    found = {kind: [] for kind in ("off", "forward", "backward")}
    for turn in range(options.rounds):
        for kind in list(found)[:: -1 if turn % 2 else 1]:
            found[kind].append(lockstep("bench", "prefix", "--json", "--model", options.model, "--profile", "cpu-f32", "--threads", options.threads, "--seconds", options.seconds,
                                        "--samples", samples, "--prompt", prompt, "--tokens", tokens, "--share", kind)[0])  # fmt: skip
    kinds, whole = {}, samples * (prompt + tokens - 1)  # the last token is drawn and never read
    shared = prompt - 1 + samples * tokens
    for kind, rounds in found.items():
        ratios = [a["seconds"]["median"] / b["seconds"]["median"] for a, b in zip(found["off"], rounds)]
        peak = statistics.median(r["peak_memory_bytes"] for r in rounds)
        kinds[kind] = {"seconds": statistics.median(r["seconds"]["median"] for r in rounds), "ratio": statistics.median(ratios), "ratio_range": [min(ratios), max(ratios)], "peak_bytes": peak,
                       "memory_ratio": peak / statistics.median(r["peak_memory_bytes"] for r in found["off"]), "forward_rows": whole if kind == "off" else shared,
                       "backward_rows": shared if kind == "backward" else whole}  # fmt: skip
    yield {"case": f"{samples} x {tokens} after {prompt} tokens", "samples": samples, "prompt": prompt, "tokens": tokens, "kinds": kinds}


def state(options):
    with tempfile.TemporaryDirectory(dir=options.disk) as folder:
        step = ["--sequences", 4, "--length", options.length]
        yield {"case": f"4 x {options.length} tokens",
               **in_turns(options.rounds, lambda: model_bench(options, "train", *step),
                          lambda: model_bench(options, "train", *step, "--optimizer-folder", folder))}  # fmt: skip


def counters(options):
    glm = ROOT / "models/countdown-glm"
    cases = [("countdown-glm", glm, streams, tokens, prompt) for streams, tokens, prompt in ((1, 1, 256), (32, 1, 256), (1, 256, 0))]
    if options.model:
        cases += [("SmolLM2", options.model, streams, tokens, prompt) for streams, tokens, prompt in ((1, 1, 256), (8, 1, 256), (1, 256, 0))]
    for name, model, streams, tokens, prompt in cases:
        # In turns within one process already; a round is one more.
        rounds = [lockstep("bench", "counters", "--json", "--model", model, "--profile", "cpu-f32", "--threads", options.threads, "--seconds", options.seconds,
                           "--streams", streams, "--tokens", tokens, "--prompt", prompt) for _ in range(options.rounds)]  # fmt: skip
        ratios = [on["seconds"]["median"] / off["seconds"]["median"] for on, off in rounds]
        what = f"a prompt of {tokens}" if prompt == 0 else f"{streams} stream{'s' if streams > 1 else ''} at position {prompt}"
        yield {"case": f"{name}, {what}", "first": statistics.median(off["seconds"]["median"] for _, off in rounds),
               "second": statistics.median(on["seconds"]["median"] for on, _ in rounds), "ratio": statistics.median(ratios), "ratio_range": [min(ratios), max(ratios)],
               "least_ratio": min(on["seconds"]["least"] for on, _ in rounds) / min(off["seconds"]["least"] for _, off in rounds)}  # fmt: skip


def server(program, model, threads):
    return StartedServer([program, "serve", "--model", model, "--port", 0, "--threads", threads], stderr=subprocess.DEVNULL)


def completion_seconds(address, model, prompts):
    """Median and least time of a completion of 8 tokens, one after another on one connection."""
    connection, times = http.client.HTTPConnection(address, timeout=60), []
    for prompt in prompts:
        body = json.dumps({"model": model, "prompt": prompt, "max_tokens": 8, "temperature": 0, "ignore_eos": True})
        begin = time.perf_counter()
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        times.append(time.perf_counter() - begin)
        if answer.status != 200 or json.loads(text)["usage"]["completion_tokens"] != 8:
            sys.exit(f"variants: a completion was answered with {answer.status}: {text[:300]!r}")
    connection.close()
    return {"median": statistics.median(times), "least": min(times)}


def commits(options):
    glm = ROOT / "models/countdown-glm"
    models = [("SmolLM2 fp32", options.model, "cpu-f32", 128), ("SmolLM2 bf16", options.model.parent / "bf16", "cpu-bf16w", 128), ("countdown-glm", glm, "cpu-bf16w", 256)]
    groups = []  # cases of one run of a program, a line each
    for name, model, profile, prompt in models:
        groups.append(([f"{name}, a prompt of {prompt}"], model, profile, ["prefill", "--tokens", prompt]))
        groups.append(([f"{name}, decoding, {n} stream{'s' if n > 1 else ''}" for n in (1, 8, 32)], model, profile, ["decode", "--streams", "1,8,32", "--prompt", 32]))
    groups.append((["SmolLM2 fp32, a training step of 2 x 64 tokens"], options.model, "cpu-f32", ["train", "--sequences", 2, "--length", 64]))
    groups.append((["countdown-glm, a training step of 32 x 64 tokens"], glm, "cpu-f32", ["train", "--sequences", 32, "--length", 64]))
    groups.append((["countdown-glm, a GRPO step of 8 x 8 samples of 32 tokens"], glm, "cpu-f32", ["rl"]))
    groups.append((["countdown-glm, a GRPO step of the demo's 32 x 8 samples of 16 tokens"], glm, "cpu-bf16w", ["rl", "--prompts", 32, "--samples", 8, "--tokens", 16]))
    for names, model, profile, what in groups:
        run = lambda program: [row["seconds"] for row in lockstep("bench", what[0], "--json", "--model", model, "--profile", profile, "--threads", options.threads, "--seconds",
                                                                  max(options.seconds, 1), *what[1:], program=program)]  # fmt: skip
        found = {program: [] for program in (options.before, options.after)}
        for turn in range(options.rounds):
            for program in list(found)[:: -1 if turn % 2 else 1]:
                found[program].append(run(program))
        for i, name in enumerate(names):
            yield {"case": name, **compared(*([lines[i] for lines in runs] for runs in found.values()))}
    with server(options.before, glm, options.threads) as before, server(options.after, glm, options.threads) as after:
        ask = lambda server: completion_seconds(server.address, glm.name, [f"{16 + i} 19 14={17 + i}:" for i in range(50)])
        ask(before), ask(after)  # the first ones fill caches
        yield {"case": "countdown-glm, a completion of 8 tokens over HTTP", **in_turns(options.rounds, lambda: ask(before), lambda: ask(after))}


def commit_of(program):
    found = re.search(r"commit (\S+)", subprocess.run([str(program), "--version"], capture_output=True, text=True).stdout)
    return found[1] if found else "unknown"


KINDS = {"tax": tax, "threads": threads, "bandwidth": bandwidth, "prefix": prefix, "prompts": prompts, "state": state, "counters": counters, "commits": commits}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--length", type=int, default=64, help="tokens of a prompt and of a sample, or of a sequence")
    parser.add_argument("--prompts", type=lambda text: [int(part) for part in text.split(",")], default=[8, 2048, 64], help="of prompts: samples, tokens of the prompt, of a sample")
    parser.add_argument("--disk", type=Path, help="a folder on the disk where the state's file goes")
    parser.add_argument("--before", type=Path, help="another build of lockstep, for commits")
    parser.add_argument("--after", type=Path, help="the build that it is compared with (default: $LOCKSTEP_BINARY, build/lockstep)")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.kind in ("prefix", "prompts", "state", "commits") and not options.model:
        parser.error(f"{options.kind} needs --model")
    if options.kind == "commits":
        options.after = options.after or Path(binary())
        if not options.before:
            parser.error("commits needs --before")
        if options.before.resolve() == options.after.resolve():
            parser.error("--before and --after are the same program")
    rows = []
    for row in KINDS[options.kind](options):
        rows.append(row)
        if "kinds" in row:
            for kind, k in row["kinds"].items():
                print(f"{row['case']:44} {kind:12} {k['seconds']:8.2f} s {k['ratio']:6.2f} ({k['ratio_range'][0]:.2f} .. {k['ratio_range'][1]:.2f}), {k['peak_bytes'] / 1e9:.2f} GB, {k['memory_ratio']:.2f}", flush=True)
            continue
        if "share" in row:
            print(f"{row['case']:44} deposits {row['share']:.3f} of a step ({row['share_range'][0]:.3f} .. {row['share_range'][1]:.3f})", flush=True)
            continue
        least = f", of least times {row['least_ratio']:.3f}" if "least_ratio" in row else ""
        print(f"{row['case']:44} {row.get('against', ''):12} {row['ratio']:7.3f} ({row['ratio_range'][0]:.3f} .. {row['ratio_range'][1]:.3f}){least}", flush=True)
    builds = {"before": commit_of(options.before), "after": commit_of(options.after)} if options.kind == "commits" else {}
    if options.json:
        options.json.write_text(json.dumps({"threads": options.threads, "rounds": options.rounds, "seconds": options.seconds, **builds, **({"targets": {"ratio": 5, "memory": 0.5}} if options.kind == "prompts" else {}), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
