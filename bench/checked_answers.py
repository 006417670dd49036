#!/usr/bin/env python3
"""Measures the gain of checking answers while they are generated: Countdown on held-out problems, plain and with a checker that sees only the
arithmetic of each finished step and rolls a wrong one back, at most three times: its result twice, then the whole step (environment
`countdown-checked`, docs/rl.md).

    bench/checked_answers.py [--model models/countdown-glm] [--problems 2000] [--samples 8] [--seed 20260601] [--json FILE]

Prints sampled pass@1 of both with 95 % intervals (bootstrap over problems), and the number of tokens drawn, with those rolled back. Also the most
that choosing among n whole answers could gain: pass@n of plain samples, which a chooser that is never wrong would reach; its value at the checker's
number of tokens lies between those of two n. Arms that are in --json already are not run again, so an interrupted run goes on."""
import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BEST_OF = (2, 3)


def evaluate(options, environment, samples):
    binary = os.environ.get("LOCKSTEP_BINARY", str(ROOT / "build/lockstep"))
    command = [binary, "eval", environment, "--model", options.model, "--n", str(options.problems), "--samples", str(samples), "--seed", str(options.seed), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"checked_answers: {' '.join(command)} ended with {done.returncode}")
    return json.loads(done.stdout)


def shown(interval):
    return f"{interval['value']:.4f} [{interval['low']:.4f}, {interval['high']:.4f}]"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(ROOT / "models/countdown-glm"))
    parser.add_argument("--problems", type=int, default=2000)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--seed", type=int, default=20260601)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    settings = {"model": Path(options.model).name, "problems": options.problems, "samples": options.samples, "seed": options.seed}
    known = json.loads(options.json.read_text()) if options.json and options.json.is_file() else {}
    if known and known["settings"] != settings:
        sys.exit(f"checked_answers: {options.json} is of {known['settings']}, and asked for is {settings}")
    arms = known.get("arms", {})
    for name, environment, samples in (("plain", "countdown", options.samples), ("checked", "countdown-checked", options.samples), *((f"best of {n}", "countdown", n) for n in BEST_OF)):
        if name not in arms:
            arms[name] = evaluate(options, environment, samples)
            if options.json:
                partial = options.json.with_suffix(".new")
                partial.write_text(json.dumps({"settings": settings, "arms": arms}, indent=1) + "\n")
                partial.replace(options.json)
    plain, checked = arms["plain"], arms["checked"]
    answers = options.problems * options.samples
    print("| | solved, of samples | tokens an answer | tokens |\n|---|---|---|---|")
    for name in ("plain", "checked"):
        tokens = arms[name]["sample_tokens"]
        print(f"| {name} | {shown(arms[name]['pass_at_1'])} | {tokens / answers:.2f} | {tokens / plain['sample_tokens']:.2f}x |")
    for n in BEST_OF:
        print(f"| best of {n}, by a chooser that is never wrong | {shown(arms[f'best of {n}']['pass_at_k'])} | | {n}x |")
    apart = checked["pass_at_1"]["low"] > plain["pass_at_1"]["high"]
    print(f"\ngained {checked['pass_at_1']['value'] - plain['pass_at_1']['value']:+.4f}; the intervals are {'disjoint' if apart else 'not disjoint'}")


if __name__ == "__main__":
    main()
