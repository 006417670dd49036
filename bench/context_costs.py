#!/usr/bin/env python3
"""What a token takes far behind in a text: `lockstep bench context` on random models of GLM-5.2's proportions at 1/16, in turns.

    bench/context_costs.py --models FOLDER [--threads N] [--rounds 2] [--tokens 4096,16384,65536,262144,1048576] [--seconds 1] [--json FILE]

The models of long_contexts.py, with an indexer for all four layers and with one for each. At 262,144 tokens also on one thread. Needs numpy and safetensors, and
12 GB of memory for the cache of 1,048,576 tokens.
"""

import argparse
import json
import os
import statistics
import subprocess
from pathlib import Path

import long_contexts

ROOT = Path(__file__).resolve().parents[1]
LONGEST = 1 << 20
ONE_THREAD_AT = 262144


def bench(options, model, tokens, threads):
    command = [os.environ.get("LOCKSTEP_BINARY", str(ROOT / "build/lockstep")), "bench", "context", "--json", "--model", model, "--profile", "cpu-f32", "--threads", threads,
               "--tokens", tokens, "--seconds", options.seconds]  # fmt: skip
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"context_costs: {' '.join(map(str, command[1:]))}: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout)


def medians(rows):
    """Of the same case in several rounds: each number's median."""
    return {way: {key: statistics.median(row[way][key] for row in rows) for key in rows[0][way]} for way in ("prefill", "decode")}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--tokens", type=lambda text: [int(t) for t in text.split(",")], default=[4096, 16384, 65536, 262144, LONGEST])
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    folder = options.models / "long"
    folder.mkdir(parents=True, exist_ok=True)
    models, indexers = {}, {}
    for name in (long_contexts.SHARED, long_contexts.EACH):
        file, config = long_contexts.MODELS[name]
        models[name] = long_contexts.made(folder, file, config | {"max_position_embeddings": LONGEST})
        indexers[name] = config["indexer_types"].count("full")
    cases = [(name, tokens, options.threads) for tokens in options.tokens for name in models]
    if options.threads > 1 and ONE_THREAD_AT in options.tokens:
        cases.append((long_contexts.EACH, ONE_THREAD_AT, 1))
    measured = {case: [] for case in cases}
    for _ in range(options.rounds):
        for case in cases:
            name, tokens, threads = case
            measured[case].append(bench(options, models[name], tokens, threads))
            print(f"{name}, {tokens:,} tokens, {threads} threads: {measured[case][-1]['prefill']['ns_a_token'] / 1e3:.0f} us a token of a prompt, "
                  f"{measured[case][-1]['decode']['ns_a_token'] / 1e3:.0f} us decoded", flush=True)  # fmt: skip
    rows = [{"model": name, "indexers": indexers[name], "tokens": tokens, "threads": threads, "window": found[0]["window"], "cache_bytes_a_token": found[0]["cache_bytes_a_token"], **medians(found)}
            for (name, tokens, threads), found in measured.items()]  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps({"threads": options.threads, "rounds": options.rounds, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
