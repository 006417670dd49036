"""Fireworks' completions as a stream: parts come while tokens are drawn, and together they are the whole answer."""
import json
import time

import requests

from fireworks_tools import BASE, TOKENS

ASK = {"model": BASE, "prompt": TOKENS[:4], "max_tokens": 400, "ignore_eos": True, "seed": 7, "logprobs": True, "raw_output": True, "return_token_ids": True}


def ask(server, stream=False, **fields):
    return requests.post(server.url + "/inference/v1/completions", json={**ASK, "stream": stream, **fields}, headers={"X-API-Key": "streams"}, timeout=120, stream=stream)


def parts_of(answer):
    """Each event's JSON and when it came; the last event is [DONE]."""
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream")
    lines = [(line, time.monotonic()) for line in answer.iter_lines(chunk_size=1) if line]
    assert lines[-1][0] == b"data: [DONE]"
    return [(json.loads(line.removeprefix(b"data: ")), at) for line, at in lines[:-1]]


def test_parts_come_as_tokens_do_and_are_the_whole(start_server):
    server = start_server()
    whole = ask(server).json()
    choice = whole["choices"][0]
    parts = parts_of(ask(server, stream=True))
    assert len(parts) > 20 and parts[-1][1] - parts[0][1] > 0.005  # of 400 tokens, which take longer than that
    choices = [part["choices"][0] for part, _ in parts]
    assert "".join(one["text"] for one in choices) == choice["text"]
    assert [row for one in choices for row in one["logprobs"]["content"]] == choice["logprobs"]["content"]
    assert [token for one in choices for token in one["token_ids"]] == choice["token_ids"] and len(choice["token_ids"]) == 400
    assert [one["finish_reason"] for one in choices] == [None] * (len(parts) - 1) + ["length"]
    # What is known at the end stands in the last part alone.
    assert all("usage" not in part and "raw_output" not in part["choices"][0] for part, _ in parts[:-1])
    assert parts[-1][0]["usage"]["completion_tokens"] == 400 and choices[-1]["raw_output"] == choice["raw_output"]
    assert choices[0]["prompt_token_ids"] == TOKENS[:4] and "prompt_token_ids" not in choices[1]


def test_a_stop_string_cut_by_tokens_ends_a_stream_before_it(start_server):
    server = start_server()
    text = ask(server).json()["choices"][0]["text"]
    stop = text[20:26]
    at = text.index(stop)
    whole = ask(server, stop=[stop, "no such text"]).json()["choices"][0]
    choices = [part["choices"][0] for part, _ in parts_of(ask(server, stream=True, stop=[stop, "no such text"]))]
    assert "".join(one["text"] for one in choices) == whole["text"] == text[:at]
    assert choices[-1]["finish_reason"] == whole["finish_reason"] == "stop"
    assert [token for one in choices for token in one["token_ids"]] == whole["token_ids"]


def test_what_is_wrong_is_an_answer_and_no_stream(start_server):
    server = start_server()
    answer = ask(server, stream=True, stop_token_ids=[3, 99999])
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "stop_token_ids"
    assert answer.json()["error"]["message"].startswith("stop_token_ids[1] is 99999, allowed are token ids from 0 to")
