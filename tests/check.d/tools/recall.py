"""The environment `recall` from its recipe to an answer: every word of its texts is one token of the folder that tools/make_recall_folder.py writes, a model of at
most 1.5 million parameters trains on it, by references and by rewards, and is measured at a length of the caller's own."""
import json
import re
import subprocess
import sys

from harness import ROOT, TMP, check, done, refused

FOLDER, RUNS = TMP / "recall-glm", TMP / "runs"
subprocess.run([sys.executable, "-B", ROOT / "tools/make_recall_folder.py", FOLDER], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
SMALL = ["--runs", RUNS, "--no-page", "--json"]


def trained(recipe, name, *words):
    """The export of a run of few steps."""
    done("train", "sft", "--config", ROOT / f"recipes/{recipe}.toml", "--name", name, "--set", "warmup=1", *words, *SMALL)
    return RUNS / name / "export"


with check("train"):
    model = trained("recall_sft", "first", "--set", f"model={FOLDER}", "--set", "steps=2", "--set", "batch=4")
    lines = [json.loads(line) for line in (RUNS / "first/metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "loss" in line][-1] == 2, lines
    info = done("info", model, "--json").json()
    assert info["parameters"]["total"] <= 1_500_000, info["parameters"]
    assert json.loads((model / "config.json").read_text())["max_position_embeddings"] == 1 << 20

with check("words-are-tokens"):
    prompt = " ba de Bal17 mi Kon03 fo? Kon Bal:"
    words = re.findall(r" ?[A-Za-z]+|\d\d|[?:]", prompt)
    assert "".join(words) == prompt
    told = done("tokenize", "--model", model, "--text", prompt, "--json").json()
    assert len(told["tokens"]) == len(words), told

with check("longer"):
    longer = trained("recall_longer_sft", "longer", "--set", f"model={model}", "--set", "steps=2", "--set", "batch=2")
    assert (longer / "model.safetensors").stat().st_size <= 3_000_000

with check("lengths"):
    # A length and a number of questions of its own for each text.
    several = trained("recall_lengths_sft", "lengths", "--set", f"model={model}", "--set", "steps=2", "--set", "batch=4", "--set", "environment=recall-queries-16..32-asked-1..8")
    rows = [line["tokens"] for line in map(json.loads, (RUNS / "lengths/metrics.jsonl").read_text().splitlines()) if "loss" in line]
    assert len(set(rows)) == 2 and all(4 * 16 < tokens < 4 * (32 + 3 * 8 + 4) for tokens in rows), rows

with check("eval"):
    told = done("eval", "recall-last-40", "--model", model, "--n", 4, "--samples", 1, "--max-tokens", 8, "--json").json()
    assert told["problems"] == 4 and 0 <= told["pass_at_1"]["value"] <= 1, told
    refused("eval", "recall-last-15", "--model", model, status=1, words=["15; allowed is 16 to 1048448"])
    told = done("eval", "recall-last-40-asked-1..2", "--model", model, "--n", 4, "--samples", 1, "--max-tokens", 8, "--json").json()
    assert told["problems"] == 4, told
    refused("eval", "recall-64-asked-33", "--model", model, status=1, words=["number is 33; allowed is 1 to 32 questions"])
    refused("eval", "recall-lost-64", "--model", model, status=1, words=["recall-lost-64", "recall-last"])

with check("search"):
    # Which of the 8 indexers can go: one after the other, and every choice.
    (TMP / "tokens.jsonl").write_text("".join(json.dumps({"tokens": [(i * i * k + 7 * i) % 300 for i in range(200)]}) + "\n" for k in (3, 11)))
    search = lambda left, *words: done("index-share", "search", "--model", model, "--data", TMP / "tokens.jsonl", "--indexers", left, "--json", *words).json()  # noqa: E731
    for left, in_turn, every in ((7, 8, 8), (4, 23, 36), (2, 28, 8)):
        greedy, all_choices = search(left), search(left, "--exhaustive")
        assert (greedy["tried"], all_choices["tried"]) == (in_turn, every), (left, greedy["tried"], all_choices["tried"])
        (one, other) = greedy["steps"][-1], all_choices["steps"][-1]
        assert len(one["layers"]) == len(other["layers"]) == left and other["loss"] <= one["loss"], (one, other)
        assert left < 7 or one["layers"] == other["layers"], (one, other)
    losses = [step["loss"] for step in search(1)["steps"]]
    assert len(losses) == len(set(losses)) == 8, losses  # selections differ: leaving one out is felt

with check("rl"):
    done("train", "rl", "--model", model, "--environment", "recall-keys-24", "--steps", 1, "--problems", 2, "--rollouts", 2, "--max-tokens", 4, "--name", "rl", *SMALL)
