#!/usr/bin/env python3
"""What kept forwards (docs/kept-forwards.md) save where log-probabilities of a text are asked for that was sampled before: servers with --keep-forward off, inputs and
all say the same texts, and then score them, one after another, in turns. Seconds for all texts; the time of `off` over that of another mode in the same round.

    bench/kept_scores.py --model FOLDER/bf16 [--lockstep build/lockstep] [--texts 8] [--prompt 256] [--max-tokens 128] [--rounds 7] [--threads N] [--json FILE]

The script ends with an error where a mode has other log-probabilities than `off`, or read other rows than those of all full pages before each text's last token.
"""
import argparse
import json
import os
import random
import re
import statistics
import tempfile
import time
import urllib.request
from pathlib import Path

from started_server import StartedServer

ROOT = Path(__file__).resolve().parents[1]
MODES = ("off", "inputs", "all")
PAGE = 16  # positions, of the cache and of what is kept


class Server(StartedServer):
    def __init__(self, options, work, mode):
        self.mode = mode
        # Completions of the base are kept where they ask for it, which without keys is for everybody's training.
        super().__init__([options.lockstep, "serve", "--training", "--model", options.model, "--name", "base", "--state", work / mode, "--port", "0",
                          "--threads", options.threads, "--no-access-log", "--log-level", "error", "--share-prefixes", "all", "--keep-forward", mode,
                          *(["--keep-forward-megabytes", options.megabytes] if mode != "off" else [])])  # fmt: skip

    def complete(self, prompt, **more):
        body = json.dumps({"model": "base", "prompt": prompt, **more}).encode()
        request = urllib.request.Request(f"{self.url}/v1/completions", body, {"Content-Type": "application/json"})
        return json.loads(urllib.request.urlopen(request).read())["choices"][0]

    def text(self, prompt, tokens, seed):
        more = {} if self.mode == "off" else {"keep_forward": True}
        return prompt + self.complete(prompt, max_tokens=tokens, seed=seed, temperature=1, ignore_eos=True, return_token_ids=True, **more)["token_ids"]

    def scores(self, text):
        return self.complete(text, max_tokens=0, echo=True, logprobs=0)["logprobs"]["token_logprobs"]

    def rows_read(self):
        text = urllib.request.urlopen(f"{self.url}/metrics").read().decode()
        found = re.search(r"^lockstep_training_rows_read_total ([\d.e+]+)$", text, re.M)
        return int(float(found[1])) if found else 0


def measure(options, servers):
    rng = random.Random(3)
    prompts = [[rng.randrange(64) for _ in range(options.prompt)] for _ in range(options.texts)]
    texts = {server.mode: [server.text(prompt, options.max_tokens, seed) for seed, prompt in enumerate(prompts)] for server in servers}
    for mode in MODES[1:]:
        if texts[mode] != texts["off"]:
            raise SystemExit(f"kept_scores: with --keep-forward {mode} other tokens were sampled")
    full = sum((len(text) - 1) // PAGE * PAGE for text in texts["off"])
    seconds, wanted = {mode: [] for mode in MODES}, None
    for number in range(options.rounds + 1):  # the first warms up
        for server in servers[:: 1 if number % 2 == 0 else -1]:
            before, began = server.rows_read(), time.perf_counter()
            told = [server.scores(text) for text in texts[server.mode]]
            took, read = time.perf_counter() - began, server.rows_read() - before
            wanted = wanted or told
            if told != wanted:
                raise SystemExit(f"kept_scores: with --keep-forward {server.mode} log-probabilities are others")
            if read != (0 if server.mode == "off" else full):
                raise SystemExit(f"kept_scores: with --keep-forward {server.mode} {read} rows were read of {full} on full pages; more memory: --megabytes")
            if number > 0:
                seconds[server.mode].append(took)
    return seconds, full, sum(map(len, texts["off"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--lockstep", default=os.environ.get("LOCKSTEP_BINARY", str(ROOT / "build/lockstep")))
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=7)
    for name, value in (("texts", 8), ("prompt", 256), ("max-tokens", 128), ("megabytes", 8192)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    servers = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            for mode in MODES:
                servers.append(Server(options, Path(folder), mode))
            seconds, full, rows = measure(options, servers)
        finally:
            for server in servers:
                server.stop()
    table = []
    for mode in MODES:
        ratios = [off / one for off, one in zip(seconds["off"], seconds[mode])]
        table.append({"mode": mode, "seconds": statistics.median(seconds[mode]), "ratio": statistics.median(ratios), "ratio_range": [min(ratios), max(ratios)]})
        print(f"{mode:6} {table[-1]['seconds']:.3f} s; {table[-1]['ratio']:.2f} ({min(ratios):.2f} to {max(ratios):.2f}) of off; "
              f"rows read {0 if mode == 'off' else full} of {rows}")  # fmt: skip
    if options.json:
        head = {name: getattr(options, name) for name in ("texts", "prompt", "max_tokens", "threads", "rounds")}
        options.json.write_text(json.dumps({**head, "rows": rows, "rows_of_full_pages": full, "table": table}, indent=1) + "\n")


if __name__ == "__main__":
    main()
