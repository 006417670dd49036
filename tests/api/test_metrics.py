"""What /metrics counts is what clients counted: over chat, responses, embeddings, whole and streamed, and a stream that its client leaves.
(Completions, samples and training: tests/training/test_measured.py.)"""
import time

import openai
import pytest
import requests

from test_operations import ask, samples

MODEL = "countdown-chat"
MESSAGES = [{"role": "user", "content": "3 7 12=48:"}]
REASONS = ("stop", "length", "cancelled", "error")


@pytest.fixture
def scraped(own_server, chat_folder):
    """(a server, a function that tells by how much each figure has grown since it was last called)"""
    server = own_server(model=chat_folder)
    last = {}

    def grown():
        now = samples(ask(server, "GET", "/metrics")[1])
        more = {name: value - last.get(name, 0) for name, value in now.items()}
        last.update(now)
        return more

    grown()
    return server, grown


def finished(more):
    return {reason: more[f'lockstep_sequences_finished_total{{reason="{reason}"}}'] for reason in REASONS}


def test_talks_and_embeddings(scraped):
    server, grown = scraped
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
    sequences = prompt = generated = 0
    ended = dict.fromkeys(REASONS, 0)

    def count(reasons, tokens, prompt_tokens):
        nonlocal sequences, prompt, generated
        sequences += len(reasons)
        generated += tokens
        prompt += prompt_tokens * len(reasons)  # each choice is a sequence
        for reason in reasons:
            ended[reason] += 1

    for fields in ({"max_tokens": 9, "n": 3, "temperature": 1, "seed": 4}, {"max_tokens": 2}, {"max_tokens": 40, "logit_bias": {"102": 100}}):  # the last ends by itself
        whole = client.chat.completions.create(model=MODEL, messages=MESSAGES, **fields)
        count([c.finish_reason for c in whole.choices], whole.usage.completion_tokens, whole.usage.prompt_tokens)
        parts = list(client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True, stream_options={"include_usage": True}, **fields))
        why = {c.index: c.finish_reason for part in parts for c in part.choices if c.finish_reason}
        assert sorted(why) == list(range(fields.get("n", 1)))
        count(list(why.values()), parts[-1].usage.completion_tokens, parts[-1].usage.prompt_tokens)
    for stream in (False, True):
        for most in (2, 40):
            answer = client.responses.create(model=MODEL, input="3 7 12=48:", temperature=0, max_output_tokens=most, stream=stream)
            response = list(answer)[-1].response if stream else answer
            count(["stop" if response.status == "completed" else "length"], response.usage.output_tokens, response.usage.input_tokens)
    assert ended["stop"] and ended["length"], ended
    with_tokens = sequences
    embedded = client.embeddings.create(model=MODEL, input=["3 7", "3 7 12=48:", "5"])
    sequences, prompt = sequences + 3, prompt + embedded.usage.prompt_tokens
    ended["length"] += 3  # of no token
    more = grown()
    assert (more["lockstep_sequences_total"], more["lockstep_generated_tokens_total"], more["lockstep_prompt_tokens_total"]) == (sequences, generated, prompt)
    assert finished(more) == ended
    assert more["lockstep_time_to_first_token_seconds_count"] == with_tokens and more["lockstep_sequence_seconds_count"] == sequences
    assert more["lockstep_engine_sampled_tokens_total"] == generated
    for route, calls in (("chat/completions", 6), ("responses", 4), ("embeddings", 1)):
        assert more[f'lockstep_http_requests_total{{route="/v1/{route}",method="POST",status="200"}}'] == calls


def test_a_stream_that_its_client_leaves(scraped):
    """Its sequences are cancelled, each counted once, and their tokens are those that were made until then."""
    server, grown = scraped
    choices, most = 200, 400  # seconds of work
    body = {"model": MODEL, "messages": MESSAGES, "n": choices, "max_tokens": most, "temperature": 1, "ignore_eos": True, "stream": True}
    with requests.post(server.url + "/v1/chat/completions", json=body, stream=True, timeout=60) as answer:
        heard = [line for line, _ in zip((line for line in answer.iter_lines() if b'"content"' in line), range(3))]
    assert len(heard) == 3
    end = time.monotonic() + 30
    while samples(ask(server, "GET", "/metrics")[1])["lockstep_open_sequences"] and time.monotonic() < end:
        time.sleep(0.05)
    more = grown()
    assert more["lockstep_sequences_total"] == choices and finished(more) == {"stop": 0, "length": 0, "cancelled": choices, "error": 0}, finished(more)
    assert 0 < more["lockstep_generated_tokens_total"] < choices * most
    assert more["lockstep_open_sequences"] == 0
