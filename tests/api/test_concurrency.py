"""A thousand requests of all kinds at random times, on a cache too small for them, with clients that leave: each answers byte for
byte as it does alone. What may differ is the answer's id, its time and how much of a prompt the cache happened to hold."""
import asyncio
import json
import random
import re

import httpx

MODEL = "countdown-chat"
REQUESTS, LEAVERS, AT_A_TIME = 1000, 60, 64
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", None]}}, "required": ["a", "b"]}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"enum": [1, 2, 3]}}, "required": ["a"]}}}


def request(draw, seed):
    """(path, body)"""
    chat = draw.random() < 0.5
    prompt = draw.choice(["3 7 12=48:", "3 7 12=48:3*", "1 2 3=6:", "25 4 2 10=90:", "3 7 12 and a long story that goes on for many more pages:"])
    body = {"model": MODEL, "seed": seed, "max_tokens": draw.randint(1, 40), "temperature": draw.choice([0, 0.7, 1, 1.5]), "return_token_ids": True}
    for share, fields in [(0.3, {"n": draw.randint(1, 3)}), (0.2, {"top_k": 9}), (0.2, {"top_p": 0.9}), (0.2, {"min_p": 0.05}),
                          (0.2, {"frequency_penalty": 0.5}), (0.2, {"logit_bias": {"7": 3, "102": -100}}), (0.2, {"stop": ["1", "=4"]}),
                          (0.2, {"min_tokens": 1}), (0.5, {"ignore_eos": True}),
                          (0.15, {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}}),
                          (0.5, {"stream": True, "stream_options": {"include_usage": True}})]:
        if draw.random() < share:
            body.update(fields)
    holds_to_json = chat and draw.random() < 0.15 and "response_format" not in body
    if not chat:
        if draw.random() < 0.5:
            body.update(logprobs=draw.randint(0, 3), echo=draw.random() < 0.5)
        return "/v1/completions", {**body, "prompt": prompt}
    if draw.random() < 0.3:
        body.update(logprobs=True, top_logprobs=draw.randint(0, 3))
    if holds_to_json:
        body.update(tools=[TOOL], tool_choice="required", max_tokens=60)
    if draw.random() < 0.2:
        body["chat_template_kwargs"] = {"enable_thinking": True}
    return "/v1/chat/completions", {**body, "messages": [{"role": "user", "content": prompt}]}


def merge(into, part):
    """Texts and lists grow, the rest is replaced."""
    for name, value in part.items():
        old = into.get(name)
        if old is None or name in ("index", "role"):
            into[name] = value if old is None or value is not None else old
        elif value is None:
            pass
        elif name == "tool_calls":
            for call in value:
                known = [one for one in old if one["index"] == call["index"]]
                merge(known[0], call) if known else old.append(call)
        elif isinstance(old, (str, list)):
            into[name] = old + value
        elif isinstance(old, dict):
            merge(old, value)
        else:
            into[name] = value


def canonical(response):
    if response.headers["content-type"].startswith("text/event-stream"):
        events = [e.removeprefix("data: ") for e in response.text.split("\n\n") if e]
        assert events.pop() == "[DONE]"
        whole, choices = {}, {}
        for event in map(json.loads, events):
            for choice in event.pop("choices"):
                merge(choices.setdefault(choice["index"], {}), choice)
            whole.update({k: v for k, v in event.items() if v is not None})
        whole["choices"] = [choices[i] for i in sorted(choices)]
    else:
        whole = response.json()
    whole.pop("id", None), whole.pop("created", None), whole.get("usage", {}).pop("prompt_tokens_details", None)
    return f"{response.status_code} {json.dumps(whole, sort_keys=True)}"


async def leave(client, chunks):
    """Another request in the batch, which fills the cache and is cancelled in the middle of its answer."""
    body = {"model": MODEL, "prompt": "3 7 12=48:", "max_tokens": 480, "ignore_eos": True, "stream": True, "n": 12}
    async with client.stream("POST", "/v1/completions", json=body) as response:
        async for _ in response.aiter_raw():
            chunks -= 1
            if chunks <= 0:
                return


async def ask_all(url, requests, draw, leavers):
    gate = asyncio.Semaphore(AT_A_TIME)
    limits = httpx.Limits(max_connections=AT_A_TIME + 8)
    async with httpx.AsyncClient(base_url=url, timeout=120, limits=limits) as client:
        async def one(path, body, wait):
            async with gate:
                await asyncio.sleep(wait)
                return canonical(await client.post(path, json=body))

        async def leaver(wait, chunks):
            async with gate:
                await asyncio.sleep(wait)
                await leave(client, chunks)

        jobs = [one(path, body, draw.random() * 0.05) for path, body in requests]
        for _ in range(leavers):
            jobs.insert(draw.randrange(len(jobs)), leaver(draw.random() * 0.05, draw.randint(1, 80)))
        return [answer for answer in await asyncio.gather(*jobs) if answer is not None]


async def ask_alone(url, requests):
    async with httpx.AsyncClient(base_url=url, timeout=120) as client:
        return [canonical(await client.post(path, json=body)) for path, body in requests]


def engine_counters(url):
    text = httpx.get(url + "/metrics").text
    return {name: int(float(value)) for name, value in re.findall(r"^lockstep_engine_(\w+?)(?:_total)? (\S+)$", text, re.M)}


def different(a, b):
    return [i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y]


def test_together_as_alone(chat_server, own_server, chat_folder):
    draw = random.Random(2026)
    requests = [request(draw, 1000 + i) for i in range(REQUESTS)]
    alone = asyncio.run(ask_alone(chat_server.url, requests))
    assert all(answer.startswith("200 ") for answer in alone), [a for a in alone if not a.startswith("200 ")][:3]

    small = own_server("--cache-megabytes", "1", "--max-open", "4096", "--no-access-log", model=chat_folder)
    together = asyncio.run(ask_all(small.url, requests, draw, LEAVERS))
    wrong = different(alone, together)
    assert not wrong, (len(wrong), requests[wrong[0]], alone[wrong[0]], together[wrong[0]])

    counters = engine_counters(small.url)
    for name in ("preemptions", "evictions", "cache_hit_tokens", "mixed_batches"):
        assert counters[name] > 0, counters
    cancelled = re.search(r'lockstep_sequences_finished_total\{[^}]*reason="cancelled"[^}]*\} (\d+)', httpx.get(small.url + "/metrics").text)
    assert cancelled and int(cancelled[1]) >= LEAVERS

    # The control: the comparison finds one planted digit, and another seed where there is noise.
    planted = list(together)
    planted[7] = planted[7][:-3] + "!" + planted[7][-2:]
    assert different(alone, planted) == [7]
    hot = [(p, {**b, "seed": b["seed"] + 1}) for p, b in requests if b["temperature"] == 1.5 and b["max_tokens"] > 10][:20]
    was = [a for a, (p, b) in zip(alone, requests) if b["temperature"] == 1.5 and b["max_tokens"] > 10][:20]
    now = [a.replace(f'"seed": {b["seed"]}', f'"seed": {b["seed"] - 1}') for a, (p, b) in zip(asyncio.run(ask_alone(chat_server.url, hot)), hot)]
    assert len(different(was, now)) > len(hot) / 2
