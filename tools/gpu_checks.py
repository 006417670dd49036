#!/usr/bin/env python3
"""All checks of a GPU in one run: kernels, whole models and training, each compared with the CPU's bits, and the sanitizers.

    tools/gpu_checks.py --programs build --out FOLDER [--models FOLDER] [--only kernels,parity,...] [--seconds 400] [--jobs N]
    tools/gpu_checks.py --list

--programs: the folder of `lockstep`, `test_kernels` and `test_kernels_contracted` (kernels whose GPU code nvcc may contract: the control,
which must fail), built with ./setup --cuda --tests and ninja -C build test_kernels_contracted. --models: a folder of model folders, small ones, each
of which goes through `lockstep parity --device cuda`; models/countdown-glm always does. The checks run one after another, the programs inside a
check side by side. FOLDER gets results.json and a log for each program. The exit status is 1 if anything failed, or if --seconds left no time
for a check, which is then named.
"""
import argparse
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "models/countdown-glm"
SANITIZERS = ("memcheck", "racecheck", "initcheck", "synccheck")


class Check:
    """One program: what it proves, its command, and how to read figures from its output."""

    def __init__(self, name, command, figure=None, environment=None, *, must_fail=False):
        self.name, self.command, self.figure, self.environment = name, [str(part) for part in command], figure, environment or {}
        self.must_fail = must_fail  # a control: exit status 1, since tests failed


def tests_run(text):
    """(tests that passed, tests that failed), from GoogleTest's output"""
    passed, failed = re.search(r"\[  PASSED  \] (\d+) test", text), re.search(r"(\d+) FAILED TEST", text)
    return f"{passed[1] if passed else 0} tests passed, {failed[1] if failed else 0} failed"


def parity_figure(text):
    """A line from the JSON report: comparisons and mismatches, how many ran on the GPU, the control."""
    try:
        report = json.loads(text[text.index("{") :])
    except ValueError:
        return "no report"
    gpu = [place for place in report["places"] if place["place"].startswith("cuda")]
    counts = {kind: sum(place[kind] for place in gpu) for kind in ("training", "serving", "steps")}
    return (f"{report['mismatches']} different of {report['comparisons']} comparisons and {report['steps']} steps; on the GPU "
            f"{counts['training']} training, {counts['serving']} serving, {counts['steps']} steps; control {'found' if report['control']['detected'] else 'NOT found'}")  # fmt: skip


def sanitizer_figure(text):
    found = re.findall(r"(?:ERROR SUMMARY|RACECHECK SUMMARY): .*", text)
    return (found[-1] if found else "no summary") + "; " + tests_run(text)


def weights_hash(text):
    found = re.findall(r"\b[0-9a-f]{64}\b", text)
    return found[-1] if found else "no hash"


def sharded(name, command, jobs, figure):
    return [Check(f"{name}/{n + 1}of{jobs}", command, figure, {"GTEST_TOTAL_SHARDS": str(jobs), "GTEST_SHARD_INDEX": str(n), "LOCKSTEP_GPU_REQUIRED": "1"})
            for n in range(jobs)]  # fmt: skip


def checks(options):
    """Name -> the programs of a check."""
    program, tests = options.programs / "lockstep", options.programs / "test_kernels"
    folders = [MODEL, *sorted(p for p in (options.models.iterdir() if options.models else []) if (p / "config.json").is_file())]

    def parity(folder, *more):
        return Check(f"parity/{folder.name}", [program, "parity", "--model", folder, "--device", "cuda", "--json", *more], parity_figure)

    def train(device, name, *more):
        return Check(f"train/{name}-{device}", [program, "train", *more, "--device", device, "--runs", options.out / f"runs-{device}", "--name", name, "--threads", 4], weights_hash)

    countdown = ["rl", "--config", ROOT / "recipes/countdown_rl.toml", "--set", "steps=6", "--set", "warmup=2", "--set", "checkpoint_every=0"]
    lessons = ["sft", "--config", ROOT / "recipes/countdown_sft.toml", "--set", "steps=12", "--set", "warmup=2", "--set", "index_from=4", "--set", "sparse_from=8",
               "--set", "checkpoint_every=0"]  # fmt: skip
    sanitized = {}
    for tool in SANITIZERS:
        command = [shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer", "--tool", tool, "--error-exitcode", 9, "--print-limit", 5, tests]
        sanitized[tool] = sharded(f"sanitizer/{tool}", command, options.jobs, sanitizer_figure)
    return {
        "device": [Check("device", ["nvidia-smi", "--query-gpu=name,driver_version,memory.total,compute_cap", "--format=csv,noheader"], str.strip)],
        "control": [Check("control/contracted", [f"{tests}_contracted", "--gtest_filter=Elementwise*:RmsNorm*:Rope*"], tests_run, must_fail=True)],
        "kernels": sharded("kernels", [tests], options.jobs, tests_run),
        "parity": [parity(folder, "--fuzz", 4 if folder == MODEL else 1) for folder in folders],
        "train": [train(device, name, *what) for name, what in (("rl", countdown), ("sft", lessons)) for device in ("cpu", "cuda")],
        **sanitized,
    }


def run(check, options, deadline):
    log = options.out / (re.sub(r"[^A-Za-z0-9_.-]", "_", check.name) + ".log")
    begin = time.monotonic()
    row = {"name": check.name, "command": check.command}
    left = deadline - begin
    if left < 5:
        return row | {"status": "not run", "seconds": 0, "figure": "no time was left"}
    with open(log, "w") as out:
        try:
            status = subprocess.run(check.command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, timeout=left,
                                    env=os.environ | check.environment).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            status = "ended after its time"
        except OSError as error:
            status = str(error)
    text = log.read_text(errors="replace")
    figure = check.figure(text) if check.figure else ""
    return row | {"status": "passed" if status == (1 if check.must_fail else 0) else f"failed ({status})", "seconds": round(time.monotonic() - begin, 1), "figure": figure}


def same_hashes(rows):
    """A failure unless a training run's weights on the GPU have the hash of the CPU's."""
    hashes = {row["name"]: row["figure"] for row in rows if row["name"].startswith("train/")}
    for name in sorted({n.rsplit("-", 1)[0] for n in hashes}):
        cpu, gpu = hashes.get(name + "-cpu"), hashes.get(name + "-cuda")
        same = cpu == gpu and cpu and len(cpu) == 64
        yield {"name": name + ": equal weights", "command": [], "status": "passed" if same else "failed", "seconds": 0, "figure": f"{cpu} on the CPU, {gpu} on the GPU"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, default=ROOT / "build")
    parser.add_argument("--models", type=Path)
    parser.add_argument("--out", type=Path, default=Path("gpu-checks"))
    parser.add_argument("--only", default="device,kernels,control,parity,train,memcheck,racecheck,initcheck,synccheck")
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--jobs", type=int, default=max(1, os.cpu_count() or 1))
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    options.programs, options.out = options.programs.resolve(), options.out.resolve()
    known = checks(options)
    if options.list:
        for name, programs in known.items():
            print(f"{name}: {len(programs)} programs, such as {' '.join(programs[0].command)}")
        return 0
    wanted = options.only.split(",")
    if unknown := [name for name in wanted if name not in known]:
        parser.error(f"--only names {', '.join(unknown)}, allowed are {', '.join(known)}")
    options.out.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + options.seconds
    rows = []
    for name in wanted:
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            done = list(pool.map(lambda check: run(check, options, deadline), known[name]))
        rows += done + (list(same_hashes(done)) if name == "train" else [])
        for row in rows[-len(done) - (2 if name == "train" else 0) :]:
            print(f"{row['status']:22} {row['seconds']:7.1f} s  {row['name']:32} {row['figure']}", flush=True)
        (options.out / "results.json").write_text(json.dumps(rows, indent=1) + "\n")
    for device in ("cpu", "cuda"):
        shutil.rmtree(options.out / f"runs-{device}", ignore_errors=True)
    bad = [row for row in rows if row["status"] != "passed"]
    print(f"{len(rows) - len(bad)} passed, {len(bad)} not")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
