#!/usr/bin/env python3
"""Compares a GPU with the CPU and with torch on the same GPU: a llama of SmolLM2-135M's dimensions with random weights, fp32.

    bench/gpu_speed.py [--lockstep build/lockstep] [--folder FOLDER] [--rounds 3] [--seconds 2] [--json FILE]

In turns: `lockstep bench` prefill (512 tokens), decode (1, 8, 32 streams) and train (4 x 256 tokens, AdamW) on the device cuda and on the CPU, and
the same training step by torch and transformers on the GPU, with full fp32 products (no TF32). Medians over rounds. FOLDER gets the model
(540 MB, made on first use). Needs a program built with ./setup --cuda, and torch with CUDA.
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CASES = {"prefill 512": ["prefill", "--tokens", "512"], "decode": ["decode", "--streams", "1,8,32"], "train 4 x 256": ["train", "--sequences", "4", "--length", "256"]}


def make_model(folder):
    """SmolLM2-135M's dimensions, random weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    config = LlamaConfig(hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3, vocab_size=49152,
                         max_position_embeddings=8192, tie_word_embeddings=True, rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=2)  # fmt: skip
    LlamaForCausalLM(config).float().save_pretrained(folder)


def lockstep(options, device, case):
    """Tokens a second, by name of the row."""
    command = [str(options.lockstep), "bench", *CASES[case], "--json", "--model", str(options.folder), "--profile", "cpu-f32", "--device", device, "--seconds", str(options.seconds)]
    rows = [json.loads(line) for line in subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()]
    return {f"{case}, {row['streams']} streams" if "streams" in row else case: row["tokens_per_second"] for row in rows}


def torch_step(options):
    """Tokens a second of torch's training step on the GPU, fp32."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    model = AutoModelForCausalLM.from_pretrained(options.folder, dtype=torch.float32).cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    tokens = torch.randint(0, 49152, (4, 256), device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        torch.cuda.synchronize()

    for _ in range(3):
        step()
    times, begin = [], time.perf_counter()
    while len(times) < 5 or time.perf_counter() - begin < options.seconds:
        at = time.perf_counter()
        step()
        times.append(time.perf_counter() - at)
    return 1024 / statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", type=Path, default=ROOT / "build/lockstep")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "lockstep-gpu-model")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not (options.folder / "config.json").is_file():
        make_model(options.folder)
    found = {}
    for _ in range(options.rounds):
        for case in CASES:
            for device in ("cuda", "cpu"):
                for row, speed in lockstep(options, device, case).items():
                    found.setdefault(row, {}).setdefault(device, []).append(speed)
        found["train 4 x 256"].setdefault("torch on the GPU", []).append(torch_step(options))
    for row, speeds in found.items():
        print(f"{row:24}" + "".join(f"{name} {statistics.median(values):10.1f}   " for name, values in speeds.items()), flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
