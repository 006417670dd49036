#!/usr/bin/env python3
"""Measures the gain of speculative decoding: tokens per second of one stream of `lockstep serve`, with each way of drafting and without, in turns.

    bench/speculation.py --model models/countdown-glm [--profiles cpu-f32,cpu-bf16w] [--threads N] [--tokens 64] [--draft-tokens 7] [--rounds 5] [--json FILE]

Cases: `off`; `prediction`, with the right answer in the request; `lost`, with one of which no token is right, so that it
is guessed from once and then not found again; `wrong`, with one that is found again behind every two tokens of the answer, and is wrong there each time; `ngram` on prompts that copy a text,
and on prompts of random words, whose greedy answers repeat themselves; `auto` on both; `ngram, sampled` on the latter at temperature 2, where hardly
any two words come twice, so that nearly no guess is right (the column of right guesses tells). All of a case's answers are compared with those of `off`: the last
column is the number that differ, and must be 0. Greedy but for that one case. A ratio is the median over rounds of time without over time with, with the least and the
most in brackets. With wrong guesses each forward but two has a row more for each of them and yields one token, so that ratio's inverse is what these rows cost.
Needs the package requests."""
import argparse
import json
import os
import random
import re
import statistics
import sys
import time
from pathlib import Path

import requests

from started_server import StartedServer

ROOT = Path(__file__).resolve().parents[1]
WORDS = "river stone early morning light paper window garden letter number market winter summer bread table silver copper wooden yellow narrow".split()


class Server(StartedServer):
    def __init__(self, options, profile):
        binary = os.environ.get("LOCKSTEP_BINARY", str(ROOT / "build/lockstep"))
        command = [binary, "serve", "--model", options.model, "--port", "0", "--threads", str(options.threads), "--profile", profile, "--speculate", "off", "--no-access-log", "--log-level", "error"]
        super().__init__(command)

    def guesses(self):
        """Tokens that were guessed so far, and those of them that were right, by all sources."""
        text = requests.get(self.url + "/metrics", timeout=60).text
        return [sum(float(n) for n in re.findall(rf"^lockstep_spec_decode_num_{name}_tokens_total\{{[^}}]*\}} (\S+)$", text, re.M)) for name in ("draft", "accepted")]

    def ask(self, prompt, tokens, speculative, temperature=0):
        body = {"prompt": prompt, "max_tokens": tokens, "temperature": temperature, "seed": 1, "ignore_eos": True, "return_token_ids": True, "speculative": speculative}
        began = time.perf_counter()
        answer = requests.post(self.url + "/v1/completions", json=body, timeout=600)
        seconds = time.perf_counter() - began
        if answer.status_code != 200:
            sys.exit(f"speculation: {answer.status_code} {answer.text[:500]}")
        return answer.json()["choices"][0]["token_ids"], seconds


def prompts_of(options):
    """Texts: some that repeat themselves, so that an n-gram has occurred before, and random words. Short enough for the model's context."""
    draws, copying, fresh = random.Random(1), [], []
    room = max(4, options.prompt // 8)
    for _ in range(options.prompts):
        text = " ".join(draws.choice(WORDS) for _ in range(room))
        copying.append(f"{text}\n{text}\n{text[:len(text) // 4]}")
        fresh.append(" ".join(draws.choice(WORDS) for _ in range(2 * room)))
    return copying, fresh


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(ROOT / "models/countdown-glm"))
    parser.add_argument("--profiles", default="cpu-bf16w")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=64, help="about how many tokens")
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--draft-tokens", type=int, default=7)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json")
    options = parser.parse_args()
    rows = []
    for profile in options.profiles.split(","):
        with Server(options, profile) as server:
            rows += [{"profile": profile, **row} for row in measure(server, options)]
    print("| profile | case | off, tokens/s | with, tokens/s | ratio (range over rounds) | answers that differ |\n|---|---|---|---|---|---|")
    for r in rows:
        print(f"| {r['profile']} | {r['case']} | {r['off']:.1f} | {r['with']:.1f} | {r['ratio']:.2f} ({r['ratio_range'][0]:.2f} to {r['ratio_range'][1]:.2f}) | {r['different']} of {r['answers']} |")
    if options.json:
        Path(options.json).write_text(json.dumps({"model": Path(options.model).name, "threads": options.threads, "tokens": options.tokens, "prompts": options.prompts, "draft_tokens": options.draft_tokens, "rounds": options.rounds, "rows": rows}, indent=1) + "\n")
    return int(any(r["different"] for r in rows))


def always_wrong(answer, guesses):
    """A prediction with every two neighbours of the answer, each behind them a token that the answer does not have: wherever the answer is, it is found there, and is wrong."""
    other = next(i for i in range(len(answer) + 1) if i not in answer)
    wrong = [other] * guesses
    return wrong + [i for pair in zip(answer, answer[1:]) for i in [*pair, *wrong]]


def measure(server, options):
    copying, fresh = prompts_of(options)
    kinds = {"copying": (copying, 0), "fresh": (fresh, 0), "sampled": (fresh, 2)}  # prompts and temperature
    right = {kind: {p: server.ask(p, options.tokens, {"mode": "off"}, t)[0] for p in prompts} for kind, (prompts, t) in kinds.items()}
    length = {"tokens": options.draft_tokens}
    cases = [("prediction, right", "fresh", lambda p: {"mode": "prediction", "draft": right["fresh"][p], **length}),
             ("prediction, lost", "fresh", lambda p: {"mode": "prediction", "draft": [i ^ 1 for i in right["fresh"][p]], **length}),
             ("prediction, wrong", "fresh", lambda p: {"mode": "prediction", "draft": always_wrong(right["fresh"][p], options.draft_tokens), **length}),
             ("ngram, copying", "copying", lambda p: {"mode": "ngram", **length}), ("ngram, random words", "fresh", lambda p: {"mode": "ngram", **length}),
             ("ngram, sampled", "sampled", lambda p: {"mode": "ngram", **length}),
             ("auto, copying", "copying", lambda p: {"mode": "auto", **length}), ("auto, random words", "fresh", lambda p: {"mode": "auto", **length})]  # fmt: skip
    off, having, different, counted = {kind: [] for kind in kinds}, [[] for _ in cases], [0] * len(cases), [[0, 0] for _ in cases]
    for _ in range(options.rounds):
        for kind, (prompts, temperature) in kinds.items():
            off[kind].append(sum(server.ask(p, options.tokens, {"mode": "off"}, temperature)[1] for p in prompts))
        for i, (_, kind, way) in enumerate(cases):
            prompts, temperature = kinds[kind]
            before = server.guesses()
            answers = [(p, *server.ask(p, options.tokens, way(p), temperature)) for p in prompts]
            counted[i] = [n + now - then for n, now, then in zip(counted[i], server.guesses(), before)]
            having[i].append(sum(seconds for _, _, seconds in answers))
            different[i] += sum(ids != right[kind][p] for p, ids, _ in answers)
    rows = []
    for (name, kind, _), seconds, other, (guessed, accepted) in zip(cases, having, different, counted):
        prompts, without = kinds[kind][0], off[kind]
        ratios = [a / b for a, b in zip(without, seconds)]
        tokens = options.tokens * len(prompts)
        rows.append({"case": name, "off": tokens / statistics.median(without), "with": tokens / statistics.median(seconds), "ratio": statistics.median(ratios), "ratio_range": [min(ratios), max(ratios)],
                     "guessed": guessed, "accepted": accepted, "different": other, "answers": options.rounds * len(prompts)})  # fmt: skip
    return rows


if __name__ == "__main__":
    sys.exit(main())
