"""One key's stream beside 64 and 600 of another's, over HTTP with the openai client: its first token comes within two of the running batch's steps and its
own prompt, and then it is part of every step, in device seconds as /metrics accounts them. The control: behind 600 of its own key it waits."""
import asyncio
import re
import statistics
import time

import openai
import pytest
import requests
from conftest import MODEL, Server

ANN, BOB = "sk-ann-0123456789abcdef", "sk-bob-0123456789abcdef"
PLACES = 256  # sequences that run at a time
TOKENS, STREAMS = 24, 5


@pytest.fixture
def server(tmp_path):
    (tmp_path / "keys.txt").write_text(f"ann {ANN}\nbob {BOB}\n")
    running = Server("--api-key-file", str(tmp_path / "keys.txt"), "--max-open", "4096")
    yield running
    assert running.stop() == 0, "".join(running.errors)


def figures(server):
    text = requests.get(server.url + "/metrics", headers={"Authorization": f"Bearer {BOB}"}, timeout=60).text

    def value(name):
        found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.M)
        return float(found[1]) if found else 0.0

    return {"ann": value('lockstep_device_seconds_total{class="live",key="ann"}'), "bob": value('lockstep_device_seconds_total{class="live",key="bob"}'),
            "forwards": value("lockstep_engine_forwards_total"), "rows": value("lockstep_engine_rows_total"),
            "firsts": value("lockstep_time_to_first_token_seconds_count"), "first": value("lockstep_time_to_first_token_seconds_sum"),
            "whole": value("lockstep_sequence_seconds_sum"), "ended": value("lockstep_sequence_seconds_count"),
            "waiting": value('lockstep_key_sequences_waiting{class="live",key="ann"}')}


def client(server, key):
    return openai.AsyncOpenAI(base_url=server.url + "/v1", api_key=key, max_retries=0, timeout=120)


async def opened(of, seed, tokens, n=1):
    return await of.completions.create(model=MODEL.name, prompt="3 7 12=48:", max_tokens=tokens, seed=seed, n=n, stream=True, extra_body={"ignore_eos": True})


async def beside(server, many):
    """What each of bob's streams went through, one after the other, while ann's run: figures of the server, and what it had of them."""
    ann, bob = client(server, ANN), client(server, BOB)
    n = 8 if many > PLACES else 1  # a request's; the client takes some milliseconds for each, in which those before go on
    held = [asyncio.ensure_future(opened(ann, seed, 480, n)) for seed in range(many // n)]
    try:
        while figures(server)["firsts"] < min(many, PLACES) or figures(server)["waiting"] < many - PLACES:
            await asyncio.sleep(0.01)
        if many > PLACES:
            with pytest.raises(TimeoutError):  # of ann's own it waits
                await asyncio.wait_for(opened(ann, many, 1), 0.3)  # headers come with the first token
        seen = []
        for seed in range(STREAMS):
            before, told = figures(server), []
            async for part in await opened(bob, seed, TOKENS):
                told += part.choices[0].token_ids if part.choices else []
            after = figures(server)
            assert len(told) == TOKENS
            seen.append({name: after[name] - before[name] for name in after})
        return seen
    finally:
        for one in held:
            one.cancel() if not one.done() else await one.result().close()
        await ann.close()
        await bob.close()


@pytest.mark.parametrize("many", [64, 600])
def test_one_stream_beside_many_of_another_key(server, many):
    began = time.monotonic()
    seen = asyncio.run(beside(server, many))
    alone = [one for one in seen if one["firsts"] == 1 and one["ended"] == 1]  # nobody else began or ended meanwhile
    assert len(alone) > STREAMS // 2, seen
    rows = min(many, PLACES)

    def median(of):
        return statistics.median(of(one) for one in alone)

    step = median(lambda one: (one["ann"] + one["bob"]) / one["forwards"])
    assert median(lambda one: one["rows"] / one["forwards"]) > 0.9 * rows  # batches are not split for it
    first = median(lambda one: one["first"] / ((one["ann"] + one["bob"]) / one["forwards"]))
    rest = median(lambda one: (one["whole"] - one["first"]) / ((one["ann"] + one["bob"]) / one["forwards"]))
    charged = median(lambda one: one["bob"] / (one["ann"] + one["bob"]) * one["rows"])
    print(f"{many} streams: a step {1000 * step:.1f} ms; first token {first:.1f} steps, {TOKENS - 1} more {rest:.1f} steps, charged {charged:.1f} rows; {time.monotonic() - began:.1f} s")
    assert first < 3 + 1, seen  # two steps and its own, and what a request takes to the engine
    assert rest < 1.3 * (TOKENS - 1) + 1, seen  # part of every step
    assert charged == pytest.approx(TOKENS - 1 + 11, rel=0.3)  # it pays for its rows
