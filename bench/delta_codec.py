#!/usr/bin/env python3
"""Makes pairs of SmolLM2-135M a step of training apart and measures the codec of snapshots on them (bench/delta_codec.cpp), beside others.

    bench/delta_codec.py pair --model FOLDER/fp32 --out PAIRS     PAIRS/step-12, step-13 and step-16, bf16: after so many steps of AdamW
    bench/delta_codec.py compare --pairs PAIRS [--json FILE] [--page docs/weight-sync.md [--beside TEXT]]
                                                                  bytes and speed of the codec, of arc_v3 and of zstd on gaps and steps

FOLDER is made by tools/make_smollm2.py. Its values are decoded from four bits, so few of them are different: masters are drawn evenly inside the
cell that each was rounded from, else hardly any would be near a rounding to bf16 or all would. Then AdamW (learning rate 1e-6, betas 0.9 and
0.95) takes 16 steps of 4 x 128 tokens of this repository's own text. Folders hold bf16 roundings of the masters. `pair` needs torch and
transformers, `compare` zstandard and, for arc_v3, fireworks-delta-compression; what is not installed is left out, and said. --page: writes the figures between the marks
there; --beside says what else ran on the machine.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from marked_page import write_between_marks
from write_performance import machine, version

ROOT = Path(__file__).resolve().parents[1]
STEPS = (12, 13, 16)
SPEED = {"1 step": 4, "4 steps": 3}  # GB/s of full bytes a processor, both ways: the aims
DIGESTS, THREADS = 2.5, 1.7  # GB/s with the digests of base and result; two threads over one


def dithered(tensor, generator):
    """Each value moved evenly within half a cell: cells are as wide as the least distance of two values of its block of 32."""
    import torch

    if tensor.dim() < 2:
        return tensor
    blocks = tensor.reshape(-1, 32).sort(dim=1).values
    gaps = blocks.diff(dim=1)
    gaps[gaps < 1e-8] = float("inf")
    cell = gaps.min(dim=1, keepdim=True).values
    cell[~torch.isfinite(cell)] = 0
    noise = torch.rand(tensor.numel(), generator=generator).reshape(-1, 32) - 0.5
    return (tensor.reshape(-1, 32) + noise * cell).reshape(tensor.shape)


def make_pairs(options):
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(options.threads)
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    text = "\n".join(p.read_text() for p in [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").glob("*.md"))])
    ids = tokenizer(text, return_tensors="pt").input_ids[0]
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(dithered(parameter, generator))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, betas=(0.9, 0.95))
    for step in range(1, max(STEPS) + 1):
        begins = torch.randint(0, len(ids) - 128, (4,), generator=generator)
        batch = torch.stack([ids[b : b + 128] for b in begins.tolist()])
        optimizer.zero_grad()
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}", file=sys.stderr, flush=True)
        if step in STEPS:
            folder = options.out / f"step-{step}"
            shutil.copytree(options.model, folder, ignore=shutil.ignore_patterns("*.safetensors*", ".lockstep"), dirs_exist_ok=True)
            config = json.loads((folder / "config.json").read_text())
            for key in ("torch_dtype", "dtype"):
                if key in config:
                    config[key] = "bfloat16"
            (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
            state = {name: p.detach().to(torch.bfloat16).contiguous() for name, p in model.named_parameters()}
            save_file(state, folder / "model.safetensors", metadata={"format": "pt"})


def tensors_of(folder):
    """name -> the words of a bf16 folder."""
    import numpy

    data = (folder / "model.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    return {n: numpy.frombuffer(data, numpy.uint16, offset=8 + length + t["data_offsets"][0], count=(t["data_offsets"][1] - t["data_offsets"][0]) // 2)
            for n, t in header.items() if n != "__metadata__"}  # fmt: skip


def places(words):
    import numpy

    return numpy.where(words & 0x8000, ~words, words | 0x8000).astype(numpy.int32)


def ideal_bytes(old, new):
    """The entropy, given each old exponent, of which elements changed and by how many steps, with one model for all tensors: no code of this model is
    shorter."""
    import numpy

    def entropy(counts):
        counts = counts[counts > 0].astype(float)
        return float(-(counts * numpy.log2(counts / counts.sum())).sum())

    bits = 0.0
    exponents = numpy.concatenate([(w >> 7) & 0xFF for w in old.values()])
    steps = numpy.concatenate([places(new[n]) - places(old[n]) for n in old])
    for e in numpy.unique(exponents):
        here = steps[exponents == e]
        changed = here[here != 0]
        bits += entropy(numpy.array([len(changed), len(here) - len(changed)]))
        bits += entropy(numpy.unique(changed, return_counts=True)[1])
    return bits / 8


def zstd_bytes(old, new):
    """Gaps and steps of every tensor, as NumPy arrays, compressed by zstd at level 3."""
    import numpy
    import zstandard

    gaps, steps = [], []
    for name, words in old.items():
        where = numpy.flatnonzero(words != new[name])
        gaps.append(numpy.diff(where, prepend=0).astype(numpy.uint16))
        steps.append((places(new[name])[where] - places(words)[where]).astype(numpy.int8))
    press = zstandard.ZstdCompressor(level=3)
    return len(press.compress(numpy.concatenate(gaps).tobytes())) + len(press.compress(numpy.concatenate(steps).tobytes()))


def arc_v3(old, new):
    """fireworks-delta-compression's arc_v3, a tensor at a time, as its own helpers for files do it."""
    import torch
    from fireworks_delta_compression import delta_compress

    size = 0
    for name, words in old.items():
        src, dst = (torch.from_numpy(w.copy().view("int16")).view(torch.bfloat16) for w in (words, new[name]))
        size += delta_compress(src=src, dst=dst, compression_format="arc_v3")[0].numel()
    return size


def two_over_one(one, two, key):
    """By the clock, as who waits for it sees it."""
    return two[f"{key}gb_s"] / one[f"{key}gb_s"]


def verdict(rows):
    """Which aims of speed are met, in words."""
    said = {True: [], False: []}
    for pair in SPEED:
        own = [row for row in rows if row["pair"] == pair and row["codec"] == "lockstep"]
        if not own:
            continue
        one, two = own
        for key, with_them, aim in (("", "", SPEED[pair]), ("digests_", " with digests", DIGESTS)):
            for way, doing in (("encode", "encoding"), ("decode", "decoding")):
                speed, ratio = one[f"{way}_{key}gb_s_a_processor"], two_over_one(one, two, f"{way}_{key}")
                said[speed >= aim].append(f"{doing}{with_them} after {pair}: {speed:.1f} GB/s of {aim}")
                said[ratio >= THREADS].append(f"two threads {doing}{with_them} after {pair}: {ratio:.2f} times one of {THREADS}")
    return [f"Aims of speed that are met: {'; '.join(said[True]) or 'none'}.", "", f"Missed: {'; '.join(said[False]) or 'none'}."]


def page_text(rows, told, beside):
    lines = [told + (f" Beside it: {beside}." if beside else ""), "",
             "| pair | weights that changed | codec | bytes, of the full ones | of arc_v3's | encoding, GB/s of full bytes a processor (two threads: all) | decoding | two threads over one, by the clock: encoding, decoding |",
             "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for pair in dict.fromkeys(row["pair"] for row in rows):
        own = [row for row in rows if row["pair"] == pair and row["codec"] == "lockstep"]
        others = {row["codec"]: row for row in rows if row["pair"] == pair and row["codec"] != "lockstep"}
        theirs = others.get("arc_v3", {}).get("percent")
        one, two = own
        head = f"| {pair} | {one['changed_percent']:.2f} % | "
        ratio = f"{one['percent'] / theirs:.2f}" if theirs else ""
        for label, key in (("lockstep", ""), ("lockstep, with the digests of base and result", "digests_")):
            cells = [f"{one[f'{way}_{key}gb_s_a_processor']:.1f} ({two[f'{way}_{key}gb_s']:.1f})" for way in ("encode", "decode")]
            threads = ", ".join(f"{two_over_one(one, two, f'{way}_{key}'):.2f}" for way in ("encode", "decode"))
            lines.append(f"{head}{label} | {one['percent']:.3f} % | {ratio} | {cells[0]} | {cells[1]} | {threads} |")
        for label, key in (("gaps and steps through zstd, in numpy", "zstd on gaps and steps"), ("arc_v3 of fireworks-delta-compression", "arc_v3"), ("entropy of changes and steps by exponent", "ideal")):
            if key in others:
                speed = others[key].get("encode_gb_s_a_processor")
                lines.append(f"{head}{label} | {others[key]['percent']:.3f} % | | {f'{speed:.2f}' if speed else ''} | | |")
    return "\n".join([*lines, "", *verdict(rows)])


def compare(options):
    rows = []
    binary = os.environ.get("DELTA_CODEC", str(ROOT / "build/bench/delta_codec"))
    for after in [s for s in STEPS[1:] if (options.pairs / f"step-{s}").exists()]:
        before, behind = options.pairs / f"step-{STEPS[0]}", options.pairs / f"step-{after}"
        for threads in (1, 2):
            command = [binary, before, behind, "--rounds", str(options.rounds), "--threads", str(threads)]
            rows.append({"pair": f"{after - STEPS[0]} step{'s' if after - STEPS[0] > 1 else ''}", "codec": "lockstep", **json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)})
        old, new = tensors_of(before), tensors_of(behind)
        full = sum(w.nbytes for w in old.values())
        rows.append({"pair": rows[-1]["pair"], "codec": "ideal", "percent": 100 * ideal_bytes(old, new) / full})
        for name, measure in (("zstd on gaps and steps", zstd_bytes), ("arc_v3", arc_v3)):
            begin = time.process_time()
            try:
                size = measure(old, new)
            except ImportError as missing:
                print(f"delta_codec: {name} is left out: {missing}", file=sys.stderr)
                continue
            seconds = time.process_time() - begin
            rows.append({"pair": rows[-1]["pair"], "codec": name, "percent": 100 * size / full, "encode_gb_s_a_processor": full / seconds / 1e9})
    for row in rows:
        print(" ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items()))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    if options.page:
        write_between_marks(options.page, "bench/delta_codec.py", page_text(rows, f"By `bench/delta_codec.py`, {version().splitlines()[0]}. Machine: {machine()}", options.beside))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    pair = commands.add_parser("pair")
    pair.add_argument("--model", type=Path, required=True)
    pair.add_argument("--out", type=Path, required=True)
    pair.add_argument("--threads", type=int, default=2)
    comparison = commands.add_parser("compare")
    comparison.add_argument("--pairs", type=Path, required=True)
    comparison.add_argument("--rounds", type=int, default=5)
    comparison.add_argument("--json", type=Path)
    comparison.add_argument("--page", type=Path)
    comparison.add_argument("--beside", default="", help="what else ran on the machine, for the page")
    options = parser.parse_args()
    if options.command == "pair":
        make_pairs(options)
    else:
        compare(options)


if __name__ == "__main__":
    main()
