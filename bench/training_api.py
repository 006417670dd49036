#!/usr/bin/env python3
"""The training API's costs, measured through the real `tinker` SDK against servers that this script starts: a fused loss
beside the same loss as a function in the client and as one traced to the server, with and without forwards kept for their gradients; a
training step over HTTP beside one in process, many samplers and trainers at once, and how long a new version takes to be
sampled. Ratios are of runs in turns; medians.

    python3 bench/training_api.py --model models/countdown-glm [--lockstep build/lockstep] [--rounds 7] [--only fused] [--json FILE]

Needs the packages of tools/oracle-requirements.txt (tinker, torch)."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TINKER_TELEMETRY", "0")
import tinker
import torch
from tinker import types


def median_range(values):
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def timed(work):
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def make_data(count, length, logprobs=None):
    data = []
    for i in range(count):
        tokens = [1 + (i * 7 + j * 3) % 29 for j in range(length + 1)]
        inputs = {"target_tokens": tokens[1:]}
        if logprobs is not None:
            inputs.update(logprobs=logprobs[i], advantages=[1.0 if i % 2 else -1.0] * length)
        data.append(types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=inputs))
    return data


def clipped_policy(logprobs, old, advantages):
    ratio = torch.exp(logprobs - old)
    return -torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).sum(), {"custom/ratio:mean": ratio.mean()}


def fused_against_custom(service, base, rounds, rank, traced):
    """The clipped policy loss, fused (one forward, one backward), as a function of the client (a forward, then a gradient) and traced."""
    client = service.create_lora_training_client(base_model=base, rank=rank).result()
    plain = make_data(64, 64)
    old = [o["logprobs"].tolist() for o in client.forward(plain, "cross_entropy").result().loss_fn_outputs]
    fused_data = make_data(64, 64, old)
    traced_data = [types.Datum(model_input=d.model_input, loss_fn_inputs={"target_tokens": d.loss_fn_inputs["target_tokens"], "advantages": d.loss_fn_inputs["advantages"],
                                                                          "old": types.TensorData.from_torch(torch.tensor(old[i]))}) for i, d in enumerate(fused_data)]
    advantages = torch.tensor([[1.0 if i % 2 else -1.0] * 64 for i in range(64)])
    q = torch.tensor(old)

    def loss(data, logprobs):
        value, metrics = clipped_policy(torch.stack(list(logprobs)), q, advantages)
        return value, {name: float(metric.detach()) for name, metric in metrics.items()}

    works = {"fused": lambda: client.forward_backward(fused_data, "ppo").result(), "custom": lambda: client.forward_backward_custom(plain, loss).result(),
             "traced": lambda: client.forward_backward_custom(traced_data, traced).result()}
    times = {name: [] for name in works}
    for _ in range(rounds + 1):
        for name, work in works.items():
            times[name].append(timed(work))
            client.optim_step(types.AdamParams(learning_rate=0.0)).result()
    times = {name: values[1:] for name, values in times.items()}
    over = {f"{name}_over_fused": median_range([c / f for c, f in zip(times[name], times["fused"])]) for name in ("custom", "traced")}
    return {"tokens": 4096, "rank": rank, "seconds": {n: median_range(v) for n, v in times.items()}, **over}


def fused_of_ranks(service, base, rounds):
    traced = service.create_custom_loss(clipped_policy, input_ranks={"logprobs": 1, "old": 1, "advantages": 1}).result()
    return [fused_against_custom(service, base, rounds, rank, traced) for rank in (0, 16)]


def http_against_process(service, base, lockstep, model, rounds):
    client = service.create_lora_training_client(base_model=base, rank=0).result()
    data = make_data(64, 64)

    def step():
        client.forward_backward(data, "cross_entropy")
        client.optim_step(types.AdamParams(learning_rate=0.0)).result()

    step()
    over_http, in_process = [], []
    for _ in range(rounds):
        over_http.append(timed(step))
        out = subprocess.run([lockstep, "bench", "train", "--model", model, "--sequences", "64", "--length", "64", "--profile", "cpu-bf16w", "--seconds", "1", "--json"],
                             capture_output=True, text=True, check=True).stdout
        in_process.append(json.loads(out)["seconds"]["median"])
    return {"tokens": 4096, "http_seconds": median_range(over_http), "process_seconds": median_range(in_process),
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
    times = []
    for _ in range(versions):
        client.forward_backward(make_data(2, 16), "cross_entropy")
        client.optim_step(types.AdamParams(learning_rate=1e-5)).result()

        def live():
            sampler = client.save_weights_and_get_sampling_client().result()
            sampler.sample(types.ModelInput.from_ints([1, 2, 3]), num_samples=1, sampling_params=types.SamplingParams(max_tokens=1, stop=[])).result()

        times.append(timed(live))
    return {"seconds": median_range(times), "all_versions_seconds": sum(times), "versions": versions}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="models/countdown-glm")
    parser.add_argument("--lockstep", default="build/lockstep")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", choices=["fused", "http", "checkpoint_to_live", "many"], help="one part alone")
    parser.add_argument("--json", help="the figures go there, too")
    options = parser.parse_args()
    base = Path(options.model).name
    parts = {"fused": lambda service: fused_of_ranks(service, base, options.rounds),
             "http": lambda service: http_against_process(service, base, options.lockstep, options.model, options.rounds),
             "checkpoint_to_live": lambda service: checkpoint_to_live(service, base),
             "many": lambda service: many_at_once(service, base)}
    result = {}
    for kept in ("", "0"):
        with tempfile.TemporaryDirectory() as state:
            more = ["--reuse-megabytes", kept] if kept else []
            server = subprocess.Popen([options.lockstep, "serve", "--model", options.model, "--training", "--state", state, "--port", "0", *more],
                                      stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            try:
                service = tinker.ServiceClient(base_url=server.stdout.readline().split()[-1], api_key="tml-bench")
                for name, part in parts.items():
                    if (not options.only or name == options.only) and (not kept or name == "fused"):
                        result[name + ("_without_reuse" if kept else "")] = part(service)
            finally:
                server.terminate()
                server.wait()
    text = json.dumps(result, indent=2)
    print(text)
    if options.json:
        Path(options.json).write_text(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
