"""Reinforcement learning through the real SDK, against servers that keep the forwards of what they sample for training (--keep-forward,
docs/kept-forwards.md): every number is that of a server that keeps nothing, and the rows that were read instead of computed are counted."""
import json
import re
import urllib.request

import pytest
import requests
import tinker
import torch
from tinker import types

import fireworks_tools as fireworks
from test_wire import Client

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


def counted(server, key="tml-dummy"):
    text = requests.get(f"{server.url}/metrics", headers={"X-API-Key": key}, timeout=60).text
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


def test_log_probabilities_that_a_client_asks_for_are_read(training_server, start_server):
    """compute_logprobs of what was sampled: of each text the rows of all full pages of 16, and the rest is computed."""

    def scored(server):
        client = tinker.ServiceClient(base_url=server.url, api_key="tml-dummy").create_lora_training_client(base_model=BASE, rank=4, seed=3).result()
        sampler = client.save_weights_and_get_sampling_client()
        drawn = sampler.sample(types.ModelInput.from_ints(PROMPTS[1]), num_samples=3, sampling_params=types.SamplingParams(max_tokens=17, seed=1, temperature=1.0)).result()
        texts = [PROMPTS[1] + sequence.tokens for sequence in drawn.sequences]
        return texts, [sampler.compute_logprobs(types.ModelInput.from_ints(text)).result() for text in texts]

    texts, told = expected = scored(training_server)
    read = sum((len(text) - 1) // 16 * 16 for text in texts)
    assert read > 0 and all(len(logprobs) == len(text) for text, logprobs in zip(texts, told))
    for mode in ("inputs", "all"):
        server = start_server("--keep-forward", mode, "--keep-forward-megabytes", "64", "--verify-kept", "1")
        assert scored(server) == expected, mode
        rows = counted(server)
        assert rows["lockstep_training_rows_read_total"] == read == rows["lockstep_training_rows_compared_total"], (mode, rows, read)
        assert rows["lockstep_training_rows_beside_total"] == sum(map(len, texts)) - read, (mode, rows, texts)
        assert server.stop() == 0, "".join(server.errors)


def test_of_a_checkpoint_by_name_too(training_server, start_server):
    """A sampler of a checkpoint that was just saved has the trainer's own weights, so training finds what it kept."""

    def learned(server):
        service = tinker.ServiceClient(base_url=server.url, api_key="tml-dummy")
        client = service.create_lora_training_client(base_model=BASE, rank=4, seed=3).result()
        sampler = service.create_sampling_client(model_path=client.save_weights_for_sampler(name="named").result().path)
        drawn = sampler.sample(types.ModelInput.from_ints(PROMPTS[0]), num_samples=2, sampling_params=types.SamplingParams(max_tokens=9, seed=1, temperature=1.0)).result()
        texts = [PROMPTS[0] + sequence.tokens for sequence in drawn.sequences]
        data = [datum(PROMPTS[0], sequence, 1.0) for sequence in drawn.sequences]
        told = [output["logprobs"].tolist() for output in client.forward_backward(data, "importance_sampling").result().loss_fn_outputs]
        return (texts, told), len({tuple(text[:end]) for text in texts for end in range(1, len(text))})

    expected, asked = learned(training_server)
    server = start_server("--keep-forward", "all", "--keep-forward-megabytes", "64")
    assert learned(server) == (expected, asked)
    assert counted(server)["lockstep_training_rows_read_total"] == asked


def by_deployment(server, key, name, **more):
    """Of Fireworks' package: a checkpoint that a deployment samples, and a gradient of what it said. `more`: fields of the completion beside the package's."""
    policy = fireworks.client_of(server.url, key, lora_rank=4, seed=7)
    deployment = fireworks.Deployed(server.url, key, name)
    deployment.load(policy.save_weights_for_sampler_ext(name).snapshot_name)
    if more:
        body = {"model": deployment.model, "prompt": fireworks.TOKENS[:4], "max_tokens": 12, "temperature": 0.7, "seed": 5, "raw_output": True, **more}
        answer = requests.post(f"{server.url}/inference/v1/completions", json=body, headers={"X-API-Key": key}, timeout=60).json()
        tokens = fireworks.TOKENS[:4] + answer["choices"][0]["raw_output"]["completion_token_ids"]
    else:
        tokens = list(deployment.sample(max_tokens=12).full_tokens)
    told = fireworks.logprobs_of(policy.forward_backward([fireworks.datum(tokens)], "cross_entropy").result())
    norm = policy.optim_step(fireworks.types.AdamParams(learning_rate=1e-3)).result().metrics["grad_norm"]
    return tokens, told, norm


def test_completions_of_a_deployment_are_kept_for_its_training(training_server, start_server):
    expected = by_deployment(training_server, "fw-kept", "kept")
    server = start_server("--keep-forward", "all", "--keep-forward-megabytes", "64", "--verify-kept", "1")
    assert by_deployment(server, "fw-kept", "kept") == expected
    rows = counted(server)
    assert rows["lockstep_training_rows_read_total"] == len(expected[0]) - 1 == rows["lockstep_training_rows_compared_total"], rows
    # The control: of a completion that says no, nothing is kept, and all is computed.
    tokens, *_ = by_deployment(server, "fw-other", "other", keep_forward=False)
    after = counted(server)
    assert len(tokens) > 5 and all(after[f"lockstep_training_rows_{name}_total"] == rows[f"lockstep_training_rows_{name}_total"] for name in ("read", "beside", "compared")), (rows, after)


def test_a_key_and_a_request_say_what_is_kept(start_server, tmp_path):
    keys = {name: f"tml-key-of-{name}-0123456789" for name in ("ann", "bob", "eve")}
    (tmp_path / "keys").write_text(f"ann {keys['ann']}\nbob {keys['bob']} keep_forward=false\neve {keys['eve']} keep_forward=true\n")
    (tmp_path / "talk.jinja").write_text("{{ messages[0]['content'] }}")
    server = start_server("--keep-forward", "all", "--keep-forward-megabytes", "64", "--api-key-file", str(tmp_path / "keys"), "--chat-template", str(tmp_path / "talk.jinja"))
    # A page is full, and counted, before the end: of talks, which may end early, by the text alone, which is no other route's.
    ways = {"/v1/completions": {"prompt": PROMPTS[1], "ignore_eos": True}, "/inference/v1/completions": {"prompt": PROMPTS[1], "ignore_eos": True},
            "/v1/chat/completions": {"messages": [{"role": "user", "content": "16 19 14=17:" * 4}]}, "/v1/responses": {"input": "61 91 41=71:" * 4, "max_tokens": None, "max_output_tokens": 20}}

    def said(answer):
        if "output" in answer:
            return "".join(part["text"] for item in answer["output"] for part in item["content"])
        return answer["choices"][0].get("text") or answer["choices"][0]["message"]["content"]

    def kept(key, route, **more):
        """The answer, and how many rows were kept of it."""
        before = counted(server, keys[key])["lockstep_training_rows_kept_total"]
        body = {name: value for name, value in {"model": BASE, "max_tokens": 20, "seed": len(route), **ways[route], **more}.items() if value is not None}
        answer = requests.post(server.url + route, json=body, headers={"Authorization": f"Bearer {keys[key]}"}, timeout=60)
        return answer, counted(server, keys[key])["lockstep_training_rows_kept_total"] - before

    for route in ways:
        answers = set()
        for key, more, some in (("ann", {"keep_forward": True}, True), ("ann", {}, False), ("ann", {"keep_forward": False}, False), ("bob", {}, False), ("eve", {"keep_forward": False}, False)):
            answer, rows = kept(key, route, **more)
            assert answer.status_code == 200 and (rows > 0) == some, (route, key, more, rows, answer.text)
            answers.add(said(answer.json()))
        assert len(answers) == 1  # no token depends on it
        answer, rows = kept("bob", route, keep_forward=True)
        assert answer.status_code == 400 and answer.json()["error"]["param"] == "keep_forward" and "the key file says keep_forward=false" in answer.json()["error"]["message"] and rows == 0, answer.text
    answer, rows = kept("eve", "/v1/completions", prompt=PROMPTS[0])
    assert answer.status_code == 200 and rows > 0, answer.text


def test_a_sample_of_a_session_says_so_too(training_server, start_server):
    def sampled(server, number, **more):
        client = Client(server.url, f"tml-kept-{number}")
        sampler = client.post("create_sampling_session", session_id=client.session, sampling_session_seq_id=number, base_model=BASE)["sampling_session_id"]
        body = {"prompt": {"chunks": [{"type": "encoded_text", "tokens": PROMPTS[1]}]}, "sampling_params": {"max_tokens": 20, "seed": 1, "stop": []}}
        return client.result(client.post("asample", sampling_session_id=sampler, seq_id=0, **body, **more)["request_id"])

    server = start_server("--keep-forward", "inputs", "--keep-forward-megabytes", "64")
    silent = sampled(server, 0, keep_forward=False)
    assert counted(server)["lockstep_training_rows_kept_total"] == 0
    assert sampled(server, 1) == silent == sampled(server, 2, keep_forward=True) == sampled(training_server, 3, keep_forward=False)
    assert counted(server)["lockstep_training_rows_kept_total"] >= 2 * 16
    refused = sampled(training_server, 4, keep_forward=True)
    assert refused["category"] == "user" and "--keep-forward inputs or all" in refused["error"], refused


def test_what_nothing_keeps_is_refused(training_server):
    for route in ("/v1/completions", "/inference/v1/completions"):
        for value, status in ((True, 400), (False, 200), (None, 200)):
            answer = requests.post(training_server.url + route, json={"model": BASE, "prompt": PROMPTS[0], "max_tokens": 1, "keep_forward": value}, headers={"X-API-Key": "kept"}, timeout=60)
            assert answer.status_code == status, answer.text
            assert status == 200 or (answer.json()["error"]["param"] == "keep_forward" and "--keep-forward inputs or all" in answer.json()["error"]["message"]), answer.text


def test_what_finds_no_memory_is_computed(training_server, start_server):
    server = start_server("--keep-forward", "all", "--keep-forward-megabytes", "1")
    assert loop(server, 4) == loop(training_server, 4)
    rows = counted(server)
    assert rows["lockstep_training_rows_dropped_total"] > 0 and 0 <= rows["lockstep_training_rows_bytes"] <= 1 << 20, rows
