#!/usr/bin/env python3
"""Measures when the first result of a batch is there whose eight pieces arrive at equal intervals, beside the same batch gathered into one call, through the real `tinker` client.

    bench/first_piece.py --model FOLDER [--layouts one:pp=2] [--pieces 8] [--sequences 4] [--tokens 128] [--rounds 5] [--json FILE] [--page docs/ranks.md]

A round gathers: one call of all sequences, whose time T is from its sending to its result. Then it sends pieces: a call of each eighth, T/8 after the one before; the first result's
time is from the first sending. An optimizer step follows either, by a client of its own each. Medians of --rounds, after a first one. The bits must be equal: every log-probability, the gradients'
norm, and what the model says after the step. Aimed at: the first result in a quarter of T. Needs a Python with tinker; countdown-glm takes seconds, SmolLM2 some minutes a layout.
"""
import argparse
import json
import os
import statistics
import struct
import sys
import tempfile
import threading
import time
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TINKER_TELEMETRY", "0")
import tinker  # noqa: E402
from tinker import types  # noqa: E402

from marked_page import write_between_marks  # noqa: E402
from started_server import StartedServer  # noqa: E402
from write_performance import binary, machine, version  # noqa: E402

MARKS = "first_piece"
AIM = 0.25


def data_of(options):
    """The pieces: lists of sequences, no two of which are equal."""
    rows = []
    for i in range(options.pieces * options.sequences):
        tokens = [1 + (i * 7 + j * 3) % 29 for j in range(options.tokens + 1)]
        rows.append(types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs={"target_tokens": tokens[1:], "weights": [1.0] * options.tokens}))
    return [rows[at : at + options.sequences] for at in range(0, len(rows), options.sequences)]


def bits(result):
    return [[struct.pack("<f", value).hex() for value in output["logprobs"].tolist()] for output in result.loss_fn_outputs]


def stepped(client, outputs, probe):
    """What is compared: log-probabilities, the norm, and a forward after the step."""
    norm = client.optim_step(types.AdamParams(learning_rate=1e-4)).result().metrics["grad_norm"].hex()
    return outputs, norm, bits(client.forward(probe, "cross_entropy").result())


def gathered(client, pieces):
    """Seconds of the one call, and its bits."""
    begin = time.perf_counter()
    result = client.forward_backward([row for piece in pieces for row in piece], "cross_entropy").result()
    return time.perf_counter() - begin, stepped(client, bits(result), pieces[0])


def in_pieces(client, pieces, interval):
    """Seconds to the first result and to the last, and the bits."""
    futures, results, at, failures = [None] * len(pieces), [None] * len(pieces), [0.0] * len(pieces), []
    sent = [threading.Event() for _ in pieces]
    begin = time.perf_counter()

    def wait(number):
        sent[number].wait()
        try:
            results[number] = futures[number].result()
        except Exception as error:  # told below: a thread's own is lost
            failures.append(error)
        at[number] = time.perf_counter() - begin

    waiting = [threading.Thread(target=wait, args=(number,)) for number in range(len(pieces))]
    for thread in waiting:
        thread.start()
    for number, piece in enumerate(pieces):
        time.sleep(max(0.0, begin + number * interval - time.perf_counter()))
        futures[number] = client.forward_backward(piece, "cross_entropy")
        sent[number].set()
    for thread in waiting:
        thread.join()
    if failures:
        raise SystemExit(f"first_piece: a piece failed: {failures[0]}")
    return at[0], at[-1], stepped(client, [row for result in results for row in bits(result)], pieces[0])


def row_of(options, layout):
    pieces, rounds = data_of(options), []
    with tempfile.TemporaryDirectory() as state:
        ranks = [] if layout == "one" else ["--ranks", layout]
        command = [binary(), "serve", "--training", "--model", options.model, "--port", 0, "--state", state, "--threads", options.threads, "--log-level", "error", *ranks]
        with StartedServer(command) as server:
            service = tinker.ServiceClient(base_url=server.url, api_key="tml-bench")
            whole, cut = (service.create_lora_training_client(base_model=Path(options.model).resolve().name, rank=options.rank, seed=7).result() for _ in range(2))
            for number in range(options.rounds + 1):
                seconds, wanted = gathered(whole, pieces)
                first, last, found = in_pieces(cut, pieces, seconds / len(pieces))
                if found != wanted:
                    raise SystemExit(f"first_piece: {layout}: the pieces have other bits than the gathered batch (round {number})")
                if number:
                    rounds.append((seconds, first, last))
                print(f"{layout}: gathered {seconds:.3f} s, first result {first:.3f} s, last {last:.3f} s", flush=True)
    seconds, first, last = (statistics.median(values) for values in zip(*rounds))
    return {"ranks": layout, "gathered": seconds, "first": first, "last": last, "share": statistics.median(one / whole for whole, one, _ in rounds)}


def page_text(options, rows):
    lines = [f"By `bench/first_piece.py`, {version().splitlines()[0]}. {Path(options.model).resolve().name}, {options.pieces} pieces of {options.sequences} x {options.tokens} tokens, "
             f"{options.threads} threads, medians of {options.rounds} rounds; equal bits in all of them.", "", f"Machine: {machine()}", "",
             "| ranks | gathered, s | first result in pieces, s | of the gathered batch | last result in pieces, s | aim |", "|---|---|---|---|---|---|"]  # fmt: skip
    for row in rows:
        met = "met" if row["share"] <= AIM else "missed"
        lines.append(f"| `{row['ranks']}` | {row['gathered']:.3f} | {row['first']:.3f} | {row['share']:.2f} | {row['last']:.3f} | at most {AIM:g}: {met} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--layouts", type=lambda text: text.split(":"), default=["one", "pp=2"], help="one, or as --ranks has them; `:` between two")
    for name, default in (("pieces", 8), ("sequences", 4), ("tokens", 128), ("rounds", 5), ("threads", 2), ("rank", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    if min(options.pieces, options.sequences, options.tokens, options.rounds, options.threads) < 1:
        sys.exit("first_piece: --pieces, --sequences, --tokens, --rounds and --threads are at least 1")
    rows = [row_of(options, layout) for layout in options.layouts]
    print("\n" + page_text(options, rows))
    if options.json:
        options.json.write_text(json.dumps({"version": version().splitlines()[0], "machine": machine(), "table": rows}, indent=1) + "\n")
    if options.page:
        write_between_marks(options.page, MARKS, page_text(options, rows))


if __name__ == "__main__":
    main()
