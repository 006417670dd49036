#!/usr/bin/env python3
"""Measures the gain of training with 4-bit weights: the same reinforcement learning from the shipped model under cpu-bf16w and under cpu-int4-qat,
then held-out problems solved by both with 4-bit weights (the first is rounded afterwards), and by the first as it was trained.

    python3 bench/int4_qat.py --work DIR [--lockstep build/lockstep] [--steps 60] [--seeds 1 2 3] [--n 2000] [--samples 8] [--threads 0] [--json FILE] [--page docs/few-bits.md]

Runs that are there already are not repeated. Intervals are `lockstep eval`'s, 95 % over problems."""
import argparse
import json
import shutil
import subprocess
from pathlib import Path

from marked_page import write_between_marks

ROOT = Path(__file__).resolve().parents[1]
PLAIN, QAT = "cpu-bf16w", "cpu-int4-qat"
GAIN = 0.03  # aimed at


def lockstep(arguments, *words):
    command = [arguments.lockstep, *map(str, words), "--threads", str(arguments.threads)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} exited with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def trained(arguments, profile, seed):
    """The exported folder, and the run's figures of sampler against trainer."""
    name = f"{profile}-{seed}"
    run = arguments.work / "runs" / name
    if not (run / "export").is_dir():
        shutil.rmtree(run, ignore_errors=True)
        lockstep(arguments, "train", "rl", "--config", ROOT / "recipes/countdown_rl.toml", "--model", ROOT / "models/countdown-glm", "--profile", profile,
                 "--steps", arguments.steps, "--seed", seed, "--runs", arguments.work / "runs", "--name", name, "--no-page")  # fmt: skip
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "k1" in line]
    return run / "export", {"steps": len(steps), "different_bits": sum(line["different_bits"] for line in steps), "k3": max(abs(line["k3"]) for line in steps),
                            "reward_first": steps[0]["reward"], "reward_last": steps[-1]["reward"]}  # fmt: skip


def solved(arguments, folder, profile):
    told = json.loads(lockstep(arguments, "eval", "countdown", "--model", folder, "--profile", profile, "--n", arguments.n, "--samples", arguments.samples, "--json"))
    return told["pass_at_1"]


def run_options(description, seeds):
    """The parser of a study that trains by trained(): its options, to which a study adds its own."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--lockstep", default=str(ROOT / "build/lockstep"))
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seeds", type=int, nargs="+", default=seeds)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", type=Path)
    return parser


def parsed(parser):
    """The parsed options; makes the folder of the runs."""
    arguments = parser.parse_args()
    arguments.work = arguments.work.resolve()
    arguments.work.mkdir(parents=True, exist_ok=True)
    return arguments


def made_by(arguments):
    told = subprocess.run([arguments.lockstep, "--version"], capture_output=True, text=True).stdout.splitlines()
    return told[0] if told else "an unknown version"


def page_text(arguments, rows):
    shown = lambda p: f"{p['value']:.3f} [{p['low']:.3f}, {p['high']:.3f}]"  # noqa: E731
    lines = [f"By `bench/int4_qat.py`, {made_by(arguments)}: {arguments.steps} steps, {arguments.n:,} held-out problems, {arguments.samples} samples each; sampled pass@1 with 95% intervals over problems.", "",
             "| seed | trained in bf16, as trained | the same, rounded to int4 | trained in int4 | gained | intervals |", "|---|---|---|---|---|---|"]  # fmt: skip
    met = []
    for row in rows:
        rounded, own = row["bf16_then_rounded"], row["int4_trained"]
        apart, gained = own["low"] > rounded["high"], own["value"] - rounded["value"]
        met.append(apart and gained >= GAIN)
        lines.append(f"| {row['seed']} | {shown(row['bf16'])} | {shown(rounded)} | {shown(own)} | {gained:+.3f} | {'disjoint' if apart else 'not disjoint'} |")
    return "\n".join([*lines, "", f"At least {GAIN} with disjoint intervals: {sum(met)} of {len(met)} seeds, {'met' if all(met) else 'missed'}. Different bits between sampler and trainer: "
                      f"{sum(told['different_bits'] for row in rows for told in row['trained'].values())}."])  # fmt: skip


def main():
    parser = run_options(__doc__, [1, 2, 3])
    parser.add_argument("--n", type=int, default=2000)
    parser.add_argument("--samples", type=int, default=8)
    arguments = parsed(parser)
    rows = []
    for seed in arguments.seeds:
        row = {"seed": seed, "trained": {}}
        folders = {}
        for profile in (PLAIN, QAT):
            folders[profile], row["trained"][profile] = trained(arguments, profile, seed)
        row["bf16"] = solved(arguments, folders[PLAIN], PLAIN)
        row["bf16_then_rounded"] = solved(arguments, folders[PLAIN], QAT)
        row["int4_trained"] = solved(arguments, folders[QAT], QAT)
        rows.append(row)
        print(json.dumps(row), flush=True)
    if arguments.json:
        shipped = {profile: solved(arguments, ROOT / "models/countdown-glm", profile) for profile in (PLAIN, QAT)}
        arguments.json.write_text(json.dumps({"steps": arguments.steps, "problems": arguments.n, "samples": arguments.samples, "shipped": shipped, "rows": rows}, indent=1) + "\n")
    if arguments.page:
        write_between_marks(arguments.page, "int4_qat", page_text(arguments, rows))


if __name__ == "__main__":
    main()
