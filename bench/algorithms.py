#!/usr/bin/env python3
"""Measures what each algorithm of `lockstep train rl` learns on Countdown: runs the recipes recipes/countdown_NAME.toml unchanged, and evaluates the
models on held-out problems.

    bench/algorithms.py run --work FOLDER [--algorithms grpo,ppo] [--threads 1]
    bench/algorithms.py page --work FOLDER

run: `lockstep train rl --config` and `lockstep eval` of each. It may be stopped at any time, and the same command goes on where it was.
page: puts the table between its marks in docs/rl.md.

One seed, and the same settings for all (those of the demo): it shows that each learns and what it costs, not which is best. Time is seconds of a processor,
the trainer's and the sampler's, which other programs beside it change less than the clock.
"""
import argparse
import json
import os
import resource
import sys
from pathlib import Path
from statistics import fmean

from families import evaluate, interval, lockstep, metrics, version
from marked_page import write_between_marks

ROOT = Path(__file__).resolve().parents[1]
PARTS = 6  # of the curve


def all_algorithms():
    return sorted(path.stem.removeprefix("countdown_") for path in (ROOT / "recipes").glob("countdown_*.toml") if "\nalgorithm = " in path.read_text())


def timed(run):
    """(the result of `work`, processor seconds of the programs that it ran)."""
    seconds = lambda: sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])  # noqa: E731
    before = seconds()
    return run(), seconds() - before


def train(words, folder):
    """Begins the run of `folder`, or resumes it: what it told at its end, the seconds of a processor that this took, and whether it was resumed."""
    resumed = any((folder / "checkpoints").glob("*"))
    told, seconds = timed(lambda: lockstep("train", *words, *(["--resume"] if resumed else [])))
    return told, seconds, resumed


def run_one(name, work, threads):
    file = work / "results" / f"{name}.json"
    if file.is_file():
        return
    folder = work / "runs" / f"countdown-{name.replace('_', '-')}"
    words = ["rl", "--config", ROOT / f"recipes/countdown_{name}.toml", "--runs", work / "runs", "--threads", threads, "--no-page"]
    _, seconds, resumed = train(words, folder)
    rows = metrics(folder)
    part = len(rows) // PARTS
    result = {"algorithm": name, "steps": len(rows), "rewards": [fmean(row["reward"] for row in rows[i * part : (i + 1) * part]) for i in range(PARTS)],
              "tokens": sum(row["tokens"] for row in rows), "different_bits": sum(row["different_bits"] for row in rows),
              "processor_seconds": None if resumed else seconds, "end": evaluate(folder / "export", threads)}  # fmt: skip
    file.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{name}: {result['rewards'][0]:.3f} -> {result['rewards'][-1]:.3f}, {seconds:.0f} s of a processor", flush=True)


def page(work):
    start = json.loads((work / "results/start.json").read_text())
    results = [json.loads(file.read_text()) for name in all_algorithms() if (file := work / f"results/{name}.json").is_file()]
    steps = results[0]["steps"] // PARTS
    lines = [f"| `--algorithm` | {' | '.join(f'{i * steps + 1}-{(i + 1) * steps}' for i in range(PARTS))} | sampled pass@1 | greedy | processor minutes | other bits, of tokens |",
             "|---" * (PARTS + 5) + "|", f"| before |{' |' * PARTS} {interval(start['pass_at_1'])} | {interval(start['greedy'])} | | |"]  # fmt: skip
    for r in results:
        seconds = "" if r["processor_seconds"] is None else f"{r['processor_seconds'] / 60:.1f}"
        lines.append(f"| `{r['algorithm']}` | {' | '.join(f'{reward:.3f}' for reward in r['rewards'])} | {interval(r['end']['pass_at_1'])} | {interval(r['end']['greedy'])} | "
                     f"{seconds} | {r['different_bits']:,} of {r['tokens']:,} |")  # fmt: skip
    if missing := sorted(set(all_algorithms()) - {r["algorithm"] for r in results}):
        lines += ["", f"Not measured yet: {', '.join(f'`{name}`' for name in missing)}."]
    write_between_marks(ROOT / "docs/rl.md", "bench/algorithms.py", "\n".join([*lines, "", f"Measured with {version()}."]))


def recipe_options(description, made, names, known):
    """The options of a script that makes `made` in --out, and in --work runs the recipes of --NAMES, some of those `known`, and writes their page."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=(made, "run", "page"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--work", type=lambda text: Path(text).resolve())
    parser.add_argument(f"--{names}", type=lambda text: text.split(","), default=known)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    needed = "out" if options.what == made else "work"
    if getattr(options, needed) is None:
        sys.exit(f"{options.what} needs --{needed} FOLDER")
    if unknown := set(getattr(options, names)) - set(known):
        sys.exit(f"no recipe of {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return options


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "page"))
    parser.add_argument("--work", type=lambda text: Path(text).resolve(), required=True)
    parser.add_argument("--algorithms", type=lambda text: text.split(","), default=all_algorithms())
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    if unknown := set(options.algorithms) - set(all_algorithms()):
        sys.exit(f"no recipe of {', '.join(sorted(unknown))}; there are {', '.join(all_algorithms())}")
    if options.what == "page":
        page(options.work)
        return
    os.chdir(ROOT)  # recipes name the model from here
    start = options.work / "results/start.json"
    if not start.is_file():
        start.parent.mkdir(parents=True, exist_ok=True)
        start.write_text(json.dumps(evaluate(ROOT / "models/countdown-glm", options.threads), indent=1) + "\n")
    for name in options.algorithms:
        run_one(name, options.work, options.threads)


if __name__ == "__main__":
    main()
