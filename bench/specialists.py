#!/usr/bin/env python3
"""Joins specialists into one model: trains from one model a specialist of each task of `dozen`, by fine-tuning or reinforcement learning; then
distils all of them on policy into one, and compares with the usual alternatives: fine-tuning on one task after another, one run on all tasks, the
average of the specialists' weights.

    python3 bench/specialists.py --work FOLDER                                        # all twelve, three seeds, 2,000 held-out problems: hours
    python3 bench/specialists.py --work FOLDER --tasks sort,maximum --seeds 1 --steps 40 --distill-steps 40 --problems 200
    python3 bench/specialists.py --work FOLDER --page                                 # what FOLDER has, between its marks in docs/distillation.md

Resumable: each run goes on from its last checkpoint, and what is finished (a folder, a line of FOLDER/rates.jsonl) is not done again; another setting
than a FOLDER was begun with is refused, and another program. All compare greedy answers on held-out problems; nothing is chosen by them. Settings of all methods are options, so that
their steps are equal: a specialist takes --steps, the runs on all tasks as many as all specialists together, distillation its own number. Prints a table a
seed, and how far the distilled model is from each specialist. Needs torch and safetensors for the average."""
import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import fmean

from marked_page import write_between_marks

ROOT = Path(__file__).resolve().parent.parent
TASKS = "reverse sort add subtract maximum count parity shift deduplicate interleave compare remainder".split()


class Study:
    def __init__(self, options, seed):
        self.o, self.seed = options, seed
        self.folder = options.work / f"seed-{seed}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.model = str(options.model)

    def lockstep(self, *words):
        words = [str(word) for word in words]
        print("$ lockstep", " ".join(words), file=sys.stderr, flush=True)
        done = subprocess.run([str(self.o.lockstep), *words], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(f"specialists: it ended with {done.returncode}")
        return json.loads(done.stdout.splitlines()[-1])

    def run(self, name, kind, model, *words):
        """A training run, gone on with where it stopped; returns the exported folder."""
        export = self.folder / name / "export"
        done = self.folder / f"{name}.done"
        if not done.exists():
            begun = (self.folder / name / "checkpoints").exists()
            if not begun:
                shutil.rmtree(self.folder / name, ignore_errors=True)
            began = time.monotonic()
            told = self.lockstep("train", kind, "--model", model, "--runs", self.folder, "--name", name, "--threads", self.o.threads, "--seed", self.seed,
                                 "--no-page", "--quiet", "--json", *words, *(["--resume"] if begun else []))
            done.write_text(json.dumps({"weights_sha256": told["weights_sha256"], "seconds": time.monotonic() - began}) + "\n")
        return export

    def learn(self, name, model, tasks, steps):
        """`steps` of the method on tasks."""
        environment = "dozen" if len(tasks) == len(TASKS) else "dozen-" + "+".join(tasks)
        words = ["--environment", environment, "--steps", steps]
        if self.o.method == "sft":
            return self.run(name, "sft", model, *words, "--batch", self.o.batch, "--learning-rate", self.o.learning_rate, "--schedule", "linear", "--patience", 0)
        return self.run(name, "rl", model, *words, "--algorithm", "grpo", "--problems", self.o.batch, "--rollouts", 8, "--max-tokens", 16, "--learning-rate",
                        self.o.learning_rate)

    def distil(self, teachers):
        list_of = self.folder / "teachers.toml"
        list_of.write_text("".join(f'[[teacher]]\nname = "{task}"\nfolder = "{folder.resolve()}"\ndomains = ["{task}"]\n\n' for task, folder in teachers.items()))
        tasks = list(teachers)
        environment = "dozen" if len(tasks) == len(TASKS) else "dozen-" + "+".join(tasks)
        budget = ["--teacher-megabytes", self.o.teacher_megabytes] if self.o.teacher_megabytes else []
        return self.run("distilled", "distill", self.model, "--teachers", list_of, "--environment", environment, "--steps", self.o.distill_steps, "--prompts",
                        self.o.distill_prompts * len(tasks), "--max-tokens", 16, "--divergence", "forward", "--learning-rate", self.o.distill_rate, "--schedule", "linear", *budget)

    def average(self, folders):
        import torch  # bfloat16
        from safetensors.torch import load_file, save_file
        out = self.folder / "average"
        if not (out / "model.safetensors").exists():
            out.mkdir(exist_ok=True)
            all_of = [load_file(folder / "model.safetensors") for folder in folders]
            mean = {name: (sum(one[name].to(torch.float64) for one in all_of) / len(all_of)).to(all_of[0][name].dtype) for name in all_of[0]}
            for file in folders[0].iterdir():
                if file.suffix in (".json", ".jinja"):
                    shutil.copyfile(file, out / file.name)
            save_file(mean, out / "model.safetensors.partial", metadata={"format": "pt"})
            (out / "model.safetensors.partial").rename(out / "model.safetensors")
        return out

    def rate(self, label, model, task):
        """The greedy rate on held-out problems, measured once."""
        log = self.o.work / "rates.jsonl"
        lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        for line in lines:
            if (line["seed"], line["label"], line["task"]) == (self.seed, label, task):
                return line["greedy"]
        told = self.lockstep("eval", f"dozen-{task}", "--model", model, "--n", self.o.problems, "--samples", 1, "--threads", self.o.threads, "--json")
        with log.open("a") as out:
            out.write(json.dumps({"seed": self.seed, "label": label, "task": task, "greedy": told["greedy"]}) + "\n")
        return told["greedy"]

    def study(self):
        tasks, steps = self.o.tasks, self.o.steps
        specialists = {task: self.learn(f"specialist-{task}", self.model, [task], steps) for task in tasks}
        columns = {"before": self.model, "distilled": self.distil(specialists)}
        last, after = self.model, {}
        for task in tasks:
            last = self.learn(f"sequential-{task}", last, [task], steps)
            after[task] = self.rate("sequential-own-turn", last, task)
        columns |= {"sequential": last, "mixed": self.learn("mixed", self.model, tasks, steps * len(tasks))}
        if not self.o.no_average:
            columns["average"] = self.average(list(specialists.values()))
        rows = {}
        for task in tasks:
            rows[task] = {"specialist": self.rate("specialist", specialists[task], task)} | {label: self.rate(label, model, task) for label, model in columns.items()}
            rows[task]["sequential, after its turn"] = after[task]
        return rows


def table(rows, seed):
    labels = list(next(iter(rows.values())))
    lines = [f"seed {seed}", "", "| task | " + " | ".join(labels) + " |", "|---" * (len(labels) + 1) + "|"]
    for task, row in rows.items():
        lines.append(f"| {task} | " + " | ".join(f"{row[label]['value']:.3f}" for label in labels) + " |")
    mean = lambda label: sum(row[label]["value"] for row in rows.values()) / len(rows)  # noqa: E731
    lines.append("| mean | " + " | ".join(f"{mean(label):.3f}" for label in labels) + " |")
    within = [task for task, row in rows.items() if row["distilled"]["value"] >= row["specialist"]["value"] - 0.02]
    lines += ["", f"{len(within)} of {len(rows)} tasks: the distilled model is within 2 points of their specialist, or above it"]
    return "\n".join(lines)


WITHIN = 0.02  # of its specialist, of every task in every seed: the bar
COLUMNS = {"before": "before", "specialist": "specialist", "distilled": "distilled", "sequential": "one after the other (right after its turn)", "mixed": "one run on all", "average": "average of weights"}


def behind(results):
    """How far the distilled model is below the specialist of each task, by seed: {task: {seed: points}}; negative where it is above."""
    tasks = dict.fromkeys(task for rows in results.values() for task in rows)
    return {task: {seed: rows[task]["specialist"]["value"] - rows[task]["distilled"]["value"] for seed, rows in results.items() if task in rows} for task in tasks}


def text(settings, results):
    """The block of docs/distillation.md: `results` by seed as results.json has them."""
    one = next(iter(results.values()))
    labels = [label for label in COLUMNS if label in next(iter(one.values()))]
    value = lambda task, label: fmean(rows[task][label]["value"] for rows in results.values())  # noqa: E731

    def line(name, of):
        cells = [f"{of(label):.3f}" + (f" ({of('sequential, after its turn'):.3f})" if label == "sequential" else "") for label in labels]
        return f"| {name} | " + " | ".join(cells) + " |"

    made = {"sft": "fine-tuning", "rl": "reinforcement learning"}[settings["method"]]
    prompts = int(settings["distill_prompts"]) * len(one)
    lines = [f"{len(one)} of {len(TASKS)} tasks, seeds {', '.join(results)}: specialists by {made}, {int(settings['steps']):,} steps of {settings['batch']} problems; distillation of {int(settings['distill_steps']):,} steps of {prompts} prompts, "
             f"runs on all tasks of {int(settings['steps']) * len(one):,} steps. Greedy answers to {int(settings['problems']):,} held-out problems a task, means over seeds.",
             "", "| task | " + " | ".join(COLUMNS[label] for label in labels) + " |", "|---" * (len(labels) + 1) + "|",
             *(line(f"`{task}`", lambda label, task=task: value(task, label)) for task in one), line("mean", lambda label: fmean(value(task, label) for task in one))]  # fmt: skip
    below = behind(results)
    close = [task for task, seeds in below.items() if all(points <= WITHIN + 1e-9 for points in seeds.values())]
    far = {task: max(seeds.values()) for task, seeds in below.items() if task not in close}
    met = not far and len(one) == len(TASKS) and len(results) >= 3
    lines += ["", f"Within {100 * WITHIN:g} points of its own specialist, or above it, in every seed: {len(close)} of {len(below)} tasks"
              + (f"; further below, at most: {', '.join(f'`{task}` {100 * points:.1f}' for task, points in far.items())}" if far else "")
              + f". The bar, all {len(TASKS)} tasks in 3 seeds: {'met' if met else 'not met'}.", "", f"Measured with {settings['version']}."]  # fmt: skip
    return "\n".join(lines)


def version_of(binary):
    return subprocess.run([str(binary), "--version"], check=True, capture_output=True, text=True).stdout.split("\n")[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--model", type=Path, default=ROOT / "models/agent-glm")
    parser.add_argument("--tasks", default=",".join(TASKS), help="some of them, with commas")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--method", choices=["sft", "rl"], default="sft", help="how specialists are made, and the runs beside them")
    parser.add_argument("--steps", type=int, default=2000, help="of a specialist")
    parser.add_argument("--batch", type=int, default=32, help="problems a step")
    parser.add_argument("--learning-rate", default="1e-3")
    parser.add_argument("--distill-steps", type=int, default=2000)
    parser.add_argument("--distill-prompts", type=int, default=4, help="a task and step")
    parser.add_argument("--distill-rate", default="1e-3")
    parser.add_argument("--teacher-megabytes", type=int, default=0)
    parser.add_argument("--problems", type=int, default=2000, help="held out, a task")
    parser.add_argument("--no-average", action="store_true", help="without torch and safetensors")
    parser.add_argument("--page", action="store_true", help="writes the block of docs/distillation.md of what is done, and runs nothing")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--lockstep", default=os.environ.get("LOCKSTEP_BINARY") or ROOT / "build/lockstep")
    options = parser.parse_args()
    options.work, options.model = options.work.resolve(), options.model.resolve()
    if options.page:
        read = lambda name: json.loads((options.work / name).read_text())  # noqa: E731
        return write_between_marks(ROOT / "docs/distillation.md", "bench/specialists.py", text(read("settings.json"), read("results.json")))
    options.tasks = options.tasks.split(",")
    if unknown := [task for task in options.tasks if task not in TASKS]:
        parser.error(f"unknown tasks {', '.join(unknown)}; there are {', '.join(TASKS)}")
    if options.method == "rl" and 1 < len(options.tasks) < len(TASKS):
        parser.error("--method rl takes all tasks: train rl has no environment of some of them")
    options.work.mkdir(parents=True, exist_ok=True)
    settings = {key: str(value) for key, value in vars(options).items() if key not in ("work", "threads", "lockstep", "seeds", "page")} | {"version": version_of(options.lockstep)}
    written = options.work / "settings.json"
    if not written.exists():
        written.write_text(json.dumps(settings, indent=1) + "\n")
    elif (before := json.loads(written.read_text())) != settings:
        changed = [key for key in settings if before.get(key) != settings[key]]
        parser.error(f"{options.work} was begun with another {', '.join(changed)}")
    results = {}
    for seed in map(int, options.seeds.split(",")):
        results[seed] = Study(options, seed).study()
        print(table(results[seed], seed), flush=True)
        (options.work / "results.json").write_text(json.dumps(results, indent=1) + "\n")  # of the seeds so far


if __name__ == "__main__":
    main()
