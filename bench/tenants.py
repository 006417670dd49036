#!/usr/bin/env python3
"""Measures how much tenants of one server slow each other down: the time of a training step of one key alone, under completion loops of another,
under loops of another's samples, and beside another's trainer; the completions' throughput with and without training; and the time between two
tokens of one live stream, on an idle server, beside training steps, and beside a trainer that saves its model after each step. A server with a
key file of its own is started for it. Medians; seconds of the device by key are those of /metrics.

    python3 bench/tenants.py [--model models/countdown-glm] [--lockstep build/lockstep] [--loops 16] [--steps 20] [--shares live=60,...] [--json FILE]
    python3 bench/tenants.py --gaps --model SMOLLM2/bf16 --sequences 4 --length 256 --rank 0 [--streams 3]     the stream alone
    python3 bench/tenants.py --all --large SMOLLM2/bf16 --disk FOLDER [--rounds 3] [--json FILE]               the rows of docs/performance.md

--all needs the programs `ninja -C build giving_way gradient_files`. Needs the package requests."""
import argparse
import contextlib
import json
import re
import statistics
import tempfile
import threading
import time
from pathlib import Path

import requests

from started_server import StartedServer

KEYS = {name: f"{name}-0123456789abcdef" for name in ("trainer", "second", "caller", "sampler")}


class Server(StartedServer):
    def __init__(self, options, folder):
        keys = Path(folder) / "keys.txt"
        keys.write_text("".join(f"{name} {key}\n" for name, key in KEYS.items()))
        self.name = Path(options.model).name
        command = [options.lockstep, "serve", "--model", options.model, "--port", "0", "--threads", str(options.threads), "--training", "--state", f"{folder}/state",
                   "--api-key-file", str(keys), "--shares", options.shares, "--max-open", "4096", "--no-access-log", "--log-level", "error"]
        super().__init__(command)

    def post(self, key, path, body):
        answer = requests.post(self.url + path, json=body, headers={"X-API-Key": KEYS[key]}, timeout=600)
        if answer.status_code != 200:
            raise RuntimeError(f"{path}: {answer.status_code} {answer.text[:500]}")
        return answer

    def device_seconds(self):
        text = requests.get(self.url + "/metrics", headers={"X-API-Key": KEYS["caller"]}, timeout=60).text
        found = re.findall(r'^lockstep_device_seconds_total\{class="(\w+)",key="([^"]*)"\} (\S+)$', text, re.MULTILINE)
        return {f"{work} {key}": float(seconds) for work, key, seconds in found}


class Trainer:
    """One key's model, and a step of `sequences` x `length` tokens."""

    def __init__(self, server, key, sequences, length, rank=32):
        self.server, self.key, self.number = server, key, 0
        session = self.ask("create_session", tags=[], user_metadata={})["session_id"]
        self.model = self.result(self.ask("create_model", session_id=session, model_seq_id=0, base_model=server.name, lora_config={"rank": rank}))["model_id"]
        self.session = session
        tokens = [1 + i % 29 for i in range(length + 1)]  # ids that every model has
        datum = {"model_input": {"chunks": [{"type": "encoded_text", "tokens": tokens[:-1]}]}, "loss_fn_inputs": {"target_tokens": {"dtype": "int64", "data": tokens[1:]}}}
        self.batch = {"data": [datum] * sequences, "loss_fn": "cross_entropy"}

    def ask(self, route, **fields):
        return self.server.post(self.key, "/api/v1/" + route, fields).json()

    def result(self, asked):
        while True:
            answer = requests.post(self.server.url + "/api/v1/retrieve_future", json={"request_id": asked["request_id"]}, headers={"X-API-Key": KEYS[self.key]}, timeout=600)
            if answer.status_code == 408:
                continue
            if answer.status_code != 200:
                raise RuntimeError(answer.text[:500])
            return answer.json() if "json" in answer.headers["content-type"] else answer.content

    def numbered(self, route, **fields):
        self.number += 1
        return self.ask(route, model_id=self.model, seq_id=self.number, **fields)

    def step(self):
        began = time.perf_counter()
        backward = self.numbered("forward_backward", forward_backward_input=self.batch)
        step = self.numbered("optim_step", adam_params={"learning_rate": 1e-4})
        self.result(backward)
        self.result(step)
        return time.perf_counter() - began

    def saved_step(self):
        self.step()
        self.result(self.numbered("save_weights", path="last", overwrite=True))

    def sampler(self):
        made = self.ask("create_sampling_session", session_id=self.session, sampling_session_seq_id=0, base_model=self.server.name)
        return made["sampling_session_id"]


@contextlib.contextmanager
def loops(count, work):
    """`count` threads that call work(thread, call) over and over; a list of what it returned."""
    end, done = threading.Event(), []

    def loop(thread):
        call = 0
        while not end.is_set():
            done.append(work(thread, call))
            call += 1

    threads = [threading.Thread(target=loop, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    time.sleep(1)
    try:
        yield done
    finally:
        end.set()
        for thread in threads:
            thread.join()


def completion(server, tokens):
    def work(thread, call):
        body = {"model": server.name, "prompt": "3 7 12=48:", "max_tokens": tokens, "ignore_eos": True, "seed": thread * 1000 + call}
        return server.post("caller", "/v1/completions", body).json()["usage"]["completion_tokens"]
    return work


def throughput(done, seconds):
    """Tokens per second of the completions that end during the measured time."""
    before = sum(done)
    began = time.perf_counter()
    time.sleep(seconds)
    return (sum(done) - before) / (time.perf_counter() - began)


def gaps_of(server, options):
    """Seconds between two tokens of `streams` streams, one after the other."""
    gaps = []
    for stream in range(options.streams):
        body = {"model": server.name, "prompt": [3, 7, 12, 48], "max_tokens": options.tokens, "ignore_eos": True, "stream": True, "seed": stream, "temperature": 1}
        with requests.post(server.url + "/v1/completions", json=body, headers={"X-API-Key": KEYS["caller"]}, stream=True, timeout=600) as answer:
            if answer.status_code != 200:
                raise RuntimeError(answer.text[:500])
            told = [time.perf_counter() for line in answer.iter_lines(chunk_size=1) if line.startswith(b"data: {")]
        gaps += [after - before for before, after in zip(told, told[1:])]
    return gaps


def longest_stretches(server):
    text = requests.get(server.url + "/metrics", headers={"X-API-Key": KEYS["caller"]}, timeout=60).text
    return {kind: float(value) for kind, value in re.findall(r'^lockstep_device_longest_stretch_seconds\{kind="(\w+)"\} (\S+)$', text, re.MULTILINE)}


def measure_gaps(options, server):
    trainer = Trainer(server, "trainer", options.sequences, options.length, options.rank)
    alone = [trainer.step() for _ in range(3)][1:]
    gaps_of(server, options)

    def row(name):
        gaps = sorted(gaps_of(server, options))
        return {"company": name, "tokens": len(gaps), "median": statistics.median(gaps), "p99": gaps[int(0.99 * len(gaps))], "most": gaps[-1]}

    rows = [row("an idle server")]
    with loops(1, lambda thread, call: trainer.step()):
        rows.append(row("training steps"))
    with loops(1, lambda thread, call: trainer.saved_step()):
        rows.append(row("training steps and saves"))
    return {"step_alone": min(alone), "gaps": rows, "longest_stretch": longest_stretches(server)}


def measure(options, server):
    trainer = Trainer(server, "trainer", options.sequences, options.length)
    second = Trainer(server, "second", options.sequences, options.length)
    sampling = Trainer(server, "sampler", 1, 8)
    sampler = sampling.sampler()
    trainer.step(), second.step()
    numbers = iter(range(1 << 30))

    def sample(thread, call):
        prompt = {"chunks": [{"type": "encoded_text", "tokens": [3, 7, 12]}]}
        fields = {"sampling_session_id": sampler, "seq_id": next(numbers), "num_samples": 1, "prompt": prompt, "sampling_params": {"max_tokens": options.tokens, "stop": []}}
        sampling.result(sampling.ask("asample", **fields))
        return options.tokens

    rows = []

    def row(name, **more):
        before = server.device_seconds()
        times = [trainer.step() for _ in range(options.steps)]
        after = server.device_seconds()
        used = {key: round(value - before.get(key, 0), 3) for key, value in after.items() if value - before.get(key, 0) > 0.001}
        rows.append({"company": name, "median": statistics.median(times), "least": min(times), "most": max(times), "device_seconds": used, **more})

    row("alone")
    with loops(options.loops, completion(server, options.tokens)) as done:
        alone = throughput(done, options.seconds)
        with loops(1, lambda thread, call: trainer.step()):
            beside = throughput(done, options.seconds)
        row(f"{options.loops} completion loops", tokens_a_second=beside, tokens_a_second_without_training=alone)
    with loops(options.loops // 2, sample):
        row(f"{options.loops // 2} loops of samples")
    with loops(1, lambda thread, call: second.step()):
        row("another key's trainer")
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="models/countdown-glm")
    parser.add_argument("--lockstep", default="build/lockstep")
    parser.add_argument("--shares", default="live=60,rollouts=20,training=20")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--loops", type=int, default=16)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--sequences", type=int, default=8)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=400, help="of a completion or sample")
    parser.add_argument("--seconds", type=float, default=10, help="of each measurement of throughput")
    parser.add_argument("--gaps", action="store_true", help="the time between two tokens of a live stream, and nothing else")
    parser.add_argument("--streams", type=int, default=3, help="of each row of --gaps, one after the other")
    parser.add_argument("--rank", type=int, default=32, help="of the model that is trained for --gaps; 0: all parameters")
    parser.add_argument("--all", action="store_true", help="every row that has a goal (bench/tenants_rows.py)")
    parser.add_argument("--rounds", type=int, default=3, help="of --all: ten steps, two streams, three rounds of programs each")
    parser.add_argument("--large", help="of --all: SmolLM2-135M in bf16")
    parser.add_argument("--disk", default=".", help="of --all: a folder on the disk that is measured")
    parser.add_argument("--json", help="writes the rows here, too")
    options = parser.parse_args()
    if options.all:
        import tenants_rows  # which imports this file

        rows = tenants_rows.all_rows(options)
        if options.json:
            Path(options.json).write_text(json.dumps({"threads": options.threads, "rounds": options.rounds, "rows": rows}, indent=1) + "\n")
        return
    with tempfile.TemporaryDirectory() as folder, Server(options, folder) as server:
        rows = measure_gaps(options, server) if options.gaps else measure(options, server)
    if options.gaps:
        print(f"a step of {options.sequences} x {options.length} tokens alone: {1000 * rows['step_alone']:.0f} ms")
        for one in rows["gaps"]:
            print(f"between two tokens of a stream: median {1000 * one['median']:6.1f} ms, p99 {1000 * one['p99']:6.1f}, most {1000 * one['most']:6.1f}  beside {one['company']} ({one['tokens']} tokens)")
        print("the longest that a piece did not give way: " + ", ".join(f"{kind} {1000 * seconds:.0f} ms" for kind, seconds in sorted(rows["longest_stretch"].items())))
    for one in [] if options.gaps else rows:
        print(f"step {1000 * one['median']:8.1f} ms ({1000 * one['least']:.1f} to {1000 * one['most']:.1f})  {one['company']}")
        print(f"     device seconds: {', '.join(f'{key} {value}' for key, value in one['device_seconds'].items())}")
        if "tokens_a_second" in one:
            print(f"     completions: {one['tokens_a_second']:.0f} tokens/s beside training, {one['tokens_a_second_without_training']:.0f} without")
    if options.json:
        Path(options.json).write_text(json.dumps({"options": vars(options), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
