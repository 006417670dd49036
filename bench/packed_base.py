#!/usr/bin/env python3
"""Measures the cost and the savings of a frozen base in few bits: bytes of its weights, and tokens per second of training steps of an adapter and of
decoding, through the real `tinker` SDK against servers that this script starts. Ratios are of runs in turns; medians.

    python3 bench/packed_base.py [--model DIR] [--lockstep build/lockstep] [--rounds 5] [--threads 2] [--json FILE]

Without --model: a llama of random weights. Needs the packages of tools/oracle-requirements.txt (tinker, numpy, safetensors)."""
import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TINKER_TELEMETRY", "0")
import numpy as np
import tinker
from safetensors.numpy import save_file
from tinker import types

from started_server import StartedServer

PROFILES = ["cpu-bf16w", "cpu-int4-base", "cpu-fp8-base", "cpu-mxfp8-base", "cpu-mxfp4-base"]
HIDDEN, LAYERS, INNER, HEADS, KV, VOCABULARY = 768, 4, 2048, 12, 4, 4096


def write_model(folder):
    random = np.random.default_rng(1)
    head = HIDDEN // HEADS
    shapes = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN), "model.norm.weight": (HIDDEN,)}
    for i in range(LAYERS):
        name = f"model.layers.{i}."
        shapes |= {name + "input_layernorm.weight": (HIDDEN,), name + "post_attention_layernorm.weight": (HIDDEN,),
                   name + "self_attn.q_proj.weight": (HIDDEN, HIDDEN), name + "self_attn.k_proj.weight": (KV * head, HIDDEN),
                   name + "self_attn.v_proj.weight": (KV * head, HIDDEN), name + "self_attn.o_proj.weight": (HIDDEN, HIDDEN),
                   name + "mlp.gate_proj.weight": (INNER, HIDDEN), name + "mlp.up_proj.weight": (INNER, HIDDEN),
                   name + "mlp.down_proj.weight": (HIDDEN, INNER)}
    save_file({n: (random.standard_normal(s) * 0.02 if len(s) == 2 else np.ones(s)).astype(np.float32) for n, s in shapes.items()},
              folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(
        {"model_type": "llama", "vocab_size": VOCABULARY, "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
         "num_key_value_heads": KV, "head_dim": head, "intermediate_size": INNER, "max_position_embeddings": 1024, "rms_norm_eps": 1e-5,
         "tie_word_embeddings": True, "hidden_act": "silu", "rope_theta": 10000.0}))


class Server(StartedServer):
    def __init__(self, arguments, model, profile, state):
        command = [arguments.lockstep, "serve", "--model", str(model), "--name", "base", "--profile", profile, "--training", "--state", str(state),
                   "--port", "0", "--threads", str(arguments.threads)]
        super().__init__(command, stderr=subprocess.DEVNULL)
        self.service = tinker.ServiceClient(base_url=self.url, api_key="tml-bench")
        self.client = self.service.create_lora_training_client(base_model="base", rank=16).result()
        self.sampler = self.service.create_sampling_client(base_model="base").result()

    def step(self, data):
        result = self.client.forward_backward(data, "cross_entropy")
        step = self.client.optim_step(types.AdamParams(learning_rate=1e-3))
        result.result(), step.result()

    def decode(self, tokens, samples):
        return self.sampler.sample(types.ModelInput.from_ints([1, 2, 3]), num_samples=samples,
                                   sampling_params=types.SamplingParams(max_tokens=tokens, seed=1, stop=[])).result()


def seconds(work):
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--lockstep", default="build/lockstep")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sequences", type=int, default=4)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    report = {}
    with tempfile.TemporaryDirectory() as scratch:
        model = arguments.model or Path(scratch) / "model"
        if not arguments.model:
            model.mkdir()
            write_model(model)
        data = [types.Datum(model_input=types.ModelInput.from_ints([1 + (i * 7 + j * 3) % 29 for j in range(arguments.length)]),
                            loss_fn_inputs={"target_tokens": [1 + (i * 7 + j * 3 + 3) % 29 for j in range(arguments.length)]}) for i in range(arguments.sequences)]
        rows = arguments.sequences * arguments.length
        work = {"step": (lambda s: s.step(data), rows), "decode 1": (lambda s: s.decode(32, 1), 32), "decode 8": (lambda s: s.decode(32, 8), 256)}
        servers = {p: Server(arguments, model, p, Path(scratch) / p) for p in PROFILES}
        try:
            times = {p: {name: [] for name in work} for p in PROFILES}
            for turn in range(arguments.rounds + 1):  # the first warms up
                for profile, server in servers.items():
                    for name, (run, _) in work.items():
                        took = seconds(lambda: run(server))
                        if turn:
                            times[profile][name].append(took)
            for profile, server in servers.items():
                plan = subprocess.run([arguments.lockstep, "plan", "--model", str(model), "--for", "serve", "--profile", profile, "--json"],
                                      check=True, capture_output=True, text=True)
                row = {"weight_bytes": json.loads(plan.stdout)["bytes"]["weights"], "resident_megabytes": server.memory("VmRSS") / 2**20}
                for name, (_, tokens) in work.items():
                    row[name] = {"tokens_a_second": tokens / statistics.median(times[profile][name]),
                                 "ratio": statistics.median(b / t for b, t in zip(times[PROFILES[0]][name], times[profile][name]))}
                report[profile] = row
        finally:
            for server in servers.values():
                server.stop()
    for row in report.values():
        row["weight_ratio"] = row["weight_bytes"] / report[PROFILES[0]]["weight_bytes"]
    print(f"{'profile':16} {'weights, MB':>12} {'ratio':>6} {'resident, MB':>13}" + "".join(f" {name + ', tok/s':>17} {'ratio':>6}" for name in work))
    for profile, row in report.items():
        print(f"{profile:16} {row['weight_bytes'] / 1e6:12.1f} {row['weight_ratio']:6.3f} {row['resident_megabytes']:13.0f}"
              + "".join(f" {row[name]['tokens_a_second']:17.1f} {row[name]['ratio']:6.2f}" for name in work))
    if arguments.json:
        arguments.json.write_text(json.dumps({"profiles": report, "threads": arguments.threads, "rounds": arguments.rounds}, indent=1) + "\n")


if __name__ == "__main__":
    main()
