#!/usr/bin/env python3
"""What a token of a kept forward takes in memory (docs/kept-forwards.md), of each model that the program ships or has the dimensions of: `lockstep plan
--keep-forward` says it, which computes nothing.

    bench/kept_memory.py [--page docs/kept-forwards.md]
"""
import json
import os
import subprocess
import sys
from pathlib import Path

from marked_page import page_command

ROOT = Path(__file__).resolve().parents[1]
PROFILE = "cpu-bf16w"


def names():
    """The shipped models' folders, then the configs of the catalog, by name."""
    return [*sorted(f"models/{folder.name}" for folder in (ROOT / "models").iterdir() if (folder / "config.json").is_file()),
            *sorted(f"shapes/configs/{config.name}" for config in (ROOT / "shapes/configs").glob("*.json") if not (ROOT / "models" / config.stem).is_dir())]  # fmt: skip


def plan(name, mode):
    command = [os.environ.get("LOCKSTEP_BINARY", str(ROOT / "build/lockstep")), "plan", "--model", str(ROOT / name), "--profile", PROFILE, "--sequences", "1", "--length", "16", "--keep-forward", mode,
               "--memory-megabytes", str(1 << 30), "--json"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 3):  # 3: it does not fit, which nobody asked
        print(f"kept_memory: {name} is left out: {done.stderr.strip()}", file=sys.stderr)
        return None
    return json.loads(done.stdout)


def table(found):
    """Of (name, parameters, bytes of `inputs`, bytes of `all`)."""
    lines = ["| model | parameters, millions | `inputs`, KB | `all`, KB |", "|---|---|---|---|"]
    for name, parameters, inputs, everything in found:
        lines.append(f"| {Path(name).stem} | {parameters / 1e6:,.1f} | {inputs / 1e3:,.1f} | {everything / 1e3:,.1f} |")
    return lines


def text():
    found = []
    for name in names():
        inputs, everything = plan(name, "inputs"), plan(name, "all")
        if inputs and everything:
            found.append((name, inputs["parameters"], inputs["kept_row_bytes"], everything["kept_row_bytes"]))
    return "\n".join(table(found))


if __name__ == "__main__":
    page_command(__doc__, "bench/kept_memory.py", text)
