"""A server whose model is cut into stages of a pipeline (docs/ranks.md): many clients at a time, with the real `openai` client, get the bytes of a server
without ranks, while plans follow each other through the stages; one client alone has nothing beside it."""
import re
from concurrent.futures import ThreadPoolExecutor

import openai
import requests
from conftest import MODEL

PROMPTS = ["3 7 12=48:", "1 2 3=6:", "25 4 2 10=90:", "3 7 12=48:3*", "16 19 14=17:", "2 2 2=8:"]


def client_of(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def complete(client, i):
    """The tokens and log-probabilities of a request, which its number alone decides."""
    answer = client.completions.create(model=MODEL.name, prompt=PROMPTS[i % len(PROMPTS)], max_tokens=24, temperature=(0, 0.7, 1)[i % 3], seed=i, logprobs=1,
                                       extra_body={"ignore_eos": True, "return_token_ids": True})  # fmt: skip
    return answer.choices[0].token_ids, answer.choices[0].logprobs.token_logprobs


def following(server):
    text = requests.get(server.url + "/metrics", timeout=60).text
    return int(re.search(r"^lockstep_engine_following_forwards_total (\d+)$", text, re.M)[1])


def leaves_in_the_middle(server):
    """A client that reads the beginning of a stream."""
    with client_of(server).completions.create(model=MODEL.name, prompt=PROMPTS[0], max_tokens=200, stream=True, extra_body={"ignore_eos": True}) as stream:
        next(iter(stream))


def test_many_clients_have_the_bytes_of_a_server_without_ranks(own_server):
    plain, stages = own_server("--threads", "2"), own_server("--threads", "2", "--ranks", "pp=2")
    numbers = range(18)
    client = client_of(plain)
    want = [complete(client, i) for i in numbers]
    assert following(plain) == 0
    client = client_of(stages)
    assert [complete(client, i) for i in numbers[:3]] == want[:3]
    assert following(stages) == 0  # the control: one at a time
    with ThreadPoolExecutor(len(numbers) + 2) as pool:
        leavers = [pool.submit(leaves_in_the_middle, stages) for _ in range(2)]
        assert list(pool.map(lambda i: complete(client, i), numbers)) == want
        for leaver in leavers:
            leaver.result()
    assert following(stages) > 0
    assert stages.stop() == 0, "".join(stages.errors)
