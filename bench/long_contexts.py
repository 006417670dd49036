#!/usr/bin/env python3
"""Measures the cost of attention in long contexts, and of latent attention (MLA) absorbed and expanded; `lockstep bench` on random models, in turns.

    bench/long_contexts.py --models FOLDER [--threads N] [--rounds 3] [--contexts 4096,16384,65536] [--dense-most 65536] [--minutes M] [--json FILE]

Models have GLM-5.2's and DeepSeek-V3.2's proportions at 1/16: hidden size, heads of queries and of indexers, widths; heads, latents and the selection
of 2,048 keys have their own sizes, since positions are not scaled. Four layers, few experts (made_models.py). GLM's once with an indexer for all four layers, as
published, once with one for each; V3.2's with an indexer on each, and without any: dense attention over all keys, to --dense-most tokens. Times are those
of a prompt in pieces of 512 tokens, as a server computes it, by operation, and of a token after it (`lockstep bench decode --profile-operations`).
Expanded and absorbed: DeepSeek's heads (16 of 128 + 64 / 128 over a latent of 512) in a training step of 1,024 tokens, the operations of attention alone.
Needs numpy and safetensors. 64k tokens take ten minutes a round, and dense twenty more: of more than 16k it has one round. What is measured stays in
MODELS/long-contexts.json as long as the program is the same, so that a run that was stopped goes on where it was; after --minutes rounds beside a first one are left out.
"""

import argparse
import json
import os
import statistics
import subprocess
import time
from pathlib import Path

import made_models

ROOT = Path(__file__).resolve().parents[1]
LAYERS, TOPK = 4, 2048
LONG = 16384  # of more tokens dense attention has one round
SMALL = {"vocab_size": 2048, "num_hidden_layers": LAYERS, "n_routed_experts": 8, "num_experts_per_tok": 2, "max_position_embeddings": 70000, "n_group": 1, "topk_group": 1,
         "first_k_dense_replace": 1, "rms_norm_eps": 1e-5}  # fmt: skip
# Published sizes over 16, but for sizes of a head and of a latent.
GLM = SMALL | {"model_type": "glm_moe_dsa", "architectures": ["GlmMoeDsaForCausalLM"], "hidden_size": 384, "num_attention_heads": 4, "num_key_value_heads": 4, "q_lora_rank": 128,
               "kv_lora_rank": 512, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256, "intermediate_size": 768, "moe_intermediate_size": 128,
               "index_n_heads": 2, "index_head_dim": 128, "index_topk": TOPK}  # fmt: skip
V32 = SMALL | {"model_type": "deepseek_v32", "architectures": ["DeepseekV32ForCausalLM"], "hidden_size": 448, "num_attention_heads": 8, "num_key_value_heads": 8, "q_lora_rank": 96,
               "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "intermediate_size": 1152, "moe_intermediate_size": 128,
               "index_n_heads": 4, "index_head_dim": 128, "index_topk": TOPK}  # fmt: skip
SHARED, EACH, DENSE = "GLM-5.2, an indexer for four layers", "GLM-5.2, an indexer for each", "V3.2 without indexers, dense"
MODELS = {
    SHARED: ("glm-shared", GLM | {"indexer_types": ["full", "shared", "shared", "shared"]}),
    EACH: ("glm-each", GLM | {"indexer_types": ["full"] * LAYERS}),
    "V3.2": ("v32", V32),
    DENSE: ("dense", {k: v for k, v in V32.items() if not k.startswith("index_")} | {"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"]}),
}
# 16 heads of 128 + 64 / 128 over a latent of 512, and little beside them.
LATENT = SMALL | {"hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 16, "num_key_value_heads": 16, "q_lora_rank": 64, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
                  "qk_rope_head_dim": 64, "v_head_dim": 128, "intermediate_size": 256, "moe_intermediate_size": 32}  # fmt: skip
TOKENS = 1024


def made(folder, name, config):
    base = {k: v for k, v in config.items() if v is not None}
    return made_models.deepseek(folder / name, **base)


def bench(options, kind, model, *more, profile="cpu-f32"):
    command = [os.environ.get("LOCKSTEP_BINARY", str(ROOT / "build/lockstep")), "bench", kind, "--json", "--model", model, "--profile", profile, "--threads", options.threads,
               "--seconds", 0.001, *more]  # fmt: skip
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"long_contexts: {' '.join(map(str, command[1:]))}: {done.stderr.strip()[-500:]}")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return rows[0], {o["operation"]: o for o in rows[-1]["operations"]} if len(rows) > 1 else {}


def with_limits(options):
    """The options of a profile, with the machine's limits measured once."""
    path = options.models / "roofline.json"
    if not path.is_file():
        subprocess.run([os.environ.get("LOCKSTEP_BINARY", str(ROOT / "build/lockstep")), "bench", "roofline", "--threads", str(options.threads), "--out", str(path)], check=True, capture_output=True)
    return ["--profile-operations", "--roofline", path]


def prompt_of(options, model, tokens):
    """Figures of a prompt, and of a token after it: seconds; those of attention and of indexers; floating-point operations in all. The few tokens that are
    decoded are profiled with the prompt, of which they are less than a thousandth."""
    timing, operations = bench(options, "decode", model, "--streams", 1, "--prompt", tokens, "--context", tokens + 600, "--profile-prompts", *with_limits(options))
    part = lambda start: sum(o["seconds"] for name, o in operations.items() if name.startswith(start))
    return {"seconds": timing["prompt_seconds"], "attention": part("attention"), "indexer": part("index"), "flop": sum(o["flop"] for o in operations.values()),
            "token": timing["seconds"]["median"]}  # fmt: skip


def token_flop(config, tokens):
    """Floating-point operations of a token after a prompt: 2 for each weight of its matrices, and the products of attention and of indexers."""
    shapes = made_models.deepseek_shapes(made_models.DEEPSEEK | config)
    used = config["num_experts_per_tok"] / config["n_routed_experts"]
    weights = sum(2 * shape[0] * shape[1] * (used if ".experts." in name and "shared" not in name else 1) for name, shape in shapes.items() if len(shape) == 2 and "embed" not in name)
    keys = min(tokens, config.get("index_topk", tokens))
    attention = LAYERS * 2 * config["num_attention_heads"] * keys * (2 * config["kv_lora_rank"] + config["qk_rope_head_dim"])
    indexers = sum(kind == "full" for kind in config.get("indexer_types", ["full"] * LAYERS)) if "index_topk" in config else 0
    return weights + attention + indexers * 2 * config["index_n_heads"] * config["index_head_dim"] * tokens if indexers else weights + attention


def median(rounds, key):
    return statistics.median(r[key] for r in rounds)


class Kept:
    """What is measured, in a file: rounds of a key, of one program with so many threads."""

    def __init__(self, options):
        program = subprocess.run([os.environ.get("LOCKSTEP_BINARY", str(ROOT / "build/lockstep")), "--version"], check=True, capture_output=True, text=True).stdout.splitlines()[0]
        self.file, self.end, self.rounds = options.models / "long-contexts.json", time.monotonic() + 60 * (options.minutes or 1e6), {}
        self.made_by = [program, options.threads]
        if self.file.is_file() and (kept := json.loads(self.file.read_text()))["made_by"] == self.made_by:
            self.rounds = kept["rounds"]

    def measure(self, key, count, f):
        """The first round of that key which lacks to `count`, by f(). After the end a first round is not begun, and further ones are left out."""
        found = self.rounds.setdefault(key, [])
        if len(found) >= count:
            return
        if time.monotonic() > self.end:
            if found:
                return
            raise SystemExit("long_contexts: the minutes are over; the same command goes on")
        found.append(f())
        part = self.file.with_suffix(".partial")
        part.write_text(json.dumps({"made_by": self.made_by, "rounds": self.rounds}) + "\n")
        os.replace(part, self.file)
        print(f"{key}: {json.dumps({name: round(value, 6) for name, value in found[-1].items()})}", flush=True)


def contexts(options, kept):
    rows = []
    folders = {name: made(options.models, folder, config) for name, (folder, config) in MODELS.items()}
    for tokens in options.contexts:
        names = [name for name in MODELS if name != DENSE or tokens <= options.dense_most]
        rounds = {name: 1 if name == DENSE and tokens > LONG else options.rounds for name in names}
        for turn in range(options.rounds):
            for name in names:
                kept.measure(f"{name}, {tokens}", min(turn + 1, rounds[name]),
                             lambda name=name: prompt_of(options, folders[name], tokens))  # fmt: skip
        for name in names:
            found = kept.rounds[f"{name}, {tokens}"][: rounds[name]]
            growth = [r["attention"] / tokens for r in found]
            rows.append({"model": name, "tokens": tokens, "rounds": len(found), **{key: median(found, key) for key in ("seconds", "attention", "indexer", "flop", "token")},
                         "attention_range": [min(growth), max(growth)], "token_flop": token_flop(MODELS[name][1], tokens)})  # fmt: skip
    return rows


def sharing(rows, tokens):
    """How much faster one indexer for four layers is than one for each, and their ratio by operations; None: not measured."""
    found = {r["model"]: r for r in rows if r["tokens"] == tokens}
    if SHARED not in found or EACH not in found:
        return None
    each, shared = found[EACH], found[SHARED]
    return {"tokens": tokens, "prefill": each["seconds"] / shared["seconds"], "prefill_operations": each["flop"] / shared["flop"], "decode": each["token"] / shared["token"],
            "decode_operations": each["token_flop"] / shared["token_flop"]}  # fmt: skip


def latent(options, kept):
    """Seconds of the operations of attention in a training step, absorbed and expanded, forward and backward."""
    model = made(options.models, "latent", LATENT)

    def one_round():
        one = {}
        for kind, profile in (("absorbed", "cpu-f32"), ("expanded", "cpu-f32-expanded")):
            timing, operations = bench(options, "train", model, "--sequences", 1, "--length", TOKENS, "--context", TOKENS + 16, *with_limits(options), profile=profile)
            for part in ("attention_forward", "attention_backward"):
                one[f"{kind}_{part}"] = sum(o["seconds"] for name, o in operations.items() if name.startswith(part)) / (timing["runs"] + 1)
        return one

    for turn in range(options.rounds):
        kept.measure("latent", turn + 1, one_round)
    rounds = kept.rounds["latent"][: options.rounds]
    sums = lambda one, kind: one[f"{kind}_attention_forward"] + one[f"{kind}_attention_backward"]
    ratios = [sums(one, "absorbed") / sums(one, "expanded") for one in rounds]
    return {key: median(rounds, key) for key in rounds[0]} | {"tokens": TOKENS, "ratio": statistics.median(ratios), "ratio_range": [min(ratios), max(ratios)]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--contexts", type=lambda text: [int(n) for n in text.split(",")], default=[4096, 16384, 65536])
    parser.add_argument("--dense-most", type=int, default=65536)
    parser.add_argument("--minutes", type=float, help="begin no round beside a first one after so long")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    options.models.mkdir(parents=True, exist_ok=True)
    kept = Kept(options)
    result = {"threads": options.threads, "rounds": options.rounds, "latent": latent(options, kept)}
    print(f"expanded over absorbed attention: {result['latent']['ratio']:.2f}", flush=True)
    result["rows"] = contexts(options, kept)
    result["sharing"] = sharing(result["rows"], max(options.contexts))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
