"""Reinforcement learning through the real SDK, against servers that keep the forwards of what they sample for training (--keep-forward,
docs/kept-forwards.md): every number is that of a server that keeps nothing, and the rows that were read instead of computed are counted."""
import json
import re
import urllib.request

import pytest
import tinker
import torch
from tinker import types

BASE = "countdown-glm"
PROMPTS = [[3, 14, 15, 92, 65, 35], [2, 71, 82, 81, 82, 84, 59, 4, 5, 23, 53, 60, 28, 74, 71, 35, 26, 62, 49]]


def datum(prompt, sequence, advantage):
    tokens, before = prompt + sequence.tokens, len(prompt) - 1
    made = {"target_tokens": torch.tensor(tokens[1:]), "logprobs": torch.tensor([0.0] * before + sequence.logprobs),
            "advantages": torch.tensor([0.0] * before + [advantage] * len(sequence.tokens))}
    return types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs={name: types.TensorData.from_torch(t) for name, t in made.items()})


def loop(server, rank):
    """Two steps: what was sampled, what training said of it, and log-probabilities behind the last step; and how many rows training had, one for each beginning of a text."""
    service = tinker.ServiceClient(base_url=server.url, api_key="tml-dummy")
    client = service.create_lora_training_client(base_model=BASE, rank=rank, seed=3).result()
    told, rows = [], 0
    for step in range(2):
        sampler = client.save_weights_and_get_sampling_client()
        asked = [sampler.sample(types.ModelInput.from_ints(prompt), num_samples=3, sampling_params=types.SamplingParams(max_tokens=9, seed=step, temperature=1.0))
                 for prompt in PROMPTS]
        data = [datum(prompt, sequence, 1.0 if i == 0 else -0.5) for prompt, samples in zip(PROMPTS, asked) for i, sequence in enumerate(samples.result().sequences)]
        texts = [prompt + sequence.tokens for prompt, samples in zip(PROMPTS, asked) for sequence in samples.result().sequences]
        rows += len({tuple(text[:end]) for text in texts for end in range(1, len(text))})  # none of a last token
        result = client.forward_backward(data, "importance_sampling").result()
        told.append([output["logprobs"].tolist() for output in result.loss_fn_outputs])
        told.append(client.optim_step(types.AdamParams(learning_rate=1e-3)).result().metrics["grad_norm"])
    told.append([output["logprobs"].tolist() for output in client.forward(data, "importance_sampling").result().loss_fn_outputs])
    return told, rows


def counted(server):
    text = urllib.request.urlopen(f"{server.url}/metrics").read().decode()
    return {name: int(float(value)) for name, value in re.findall(r"^(lockstep_training_rows_\w+) ([\d.e+]+)$", text, re.M)}


@pytest.mark.parametrize("rank", [0, 4])
def test_what_is_read_is_what_would_be_computed(training_server, start_server, rank):
    expected = loop(training_server, rank)
    assert counted(training_server) == {} and "kept_rows" not in json.loads(urllib.request.urlopen(f"{training_server.url}/api/device").read())
    for mode in ("inputs", "all"):
        server = start_server("--keep-forward", mode, "--keep-forward-megabytes", "64", "--verify-kept", "2")
        assert loop(server, rank) == expected, mode
        rows, asked = counted(server), expected[1]
        assert rows["lockstep_training_rows_read_total"] == asked and rows["lockstep_training_rows_beside_total"] == rows["lockstep_training_rows_dropped_total"] == 0, (mode, rows, asked)
        assert asked <= rows["lockstep_training_rows_kept_total"] <= asked + 2 * 2 * sum(map(len, PROMPTS)), (mode, rows, asked)  # a prompt's with each of its samples, at most
        assert abs(rows["lockstep_training_rows_compared_total"] - asked / 2) <= 2, (mode, rows, asked)  # every second one of each step
        shown = json.loads(urllib.request.urlopen(f"{server.url}/api/device").read())["kept_rows"]  # by the live page
        assert {f"lockstep_training_rows_{name}{'' if name == 'bytes' else '_total'}": count for name, count in shown.items()} == rows, (mode, shown, rows)
        assert server.stop() == 0, "".join(server.errors)


def test_a_loss_that_the_client_computes_reads_what_was_kept(training_server, start_server):
    """The SDK's two calls, a forward and its gradient: the numbers are those of a server that keeps nothing, and the rows come from sampling."""

    def entropy(data, logprobs):
        return sum((lp.exp() * lp).sum() for lp in logprobs), {}

    def learned(server):
        client = tinker.ServiceClient(base_url=server.url, api_key="tml-dummy").create_lora_training_client(base_model=BASE, rank=4, seed=3).result()
        sampler = client.save_weights_and_get_sampling_client()
        drawn = sampler.sample(types.ModelInput.from_ints(PROMPTS[1]), num_samples=3, sampling_params=types.SamplingParams(max_tokens=9, seed=1, temperature=1.0)).result()
        texts = [PROMPTS[1] + sequence.tokens for sequence in drawn.sequences]
        data = [types.Datum(model_input=types.ModelInput.from_ints(text[:-1]), loss_fn_inputs={
            "target_tokens": types.TensorData.from_torch(torch.tensor(text[1:])), "weights": types.TensorData.from_torch(torch.ones(len(text) - 1))}) for text in texts]  # fmt: skip
        client.forward_backward_custom(data, entropy).result()
        norm = client.optim_step(types.AdamParams(learning_rate=1e-3)).result().metrics["grad_norm"]
        after = [output["logprobs"].tolist() for output in client.forward(data, "cross_entropy").result().loss_fn_outputs]
        return (texts, norm, after), len({tuple(text[:end]) for text in texts for end in range(1, len(text))})

    expected, asked = learned(training_server)
    server = start_server("--keep-forward", "all", "--keep-forward-megabytes", "64", "--verify-kept", "1")
    assert learned(server) == (expected, asked) and expected[1] > 0
    rows = counted(server)
    assert rows["lockstep_training_rows_read_total"] in (asked, 2 * asked), (rows, asked)  # the gradient has the forward's activations, or reads once more
    assert rows["lockstep_training_rows_beside_total"] == 0 < rows["lockstep_training_rows_compared_total"], rows


def test_what_finds_no_memory_is_computed(training_server, start_server):
    server = start_server("--keep-forward", "all", "--keep-forward-megabytes", "1")
    assert loop(server, 4) == loop(training_server, 4)
    rows = counted(server)
    assert rows["lockstep_training_rows_dropped_total"] > 0 and 0 <= rows["lockstep_training_rows_bytes"] <= 1 << 20, rows
