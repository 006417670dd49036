"""Rows of docs/performance.md on tenants (bench/tenants.py --all): each figure and its goal. This file combines measurements; servers, trainers and
the measurements themselves are bench/tenants.py's.

    rows = tenants_rows.all_rows(options)     [{"what", "measured", "goal"}]"""
import json
import re
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import requests

import tenants

PLACES = 256  # sequences of an engine that run at a time
TOKENS, STREAMS = 40, 9


def ms(seconds):
    return f"{1000 * seconds:.1f} ms"


def row(what, measured, goal=""):
    print(f"{what}: {measured}" + (f" (goal: {goal})" if goal else ""), flush=True)
    return {"what": what, "measured": measured, "goal": goal}


def served(options, folder, work, **changed):
    """work(server, options) with a server for it."""
    own = type(options)(**{**vars(options), **changed})
    with tenants.Server(own, folder) as server:
        return work(own, server)


def step_rows(measured):
    by_name = {one["company"]: one for one in measured}
    alone, loops = by_name["alone"], next(one for name, one in by_name.items() if "completion" in name)
    trainer, samples = by_name["another key's trainer"], next(one for name, one in by_name.items() if "samples" in name)
    of, t = "countdown-glm, a training step of 8 x 64 tokens", alone["median"]

    def spread(one):
        return f"{ms(one['median'])} ({1000 * one['least']:.1f} to {1000 * one['most']:.1f})"

    return [row(f"{of}, alone (t)", spread(alone)),
            row(f"{of}, under 16 completion loops of another key", f"{spread(loops)}: {loops['median'] / t:.1f} t", f"6 t + 50 ms = {ms(6 * t + 0.05)}"),
            row(f"{of}, under 8 loops of another key's samples", f"{spread(samples)}: {samples['median'] / t:.1f} t"),
            row(f"{of}, beside another key's trainer", f"{spread(trainer)}: {trainer['median'] / t:.2f} t", f"2.2 t = {ms(2.2 * t)}"),
            row("completions of 16 loops beside that training, of those without", f"{loops['tokens_a_second'] / loops['tokens_a_second_without_training']:.2f} "
                f"({loops['tokens_a_second']:.0f} of {loops['tokens_a_second_without_training']:.0f} tokens/s)", "0.75")]  # fmt: skip


def gap_rows(measured):
    idle, beside, saved = measured["gaps"]

    def told(one):
        return f"median {ms(one['median'])}, p99 {ms(one['p99'])}, longest {ms(one['most'])}"

    of = "SmolLM2-135M, between two tokens of a live stream"
    return [row(f"{of}, on an idle server", told(idle)),
            row(f"{of}, beside training steps of 4 x 256 tokens", f"{told(beside)}: p99 {1000 * (beside['p99'] - idle['p99']):.1f} ms more", "25 ms more at most"),
            row(f"{of}, beside the same, saved after each", told(saved))]  # fmt: skip


def figures(server):
    text = requests.get(server.url + "/metrics", headers={"X-API-Key": tenants.KEYS["caller"]}, timeout=60).text
    names = {"forwards": "lockstep_engine_forwards_total", "firsts": "lockstep_time_to_first_token_seconds_count", "first": "lockstep_time_to_first_token_seconds_sum",
             "whole": "lockstep_sequence_seconds_sum", "ended": "lockstep_sequence_seconds_count"}  # fmt: skip
    told = {name: float(re.search(rf"^{metric} (\S+)$", text, re.M)[1]) for name, metric in names.items()}
    told["device"] = sum(float(seconds) for seconds in re.findall(r'^lockstep_device_seconds_total\{class="live",key="[^"]*"\} (\S+)$', text, re.M))
    return told


def stream(server, key, tokens, seed):
    body = {"model": server.name, "prompt": "3 7 12=48:", "max_tokens": tokens, "ignore_eos": True, "stream": True, "seed": seed}
    return requests.post(server.url + "/v1/completions", json=body, headers={"X-API-Key": tenants.KEYS[key]}, stream=True, timeout=600)


def streams_rows(options, server, many):
    """One stream of a key after another, beside `many` of another key. The many are opened and not read: 480 tokens fit into socket buffers."""
    held = [None] * many

    def hold(i):
        held[i] = stream(server, "caller", 480, i)

    before = figures(server)["firsts"]
    threads = [threading.Thread(target=hold, args=(i,)) for i in range(many)]
    for thread in threads:
        thread.start()
    while figures(server)["firsts"] - before < min(many, PLACES):
        time.sleep(0.01)
    seen = []
    for seed in range(STREAMS):
        begin = figures(server)
        with stream(server, "second", TOKENS, seed) as answer:
            for _ in answer.iter_lines():
                pass
        after = figures(server)
        seen.append({name: after[name] - begin[name] for name in after})
    for thread in threads:
        thread.join()
    for one in held:
        one.close()
    alone = [one for one in seen if one["firsts"] == 1 and one["ended"] == 1]  # nobody else began or ended meanwhile
    if not alone:
        raise RuntimeError(f"others began or ended beside every stream: {seen}")
    step = statistics.median(one["device"] / one["forwards"] for one in alone)
    first = statistics.median(one["first"] * one["forwards"] / one["device"] for one in alone)
    rest = statistics.median((one["whole"] - one["first"]) * one["forwards"] / one["device"] for one in alone)
    return [row(f"countdown-glm, one stream beside {many} of another key, a step of {ms(step)}", f"first token after {first:.1f} steps; {TOKENS - 1} more in {rest:.1f} steps",
                f"3 steps (two and its own prompt); {TOKENS - 1} steps")]  # fmt: skip


def create_rows(options, server):
    """Models of all parameters that are made one after the other beside a live stream."""
    tenants.gaps_of(server, options)
    idle = sorted(tenants.gaps_of(server, options))
    with tenants.loops(1, lambda thread, call: tenants.Trainer(server, "trainer", 1, 8, 0)) as made:
        beside = sorted(tenants.gaps_of(server, options))
    stretch = tenants.longest_stretches(server)
    p99 = [gaps[int(0.99 * len(gaps))] for gaps in (idle, beside)]
    return [row(f"SmolLM2-135M, between two tokens of a live stream, beside models of all parameters that are made ({len(made)} of them)",
                f"p99 {ms(p99[1])}, longest {ms(beside[-1])}; idle p99 {ms(p99[0])}, longest {ms(idle[-1])}"),
            row("the longest that the making of such a model does not give way", ms(stretch["create"]), "25 ms")]  # fmt: skip


def program_rows(options):
    built = Path(options.lockstep).parent / "bench"
    out = subprocess.run([built / "giving_way", options.large, options.model, "--rounds", str(3 * options.rounds), "--threads", str(options.threads)], check=True,
                         capture_output=True, text=True).stdout  # fmt: skip
    training, completions = json.loads(out)["rows"]
    rows = [row("SmolLM2-135M, a training step alone, giving way, of the same without", f"{100 * (training['ratio'] - 1):+.2f} % ({ms(training['with'])} and {ms(training['without'])}; "
                f"rounds {100 * (min(training['ratios']) - 1):+.2f} to {100 * (max(training['ratios']) - 1):+.2f} %)", "1 % at most"),
            row("countdown-glm, tokens of 16 streams of one key without training, by shares, of an engine without shares",
                f"{1 / completions['ratio']:.3f} (rounds {1 / max(completions['ratios']):.3f} to {1 / min(completions['ratios']):.3f})", "0.99")]  # fmt: skip
    with tempfile.TemporaryDirectory(dir=options.disk) as folder:
        out = subprocess.run([built / "gradient_files", folder, str(max(3, options.rounds))], check=True, capture_output=True, text=True).stdout
    for what, disk, own, ratio in re.findall(r"^(\w+) +disk +(\d+) MB/s +accumulators +(\d+) MB/s +(\S+) of it", out, re.M):
        rows.append(row(f"SmolLM2-135M, accumulators {'to' if what == 'write' else 'from'} the disk, of plain {what}s of the same bytes", f"{ratio} ({own} of {disk} MB/s)", "0.7"))
    return rows


def all_rows(options):
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        rows += step_rows(served(options, folder, tenants.measure, steps=10 * options.rounds))
    for many in (64, 600):
        with tempfile.TemporaryDirectory() as folder:
            rows += served(options, folder, lambda own, server, many=many: streams_rows(own, server, many))
    large = {"model": options.large, "sequences": 4, "length": 256, "rank": 0, "streams": 2 * options.rounds}
    with tempfile.TemporaryDirectory() as folder:
        rows += gap_rows(served(options, folder, tenants.measure_gaps, **large))
    with tempfile.TemporaryDirectory() as folder:
        rows += served(options, folder, create_rows, **large)
    return rows + program_rows(options)
