"""Values of samples that there are not, on the wire: each is one error that names the field, the value and what is allowed; none is taken
for another value. Of tinker's samples and of Fireworks' completions; those of OpenAI's API are in src/api/completion_request_test.cpp."""
import itertools

import pytest
import requests

from test_wire import BASE, TOKENS, Client

TEMPERATURE, TOP_P, TOP_K = "allowed is 0 or a number from 1e-06 to 100", "allowed is a number above 0 and at most 1", "allowed is an integer from -1 to 2147483647"
SEED = "allowed is an integer of 64 bits"
# Field, value, what is allowed: of both.
BOTH = [
    ("temperature", 1e-45, TEMPERATURE), ("temperature", 1e-60, TEMPERATURE), ("temperature", -1, TEMPERATURE), ("temperature", 101, TEMPERATURE), ("temperature", "hot", TEMPERATURE),
    ("top_p", 0, TOP_P), ("top_p", 1.01, TOP_P), ("top_p", -1, TOP_P), ("top_p", True, TOP_P),
    ("top_k", -2, TOP_K), ("top_k", 2**32 + 1, TOP_K), ("top_k", 1.5, TOP_K),
    ("max_tokens", -1, "allowed is an integer from"), ("max_tokens", 2**32 + 1, "allowed is an integer from"), ("max_tokens", 2**64 - 1, "allowed is an integer from"),
    ("seed", 2**64, SEED), ("seed", -(2**63) - 1, SEED), ("seed", 0.5, SEED), ("seed", 10**40, SEED),
]  # fmt: skip


def shown(value):
    """A value as errors show it: whole numbers of more than 64 bits as the double that JSON makes of them."""
    if isinstance(value, bool) or isinstance(value, str):
        return str(value).lower() if isinstance(value, bool) else f'"{value}"'
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        value = float(value)
    return str(value)


@pytest.fixture(scope="module")
def client(training_server):
    return Client(training_server.url, "tml-odd")


@pytest.fixture(scope="module")
def sampler(client):
    return client.post("create_sampling_session", session_id=client.session, sampling_session_seq_id=0, base_model=BASE)["sampling_session_id"]


NUMBERS = itertools.count()


def sample(client, sampler, sampling=None, text=None, **fields):
    body = {"sampling_session_id": sampler, "seq_id": next(NUMBERS), "prompt": {"chunks": [{"type": "encoded_text", "tokens": TOKENS[:3]}]}, "sampling_params": {"max_tokens": 2, **(sampling or {})}, **fields}
    answer = client.raw("asample", data=text, headers={"content-type": "application/json"}) if text else client.raw("asample", json=body)
    if answer.status_code != 200:
        assert answer.status_code in (400, 422), answer.text
        return answer.json()["detail"]
    result = client.result(answer.json()["request_id"])
    return result["error"] if isinstance(result, dict) else "accepted"


def complete(client, **fields):
    answer = requests.post(client.url.removesuffix("/api/v1/") + "/inference/v1/completions", json={"model": BASE, "prompt": TOKENS[:3], "max_tokens": 2, **fields}, headers={"X-API-Key": client.key}, timeout=60)
    if answer.status_code == 200:
        return "accepted"
    assert answer.status_code in (400, 422), answer.text
    return answer.json()["detail"]


@pytest.mark.parametrize("field,value,allowed", [*BOTH, ("max_tokens", 0, "allowed is an integer from 1"), ("stop", {"a": 1}, "allowed is a text, a list of texts, or a list of token ids"),
                                                 ("stop", [1, "a"], "allowed is a text, a list of texts, or a list of token ids")])  # fmt: skip
def test_samples(client, sampler, field, value, allowed):
    said = sample(client, sampler, {field: value})
    assert said.startswith(f"sampling_params.{field} is ") and allowed in said, said
    if field != "stop":
        assert f" is {shown(value)}, " in said, said


@pytest.mark.parametrize("stop,place,told", [([2**32 + 9], 0, 2**32 + 9), ([3, -1], 1, -1), ([2**31], 0, 2**31), ([1, 2, 10**6], 2, 10**6), ([2**64 - 1], 0, 2**64 - 1), ([10**30], 0, "1e+30"), ([1.5], 0, 1.5)])
def test_stops_of_samples_are_not_wrapped(client, sampler, stop, place, told):
    said = sample(client, sampler, {"stop": stop})
    assert said.startswith(f"sampling_params.stop[{place}] is {told}, allowed is an integer from 0 to "), said


@pytest.mark.parametrize("count", [0, -1, 1025, 2**32 + 1, 2**63 - 1])
def test_counts_of_samples(client, sampler, count):
    assert sample(client, sampler, num_samples=count) == f"num_samples is {count}, allowed is 1 to 1024"


def test_counts_of_samples_beyond_all_numbers(client, sampler):
    assert sample(client, sampler, num_samples=2**64 - 1).startswith(f"num_samples is {2**64 - 1}, allowed is a whole number")
    assert sample(client, sampler, num_samples=2**64).startswith("num_samples is 1.8446744073709552e+19, allowed is a whole number")


@pytest.mark.parametrize("tokens,said_of", [([2**32 + 1], 0), ([1, -3], 1), ([1, "a"], 1), ([2**64], 0)])
def test_prompts_are_not_wrapped(client, sampler, tokens, said_of):
    said = sample(client, sampler, prompt={"chunks": [{"type": "encoded_text", "tokens": tokens}]})
    assert said.startswith(f"prompt.chunks[0].tokens[{said_of}] is ") and "allowed is an integer from 0" in said, said
    said = complete(client, prompt=tokens)
    assert said.startswith(f"prompt[{said_of}] is ") and "allowed is an integer from 0" in said, said


def test_numbers_that_are_none(client, sampler):
    for text in ("NaN", "Infinity", "1e999"):
        body = '{"sampling_session_id": "%s", "seq_id": 999, "prompt": {"chunks": [{"type": "encoded_text", "tokens": [1]}]}, "sampling_params": {"temperature": %s}}' % (sampler, text)
        said = sample(client, sampler, text=body)
        assert "JSON" in said or "no double holds" in said, said


def test_the_ends_of_what_is_allowed(client, sampler):
    for fields in ({"temperature": 0}, {"temperature": 1e-6}, {"temperature": 100}, {"top_p": 1}, {"top_p": 1e-60}, {"top_k": -1}, {"top_k": 2**31 - 1}, {"seed": 2**64 - 1}, {"seed": -(2**63)}):
        assert sample(client, sampler, fields) == "accepted", fields
        assert complete(client, **fields) == "accepted", fields
    assert sample(client, sampler, {"max_tokens": 2**31 - 1, "stop": list(range(32))}) == "accepted"  # as far as the context reaches
    assert complete(client, max_tokens=2**31 - 1, stop=["1", "2"]) == "accepted"


@pytest.mark.parametrize("field,value,allowed", [*BOTH, ("n", 0, "allowed is 1"), ("n", -1, "allowed is 1"), ("n", 2**40, "allowed is 1"), ("echo_last", -2, "allowed is an integer from -1"),
                                                 ("echo_last", 2**32, "allowed is an integer from -1"), ("top_logprobs", 21, "allowed is an integer from 0 to 20"), ("top_logprobs", -1, "allowed is an integer from 0 to 20")])  # fmt: skip
def test_completions_of_fireworks(client, field, value, allowed):
    said = complete(client, **{field: value})
    assert said.startswith(f"{field} is {shown(value)}, ") and allowed in said, said


@pytest.mark.parametrize("stop,said_of", [(7, "stop is 7"), ({"a": 1}, "stop is an object"), (["a"] * 65, "stop is an array of 65"), (["a", 5], "stop[1] is 5")])
def test_stops_of_completions(client, stop, said_of):
    said = complete(client, stop=stop)
    assert said.startswith(said_of) and "allowed is" in said, said
