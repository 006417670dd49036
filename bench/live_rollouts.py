#!/usr/bin/env python3
"""What rollouts beside live answers take from these, and what they make themselves: live requests come by chance (Poisson) at a share of what the server
can answer, and rollouts fill the rest. Percentiles of the gap between two tokens of a live answer and of the time to its first one, and rollouts'
tokens a second,

    with `serve --live-token-ms`   rollouts with `service_tier` flex
    by shares                      the same with --live-token-ms 0
    without classes                rollouts that say nothing, which the server cannot tell from live answers: the control

beside live requests alone and rollouts alone. Every load is the same in each: arrivals and prompts are drawn from one seed.

    python3 bench/live_rollouts.py [--model models/countdown-glm] [--lockstep build/lockstep] [--bound 40] [--seconds 40] [--rollouts 64] [--load 0.3] [--json FILE]

Needs the package requests."""
import argparse
import json
import random
import re
import subprocess
import threading
import time
from pathlib import Path

import requests

WARM_SECONDS = 5  # at the beginning of each load, which count nowhere


class Server:
    def __init__(self, options, bound):
        self.options, self.name = options, Path(options.model).name
        command = [options.lockstep, "serve", "--model", options.model, "--port", "0", "--threads", str(options.threads), "--live-token-ms", str(bound), "--speculate", "off",
                   "--no-access-log", "--log-level", "error"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.url = re.search(r"http://\S+", self.process.stdout.readline())[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(60)

    def complete(self, number, tokens, flex, stream):
        draws = random.Random(number)
        prompt = " ".join(str(draws.randrange(1, 50)) for _ in range(self.options.prompt_words)) + "=48:"
        body = {"model": self.name, "prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "seed": number, "stream": stream, **({"service_tier": "flex"} if flex else {})}
        answer = requests.post(self.url + "/v1/completions", json=body, stream=stream, timeout=600)
        if answer.status_code != 200:
            raise RuntimeError(f"{answer.status_code} {answer.text[:500]}")
        return answer

    def sampled(self):
        text = requests.get(self.url + "/metrics", timeout=60).text
        return float(re.search(r"^lockstep_engine_sampled_tokens_total (\S+)$", text, re.MULTILINE)[1])


class Load:
    """Live requests at `rate` a second and `rollouts` at a time, for the measured seconds behind those that warm up."""

    def __init__(self, server, rate, rollouts, flex=True):
        self.server, self.flex, self.options = server, flex, server.options
        self.end, self.lock = threading.Event(), threading.Lock()
        self.gaps, self.firsts, self.live_tokens, self.faults = [], [], 0, []
        self.began = time.perf_counter()
        threads = [threading.Thread(target=self.guarded, args=(self.roll, i)) for i in range(rollouts)]
        for thread in threads:
            thread.start()
        answers = self.arrive(rate)
        while time.perf_counter() < self.began + WARM_SECONDS:
            time.sleep(0.01)
        sampled, at = server.sampled(), time.perf_counter()
        time.sleep(max(0, self.began + WARM_SECONDS + self.options.seconds - time.perf_counter()))
        sampled, seconds = server.sampled() - sampled, time.perf_counter() - at
        self.end.set()
        for thread in threads + [answers]:
            thread.join()
        if self.faults:
            raise RuntimeError(self.faults[0])
        self.tokens_second = sampled / seconds
        self.rollout_tokens_second = (sampled - self.live_tokens) / seconds

    def guarded(self, work, *arguments):
        try:
            work(*arguments)
        except Exception as fault:  # noqa: BLE001
            self.faults.append(repr(fault))
            self.end.set()

    def roll(self, thread):
        call = 0
        while not self.end.is_set():
            self.server.complete(1_000_000 + 1000 * call + thread, self.options.rollout_tokens, self.flex, False)
            call += 1

    def arrive(self, rate):
        def clock():
            draws, at, number, open_ones = random.Random(7), self.began, 0, []
            while rate > 0:
                at += draws.expovariate(rate)
                if self.end.wait(max(0, at - time.perf_counter())):
                    break
                open_ones.append(threading.Thread(target=self.guarded, args=(self.ask, number)))
                open_ones[-1].start()
                number += 1
            for one in open_ones:
                one.join()

        thread = threading.Thread(target=clock)
        thread.start()
        return thread

    def ask(self, number):
        came = told = time.perf_counter()
        is_first = True
        for line in self.server.complete(number, self.options.live_tokens, False, True).iter_lines(chunk_size=None):
            if not line.startswith(b"data: {"):
                continue
            now = time.perf_counter()
            if self.began + WARM_SECONDS <= now < self.began + WARM_SECONDS + self.options.seconds:
                with self.lock:
                    self.live_tokens += 1
                    (self.firsts if is_first else self.gaps).append(now - (came if is_first else told))
            is_first, told = False, now

    def figures(self):
        return {"gap_ms": {p: round(1000 * percentile(self.gaps, p), 1) for p in (50, 95, 99)}, "first_ms": {p: round(1000 * percentile(self.firsts, p), 1) for p in (50, 95, 99)},
                "live_answers": len(self.firsts), "rollout_tokens_second": round(self.rollout_tokens_second, 1)}


def percentile(values, percent):
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)] if values else 0.0


def capacity(server):
    """Live answers a second, of as many streams at a time as rollouts."""
    return Load(server, 0, server.options.rollouts, flex=False).tokens_second / server.options.live_tokens


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="models/countdown-glm")
    parser.add_argument("--lockstep", default="build/lockstep")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--bound", type=float, default=40, help="milliseconds of --live-token-ms")
    parser.add_argument("--seconds", type=float, default=40, help="that each load is measured")
    parser.add_argument("--rollouts", type=int, default=64, help="at a time")
    parser.add_argument("--load", type=float, default=0.3, help="live answers, of those that the server could give")
    parser.add_argument("--live-tokens", type=int, default=64)
    parser.add_argument("--rollout-tokens", type=int, default=128)
    parser.add_argument("--prompt-words", type=int, default=12)
    parser.add_argument("--json")
    options = parser.parse_args()
    found = {"model": Path(options.model).name, "bound_ms": options.bound, "rollouts": options.rollouts, "load": options.load}
    with Server(options, options.bound) as server:
        rate = options.load * capacity(server)
        found["live_answers_a_second"] = round(rate, 2)
        for name, arguments in {"live alone": (rate, 0), "rollouts alone": (0, options.rollouts), "with --live-token-ms": (rate, options.rollouts)}.items():
            found[name] = Load(server, *arguments).figures()
    with Server(options, 0) as server:
        found["by shares"] = Load(server, rate, options.rollouts).figures()
        found["without classes"] = Load(server, rate, options.rollouts, flex=False).figures()
    text = json.dumps(found, indent=1)
    print(text)
    if options.json:
        Path(options.json).write_text(text + "\n")


if __name__ == "__main__":
    main()
