#!/usr/bin/env python3
"""What each loss of `lockstep train preference` learns: the recipes recipes/preference_NAME.toml, run as they stand, on pairs that are made here.

    bench/preferences.py data --out FOLDER
    bench/preferences.py run --work FOLDER [--losses dpo,kto] [--threads 1]
    bench/preferences.py page --work FOLDER

data: pairs of right answers of Countdown, train.jsonl and held_out.jsonl. Preferred is the answer whose first step adds or multiplies, rejected one whose first step
subtracts or divides: a taste that the model has no reason to share before. Problems of one file are not in the other.
run: `lockstep train preference --config` of each. It may be stopped at any time; what is done is not repeated.
page: puts the table between its marks in docs/preferences.md.

One seed and the same settings for all, tuned for none: it shows that each learns and what it costs, not which is best.
"""
import itertools
import json
import os
import random
import re
from pathlib import Path

from algorithms import recipe_options, train
from families import metrics, version
from marked_page import write_between_marks

ROOT = Path(__file__).resolve().parents[1]
TRAIN, HELD_OUT = 2000, 500
GROWS = "+*"


def all_losses():
    return sorted(path.stem.removeprefix("preference_") for path in (ROOT / "recipes").glob("preference_*.toml"))


def results_of(a, b):
    """(step, result) of two numbers, as src/rl/countdown.h defines a step: integers of 0 to 99, the greater first, division without remainder."""
    a, b = max(a, b), min(a, b)
    for sign, result in (("+", a + b), ("-", a - b), ("*", a * b), ("/", a // b if b and a % b == 0 else -1)):
        if 0 <= result <= 99:
            yield f"{a}{sign}{b}={result}", result


def answers(numbers):
    """By target: every answer of two steps."""
    found = {}
    for i, j in itertools.combinations(range(3), 2):
        (k,) = {0, 1, 2} - {i, j}
        for first, between in results_of(numbers[i], numbers[j]):
            for second, target in results_of(between, numbers[k]):
                if target > 0:
                    found.setdefault(target, []).append(f"{first},{second}")
    return found


def make_data(folder):
    draw, pairs = random.Random(1), {}
    while len(pairs) < TRAIN + HELD_OUT:
        numbers = [draw.randint(1, 30) for _ in range(3)]
        of_target = answers(numbers)
        target = draw.choice(sorted(of_target))
        grows = lambda answer: re.search(r"\d([+*/-])", answer)[1] in GROWS  # noqa: E731
        chosen = [a for a in of_target[target] if grows(a)]
        rejected = [a for a in of_target[target] if not grows(a)]
        if chosen and rejected:
            pairs.setdefault(f"{' '.join(map(str, numbers))}={target}:", (draw.choice(chosen), draw.choice(rejected)))
    lines = [json.dumps({"prompt": prompt, "chosen": chosen, "rejected": rejected}) + "\n" for prompt, (chosen, rejected) in pairs.items()]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.jsonl").write_text("".join(lines[:TRAIN]))
    (folder / "held_out.jsonl").write_text("".join(lines[TRAIN:]))


def run_one(name, work, threads, settings=()):
    """`settings`: pairs that replace the recipe's own."""
    file = work / "results" / f"{name}.json"
    if file.is_file():
        return
    words = ["preference", "--config", ROOT / f"recipes/preference_{name}.toml", "--runs", work / "runs", "--threads", threads, "--no-page",
             *(part for key, value in (*((key, work / "pairs" / f"{of}.jsonl") for key, of in (("data", "train"), ("eval", "held_out"))), *settings) for part in ("--set", f"{key}={value}"))]  # fmt: skip
    folder = work / "runs" / f"preference-{name}"
    told, seconds, resumed = train(words, folder)
    rows = metrics(folder)
    result = {"loss": name, "steps": len(rows), "before": rows[0]["accuracy"], "held_out_before": told.get("eval_before", {}).get("accuracy"), "weights_sha256": told["weights_sha256"], "held_out": [[row["step"], row["eval_accuracy"], row["eval_margin"]] for row in rows if "eval_accuracy" in row],
              "processor_seconds": None if resumed else seconds}  # fmt: skip
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{name}: {result['before']:.3f} -> {result['held_out'][-1][1]:.3f}, {seconds:.0f} s of a processor", flush=True)


def page(work):
    results = [json.loads(file.read_text()) for name in all_losses() if (file := work / f"results/{name}.json").is_file()]
    steps = [step for step, *_ in results[0]["held_out"]]
    lines = [f"| `--loss` | before | {' | '.join(f'step {step}' for step in steps)} | margin at the end | processor seconds |", "|---" * (len(steps) + 4) + "|"]
    for r in results:
        seconds = "" if r["processor_seconds"] is None else f"{r['processor_seconds']:.0f}"
        before = "" if r["held_out_before"] is None else f"{r['held_out_before']:.3f}"
        lines.append(f"| `{r['loss']}` | {before} | {' | '.join(f'{accuracy:.3f}' for _, accuracy, _ in r['held_out'])} | {r['held_out'][-1][2]:.3g} | {seconds} |")
    lines += ["", f"The weights end with {', '.join('`{weights_sha256}` ({loss})'.format(**r) for r in results)}."]
    if missing := sorted(set(all_losses()) - {r["loss"] for r in results}):
        lines += ["", f"Not measured yet: {', '.join(f'`{name}`' for name in missing)}."]
    write_between_marks(ROOT / "docs/preferences.md", "bench/preferences.py", "\n".join([*lines, "", f"Measured with {version()}."]))


def main():
    options = recipe_options(__doc__, "data", "losses", all_losses())
    if options.what == "data":
        make_data(options.out)
    elif options.what == "page":
        page(options.work)
    else:
        os.chdir(ROOT)  # recipes name the model from here
        if not (options.work / "pairs/train.jsonl").is_file():
            make_data(options.work / "pairs")
        for name in options.losses:
            run_one(name, options.work, options.threads)


if __name__ == "__main__":
    main()
