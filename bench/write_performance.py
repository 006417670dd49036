#!/usr/bin/env python3
"""Runs the peers beside us and writes docs/performance.md: every number in that page comes from here.

    bench/write_performance.py --models FOLDER --peers PYTHON [--torch PYTHON] [--threads N] [--rounds 3] [--only gemm,llama,torch]

FOLDER: where SmolLM2's files are made on first use. --peers: a Python with numpy, llama-cpp-python (built on this machine) and gguf;
--torch: one with torch and transformers. What is not run again keeps its last results, which are kept beside FOLDER's models.
"""

import argparse
import json
import os
import platform
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGETS = {
    ("f32", "prefill", 512): 1.3, ("f32", "decode", 1): 1.3, ("f32", "decode", 8): 1.3, ("f32", "decode", 32): 1.3,
    ("bf16", "prefill", 512): 0.8, ("bf16", "decode", 1): 1.3, ("bf16", "decode", 8): 1.3,
    ("q8_0", "decode", 1): 1.0, ("q4_0", "decode", 1): 1.0,
}  # fmt: skip


def run(python, script, *arguments):
    command = [python, str(ROOT / "bench" / script), *map(str, arguments)]
    print("$", "bench/" + script, *arguments[:0], flush=True)
    subprocess.run(command, check=True)


def machine():
    text = subprocess.run(["lscpu"], capture_output=True, text=True).stdout
    field = dict(re.findall(r"^([^:]+):\s*(.+)$", text, re.M))
    sets = [s for s in ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile") if s in field.get("Flags", "").split()]
    caches = ", ".join(f"{name} {field[name]}" for name in ("L1d cache", "L2 cache", "L3 cache") if name in field)
    return (f"{field.get('Model name', platform.processor())} (family {field.get('CPU family')}, model {field.get('Model')}), "
            f"{os.cpu_count()} processors, {', '.join(sets)}; {caches}; {platform.system()} {platform.release().split('-')[0]}")  # fmt: skip


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
    return [f"Peer: {data['peer']}; {data['threads']} threads; {data['rounds']} rounds. Targets: 1.5 in tokens, 0.65 in memory.", "",
            "| step | lockstep, tok/s | torch, tok/s | ratio | lockstep, peak GB | torch, peak GB | ratio |", "|---|---|---|---|---|---|---|",
            f"| {r['sequences']} x {r['length']} tokens, fp32, all parameters | {r['lockstep']:.0f} | {r['torch']:.0f} | {span(r)} | "
            f"{r['lockstep_peak_bytes'] / 1e9:.2f} | {r['torch_peak_bytes'] / 1e9:.2f} | {r['memory_ratio']:.2f} |"]  # fmt: skip


SECTIONS = {
    "gemm": ("Linear layers, fp32", "gemm_peers.py", gemm_table),
    "llama": ("SmolLM2-135M: prefill and decoding", "llama_peers.py", llama_table),
    "torch": ("SmolLM2-135M: a training step", "torch_peers.py", torch_table),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--peers", default="python3")
    parser.add_argument("--torch", default="python3")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--weights", default="f32,bf16")
    parser.add_argument("--only", default=",".join(SECTIONS))
    options = parser.parse_args()
    common = ["--threads", options.threads, "--rounds", options.rounds]
    kept = options.models / "results"
    kept.mkdir(parents=True, exist_ok=True)
    for name in options.only.split(","):
        if name not in SECTIONS:
            parser.error(f"--only has '{name}', allowed are {', '.join(SECTIONS)}")
        json_file = ["--json", kept / f"{name}.json"]
        if name == "gemm":
            run(options.peers, "gemm_peers.py", *common, *json_file)
        elif name == "llama":
            run(options.peers, "llama_peers.py", "--models", options.models, "--weights", options.weights, *common, *json_file)
        else:
            run(options.torch, "torch_peers.py", "--model", options.models / "fp32", *common, *json_file)
    version = subprocess.run([os.environ.get("LOCKSTEP_BINARY", str(ROOT / "build/lockstep")), "--version"], capture_output=True, text=True).stdout
    used = re.search(r"instruction set (\w+)", version)
    lines = ["# Performance", "", "Written by `bench/write_performance.py`, which runs each peer beside `lockstep bench`, in turns, on the same machine,",
             "threads and values. Medians over rounds; a ratio above 1 means that lockstep is faster (or, of memory, holds more); in brackets the",
             "least and the most of the rounds' ratios.", "", f"Machine: {machine()}. Instruction set used: {used[1] if used else 'the widest'}.", ""]  # fmt: skip
    for name, (title, script, table) in SECTIONS.items():
        if (kept / f"{name}.json").is_file():
            lines += [f"## {title}", "", f"`bench/{script}`. " + (rows := table(json.loads((kept / f"{name}.json").read_text())))[0], *rows[1:], ""]
    (ROOT / "docs/performance.md").write_text("\n".join(lines).rstrip() + "\n")
    print("docs/performance.md is written")


if __name__ == "__main__":
    main()
