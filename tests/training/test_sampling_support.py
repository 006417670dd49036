"""Training on what sampling drew from: kept sets and temperature through the `fireworks-ai` package, where the sampler's number and the
trainer's have the same bits at every setting."""
import itertools

import fireworks.training.sdk.types as types
import pytest
import requests

from fireworks_tools import TOKENS, Deployed, bits, client_of, datum, logprobs_of, tensor, trained

PROMPT = TOKENS[:4]
SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 2, 345]}, "b": {"type": "string"}}, "required": ["a", "b"], "additionalProperties": False}
SETTINGS = [{"temperature": temperature, **filters} for temperature in (0.3, 0.7, 1.0, 1.5)
            for filters in ({}, {"top_k": 40}, {"top_k": 3, "min_p": 0.05}, {"top_p": 0.8}, {"response_format": {"type": "json_object", "schema": SCHEMA}},
                            {"response_format": {"type": "json_object", "schema": SCHEMA}, "top_k": 5})]  # fmt: skip
number = itertools.count()


class Policy:
    """A policy that moved a little, and its deployment."""

    def __init__(self, url, rank):
        self.url, self.key = url, f"kept-{next(number)}"
        self.client = client_of(url, self.key, lora_rank=rank, seed=7)
        trained(self.client, steps=2)
        deployment = Deployed(url, self.key, f"kept-{rank}")
        deployment.load(self.client.save_weights_for_sampler_ext("moved").snapshot_name)
        self.model = deployment.model

    def rows(self, **settings):
        body = {"model": self.model, "prompt": PROMPT, "max_tokens": 12, "seed": 5, "logprobs": True, "include_kept_tokens": True, **settings}
        answer = requests.post(f"{self.url}/inference/v1/completions", json=body, headers={"X-API-Key": self.key}, timeout=60)
        return answer.json()["choices"][0]["logprobs"]["content"] if answer.ok else answer.json()["error"]

    def trained_logprobs(self, rows, config, kept=True):
        """The log-probabilities that forward_backward gives of a completion's tokens. The client takes data of several shapes apart."""
        tokens = PROMPT + [row["token_id"] for row in rows]
        sets = [[]] * (len(PROMPT) - 1) + [row.get("kept_tokens", []) for row in rows]
        width = max(1, *map(len, sets))
        inputs = {"target_tokens": tensor(tokens[1:], "int64"), "weights": tensor([0.0] * (len(PROMPT) - 1) + [1.0] * len(rows), "float32")}
        if kept:
            inputs["kept_tokens"] = types.TensorData(data=[i for ids in sets for i in ids + [-1] * (width - len(ids))], dtype="int64", shape=[len(sets), width])
            inputs["kept_by_rank"] = tensor([1] * (len(PROMPT) - 1) + [int(row.get("kept_by_rank", True)) for row in rows], "int64")
        datum = types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=inputs)
        return logprobs_of(self.client.forward_backward([datum], "cross_entropy", config).result())[len(PROMPT) - 1:]


@pytest.fixture(params=[0, 8], ids=["full", "rank-8"])
def policy(request, training_server):
    return Policy(training_server.url, request.param)


def test_the_trainers_number_has_the_samplers_bits(policy):
    cut, by_id, different = 0, 0, 0
    for settings in SETTINGS:
        rows = policy.rows(**settings)
        sampled = bits(row["sampling_logprob"] for row in rows)
        config = {"temperature": settings["temperature"], "target_logprob_support": "sampling_support"}
        assert bits(policy.trained_logprobs(rows, config)) == sampled, settings
        sets = [row for row in rows if "kept_tokens" in row]
        assert bool(sets) == (len(settings) > 1) and all(row["token_id"] in row["kept_tokens"] for row in sets)
        cut, by_id = cut + len(sets), by_id + sum(not row["kept_by_rank"] for row in sets)
        # The control: over the whole vocabulary it is another number.
        different += bits(policy.trained_logprobs(rows, {"temperature": settings["temperature"]}, kept=False)) != sampled
    assert cut > 100 and by_id > 10 and different >= 12


def test_a_step_is_taken_over_the_kept_set(policy):
    rows = policy.rows(temperature=0.7, top_k=3)
    config = {"temperature": 0.7, "target_logprob_support": "sampling_support"}
    before = sum(policy.trained_logprobs(rows, config))
    policy.client.optim_step(types.AdamParams(learning_rate=1e-4)).result()
    assert before < sum(policy.trained_logprobs(rows, config)) < 0


def test_the_likeliest_tokens_are_told_at_temperature_1_alone(policy):
    with pytest.raises(Exception, match="at temperature 1 alone"):
        policy.client.forward([datum()], "cross_entropy", {"top_k": 3, "temperature": 0.7}).result()
    assert logprobs_of(policy.client.forward([datum()], "cross_entropy", {"top_k": 3, "temperature": 1.0}).result())


def test_what_no_training_knows_is_refused(policy):
    error = policy.rows(top_k=3, presence_penalty=0.5)
    assert "include_kept_tokens is asked for with repetition_penalty 1, presence_penalty 0.5" in error["message"], error
    rows = policy.rows(top_k=3)
    for config, words in (({}, "target_logprob_support is full_vocabulary"), ({"temperature": 0.0, "target_logprob_support": "sampling_support"}, "temperature is 0"),
                          ({"target_logprob_support": "candidates"}, "allowed are full_vocabulary, sampling_support")):  # fmt: skip
        with pytest.raises(Exception, match=words):
            policy.trained_logprobs(rows, config)
