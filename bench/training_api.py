#!/usr/bin/env python3
"""The training API's costs, measured through the real `tinker` SDK against servers that this script starts: a fused loss
beside the same loss as a function in the client and as one traced to the server, with and without forwards kept for their gradients; a
training step over HTTP beside one in process, many samplers and trainers at once, small batches of eight adapters in shared passes beside
passes of their own, the first result of a call in many requests, and how long a new version takes to be sampled. Ratios are of runs in
turns; medians. With --offload instead: a server with --offload-optimizer beside one without, each training --trainers models by turns:
peak memory and time of a step, the bytes that a step reads and writes, and beside them the rate at which a plain copy of a file of that size goes.

    python3 bench/training_api.py --model models/countdown-glm [--lockstep build/lockstep] [--rounds 7] [--parts fused ...] [--json FILE]
    python3 bench/training_api.py --offload --model FOLDER [--trainers 4] [--rank 0] [--profile cpu-f32] [--state DIR]

Needs the packages of tools/oracle-requirements.txt (tinker, torch)."""
import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TINKER_TELEMETRY", "0")
import tinker
import torch
from tinker import types

from started_server import StartedServer


def median_range(values):
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def timed(work):
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def make_data(count, length, logprobs=None, advantages=(-1.0, 1.0)):
    data = []
    for i in range(count):
        tokens = [1 + (i * 7 + j * 3) % 29 for j in range(length + 1)]
        inputs = {"target_tokens": tokens[1:]}
        if logprobs is not None:
            inputs.update(logprobs=logprobs[i], advantages=[advantages[i % 2]] * length)
        data.append(types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=inputs))
    return data


def clipped_policy(logprobs, old, advantages):
    ratio = torch.exp(logprobs - old)
    return -torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).sum(), {"custom/ratio:mean": ratio.mean()}


def fused_against_custom(service, base, rounds, rank, traced):
    """The clipped policy loss, fused (one forward, one backward), as a function of the client (a forward, then a gradient) and traced. Of the call with the
    client's function: how long until it, in it and after it, and the processor time of this process, which is the client's own: the SDK, torch, JSON."""
    client = service.create_lora_training_client(base_model=base, rank=rank).result()
    plain = make_data(64, 64)
    old = [o["logprobs"].tolist() for o in client.forward(plain, "cross_entropy").result().loss_fn_outputs]
    fused_data = make_data(64, 64, old)
    traced_data = [types.Datum(model_input=d.model_input, loss_fn_inputs={"target_tokens": d.loss_fn_inputs["target_tokens"], "advantages": d.loss_fn_inputs["advantages"],
                                                                          "old": types.TensorData.from_torch(torch.tensor(old[i]))}) for i, d in enumerate(fused_data)]
    advantages = torch.tensor([[1.0 if i % 2 else -1.0] * 64 for i in range(64)])
    q = torch.tensor(old)

    inside = []

    def loss(data, logprobs):
        begin = time.perf_counter()
        value, metrics = clipped_policy(torch.stack(list(logprobs)), q, advantages)
        metrics = {name: float(metric.detach()) for name, metric in metrics.items()}
        inside.append((begin, time.perf_counter()))
        return value, metrics

    works = {"fused": lambda: client.forward_backward(fused_data, "ppo").result(), "custom": lambda: client.forward_backward_custom(plain, loss).result(),
             "traced": lambda: client.forward_backward_custom(traced_data, traced).result()}
    times, own, calls = {name: [] for name in works}, {name: [] for name in works}, []
    for _ in range(rounds + 1):
        for name, work in works.items():
            processor, begin = time.process_time(), time.perf_counter()
            work()
            end = time.perf_counter()
            times[name].append(end - begin)
            own[name].append(time.process_time() - processor)
            if name == "custom":
                calls.append((begin, *inside[-1], end))
            client.optim_step(types.AdamParams(learning_rate=0.0)).result()
    times, own = ({name: values[1:] for name, values in found.items()} for found in (times, own))
    over = {f"{name}_over_fused": median_range([c / f for c, f in zip(times[name], times["fused"])]) for name in ("custom", "traced")}
    ours = {name: [t - o for t, o in zip(times[name], own[name])] for name in ("fused", "custom")}
    parts = {"forward": [c[1] - c[0] for c in calls[1:]], "function": [c[2] - c[1] for c in calls[1:]], "gradient": [c[3] - c[2] for c in calls[1:]]}
    return {"tokens": 4096, "rank": rank, "seconds": {n: median_range(v) for n, v in times.items()}, **over,
            "custom_parts": {n: median_range(v) for n, v in parts.items()}, "client_seconds": {n: median_range(own[n]) for n in ("fused", "custom")},
            "ours_over_fused": median_range([c / f for c, f in zip(ours["custom"], ours["fused"])])}  # fmt: skip


def clipped(low, high):
    def loss(logprobs, d):
        ratio = torch.exp(logprobs - d["old"])
        return -torch.minimum(ratio * d["advantages"], ratio.clamp(low, high) * d["advantages"]).sum()

    return loss


def dro(logprobs, d):
    return -(d["advantages"] * logprobs - 0.05 / 2 * (logprobs - d["old"]) ** 2).sum()


# What is minimised, in the client; and the ratio that is published for a hosted service.
LOSSES = {"grpo": (clipped(0.8, 1.2), 2.0), "dro": (dro, 1.7), "dapo": (clipped(0.8, 1.28), 1.4), "cross_entropy": (lambda logprobs, d: -logprobs.sum(), 1.3)}


def losses_against_custom(service, base, server, rounds):
    """Each loss fused, and as a function of the client; whose time is a forward, the function, and a gradient with the weights that it gives.
    `processor`: the same ratio in processor time of the server alone."""
    client = service.create_lora_training_client(base_model=base, rank=0).result()
    plain = make_data(64, 64)
    old = [o["logprobs"].tolist() for o in client.forward(plain, "cross_entropy").result().loss_fn_outputs]
    given = {"old": torch.tensor(old) - 0.1, "advantages": torch.tensor([[1.0 if i % 2 else -0.5] * 64 for i in range(64)])}
    data = {"policy": make_data(64, 64, given["old"].tolist(), (-0.5, 1.0)), "cross_entropy": plain}
    inside = []

    def custom(function):
        def loss(_, logprobs):
            begin = time.perf_counter()
            value = function(torch.stack(list(logprobs)), given)
            inside.append(time.perf_counter() - begin)
            return value, {"value": float(value.detach())}

        return client.forward_backward_custom(plain, loss).result()

    works = {"forward": lambda: client.forward(plain, "cross_entropy").result()}
    for name, (function, _) in LOSSES.items():
        works[name] = lambda name=name: client.forward_backward(data.get(name, data["policy"]), name).result()
        works[name + " custom"] = lambda function=function: custom(function)
    times, processor, values = ({name: [] for name in works} for _ in range(3))
    for _ in range(rounds + 1):
        for name, work in works.items():
            before, begin = server.processor_seconds(), time.perf_counter()
            result = work()
            times[name].append(time.perf_counter() - begin)
            processor[name].append(server.processor_seconds() - before)
            values[name].append(result.metrics.get("value", result.metrics.get("loss:sum")))
            if name != "forward":
                client.optim_step(types.AdamParams(learning_rate=0.0)).result()
    out = []
    for name, (_, published) in LOSSES.items():
        fused, other = times[name][1:], times[name + " custom"][1:]
        assert abs(values[name][-1] - values[name + " custom"][-1]) <= 1e-3 * abs(values[name][-1]), (name, values[name][-1], values[name + " custom"][-1])
        out.append({"loss": name, "published": published, "seconds": {"fused": median_range(fused), "custom": median_range(other)},
                    "custom_over_fused": median_range([c / f for c, f in zip(other, fused)]),
                    "processor": sum(processor[name + " custom"][1:]) / sum(processor[name][1:])})  # fmt: skip
    return {"losses": out, "forward_seconds": median_range(times["forward"][1:]), "gradient_seconds": median_range(times["cross_entropy"][1:]), "function_seconds": median_range(inside)}


def fused_of_ranks(service, base, rounds):
    traced = service.create_custom_loss(clipped_policy, input_ranks={"logprobs": 1, "old": 1, "advantages": 1}).result()
    return [fused_against_custom(service, base, rounds, rank, traced) for rank in (0, 16)]


def distinct_tokens(count, length, vocabulary):
    """Texts of which no two begin alike: equal beginnings are computed once by the server, and what is compared must compute as much."""
    draws = random.Random(1)
    texts = [[draws.randrange(vocabulary) for _ in range(length)] for _ in range(count)]
    assert len({tuple(text[:4]) for text in texts}) == count
    return texts


def http_against_process(service, base, lockstep, model, rounds):
    client = service.create_lora_training_client(base_model=base, rank=0).result()
    texts = distinct_tokens(64, 65, json.loads((Path(model) / "config.json").read_text())["vocab_size"])
    data = [types.Datum(model_input=types.ModelInput.from_ints(text[:-1]), loss_fn_inputs={"target_tokens": text[1:]}) for text in texts]

    def step():
        client.forward_backward(data, "cross_entropy")
        client.optim_step(types.AdamParams(learning_rate=0.0)).result()

    def steps(seconds=1):
        """Times steps as `lockstep bench train` does: one to warm up, then as many as fit into the given time."""
        step()
        end, times = time.perf_counter() + seconds, []
        while time.perf_counter() < end:
            times.append(timed(step))
        return statistics.median(times)

    over_http, in_process = [], []
    loss = client.forward(data, "cross_entropy").result().metrics["loss:sum"]
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.writelines(json.dumps(text) + "\n" for text in texts)
        file.flush()
        for _ in range(rounds):
            over_http.append(steps())
            out = subprocess.run([lockstep, "bench", "train", "--model", model, "--data", file.name, "--profile", "cpu-bf16w", "--seconds", "1", "--json"],
                                 capture_output=True, text=True, check=True).stdout
            row = json.loads(out)
            in_process.append(row["seconds"]["median"])
            # The same texts under the same weights: the mean loss of a token in process, the sum over HTTP.
            assert abs(row["first_loss"] * 4096 - loss) <= 1e-4 * abs(loss), f"the two sides train on other data: {row['first_loss'] * 4096} and {loss}"
    return {"tokens": 4096, "distinct_texts": len({tuple(text) for text in texts}), "http_seconds": median_range(over_http), "process_seconds": median_range(in_process),
            "http_over_process": median_range([h / p for h, p in zip(over_http, in_process)])}


def many_at_once(service, base, samplers=64, trainers=8, seconds=15):
    sampler = service.create_sampling_client(base_model=base).result()
    clients = [service.create_lora_training_client(base_model=base, rank=0).result() for _ in range(trainers)]
    until = time.perf_counter() + seconds
    latencies = {"sample": [], "step": []}
    failures = []

    def repeat(name, work):
        try:
            while time.perf_counter() < until:
                latencies[name].append(timed(work))
        except Exception as error:  # a time-out is what this looks for
            failures.append(repr(error))

    def sample():
        sampler.sample(types.ModelInput.from_ints([1, 2, 3, 4]), num_samples=1, sampling_params=types.SamplingParams(max_tokens=16, stop=[])).result()

    def step(client):
        client.forward_backward(make_data(4, 32), "cross_entropy")
        client.optim_step(types.AdamParams(learning_rate=1e-5)).result()

    threads = [threading.Thread(target=repeat, args=("sample", sample)) for _ in range(samplers)]
    threads += [threading.Thread(target=repeat, args=("step", lambda c=c: step(c))) for c in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    p95 = {name: sorted(values)[int(len(values) * 0.95)] if values else None for name, values in latencies.items()}
    return {"samplers": samplers, "trainers": trainers, "p95_seconds": p95, "done": {n: len(v) for n, v in latencies.items()}, "failures": failures}


def checkpoint_to_live(service, base, versions=10):
    client = service.create_lora_training_client(base_model=base, rank=0).result()
    times, samplers = [], []
    one = types.SamplingParams(max_tokens=1, stop=[])
    for _ in range(versions):
        client.forward_backward(make_data(2, 16), "cross_entropy")
        client.optim_step(types.AdamParams(learning_rate=1e-5)).result()

        def live():
            samplers.append(client.save_weights_and_get_sampling_client().result())
            samplers[-1].sample(types.ModelInput.from_ints([1, 2, 3]), num_samples=1, sampling_params=one).result()

        times.append(timed(live))

    def all_at_once():
        for future in [s.sample(types.ModelInput.from_ints([1, 2, 3]), num_samples=1, sampling_params=one) for s in samplers]:
            future.result()

    return {"seconds": median_range(times), "all_versions_seconds": sum(times), "versions": versions, "all_sampled_at_once_seconds": timed(all_at_once)}


def metric(url, name):
    """A counter of the server's scrape."""
    with urllib.request.urlopen(url + "/metrics", timeout=30) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
    return None


def small_batches(service, base, clients=8, seconds=12, sequences=4, length=32):
    """Adapters of rank 8 and 16, each trained by a client of its own in small batches: operations a second of all."""
    trainers = [service.create_lora_training_client(base_model=base, rank=8 if i % 2 else 16, seed=i).result() for i in range(clients)]
    data = make_data(sequences, length)
    begin = threading.Barrier(clients + 1)
    done, latencies, failures = [0] * clients, [], []
    until = [0.0]

    def step(trainer):
        backward = trainer.forward_backward(data, "cross_entropy")
        trainer.optim_step(types.AdamParams(learning_rate=1e-5)).result()
        backward.result()

    def train(i):
        try:
            step(trainers[i])
            begin.wait()
            while time.perf_counter() < until[0]:
                latencies.append(timed(lambda: step(trainers[i])))
                done[i] += 2
        except Exception as error:
            failures.append(repr(error))
            begin.abort()

    threads = [threading.Thread(target=train, args=(i,)) for i in range(clients)]
    for thread in threads:
        thread.start()
    until[0] = time.perf_counter() + 600
    begin.wait()
    start = time.perf_counter()
    until[0] = start + seconds
    for thread in threads:
        thread.join()
    taken = time.perf_counter() - start
    return {"clients": clients, "tokens": sequences * length, "operations_per_second": sum(done) / taken, "step_seconds": median_range(latencies), "failures": failures,
            "least_and_most_operations": [min(done), max(done)]}


def together_against_apart(options, seconds, rounds):
    """The same clients on a server whose passes adapters share, and on one where each has its own; both live, in turns."""
    runs = {"shared": [], "separate": []}
    out = {}
    with running_server(options) as shared, running_server(options, "--separate-passes") as separate:
        services = {"shared": tinker.ServiceClient(base_url=shared.url, api_key="tml-bench"), "separate": tinker.ServiceClient(base_url=separate.url, api_key="tml-bench")}
        for _ in range(rounds):
            for name, service in services.items():
                runs[name].append(small_batches(service, Path(options.model).name, seconds=seconds))
        for name, url in (("shared", shared.url), ("separate", separate.url)):
            out[name] = {"operations_per_second": median_range([r["operations_per_second"] for r in runs[name]]), "runs": runs[name]}
            passes, pieces = metric(url, "lockstep_training_shared_passes_total"), metric(url, "lockstep_training_shared_pieces_total")
            out[name]["pieces_a_shared_pass"] = pieces / passes if passes else None
    out["shared_over_separate"] = median_range([a["operations_per_second"] / b["operations_per_second"] for a, b in zip(runs["shared"], runs["separate"])])
    return out


def chunks_first_result(options, chunks=8):
    """A call of many requests: how long until its first result is there, of how long in all (lockstep_training_first_result_seconds)."""
    with running_server(options) as server:
        # Fewer datums a request, so that a call has several.
        service = tinker.ServiceClient(base_url=server.url, api_key="tml-bench")
        client = service.create_lora_training_client(base_model=Path(options.model).name, rank=16).result()
        client.forward_backward(make_data(2, 16), "cross_entropy").result()
        client.optim_step(types.AdamParams(learning_rate=0.0)).result()
        before = [metric(server.url, "lockstep_training_first_result_seconds_" + n) for n in ("sum", "count")]
        seconds = timed(lambda: client.forward_backward(make_data(1024 * chunks, 16), "cross_entropy").result())
        after = [metric(server.url, "lockstep_training_first_result_seconds_" + n) for n in ("sum", "count")]
        return {"chunks": chunks, "call_seconds": seconds, "first_result_seconds": (after[0] - before[0]) / (after[1] - before[1]), "early": metric(server.url, "lockstep_training_early_total")}


@contextlib.contextmanager
def running_server(options, *arguments):
    with tempfile.TemporaryDirectory() as state, BenchServer(options, state, *arguments) as server:
        yield server


def write(options, result):
    text = json.dumps(result, indent=2)
    print(text)
    if options.json:
        Path(options.json).write_text(text + "\n")


class BenchServer(StartedServer):
    def __init__(self, options, state, *arguments):
        command = [options.lockstep, "serve", "--model", options.model, "--training", "--state", str(state), "--port", "0", *arguments]
        super().__init__(command, stderr=subprocess.DEVNULL)

    def moved(self):
        """Bytes so far: those of reading and writing calls (mostly files), and the part of them from and to the disk."""
        fields = dict(line.split(": ") for line in Path(f"/proc/{self.process.pid}/io").read_text().splitlines())
        return {name: int(fields[name]) for name in ("rchar", "wchar", "read_bytes", "write_bytes")}

    def optimizer_files(self):
        """Bytes of each optimizer's file: they have no name, and are mapped."""
        sizes = {}
        for line in Path(f"/proc/{self.process.pid}/maps").read_text().splitlines():
            fields = line.split(maxsplit=5)
            if len(fields) == 6 and "/.optimizer-" in fields[5]:
                begin, end = (int(edge, 16) for edge in fields[0].split("-"))
                sizes[fields[5]] = sizes.get(fields[5], 0) + end - begin
        return list(sizes.values())


def write_file(path, size):
    block = os.urandom(1 << 20)
    with open(path, "wb") as file:
        for begin in range(0, size, len(block)):
            file.write(block[: size - begin])


def copy_seconds(folder, size):
    """Seconds of a plain copy of a file of that size over another one on the disk of `folder`: read and written by calls of a megabyte on every
    processor, as a step does it, without waiting for the disk. Both files are removed afterwards, so that the system has its memory back."""
    source, target = Path(folder) / "copied-from", Path(folder) / "copied-to"
    for path in (source, target):
        write_file(path, size)
    from_file, to_file = os.open(source, os.O_RDONLY), os.open(target, os.O_WRONLY)

    def copy(part, parts=os.cpu_count()):
        block = memoryview(bytearray(1 << 20))
        at, end = size * part // parts, size * (part + 1) // parts
        while at < end:
            count = os.preadv(from_file, [block[: end - at]], at)
            os.pwrite(to_file, block[:count], at)
            at += count

    threads = [threading.Thread(target=copy, args=(part,)) for part in range(os.cpu_count())]
    seconds = timed(lambda: [*(t.start() for t in threads), *(t.join() for t in threads)])
    os.close(from_file), os.close(to_file)
    source.unlink(), target.unlink()
    return seconds


def offloaded(options):
    """Both servers train the same models in turns, with few tokens a step and then with more; what they say must be equal to the bit."""
    base = Path(options.model).name
    with tempfile.TemporaryDirectory(dir=options.state) as folder:
        servers = {name: BenchServer(options, Path(folder) / name, "--profile", options.profile, *more) for name, more in
                   (("memory", []), ("file", ["--offload-optimizer"]))}  # fmt: skip
        try:
            idle = {name: server.memory("VmHWM") for name, server in servers.items()}
            clients = {}
            for name, server in servers.items():
                service = tinker.ServiceClient(base_url=server.url, api_key="tml-bench")
                clients[name] = [service.create_lora_training_client(base_model=base, rank=options.rank, seed=i + 1).result() for i in range(options.trainers)]
            sizes = [offloaded_steps(make_data(count, options.length), servers, clients, options.rounds, idle, folder) for count in options.sequences]
        finally:
            for server in servers.values():
                server.stop()
    return {"model": base, "profile": options.profile, "rank": options.rank, "trainers": options.trainers, "before_training_bytes": idle, "sizes": sizes}


def offloaded_steps(data, servers, clients, rounds, idle, folder):
    """Steps of one size, and after each round a plain copy of a file as large as one optimizer's. Peaks are of all sizes so far."""
    steps, losses, moved = ({name: [] for name in servers} for _ in range(3))
    copies = []
    for _ in range(rounds + 1):  # the first warms up
        for i in range(len(clients["memory"])):
            for name in servers:
                before, begin = servers[name].moved(), time.perf_counter()
                losses[name].append(clients[name][i].forward_backward(data, "cross_entropy").result().metrics["loss:sum"])
                clients[name][i].optim_step(types.AdamParams(learning_rate=1e-4)).result()
                steps[name].append(time.perf_counter() - begin)
                moved[name].append({field: value - before[field] for field, value in servers[name].moved().items()})
        files = servers["file"].optimizer_files()
        copies.append(copy_seconds(folder, max(files)) if files else None)
    assert losses["memory"] == losses["file"], "the two servers do not agree"
    peak = {name: server.memory("VmHWM") for name, server in servers.items()}
    grown = {name: peak[name] - idle[name] for name in servers}
    timed_steps, timed_moves = ({name: values[len(clients[name]):] for name, values in found.items()} for found in (steps, moved))
    transfer = {name: {field: statistics.median(step[field] for step in timed_moves[name]) for field in timed_moves[name][0]} for name in servers}
    copy = {"bytes": max(files), "seconds": median_range(copies[1:])} if files else None
    return {"tokens": sum(d.model_input.length for d in data), "peak_bytes": peak, "peak_ratio": peak["file"] / peak["memory"], "grown_ratio": grown["file"] / grown["memory"],
            "moved_bytes": transfer, "copy": copy,
            "step_seconds": {name: median_range(values) for name, values in timed_steps.items()},
            "speed_ratio": median_range([m / f for m, f in zip(timed_steps["memory"], timed_steps["file"])]),
            "speed_of_least": min(timed_steps["memory"]) / min(timed_steps["file"])}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="models/countdown-glm")
    parser.add_argument("--lockstep", default="build/lockstep")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=12, help="of a run of small_batches")
    parser.add_argument("--parts", nargs="*", choices=["fused", "http", "checkpoint_to_live", "many", "small_batches", "chunks"], help="default: all")
    parser.add_argument("--json", help="the figures go there, too")
    parser.add_argument("--offload", action="store_true")
    parser.add_argument("--trainers", type=int, default=4)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--profile", default="cpu-f32")
    parser.add_argument("--sequences", type=int, nargs="+", default=[8, 32], help="of a step with --offload; each number is a measurement of its own")
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--state", help="a folder on the disk where the files go")
    options = parser.parse_args()
    if options.offload:
        return write(options, offloaded(options))
    base = Path(options.model).name
    parts = {"fused": lambda service: fused_of_ranks(service, base, options.rounds),
             "http": lambda service: http_against_process(service, base, options.lockstep, options.model, options.rounds),
             "checkpoint_to_live": lambda service: checkpoint_to_live(service, base),
             "many": lambda service: many_at_once(service, base)}
    wanted = options.parts or [*parts, "small_batches", "chunks"]
    result = {}
    with running_server(options) as server:
        service = tinker.ServiceClient(base_url=server.url, api_key="tml-bench")
        for name, part in parts.items():
            if name in wanted:
                result[name] = part(service)
    if "fused" in wanted:
        with running_server(options, "--reuse-megabytes", "0") as server:
            service = tinker.ServiceClient(base_url=server.url, api_key="tml-bench")
            result["fused_without_reuse"] = parts["fused"](service)
            result["losses"] = losses_against_custom(service, base, server, options.rounds)
    if "small_batches" in wanted:
        result["small_batches"] = together_against_apart(options, seconds=options.seconds, rounds=max(1, options.rounds // 2))
    if "chunks" in wanted:
        result["chunks"] = chunks_first_result(options)
    write(options, result)


if __name__ == "__main__":
    sys.exit(main())
