#!/usr/bin/env python3
"""What kept forwards (docs/kept-forwards.md) save a client that changes nothing: `rl_loop` of tinker-cookbook, unmodified, against `lockstep serve --training` with
--keep-forward off and all, in turns, a server each. Seconds of a step as the recipe tells them, of the steps in which it trained; the time of `off` over that of
`all` in the same round. Beside it the device's seconds, by the server's /metrics, for a step's sampling and training: means over all steps.

    bench/kept_loop.py --model FOLDER/bf16 [--lockstep build/lockstep] [--batch 4] [--group 8] [--max-tokens 128] [--steps 6] [--rounds 7] [--threads N] [--json FILE]

Run it with the Python of an environment made from tools/oracle-requirements.txt and tools/oracle-requirements-alone.txt. Questions are sums of two digits, in place of
GSM8K, and name their answers: the recipe leaves out a question whose answers are all right or all wrong, and a model of SmolLM2's size hardly ever has a sum right,
but now and then copies one. A step that trained on nothing is not counted. The first step that trained warms up. In the run with `all` training must have read rows that sampling kept, else the script ends.
"""
import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

import works_with_base
from started_server import StartedServer

ROOT = Path(__file__).resolve().parents[1]
TARGET = 1.12
NAME = "Qwen/Qwen3.5-9B-Base"  # the recipe's own model_name, by which it chooses its renderer; here an alias
MODES = ("off", "all")
WORK = ("rollouts", "training")  # classes of the device's work


class Server(StartedServer):
    def __init__(self, options, work, mode):
        command = [options.lockstep, "serve", "--training", "--model", options.model, "--name", "base", "--alias", NAME, "--state", work / "state", "--port", "0", "--threads", options.threads,
                   "--no-access-log", "--log-level", "error", "--keep-forward", mode, *(["--keep-forward-megabytes", options.megabytes] if mode != "off" else [])]  # fmt: skip
        super().__init__(command)

    def metrics(self):
        return urllib.request.urlopen(f"{self.url}/metrics").read().decode()

    def device_seconds(self):
        """Of each class of work, of all keys together."""
        found = {}
        for work, seconds in re.findall(r'^lockstep_device_seconds_total\{class="(\w+)"[^}]*\} ([\d.e+-]+)$', self.metrics(), re.M):
            found[work] = found.get(work, 0) + float(seconds)
        return found

    def rows(self):
        """Rows that training read, computed beside them, and those that were dropped; and memory of kept rows. None of a server that keeps none."""
        return {name: float(value) for name, value in re.findall(r"^lockstep_training_rows_(\w+?)(?:_total)? ([\d.e+]+)$", self.metrics(), re.M)}


def write_questions(work):
    works_with_base.write_stand_ins(work)
    rng = random.Random(3)
    sums = [(rng.randint(1, 9), rng.randint(1, 9)) for _ in range(512)]
    works_with_base.write_rows(work / "openai/gsm8k/train.jsonl", [{"question": f"What is {x} + {y}? (It is \\boxed{{{x + y}}}.)", "answer": f"{x} + {y} = {x + y}\n#### {x + y}"} for x, y in sums])


def run(options, mode):
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        write_questions(work)
        works_with_base.link_tokenizers(work, options.model.resolve(), [NAME])
        server = Server(options, work, mode)
        try:
            arguments = [f"batch_size={options.batch}", f"group_size={options.group}", f"max_tokens={options.max_tokens}", f"max_steps={options.steps}", "loss_fn=importance_sampling", "save_every=0",
                         f"log_path={work / 'log'}"]  # fmt: skip
            environment = {**os.environ, "TINKER_BASE_URL": server.url, "TINKER_API_KEY": "tml-dummy", "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(work / "empty"),
                           "WANDB_MODE": "disabled", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}  # fmt: skip
            done = subprocess.run([sys.executable, "-m", "tinker_cookbook.recipes.rl_loop", *arguments], cwd=work, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"kept_loop: the recipe failed:\n{(done.stdout + done.stderr)[-3000:]}")
            rows, device = server.rows(), server.device_seconds()
        finally:
            server.stop()
        steps = [json.loads(line) for line in (work / "log/metrics.jsonl").read_text().splitlines()]
    trained = [step["time/total"] for step in steps if "grad_norm" in step]  # a step without training has no figures of the optimizer
    if len(trained) < 2:
        raise SystemExit(f"kept_loop: {len(trained)} of {len(steps)} steps trained on something, and the first one warms up; more questions: --batch, --group")
    if (mode == "all") != (rows.get("read", 0) > 0):
        raise SystemExit(f"kept_loop: with --keep-forward {mode} training read {rows.get('read', 0):.0f} kept rows")
    return {"step": statistics.median(trained[1:]), "trained": len(trained), "device": {work: device.get(work, 0) / len(steps) for work in WORK},
            **{f"rows_{name}": rows.get(name, 0) for name in ("kept", "read", "beside", "dropped")}}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--lockstep", default=os.environ.get("LOCKSTEP_BINARY", str(ROOT / "build/lockstep")))
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=7)
    for name, value in (("batch", 4), ("group", 8), ("max-tokens", 128), ("steps", 6), ("megabytes", 8192)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = {mode: [] for mode in MODES}
    for number in range(options.rounds):
        for mode in MODES[:: 1 if number % 2 == 0 else -1]:
            found[mode].append(run(options, mode))
    table = []
    for mode, runs in found.items():
        ratios = [off["step"] / one["step"] for off, one in zip(found["off"], runs)]
        row = {"mode": mode, "step": statistics.median(one["step"] for one in runs), "ratio": statistics.median(ratios), "ratio_range": [min(ratios), max(ratios)],
               "trained": sum(one["trained"] for one in runs), "device": {work: statistics.median(one["device"][work] for one in runs) for work in WORK},
               **{key: statistics.median(one[key] for one in runs) for key in runs[0] if key.startswith("rows_")}}  # fmt: skip
        table.append(row)
        print(f"{mode:4} step {row['step']:.3f} s; {row['ratio']:.2f} ({min(ratios):.2f} to {max(ratios):.2f}) of off; rows read {row['rows_read']:.0f}, computed beside them {row['rows_beside']:.0f}", flush=True)
    if options.json:
        head = {name: getattr(options, name) for name in ("batch", "group", "max_tokens", "steps", "threads", "rounds")}
        options.json.write_text(json.dumps({**head, "target": TARGET, "table": table}, indent=1) + "\n")


if __name__ == "__main__":
    main()
