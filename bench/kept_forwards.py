#!/usr/bin/env python3
"""Measures what kept forwards save in reinforcement learning (docs/kept-forwards.md): `lockstep train rl` with --keep-forward off, inputs and all, in
turns, with activations in memory and checkpointed. Seconds of a step, of sampling and of training; the step's time over that of `off` in the same
round; memory of a kept row. Rewards fall with a text's length (--overlong-tokens), so that there is a gradient. Every run must end with the same weights, and in every step computed rows and kept rows together must be all rows.

    bench/kept_forwards.py --model models/countdown-glm [--problems 4] [--rollouts 8] [--max-tokens 128] [--steps 4] [--rounds 7] [--ranks dp=2] [--json FILE]
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = 1.18
MODES = ("off", "inputs", "all")


def run(options, mode, checkpointed, folder):
    command = [os.environ.get("LOCKSTEP_BINARY", str(ROOT / "build/lockstep")), "train", "rl", "--model", options.model, "--environment", options.environment, "--profile", options.profile, "--threads", str(options.threads),
               "--problems", str(options.problems), "--rollouts", str(options.rollouts), "--max-tokens", str(options.max_tokens), "--steps", str(options.steps),
               "--learning-rate", "1e-6", "--overlong-tokens", str(options.max_tokens // 2), "--warmup", "0", "--checkpoint-every", "0", "--runs", str(folder), "--name", "r", "--no-page", "--quiet", "--json", "--keep-forward", mode]
    if mode != "off":
        command += ["--keep-forward-megabytes", str(options.megabytes)]
    if checkpointed:
        command.append("--checkpoint-activations")
    if options.ranks:
        command += ["--ranks", options.ranks]
    summary = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    steps = [json.loads(line) for line in (folder / "r" / "metrics.jsonl").read_text().splitlines()][1:]  # the first one warms up
    if not any(step["gradient_norm"] > 0 for step in steps):  # then any gradient would give these weights
        raise SystemExit(f"no step of {mode} had a gradient: all rewards of a group were equal")
    means = {key: statistics.mean(step[key] for step in steps) for key in ("rollout_seconds", "train_seconds")}
    rows = {key: sum(step.get(key, 0) for step in steps) for key in ("rows_sampled", "rows_asked", "rows_computed", "rows_kept", "rows_recomputed", "kept_rows_dropped")}
    if rows["rows_computed"] + rows["rows_kept"] != rows["rows_asked"]:
        raise SystemExit(f"rows were made that nobody asked for, or not made: {rows}")
    most = max((step.get("kept_bytes", 0) for step in steps), default=0)
    rows["answer_tokens"] = statistics.mean(step["tokens"] for step in steps) / (options.problems * options.rollouts)
    texts = max((step.get("rows_sampled", 0) for step in steps), default=0)  # rows of one step's texts: what its pages have
    return {**means, **rows, "kept_bytes": most, "kept_bytes_a_row": most / texts if texts else 0.0, "weights": summary["weights_sha256"], "step_seconds": sum(means.values())}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--environment", default="countdown")
    parser.add_argument("--profile", default="cpu-f32")
    parser.add_argument("--ranks", default="")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=7)
    for name, value in (("problems", 4), ("rollouts", 8), ("max-tokens", 128), ("steps", 4), ("megabytes", 8192)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    if options.steps < 2:
        parser.error("--steps is below 2, and the first one warms up")
    found = {}
    for number in range(options.rounds):
        for checkpointed in (False, True):
            for turn in range(len(MODES)):
                mode = MODES[(turn + number) % len(MODES)]
                with tempfile.TemporaryDirectory() as folder:
                    found.setdefault((checkpointed, mode), []).append(run(options, mode, checkpointed, Path(folder)))
    weights = {one["weights"] for runs in found.values() for one in runs}
    if len(weights) != 1:
        raise SystemExit(f"the runs ended with different weights: {sorted(weights)}")
    table = []
    for (checkpointed, mode), runs in found.items():
        ratios = [base["step_seconds"] / one["step_seconds"] for base, one in zip(found[checkpointed, "off"], runs)]
        middle = {key: statistics.median(one[key] for one in runs) for key in ("step_seconds", "rollout_seconds", "train_seconds")}
        table.append({"checkpointed": checkpointed, "mode": mode, **middle, "ratio": statistics.median(ratios), "ratio_low": min(ratios), "ratio_high": max(ratios),
                      **{key: runs[0][key] for key in runs[0] if key.startswith("rows_") or key.startswith("kept_") or key == "answer_tokens"}})
        one = table[-1]
        print(f"{'checkpointed' if checkpointed else 'in memory':12} {mode:7} step {one['step_seconds']:7.3f} s (sampling {one['rollout_seconds']:.3f}, training "
              f"{one['train_seconds']:.3f}); {one['ratio']:.2f} ({one['ratio_low']:.2f} to {one['ratio_high']:.2f}) of off; rows computed {one['rows_computed']}, kept "
              f"{one['rows_kept']}, recomputed {one['rows_recomputed']}, dropped {one['kept_rows_dropped']}; {one['kept_bytes'] / 1e6:.1f} MB, "
              f"{one['kept_bytes_a_row'] / 1e3:.1f} KB a row", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"options": {key: str(value) for key, value in vars(options).items()}, "target": TARGET, "table": table}, indent=1) + "\n")


if __name__ == "__main__":
    main()
