"""`lockstep bench context`: its parts are those of the model and of the place in the text. Times differ from run to run, so they are compared where they differ by many
times, of a model with an indexer in each of 8 layers and a selection of 64 keys, which tools/make_recall_folder.py writes."""
import json
import subprocess
import sys

from harness import MODEL, ROOT, TMP, check, done, refused

FOLDER = TMP / "recall-glm"
NEAR, FAR = 1024, 32768
subprocess.run([sys.executable, "-B", ROOT / "tools/make_recall_folder.py", FOLDER], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
done("train", "sft", "--config", ROOT / "recipes/recall_sft.toml", "--set", f"model={FOLDER}", "--set", "steps=1", "--set", "batch=1", "--set", "warmup=0", "--runs", TMP / "runs",
     "--no-page", "--quiet")
MADE = TMP / "runs/recall-sft/export"


def measured(model, *words):
    told = done("bench", "context", "--model", model, "--threads", 1, "--seconds", 0.2, "--json", *words).stdout
    return {line["tokens"]: line for line in map(json.loads, told.splitlines())}


told = measured(MADE, "--tokens", f"{NEAR},{FAR}", "--window", 32)
near, far = told[NEAR], told[FAR]
with check("parts"):
    for line in told.values():
        for way in ("prefill", "decode"):
            t = line[way]
            assert t["runs"] >= 3 and min(t["ns_a_token"], t["indexer_ns"], t["attention_ns"], t["rest_ns"]) > 0, line
            assert abs(t["indexer_ns"] + t["attention_ns"] + t["rest_ns"] - t["ns_a_token"]) <= 1e-6 * t["ns_a_token"], line
            assert 0 <= t["selection_ns"] < t["indexer_ns"], line

with check("growth"):
    # 32 times the keys to score; 64 to attend to at both places, which lie further apart in memory. Something else may run on the machine meanwhile: once in five tries it must be seen.
    for _ in range(5):
        grown = {part: min(told[FAR][way][part] / told[NEAR][way][part] for way in ("prefill", "decode")) for part in ("indexer_ns",)}
        grown |= {part: max(told[FAR][way][part] / told[NEAR][way][part] for way in ("prefill", "decode")) for part in ("attention_ns", "rest_ns")}
        print({part: round(times, 2) for part, times in grown.items()})
        if grown["indexer_ns"] > 8 and max(grown["attention_ns"], grown["rest_ns"]) < 8:
            break
        told = measured(MADE, "--tokens", f"{NEAR},{FAR}", "--window", 32)
    else:
        raise AssertionError(f"no try showed scores that grow and attention that does not: {grown}")

with check("bytes"):
    assert near["cache_bytes_a_token"] == far["cache_bytes_a_token"]
    # 8 layers of an entry (latent and rotated part) and an index key, in bf16.
    config = json.loads((MADE / "config.json").read_text())
    entry = config["kv_lora_rank"] + config["qk_rope_head_dim"] + config["index_head_dim"]
    assert near["cache_bytes_a_token"] == 2 * config["num_hidden_layers"] * entry, near
    assert far["peak_memory_bytes"] > FAR * far["cache_bytes_a_token"], far

with check("shared-indexers"):
    # Two of four layers of the shipped model have one: no more index keys than those.
    config = json.loads((MODEL / "config.json").read_text())
    entry = config["kv_lora_rank"] + config["qk_rope_head_dim"]
    line = measured(MODEL, "--tokens", 256, "--window", 16)[256]
    assert line["cache_bytes_a_token"] == 2 * (4 * entry + 2 * config["index_head_dim"]), line

with check("training"):
    line = measured(MODEL, "--tokens", 256, "--window", 16, "--training")[256]
    assert line["training_ns_a_token"] > line["prefill"]["ns_a_token"], line  # a backward, and recomputing, beside the forward
    assert "training_ns_a_token" not in near

with check("errors"):
    refused("bench", "context", "--model", MODEL, "--tokens", "513", status=1, words=["513", "512"])
    refused("bench", "context", "--model", MODEL, "--tokens", "32", "--window", "64", status=1, words=["32", "64"])
    refused("bench", "context", "--model", MODEL, "--tokens", "0", status=2, words=["0", "1 to 1048576"])
