#!/usr/bin/env python3
"""Rollouts of long prompts in two forms of a model, in turns: an indexer in every layer and no guesses, beside indexers that layers share and a layer of multi-token prediction that drafts.

    bench/long_rollouts.py --unshared DIR --shared DIR [--lengths 16384,65536] [--samples 8] [--rounds 3] [--threads N] [--json FILE] [--page docs/long-context.md]

The models know the words of the environment `recall` (tools/make_recall_folder.py), and --shared has a layer of multi-token prediction. A rollout is what reinforcement learning samples: --samples
answers at temperature 1 to one prompt that no cache knows, from the request to the last answer's end; a prompt has records among filler and asks for up to 32 of them, as `queries` of that environment
does. 5 guesses a forward, coupled. One server of each form, asked in turns; a ratio is the median over rounds of the first form's seconds over the second's, with the least and the most in brackets.
How many tokens the answers have stands beside it: two models say different things, and the ratio means what it says where these are alike. Needs no package.
"""

import argparse
import http.client
import json
import os
import random
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tools")]

from make_recall_folder import CONSONANTS, ENDS, FILLER, VOWELS  # noqa: E402
from marked_page import write_between_marks  # noqa: E402
from performance_tables import judged, span  # noqa: E402
from started_server import StartedServer  # noqa: E402
from write_performance import binary, machine, version  # noqa: E402

MARKS = "long_rollouts"
GUESSES = 5
RECORDS, QUESTIONS = 256, 32
AIM_AT, AIM = 65536, 1.8  # the length of which something is aimed at, and the least ratio
LEAST = 2 * RECORDS + QUESTIONS + 2  # tokens of a prompt
KEYS = [f" {a}{b}{c}" for a in CONSONANTS for b in VOWELS for c in ("", *ENDS)]
OTHERS = [f" {a}{b}" for a in FILLER for b in VOWELS]


def prompt_of(tokens, draw):
    """A word is a token, and a record two."""
    keys = draw.sample(KEYS, RECORDS)
    words = [f"{key}{draw.randrange(100):02}" for key in keys] + [draw.choice(OTHERS) for _ in range(tokens - LEAST)]
    draw.shuffle(words)
    return "".join(words) + "?" + "".join(draw.sample(keys, QUESTIONS)) + ":"


class Server(StartedServer):
    def __init__(self, model, speculate, options):
        longest = max(options.lengths)
        super().__init__([binary(), "serve", "--model", model, "--name", "m", "--port", 0, "--threads", options.threads, "--context", longest + 2 * QUESTIONS + 64, "--speculate", speculate,
                          *(["--draft-tokens", GUESSES] if speculate != "off" else []), "--max-body-kilobytes", 8 * longest // 1024 + 4096, "--no-access-log", "--log-level", "error"])  # fmt: skip

    def rollout(self, prompt, options, seed):
        """Seconds, and tokens of all answers."""
        body = {"model": "m", "prompt": prompt, "n": options.samples, "max_tokens": 2 * QUESTIONS + 2, "temperature": 1, "seed": seed}
        connection = http.client.HTTPConnection(self.address, timeout=24 * 3600)
        began = time.perf_counter()
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        told = answer.read()
        seconds = time.perf_counter() - began
        connection.close()
        if answer.status != 200:
            raise SystemExit(f"long_rollouts: {answer.status} {told[:300]}")
        return seconds, json.loads(told)["usage"]["completion_tokens"]


def measure(unshared, shared, options):
    draw, rows = random.Random(1), []
    for length in options.lengths:
        runs = []
        for r in range(options.rounds):
            prompt = prompt_of(length, draw)
            runs.append([server.rollout(prompt, options, r) for server in (unshared, shared)])
            print(f"{length} tokens, round {r + 1}: {runs[-1][0][0]:.2f} s and {runs[-1][1][0]:.2f} s", flush=True)
        rows.append(row_of(length, runs))
    return rows


def row_of(length, runs):
    """`runs`: of each round (seconds, tokens) of both forms."""
    ratios = [one[0] / two[0] for one, two in runs]
    return {"length": length, "unshared": statistics.median(one[0] for one, _ in runs), "shared": statistics.median(two[0] for _, two in runs), "ratio": statistics.median(ratios),
            "ratio_range": [min(ratios), max(ratios)], "tokens": [sum(run[form][1] for run in runs) for form in (0, 1)]}  # fmt: skip


def table(rows):
    lines = ["| tokens of the prompt | an indexer a layer, no guesses, s | shared, drafted, s | ratio (range over rounds) | tokens of all answers |", "|---|---|---|---|---|"]
    return lines + [f"| {r['length']:,} | {r['unshared']:.2f} | {r['shared']:.2f} | {span(r)} | {r['tokens'][0]} and {r['tokens'][1]} |" for r in rows]


def verdict(rows):
    aimed = next((r for r in rows if r["length"] == AIM_AT), None)
    return ["", f"At {AIM_AT:,} tokens: {judged(aimed['ratio'], least=AIM)} (aim {AIM})." if aimed else f"Not measured at {AIM_AT:,} tokens, of which {AIM} is aimed at."]


def layers_that_draft(model):
    return json.loads((model / "config.json").read_text()).get("num_nextn_predict_layers") or 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--unshared", type=Path, required=True)
    parser.add_argument("--shared", type=Path, required=True)
    parser.add_argument("--lengths", type=lambda text: [int(n) for n in text.split(",")], default=[16384, AIM_AT])
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    if not layers_that_draft(options.shared):
        parser.error(f"--shared {options.shared} has no layer of multi-token prediction, and nothing would be drafted")
    if min(options.lengths) < LEAST:
        parser.error(f"--lengths has {min(options.lengths)}, allowed is {LEAST} or more: {RECORDS} records and {QUESTIONS} questions")
    servers = []
    try:
        for model, speculate in ((options.unshared, "off"), (options.shared, "mtp")):
            servers.append(Server(model, speculate, options))
        rows = measure(*servers, options)
    finally:
        for server in servers:
            server.stop()
    print("\n".join(["", *table(rows), *verdict(rows)]))
    if options.json:
        options.json.write_text(json.dumps({"version": version().splitlines()[0], "machine": machine(), "threads": options.threads, "rounds": options.rounds, "samples": options.samples, "rows": rows}, indent=1) + "\n")
    if options.page:
        head = (f"Measured by `bench/long_rollouts.py`, {version().splitlines()[0]}: {options.samples} answers at temperature 1 to each prompt, {options.threads} threads, medians of {options.rounds} rounds in turns, "
                f"{GUESSES} guesses a forward.")  # fmt: skip
        write_between_marks(options.page, MARKS, "\n".join([head, "", f"Machine: {machine()}", "", *table(rows), *verdict(rows)]))


if __name__ == "__main__":
    main()
