#!/usr/bin/env python3
"""Measures what each way of distillation on policy learns: runs the recipes recipes/distill_NAME.toml unchanged, from two specialists that are made here.

    bench/distillations.py teachers --out FOLDER
    bench/distillations.py run --work FOLDER [--ways forward,sampled] [--threads 1]
    bench/distillations.py page --work FOLDER

teachers: fine-tunes models/agent-glm on `sort` and on `deduplicate` of the dozen, a model each.
run: `lockstep train distill --config` of each way, and greedy answers to held-out problems of both tasks. It may be stopped at any time, and the same command goes on.
page: puts the table between its marks in docs/rl.md.

One seed and the same settings for all, tuned for none: it shows that each learns and what it costs, not which is best. Losses of different ways are different
quantities.
"""

import json
import os
import sys
from pathlib import Path
from statistics import fmean

from algorithms import recipe_options, train
from families import interval, lockstep, metrics, once, version
from marked_page import write_between_marks

ROOT = Path(__file__).resolve().parents[1]
MODEL = ROOT / "models/agent-glm"
TASKS = ["sort", "deduplicate"]
PARTS = 4  # of the curve
PROBLEMS = 1000


def all_ways():
    return sorted(path.stem.removeprefix("distill_") for path in (ROOT / "recipes").glob("distill_*.toml"))


def make_teachers(folder, threads):
    """By task, the exported specialist."""
    for task in TASKS:
        if not (folder / task / "export/model.safetensors").is_file():
            train(["sft", "--model", MODEL, "--environment", f"dozen-{task}", "--steps", 200, "--batch", 32, "--learning-rate", "1e-3", "--schedule", "linear", "--seed", 1,
                   "--runs", folder, "--name", task, "--threads", threads, "--no-page", "--checkpoint-every", 50], folder / task)  # fmt: skip
    return {task: folder / task / "export" for task in TASKS}


def solved(model, threads):
    """By task, the share of held-out problems that the greedy answer solves."""
    return {task: lockstep("eval", f"dozen-{task}", "--model", model, "--n", PROBLEMS, "--samples", 1, "--max-tokens", 20, "--threads", threads)["greedy"] for task in TASKS}


def parts(losses):
    """Means over PARTS equal parts; what is left over at the end belongs to none."""
    size = len(losses) // PARTS
    return [fmean(losses[i * size : (i + 1) * size]) for i in range(PARTS)]


def run_one(way, work, threads):
    folder = work / "runs" / f"distill-{way.replace('_', '-')}"
    words = ["distill", "--config", ROOT / f"recipes/distill_{way}.toml", "--set", f"teachers={work / 'teachers.toml'}", "--runs", work / "runs", "--threads", threads, "--no-page"]
    _, seconds, resumed = train(words, folder)
    rows = metrics(folder)
    return {"way": way, "steps": len(rows), "losses": parts([row["loss"] for row in rows]), "different_bits": sum(row.get("different_bits", 0) for row in rows),
            "tokens": sum(row["tokens"] for row in rows), "processor_seconds": None if resumed else seconds, "end": solved(folder / "export", threads)}  # fmt: skip


def run(options):
    os.chdir(ROOT)  # recipes name the model from here
    teachers = make_teachers(options.work / "teachers", options.threads)
    (options.work / "teachers.toml").write_text("".join(f'[[teacher]]\nname = "{task}"\nfolder = "{folder}"\ndomains = ["{task}"]\n\n' for task, folder in teachers.items()))
    results = options.work / "results"
    once(results / "start.json", lambda: solved(MODEL, options.threads))
    once(results / "teachers.json", lambda: {task: solved(folder, options.threads)[task] for task, folder in teachers.items()})
    for way in options.ways:
        told = once(results / f"{way}.json", lambda way=way: run_one(way, options.work, options.threads))
        rates = [f"{task} {told['end'][task]['value']:.3f}" for task in TASKS]
        print(f"{way}: {', '.join(rates)}", flush=True)


def table(start, teachers, results, ways):
    size = results[0]["steps"] // PARTS
    lines = [f"| recipe | loss, steps {' | '.join(f'{i * size + 1}-{(i + 1) * size}' for i in range(PARTS))} | {' | '.join(f'`{task}`' for task in TASKS)} | processor minutes | other bits, of tokens |",
             "|---" * (PARTS + len(TASKS) + 3) + "|"]  # fmt: skip
    for label, rates in (("before", start), ("the teachers", teachers)):
        lines.append(f"| {label} |{' |' * PARTS} {' | '.join(interval(rates[task]) for task in TASKS)} | | |")
    for r in results:
        seconds = "" if r["processor_seconds"] is None else f"{r['processor_seconds'] / 60:.1f}"
        lines.append(f"| `distill_{r['way']}` | {' | '.join(f'{loss:.3g}' for loss in r['losses'])} | {' | '.join(interval(r['end'][task]) for task in TASKS)} | {seconds} | "
                     f"{r['different_bits']:,} of {r['tokens']:,} |")  # fmt: skip
    if missing := sorted(set(ways) - {r["way"] for r in results}):
        lines += ["", f"Not measured yet: {', '.join(f'`{way}`' for way in missing)}."]
    return "\n".join(lines)


def page(work):
    read = lambda path: json.loads(path.read_text())  # noqa: E731
    results = [read(file) for way in all_ways() if (file := work / f"results/{way}.json").is_file()]
    if not results:
        sys.exit("no way is measured")
    said = table(read(work / "results/start.json"), read(work / "results/teachers.json"), results, all_ways())
    write_between_marks(ROOT / "docs/rl.md", "bench/distillations.py", f"{said}\n\nMeasured with {version()}.")


def main():
    options = recipe_options(__doc__, "teachers", "ways", all_ways())
    if options.what == "teachers":
        make_teachers(options.out, options.threads)
    elif options.what == "page":
        page(options.work)
    else:
        run(options)


if __name__ == "__main__":
    main()
