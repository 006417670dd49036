"""`service_tier` and a key's class say whether an answer is live or a rollout: told in every answer and on /metrics, and no bit depends on it.
The openai client against a server with `--live-token-ms`, and one without."""
import functools
import re
import threading
import time

import openai
import pytest
import requests
from conftest import MODEL, Server

ANN, LOOP = "sk-ann-0123456789abcdef", "sk-loop-0123456789abcdef"


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    path = tmp_path_factory.mktemp("tier") / "keys.txt"
    path.write_text(f"ann {ANN}\nloop {LOOP} class=rollouts\n")
    return str(path)


@pytest.fixture(scope="module", params=[["--live-token-ms", "0.01"], []], ids=["bounded", "by shares"])
def server(request, keys):
    running = Server("--api-key-file", keys, *request.param)
    running.bounded = bool(request.param)
    yield running
    assert running.stop() == 0, "".join(running.errors)


@functools.lru_cache
def client_of(url, key):
    return openai.OpenAI(base_url=url + "/v1", api_key=key, max_retries=0)


def complete(server, key=ANN, **fields):
    client = client_of(server.url, key)
    tier = {"service_tier": fields.pop("tier")} if "tier" in fields else {}
    return client.completions.create(**{"model": MODEL.name, "prompt": "3 7 12=48:", "max_tokens": 24, "seed": 7, "extra_body": {"ignore_eos": True, **tier}, **fields})


def metric(server, name, **labels):
    text = requests.get(server.url + "/metrics", headers={"Authorization": f"Bearer {ANN}"}, timeout=60).text
    shown = ",".join(f'{label}="{value}"' for label, value in labels.items())
    return float(re.search(rf"^{re.escape(name + ('{' + shown + '}' if shown else ''))} (\S+)$", text, re.M)[1])


def test_the_answer_tells_the_tier(server):
    ids = {tuple(complete(server).choices[0].token_ids)}
    for key, tier, told in [(ANN, "auto", "default"), (ANN, "default", "default"), (ANN, "priority", "default"), (ANN, "flex", "flex"),
                            (LOOP, "auto", "flex"), (LOOP, "default", "flex"), (LOOP, "flex", "flex")]:
        answer = complete(server, key, tier=tier)
        assert answer.service_tier == told, (key, tier)
        ids.add(tuple(answer.choices[0].token_ids))
        assert {part.service_tier for part in complete(server, key, tier=tier, stream=True)} == {told}
    assert complete(server, LOOP).service_tier == "flex" and complete(server).service_tier == "default"
    assert len(ids) == 1  # one answer, whoever asks


def test_an_unknown_tier_is_refused(server):
    for tier in ("scale", "Flex", 3):
        with pytest.raises(openai.BadRequestError) as refused:
            complete(server, tier=tier)
        assert refused.value.param == "service_tier" and "allowed are auto, default, flex, priority" in refused.value.message, refused.value.message


def test_metrics_are_by_class(server):
    before = {(name, work): metric(server, f"lockstep_class_{name}_total", **{"class": work}) for name in ("sequences", "tokens") for work in ("live", "rollouts")}
    gaps = metric(server, "lockstep_class_token_gap_seconds_count", **{"class": "rollouts"})
    complete(server)
    complete(server, tier="flex", n=2)
    grown = {each: metric(server, f"lockstep_class_{each[0]}_total", **{"class": each[1]}) - count for each, count in before.items()}
    assert grown == {("sequences", "live"): 1, ("sequences", "rollouts"): 2, ("tokens", "live"): 24, ("tokens", "rollouts"): 48}
    assert metric(server, "lockstep_class_token_gap_seconds_count", **{"class": "rollouts"}) - gaps == 46


def test_rollouts_are_held_back_beside_live_answers(server):
    """By a bound that no step keeps; and every one of them ends with its bits."""
    alone = [complete(server, tier="flex", seed=seed, max_tokens=60).choices[0].token_ids for seed in range(4)]
    held, answers = metric(server, "lockstep_engine_held_back_forwards_total"), [None] * 4

    def one(seed):
        answers[seed] = complete(server, tier="flex", seed=seed, max_tokens=60)

    begun, over = threading.Semaphore(0), threading.Event()

    def live():
        while not over.is_set():
            for part in complete(server, max_tokens=400, temperature=0, stream=True):
                if part.choices and part.choices[0].token_ids:
                    begun.release()

    beside = [threading.Thread(target=live) for _ in range(2)]  # there is a live answer under way, until one of the rollouts was held back, or all have ended
    for thread in beside:
        thread.start()
        begun.acquire()
    threads = [threading.Thread(target=one, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    while metric(server, "lockstep_engine_held_back_forwards_total") == held and any(thread.is_alive() for thread in threads):
        time.sleep(0.02)
    over.set()
    for thread in (*beside, *threads):
        thread.join()
    assert [a.choices[0].token_ids for a in answers] == alone
    assert (metric(server, "lockstep_engine_held_back_forwards_total") > held) == server.bounded
