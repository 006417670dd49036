"""One long sequence in training, 4,096 tokens (65,536 with LOCKSTEP_SLOW_TESTS=1): a step's gradient, and the weights behind it, have the same bits on one thread and two,
with activations recomputed and not, with another instruction set, and cut over context-parallel ranks. With another token in the middle they have others. The same of 32,768
tokens (1,048,576) on one rank and in pieces over eight, and their scores by the trainer, in pieces too, and by the server's prefill. What the plan of 1,048,576 tokens
says is what the page says, and within the bars: 0.16 of one rank's for a rank of eight, 16 GB for all. A model of two layers with one indexer,
whose rows select 16 keys; Muon's step depends on every bit of a gradient (AdamW's first one on its sign)."""
import json
import os
import random
import re
import subprocess
import sys

from harness import ROOT, TMP, check, done, instruction_sets

TOKENS, LONG = (65536, 1 << 20) if os.environ.get("LOCKSTEP_SLOW_TESTS") else (4096, 1 << 15)
FOLDER = TMP / "long"
subprocess.run([sys.executable, "-B", ROOT / "tools/make_recall_folder.py", FOLDER], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
config = json.loads((FOLDER / "config.json").read_text())
config |= {"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 1, "num_key_value_heads": 1, "q_lora_rank": 16, "kv_lora_rank": 8, "qk_nope_head_dim": 8,
           "qk_rope_head_dim": 8, "v_head_dim": 8, "index_head_dim": 8, "index_n_heads": 1, "index_topk": 16, "indexer_types": ["full", "shared"],
           "mlp_layer_types": ["dense", "sparse"], "max_position_embeddings": 2 * LONG, "intermediate_size": 16, "moe_intermediate_size": 8, "n_routed_experts": 4, "num_experts_per_tok": 1}  # fmt: skip
(FOLDER / "config.json").write_text(json.dumps(config))
draw = random.Random(5)
text = [draw.randrange(config["vocab_size"]) for _ in range(TOKENS + 1)]


def data(name, tokens):
    (TMP / name).write_text(json.dumps({"tokens": tokens, "weights": [1] * (len(tokens) - 1)}) + "\n")
    return TMP / name


WHOLE, OTHER = data("whole.jsonl", text), data("other.jsonl", [*text[: TOKENS // 2], (text[TOKENS // 2] + 1) % 600, *text[TOKENS // 2 + 1 :]])
number = 0


def step(*words, texts=WHOLE, tokens=TOKENS):
    """The hash of the weights, and the gradient's norm, after one step."""
    global number
    number += 1
    told = done("train", "sft", "--model", FOLDER, "--from-scratch", "--init-seed", 3, "--data", texts, "--eval-share", 0, "--steps", 1, "--batch", 1, "--optimizer", "dimuon",
                "--learning-rate", 0.1, "--warmup", 0, "--name", f"run{number}", "--runs", TMP / "runs", "--context", tokens + 1, "--no-page", "--transcripts", 0, "--json", *words,
                timeout=900 if tokens == TOKENS else 7200).json()  # fmt: skip
    line = [json.loads(x) for x in (TMP / f"runs/run{number}/metrics.jsonl").read_text().splitlines()][-1]
    print(" ".join(map(str, words)), told["weights_sha256"][:12], line.get("gradient_norm"), line.get("index_loss"))
    return told["weights_sha256"], line["loss"], line["gradient_norm"], line["index_loss"]


wanted = step("--threads", 1)
WAYS = {"threads": ["--threads", 2], "recomputed": ["--threads", 2, "--checkpoint-activations"], "pieces": ["--threads", 2, "--ranks", "cp=2"]}
for isa in instruction_sets():
    if isa == "avx2":
        WAYS["avx2"] = ["--threads", 2, "--isa", "avx2"]
for name, words in WAYS.items():
    with check(name):
        got = step(*words)
        assert got == wanted, (got, wanted)
with check("another-token"):
    got = step("--threads", 2, texts=OTHER)
    assert all(a != b for a, b in zip(got, wanted)), (got, wanted)

longer = [draw.randrange(config["vocab_size"]) for _ in range(LONG + 1)]
LONGER, SCORED = data("longer.jsonl", longer), TMP / "scored.jsonl"
SCORED.write_text(json.dumps({"tokens": longer}) + "\n")
AGAIN = ["--threads", 2, "--checkpoint-activations"]
with check("eight-pieces"):
    whole, pieces = (step(*AGAIN, *ranks, texts=LONGER, tokens=LONG) for ranks in ([], ["--ranks", "cp=8"]))
    assert whole == pieces, (whole, pieces)

with check("plan-of-eight-pieces"):
    plan = lambda *ranks: done("plan", "--model", FOLDER, "--for", "train", "--sequences", 1, "--length", LONG, "--context", LONG + 1, "--checkpoint-activations",  # noqa: E731
                               "--train-indexer", "--memory-megabytes", 1 << 20, "--json", *ranks, timeout=900).json()["rank_total_bytes"]  # fmt: skip
    one, each = plan(), plan("--ranks", "cp=8")
    assert len(one) == 1 and len(each) == 8 and max(each) < 0.6 * one[0], (one, each)  # 0.16 of larger models; here cache and rotary angles of all positions are much of it

# The model of bench/million_tokens.py, of which docs/long-context.md says what a step of 1,048,576 tokens takes.
MILLION = 1 << 20
subprocess.run([sys.executable, "-B", ROOT / "tools/make_recall_folder.py", TMP / "million"], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
larger = json.loads((TMP / "million/config.json").read_text())
larger |= {"num_hidden_layers": 4, "indexer_types": ["full", *["shared"] * 3], "mlp_layer_types": ["dense", *["sparse"] * 3], "max_position_embeddings": 2 * MILLION}
(TMP / "million/config.json").write_text(json.dumps(larger))
with check("plan-of-a-million-tokens"):
    plan = lambda *ranks: done("plan", "--model", TMP / "million", "--profile", "cpu-bf16w", "--for", "train", "--sequences", 1, "--length", MILLION, "--context", MILLION + 1,  # noqa: E731
                               "--checkpoint-activations", "--train-indexer", "--memory-megabytes", 1 << 20, "--json", *ranks, timeout=900).json()["rank_total_bytes"]  # fmt: skip
    [one], each = plan(), plan("--ranks", "cp=8")
    assert len(each) == 8 and max(each) <= 0.16 * one and sum(each) < 16e9 and one <= 10_000 * MILLION, (one, each)
    page = (ROOT / "docs/long-context.md").read_text()
    a_token = float(re.search(r"^\| at one time \| ([0-9,]+) \|$", page, re.M)[1].replace(",", ""))
    part, all_of_them = map(float, re.search(r"Of cp=8 a rank has ([0-9.]+) of that by the same plan, all eight ([0-9.]+) GB", page).groups())
    for told, found in ((a_token, one / MILLION), (part, max(each) / one), (all_of_them, sum(each) / 1e9)):
        assert abs(told / found - 1) < 0.02, f"docs/long-context.md says {told}, the plan {found:.4g}"

with check("scores"):
    ways = {" ".join(words): done("score", "--model", TMP / "runs/run1/export", "--tokens", SCORED, "--context", LONG + 1, "--threads", 2, *words, timeout=7200).json()
            for words in (["--via", "train"], ["--via", "train", "--ranks", "cp=8"], ["--via", "prefill"])}  # fmt: skip
    first, *others = ways.values()
    assert len(first["logprobs"]) == LONG and all(other == first for other in others), {way: told["bits"] for way, told in ways.items()}
