#!/usr/bin/env python3
"""What a trained layer of multi-token prediction gains, and what it costs: `lockstep serve` with it, beside the same model without one, in turns.

    bench/layer_speed.py --model DIR [--prompts prompts.jsonl] [--count 64] [--tokens 24] [--prefill 400] [--threads N] [--rounds 5] [--json FILE] [--page docs/speculation.md]

DIR has a layer (recipes/countdown_mtp.toml makes one). The model without is the same folder, whose config.json says of none. Prompts: JSON lines {"prompt"}, or problems of Countdown; none is asked twice.
One stream at temperatures 0 and 1: guesses of 1 to 8 tokens, and `auto`. 32 streams at temperature 1: `auto`. Prompts of --prefill random ids and one token: a model that may guess
enters each row into the layer's cache. A ratio is the median over rounds of the time of the model without a layer over that with, with the least and the most in brackets; of prompts
the other way round. All answers must be those of the model without: status 1 otherwise. Needs no package.
"""

import argparse
import concurrent.futures
import http.client
import json
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "bench")]

from marked_page import write_between_marks  # noqa: E402
from performance_tables import judged, span  # noqa: E402
from started_server import StartedServer  # noqa: E402
from write_performance import binary, machine, version  # noqa: E402

MARKS = "layer_speed"
LENGTHS = (1, 2, 3, 5, 8)
STREAMS = 32
GAIN, AUTO_OF_BEST, AUTO_OF_MANY, PREFILL = 1.5, 0.95, 0.98, 1.2  # the aims: at least, at least, at least, at most


def without_layer(model, folder):
    folder.mkdir(parents=True)
    for file in model.iterdir():
        if file.name != "config.json" and file.is_file():
            (folder / file.name).symlink_to(file.resolve())
    config = json.loads((model / "config.json").read_text())
    if not config.get("num_nextn_predict_layers"):
        sys.exit(f"layer_speed: the model '{model}' has no layer of multi-token prediction")
    (folder / "config.json").write_text(json.dumps(config | {"num_nextn_predict_layers": 0}))
    return folder


class Server(StartedServer):
    def __init__(self, model, speculate, threads):
        command = [binary(), "serve", "--model", model, "--name", "m", "--port", 0, "--threads", threads, "--speculate", speculate, "--no-access-log", "--log-level", "error"]
        super().__init__(command)

    def ask(self, body):
        connection = http.client.HTTPConnection(self.address, timeout=600)
        connection.request("POST", "/v1/completions", json.dumps({"model": "m", "return_token_ids": True, **body}), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        told = answer.read()
        connection.close()
        if answer.status != 200:
            raise SystemExit(f"layer_speed: {answer.status} {told[:300]}")
        return json.loads(told)["choices"][0]["token_ids"]


def timed(server, bodies, at_once):
    """Seconds until all are answered, so many at a time, and the answers."""
    began = time.perf_counter()
    if at_once == 1:
        answers = [server.ask(body) for body in bodies]
    else:
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            answers = list(pool.map(server.ask, bodies))
    return time.perf_counter() - began, answers


def prompts_of(options):
    """Ever new ones: `auto` guesses from earlier answers to the same prompt too, which would be no gain of the layer."""
    if options.prompts:
        yield from (json.loads(line)["prompt"] for line in options.prompts.read_text().splitlines() if line.strip())
        sys.exit(f"layer_speed: '{options.prompts}' has too few prompts: each of {len(cases_of(options))} cases takes {options.count} in each of {options.rounds} rounds, and none twice")
    draw, before = random.Random(1), set()
    while True:
        prompt = " ".join(str(draw.randrange(1, 31)) for _ in range(3)) + f"={draw.randrange(1, 100)}:"
        if prompt not in before:
            before.add(prompt)
            yield prompt


def cases_of(options):
    """Name, streams, temperature, how is guessed."""
    fixed = [(f"{k} token{'s' if k > 1 else ''}", 1, t, {"mode": "mtp", "tokens": k}) for t in (0, 1) for k in LENGTHS]
    return [*fixed, *(("auto", 1, t, {"mode": "auto"}) for t in (0, 1)), ("auto", STREAMS, 1, {"mode": "auto"})]


def measure(bare, layered, options):
    prompts, draw = prompts_of(options), random.Random(2)
    cases, measured, different = cases_of(options), {}, 0
    prefill = []
    for _ in range(options.rounds):
        for name, streams, temperature, way in cases:
            bodies = [{"prompt": next(prompts), "max_tokens": options.tokens, "temperature": temperature, "seed": i} for i in range(options.count)]
            without, said = timed(bare, bodies, streams)
            seconds, answers = timed(layered, [body | {"speculative": way} for body in bodies], streams)
            measured.setdefault((name, streams, temperature), []).append((without, seconds))
            different += sum(a != b for a, b in zip(answers, said))
        texts = [{"prompt": [draw.randrange(5, 100) for _ in range(options.prefill)], "max_tokens": 1, "temperature": 0} for _ in range(8)]
        before, after = (timed(server, texts, 1)[0] for server in (bare, layered))
        prefill.append(after / before)
    rows = []
    for (name, streams, temperature), pairs in measured.items():
        ratios = [without / seconds for without, seconds in pairs]
        rows.append({"guesses": name, "streams": streams, "temperature": temperature, "without": statistics.median(w for w, _ in pairs), "with": statistics.median(s for _, s in pairs),
                     "ratio": statistics.median(ratios), "ratio_range": [min(ratios), max(ratios)]})  # fmt: skip
    return {"rows": rows, "prefill": {"tokens": options.prefill, "ratio": statistics.median(prefill), "ratio_range": [min(prefill), max(prefill)]}, "different": different}


def table(data):
    lines = ["| streams | temperature | guesses | without a layer, s | with, s | ratio (range over rounds) |", "|---|---|---|---|---|---|"]
    return lines + [f"| {r['streams']} | {r['temperature']} | {r['guesses']} | {r['without']:.2f} | {r['with']:.2f} | {span(r)} |" for r in data["rows"]]


def verdicts(data):
    lines = [""]
    for temperature in sorted({r["temperature"] for r in data["rows"]}):
        one = {r["guesses"]: r["ratio"] for r in data["rows"] if r["streams"] == 1 and r["temperature"] == temperature}
        auto = one.pop("auto")
        best = max(one, key=one.get)
        lines.append(f"- One stream at temperature {temperature}: {judged(one[best], least=GAIN)} at best, by {best} (aim {GAIN}); `auto` has {judged(auto / one[best], least=AUTO_OF_BEST)} of that (aim {AUTO_OF_BEST}).")
    many = next(r["ratio"] for r in data["rows"] if r["streams"] > 1)
    lines.append(f"- `auto`, {STREAMS} streams: {judged(many, least=AUTO_OF_MANY)} (aim {AUTO_OF_MANY}).")
    lines.append(f"- Prompts of {data['prefill']['tokens']} tokens take {judged(data['prefill']['ratio'], most=PREFILL)} of the time without a layer (aim {PREFILL} at most; {span(data['prefill'])}).")
    return lines


def page_text(data, options):
    head = (f"Measured by `bench/layer_speed.py`, {version().splitlines()[0]}, the model `{options.name}`, {options.count} prompts a case and round, none of them twice, at most {options.tokens} tokens of each, {options.threads} threads, "
            f"medians of {options.rounds} rounds in turns. No answer differs from that of the model without a layer.")  # fmt: skip
    return "\n".join([head, "", f"Machine: {machine()}", "", *table(data), *verdicts(data)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--name", help="of the model on the page (default: the folder's, or the run's)")
    parser.add_argument("--prompts", type=Path)
    parser.add_argument("--count", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--prefill", type=int, default=400)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    folder = options.model.resolve()
    options.name = options.name or (folder.parent if folder.name == "export" else folder).name
    with tempfile.TemporaryDirectory() as made:
        servers = [Server(without_layer(options.model, Path(made) / "bare"), "off", options.threads)]
        try:
            servers.append(Server(options.model, "auto", options.threads))
            data = measure(*servers, options)
        finally:
            for server in servers:
                server.stop()
    print("\n".join([*table(data), *verdicts(data)]))
    if data["different"]:
        raise SystemExit(f"layer_speed: {data['different']} answers differ from those of the model without a layer")
    if options.json:
        options.json.write_text(json.dumps({"model": options.name, "threads": options.threads, "rounds": options.rounds, "version": version().splitlines()[0], "machine": machine(), **data}, indent=1) + "\n")
    if options.page:
        write_between_marks(options.page, MARKS, page_text(data, options))


if __name__ == "__main__":
    main()
