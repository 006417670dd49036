#!/usr/bin/env python3
"""A server under mixed load for long enough to see what grows: samplers, trainers and completion loops of ten keys, beside clients that crash
in the middle of their work and clients that send invalid requests. Asserts that no ordinary request fails, that each class
of work has its share of the device's seconds in every window, or all that it asked for, and that memory and file handles stay where they were.
Seconds of a step of the engine, in which live answers and rollouts stand together, are told by their tokens: a class whose rows are few has few of
them, and lacks nothing while none of its sequences waits for a place.

    python3 bench/soak.py [--minutes 60] [--json FILE] [--svg FILE] [--page FILE] [--lockstep build/lockstep] [--model models/countdown-glm]

Ends with 1 and says why where one of them does not hold. --json: all that was measured, --svg: shares over time as a picture, --page: puts its
figures into a page, between the lines soak: begin and soak: end. Needs nothing but Python."""
import argparse
import http.client
import json
import math
import os
import random
import re
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import svg_plot  # noqa: E402
from marked_page import write_between_marks  # noqa: E402
from started_server import StartedServer  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
KEYS = [f"key{i}" for i in range(10)]
SECRETS = {name: f"{name}-soak-0123456789abcdef" for name in KEYS}
SHARES = {"live": 60, "rollouts": 20, "training": 20}
SAMPLERS, TRAINERS, LOOPS, CRASHING, HOSTILE = 64, 8, 16, 4, 4
# By their keys: crashing and hostile clients have keys that ordinary ones have, too.
SAMPLER_KEYS, TRAINER_KEYS, LOOP_KEYS, CRASHING_KEYS, HOSTILE_KEYS = KEYS[0:4], KEYS[2:6], KEYS[4:8], KEYS[7:9], KEYS[8:10]
WINDOW = 10.0        # seconds in which each class must have its share ...
SLACK, MEAN_SLACK = 0.5, 0.85  # ... times this, and the mean of all: a window ends in the middle of pieces, clients are away between a result and the next request
SAMPLE_SECONDS = 2.0
MEGABYTES = 500      # that the server may take
COLOURS = {"live": "#1f6feb", "rollouts": "#2da44e", "training": "#bc4c00"}


class Refused(Exception):
    def __init__(self, status, text):
        super().__init__(f"{status} {text[:300]}")
        self.status = status


class Client:
    """One connection of one key."""

    def __init__(self, port, key):
        self.port, self.key, self.connection = port, key, None

    def raw(self, method, path, body=None, headers=None, seconds=300):
        """(status, content type, bytes of the answer)."""
        for again in (True, False):
            if not self.connection:
                self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)
            try:
                self.connection.request(method, path, body, {"X-API-Key": SECRETS[self.key], **(headers or {})})
                answer = self.connection.getresponse()
                return answer.status, answer.getheader("content-type", ""), answer.read()
            except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
                self.close()  # an idle connection that the server closed
                if not again:
                    raise
        raise AssertionError

    def ask(self, path, /, **fields):
        status, _, content = self.raw("POST", path, json.dumps(fields), {"Content-Type": "application/json"})
        if status != 200:
            raise Refused(status, content.decode(errors="replace"))
        return json.loads(content)

    def api(self, route, /, **fields):
        return self.ask("/api/v1/" + route, **fields)

    def result(self, asked):
        while True:
            status, kind, content = self.raw("POST", "/api/v1/retrieve_future", json.dumps({"request_id": asked["request_id"]}), {"Content-Type": "application/json"})
            if status == 408:
                continue
            if status != 200:
                raise Refused(status, content.decode(errors="replace"))
            if "json" not in kind:
                return content
            answer = json.loads(content)
            if "error" in answer:
                raise Refused(200, answer["error"])
            return answer

    def close(self):
        if self.connection:
            self.connection.close()
        self.connection = None


def batch(draws, sequences, length):
    def datum():
        tokens = [draws.randrange(1, 30) for _ in range(length + 1)]
        return {"model_input": {"chunks": [{"type": "encoded_text", "tokens": tokens[:-1]}]}, "loss_fn_inputs": {"target_tokens": {"dtype": "int64", "data": tokens[1:]}}}
    return {"data": [datum() for _ in range(sequences)], "loss_fn": "cross_entropy"}


class Soak:
    def __init__(self, options, port, pid):
        self.options, self.port, self.pid = options, port, pid
        self.end, self.lock = threading.Event(), threading.Lock()
        self.done = {"samples": 0, "steps": 0, "completions": 0, "crashes": 0, "hostile requests": 0}
        self.failures = []  # of ordinary requests
        self.wrong = []     # answers to hostile ones that were no refusals
        self.series = []

    def count(self, what):
        with self.lock:
            self.done[what] += 1

    # --- ordinary clients

    def sampler(self, client, draws):
        session = client.api("create_session", tags=[], user_metadata={})["session_id"]
        made = client.api("create_sampling_session", session_id=session, sampling_session_seq_id=0, base_model=self.options.name)["sampling_session_id"]
        number = 0
        while not self.end.is_set():
            prompt = {"chunks": [{"type": "encoded_text", "tokens": [draws.randrange(1, 30) for _ in range(8)]}]}
            asked = client.api("asample", sampling_session_id=made, seq_id=number, num_samples=draws.randrange(1, 4), prompt=prompt, sampling_params={"max_tokens": draws.randrange(8, 100), "stop": []})
            client.result(asked)
            number += 1
            self.count("samples")

    def trainer(self, client, draws):
        session = client.api("create_session", tags=[], user_metadata={})["session_id"]
        rank = draws.choice((0, 4, 8))
        model = client.result(client.api("create_model", session_id=session, model_seq_id=0, base_model=self.options.name, lora_config={"rank": rank}))["model_id"]
        number = steps = 0

        def numbered(route, /, **fields):
            nonlocal number
            number += 1
            return client.api(route, model_id=model, seq_id=number, **fields)

        while not self.end.is_set():
            backward = [numbered("forward_backward", forward_backward_input=batch(draws, 8, draws.randrange(16, 64))) for _ in range(draws.randrange(1, 3))]
            step = numbered("optim_step", adam_params={"learning_rate": 1e-4})
            for asked in (*backward, step):
                client.result(asked)
            steps += 1
            self.count("steps")
            if steps % 20 == 0:
                client.result(numbered("save_weights", path="last", overwrite=True))
            if steps % 10 == 0:
                client.result(numbered("save_weights_for_sampler"))
            if steps % 5 == 0:
                client.api("session_heartbeat", session_id=session)

    def completion(self, client, draws):
        while not self.end.is_set():
            fields = {"model": self.options.name, "prompt": f"{draws.randrange(1, 50)} {draws.randrange(1, 50)} 12=48:", "max_tokens": draws.randrange(50, 400), "ignore_eos": True}
            if draws.random() < 0.5:
                if client.ask("/v1/completions", **fields)["usage"]["completion_tokens"] != fields["max_tokens"]:
                    raise Refused(200, "a completion of another length than was asked for")
            else:
                status, _, content = client.raw("POST", "/v1/completions", json.dumps({**fields, "stream": True}), {"Content-Type": "application/json"})
                if status != 200 or not content.rstrip().endswith(b"data: [DONE]"):
                    raise Refused(status, content[-300:].decode(errors="replace"))
            self.count("completions")

    # --- the others

    def crashing(self, key, draws):
        """Disconnects between forward_backward and optim_step, and in the middle of an answer, and never returns to its sessions."""
        while not self.end.is_set():
            client = Client(self.port, key)
            session = client.api("create_session", tags=[], user_metadata={})["session_id"]
            model = client.result(client.api("create_model", session_id=session, model_seq_id=0, base_model=self.options.name, lora_config={"rank": draws.choice((0, 4))}))["model_id"]
            asked = client.api("forward_backward", model_id=model, seq_id=1, forward_backward_input=batch(draws, 4, 32))
            if draws.random() < 0.5:
                client.result(asked)
            client.close()
            fields = {"model": self.options.name, "prompt": "3 7 12=48:", "max_tokens": 400, "ignore_eos": True, "stream": True}
            client.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            client.connection.request("POST", "/v1/completions", json.dumps(fields), {"Content-Type": "application/json", "X-API-Key": SECRETS[key]})
            client.connection.getresponse().read(100)
            client.close()
            self.count("crashes")
            self.end.wait(2)

    def hostile(self, key, draws):
        client = Client(self.port, key)
        other = "s-0123456789:train:0"
        nothing = {"model_id": other, "seq_id": 1}
        bodies = [
            ("/api/v1/forward_backward", json.dumps({**nothing, "forward_backward_input": batch(draws, 1, 8)})),
            ("/api/v1/optim_step", '{"model_id": "x", "seq_id": 1, "adam_params": {"learning_rate": null}}'),
            ("/api/v1/create_model", "{" * 50000),
            ("/api/v1/create_model", json.dumps({"session_id": "nobody's", "model_seq_id": -1})),
            ("/api/v1/asample", json.dumps({"sampling_session_id": "another's", "seq_id": 1e400})),
            ("/api/v1/load_weights", json.dumps({**nothing, "path": "../../../etc/passwd"})),
            ("/api/v1/retrieve_future", json.dumps({"request_id": "0" * 5000})),
            ("/v1/completions", json.dumps({"model": self.options.name, "prompt": [2**40], "max_tokens": 5})),
            ("/v1/completions", json.dumps({"model": self.options.name, "prompt": "1", "max_tokens": -1, "temperature": "NaN"})),
            ("/v1/chat/completions", b"\xff\xfe" * 2000),
            ("/v1/nothing", "{}"),
        ]
        while not self.end.is_set():
            path, body = draws.choice(bodies)
            if draws.random() < 0.3:
                body = body[: draws.randrange(len(body) + 1)]
            status, _, content = client.raw("POST", path, body, {"Content-Type": draws.choice(("application/json", "application/x-protobuf", "text/plain"))})
            self.count("hostile requests")
            refused = 400 <= status < 500 or (status == 200 and b'"error"' in content) or b'"request_id"' in content
            if not refused:
                with self.lock:
                    self.wrong.append(f"{path} {body[:100]!r}: {status} {content[:200]!r}")
            self.end.wait(0.1)

    def run(self, name, number, work, *arguments):
        try:
            work(*arguments, random.Random(f"{self.options.seed} {name} {number}"))
        except Exception as e:  # told below: a thread's own is lost
            if not self.end.is_set():
                with self.lock:
                    self.failures.append(f"{name} {number}: {type(e).__name__} {e}")

    # --- what is seen from outside

    def sample(self, client, began):
        _, _, content = client.raw("GET", "/metrics")
        text = content.decode()
        seconds = {}
        for work, key, value in re.findall(r'^lockstep_device_seconds_total\{class="(\w+)",key="([^"]*)"\} (\S+)$', text, re.MULTILINE):
            seconds[f"{work} {key}"] = float(value)
        waiting = {}
        for work, value in re.findall(r'^lockstep_key_sequences_waiting\{class="(\w+)",key="[^"]*"\} (\S+)$', text, re.MULTILINE):
            waiting[work] = waiting.get(work, 0) + int(float(value))
        stretches = dict(re.findall(r'^lockstep_device_longest_stretch_seconds\{kind="(\w+)"\} (\S+)$', text, re.MULTILINE))
        status = Path(f"/proc/{self.pid}/status").read_text()
        self.series.append({"at": round(time.monotonic() - began, 2), "device_seconds": seconds, "sequences_waiting": waiting, "megabytes": int(status.split("VmRSS:")[1].split()[0]) / 1024,
                            "files": len(os.listdir(f"/proc/{self.pid}/fd")), "threads": int(status.split("Threads:")[1].split()[0]),
                            "longest_stretch": {kind: float(value) for kind, value in stretches.items()}})

    def soak(self):
        work = [*[("sampler", i, self.sampler, Client(self.port, SAMPLER_KEYS[i % len(SAMPLER_KEYS)])) for i in range(SAMPLERS)],
                *[("trainer", i, self.trainer, Client(self.port, TRAINER_KEYS[i % len(TRAINER_KEYS)])) for i in range(TRAINERS)],
                *[("completion loop", i, self.completion, Client(self.port, LOOP_KEYS[i % len(LOOP_KEYS)])) for i in range(LOOPS)],
                *[("crashing client", i, self.crashing, CRASHING_KEYS[i % len(CRASHING_KEYS)]) for i in range(CRASHING)],
                *[("hostile client", i, self.hostile, HOSTILE_KEYS[i % len(HOSTILE_KEYS)]) for i in range(HOSTILE)]]
        threads = [threading.Thread(target=self.run, args=one, daemon=True) for one in work]
        for thread in threads:
            thread.start()
        began, watcher = time.monotonic(), Client(self.port, KEYS[9])
        while time.monotonic() - began < 60 * self.options.minutes and not self.failures:
            self.sample(watcher, began)
            time.sleep(SAMPLE_SECONDS)
        self.sample(watcher, began)
        self.end.set()
        for thread in threads:
            thread.join(timeout=60)
        return [thread for thread in threads if thread.is_alive()]


def by_class(sample):
    return {work: sum(v for name, v in sample["device_seconds"].items() if name.split()[0] == work) for work in SHARES}


def windows(series):
    """[(seconds, {class: percent of the device's seconds in it}, {class: whether it had sequences that waited all the time})], of WINDOW seconds."""
    found, first = [], 0
    for i, sample in enumerate(series):
        if sample["at"] - series[first]["at"] < WINDOW:
            continue
        before, after = by_class(series[first]), by_class(sample)
        used = {work: after[work] - before[work] for work in SHARES}
        waited = {work: work == "training" or all(one["sequences_waiting"].get(work) for one in series[first : i + 1]) for work in SHARES}
        found.append((sample["at"], {work: 100 * seconds / max(1e-9, sum(used.values())) for work, seconds in used.items()}, waited))
        first = i
    return found


def verdicts(soak, stuck):
    """The checks that fail, as sentences."""
    bad = [f"an ordinary request failed: {failure}" for failure in soak.failures[:10]]
    bad += [f"a hostile request was not refused: {answer}" for answer in soak.wrong[:10]]
    if stuck:
        bad.append(f"{len(stuck)} clients were still waiting a minute after the end")
    parts = windows(soak.series)[1:]  # the first: not everybody is there
    for at, part, waited in parts:
        bad += [f"at {at:.0f} s {work} had {part[work]:.1f} % of the device's seconds while it waited for more, its share is {percent}" for work, percent in SHARES.items()
                if waited[work] and part[work] < SLACK * percent]
    for work, percent in SHARES.items():
        values = [part[work] for _, part, waited in parts if waited[work]]
        if values and statistics.mean(values) < MEAN_SLACK * percent:
            bad.append(f"{work} had {statistics.mean(values):.1f} % of the device's seconds while it waited for more, its share is {percent}")
    most = max(one["megabytes"] for one in soak.series)
    if most > MEGABYTES:
        bad.append(f"it had {most:.0f} MB of memory, allowed are {MEGABYTES} (--memory-megabytes)")
    quarter = max(1, len(soak.series) // 4)  # by then most of what is kept has reached its bound: models in memory, results, the cache
    for what, most, unit in (("megabytes", 48, "MB of memory"), ("files", 24, "open files"), ("threads", 4, "threads")):
        first, last = (statistics.median(one[what] for one in part) for part in (soak.series[-2 * quarter : -quarter], soak.series[-quarter:]))
        if last > 1.1 * first + most:
            bad.append(f"it had {first:.0f} {unit} at first and {last:.0f} at last")
    return bad


def draw(path, series):
    shares = svg_plot.Panel("shares of the device", "minutes", "percent of its seconds")
    parts = windows(series)
    for work, percent in SHARES.items():
        shares.line([(at / 60, part[work]) for at, part, _ in parts], COLOURS[work])
        shares.line([(0, percent), (series[-1]["at"] / 60, percent)], COLOURS[work], dashed=True)
    shares.y_range = (0, 100)
    memory = svg_plot.Panel("memory of the server", "minutes", "MB")
    memory.line([(one["at"] / 60, one["megabytes"]) for one in series], COLOURS["live"])
    memory.y_range = (0, 1.2 * max(one["megabytes"] for one in series))
    files = svg_plot.Panel("open files", "minutes", "files")
    files.line([(one["at"] / 60, one["files"]) for one in series], COLOURS["live"])
    files.y_range = (0, 1.2 * max(one["files"] for one in series))
    svg_plot.write_svg(Path(path), [shares, memory, files], [*[(work, COLOURS[work], False) for work in SHARES], ("its share", "#57606a", True)])


def words(report):
    parts, series = report["windows"], report["series"]
    lines = [f"{report['minutes']:.1f} minutes on {report['processors']} processors, `python3 bench/soak.py`: {SAMPLERS} samplers, {TRAINERS} trainers, {LOOPS} completion loops,",
             f"{CRASHING} crashing and {HOSTILE} hostile clients of {len(KEYS)} keys. Done: " + ", ".join(f"{count} {what}" for what, count in report["done"].items()) + "; failed: "
             f"{len(report['failures'])}.", "", "| class | share | least, mean and most of windows of 10 s | windows in which its sequences waited for places all the time |", "|---|---|---|---|"]
    for work, percent in SHARES.items():
        values = [part[work] for _, part, _ in parts[1:]] or [math.nan]
        waited = "" if work == "training" else f"{sum(waited[work] for _, _, waited in parts[1:])} of {len(parts) - 1}"
        lines.append(f"| {work} | {percent} % | {min(values):.1f} %, {statistics.mean(values):.1f} %, {max(values):.1f} % | {waited} |")
    quarter = max(1, len(series) // 4)
    lines += ["", "Memory of the server in the third quarter and in the last: " + " and ".join(f"{statistics.median(one['megabytes'] for one in part):.0f} MB" for part in (series[-2 * quarter : -quarter], series[-quarter:])) + "; open files: "
              + " and ".join(f"{statistics.median(one['files'] for one in part):.0f}" for part in (series[-2 * quarter : -quarter], series[-quarter:])) + ".",
              "The longest that training did not give way: " + ", ".join(f"{kind} {1000 * seconds:.0f} ms" for kind, seconds in sorted(series[-1]["longest_stretch"].items())) + "."]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--model", default=str(ROOT / "models/countdown-glm"))
    parser.add_argument("--lockstep", default=os.environ.get("LOCKSTEP_BINARY", str(ROOT / "build/lockstep")))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json")
    parser.add_argument("--svg")
    parser.add_argument("--page")
    options = parser.parse_args()
    options.name = Path(options.model).name
    with tempfile.TemporaryDirectory(prefix="lockstep-soak-") as folder:
        keys = Path(folder) / "keys.txt"
        keys.write_text("".join(f"{name} {secret}\n" for name, secret in SECRETS.items()))
        # Few places in memory, little of it, and sessions that are soon silent: so that what is bounded reaches its bound within these minutes.
        command = [options.lockstep, "serve", "--model", options.model, "--port", "0", "--threads", str(options.threads), "--training", "--state", f"{folder}/state", "--api-key-file", str(keys),
                   "--max-models", "12", "--session-idle-minutes", "1", "--memory-megabytes", str(MEGABYTES), "--cache-megabytes", "40", "--shares", ",".join(f"{work}={percent}" for work, percent in SHARES.items()), "--no-access-log", "--log-level", "error"]
        server = StartedServer(command)
        try:
            soak = Soak(options, int(server.address.partition(":")[2]), server.process.pid)
            stuck = soak.soak()
            alive = server.process.poll() is None
        finally:
            status = server.stop()
    bad = verdicts(soak, stuck)
    if not alive or status != 0:
        bad.append(f"the server ended with {status}")
    report = {"minutes": soak.series[-1]["at"] / 60, "processors": os.cpu_count(), "shares": SHARES, "done": soak.done, "failures": soak.failures, "wrong": soak.wrong,
              "verdict": bad or ["good"], "windows": windows(soak.series), "series": soak.series}
    if options.json:
        Path(options.json).write_text(json.dumps(report, indent=1) + "\n")
    if options.svg:
        draw(options.svg, soak.series)
    if options.page:
        write_between_marks(Path(options.page), "soak", words(report))
    print(words(report))
    for line in bad:
        print(f"FAILED: {line}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
