#!/usr/bin/env python3
"""The KL table: the difference of a sampler's log-probabilities from the trainer's, for our own pairs and for usual other ones.

    bench/kl_table.py run --work FOLDER [--taught FOLDER] [--models countdown-glm,qwen3_moe] [--smollm2 FOLDER] [--threads 1] [--redo=WORD] [--rows full,int4] [--minutes 60]
    bench/kl_table.py page --work FOLDER

run: a row is a model and a pair of sampler and trainer. The sampler is `lockstep serve`, which draws at least 20,000 tokens at temperature 1 and tells
the log-probability of each; the trainer is `lockstep score --via train`, the forward that training computes gradients of, or transformers in
bf16 (run with the oracle's Python). It may be stopped at any time: samples and rows that are done stay. Models: countdown-glm, trained for
a few more steps; SmolLM2 in fp32 (tools/make_smollm2.py), likewise; every family of recipes/families, as bench/families.py taught it in --taught,
or else taught here for --steps steps. --redo: only rows that docs/kl.json has of programs whose version holds one of these words, such as `--redo=-dirty`, so that
a table of several commits becomes one of a single one, in pieces: --minutes ends it after the row that is under way then, and the same command goes on. A
folder has rows of one program; another's are refused. Each row notes its seconds.
page: writes docs/kl.md and docs/kl.json: the rows that are done in FOLDER, and those of other models and pairs that docs/kl.json has.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import families
import kl_page
import numpy as np
from families import ROOT, binary, lockstep, once, settings

TOKENS = 20_000
OURS = "cpu-bf16w"
STEPS = 300  # of a family that nobody taught
MORE = {"full": 20, "adapter": 30}  # further steps of what comes taught
SEED = 7


# --- models ------------------------------------------------------------------------------------------------------------------


def countdown_prompts(count):
    """Problems in the environment's format: three numbers, and a target that can be made from them."""
    draw, prompts = random.Random(SEED), []
    while len(prompts) < count:
        numbers = [draw.randint(1, 20) for _ in range(3)]
        a, b, c = draw.sample(numbers, 3)
        target = (a + b if draw.random() < 0.5 else a - b) + (c if draw.random() < 0.5 else -c)
        if target > 0:
            prompts.append(f"{numbers[0]} {numbers[1]} {numbers[2]}={target}:")
    return prompts


def paragraphs():
    """Prose of this repository, for a model that reads English."""
    parts = [part.replace("\n", " ").strip() for page in ("README.md", "ARCHITECTURE.md", "docs/tenants.md", "docs/cuda.md") for part in (ROOT / page).read_text().split("\n\n")]
    return [part for part in parts if len(part) > 200 and part[0].isalpha()]


class Model:
    """A model's folders: `full` after full-parameter steps, `adapter` over it after steps of its own, `merged` of both."""

    def __init__(self, name, work, threads):
        self.name, self.folder, self.threads = name, work / name, threads
        self.folder.mkdir(parents=True, exist_ok=True)
        self.prompts, self.max_tokens, self.note, self.tokens = countdown_prompts(64), 16, "", TOKENS

    def train(self, kind, base, extra):
        run = self.folder / "runs" / kind
        if not (run / "export").is_dir():
            shutil.rmtree(run, ignore_errors=True)
            lockstep("train", "sft", "--model", base, "--runs", self.folder / "runs", "--name", kind, "--profile", OURS, "--no-page", "--threads", self.threads,
                     *settings({"steps": MORE[kind], "seed": 3} | extra))  # fmt: skip
        return run / "export"

    def prepare(self):
        self.full = self.make_full()
        self.info = lockstep("info", self.full)
        self.adapter = self.train("adapter", self.full, self.data() | {"adapter_rank": 8, "learning_rate": self.adapter_rate})
        self.merged = merge(self.full, self.adapter, self.folder / "merged")
        return self

    adapter_rate = 3e-3

    def data(self):
        return {"environment": "countdown", "batch": 32}

    def has_experts(self):
        return self.info["experts"] > 0


class Shipped(Model):
    def make_full(self):
        self.note = f"the shipped model, {MORE['full']} more steps"
        return self.train("full", ROOT / "models/countdown-glm", self.data() | {"learning_rate": 3e-4})


class Taught(Model):
    def __init__(self, name, work, threads, taught, steps):
        super().__init__(name, work, threads)
        self.taught, self.steps = taught, steps

    def make_full(self):
        for kind in ("rl", "sft"):
            runs = {k: self.taught / "runs" / f"{self.name}-{k}" for k in ("sft", "rl")} if self.taught else {}
            if runs and (runs[kind] / "export/model.safetensors").is_file():
                steps = {k: len(families.metrics(runs[k])) for k in ("sft", kind)}
                self.note = f"taught Countdown, {steps['sft']:,} steps" + (f", then {steps['rl']} of RL" if kind == "rl" else "")
                return runs[kind] / "export"
        self.note = f"taught Countdown, {self.steps} steps"
        return families.teach(self.name, self.folder, self.steps, self.threads)


class SmolLm2(Model):
    adapter_rate = 1e-3

    def __init__(self, name, work, threads, source, tokens):
        super().__init__(name, work, threads)
        self.source, self.max_tokens, self.tokens = source, min(80, -(-tokens // 64)), tokens
        self.prompts = [" ".join(part.split()[:12]) for part in paragraphs()[:32]]

    def make_full(self):
        lines = self.folder / "texts.jsonl"
        lines.write_text("".join(json.dumps({"text": part}) + "\n" for part in paragraphs()[:64]))
        self.note = "4 steps on texts"
        return self.train("full", self.source, self.data() | {"steps": 4, "learning_rate": 2e-5})

    def data(self):
        return {"data": str(self.folder / "texts.jsonl"), "batch": 4, "steps": 3, "eval_share": 0}


def parts_of(name, value):
    """(prefix of an adapter's tensors, the matrix [outputs, inputs] in `value` that they change): one, or each expert's of a tensor that holds all
    of them as gpt_oss has it, [experts, inputs, outputs] with gate and up in turns."""
    prefix = f"base_model.model.{name.removesuffix('.weight')}."
    layer, _, kind = prefix.rpartition("experts.")
    for e in range(len(value) if kind in ("gate_up_proj.", "down_proj.") else 0):
        if kind == "down_proj.":
            yield f"{layer}experts.{e}.down_proj.", value[e].T
        else:
            yield f"{layer}experts.{e}.gate_proj.", value[e, :, 0::2].T
            yield f"{layer}experts.{e}.up_proj.", value[e, :, 1::2].T
    yield prefix, value


def merge(base, adapter, out):
    """A folder of W + alpha / rank B A in fp32, rounded once, as `lockstep serve --training` merges."""
    from safetensors import safe_open
    from safetensors.numpy import save_file

    if (out / "model.safetensors").is_file():
        return out
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(base, out, ignore=shutil.ignore_patterns("*.safetensors*", ".lockstep"))
    config = json.loads((adapter / "adapter_config.json").read_text())
    scale = config["lora_alpha"] / config["r"]
    with safe_open(adapter / "adapter_model.safetensors", "np") as file:
        changes = {key: file.get_tensor(key).astype(np.float64) for key in file.keys()}
    weights = {}
    for path in base.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            for name in file.keys():
                value = file.get_tensor(name).float().numpy().astype(np.float64)
                for prefix, part in parts_of(name, value):
                    if prefix + "lora_A.weight" in changes:
                        part += scale * changes.pop(prefix + "lora_B.weight") @ changes.pop(prefix + "lora_A.weight")
                weights[name] = value.astype(np.float32)
    assert not changes, f"adapted, and not in the model: {list(changes)[:3]}"
    save_file(weights, out / "model.tmp", metadata={"format": "pt"})
    (out / "model.tmp").rename(out / "model.safetensors")
    return out


# --- rows --------------------------------------------------------------------------------------------------------------------


def rows_of(model, profiles):
    """(name, what it is, sampler, trainer): each side a folder, a profile, and whether the adapter stands on it."""
    full, adapted = (model.full, OURS, False), (model.full, OURS, True)
    yield "own-full", "this program, all parameters trained", full, full
    yield "own-adapter", "this program, an adapter", adapted, adapted
    packed = (model.full, "cpu-int4-base", True)
    yield "own-adapter-int4", "this program, an adapter over an INT4 base", packed, packed
    if model.info["family"] in ("deepseek_v3", "kimi_k2") and "cpu-bf16w-expanded" in profiles:
        expanded = (model.full, "cpu-bf16w-expanded", False)
        yield "own-expanded", "this program, expanded MLA", expanded, expanded
        adapted_expanded = (model.full, "cpu-bf16w-expanded", True)
        yield "own-adapter-expanded", "this program, an adapter under expanded MLA", adapted_expanded, adapted_expanded
        yield "expanded", "expanded MLA against absorbed", expanded, full
    yield "study", "a second engine as the study has it: bf16 activations, another order of sums", (model.full, "study-bf16-activations", False), full
    yield "transformers", "transformers in bf16 as the trainer", full, (model.full, "transformers", False)
    yield "merged", "the adapter merged into bf16 weights against the unmerged", (model.merged, OURS, False), adapted
    yield "fp8", "weights in FP8 (128 x 128)", (model.full, "cpu-fp8-base", False), full
    yield "int8", "weights and inputs in INT8 (groups of 32)", (model.full, "cpu-int8w", False), full
    if model.has_experts():
        yield "int4-experts", "experts alone in INT4 (groups of 32)", (model.full, "cpu-int4-experts", False), full
    yield "int4", "weights in INT4, inputs in INT8 (groups of 32)", (model.full, "cpu-int4w", False), full


def key_of(model, side):
    folder, profile, adapter = side
    kind = "merged" if folder == model.merged else "full"
    return f"{kind}{'-adapter' if adapter else ''}-{profile}"


class Server:
    def __init__(self, model, side):
        folder, profile, adapter = side
        command = [binary(), "serve", "--model", str(folder), "--name", "base", "--profile", profile, "--port", "0", "--threads", str(model.threads), "--generation-config", "none"]
        if adapter:
            command += ["--adapter", f"adapter={model.adapter}"]
        self.name = "adapter" if adapter else "base"
        self.log = open(model.folder / "serve.log", "w+")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT)
        self.url = None
        while self.url is None:
            time.sleep(0.1)
            text = (model.folder / "serve.log").read_text()
            found = [word.rstrip(".,") for word in text.split() if word.startswith("http://127.0.0.1:")]
            if found:
                self.url = found[0].rstrip("/")
            elif self.process.poll() is not None:
                sys.exit(f"lockstep serve: {text.strip()[-500:]}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.log.close()

    def complete(self, prompts, n, max_tokens, seed):
        body = {"model": self.name, "prompt": prompts, "n": n, "max_tokens": max_tokens, "temperature": 1, "seed": seed, "logprobs": 0, "return_token_ids": True}
        request = urllib.request.Request(self.url + "/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=3600) as answer:
            return json.loads(answer.read())["choices"]


def sample(model, side):
    """[{"prompt": ids, "tokens": ids, "logprobs": floats}] of at least the model's `tokens`."""
    drawn, seed, begin = [], SEED, time.monotonic()
    with Server(model, side) as server:
        while (count := sum(len(d["tokens"]) for d in drawn)) < model.tokens:
            part = [model.prompts[((seed - SEED) * 16 + i) % len(model.prompts)] for i in range(16)]
            for choice in server.complete(part, 4, model.max_tokens, seed):
                tokens, logprobs = choice["token_ids"], choice["logprobs"]["token_logprobs"]
                assert len(tokens) == len(logprobs) and tokens
                drawn.append({"prompt": choice["prompt_token_ids"], "tokens": tokens, "logprobs": logprobs})
            if sys.stdout.isatty():
                print(f"  {model.name}: sampled {count:,} tokens of {key_of(model, side)}, {time.monotonic() - begin:.0f} s", end="\r", flush=True)
            seed += 1
    return drawn


def trainer_scores(model, side, drawn):
    """The trainer's log-probabilities of the sampled tokens, one list a sequence."""
    folder, profile, adapter = side
    sequences = [d["prompt"] + d["tokens"] for d in drawn]
    if profile == "transformers":
        all_scores = transformers_scores(folder, sequences)
    else:
        path = model.folder / "sequences.jsonl"
        path.write_text("".join(json.dumps({"tokens": s}) + "\n" for s in sequences))
        command = [binary(), "score", "--model", str(folder), "--profile", profile, "--tokens", str(path), "--via", "train", "--threads", str(model.threads), "--json"]
        done = subprocess.run(command + (["--adapter", str(model.adapter)] if adapter else []), capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"lockstep score: {done.stderr.strip()[-500:]}")
        all_scores = [json.loads(line)["logprobs"] for line in done.stdout.splitlines()]
    return [scores[len(d["prompt"]) - 1 :] for scores, d in zip(all_scores, drawn, strict=True)]


def transformers_scores(folder, sequences):
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar, set_verbosity_error

    set_verbosity_error()
    disable_progress_bar()
    torch.set_num_threads(1)
    source = folder
    config = json.loads((folder / "config.json").read_text())
    if config["model_type"] == "kimi_k2":  # transformers knows its classes by the other name
        source = folder.parent / "as_deepseek_v3"
        shutil.copytree(folder, source, dirs_exist_ok=True)
        (source / "config.json").write_text(json.dumps(config | {"model_type": "deepseek_v3"}))
    oracle = AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16).eval()
    scores = [None] * len(sequences)
    by_length = {}
    for i, sequence in enumerate(sequences):
        by_length.setdefault(len(sequence), []).append(i)
    with torch.no_grad():
        for indices in by_length.values():
            for at in range(0, len(indices), 16):  # equal lengths: no padding
                part = indices[at : at + 16]
                tokens = torch.tensor([sequences[i] for i in part])
                logprobs = oracle(tokens).logits[:, :-1].float().log_softmax(-1).gather(-1, tokens[:, 1:, None])[..., 0]
                for i, row in zip(part, logprobs.tolist()):
                    scores[i] = row
    return scores


def compare(drawn, scores):
    """l = log(trainer / sampler) of each token: k1 = mean(-l), k2 = mean(l^2 / 2), k3 = mean(e^l - 1 - l), as src/rl/kl.h."""
    sampler = np.array([x for d in drawn for x in d["logprobs"]], np.float32)
    trainer = np.array([x for row in scores for x in row], np.float32)
    assert sampler.shape == trainer.shape
    ratio = trainer.astype(np.float64) - sampler.astype(np.float64)
    return {"tokens": len(ratio), "different_bits": int((sampler.view(np.int32) != trainer.view(np.int32)).sum()), "k1": float((-ratio).mean()),
            "k2": float((ratio * ratio / 2).mean()), "k3": float((np.exp(ratio) - 1 - ratio).mean()), "largest_log_ratio": float(np.abs(ratio).max())}  # fmt: skip


def to_redo(words, docs):
    """(model, row) of the page's data that a program with one of these words in its version measured."""
    rows = json.loads((docs / "kl.json").read_text())["rows"]
    return {(r["model"], r["row"]) for r in rows if any(word in r["version"] for word in words)}


def refuse_other_programs(work, version):
    others = {json.loads(path.read_text())["version"] for path in work.glob("*/rows/*.json")} - {version}
    if others:
        sys.exit(f"kl_table: {work} has rows of {', '.join(sorted(others))}, this is {version}: allowed is a folder of one program's rows")


def run(options):
    profiles = subprocess.run([binary(), "--version"], capture_output=True, text=True).stdout
    version = profiles.split("\n")[0]
    refuse_other_programs(options.work, version)
    wanted = to_redo(options.redo, ROOT / "docs") if options.redo else None
    begun, count = time.monotonic(), 0
    for name in options.models:
        if wanted is not None and not any(model == name for model, _ in wanted):
            continue
        if name == "SmolLM2":
            if not options.smollm2:
                print("SmolLM2: left out, --smollm2 names no folder", flush=True)
                continue
            model = SmolLm2(name, options.work, options.threads, options.smollm2, options.smollm2_tokens)
        elif name == "countdown-glm":
            model = Shipped(name, options.work, options.threads)
        else:
            model = Taught(name, options.work, options.threads, options.taught, options.steps)
        begin = time.monotonic()
        model.prepare()
        print(f"{name}: {model.note}, an adapter trained; {time.monotonic() - begin:.0f} s", flush=True)
        for row, what, sampler, trainer in rows_of(model, profiles):
            at = time.monotonic()
            path = model.folder / "rows" / f"{row}.json"
            if path.is_file() or (wanted is not None and (name, row) not in wanted) or (options.rows and row not in options.rows):
                continue
            if options.minutes is not None and at - begun > 60 * options.minutes:
                print(f"{count} rows in {(at - begun) / 60:.0f} minutes; the same command goes on", flush=True)
                return
            drawn = once(model.folder / "samples" / f"{key_of(model, sampler)}.json", lambda: sample(model, sampler))
            measured = compare(drawn, trainer_scores(model, trainer, drawn))
            once(path, lambda: {"model": name, "family": model.info["family"], "note": model.note, "row": row, "what": what, "sampler": key_of(model, sampler),
                                "trainer": key_of(model, trainer), "version": version, "seconds": round(time.monotonic() - at, 1), **measured})  # fmt: skip
            count += 1
            print(f"{name}: {what}: k3 {measured['k3']:.3g}, {measured['different_bits']:,} of {measured['tokens']:,} with other bits; {time.monotonic() - at:.0f} s", flush=True)


def page(options):
    rows = [json.loads(path.read_text()) for path in sorted(options.work.glob("*/rows/*.json"))]
    if not rows:
        sys.exit("no row is done")
    kl_page.write(rows, ["countdown-glm", "SmolLM2", *families.all_families()], ROOT / "docs")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("run", "page"))
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--taught", type=lambda text: Path(text).resolve(), help="the --work of bench/families.py")
    parser.add_argument("--smollm2", type=lambda text: Path(text).resolve(), help="a folder of SmolLM2 in fp32")
    parser.add_argument("--smollm2-tokens", type=int, default=TOKENS, help="sampled tokens of its rows; fewer on a machine that has no hours for them")
    parser.add_argument("--models", type=lambda text: text.split(","), default=["countdown-glm", *families.all_families(), "SmolLM2"])
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--redo", type=lambda text: text.split(","), help="rows of docs/kl.json whose program's version holds one of these words, WORD,WORD,...")
    parser.add_argument("--rows", type=lambda text: text.split(","), help="these rows alone, by the names that docs/kl.json has")
    parser.add_argument("--minutes", type=float, help="begin no row after so long")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    options.work = options.work.resolve()
    (run if options.what == "run" else page)(options)


if __name__ == "__main__":
    main()
