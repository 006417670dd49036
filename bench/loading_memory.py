#!/usr/bin/env python3
"""Measures the memory of a server until it is ready, relative to the bytes of its compute copy, and how long it loads:

    python3 bench/loading_memory.py [--model DIR ...] [--int4-gigabytes 0.8] [--before OTHER-LOCKSTEP] [--threads 2] [--rounds 3] [--json FILE]

For each folder under cpu-bf16w, and for a folder of random INT4 experts (as compressed-tensors packs them) that this script writes, under
cpu-int4-experts: the largest resident size of `lockstep serve` until it listens, less its cache (--cache-megabytes 32), over the bytes of the
compute copy as `lockstep plan` says them; and the seconds until it listens, files in the page cache, with those of the processors. --before: the same of another build.
Needs numpy and safetensors."""
import argparse
import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from started_server import StartedServer

CACHE = 32  # megabytes
HIDDEN, WIDTH, LAYERS, HEADS, KV, HEAD, VOCABULARY = 1024, 768, 8, 8, 2, 128, 8192


def write_int4_experts(folder, gigabytes):
    """Qwen3-MoE with packed experts; as many as that many bytes hold."""
    experts = max(4, round(gigabytes * 1e9 / (LAYERS * 3 * HIDDEN * WIDTH * 4.5 / 8)))
    random = np.random.default_rng(1)

    def plain(*shape):  # bf16 is not a dtype of numpy: numbers that it has
        return (random.standard_normal(shape) * 0.02).astype(np.float16).astype(np.float32) if len(shape) == 2 else np.ones(shape, np.float32)

    shards, index = [], {}
    head = {"model.embed_tokens.weight": plain(VOCABULARY, HIDDEN), "model.norm.weight": plain(HIDDEN), "lm_head.weight": plain(VOCABULARY, HIDDEN)}
    for i in range(LAYERS):
        name = f"model.layers.{i}."
        tensors = {name + "input_layernorm.weight": plain(HIDDEN), name + "post_attention_layernorm.weight": plain(HIDDEN),
                   name + "self_attn.q_norm.weight": plain(HEAD), name + "self_attn.k_norm.weight": plain(HEAD), name + "mlp.gate.weight": plain(experts, HIDDEN),
                   name + "self_attn.q_proj.weight": plain(HEADS * HEAD, HIDDEN), name + "self_attn.k_proj.weight": plain(KV * HEAD, HIDDEN),
                   name + "self_attn.v_proj.weight": plain(KV * HEAD, HIDDEN), name + "self_attn.o_proj.weight": plain(HIDDEN, HEADS * HEAD)}
        for e in range(experts):
            for part in ("gate", "up", "down"):
                n, k = (HIDDEN, WIDTH) if part == "down" else (WIDTH, HIDDEN)
                matrix = f"{name}mlp.experts.{e}.{part}_proj.weight"
                tensors[matrix + "_packed"] = random.integers(-(2**31), 2**31, (n, k // 8)).astype(np.int32)
                tensors[matrix + "_scale"] = np.full((n, k // 32), 2.0**-9, np.float16)
                tensors[matrix + "_shape"] = np.array([n, k])
        shards.append(tensors if i else tensors | head)
    for i, tensors in enumerate(shards):
        name = f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
        save_file(tensors, folder / name, metadata={"format": "pt"})
        index |= dict.fromkeys(tensors, name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    weights = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32}
    (folder / "config.json").write_text(json.dumps(
        {"model_type": "qwen3_moe", "vocab_size": VOCABULARY, "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
         "num_key_value_heads": KV, "head_dim": HEAD, "intermediate_size": WIDTH, "moe_intermediate_size": WIDTH, "num_experts": experts,
         "num_experts_per_tok": 4, "norm_topk_prob": True, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "tie_word_embeddings": False,
         "hidden_act": "silu", "rope_theta": 10000.0,
         "quantization_config": {"quant_method": "compressed-tensors", "format": "pack-quantized", "quantization_status": "compressed",
                                 "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}, "ignore": ["re:.*self_attn.*", "lm_head"]}}))


def folder_bytes(folder):
    return sum(f.stat().st_size for f in Path(folder).glob("*.safetensors"))


def compute_copy(lockstep, folder, profile):
    plan = subprocess.run([lockstep, "plan", "--model", str(folder), "--for", "serve", "--profile", profile, "--json"], capture_output=True, text=True, check=True)
    return json.loads(plan.stdout)["bytes"]["weights"]


def peak_and_seconds(lockstep, folder, profile, threads):
    begun = time.monotonic()
    command = [lockstep, "serve", "--model", str(folder), "--profile", profile, "--port", "0", "--threads", str(threads), "--cache-megabytes", str(CACHE)]
    with StartedServer(command, stderr=subprocess.DEVNULL) as server:
        seconds = time.monotonic() - begun
        return server.memory("VmHWM") - CACHE * 2**20, seconds, server.processor_seconds()


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", action="append", default=[])
    options.add_argument("--int4-gigabytes", type=float, default=0.8)
    options.add_argument("--lockstep", default="build/lockstep")
    options.add_argument("--before")
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--json")
    arguments = options.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        cases = [(folder, "cpu-bf16w") for folder in arguments.model]
        if arguments.int4_gigabytes > 0:
            write_int4_experts(Path(scratch), arguments.int4_gigabytes)
            cases.append((scratch, "cpu-int4-experts"))
        for folder, profile in cases:
            copy = compute_copy(arguments.lockstep, folder, profile)
            for which, program in [("this", arguments.lockstep)] + ([("before", arguments.before)] if arguments.before and profile == "cpu-bf16w" else []):
                runs = [peak_and_seconds(program, folder, profile, arguments.threads) for _ in range(arguments.rounds + 1)][1:]  # the first one fills the page cache
                peak, seconds, processors = max(r[0] for r in runs), statistics.median(r[1] for r in runs), statistics.median(r[2] for r in runs)
                gigabytes = folder_bytes(folder) / 1e9
                rows.append({"folder": "int4-experts" if folder == scratch else Path(folder).name, "build": which, "profile": profile, "file_bytes": folder_bytes(folder),
                             "compute_copy_bytes": copy, "peak_bytes": peak, "ratio": peak / copy, "seconds": seconds, "processor_seconds": processors})
                print(f"{rows[-1]['folder']:<16}{which:<8}{profile:<18} files {gigabytes:.2f} GB  compute copy {copy / 1e6:.0f} MB  peak {peak / 1e6:.0f} MB  "
                      f"{peak / copy:.2f}x  ready in {seconds:.2f} s ({seconds / gigabytes:.1f} a GB; processors {processors:.2f} s)", flush=True)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps({"threads": arguments.threads, "rounds": arguments.rounds, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
