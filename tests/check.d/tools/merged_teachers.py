"""Distillation on policy: three teachers, each fine-tuned on one small task and bad at the others, become one model that does all three, from prompts alone.

Shares of held-out prompts that are answered right, greedy. Everything is seeded: the numbers are the same on every machine, and the weights those of
recipes/learned.json (with --publish: which are then written).
"""
import itertools
import json
import random
import subprocess
import sys
import urllib.request

from harness import BINARY, MODEL, ROOT, TMP, check, done
from learned import published

sys.path.insert(0, str(ROOT / "bench"))
from started_server import StartedServer  # noqa: E402

TASKS = {"larger": ("+", lambda a, b: f"{max(a, b)}"), "turned": ("-", lambda a, b: f"{b} {a}"), "doubled": ("*", lambda a, b: f"{a} {a}")}
TRAIN, HELD = 600, 100
SFT = ["--steps", 120, "--batch", 32, "--learning-rate", "1e-3", "--warmup", 5, "--eval-share", 0]
DISTILL = ["--divergence", "forward", "--steps", 200, "--schedule", "linear", "--prompts", 48, "--max-tokens", 6, "--learning-rate", "1e-3", "--warmup", 5]


def problems():
    """Of each task: pairs of numbers, those to train with and those held out."""
    pairs = list(itertools.product(range(1, 41), repeat=2))
    random.Random(1).shuffle(pairs)
    return pairs[:TRAIN], pairs[TRAIN : TRAIN + HELD]


def prompt(task, a, b):
    return f"{a} {b} {TASKS[task][0]}="


def solved(model):
    """The share of held-out prompts of each task that this model answers right."""
    with StartedServer([BINARY, "serve", "--model", model, "--port", 0], stderr=subprocess.DEVNULL) as server:
        shares = {}
        for task, (_, answer) in TASKS.items():
            body = {"model": str(model.name), "prompt": [prompt(task, a, b) for a, b in held], "max_tokens": 8, "temperature": 0}
            request = urllib.request.Request(f"{server.url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=120) as reply:
                choices = json.loads(reply.read())["choices"]
            texts = [c["text"] for c in sorted(choices, key=lambda c: c["index"])]
            shares[task] = sum(text == answer(a, b) for text, (a, b) in zip(texts, held, strict=True)) / len(held)
        return shares


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


trained, held = problems()
runs = ["--runs", TMP / "runs", "--no-page", "--quiet", "--json"]
teachers = {}
with check("teachers"):
    for task, (_, answer) in TASKS.items():
        data = lines(TMP / f"{task}.jsonl", ({"prompt": prompt(task, a, b), "completion": answer(a, b)} for a, b in trained))
        done("train", "sft", "--model", MODEL, "--data", data, "--name", task, *SFT, *runs)
        teachers[task] = TMP / "runs" / task / "export"
    before, each = solved(MODEL), {task: solved(folder) for task, folder in teachers.items()}
    print(f"before {before}, teachers {each}")
    assert all(each[task][task] >= 0.7 for task in TASKS), each
    assert all(before[task] <= 0.1 for task in TASKS), before
    for task in TASKS:  # a specialist is none of the others
        assert all(each[task][other] <= 0.3 for other in TASKS if other != task), each

with check("merged"):
    data = lines(TMP / "prompts.jsonl", ({"prompt": prompt(task, a, b), "domain": task} for a, b in trained for task in TASKS))
    (TMP / "teachers.toml").write_text("".join(f'[[teacher]]\nname = "{task}"\nfolder = "{folder}"\ndomains = ["{task}"]\n' for task, folder in teachers.items()))
    told = json.loads(done("train", "distill", "--model", MODEL, "--teachers", TMP / "teachers.toml", "--data", data, "--name", "merged", *DISTILL, *runs).stdout)
    merged = solved(TMP / "runs/merged/export")
    print(f"merged {merged}, divergences {told['divergence']}, weights {told['weights_sha256']}")
    assert told["different_bits"] == 0 and sorted(told["divergence"]) == sorted(TASKS)
    assert all(merged[task] >= each[task][task] - 0.1 for task in TASKS), (merged, each)
    published("three teachers merged", told["weights_sha256"])
