#!/usr/bin/env python3
"""How often a model finds what it is asked for in a text, by length and by which layers have an indexer: held-out problems of the environment `recall`, greedy answers.

    python3 bench/retrieval.py --form "an indexer a layer=runs/a/export" --form "2 of 8, searched=runs/two" --lengths 4096,16384 --out cells.jsonl
        [--dense runs/a/export] [--kind queries] [--queries 300] [--lockstep build/lockstep] [--threads N] [--page docs/long-context.md]

`--dense DIR` adds that model with as many keys a row as the context has. A cell that stands in `--out` already is not computed again, so a run that was
stopped goes on. Prints a table: the share of questions answered right with a 95% interval over documents, as `lockstep eval` tells it, and what was aimed at: dense attention right in
0.90 at 4,096 words; the first form within 0.02 of dense and every other within 0.02 of the first at 4,096 and 16,384. `lockstep index-share overlap` tells the attention that selections cover.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "bench")]

from marked_page import write_between_marks  # noqa: E402

MARKS = "retrieval"
DENSE_AT, DENSE_LEAST = 4096, 0.90  # aims
NEAR_AT, NEAR = (4096, 16384), 0.02
KEYS_OF_A_TEXT = 256  # src/rl/recall.h
MOST_QUERIES = 32


def queries_of(kind, length):
    """Questions of one document (src/rl/recall.cpp)."""
    if kind in ("needle", "keys"):
        return 1
    records = max(2, min(length // 4, KEYS_OF_A_TEXT))
    return min(MOST_QUERIES, records if kind == "queries" else max(records // 3, 1))


def dense_copy(model, context, folder):
    """The same model, whose rows attend to all keys of a context."""
    folder.mkdir(parents=True)
    for file in model.iterdir():
        if file.name != "config.json" and file.is_file():
            (folder / file.name).symlink_to(file.resolve())
    config = json.loads((model / "config.json").read_text())
    config["index_topk"] = context
    (folder / "config.json").write_text(json.dumps(config))


def cell(o, model, length, context):
    asked = queries_of(o.kind, length)
    documents = max(2, -(-o.queries // asked))
    command = [o.lockstep, "eval", f"recall-{o.kind}-{length}", "--model", model, "--n", documents, "--samples", 1, "--temperature", 0, "--max-tokens", 2 * asked + 2,
               "--context", context, "--threads", o.threads, "--at-once", 8, "--json"]  # fmt: skip
    told = json.loads(subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True).stdout)
    return {"documents": documents, "questions": documents * asked, "told": told}


def right(done, name, length):
    return done[name, length]["told"]["greedy_reward"]


def table(done, names, lengths):
    lines = ["| form |" + "".join(f" {length:,} |" for length in lengths), "|---|" + "---|" * len(lengths)]
    for name in names:
        row = [right(done, name, length) for length in lengths]
        lines.append(f"| {name} |" + "".join(f" {c['value']:.3f} [{c['low']:.3f}, {c['high']:.3f}] |" for c in row))
    return lines


def verdicts(done, names, lengths):
    """Of dense attention, where it was asked, the first form and the others."""
    def judged(value, least):
        return f"{value:.3f} ({'met' if round(value, 3) >= least else 'missed'})"

    lines, forms = [""], [name for name in names if name != "dense"]
    if "dense" in names and DENSE_AT in lengths:
        lines.append(f"- Dense attention at {DENSE_AT:,} words: {judged(right(done, 'dense', DENSE_AT)['value'], DENSE_LEAST)} (aim: {DENSE_LEAST}).")
    for length in (n for n in NEAR_AT if n in lengths):
        for name in forms:
            beside = "dense" if name == forms[0] else forms[0]
            if beside in names:
                gap = right(done, name, length)["value"] - right(done, beside, length)["value"]
                lines.append(f"- {name}, beside {beside}, at {length:,} words: {gap:+.3f} ({'met' if round(gap, 3) >= -NEAR else 'missed'}; aim: {-NEAR} or more).")
    return lines


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--form", action="append", default=[], metavar="NAME=DIR")
    p.add_argument("--dense", type=Path, metavar="DIR")
    p.add_argument("--lengths", default="4096,16384,65536")
    p.add_argument("--kind", default="queries", choices=["needle", "keys", "queries", "last"])
    p.add_argument("--queries", type=int, default=300, help="questions a cell, at least")
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--lockstep", default=ROOT / "build" / "lockstep")
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--page", type=Path)
    o = p.parse_args()
    lengths = [int(n) for n in o.lengths.split(",")]
    forms = [(name, Path(folder)) for name, _, folder in (form.partition("=") for form in o.form)]
    known = [json.loads(line) for line in o.out.read_text().splitlines()] if o.out.exists() else []
    done = {(c["form"], c["kind"], c["length"], c["questions_asked"]): c for c in known}
    if o.dense:
        forms.insert(0, ("dense", o.dense))
    with tempfile.TemporaryDirectory() as made, o.out.open("a") as out:
        for length in lengths:
            for name, model in forms:
                key = (name, o.kind, length, o.queries)
                if key in done:
                    continue
                context = length + 2 * MOST_QUERIES + MOST_QUERIES + 64
                if name == "dense":
                    model = Path(made) / str(length)
                    dense_copy(o.dense, context, model)
                done[key] = {"form": name, "kind": o.kind, "length": length, "questions_asked": o.queries, **cell(o, model, length, context)}
                print(json.dumps(done[key]), file=out, flush=True)
    names = [name for name, _ in forms]
    of = {(name, length): done[name, o.kind, length, o.queries] for name in names for length in lengths}
    lines = [*table(of, names, lengths), *verdicts(of, names, lengths)]
    print("\n".join(lines))
    if o.page:
        from write_performance import machine, version

        head = f"Measured by `bench/retrieval.py`, {version().splitlines()[0]}: `recall-{o.kind}`, {o.queries} questions a cell at least, the share answered right, 95% intervals over texts."
        write_between_marks(o.page, MARKS, "\n".join([head, "", f"Machine: {machine()}", "", *lines]))


if __name__ == "__main__":
    main()
