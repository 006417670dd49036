#!/usr/bin/env python3
"""A GRPO step on Countdown's tokens: `lockstep bench rl` beside TRL's GRPOTrainer on the CPU, in turns, on the same threads, of one
model of 4 million parameters (llama, random weights, fp32), which both read from the same Hugging Face folder. A step samples 8 x 8
completions of 32 tokens after prompts of 16 (--prompt), makes advantages from rewards that are noise, and takes one step of AdamW.

    bench/rl_peer.py --models FOLDER [--threads N] [--rounds 3] [--prompts 8] [--samples 8] [--prompt 16] [--tokens 32] [--json FILE]

The model is written to FOLDER/rl on first use. Needs torch, transformers, datasets and trl. TRL runs as it comes but for what would
make it slower here: no gradient checkpointing, no logging, no reference model (beta 0, its default), one batch for the whole step.
Samples never end early: every completion has its 32 tokens in both. Prints samples/s, medians over rounds, and the ratio (above 1:
lockstep is faster); the seconds of rollouts and of learning apart, and the operations of their matrix products beside the rate of multiply-adds
in registers (`lockstep bench arithmetic`, before and after each of our runs).
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from torch_peers import ceiling, matrix_operations

ROOT = Path(__file__).resolve().parents[1]
TOKENIZER = ROOT / "models/countdown-glm"


def make_model(folder):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    config = LlamaConfig(vocab_size=512, hidden_size=256, intermediate_size=768, num_hidden_layers=5, num_attention_heads=4, num_key_value_heads=2,
                         head_dim=64, max_position_embeddings=512, tie_word_embeddings=True, bos_token_id=101, eos_token_id=102, pad_token_id=103)  # fmt: skip
    model = LlamaForCausalLM(config)
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TOKENIZER / name, folder / name)


def lockstep(options):
    command = [os.environ.get("LOCKSTEP_BINARY", str(ROOT / "build/lockstep")), "bench", "rl", "--json", "--model", str(options.models / "rl"),
               "--profile", "cpu-f32", "--threads", str(options.threads), "--prompts", str(options.prompts), "--samples", str(options.samples),
               "--prompt", str(options.prompt), "--tokens", str(options.tokens), "--seconds", str(options.seconds)]  # fmt: skip
    row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[0])
    return {"samples_per_second": row["tokens_per_second"] / options.tokens, "step": row["seconds"]["median"], "rollouts": row["rollout_seconds"],
            "learning": row["learning_seconds"]}  # fmt: skip


def operations(options):
    """Floating-point operations of the matrix products of a step's parts. Each prompt counts once where its samples can share it: in rollouts, and in
    the forward of learning. The last token of a sample is drawn and never read."""
    forward = matrix_operations(options.models / "rl", 0) // 3  # of a token: 2 a weight
    samples = options.prompts * options.samples
    shared = options.prompts * options.prompt + samples * (options.tokens - 1)
    return {"rollouts": forward * shared, "learning": forward * shared + 2 * forward * samples * (options.prompt + options.tokens - 1)}


def trl_in_a_process(options):
    command = [sys.executable, __file__, "--peer", "--models", str(options.models), "--threads", str(options.threads), "--prompts", str(options.prompts),
               "--samples", str(options.samples), "--prompt", str(options.prompt), "--tokens", str(options.tokens), "--seconds", str(options.seconds)]  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise SystemExit(f"rl_peer: TRL failed:\n{result.stderr[-3000:]}")
    return json.loads(result.stdout.splitlines()[-1])


def run_peer(options):
    import random

    import torch
    from datasets import Dataset
    from transformers import AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    torch.set_num_threads(options.threads)
    chance = random.Random(1)
    tokenizer = AutoTokenizer.from_pretrained(options.models / "rl")
    steps, batch = 4 + int(3 * options.seconds), options.prompts * options.samples
    prompts = ["".join(f"{chance.randrange(1, 100)} " for _ in range(options.prompt // 2)) for _ in range(options.prompts * steps)]
    if any(len(tokenizer(p).input_ids) != options.prompt for p in prompts):
        raise SystemExit(f"a prompt has not {options.prompt} tokens")
    lengths = set()

    def reward(completion_ids, **_):
        lengths.update(len(ids) for ids in completion_ids)
        return [float(chance.random() < 0.5) for _ in completion_ids]

    ends, rollouts = [], []

    class TimedTrainer(GRPOTrainer):
        """TRL's trainer with a clock around its rollouts; other versions of TRL, with other names, give no time."""

        def _generate(self, *arguments, **named):
            begin = time.perf_counter()
            result = super()._generate(*arguments, **named)
            rollouts.append(time.perf_counter() - begin)
            return result

    class Clock(TrainerCallback):
        def on_step_end(self, *_, **__):
            ends.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as output:
        config = GRPOConfig(output_dir=output, use_cpu=True, bf16=False, gradient_checkpointing=False, per_device_train_batch_size=batch,
                            num_generations=options.samples, max_completion_length=options.tokens, max_steps=steps, learning_rate=1e-6, beta=0.0,
                            temperature=1.0, generation_kwargs={"min_new_tokens": options.tokens}, logging_strategy="no", save_strategy="no",
                            report_to=[], disable_tqdm=True, model_init_kwargs={"dtype": "float32"})  # fmt: skip
        trainer = TimedTrainer(model=str(options.models / "rl"), args=config, reward_funcs=reward, train_dataset=Dataset.from_dict({"prompt": prompts}),
                               processing_class=tokenizer, callbacks=[Clock()])  # fmt: skip
        trainer.train()
    if lengths != {options.tokens}:
        raise SystemExit(f"completions have {sorted(lengths)} tokens, {options.tokens} are asked for")
    times = [b - a for a, b in zip(ends[1:], ends[2:])]  # the first steps warm up
    step = statistics.median(times)
    print(json.dumps({"samples_per_second": batch / step, "runs": len(times), "step": step,
                      "rollouts": statistics.median(rollouts[2:]) if len(rollouts) == len(ends) else None}))  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=16, help="tokens of a prompt, an even number up to 384")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.prompt % 2 or not 2 <= options.prompt <= 384:  # numbers and the spaces behind them, within the model's positions
        parser.error(f"--prompt is {options.prompt}, allowed are even numbers from 2 to 384")
    if options.peer:
        return run_peer(options)
    import torch
    import transformers
    import trl

    if not (options.models / "rl").is_dir():
        make_model(options.models / "rl")
    ours, theirs, ceilings = [], [], []
    for _ in range(options.rounds):
        before = ceiling(options)
        ours.append(lockstep(options))
        ceilings.append(max(before, ceiling(options)))
        theirs.append(trl_in_a_process(options))
    ratios = [a["samples_per_second"] / b["samples_per_second"] for a, b in zip(ours, theirs)]
    work = operations(options)
    parts = {}
    for name in ("rollouts", "learning"):
        shares = [work[name] / 1e9 / (run[name] * rate) for run, rate in zip(ours, ceilings)]
        parts[name] = {"lockstep": statistics.median(run[name] for run in ours), "gigaoperations": work[name] / 1e9,
                       "share": statistics.median(shares), "share_range": [min(shares), max(shares)]}  # fmt: skip
    if all(run["rollouts"] is not None for run in theirs):
        parts["rollouts"]["trl"] = statistics.median(run["rollouts"] for run in theirs)
        parts["learning"]["trl"] = statistics.median(run["step"] - run["rollouts"] for run in theirs)
    row = {"prompts": options.prompts, "samples": options.samples, "prompt": options.prompt, "tokens": options.tokens, "lockstep": statistics.median(run["samples_per_second"] for run in ours),
           "trl": statistics.median(run["samples_per_second"] for run in theirs), "parts": parts, "step": statistics.median(run["step"] for run in ours),
           "trl_step": statistics.median(run["step"] for run in theirs), "gigaflops": statistics.median(ceilings), "ratio": statistics.median(ratios), "ratio_range": [min(ratios), max(ratios)]}  # fmt: skip
    peer = f"TRL {trl.__version__}, torch {torch.__version__} (kernels of {torch.backends.cpu.get_cpu_capability()}), transformers {transformers.__version__}"
    print(f"peer: {peer}")
    print(f"GRPO step, {options.prompts} x {options.samples} x {options.tokens} tokens after {options.prompt}: lockstep {row['lockstep']:.1f} samples/s, TRL {row['trl']:.1f}, "
          f"ratio {row['ratio']:.2f} ({min(ratios):.2f} .. {max(ratios):.2f})")  # fmt: skip
    for name, part in parts.items():
        print(f"{name}: lockstep {part['lockstep']:.3f} s, TRL {part.get('trl', float('nan')):.3f} s; products {part['share']:.2f} of {row['gigaflops']:.0f} GFLOP/s")
    if options.json:
        options.json.write_text(json.dumps({"peer": peer, "threads": options.threads, "rounds": options.rounds, "rows": [row]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
