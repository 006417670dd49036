#!/usr/bin/env python3
"""Runs the peers beside us and writes docs/performance.md: every number in that page comes from here.

    bench/write_performance.py --models FOLDER --peers PYTHON [--torch PYTHON] [--trl PYTHON] [--threads N] [--rounds 3] [--only gemm,llama,...] [--isa avx2] [--before PROGRAM]
    bench/write_performance.py --models FOLDER --peers PYTHON ... --all --minutes 90
    bench/write_performance.py --list

FOLDER: where SmolLM2's files are made on first use. --peers: a Python with numpy, llama-cpp-python (built on this machine) and gguf;
--torch: one with torch, transformers, peft and tinker; --trl: one with trl too. --before: a build of an earlier commit, which the section
"commits" compares build/lockstep with; without it --all leaves that section out. --list prints each section's command with the minutes it
is expected to take. --all measures every section: in as many rounds as fit into --minutes by those expectations; a section that fails or takes
three times as long is left out, and said at the end, and the others go on.
--isa avx2 holds all that is compared to AVX2 on a machine that has more: lockstep by its option --isa, OpenBLAS, MKL, oneDNN and torch by their
variables (HELD). llama.cpp has none: build its package with GGML_NATIVE=OFF, GGML_AVX512=OFF, and give that Python as --peers.

A section has one block a kind of machine (bench/performance_page.py): only that of this machine is replaced, the others stay word for word; a
block that names no commit is left out.
Results are kept in FOLDER/results; with --only none the page is written from those.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

from learning_tables import critic_table, distill_table, dpo_table, kept_sets_table, ppo_table
from limit_tables import kept_table, limits_table, loop_table, prompts_table
from performance_page import add_block, without_outlived, without_unnamed
from performance_tables import (changes, change, commits_table, contexts_table, gemm_table, llama_table, loading_table, offload_table, packed_table, percents, ranks_table, rl_table, speculation_table, tax_table,
                                tenants_table, torch_table, training_table, variants_table)  # fmt: skip
from position_tables import positions_table

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/performance.md"
HEAD = """# Performance

Written by `bench/write_performance.py`, which runs each peer beside `lockstep bench`, or lockstep beside itself with another choice, in
turns, on the same machine, threads and values. Medians over rounds; a ratio above 1 means that lockstep, or the choice, is faster (or, of
memory, holds more) unless the section says otherwise; in brackets the least and the most of the rounds' ratios. A section may have a block for
each kind of machine that it was measured on; times of different machines do not compare.
Blocks of commit cfc44001a63f count parts of products that no group named (up to a tenth of a step) under "other functions of the program": there
products take more of the time than is said, at a lower rate.

Snapshots, swaps of weights and live answers beside rollouts have scripts and pages of their own; what was aimed at and measured of them stands in
[one table](weight-sync.md#aims-and-what-was-measured).
"""


# What holds the peers to AVX2.
HELD = {"OPENBLAS_CORETYPE": "Haswell", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}


def binary():
    return os.environ.get("LOCKSTEP_BINARY", str(ROOT / "build/lockstep"))


def held_program(program, script):
    """A program that runs lockstep with --isa avx2, for commands that have the option."""
    script.write_text(f"""#!/bin/sh
case "$1 ${{2-}}" in "bench memory"*) ;; bench*|serve*|train*|score*) exec {program} "$@" --isa avx2 ;; esac
exec {program} "$@"
""")
    script.chmod(0o755)
    return script


def hold_to_avx2(options):
    """From here on peers, binary() and the earlier build use AVX2 at most."""
    os.environ.update(HELD, LOCKSTEP_BINARY=str(held_program(binary(), options.models / "lockstep-avx2")))
    if options.before:
        options.before = held_program(options.before, options.models / "lockstep-before-avx2")


def version():
    return subprocess.run([binary(), "--version"], capture_output=True, text=True).stdout


def machine():
    text = subprocess.run(["lscpu"], capture_output=True, text=True).stdout
    field = dict(re.findall(r"^([^:]+):\s*(.+)$", text, re.M))
    sets = [s for s in ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile") if s in field.get("Flags", "").split()]
    used = re.search(r"instruction set (\w+)", version())
    held = os.environ.get("LOCKSTEP_BINARY", "").endswith("lockstep-avx2")
    caches = ", ".join(f"{name} {field[name]}" for name in ("L1d cache", "L2 cache", "L3 cache") if name in field)
    return (f"{field.get('Model name', platform.processor())} (family {field.get('CPU family')}, model {field.get('Model')}), "
            f"{os.cpu_count()} processors, {', '.join(sets)}; {caches}; {platform.system()} {platform.release().split('-')[0]}. "
            + ("Instruction set used: avx2, to which lockstep (--isa) and peers (" + ", ".join(f"{k}={v}" for k, v in HELD.items()) + ") were held."
               if held else f"Instruction set used: {used[1] if used else 'the widest'}."))  # fmt: skip


# Name -> title of the section, its script with what is always given, the table, whose Python runs it, its minutes: those that the rounds do not
# change (models made on first use, servers), and those of a round. Two processors; from the times of the steps that are measured.
class Section:
    def __init__(self, title, script, table, python, fixed, a_round, *, models=None):
        self.title, self.script, self.table, self.python, self.fixed, self.a_round, self.models = title, script, table, python, fixed, a_round, models

    def minutes(self, rounds):
        return self.fixed + self.a_round * rounds


SECTIONS = {
    "gemm": Section("Linear layers, fp32", "gemm_peers.py", gemm_table, "peers", 0, 0.9),
    "gemm-large": Section("Linear layers of seven shapes, fp32", "gemm_peers.py --large", gemm_table, "peers", 0, 6),
    "llama": Section("SmolLM2-135M: prefill and decoding", "llama_peers.py", llama_table, "peers", 3, 5, models="--models"),
    "llama-long": Section("SmolLM2-135M: long prompts, and decoding behind them", "llama_peers.py --long", llama_table, "peers", 3, 12, models="--models"),
    "torch": Section("SmolLM2-135M: a training step", "torch_peers.py", torch_table, "torch", 0, 1.3, models="--model"),
    "torch-long": Section("SmolLM2-135M: a training step of one long sequence", "torch_peers.py --sequences 1 --length 2048", torch_table, "torch", 0, 3.5, models="--model"),
    "lora": Section("SmolLM2-135M: a training step of an adapter", "torch_peers.py --lora-rank 8", torch_table, "torch", 0, 1, models="--model"),
    "moe": Section("Qwen3-MoE of half a billion parameters: prefill and decoding", "llama_peers.py --weights moe", llama_table, "peers", 2, 1.5, models="--models"),
    "moe-train": Section("Qwen3-MoE: a training step", "torch_peers.py --make qwen3_moe", torch_table, "torch", 1.5, 1.3, models="--made"),
    "mla-train": Section("A model of DeepSeek-V3's shape: a training step", "torch_peers.py --make deepseek_v3", torch_table, "torch", 1.5, 1.3, models="--made"),
    "contexts": Section("Long contexts", "long_contexts.py", contexts_table, "torch", 2, 20, models="--models"),
    "positions": Section("A token at the end of a long text", "context_costs.py", positions_table, "torch", 1, 4, models="--models"),
    "speculation": Section("Guessing ahead", "speculation.py --profiles cpu-f32,cpu-bf16w,cpu-int8w,cpu-int4w", speculation_table, "torch", 1, 1.5, models="--model"),
    "loading": Section("Memory while a model is read", "loading_memory.py", loading_table, "torch", 1, 0.3, models="--bf16"),
    "training": Section("The training API", "training_api.py", training_table, "torch", 3, 1),
    "offload": Section("Optimizers in files", "training_api.py --offload", offload_table, "torch", 3, 2.5, models="--model"),
    "packed": Section("A frozen base in few bits", "packed_base.py", packed_table, "torch", 1, 1),
    "rl": Section("A GRPO step", "rl_peer.py", rl_table, "trl", 0.5, 1, models="--models"),
    "rl-long": Section("A GRPO step after prompts of 256 tokens", "rl_peer.py --prompt 256", rl_table, "trl", 0.5, 3, models="--models"),
    "ppo": Section("A step of PPO beside GRPO's", "learning_costs.py ppo", ppo_table, "own", 0, 0.8, models="--model"),
    "critic": Section("What a critic holds", "learning_costs.py critic", critic_table, "own", 0, 0.8, models="--model"),
    "kept-sets": Section("What kept sets cost", "learning_costs.py kept-sets", kept_sets_table, "own", 4, 0, models="--model"),
    "dpo": Section("SmolLM2-135M: a step of DPO", "learning_peers.py dpo", dpo_table, "trl", 0.5, 2, models="--model"),
    "distill": Section("Distillation at 151,936 tokens", "learning_peers.py distill", distill_table, "trl", 0.5, 1.2, models="--models"),
    "tax": Section("What the contract costs", "variants.py tax", tax_table, "own", 0, 1, models="--model"),
    "threads": Section("Two threads against one", "variants.py threads",
                       variants_table("fp32. Target: at least 1.7 where the cores are real ones.", "two threads, ms", "one thread, ms"), "own", 0, 1.2, models="--model"),
    "bandwidth": Section("Share of the memory's speed", "variants.py bandwidth",
                         variants_table("Linear layers of 4096 x 4096 in turns over 512 MB of weights, so that no cache holds them, against the fastest of the reads that "
                                        "`lockstep bench memory` tries, before and after each. Target: 80%.", "memory, GB/s", "layer, GB/s", 1, 1, percents, None), "own", 0, 1.5),
    "prefix": Section("Sharing prompts in training", "variants.py prefix",
                      variants_table("SmolLM2-135M, fp32: a training step on 8 samples of one prompt, which is as long as each sample. Targets: 1.12 with the forward "
                                     "shared, 1.5 with the backward too.", "shared, ms", "nothing shared, ms"), "own", 0, 1, models="--model"),
    "ranks": Section("Training over two ranks", "rank_steps.py", ranks_table, "torch", 0.5, 18, models="--model"),
    "ranks-long": Section("Training over two ranks: one sequence of 8,192 tokens", "rank_steps.py --cases cp", ranks_table, "own", 0, 18, models="--model"),
    "prompts": Section("One prompt of thousands of tokens", "variants.py prompts", prompts_table, "own", 0, 9, models="--model"),
    "kept": Section("Kept forwards", "kept_forwards.py", kept_table, "own", 0, 14, models="--model"),
    "kept-loop": Section("Kept forwards in a client's loop", "kept_loop.py", loop_table, "torch", 1, 3, models="--served"),
    "limits": Section("Against the machine's limits", "roofline.py", limits_table, "own", 0, 5, models="--model"),
    "state": Section("The optimizer's state in a file", "variants.py state",
                     variants_table("SmolLM2-135M, fp32, a training step of all parameters. The ratio is time with the file over time without. The system keeps as "
                                    "much of the file in memory as there is room.", "in memory, ms", "in a file, ms"), "own", 0, 0.7, models="--model"),
    "counters": Section("What the work counters cost", "variants.py counters",
                        variants_table("fp32, whole forwards. Kernels count the keys that attention reads and the rows that experts compute, always (model/forward_counts.h): "
                                       "the same forward with the counters and without them, in turns within one process. The ratio is the time that they add.",
                                       "without, ms", "with, ms", ratio=changes, least=change), "own", 0, 1.5, models="--model"),
    "tenants": Section("Many tenants", "tenants.py --all", tenants_table, "torch", 3, 5, models="--large"),
    "commits": Section("Against the commit before", "variants.py commits", commits_table, "own", 0.3, 2.2, models="--model"),
}  # fmt: skip

def command_of(name, options, rounds):
    """The script and its arguments. Folders are as given: shown() leaves them out."""
    section = SECTIONS[name]
    command = section.script.split()
    if section.models == "--models":
        command += ["--models", options.models]
    if section.models == "--bf16":
        command += ["--model", options.models / "bf16"]
    if section.models == "--made":
        command += ["--model", options.models / name]
    if section.models == "--model":
        command += ["--model", options.models / "fp32"]
    if section.models == "--large":
        command += ["--large", options.models / "bf16", "--disk", options.models, "--lockstep", binary(), "--model", ROOT / "models/countdown-glm"]
    if section.models == "--served":
        command += ["--model", options.models / "bf16", "--lockstep", binary()]
    if name == "llama":
        command += ["--weights", options.weights]
    if name == "llama-long":
        command += ["--weights", "f32,bf16"]
    if name in ("training", "offload", "packed", "loading"):
        command += ["--lockstep", binary()]
    if name == "training":
        command += ["--model", ROOT / "models/countdown-glm"]
    if name == "offload":
        command += ["--state", options.models]
    if name in ("prefix", "state"):
        command += ["--disk", options.models]
    if name == "commits":
        command += ["--before", options.before, "--after", binary()]
    if name not in ("training", "offload"):
        command += ["--threads", options.threads]
    return [str(part) for part in [*command, "--rounds", rounds]]


def shown(command, options):
    text = " ".join("BEFORE" if part == str(options.before) else part for part in command).replace(binary(), "build/lockstep").replace(str(options.models), "FOLDER").replace(str(ROOT) + "/", "")
    return "bench/" + text


def measure(name, options, rounds, json_file, seconds=None):
    """Runs the section's script, and notes machine, commit and command beside its results."""
    section = SECTIONS[name]
    if section.models in ("--model", "--bf16", "--large", "--served") and not all((options.models / dtype).is_dir() for dtype in ("fp32", "bf16")):
        subprocess.run([options.torch, str(ROOT / "tools/make_smollm2.py"), str(options.models)], check=True)
    python = {"peers": options.peers, "torch": options.torch, "trl": options.trl, "own": sys.executable}[section.python]
    command = command_of(name, options, rounds)
    print("$", shown(command, options), flush=True)
    fresh = json_file.with_suffix(".new")
    if name in ("llama", "llama-long") and json_file.is_file():
        fresh.write_bytes(json_file.read_bytes())  # it goes on with weights that were measured before
    subprocess.run([python, str(ROOT / "bench" / command[0]), *command[1:], "--json", str(fresh)], check=True, timeout=seconds)
    data = json.loads(fresh.read_text())
    commit = re.search(r"commit (\S+)", version())
    data.update(machine=machine() + (f" {options.note}" if options.note else ""), commit=commit[1] if commit else "unknown", command=shown(command, options))
    fresh.unlink()
    block(section, data)  # a result with a share that cannot be is not kept
    json_file.write_text(json.dumps(data, indent=1) + "\n")


def impossible_shares(lines):
    """The figures above 100% that a block tells: shares of a ruler that is slower than what it measures. A change has a sign, and may be as large as it is."""
    return [figure for line in lines for figure in re.findall(r"(?<![-+\d.,])\d[\d,]*(?:\.\d+)?%", line) if float(figure[:-1].replace(",", "")) > 100]


def block(section, data):
    """The block's lines. Error ValueError: a share in them is above 100%."""
    rows = section.table(data)
    if above := impossible_shares(rows):
        raise ValueError(f"{section.title}: a share of {above[0]} is told, of a ruler that is slower than what it measures")
    measured = [f"Measured at commit {data['commit']} by `{data['command']}`.", ""] if "commit" in data else []  # without it write_page leaves the block out
    return [f"`bench/{section.script}`. {rows[0]}", "", *measured, f"Machine: {data['machine']}", *rows[1:]]


def write_page(kept):
    page = PAGE.read_text() if PAGE.is_file() else HEAD
    page = HEAD + page[page.index("\n## ") :] if "\n## " in page else HEAD
    for name, section in SECTIONS.items():
        if (kept / f"{name}.json").is_file():
            data = json.loads((kept / f"{name}.json").read_text())
            page = add_block(page, section.title, block(section, data), [s.title for s in SECTIONS.values()])
    PAGE.write_text(without_outlived(without_unnamed(page)))
    print(f"{PAGE.name} is written")


def rounds_that_fit(names, minutes):
    """The most rounds, up to 5, that are expected to fit into the minutes; 1 if not even one does."""
    return max([r for r in range(1, 6) if sum(SECTIONS[n].minutes(r) for n in names) <= minutes], default=1)


def measure_all(options, kept):
    names = [name for name in SECTIONS if name != "commits" or options.before]
    rounds = rounds_that_fit(names, options.minutes)
    expected = sum(SECTIONS[n].minutes(rounds) for n in names)
    print(f"{len(names)} sections in {rounds} round{'s' if rounds > 1 else ''}, about {expected:.0f} minutes of {options.minutes:g}", flush=True)
    missing = []
    for name in names:
        try:
            measure(name, options, rounds, kept / f"{name}.json", 180 * SECTIONS[name].minutes(rounds))
            write_page(kept)
        except (subprocess.SubprocessError, OSError, ValueError) as error:
            missing.append(name)
            print(f"{name}: not measured: {error}", flush=True)
    if missing:
        sys.exit(f"not measured: {', '.join(missing)}; each alone: --only NAME")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path)
    parser.add_argument("--peers", default="python3")
    parser.add_argument("--torch", default="python3")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--trl", default="python3")
    parser.add_argument("--weights", default="f32,bf16,q8_0,q4_0")
    parser.add_argument("--only", default="none", help="sections, NAME,NAME,...; none: the page from the results that are kept")
    parser.add_argument("--all", action="store_true", help="every section, in as many rounds as fit into --minutes")
    parser.add_argument("--minutes", type=float, default=90)
    parser.add_argument("--list", action="store_true", help="print the sections' commands and expected minutes")
    parser.add_argument("--isa", choices=["avx2"], help="hold lockstep and the peers to it")
    parser.add_argument("--before", type=Path, help="a build of an earlier commit, for the section 'commits'")
    parser.add_argument("--note", default="", help="a sentence about the machine, such as who else uses it")
    options = parser.parse_args()
    if options.list:
        options.models, options.before = options.models or Path("FOLDER"), options.before or Path("BEFORE")
        for name, section in SECTIONS.items():
            print(f"{name:10} {section.minutes(options.rounds):5.1f} min  {shown(command_of(name, options, options.rounds), options)}")
        print(f"{'all':10} {sum(s.minutes(options.rounds) for s in SECTIONS.values()):5.1f} min")
        return
    if not options.models:
        parser.error("--models FOLDER is needed")
    kept = options.models / ("results-avx2" if options.isa else "results")
    if options.isa:
        options.models.mkdir(parents=True, exist_ok=True)
        hold_to_avx2(options)
    kept.mkdir(parents=True, exist_ok=True)
    if options.all:
        return measure_all(options, kept)
    for name in options.only.split(","):
        if name not in (*SECTIONS, "none"):
            parser.error(f"--only has '{name}', allowed are {', '.join(SECTIONS)}, none")
        if name == "commits" and not options.before:
            parser.error("the section 'commits' needs --before PROGRAM, a build of an earlier commit")
        if name != "none":
            try:
                measure(name, options, options.rounds, kept / f"{name}.json")
            except subprocess.CalledProcessError as error:
                sys.exit(f"{name}: not measured: {error.cmd[1]} ended with {error.returncode}; the page is as it was")
            except ValueError as error:
                sys.exit(f"{name}: not kept: {error}; the page is as it was")
    write_page(kept)


if __name__ == "__main__":
    main()
