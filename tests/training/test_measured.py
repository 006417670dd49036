"""What the server says of itself was measured: each figure of /metrics is what a client counted, over every route and both training SDKs, and
the times in Fireworks' answers are those that its sampler's window of requests lives by."""
import asyncio
import json
import re
import time

import pytest
import requests
import tinker
from fireworks.training.sdk.concurrency import AdaptiveConcurrencyController
from fireworks.training.sdk.sampling import DeploymentSampler
from tinker import types

from fireworks_tools import BASE, TOKENS, client_of, datum

PROMPT = TOKENS[:4]


def scraped(server):
    """{name{labels}: value}"""
    text = requests.get(server.url + "/metrics", timeout=30).text
    return {match[1]: float(match[2]) for match in re.finditer(r"^([^#\s]\S*(?:\{.*\})?) (\S+)$", text, re.MULTILINE)}


def completion(server, **fields):
    return requests.post(server.url + "/inference/v1/completions", json={"model": BASE, "prompt": PROMPT, "max_tokens": 6, "ignore_eos": True, **fields},
                         headers={"X-API-Key": "measured"}, timeout=120)


async def sampled(sampler, requests_at_once, **arguments):
    async def one():
        return await sampler.sample_with_prompt_tokens_result(PROMPT, temperature=1.0, ignore_eos=True, **arguments)
    return await asyncio.gather(*[one() for _ in range(requests_at_once)])


def test_600_requests_at_once_close_the_samplers_window(start_server):
    server = start_server()
    controller = AdaptiveConcurrencyController(initial_window=600, max_window=600)
    # One sampler has 256 connections; the window is of all three.
    samplers = [DeploymentSampler(inference_url=server.url, model=BASE, api_key="burst", concurrency_controller=controller) for _ in range(3)]

    async def burst():
        return [r for results in await asyncio.gather(*[sampled(one, 200, max_tokens=300) for one in samplers]) for r in results]
    began = time.monotonic()
    results = asyncio.run(burst())
    took = time.monotonic() - began
    assert all(r.completions[0].completion_len == 300 for r in results)
    told = [r.server_metrics for r in results]
    waits = sorted(m.prefill_queue_duration for m in told)
    # 256 run at a time: others wait for them, and say so. Nobody waited longer than it all took.
    assert waits[0] < waits[-1] / 4 and 0.5 < waits[-1] < took, waits
    assert controller.window_size < 300 and controller.ema_prefill_queue > 0.5, (controller.window_size, controller.ema_prefill_queue)
    assert max(m.num_concurrent_requests for m in told) > 256 and min(m.num_concurrent_requests for m in told) >= 1
    for m in told:  # parts and wholes
        assert 0 < m.prefill_queue_duration < m.server_ttft <= m.server_processing_time <= took
        assert abs(m.prefill_queue_duration + m.prefill_duration - m.server_ttft) < 1e-4
        assert abs(m.server_ttft + m.generation_duration - m.server_processing_time) < 1e-2


def test_an_idle_server_lets_the_window_grow(start_server):
    server = start_server()
    controller = AdaptiveConcurrencyController(initial_window=8)
    sampler = DeploymentSampler(inference_url=server.url, model=BASE, api_key="idle", concurrency_controller=controller)
    results = asyncio.run(sampled(sampler, 32, max_tokens=2))
    assert controller.window_size > 8 and all(0 < r.server_metrics.prefill_queue_duration < 0.5 for r in results)


def test_times_are_in_the_headers_too(start_server):
    server = start_server()
    answer = completion(server)
    assert "perf_metrics" not in answer.json()  # was not asked for
    told = {name: float(value) for name, value in answer.headers.items() if name.startswith("fireworks-")}
    assert told["fireworks-prompt-tokens"] == 4 and told["fireworks-num-concurrent-requests"] == 1
    assert 0 < told["fireworks-prefill-queue-duration"] < told["fireworks-server-time-to-first-token"] < told["fireworks-server-processing-time"]
    inside = completion(server, perf_metrics_in_response=True).json()["perf_metrics"]
    assert {"fireworks-" + name for name in inside} == set(told)
    nothing = completion(server, max_tokens=0)  # no token: nothing is said of a first one
    assert nothing.status_code == 200 and "fireworks-server-time-to-first-token" not in nothing.headers


def test_metrics_are_what_clients_counted(start_server):
    """Known numbers of requests and tokens over OpenAI's routes, tinker's samples, Fireworks' completions and both training protocols."""
    server = start_server()
    service = tinker.ServiceClient(base_url=server.url, api_key="tml-measured")
    trainer = service.create_lora_training_client(base_model=BASE, rank=4)
    policy = client_of(server.url, "measured", lora_rank=0)
    before = scraped(server)
    sequences = prompt = generated = 0
    finished = {"stop": 0, "length": 0}

    def count(answers, prompt_tokens):
        """`answers`: (tokens, why it ended) of each sequence of one prompt."""
        nonlocal sequences, prompt, generated
        for tokens, reason in answers:
            sequences += 1
            prompt += prompt_tokens
            generated += tokens
            finished[reason] += 1

    # OpenAI's
    for stream in (False, True):
        body = {"model": BASE, "prompt": PROMPT, "max_tokens": 7, "n": 3, "seed": 4, "temperature": 1, "stream": stream, **({"stream_options": {"include_usage": True}} if stream else {})}
        answer = requests.post(server.url + "/v1/completions", json=body, timeout=60)
        if stream:
            parts = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
            choices = {i: {"ids": [], "why": None} for i in range(3)}
            for part in parts:
                for choice in part["choices"]:
                    choices[choice["index"]]["ids"] += choice["token_ids"]
                    choices[choice["index"]]["why"] = choice["finish_reason"] or choices[choice["index"]]["why"]
            count([(len(c["ids"]), c["why"]) for c in choices.values()], 4)
        else:
            count([(len(c["token_ids"]), c["finish_reason"]) for c in answer.json()["choices"]], 4)
    # Fireworks': whole and streamed, with and without a stop
    for fields in ({}, {"stream": True}, {"stop": ["1"], "ignore_eos": False}, {"max_tokens": 1}, {"temperature": 0, "logprobs": True, "echo": True}):
        answer = completion(server, raw_output=True, **fields)
        one = json.loads([line for line in answer.text.split("\n") if "{" in line][-1].removeprefix("data: "))  # a stream's last part has it all
        count([(one["usage"]["completion_tokens"], one["choices"][0]["finish_reason"])], one["usage"]["prompt_tokens"])
    # tinker's: without stop texts there is nobody who listens to single tokens
    sampler = trainer.save_weights_and_get_sampling_client()
    for parameters, n in ((types.SamplingParams(max_tokens=5, stop=[]), 8), (types.SamplingParams(max_tokens=9), 3), (types.SamplingParams(max_tokens=9, stop=["1"]), 2)):
        result = sampler.sample(types.ModelInput.from_ints(PROMPT), n, parameters).result()
        count([(len(s.tokens), s.stop_reason) for s in result.sequences], 4)
    # The SDK of Fireworks
    fireworks = DeploymentSampler(inference_url=server.url, model=BASE, api_key="measured")
    for result in asyncio.run(sampled(fireworks, 5, max_tokens=3)):
        count([(c.completion_len, c.finish_reason) for c in result.completions], 4)
    # training, of both
    forward = gradient = operations = 0
    for _ in range(2):
        trainer.forward_backward([types.Datum(model_input=types.ModelInput.from_ints(TOKENS[:-1]), loss_fn_inputs={"target_tokens": TOKENS[1:], "weights": [1.0] * (len(TOKENS) - 1)})] * 3, "cross_entropy").result()
        gradient += 3 * (len(TOKENS) - 1)
        policy.forward([datum()] * 2, "cross_entropy").result()
        policy.forward_backward([datum()], "cross_entropy").result()
        forward += 2 * (len(TOKENS) - 1)
        gradient += len(TOKENS) - 1
        operations += 3
    trainer.optim_step(types.AdamParams(learning_rate=1e-4)).result()
    with pytest.raises(Exception, match="loss"):
        policy.forward_backward([datum()], "no_such_loss").result()
    operations += 2 + 1  # the sampler's save, too

    after = scraped(server)

    def grown(name):
        return after[name] - before.get(name, 0)

    assert grown("lockstep_sequences_total") == sequences
    assert grown("lockstep_generated_tokens_total") == generated
    here = f'{{deployment="{BASE}"}}'
    assert grown("lockstep_deployment_sequences_total" + here) == sequences and grown("lockstep_deployment_generated_tokens_total" + here) == generated
    assert grown("lockstep_prompt_tokens_total") == prompt
    for reason, number in finished.items():
        assert grown(f'lockstep_sequences_finished_total{{reason="{reason}"}}') == number, reason
    for reason in ("cancelled", "error"):
        assert grown(f'lockstep_sequences_finished_total{{reason="{reason}"}}') == 0
    for histogram in ("lockstep_time_to_first_token_seconds", "lockstep_sequence_queue_seconds", "lockstep_sequence_seconds"):
        assert grown(histogram + "_count") == sequences, histogram
        assert grown(histogram + "_sum") > 0
    assert grown("lockstep_engine_sampled_tokens_total") == generated
    assert grown("lockstep_training_operations_total") == operations
    assert grown("lockstep_training_operations_failed_total") == 1
    assert grown('lockstep_training_tokens_total{operation="forward"}') == forward
    assert grown('lockstep_training_tokens_total{operation="forward_backward"}') == gradient
    assert after["lockstep_open_sequences"] == 0 and after["lockstep_sequences_running"] == 0 and after["lockstep_sequences_waiting"] == 0
    # echo with max_tokens 0 generates nothing, and has no first token
    completion(server, max_tokens=0)
    last = scraped(server)
    assert last["lockstep_sequences_total"] == after["lockstep_sequences_total"] + 1 and last["lockstep_generated_tokens_total"] == after["lockstep_generated_tokens_total"]
    assert last["lockstep_time_to_first_token_seconds_count"] == after["lockstep_time_to_first_token_seconds_count"]
