#!/usr/bin/env python3
"""Runs the peers beside us and writes docs/performance.md: every number in that page comes from here.

    bench/write_performance.py --models FOLDER --peers PYTHON [--torch PYTHON] [--trl PYTHON] [--threads N] [--rounds 3] [--only gemm,llama,...]

FOLDER: where SmolLM2's files are made on first use. --peers: a Python with numpy, llama-cpp-python (built on this machine) and gguf;
--torch: one with torch and transformers; --trl: one with trl too. A section says which machine it was measured on. One that is not run
again stays as it is in the page, word for word; results of the last run are kept beside FOLDER's models. With --only none the page is
written from those.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGETS = {
    ("f32", "prefill", 512): 1.3, ("f32", "decode", 1): 1.3, ("f32", "decode", 8): 1.3, ("f32", "decode", 32): 1.3,
    ("bf16", "prefill", 512): 0.8, ("bf16", "decode", 1): 1.3, ("bf16", "decode", 8): 1.3,
    ("q8_0", "decode", 1): 1.0, ("q4_0", "decode", 1): 1.0,
}  # fmt: skip


def run(python, script, *arguments):
    command = [python, str(ROOT / "bench" / script), *map(str, arguments)]
    print("$", "bench/" + script, flush=True)
    subprocess.run(command, check=True)


def machine():
    text = subprocess.run(["lscpu"], capture_output=True, text=True).stdout
    field = dict(re.findall(r"^([^:]+):\s*(.+)$", text, re.M))
    sets = [s for s in ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile") if s in field.get("Flags", "").split()]
    version = subprocess.run([os.environ.get("LOCKSTEP_BINARY", str(ROOT / "build/lockstep")), "--version"], capture_output=True, text=True).stdout
    used = re.search(r"instruction set (\w+)", version)
    caches = ", ".join(f"{name} {field[name]}" for name in ("L1d cache", "L2 cache", "L3 cache") if name in field)
    return (f"{field.get('Model name', platform.processor())} (family {field.get('CPU family')}, model {field.get('Model')}), "
            f"{os.cpu_count()} processors, {', '.join(sets)}; {caches}; {platform.system()} {platform.release().split('-')[0]}. "
            f"Instruction set used: {used[1] if used else 'the widest'}.")  # fmt: skip


def span(row):
    return f"{row['ratio']:.2f} ({row['ratio_range'][0]:.2f} to {row['ratio_range'][1]:.2f})"


def gemm_table(data):
    lines = [f"Peer: {data['peer']}; {data['threads']} threads. Targets: 1.0 at M >= 64, 1.5 at M of 1 to 16.", "",
             "| N x K | M | lockstep, us | OpenBLAS, us | ratio | GFLOP/s |", "|---|---|---|---|---|---|"]  # fmt: skip
    for r in data["rows"]:
        work = 2 * r["rows"] * r["outputs"] * r["inputs"] / r["lockstep_seconds"] / 1e9
        lines.append(f"| {r['outputs']} x {r['inputs']} | {r['rows']} | {r['lockstep_seconds'] * 1e6:.0f} | {r['openblas_seconds'] * 1e6:.0f} | {span(r)} | {work:.0f} |")
    return lines


def llama_table(data):
    lines = [f"Peer: {data['peer']}; {data['threads']} threads; {data['rounds']} rounds.", "",
             "| weights | case | lockstep, tok/s | llama.cpp, tok/s | ratio | target |", "|---|---|---|---|---|---|"]  # fmt: skip
    for r in data["rows"]:
        case = f"prefill of {r['size']}" if r["case"] == "prefill" else f"decode, {r['size']} stream{'s' if r['size'] > 1 else ''}"
        target = TARGETS.get((r["weights"], r["case"], r["size"]))
        lines.append(f"| {r['weights']} | {case} | {r['lockstep']:.0f} | {r['llama_cpp']:.0f} | {span(r)} | {target or ''} |")
    return lines


def torch_table(data):
    r = data["rows"][0]
    what = f"adapter of rank {r['lora_rank']}" if r.get("lora_rank") else "all parameters"
    targets = "Target: 1.5 in tokens." if r.get("lora_rank") else "Targets: 1.5 in tokens, 0.65 in memory."
    return [f"Peer: {data['peer']}; {data['threads']} threads; {data['rounds']} rounds. {targets}", "",
            "| step | lockstep, tok/s | torch, tok/s | ratio | lockstep, peak GB | torch, peak GB | ratio |", "|---|---|---|---|---|---|---|",
            f"| {r['sequences']} x {r['length']} tokens, fp32, {what} | {r['lockstep']:.0f} | {r['torch']:.0f} | {span(r)} | "
            f"{r['lockstep_peak_bytes'] / 1e9:.2f} | {r['torch_peak_bytes'] / 1e9:.2f} | {r['memory_ratio']:.2f} |"]  # fmt: skip


def rl_table(data):
    r = data["rows"][0]
    return [f"Peer: {data['peer']}; {data['threads']} threads; {data['rounds']} rounds. A llama of 4 million parameters, fp32, random weights. Target: 2.", "",
            "| step | lockstep, samples/s | TRL, samples/s | ratio |", "|---|---|---|---|",
            f"| {r['prompts']} prompts x {r['samples']} samples x {r['tokens']} tokens | {r['lockstep']:.1f} | {r['trl']:.1f} | {span(r)} |"]  # fmt: skip


def variants_table(what, first, second, of_first=1e3, of_second=1e3, ratio=span, least=lambda value: f"{value:.2f}"):
    def table(data):
        lines = [f"{what} {data['threads']} threads; {data['rounds']} rounds in turns.", "",
                 f"| case | {first} | {second} | ratio (range over rounds) | of the least times |", "|---|---|---|---|---|"]  # fmt: skip
        for r in data["rows"]:
            lines.append(f"| {r['case']} | {number(r['first'] * of_first)} | {number(r['second'] * of_second)} | {ratio(r)} | {least(r['least_ratio'])} |")
        return lines

    return table


def number(value):
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def percent(value):
    return f"{value * 100:.0f}%"


def percents(row):
    return f"{percent(row['ratio'])} ({percent(row['ratio_range'][0])} to {percent(row['ratio_range'][1])})"


def change(value):
    return f"{(value - 1) * 100:+.1f}%"


def changes(row):
    return f"{change(row['ratio'])} ({change(row['ratio_range'][0])} to {change(row['ratio_range'][1])})"


def seconds_of(row):
    """A median and its range, in milliseconds below a second."""
    scale, unit = (1, "s") if row["median"] >= 1 else (1e3, "ms")
    return f"{number(row['median'] * scale)} {unit} ({number(row['least'] * scale)} to {number(row['most'] * scale)})"


def times_of(row):
    return f"{row['median']:.2f} ({row['least']:.2f} to {row['most']:.2f})"


def training_table(data):
    """Of bench/training_api.py; a part that was not run has no row."""
    lines = ["Through the real `tinker` SDK against `lockstep serve --training` on models/countdown-glm; medians over rounds in turns, with their range.", "",
             "| what | figure | target |", "|---|---|---|"]  # fmt: skip
    for name, how in (("fused", "forwards kept for their gradients"), ("fused_without_reuse", "none kept")):
        for r in data.get(name, []):
            what = f"rank {r['rank']}, 4,096 tokens, {how}"
            lines.append(f"| clipped policy loss fused: {what} | {seconds_of(r['seconds']['fused'])} | |")
            lines.append(f"| the same in the client, over fused: {what} | {times_of(r['custom_over_fused'])} | {'at most 1.15' if name == 'fused' else 'at least 1.25'} |")
            lines.append(f"| the same traced to the server, over fused: {what} | {times_of(r['traced_over_fused'])} | |")
    for r in data.get("losses", {}).get("losses", []):
        lines.append(f"| {r['loss']} in the client, over fused: rank 0, none kept (processor time of the server alone: {r['processor']:.2f}) "
                     f"| {times_of(r['custom_over_fused'])} | at least 1.25; published by a hosted service: {r['published']} |")  # fmt: skip
    if "losses" in data:
        r = data["losses"]
        lines.append(f"| of such a call: the forward, the function itself, the gradient with its weights | {seconds_of(r['forward_seconds'])}, "
                     f"{seconds_of(r['function_seconds'])}, {seconds_of(r['gradient_seconds'])} | reported |")  # fmt: skip
    if "http" in data:
        lines.append(f"| a step of 4,096 tokens over HTTP, over one in process | {times_of(data['http']['http_over_process'])} | at most 1.03 |")
    if "checkpoint_to_live" in data:
        r = data["checkpoint_to_live"]
        lines.append(f"| from a step to the first sample of its version | {seconds_of(r['seconds'])} | 1 s |")
        lines.append(f"| {r['versions']} versions live, one after another | {r['all_versions_seconds']:.2f} s | 10 s |")
        lines.append(f"| all {r['versions']} sampled at once | {r['all_sampled_at_once_seconds']:.2f} s | |")
    if "many" in data:
        r = data["many"]
        lines.append(f"| {r['samplers']} samplers and {r['trainers']} trainers at once: time-outs and errors | {len(r['failures'])} | 0 |")
        lines.append(f"| the same: p95 of a sample of 16 tokens, of a step | {r['p95_seconds']['sample']:.2f} s, {r['p95_seconds']['step']:.2f} s | reported |")
    if "small_batches" in data:
        r = data["small_batches"]
        lines.append(f"| operations a second of 8 adapters with small batches, in shared passes over passes of their own | {times_of(r['shared_over_separate'])} | |")
    if "chunks" in data:
        r = data["chunks"]
        lines.append(f"| the first result of a call in {r['chunks']} requests, of {r['call_seconds']:.2f} s in all | {r['first_result_seconds']:.2f} s | reported |")
    return lines


def offload_table(data):
    lines = [f"`{data['model']}`, {data['profile']}, {data['trainers']} models trained by turns, all parameters; the losses of both servers are equal. "
             "Targets: 0.6 in peak memory, 0.95 in speed.", "",
             "| | in memory | in files | ratio |", "|---|---|---|---|"]  # fmt: skip
    for size in data["sizes"]:
        peak, step = size["peak_bytes"], size["step_seconds"]
        lines += [f"| {number(size['tokens'])} tokens a step: peak memory, GB | {peak['memory'] / 1e9:.2f} | {peak['file'] / 1e9:.2f} | {size['peak_ratio']:.2f} |",
                  f"| the same less what the server has before training | | | {size['grown_ratio']:.2f} |",
                  f"| {number(size['tokens'])} tokens a step: a step | {seconds_of(step['memory'])} | {seconds_of(step['file'])} | speed {times_of(size['speed_ratio'])} |"]  # fmt: skip
    return lines


def packed_table(data):
    lines = ["A llama of random weights, an adapter of rank 16 over it, through the real `tinker` SDK; ratios are to bf16 (in speed, above 1 is faster). "
             "Targets: 0.29 of the bytes in int4, 0.53 in fp8.", "",
             "| weights | weights, MB | ratio | training step, tok/s | ratio | decode, 1 stream, tok/s | ratio | decode, 8 streams, tok/s | ratio |", "|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for profile, r in data["profiles"].items():
        cells = " | ".join(f"{number(r[name]['tokens_a_second'])} | {r[name]['ratio']:.2f}" for name in ("step", "decode 1", "decode 8"))
        lines.append(f"| {profile} | {r['weight_bytes'] / 1e6:.1f} | {r['weight_ratio']:.3f} | {cells} |")
    return lines


SECTIONS = {
    "gemm": ("Linear layers, fp32", "gemm_peers.py", gemm_table),
    "llama": ("SmolLM2-135M: prefill and decoding", "llama_peers.py", llama_table),
    "torch": ("SmolLM2-135M: a training step", "torch_peers.py", torch_table),
    "lora": ("SmolLM2-135M: a training step of an adapter", "torch_peers.py --lora-rank 8", torch_table),
    "training": ("The training API", "training_api.py", training_table),
    "offload": ("Optimizers in files", "training_api.py --offload", offload_table),
    "packed": ("A frozen base in few bits", "packed_base.py", packed_table),
    "rl": ("A GRPO step", "rl_peer.py", rl_table),
    "tax": ("What the contract costs", "variants.py tax",
            variants_table("Linear layers in fp32 with the contract's summation tree of 8 leaves, against the same kernels with one leaf. Target: at most 3%.",
                           "one leaf, ms", "8 leaves, ms", ratio=changes, least=change)),
    "threads": ("Two threads against one", "variants.py threads",
                variants_table("fp32. Target: at least 1.7 where the cores are real ones.", "two threads, ms", "one thread, ms")),
    "bandwidth": ("Share of the memory's speed", "variants.py bandwidth",
                  variants_table("Linear layers of 4096 x 4096 in turns over 512 MB of weights, so that no cache holds them, against what `lockstep doctor` reads "
                                 "from memory. Target: 80%.", "memory, GB/s", "layer, GB/s", 1, 1, percents, percent)),
    "prefix": ("Sharing prompts in training", "variants.py prefix",
               variants_table("SmolLM2-135M, fp32: a training step on 8 samples of one prompt, which is as long as each sample. Targets: 1.12 with the forward "
                              "shared, 1.5 with the backward too.", "shared, ms", "nothing shared, ms")),
    "state": ("The optimizer's state in a file", "variants.py state",
              variants_table("SmolLM2-135M, fp32, a training step of all parameters. The ratio is time with the file over time without. The system keeps as "
                             "much of the file in memory as there is room.", "in memory, ms", "in a file, ms")),
}  # fmt: skip


def measure(name, options, json_file):
    """Runs the section's script and notes the machine beside its results."""
    common = ["--threads", options.threads, "--rounds", options.rounds, "--json", json_file]
    if name == "gemm":
        run(options.peers, "gemm_peers.py", *common)
    elif name == "llama":
        run(options.peers, "llama_peers.py", "--models", options.models, "--weights", options.weights, *common)
    elif name == "torch":
        run(options.torch, "torch_peers.py", "--model", options.models / "fp32", *common)
    elif name == "lora":
        run(options.torch, "torch_peers.py", "--model", options.models / "fp32", "--lora-rank", 8, *common)
    elif name == "training":
        run(options.torch, "training_api.py", "--model", ROOT / "models/countdown-glm", "--lockstep", os.environ.get("LOCKSTEP_BINARY", ROOT / "build/lockstep"), "--json", json_file)
    elif name == "offload":
        run(options.torch, "training_api.py", "--offload", "--model", options.models / "fp32", "--lockstep", os.environ.get("LOCKSTEP_BINARY", ROOT / "build/lockstep"),
            "--rounds", options.rounds, "--state", options.models, "--json", json_file)
    elif name == "packed":
        run(options.torch, "packed_base.py", "--lockstep", os.environ.get("LOCKSTEP_BINARY", ROOT / "build/lockstep"), *common)
    elif name == "rl":
        run(options.trl, "rl_peer.py", "--models", options.models, *common)
    else:
        if not (options.models / "fp32").is_dir():
            subprocess.run([options.torch, str(ROOT / "tools/make_smollm2.py"), str(options.models)], check=True)
        run(sys.executable, "variants.py", name, "--model", options.models / "fp32", "--disk", options.models, *common)
    data = json.loads(json_file.read_text())
    data["machine"] = machine() + (f" {options.note}" if options.note else "")
    json_file.write_text(json.dumps(data, indent=1) + "\n")


def sections_of(page):
    """Title -> its lines, of the page as it is."""
    found = {}
    for part in re.split(r"^## ", page, flags=re.M)[1:]:
        title, _, text = part.partition("\n")
        found[title] = text.strip("\n").split("\n")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--peers", default="python3")
    parser.add_argument("--torch", default="python3")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--trl", default="python3")
    parser.add_argument("--weights", default="f32,bf16")
    parser.add_argument("--only", default=",".join(SECTIONS))
    parser.add_argument("--note", default="", help="a sentence about the machine, such as who else uses it")
    options = parser.parse_args()
    kept = options.models / "results"
    kept.mkdir(parents=True, exist_ok=True)
    for name in options.only.split(","):
        if name not in (*SECTIONS, "none"):
            parser.error(f"--only has '{name}', allowed are {', '.join(SECTIONS)}, none")
        if name != "none":
            measure(name, options, kept / f"{name}.json")
    lines = ["# Performance", "", "Written by `bench/write_performance.py`, which runs each peer beside `lockstep bench`, or lockstep beside itself with another choice, in",
             "turns, on the same machine, threads and values. Medians over rounds; a ratio above 1 means that lockstep, or the choice, is faster (or, of",
             "memory, holds more) unless the section says otherwise; in brackets the least and the most of the rounds' ratios. Times of sections that were",
             "measured on different machines do not compare.", ""]  # fmt: skip
    page = ROOT / "docs/performance.md"
    earlier = sections_of(page.read_text()) if page.is_file() else {}
    for name, (title, script, table) in SECTIONS.items():
        if (kept / f"{name}.json").is_file():
            data = json.loads((kept / f"{name}.json").read_text())
            rows = table(data)
            lines += [f"## {title}", "", f"`bench/{script}`. {rows[0]}", "", f"Machine: {data['machine']}", *rows[1:], ""]
        elif title in earlier:
            lines += [f"## {title}", "", *earlier[title], ""]
    page.write_text("\n".join(lines).rstrip() + "\n")
    print("docs/performance.md is written")


if __name__ == "__main__":
    main()
