#!/usr/bin/env python3
"""What the parts of reinforcement learning cost: a run of `lockstep train rl` beside the same run without the part, in turns.

    bench/learning_costs.py ppo|critic|kept-sets --model FOLDER/fp32 [--threads N] [--rounds 3] [--steps 4] [--json FILE]

ppo        a step's training of PPO with a critic of all weights against GRPO's on the same tokens: Countdown, groups of 8, a learning rate of 0 for the
           policy, so that both sample the same completions in every step (checked). The policy's and the critic's seconds, without sampling
critic     the most memory that a run of an adapter holds with a critic that is an adapter, against the same run without a critic; and that a run of all
           weights holds with a critic of all weights, against what `lockstep plan --critic full --rollouts` says of as many rows
kept-sets  sampling with top-k that tells kept sets against the same without, and a policy's step over them against one over all tokens, by
           build/bench/kept_sets (ninja -C build kept_sets): processor times, which other load changes less than the clock, of at least 15 rounds; beside
           their ratio's median the interval that holds it with 95%

--model: SmolLM2 as tools/make_smollm2.py writes it; ppo and kept-sets measure models/countdown-glm too. Prints medians over rounds and the range of ratios.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GLM = ROOT / "models/countdown-glm"


def binary():
    return os.environ.get("LOCKSTEP_BINARY", str(ROOT / "build/lockstep"))


def run_with_memory(command):
    """Its standard output, and the most bytes that its process held."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=out, stderr=errors, text=True)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0), errors.seek(0)
        if process.returncode:
            sys.exit(f"{Path(sys.argv[0]).stem}: {' '.join(map(str, command[1:]))}: {errors.read()[-2000:].strip()}")
        return out.read(), usage.ru_maxrss * 1024


def trained(kind, model, *words, threads, profile="cpu-f32"):
    """The metrics of a run's steps, what it printed, and the most bytes that it held."""
    with tempfile.TemporaryDirectory() as runs:
        command = [binary(), "train", *kind.split(), "--model", model, "--profile", profile, "--threads", threads, "--runs", runs, "--name", "run", "--no-page", "--json", *words]
        said, peak = run_with_memory(command)
        steps = [json.loads(line) for line in (Path(runs) / "run/metrics.jsonl").read_text().splitlines()]
    return steps, json.loads(said.splitlines()[-1]), peak


def ratio_of(pairs):
    ratios = [a / b for a, b in pairs]
    return {"ratio": statistics.median(ratios), "ratio_range": [min(ratios), max(ratios)]}


def in_turns(rounds, first, second):
    """What both give, a pair a round; the order changes with each round."""
    pairs = []
    for turn in range(rounds):
        pairs.append((first(), second()) if turn % 2 == 0 else (second(), first())[::-1])
    return pairs


def ppo(options):
    cases = [("countdown-glm", GLM, 32, 16, "cpu-bf16w")] + ([("SmolLM2", options.model, 4, 24, "cpu-f32")] if options.model else [])
    for name, model, problems, tokens, profile in cases:
        words = ["--environment", "countdown", "--problems", problems, "--rollouts", 8, "--max-tokens", tokens, "--steps", options.steps, "--learning-rate", 0, "--transcripts", 0]
        run = lambda algorithm: trained("rl", model, "--algorithm", algorithm, *words, threads=options.threads, profile=profile)[0][1:]  # noqa: E731  the first step fills caches
        pairs = in_turns(options.rounds, lambda: run("ppo"), lambda: run("grpo"))
        for critic, plain in pairs:
            if [step["tokens"] for step in critic] != [step["tokens"] for step in plain]:
                sys.exit("learning_costs: PPO and GRPO trained on other tokens")
        policy, values = ([statistics.median(step[key] for step in critic) for critic, _ in pairs] for key in ("train_seconds", "critic_seconds"))
        group = [statistics.median(step["train_seconds"] for step in plain) for _, plain in pairs]
        yield {"case": f"{name}, {8 * problems} completions", "tokens": statistics.median(step["tokens"] for step in pairs[0][1]), "policy": statistics.median(policy),
               "critic": statistics.median(values), "grpo": statistics.median(group), **ratio_of([(p + v, g) for p, v, g in zip(policy, values, group)])}  # fmt: skip


def critic(options):
    problems, rollouts = 4, 8
    words = ["--environment", "countdown", "--problems", problems, "--rollouts", rollouts, "--max-tokens", 24, "--steps", 2, "--learning-rate", 0, "--transcripts", 0]
    rank = ["--adapter-rank", 8]
    peak = lambda *more: trained("rl", options.model, *words, *more, threads=options.threads)[2]  # noqa: E731
    pairs = in_turns(options.rounds, lambda: peak(*rank, "--algorithm", "ppo", "--critic", "adapter"), lambda: peak(*rank, "--algorithm", "reinforce_plus_plus"))
    yield {"case": "an adapter of rank 8 of SmolLM2 and a critic that is one", "what": "beside", "bytes": statistics.median(a for a, _ in pairs), "against": "the same run without a critic",
           "against_bytes": statistics.median(b for _, b in pairs), **ratio_of(pairs)}  # fmt: skip
    # Without shared prompts, so that the rows of a step are those that the plan is of.
    runs = [trained("rl", options.model, *words, "--algorithm", "ppo", "--critic", "full", "--share-prompts", "off", threads=options.threads) for _ in range(options.rounds)]
    length = math.ceil(max(step["rows"] for steps, _, _ in runs for step in steps) / (problems * rollouts))
    planned = plan(options.model, "--sequences", problems * rollouts, "--length", length, "--critic", "full", "--rollouts", problems * rollouts, threads=options.threads)["verdict"]["needed_bytes"]
    peaks = [most for _, _, most in runs]
    yield {"case": "all weights of SmolLM2 and a critic of all weights", "what": "planned", "bytes": statistics.median(peaks),
           "against": f"what `lockstep plan --critic full --rollouts {problems * rollouts}` needs for sequences of {length} tokens, the program with it", "against_bytes": planned,
           **ratio_of([(most, planned) for most in peaks])}  # fmt: skip


def plan(model, *words, threads):
    """What `lockstep plan` says of training in fp32."""
    command = [binary(), "plan", "--model", model, "--profile", "cpu-f32", "--threads", threads, "--memory-megabytes", 1 << 24, "--json", *words]  # room enough: it is not asked whether it fits
    return json.loads(run_with_memory(command)[0])


def planned_bytes(model, *words, threads):
    """By category the most that training holds."""
    return plan(model, *words, threads=threads)["bytes"]


LEAST_ROUNDS = 15  # of kept sets


def median_interval(values):
    """Where the median of what the values are drawn from lies with at least 95%, whatever their distribution: between two of them."""
    values, n = sorted(values), len(values)
    cut = 0  # so many of each end may be left out: fewer than that below the median are as rare as 2.5%
    while 2 * sum(math.comb(n, k) for k in range(cut + 1)) <= 0.05 * 2**n:
        cut += 1
    return [values[max(cut - 1, 0)], values[n - max(cut, 1)]]


def kept_sets(options):
    for name, model, profile in [("countdown-glm", GLM, "cpu-bf16w")] + ([("SmolLM2", options.model, "cpu-f32")] if options.model else []):
        command = [ROOT / "build/bench/kept_sets", model, "--profile", profile, "--threads", options.threads, "--rounds", max(LEAST_ROUNDS, 2 * options.rounds + 1), "--prompts", 2 if name == "SmolLM2" else 32]
        for line in run_with_memory(command)[0].splitlines():
            row = json.loads(line)
            ratios = [a / b for a, b in zip(row["with_processor"], row["without_processor"], strict=True)]
            yield {"case": f"{name}, {row['what']}", "rounds": len(ratios), "first": statistics.median(row["without_processor"]), "second": statistics.median(row["with_processor"]),
                   "ratio": statistics.median(ratios), "ratio_range": median_interval(ratios), "least_ratio": min(row["with_processor"]) / min(row["without_processor"]),
                   "clock_ratio": row["ratio"]}  # fmt: skip


KINDS = {"ppo": ppo, "critic": critic, "kept-sets": kept_sets}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.kind == "critic" and not options.model:
        parser.error("critic needs --model")
    if options.steps < 2:
        parser.error("--steps is less than 2, and the first is not counted")
    rows = []
    for row in KINDS[options.kind](options):
        rows.append(row)
        print(f"{row['case']:60} {row['ratio']:7.3f} ({row['ratio_range'][0]:.3f} .. {row['ratio_range'][1]:.3f})", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"threads": options.threads, "rounds": options.rounds, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
