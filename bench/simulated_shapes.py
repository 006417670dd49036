#!/usr/bin/env python3
"""The tables of docs/simulate.md: what `lockstep simulate` computes for the published training shapes (docs/training-shapes.md) whose family runs here, for
GLM-5.2, and for 10^12 parameters at 2^20 tokens, on H200 and B200. Computed, not measured. One sequence a step, activations recomputed. Of each shape the
fewest devices that suffice are taken, from 8 up in powers of two to 1,024, with one of the layouts below; a run has at most 64 ranks. Where a model's own context is
shorter than the shape's its RoPE is taken to reach as far.

    bench/simulated_shapes.py [--binary build/lockstep] [--only NAME] [--seconds 600] [--kept FILE] [--page docs/simulate.md]

A row takes minutes on two processors, most of them for layouts of many ranks. With --kept rows stay in FILE as long as the program is the same one: a run that --seconds
ended goes on, and --page writes those that are there, in order, and says which are not.
"""
import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path

from marked_page import write_between_marks

ROOT = Path(__file__).resolve().parents[1]
DEVICES = ("h200", "b200")
SIZES = (8, 16, 32, 64, 128, 256, 512, 1024)
BLOCK = 512  # positions: a sequence is cut where each of 2 x cp pieces has one
# (name, model, tokens of a sequence, experts, options)
SHAPES = [
    ("qwen3-8b-128k", "qwen3-8b", 128000, False, []), ("qwen3-vl-8b-65k", "qwen3-8b", 65536, False, []), ("qwen3-32b-65k", "qwen3-32b", 65536, False, []),
    ("qwen3-30b-a3b-128k", "qwen3-30b-a3b", 131072, True, []), ("llama-v3p3-70b-128k", "llama-v3p3-70b", 131072, False, []),
    ("minimax-m2p5-192k", "minimax-m2p5", 196608, True, []), ("qwen3-235b-128k", "qwen3-235b-a22b", 131072, True, []),
    ("kimi-k2p5-256k", "kimi-k2p5", 262144, True, []), ("kimi-k2p5-lora-256k", "kimi-k2p5", 262144, True, ["--adapter-rank", "16"]),
    ("glm-5p2, all weights", "glm-5p2", 131072, True, []), ("glm-5p2-lora", "glm-5p2", 131072, True, ["--adapter-rank", "16"]),
    ("10^12 parameters (kimi-k2p5)", "kimi-k2p5", 1 << 20, True, []),
]  # fmt: skip
# Published shapes whose family does not run here: docs/training-shapes.md has their memory.
LEFT_OUT = ("qwen3p5-397b-a17b-262k", "qwen3p5-35b-a3b-262k", "nemotron-3-super-120b-128k", "nemotron-nano-3-30b-a3b-262k")


def candidates(devices, length, experts):
    """Layouts of one sequence: whole weights or shares of them, split 1 or 8 ways besides; the positions over the rest."""
    for tp, ep in ((1, 1), (8, 1), *([(1, 8)] if experts else [])):
        cp = devices // (tp * ep)
        if cp > 1 and (length + BLOCK - 1) // BLOCK < 2 * cp:
            continue
        split = f"tp={tp},ep={ep},cp={cp}"
        yield split
        if cp > 1:
            yield split + ",shard=weights"


def simulate(options, model, length, device, ranks, more):
    """The layout's entry of --json, or none where it does not fit."""
    command = [options.binary, "simulate", model, "--device", device, "--tokens", str(length), "--length", str(length), "--ranks", ranks, "--checkpoint-activations", "--json", *more]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode == 0:
        return json.loads(done.stdout)["layouts"][0]
    if "does not fit" not in done.stderr:
        raise SystemExit(f"simulated_shapes: {' '.join(command)}: {done.stderr.strip()[-400:]}")
    return None


def row(options, name, model, length, experts, more, device):
    for devices in SIZES:
        fitting = [step for ranks in candidates(devices, length, experts) if (step := simulate(options, model, length, device, ranks, more))]
        if not fitting:
            continue
        step = min(fitting, key=lambda s: s["seconds"]["slow"]["step"])
        fast, slow = step["seconds"]["fast"]["step"], step["seconds"]["slow"]["step"]
        layout = ",".join(part for part in step["ranks"].split(",") if not part.endswith("=1"))
        parts = ("forward", "backward", "optimizer", "exchanges")
        most = max(parts, key=lambda part: step["seconds"]["slow"][part])
        return f"| {name} | {length:,} | {device.upper()} | {devices:,} | `{layout}` | {step['needed_bytes'] / 1e9:.1f} | {fast:.3g} to {slow:.3g} | {length / slow:,.0f} to {length / fast:,.0f} | {most}, {100 * step['seconds']['slow'][most] / slow:.0f}% |"
    return f"| {name} | {length:,} | {device.upper()} | | none of up to 1,024 ranks | | | | |"


HEAD = "| shape | tokens | device | devices | layout | GB a rank | step, s | tokens/s | takes most |\n|---|---|---|---|---|---|---|---|---|"


class Kept:
    """Rows by shape and device, of one program, in a file; none: in memory alone."""

    def __init__(self, options):
        self.file, self.rows = options.kept, {}
        self.made_by = subprocess.run([options.binary, "--version"], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[0]
        if self.file and self.file.is_file() and (found := json.loads(self.file.read_text()))["made_by"] == self.made_by:
            self.rows = found["rows"]

    def keep(self, key, text):
        self.rows[key] = text
        if self.file:
            part = self.file.with_suffix(".partial")
            part.write_text(json.dumps({"made_by": self.made_by, "rows": self.rows}, indent=1) + "\n")
            part.replace(self.file)


def computed(options, kept):
    """Adds the rows that are asked for and not there, until the seconds are over."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        for name, model, length, experts, more in SHAPES:
            config = json.loads((ROOT / f"shapes/configs/{model}.json").read_text())
            config["max_position_embeddings"] = max(config["max_position_embeddings"], length)
            path.write_text(json.dumps(config))
            for device in DEVICES:
                key = f"{name}, {device}"
                if options.only not in name or key in kept.rows:
                    continue
                if time.monotonic() - begun > options.seconds:
                    return print(f"simulated_shapes: {options.seconds:.0f} s are over before {name} on {device}", flush=True)
                kept.keep(key, row(options, name, str(path), length, experts, more, device))
                print(kept.rows[key], flush=True)


def page_text(kept):
    keys = [f"{name}, {device}" for name, *_ in SHAPES for device in DEVICES]
    missing = sorted({key.rsplit(", ", 1)[0] for key in keys if key not in kept.rows})
    lines = [f"Computed, not measured, by `bench/simulated_shapes.py`, {kept.made_by}.", "", HEAD, *(kept.rows[key] for key in keys if key in kept.rows)]
    lines += ["", f"Not computed, since their families do not run here: {', '.join(LEFT_OUT)} ([training shapes](training-shapes.md) has their memory)."]
    if missing:
        lines.append(f"Not computed yet: {'; '.join(missing)}.")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=str(ROOT / "build/lockstep"))
    parser.add_argument("--only", default="", help="shapes with this in their name")
    parser.add_argument("--seconds", type=float, default=600, help="no row is begun after so long")
    parser.add_argument("--kept", type=Path, help="a JSON file that keeps rows")
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    kept = Kept(options)
    computed(options, kept)
    print("\n" + page_text(kept))
    if options.page:
        write_between_marks(options.page, "simulated_shapes", page_text(kept))


if __name__ == "__main__":
    main()
