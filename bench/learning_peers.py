#!/usr/bin/env python3
"""Preferences and distillation beside TRL on the CPU, in turns, on the same threads and fp32 weights, which both read from the same Hugging Face folders.

    bench/learning_peers.py dpo --model FOLDER/fp32 [--threads N] [--rounds 2] [--steps 4] [--json FILE]
    bench/learning_peers.py distill --models FOLDER [--threads N] [--rounds 2] [--steps 4] [--json FILE]

dpo      `lockstep train dpo` of SmolLM2 against DPOTrainer: pairs/s of an epoch, in which each pair is scored once under the reference on either side (ours
         before the first step, theirs in each step), and the most memory of each process; answers behind a short prompt, and behind one as long as they are, whose
         rows are shared in the forward, as they come, or in the backward too
distill  `lockstep train distill` of a random qwen3 of 151,936 tokens, the teacher as large as the student, which is FOLDER/distill, made on first use: what
         the teacher's scores and learning take against a step of `lockstep train sft` on as many tokens, and the whole step with its rollouts against
         DistillationTrainer's. Both are the reverse divergence over all tokens. Its memory also beside the same run over sampled tokens, which has the same
         rollouts and the same teacher

Needs torch, transformers, datasets and trl. TRL runs as it comes but for what would make it slower here: no gradient checkpointing, no logging, one batch for
the whole step. A ratio above 1: lockstep is faster, or of memory holds more. The first step of each side is not counted.
"""

import argparse
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from learning_costs import GLM, in_turns, planned_bytes, ratio_of, trained

ROOT = Path(__file__).resolve().parents[1]
PAIRS = 4  # a step
# Tokens of a prompt, of each answer; --share-prompts.
SHAPES = [("short prompts", 16, 112, "forward"), ("prompts as long as answers", 64, 64, "forward"), ("prompts as long as answers, shared in the backward too", 64, 64, "backward")]
PROMPTS, PROMPT, ANSWER = 8, 4, 60  # of distillation: a step, tokens of a prompt, of a completion
VOCABULARY = 151936
CHUNK = 192  # rows whose logits are in memory at once at that vocabulary (docs/distillation.md)


def peer(options, kind, *words):
    command = [sys.executable, __file__, kind, "--peer", "--threads", options.threads, "--steps", options.steps, *words]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"learning_peers: TRL failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def clock():
    """The ends of a trainer's steps, and a callback that notes them."""
    from transformers import TrainerCallback

    ends = []

    class Clock(TrainerCallback):
        def on_step_end(self, *_, **__):
            ends.append(time.perf_counter())

    return ends, Clock()


def settings_of(options, output):
    return dict(output_dir=output, use_cpu=True, bf16=False, gradient_checkpointing=False, max_steps=options.steps, learning_rate=1e-6, logging_strategy="no", save_strategy="no",
                report_to=[], disable_tqdm=True)  # fmt: skip


def told(ends):
    print(json.dumps({"step": statistics.median(b - a for a, b in zip(ends, ends[1:])), "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


def pair_file(path, model, steps, prompt, answer):
    """Pairs of texts that have so many tokens, an end token counted with each answer."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    words = [token for token, _ in sorted(tokenizer.get_vocab().items()) if token.startswith("Ġ") and token[1:].isascii() and token[1:].isalpha() and len(token) > 3][:2000]
    chance = random.Random(1)
    text = lambda count: "".join(" " + chance.choice(words)[1:] for _ in range(count))  # noqa: E731
    with path.open("w") as file:
        for _ in range(steps * PAIRS):
            pair = {"prompt": text(prompt), "chosen": text(answer - 1), "rejected": text(answer - 1)}
            if [len(tokenizer(pair["prompt"] + pair[key]).input_ids) for key in ("chosen", "rejected")] != [prompt + answer - 1] * 2:
                raise SystemExit("learning_peers: a text has another number of tokens")
            file.write(json.dumps(pair) + "\n")


def our_dpo(options, file, sharing):
    steps, said, peak = trained("dpo", options.model, "--data", file, "--eval-share", 0, "--steps", options.steps, "--batch", PAIRS, "--learning-rate", 1e-6, "--share-prompts", sharing, threads=options.threads)
    times = [step["seconds"] for step in steps]
    scoring = said["reference_seconds"] / options.steps
    return {"step": statistics.median(times[1:]) + scoring, "scoring": scoring, "peak": peak}


def their_dpo(options):
    import torch
    from datasets import load_dataset
    from transformers import AutoTokenizer
    from trl import DPOConfig, DPOTrainer

    torch.set_num_threads(options.threads)
    ends, noted = clock()
    with tempfile.TemporaryDirectory() as output:
        config = DPOConfig(per_device_train_batch_size=PAIRS, model_init_kwargs={"dtype": "float32"}, **settings_of(options, output))
        trainer = DPOTrainer(model=str(options.model), args=config, train_dataset=load_dataset("json", data_files=str(options.data), split="train", cache_dir=output),
                             processing_class=AutoTokenizer.from_pretrained(options.model), callbacks=[noted])  # fmt: skip
        trainer.train()
    told(ends)


def dpo(options):
    for name, prompt, answer, sharing in SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "pairs.jsonl"
            pair_file(file, options.model, options.steps, prompt, answer)
            pairs = in_turns(options.rounds, lambda: our_dpo(options, file, sharing), lambda: peer(options, "dpo", "--model", options.model, "--data", file))
        peaks = [max(run["peak"] for run in side) for side in zip(*pairs)]
        parts = planned_bytes(options.model, "--sequences", 2 * PAIRS, "--length", prompt + answer, threads=options.threads)
        yield {"case": f"{name}: {prompt} + {answer} tokens", "prompt": prompt, "lockstep": PAIRS / statistics.median(a["step"] for a, _ in pairs), "scoring": statistics.median(a["scoring"] for a, _ in pairs),
               "trl": PAIRS / statistics.median(b["step"] for _, b in pairs), **ratio_of([(b["step"], a["step"]) for a, b in pairs]), "lockstep_peak_bytes": peaks[0], "trl_peak_bytes": peaks[1],
               "memory_ratio": peaks[0] / peaks[1], "model_bytes": sum(parts[key] for key in ("weights", "gradients", "optimizer")), "activation_bytes": parts["activations"]}  # fmt: skip


def make_distill_models(folder):
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    for seed, name in ((1, "student"), (2, "teacher")):
        torch.manual_seed(seed)
        config = Qwen3Config(vocab_size=VOCABULARY, hidden_size=256, intermediate_size=768, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=64,
                             max_position_embeddings=512, tie_word_embeddings=True, bos_token_id=101, eos_token_id=102, pad_token_id=103)  # fmt: skip
        Qwen3ForCausalLM(config).save_pretrained(folder / name)
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(GLM / file, folder / name / file)


def prompts_of(options):
    chance = random.Random(1)
    return ["".join(f"{chance.randrange(1, 100)} " for _ in range(PROMPT // 2)) for _ in range(options.steps * PROMPTS)]


def our_distill(options, over="vocabulary"):
    folder = options.models / "distill"
    with tempfile.TemporaryDirectory() as name:
        teachers, data = Path(name) / "teachers.toml", Path(name) / "prompts.jsonl"
        teachers.write_text(f'[[teacher]]\nname = "teacher"\nfolder = "{(folder / "teacher").resolve()}"\n')
        data.write_text("".join(json.dumps({"prompt": prompt, "domain": "all"}) + "\n" for prompt in prompts_of(options)))
        steps, _, peak = trained("distill", folder / "student", "--teachers", teachers, "--data", data, "--steps", options.steps, "--prompts", PROMPTS, "--rollouts", 1, "--max-tokens", ANSWER,
                                 "--over", over, *([] if over == "sampled" else ["--divergence", "reverse"]), "--learning-rate", 1e-6, threads=options.threads)  # fmt: skip
    part = lambda key: statistics.median(step[key] for step in steps[1:])  # noqa: E731
    return {"step": part("rollout_seconds") + part("teacher_seconds") + part("train_seconds"), "rollouts": part("rollout_seconds"), "teacher": part("teacher_seconds"), "training": part("train_seconds"),
            "tokens": statistics.median(step["tokens"] for step in steps[1:]), "peak": peak}  # fmt: skip


def our_cross_entropy(options):
    """A step on as many prompts and tokens of answers."""
    chance = random.Random(1)
    with tempfile.TemporaryDirectory() as name:
        data = Path(name) / "tokens.jsonl"
        line = lambda: {"tokens": [chance.randrange(VOCABULARY) for _ in range(PROMPT + ANSWER)], "weights": [0] * (PROMPT - 1) + [1] * ANSWER}  # noqa: E731
        data.write_text("".join(json.dumps(line()) + "\n" for _ in range(options.steps * PROMPTS)))
        steps, _, peak = trained("sft", options.models / "distill/student", "--data", data, "--eval-share", 0, "--steps", options.steps, "--batch", PROMPTS, "--learning-rate", 1e-6, "--share-prompts", "off",
                                 "--transcripts", 0, threads=options.threads)  # fmt: skip
    return {"step": statistics.median(step["tokens"] / step["tokens_per_second"] for step in steps[1:]), "tokens": PROMPTS * ANSWER, "peak": peak}


def their_distill(options):
    import torch
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl import DistillationConfig, DistillationTrainer

    torch.set_num_threads(options.threads)
    folder = options.models / "distill"
    ends, noted = clock()
    with tempfile.TemporaryDirectory() as output:
        config = DistillationConfig(per_device_train_batch_size=PROMPTS, max_completion_length=ANSWER, generation_kwargs={"min_new_tokens": ANSWER}, model_init_kwargs={"dtype": "float32"},
                                    teacher_model_init_kwargs={"dtype": "float32"}, **settings_of(options, output))  # fmt: skip
        trainer = DistillationTrainer(model=str(folder / "student"), teacher_model=str(folder / "teacher"), args=config, train_dataset=Dataset.from_dict({"prompt": prompts_of(options)}),
                                      processing_class=AutoTokenizer.from_pretrained(folder / "student"), callbacks=[noted])  # fmt: skip
        trainer.train()
    told(ends)


def teachers_bytes(folder):
    """What a divergence over all tokens may hold beside the same run over sampled ones, the teacher's hidden states and the logits that a chunk of rows has; and what those of all
    rows would take."""
    hidden = json.loads((folder / "config.json").read_text())["hidden_size"]
    return {"kept_bytes": PROMPTS * (PROMPT + ANSWER) * hidden * 4, "chunk_bytes": CHUNK * VOCABULARY * 4, "whole_bytes": PROMPTS * ANSWER * VOCABULARY * 4}


def distill(options):
    if not (options.models / "distill/teacher/config.json").is_file():
        make_distill_models(options.models / "distill")
    runs = []
    for turn in range(options.rounds):
        sides = [lambda: our_distill(options), lambda: our_cross_entropy(options), lambda: peer(options, "distill", "--models", options.models), lambda: our_distill(options, "sampled")]
        runs.append([side() for side in sides[:: -1 if turn % 2 else 1]][:: -1 if turn % 2 else 1])
    ours, plain, theirs, sampled = zip(*runs)
    # A completion may end early, so what a token takes is compared.
    costs = [((a["teacher"] + a["training"]) / a["tokens"], b["step"] / b["tokens"]) for a, b in zip(ours, plain)]
    median = lambda side, key: statistics.median(run[key] for run in side)  # noqa: E731
    yield {"case": "the teacher's scores and learning, against a step of cross-entropy", "what": "time", "lockstep": median(ours, "teacher") + median(ours, "training"), "teacher": median(ours, "teacher"),
           "other": median(plain, "step"), **ratio_of(costs), "lockstep_peak_bytes": max(a["peak"] for a in ours), "other_peak_bytes": max(b["peak"] for b in plain),
           "memory_ratio": max(a["peak"] for a in ours) / max(b["peak"] for b in plain), "sampled_peak_bytes": max(s["peak"] for s in sampled), **teachers_bytes(options.models / "distill/teacher")}  # fmt: skip
    yield {"case": "the whole step, against TRL's", "what": "speed", "lockstep": median(ours, "step"), "rollouts": median(ours, "rollouts"), "teacher": median(ours, "teacher"), "training": median(ours, "training"), "other": median(theirs, "step"),
           **ratio_of([(b["step"] / (PROMPTS * ANSWER), a["step"] / a["tokens"]) for a, b in zip(ours, theirs)]), "lockstep_peak_bytes": max(a["peak"] for a in ours),
           "other_peak_bytes": max(b["peak"] for b in theirs), "memory_ratio": max(a["peak"] for a in ours) / max(b["peak"] for b in theirs)}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=["dpo", "distill"])
    parser.add_argument("--model", type=Path)
    parser.add_argument("--models", type=Path)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--data", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not (options.model if options.kind == "dpo" else options.models):
        parser.error("dpo needs --model, distill --models")
    if options.steps < 3:
        parser.error("--steps is less than 3, and the first is not counted")
    if options.peer:
        return their_dpo(options) if options.kind == "dpo" else their_distill(options)
    import torch
    import transformers
    import trl

    rows = []
    for row in (dpo if options.kind == "dpo" else distill)(options):
        rows.append(row)
        print(f"{row['case']:66} {row['ratio']:6.2f} ({row['ratio_range'][0]:.2f} .. {row['ratio_range'][1]:.2f}), memory {row['memory_ratio']:.2f}", flush=True)
    if options.json:
        told_by = f"TRL {trl.__version__}, torch {torch.__version__} (kernels of {torch.backends.cpu.get_cpu_capability()}), transformers {transformers.__version__}"
        options.json.write_text(json.dumps({"peer": told_by, "threads": options.threads, "rounds": options.rounds, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
