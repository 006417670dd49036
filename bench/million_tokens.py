#!/usr/bin/env python3
"""A training step of one long text, up to 1,048,576 tokens: time, memory beside `lockstep plan`, and the hash of the weights behind it, on one rank and in pieces over eight.

    bench/million_tokens.py --work FOLDER [--tokens 4096,16384,65536,262144,1048576] [--layouts one,threads,processes] [--threads 2] [--json FILE] [--page docs/long-context.md]

`lockstep train sft` takes a single step of Muon, which depends on every bit of a gradient, on a text of random words, with activations computed again layer by layer. The model,
by tools/make_recall_folder.py: 4 layers, hidden size 64, 64 keys a row, one indexer of 4 heads x 32 for all layers, which learns; 8 experts, 2 a token.
Layouts: `one` rank; `threads`: --ranks cp=8 as threads of one process; `processes`: the same over 8 processes of Open MPI. A text that is too short to be cut (under 8,192
tokens) has one rank alone. What is measured stays in FOLDER/million-tokens.json, cell by cell, as long as the program is the same: a run that was stopped goes on. Ends with
status 1 where layouts of one length end with different weights, loss, gradient norm or index loss.
1,048,576 tokens take about 20 minutes a layout on two processors, and 10 GB. Needs no package.
"""

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "bench")]

import make_recall_folder  # noqa: E402
from marked_page import write_between_marks  # noqa: E402
from write_performance import binary, machine, version  # noqa: E402

MARKS = "million_tokens"
LONGEST = 1 << 20
LAYERS, PIECE_RANKS, BLOCK = 4, 8, 512
MODEL = {"num_hidden_layers": LAYERS, "indexer_types": ["full"] + ["shared"] * (LAYERS - 1), "mlp_layer_types": ["dense"] + ["sparse"] * (LAYERS - 1), "max_position_embeddings": 2 * LONGEST}
PROFILE = "cpu-bf16w"
RANKS = {"one": "", "threads": f"cp={PIECE_RANKS}", "processes": f"cp={PIECE_RANKS}"}
SHOWN = {"one": "one rank", "threads": f"cp={PIECE_RANKS}, threads", "processes": f"cp={PIECE_RANKS}, {PIECE_RANKS} processes"}
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
       "OMPI_MCA_plm": "isolated", "TMPDIR": "/tmp"}  # fmt: skip
# Bars: bytes a token, minutes, and how far a plan may be off; of cp=8 a rank's part of one rank's plan, minutes of two processors, and gigabytes of all processes together.
MOST_BYTES, MOST_MINUTES, PLAN_OFF = 10_000, 60, 0.10
PART_OF_ONE, MINUTES_IN_PIECES, GIGABYTES_OF_ALL = 0.16, 30, 16
INDEXER = ("index_select",)  # the operation that scores and selects


def is_cut(tokens, ranks):
    return (tokens + BLOCK - 1) // BLOCK >= 2 * ranks


def made_model(work):
    folder = work / "model"
    if not (folder / "model.safetensors").is_file():
        make_recall_folder.make(folder, **MODEL)
    return folder


def made_text(work, model, tokens):
    """A file with one text of so many rows: the last token is only predicted."""
    path = work / f"text-{tokens}.jsonl"
    if not path.is_file():
        draw, words = random.Random(7), json.loads((model / "config.json").read_text())["vocab_size"]
        path.write_text(json.dumps({"tokens": [draw.randrange(words) for _ in range(tokens + 1)]}) + "\n")
    return path


def no_limits(work, threads):
    """For --profile-operations, whose shares of the machine's limits nobody reads here: measuring them would take more memory than a short text does."""
    path = work / "limits.json"
    path.write_text(json.dumps({"kind": "roofline", "points": [{"threads": threads, "gigaflops": 1, "gigabytes_per_second": 1}]}))
    return path


def resident(pid):
    """Most bytes that the process had in memory so far; 0 when it is gone."""
    with contextlib.suppress(OSError):
        if found := re.search(r"^VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.M):
            return int(found[1]) << 10
    return 0


def processes_of(parent):
    """The processes that mpirun started, by their number."""
    pids = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            if int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1]) != parent:
                continue
            for word in (entry / "environ").read_bytes().split(b"\0"):
                if word.startswith(b"OMPI_COMM_WORLD_RANK="):
                    pids[int(word.split(b"=")[1])] = int(entry.name)
    return pids


def watched(command, over, log):
    """Runs the command to its end, with what it says in the files log.out and log.err; most bytes of each of its processes."""
    peaks, pids = {}, {}
    environment = {**os.environ, **(MPI if over > 1 else {})}
    with log.with_suffix(".out").open("w") as out, log.with_suffix(".err").open("w") as err:
        process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment)
        try:
            while process.poll() is None:
                if over == 1:
                    pids = {0: process.pid}
                elif len(pids) < over:
                    pids = processes_of(process.pid)
                for rank, pid in pids.items():
                    peaks[rank] = max(peaks.get(rank, 0), resident(pid))
                time.sleep(0.05)
        except BaseException:
            process.terminate()
            process.wait()
            raise
    if process.returncode:
        raise SystemExit(f"million_tokens: {' '.join(map(str, command))}: {log.with_suffix('.err').read_text().strip()[-800:]}")
    return [peaks[rank] for rank in sorted(peaks)]


def operation_seconds(text):
    """Seconds of each operation, of the table that --profile-operations prints."""
    return {found[1]: float(found[2]) for found in re.finditer(r"^(\w+) +\d+ +(\d+\.\d+) +\d+\.\d%", text, re.M)}


def planned(model, tokens, ranks):
    """Bytes of each rank, and what is needed with the program."""
    words = [binary(), "plan", "--model", model, "--profile", PROFILE, "--for", "train", "--sequences", 1, "--length", tokens, "--context", tokens + 1, "--checkpoint-activations",
             "--train-indexer", "--memory-megabytes", 1 << 20, "--json", *(["--ranks", ranks] if ranks else [])]  # fmt: skip
    told = json.loads(subprocess.run([str(word) for word in words], check=True, stdout=subprocess.PIPE, text=True).stdout)
    return told["rank_total_bytes"], told["verdict"]["needed_bytes"]


def measured(options, model, layout, tokens):
    ranks, over = RANKS[layout], PIECE_RANKS if layout == "processes" else 1
    plan, needed = planned(model, tokens, ranks)
    runs, name = options.work / "runs", f"{layout}-{tokens}"
    shutil.rmtree(runs / name, ignore_errors=True)
    command = [binary(), "train", "sft", "--model", model, "--profile", PROFILE, "--data", made_text(options.work, model, tokens), "--eval-share", 0, "--steps", 1, "--batch", 1,
               "--optimizer", "dimuon", "--learning-rate", 0.1, "--warmup", 0, "--context", tokens + 1, "--checkpoint-activations", "--transcripts", 0, "--checkpoint-every", 0,
               "--threads", options.threads, "--runs", runs, "--name", name, "--no-page", "--quiet", "--json", *(["--ranks", ranks] if ranks else [])]  # fmt: skip
    if layout == "one":
        command += ["--profile-operations", "--roofline", no_limits(options.work, options.threads)]
    if over > 1:
        command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", over, *command, "--transport", "mpi"]
    log = options.work / name
    peaks = watched(command, over, log)
    line = [json.loads(text) for text in (runs / name / "metrics.jsonl").read_text().splitlines()][-1]
    seconds, by = line["tokens"] / line["tokens_per_second"], operation_seconds(log.with_suffix(".err").read_text())
    shutil.rmtree(runs / name)
    return {"tokens": line["tokens"], "layout": layout, "seconds": seconds, "indexer_seconds": sum(by[name] for name in INDEXER) if by else None, "operations": by, "peak_bytes": peaks,
            "plan_bytes": plan, "needed_bytes": needed, "weights_sha256": json.loads(log.with_suffix(".out").read_text().splitlines()[-1])["weights_sha256"],
            **{key: line[key] for key in ("loss", "index_loss", "gradient_norm")}}  # fmt: skip


class Cells:
    """What is measured, in a file: of one program with so many threads."""

    def __init__(self, options):
        self.file, self.made_by, self.cells = options.work / "million-tokens.json", [version().splitlines()[0], options.threads], {}
        if self.file.is_file() and (kept := json.loads(self.file.read_text()))["made_by"] == self.made_by:
            self.cells = kept["cells"]

    def measure(self, key, f):
        if key in self.cells:
            return
        self.cells[key] = f()
        part = self.file.with_suffix(".partial")
        part.write_text(json.dumps({"made_by": self.made_by, "cells": self.cells}) + "\n")
        os.replace(part, self.file)


def told(row):
    return (f"{row['tokens']:,} tokens, {SHOWN[row['layout']]}: {row['seconds']:.1f} s, {sum(row['peak_bytes']) / 1e6:,.0f} MB ({sum(row['plan_bytes']) / 1e6:,.0f} planned), "
            f"{row['weights_sha256'][:12]}")  # fmt: skip


def differing(rows):
    """Of the same text in several layouts: what is not the same."""
    wrong = []
    for tokens in sorted({row["tokens"] for row in rows}):
        for key in ("weights_sha256", "loss", "index_loss", "gradient_norm"):
            found = {row["layout"]: row[key] for row in rows if row["tokens"] == tokens}
            if len(set(found.values())) > 1:
                wrong.append(f"{tokens} tokens: {key} is {found}")
    return wrong


def table(rows):
    lines = ["| tokens | layout | a step | a token, µs | its scores and selection | its rest | most memory, MB | bytes a token | over the plan |", "|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        n, all_bytes = row["tokens"], sum(row["peak_bytes"])
        scores = row["indexer_seconds"]
        parts = ("", "") if scores is None else (f"{1e6 * scores / n:,.1f}", f"{1e6 * (row['seconds'] - scores) / n:,.1f}")
        lines.append(f"| {n:,} | {SHOWN[row['layout']]} | {row['seconds']:,.1f} s | {1e6 * row['seconds'] / n:,.1f} | {parts[0]} | {parts[1]} | {all_bytes / 1e6:,.0f} | {all_bytes / n:,.0f} | "
                     f"{all_bytes / sum(row['plan_bytes']):.2f} |")  # fmt: skip
    return lines


def bars(rows):
    """Sentences on the longest text: what was aimed at, and what was measured."""
    longest = max(row["tokens"] for row in rows)
    at = {row["layout"]: row for row in rows if row["tokens"] == longest}
    lines = []
    if one := at.get("one"):
        peak, plan = sum(one["peak_bytes"]), sum(one["plan_bytes"])
        lines.append(f"- {longest:,} tokens on one rank: {one['seconds'] / 60:.1f} minutes (aim: {MOST_MINUTES} at 1,048,576), {peak / longest:,.0f} bytes a token (aim: {MOST_BYTES:,}), "
                     f"{peak / plan:.2f} of the plan (aim: within {PLAN_OFF:.0%}).")  # fmt: skip
        rest = {row["tokens"]: (row["seconds"] - row["indexer_seconds"]) / row["tokens"] for row in rows if row["layout"] == "one"}
        if longest > 65536 and 65536 in rest:
            lines.append(f"- A token without scores and selection: {rest[longest] / rest[65536]:.2f} of its time at 65,536 tokens (aim: within 15 %).")
        for layout in ("threads", "processes"):
            if other := at.get(layout):
                lines.append(f"- A rank of cp={PIECE_RANKS} has {max(other['plan_bytes']) / plan:.3f} of one rank's plan (aim: {PART_OF_ONE} at 1,048,576). {SHOWN[layout]}: "
                             f"{other['seconds'] / 60:.1f} minutes (aim: {MINUTES_IN_PIECES} of two processors), {sum(other['peak_bytes']) / 1e9:.1f} GB in all (aim: {GIGABYTES_OF_ALL}), "
                             f"{sum(other['plan_bytes']) / 1e9:.1f} planned before" + (f"; a process took {max(other['peak_bytes']) / 1e6:,.0f} MB at the most." if layout == "processes" else "."))  # fmt: skip
    lines.append(f"- Weights behind {longest:,} tokens, of {' and '.join(SHOWN[layout] for layout in at)}: `{next(iter(at.values()))['weights_sha256']}`.")
    return lines


def page_text(rows, options):
    head = f"Measured by `bench/million_tokens.py`, {version().splitlines()[0]}, {options.threads} threads, profile `{PROFILE}`, one run a row."
    return "\n".join([head, "", f"Machine: {machine()}", "", *table(rows), "", *bars(rows)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="for the model, the texts, runs and results; about 100 MB")
    parser.add_argument("--tokens", type=lambda text: [int(n) for n in text.split(",")], default=[4096, 16384, 65536, 262144, LONGEST])
    parser.add_argument("--layouts", type=lambda text: text.split(","), default=["one", "threads"])
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of all ranks together")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    for n in options.tokens:
        if not 2 <= n <= LONGEST:
            parser.error(f"--tokens contains {n}, allowed is 2 to {LONGEST}")
    for layout in options.layouts:
        if layout not in RANKS:
            parser.error(f"--layouts contains {layout}, allowed are {', '.join(RANKS)}")
    if "processes" in options.layouts and not shutil.which("mpirun"):
        parser.error("--layouts contains processes, and there is no mpirun")
    options.work = options.work.resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    model, cells, rows = made_model(options.work), Cells(options), []
    for tokens in options.tokens:
        for layout in options.layouts:
            if layout != "one" and not is_cut(tokens, PIECE_RANKS):
                continue
            key = f"{layout}, {tokens}"
            cells.measure(key, lambda layout=layout, tokens=tokens: measured(options, model, layout, tokens))
            rows.append(cells.cells[key])
            print(told(rows[-1]), flush=True)
    if wrong := differing(rows):
        raise SystemExit("million_tokens: " + "; ".join(wrong))
    print("\n".join(["", *table(rows), "", *bars(rows)]))
    if options.json:
        options.json.write_text(json.dumps({"threads": options.threads, "profile": PROFILE, "version": version().splitlines()[0], "machine": machine(), "table": rows}, indent=1) + "\n")
    if options.page:
        write_between_marks(options.page, MARKS, page_text(rows, options))


if __name__ == "__main__":
    main()
