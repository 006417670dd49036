#!/usr/bin/env python3
"""Measures how often models/agent-glm (recipes/agent_sft.toml) solves each of its tasks: held-out problems, several samples of each at temperature 1
and the greedy answer.

    python3 bench/agent_rates.py [--model DIR] [--problems 500] [--samples 4] [--json FILE] [--write]

Prints a table, and how many tasks lie within 30 to 60 % (the sampled rate; the recipe aims at them). --write puts the table into models/agent-glm/README.md,
between its marks; tools/republish does, when it publishes a model. The same model gives the same numbers on every machine."""
import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from marked_page import write_between_marks

ROOT = Path(__file__).resolve().parent.parent
TASKS = "reverse sort add subtract maximum count parity shift deduplicate interleave compare remainder".split()
LOCKBOX = ["--compact-at", "80", "--max-tokens", "16"]  # four windows, as with 72 in the tokens of countdown-glm
LEAST, MOST = 0.3, 0.6
PROBLEMS, SAMPLES = 500, 4


def rates(binary, model, problems, samples, threads, tasks=(*TASKS, "lockbox")):
    result = {}
    for task in tasks:
        environment = [task, *LOCKBOX] if task == "lockbox" else [f"dozen-{task}"]
        command = [binary, "eval", *environment, "--model", model, "--n", problems, "--samples", samples, "--threads", threads, "--json"]
        told = subprocess.run([str(word) for word in command], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        if told.returncode:
            sys.exit(f"eval {task} ended with {told.returncode}")
        result[task] = json.loads(told.stdout)
        print(f"{task:12} {result[task]['pass_at_1']['value']:.3f}", file=sys.stderr, flush=True)
    return result


def table(result):
    shown = lambda interval: f"{interval['value']:.3f} [{interval['low']:.3f}, {interval['high']:.3f}]"  # noqa: E731
    lines = ["| task | sampled pass@1 | greedy |", "|---|---|---|"]
    return "\n".join(lines + [f"| `{task}` | {shown(r['pass_at_1'])} | {shown(r['greedy'])} |" for task, r in result.items()])


def within(result):
    return sum(LEAST <= r["pass_at_1"]["value"] <= MOST for r in result.values())


def write_readme(result, problems, samples):
    readme = ROOT / "models/agent-glm/README.md"
    said = f"{table(result)}\n\n{problems} problems a task, {samples} samples each; {within(result)} of {len(result)} tasks lie within {LEAST:.0%} to {MOST:.0%}."
    write_between_marks(readme, "bench/agent_rates.py", said)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=ROOT / "models/agent-glm")
    parser.add_argument("--problems", type=int, default=PROBLEMS)
    parser.add_argument("--samples", type=int, default=SAMPLES)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--lockstep", default=os.environ.get("LOCKSTEP_BINARY") or ROOT / "build/lockstep")
    options = parser.parse_args()
    result = rates(options.lockstep, options.model, options.problems, options.samples, options.threads)
    print(f"{table(result)}\n\n{within(result)} of {len(result)} tasks within {LEAST:.0%} to {MOST:.0%}")
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    if options.write:
        write_readme(result, options.problems, options.samples)


if __name__ == "__main__":
    main()
