#!/usr/bin/env python3
"""What a long prompt does to its neighbours: the time between two tokens of eight streams of one server, alone and while a prompt of another request is computed; and how
long that prompt takes, beside them and alone. All in one run; percentiles over tokens of all streams.

    python3 bench/long_prompt.py --model DIR [--lockstep build/lockstep] [--tokens 262144] [--streams 8] [--seconds 20] [--threads N] [--without-alone] [--json FILE]
        [--page docs/long-context.md]

A prompt is random ids without repetition of its beginning, so no cache knows it. Guessing ahead is off: a stream has one token a step.
"""

import argparse
import http.client
import json
import random
import threading
import time
from pathlib import Path

from marked_page import write_between_marks
from performance_tables import judged
from started_server import StartedServer
from write_performance import machine, version

MARKS = "long_prompt"
MOST = 3  # of the 95th percentile alone: the aim

ROOT = Path(__file__).resolve().parents[1]


class Server(StartedServer):
    def __init__(self, o):
        context = o.tokens + 64
        command = [o.lockstep, "serve", "--model", o.model, "--name", "m", "--port", "0", "--threads", o.threads, "--context", context, "--speculate", "off", "--no-access-log",
                   "--log-level", "error", "--max-body-kilobytes", 16 * o.tokens // 1024 + 4096]  # fmt: skip
        super().__init__(command)

    def lines(self, body):
        """The times at which the events of a streamed completion came."""
        connection = http.client.HTTPConnection(self.address, timeout=3600)
        connection.request("POST", "/v1/completions", json.dumps({"model": "m", "stream": True, "temperature": 1, **body}), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise SystemExit(f"long_prompt: {answer.status} {answer.read()[:300]}")
        for line in answer:
            if line.startswith(b"data: {"):
                yield time.perf_counter()
        connection.close()


class Streams:
    """So many streams that begin again whenever they end; the gaps between their tokens, by the time of the second one."""

    def __init__(self, server, many):
        self.server, self.on, self.gaps = server, True, []
        self.threads = [threading.Thread(target=self.run, args=(i,)) for i in range(many)]
        for thread in self.threads:
            thread.start()

    def run(self, number):
        seed = 1000 * number
        while self.on:
            seed += 1
            before = None
            for at in self.server.lines({"prompt": ids(seed, 24), "max_tokens": 400, "seed": seed, "ignore_eos": True}):
                if before is not None:
                    self.gaps.append((at, at - before))
                before = at
                if not self.on:
                    return

    def between(self, begin, end):
        return sorted(gap for at, gap in self.gaps if begin <= at - gap and at <= end)

    def stop(self):
        self.on = False
        for thread in self.threads:
            thread.join()


def ids(seed, many):
    draw = random.Random(seed)
    return [draw.randrange(100) for _ in range(many)]


def told(gaps):
    if not gaps:
        return {"tokens": 0}
    at = lambda share: 1000 * gaps[min(len(gaps) - 1, int(share * len(gaps)))]  # noqa: E731
    return {"tokens": len(gaps), "median_ms": at(0.5), "p95_ms": at(0.95), "longest_ms": 1000 * gaps[-1]}


def page_text(result, threads):
    ends = (f"The prompt had its token after {result['prompt_seconds_beside']:.0f} s" if result["prompt_done"] else
            f"The prompt was not through after {result['prompt_seconds_beside']:.0f} s, so that is its beginning")  # fmt: skip
    alone = f", and alone after {result['prompt_seconds_alone']:.0f} s" if "prompt_seconds_alone" in result else ""
    rows = [f"| {name} | {told['tokens']} | {told['median_ms']:.1f} | {told['p95_ms']:.1f} | {told['longest_ms']:.1f} |"
            for name, told in (("alone", result["alone"]), ("beside the prompt", result["beside"]))]  # fmt: skip
    return "\n".join([f"Measured by `bench/long_prompt.py`, {version().splitlines()[0]}: {result['streams']} streams and a prompt of {result['tokens']:,} tokens, {threads or 'all'} threads.", "",
                      f"Machine: {machine()}", "", "| streams | tokens | median between two, ms | 95th percentile, ms | longest, ms |", "|---|---|---|---|---|", *rows, "",
                      f"The 95th percentile beside the prompt is {judged(result['p95_times'], most=MOST)} times that alone (aim {MOST} at most). {ends}{alone}."])  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--lockstep", default=ROOT / "build/lockstep")
    parser.add_argument("--tokens", type=int, default=262144)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=20, help="of the streams alone, and the most of them beside the prompt")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--without-alone", action="store_true", help="do not time the prompt alone")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", type=Path)
    o = parser.parse_args()
    server = Server(o)
    result = {"tokens": o.tokens, "streams": o.streams}
    try:
        streams = Streams(server, o.streams)
        time.sleep(3)
        begin = time.perf_counter()
        time.sleep(o.seconds)
        result["alone"] = told(streams.between(begin, time.perf_counter()))
        begin = time.perf_counter()
        ends = []
        prompt = threading.Thread(target=lambda: ends.extend(server.lines({"prompt": ids(7, o.tokens), "max_tokens": 1})), daemon=True)
        prompt.start()
        prompt.join(o.seconds)
        end = ends[0] if ends else time.perf_counter()
        result["beside"] = told(streams.between(begin, end))
        result["prompt_done"] = bool(ends)
        result["prompt_seconds_beside"] = end - begin
        result["p95_times"] = result["beside"]["p95_ms"] / result["alone"]["p95_ms"]
        streams.stop()
        if ends and not o.without_alone:
            begin = time.perf_counter()
            result["prompt_seconds_alone"] = next(iter(server.lines({"prompt": ids(8, o.tokens), "max_tokens": 1}))) - begin
    finally:
        server.stop()
    print(json.dumps(result, indent=1))
    if o.json:
        o.json.write_text(json.dumps(result, indent=1) + "\n")
    if o.page:
        write_between_marks(o.page, MARKS, page_text(result, o.threads))


if __name__ == "__main__":
    main()
