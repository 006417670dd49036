#!/usr/bin/env python3
"""A training step of SmolLM2-135M, or of a random model with experts, in fp32: `lockstep bench train` beside torch and transformers, in turns, on the same threads: forward,
backward and AdamW of 4 x 256 tokens, each step one call; of all parameters, or of an adapter beside PEFT's.

    bench/torch_peers.py --model FOLDER/fp32 [--lora-rank R] [--threads N] [--rounds 3] [--sequences 4] [--length 256] [--json FILE]

FOLDER is made by tools/make_smollm2.py, or with --make qwen3_moe or deepseek_v3 by made_models.py; torch then computes experts in whichever of
transformers' ways is the fastest here, tried before the rounds. Needs torch and transformers, with --lora-rank peft too. Peak memory is the most that each
process held (getrusage). Beside the ratio: what share of the rate of multiply-adds in registers (`lockstep bench arithmetic`, before and after
each of our runs) the matrix products of a step are, which kernels take its processor time (`lockstep bench train --by-kernel`), and how long torch's
library takes for the same products with nothing beside them.
"""

import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import made_models

ROOT = Path(__file__).resolve().parents[1]


def lockstep(options):
    command = [os.environ.get("LOCKSTEP_BINARY", str(ROOT / "build/lockstep")), "bench", "train", "--json", "--model", str(options.model), "--profile", "cpu-f32",
               "--threads", str(options.threads), "--sequences", str(options.sequences), "--length", str(options.length), "--seconds", str(options.seconds), "--lora-rank", str(options.lora_rank), "--by-kernel"]  # fmt: skip
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[0])


def ceilings_of(options):
    """GFLOP/s of multiply-adds in registers, and of a product's tile in the first cache."""
    command = [os.environ.get("LOCKSTEP_BINARY", str(ROOT / "build/lockstep")), "bench", "arithmetic", "--json", "--threads", str(options.threads)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def ceiling(options):
    """GFLOP/s of multiply-adds in registers."""
    return ceilings_of(options)["gigaflops"]


def median_range(values):
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def shares_of(runs):
    """Part of a step -> its share of the processor time, a median with its range over runs; the largest first. A part that a run never saw is none of it."""
    names = {name for run in runs for name in run["kernel_shares"]}
    found = {name: median_range([run["kernel_shares"].get(name, 0.0) for run in runs]) for name in names}
    return dict(sorted(found.items(), key=lambda item: -item[1]["median"]))


def matrix_operations(folder, lora_rank):
    """Floating-point operations of a token's matrix products, forward and backward: 2 a weight forward, 2 for the inputs' gradient and, where the
    weights themselves are trained, 2 for theirs. Of every matrix; a tied table counts once, as the head. Attention's own products and an
    adapter's small ones are left out."""
    with open(folder / "model.safetensors", "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    shapes = {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}
    if "lm_head.weight" in shapes:
        shapes.pop("model.embed_tokens.weight")
    config = json.loads((folder / "config.json").read_text())
    experts = config.get("num_experts") or config.get("n_routed_experts")
    used = config["num_experts_per_tok"] / experts if experts else 1
    return (4 if lora_rank else 6) * sum(shape[0] * shape[1] * (used if ".mlp.experts." in name else 1) for name, shape in shapes.items() if len(shape) == 2)


# How transformers computes experts (experts_implementation). None: a model without experts.
WAYS = ["eager", "batched_mm", "grouped_mm"]


def fastest_way(options):
    """The way with the most tokens a second, and what each made; a way that does not run here is left out."""
    speeds = {}
    for way in WAYS:
        try:
            speeds[way] = torch_in_a_process(options, way)[0]
        except subprocess.CalledProcessError as error:
            print(f"{way}: {(error.stderr or '').strip().splitlines()[-1:]}", flush=True)
    if not speeds:
        raise SystemExit("torch_peers: transformers computes these experts in no way here")
    return max(speeds, key=speeds.get), speeds


def torch_in_a_process(options, way=None):
    command = [sys.executable, __file__, "--peer", "--model", str(options.model), "--threads", str(options.threads), "--sequences", str(options.sequences),
               "--length", str(options.length), "--seconds", str(options.seconds), "--lora-rank", str(options.lora_rank), *(["--experts", way] if way else [])]  # fmt: skip
    row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    return row["tokens_per_second"], row["peak_memory_bytes"], row["products_seconds"]


def torch_products(model, rows, lora_rank):
    """Seconds of a step's matrix products by torch's library alone, as matrix_operations counts them: for each shape the median of five runs, after
    one that is not counted, times the number of matrices of that shape."""
    import torch

    shapes = [tuple(module.weight.shape) for module in model.modules() if isinstance(module, torch.nn.Linear)]
    total = 0.0
    for outputs, inputs in set(shapes):
        weight, x, dy = torch.randn(outputs, inputs), torch.randn(rows, inputs), torch.randn(rows, outputs)
        products = [lambda: x @ weight.T, lambda: dy @ weight] + ([] if lora_rank else [lambda: dy.T @ x])
        for product in products:
            times = []
            for _ in range(6):
                at = time.perf_counter()
                product()
                times.append(time.perf_counter() - at)
            total += statistics.median(times[1:]) * shapes.count((outputs, inputs))
    return total


def run_peer(options):
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32, **({"experts_implementation": options.experts} if options.experts else {}))
    # Experts are no Linear, so a model that has them is not asked.
    products = None if options.experts else torch_products(model, options.sequences * options.length, options.lora_rank)
    if options.lora_rank:
        from peft import LoraConfig, get_peft_model

        # The matrices that lockstep adapts: attention and MLP, not the head.
        model = get_peft_model(model, LoraConfig(r=options.lora_rank, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
    model.train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-6)
    tokens = torch.randint(0, model.config.vocab_size, (options.sequences, options.length))

    def step():
        optimizer.zero_grad(set_to_none=True)
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()

    step()
    times, begin = [], time.perf_counter()
    while len(times) < 3 or time.perf_counter() - begin < options.seconds:
        at = time.perf_counter()
        step()
        times.append(time.perf_counter() - at)
    print(json.dumps({"tokens_per_second": options.sequences * options.length / statistics.median(times),
                      "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "products_seconds": products}))  # fmt: skip


def blas_of(torch):
    """The libraries of torch's products, from its build information: 'MKL 2024.2, oneDNN v3.7'."""
    shown = torch.__config__.show()
    mkl, dnn = re.search(r"Math Kernel Library Version ([\d.]+)", shown), re.search(r"(?:MKL-DNN|oneDNN) (v[\d.]+)", shown)
    found = [f"MKL {mkl[1]}" if mkl else "", f"oneDNN {dnn[1]}" if dnn else ""]
    return ", ".join(f for f in found if f) or "BLAS unknown"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sequences", type=int, default=4)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--lora-rank", type=int, default=0)
    parser.add_argument("--make", choices=sorted(made_models.TRAINED), help="make a random model of this family in --model, if there is none")
    parser.add_argument("--experts", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        return run_peer(options)
    import torch
    import transformers

    way, ways = None, {}
    if options.make:
        made_models.TRAINED[options.make](options.model)
        way, ways = fastest_way(options)
        print("experts: " + ", ".join(f"{name} {speed:.1f} tok/s" for name, speed in ways.items()), flush=True)
    ours, theirs, ceilings, tiles = [], [], [], []
    for _ in range(options.rounds):
        before = ceilings_of(options)
        ours.append(lockstep(options))
        after = ceilings_of(options)
        ceilings.append(max(before["gigaflops"], after["gigaflops"]))
        tiles.append(max(before["tile_gigaflops"], after["tile_gigaflops"]))
        theirs.append(torch_in_a_process(options, way))
    speeds = [run["tokens_per_second"] for run in ours]
    ratios = [a / b[0] for a, b in zip(speeds, theirs)]
    memory = [max(run["peak_memory_bytes"] for run in ours), max(run[1] for run in theirs)]
    work = matrix_operations(options.model, options.lora_rank) / 1e9
    shares = [speed * work / rate for speed, rate in zip(speeds, ceilings)]
    row = {"case": "train", "lora_rank": options.lora_rank, "sequences": options.sequences, "length": options.length, "lockstep": statistics.median(speeds),
           "torch": statistics.median(run[0] for run in theirs), "ratio": statistics.median(ratios), "ratio_range": [min(ratios), max(ratios)],
           "lockstep_peak_bytes": memory[0], "torch_peak_bytes": memory[1], "memory_ratio": memory[0] / memory[1],
           "gigaflops": statistics.median(ceilings), "gigaflops_range": [min(ceilings), max(ceilings)], "tile_gigaflops": statistics.median(tiles),
           "share": statistics.median(shares), "share_range": [min(shares), max(shares)],
           **({} if theirs[0][2] is None else {"torch_products_seconds": statistics.median(run[2] for run in theirs)}),
           "kernels": shares_of(ours), "samples": sum(run["samples"] for run in ours), "busy_processors": statistics.median(run["busy_processors"] for run in ours)}  # fmt: skip
    peer = f"torch {torch.__version__} (kernels of {torch.backends.cpu.get_cpu_capability()}, {blas_of(torch)}), transformers {transformers.__version__}"
    if way:
        peer += f", experts by {way}, the fastest of {', '.join(ways)} here"
    if options.lora_rank:
        import peft

        peer += f", peft {peft.__version__}"
    print(f"peer: {peer}")
    print(f"training step{f' of rank {options.lora_rank}' if options.lora_rank else ''}, {options.sequences} x {options.length} tokens: lockstep {row['lockstep']:.1f} tok/s, torch {row['torch']:.1f}, "
          f"ratio {row['ratio']:.2f} ({min(ratios):.2f} .. {max(ratios):.2f}); peak memory {memory[0] / 1e9:.2f} GB, {memory[1] / 1e9:.2f} GB, "
          f"ratio {row['memory_ratio']:.2f}")  # fmt: skip
    print(f"products are {row['share']:.2f} ({min(shares):.2f} .. {max(shares):.2f}) of {row['gigaflops']:.0f} GFLOP/s; {row['busy_processors']:.2f} processors were busy")
    if "torch_products_seconds" in row:
        print(f"torch's products alone take {row['torch_products_seconds']:.3f} s of its step of {options.sequences * options.length / row['torch']:.3f} s")
    for name, share in row["kernels"].items():
        print(f"{100 * share['median']:6.1f}%  {name}")
    if options.json:
        options.json.write_text(json.dumps({"peer": peer, "threads": options.threads, "rounds": options.rounds, "rows": [row]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
