#!/usr/bin/env python3
"""Measures training steps over ranks: `lockstep train sft` over two threads of one rank, two ranks as threads and two ranks as processes, a thread each,
in turns. Tokens per second of its metrics, without the first step; each layout's over those of one rank in the same round, and where the time of its ranks went. All runs
of a case must end with the same weights.

    bench/rank_steps.py --model FOLDER [--cases dp,pp,ep] [--tokens 256] [--steps 4] [--rounds 3] [--json FILE]
    bench/rank_steps.py --model FOLDER --cases cp                                           # one sequence of 8,192 tokens, segments computed again: a step takes a minute or more
    bench/rank_steps.py --model FOLDER --sent --sequences 2 --tokens 64 --steps 1     # what a step over dp=2 sends, of process 0's rank: a line of docs/ranks.md
    bench/rank_steps.py --model FOLDER --saving --profile cpu-bf16w                         # how long dp=2 stands still for a checkpoint every second step

Stages of a pipeline (pp=2) take 8 micro-batches of one sequence, so does the one rank beside them: their ideal is 8 / 9 of its speed. Experts (ep=2, with shared rows
and with rows of each rank's own) are of a random model of 16 of them, which bench/made_models.py makes (that case needs numpy and safetensors). SmolLM2 at 60 tokens a second,
as two cores with AVX2 have: a round of dp, pp and ep takes 18 minutes, one of cp as many.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET, OF_IDEAL, OF_THREADS, OF_EXPERTS = 0.85, 0.9, 0.95, 0.8
MICRO_BATCHES = 8
ACCUMULATOR_BYTES = 24


@dataclass(frozen=True)
class Case:
    sequences: int  # a step
    micro_batch: int
    layouts: tuple  # one rank comes first
    tokens: int = 0  # a sequence; 0: --tokens
    steps: int = 0  # 0: --steps
    experts: bool = False
    more: tuple = ()


CASES = {
    "dp": Case(4, 0, ("", "dp=2", "tp=2")),
    "pp": Case(MICRO_BATCHES, 1, ("", "pp=2")),
    "ep": Case(4, 0, ("", "ep=2", "ep=2,rows=dealt"), experts=True),
    "cp": Case(1, 0, ("", "cp=2"), tokens=8192, steps=1, more=("--checkpoint-activations",)),
}


def binary():
    return os.environ.get("LOCKSTEP_BINARY", str(ROOT / "build/lockstep"))


def vocabulary(model):
    return json.loads((Path(model) / "config.json").read_text())["vocab_size"]


def write_texts(path, model, sequences, tokens):
    draw, most = random.Random(1), vocabulary(model)
    lines = [json.dumps({"tokens": [draw.randrange(most) for _ in range(tokens)], "weights": [1] * (tokens - 1)}) for _ in range(sequences)]
    path.write_text("\n".join(lines) + "\n")


MPIRUN = ("mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2")


def run(options, data, folder, batch, micro_batch, ranks, transport, every=0, model=None, steps=0, more=(), mpirun=MPIRUN):
    """The lines of metrics of the steps after the first, and the weights at the end."""
    command = [binary(), "train", "sft", "--model", str(model or options.model), "--profile", options.profile, "--data", str(data), "--eval-share", "0", "--batch", str(batch),
               "--micro-batch", str(micro_batch), "--steps", str((steps or options.steps) + 1), "--learning-rate", "1e-6", "--warmup", "0", "--threads", "2", "--checkpoint-every", str(every),
               "--runs", str(folder), "--name", "r", "--no-page", "--quiet", "--json", *(["--ranks", ranks] if ranks else []), *more]  # fmt: skip
    if transport == "mpi":
        command = [*mpirun, *command, "--transport", "mpi"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"rank_steps: {' '.join(command)}: {done.stderr.strip()[-500:]}")
    steps = [json.loads(line) for line in (folder / "r" / "metrics.jsonl").read_text().splitlines()][1:]  # the first one warms up
    return steps, json.loads(done.stdout)["weights_sha256"]


def parts_of(steps):
    """Of the time of all ranks, over these steps: computed, waited for others and for what travels, and spent on packing and copying it."""
    sums = [sum(rank[f"{part}_seconds"] for step in steps for rank in step.get("ranks_each", [])) for part in ("computed", "waited", "sent")]
    return [one / sum(sums) for one in sums] if sum(sums) else None


def sent(options, data):
    """Bytes that accumulators take on the way, of dp=2 over two processes; as in memory they are 24 a weight. The weights are those of one rank."""
    found, hashes = None, set()
    for ranks, transport in (("dp=2", "mpi"), ("", "threads")):
        with tempfile.TemporaryDirectory() as folder:
            steps, weights = run(options, data, Path(folder), options.sequences, 0, ranks, transport)
        hashes.add(weights)
        found = found or [exchange for exchange in steps[-1]["ranks_exchanges"] if exchange["operation"] == "reduce_scatter"]
    if len(hashes) != 1:
        raise SystemExit(f"rank_steps: the runs ended with different weights: {sorted(hashes)}")
    memory, wire = sum(e["bytes"] for e in found), sum(e["sent_bytes"] for e in found)
    print(f"| {Path(options.model).name} | {options.profile} | {options.sequences} x {options.tokens} | {memory:,} | {wire:,} | {ACCUMULATOR_BYTES * wire / memory:.2f} |")


def saving(options, data):
    """What a step that follows a save stands still for it, and how much slower it computes while its ranks write; beside the same run without saves."""
    seconds = lambda step: step["tokens"] / step["tokens_per_second"]  # noqa: E731
    for transport in ("threads", "mpi"):
        found, hashes = {}, set()
        for every in (0, 2):
            with tempfile.TemporaryDirectory(dir=options.folder) as folder:
                found[every], weights = run(options, data, Path(folder), options.sequences, 0, "dp=2", transport, every)
            hashes.add(weights)
        if len(hashes) != 1:
            raise SystemExit(f"rank_steps: the runs ended with different weights: {sorted(hashes)}")
        step = statistics.median(map(seconds, found[0]))
        after = [one for one in found[2] if one["ranks_saving_seconds"] > 0]
        still, computed = (statistics.median(map(of, after)) for of in (lambda one: one["ranks_saving_seconds"], lambda one: seconds(one) - one["ranks_saving_seconds"]))
        print(f"{Path(options.model).name}, {options.profile}, {options.sequences} x {options.tokens}, dp=2, {transport}: a step takes {step:.2f} s, stands still for {still:.3f} s after a save "
              f"({100 * still / step:.1f} %), and computes {computed:.2f} s while it writes", flush=True)  # fmt: skip


def experts_in(work):
    import made_models

    return made_models.TRAINED["qwen3_moe"](work / "experts")


def measured(options, case, work):
    """The rows of a case: one rank, and each layout as threads and as processes."""
    model, tokens, steps = experts_in(work) if case.experts else options.model, case.tokens or options.tokens, case.steps or options.steps
    data = work / "texts.jsonl"
    write_texts(data, model, case.sequences * (steps + 1), tokens)
    ways = [(ranks, transport) for ranks in case.layouts for transport in (("threads",) if not ranks else ("threads", "mpi"))]
    found, parts, hashes = {}, {}, set()
    for number in range(options.rounds):
        for turn in range(len(ways)):
            way = ways[(turn + number) % len(ways)]
            with tempfile.TemporaryDirectory() as folder:
                done, weights = run(options, data, Path(folder), case.sequences, case.micro_batch, *way, model=model, steps=steps, more=case.more)
            found.setdefault(way, []).append(statistics.median(step["tokens_per_second"] for step in done))
            parts.setdefault(way, []).append(parts_of(done))
            hashes.add(weights)
    if len(hashes) != 1:
        raise SystemExit(f"rank_steps: the runs ended with different weights: {sorted(hashes)}")
    rows, one = [], found[ways[0]]
    for way in ways:
        ratios = [speed / base for speed, base in zip(found[way], one)]
        ideal = MICRO_BATCHES / (MICRO_BATCHES + 1) if way[0] == "pp=2" else 1
        over_threads = [speed / base for speed, base in zip(found[way], found[way[0], "threads"])]
        shares = [statistics.median(column) for column in zip(*parts[way])] if way[0] else None
        rows.append({"sequences": case.sequences, "tokens": tokens, "micro_batch": case.micro_batch, "ranks": way[0], "transport": way[1], "tokens_per_second": statistics.median(found[way]),
                     "ratio": statistics.median(ratios), "ratio_range": [min(ratios), max(ratios)], "ideal": ideal, "over_threads": statistics.median(over_threads), "parts": shares})  # fmt: skip
        spent = "" if not shares else ", computed {:.2f}, waited {:.2f}, copied {:.2f}".format(*shares)
        print(f"{case.sequences} x {tokens}, micro-batch {case.micro_batch}, {way[0] or 'one rank'}, {way[1]}: {rows[-1]['tokens_per_second']:.0f} tokens/s, {rows[-1]['ratio']:.2f} of one rank "
              f"({min(ratios):.2f} to {max(ratios):.2f}), of threads {rows[-1]['over_threads']:.2f}{spent}", flush=True)  # fmt: skip
    return rows


def named_cases(text):
    names = text.split(",")
    if unknown := set(names) - set(CASES):
        raise argparse.ArgumentTypeError(f"there is no case {', '.join(sorted(unknown))}, allowed are {', '.join(CASES)}")
    return names


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--profile", default="cpu-f32")
    parser.add_argument("--cases", type=named_cases, default=["dp", "pp", "ep"])
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2, choices=[2], help="of all ranks together")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--sent", action="store_true", help="only what a step over dp=2 sends")
    parser.add_argument("--saving", action="store_true", help="only what saving costs")
    parser.add_argument("--folder", type=Path, help="with --saving: where checkpoints are written, instead of the system's temporary folder")
    parser.add_argument("--sequences", type=int, default=4, help="of a step, with --sent and --saving")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        if options.sent or options.saving:
            write_texts(work / "texts.jsonl", options.model, MICRO_BATCHES * (options.steps + 1), options.tokens)
            return (sent if options.sent else saving)(options, work / "texts.jsonl")
        rows = [row for name in options.cases for row in measured(options, CASES[name], work)]
    if options.json:
        options.json.write_text(json.dumps({"tokens": options.tokens, "steps": options.steps, "rounds": options.rounds, "profile": options.profile,
                                            "targets": {"of_one": TARGET, "of_ideal": OF_IDEAL, "of_threads": OF_THREADS, "of_experts": OF_EXPERTS}, "table": rows}, indent=1) + "\n")  # fmt: skip


if __name__ == "__main__":
    main()
