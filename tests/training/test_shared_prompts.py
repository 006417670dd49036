"""`share_prompts` of a loss's config, through both packages: equal prompts of a request are one sequence in the backward, of which no row is
a target then; the same bits by either package. What cannot be shared is refused by name (docs/training-api.md, "Prompts in the backward")."""
import fireworks.training.sdk.types as fireworks_types
import pytest
import tinker
import torch
from tinker import types

import fireworks_tools as fireworks

BASE = "countdown-glm"
PROMPT = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38, 46, 26]
TEXTS = [PROMPT + answer for answer in ([1, 5, 7, 9], [2, 2, 7, 1, 4], [8, 6, 3])]
WEIGHTS = [[0.0] * (len(PROMPT) - 1) + [1.0] * (len(text) - len(PROMPT)) for text in TEXTS]


def tinker_step(server, config):
    """The log-probabilities that the gradient came with, and its norm."""
    client = tinker.ServiceClient(base_url=server.url, api_key="tml-dummy").create_lora_training_client(base_model=BASE, rank=0).result()
    data = [types.Datum(model_input=types.ModelInput.from_ints(text[:-1]), loss_fn_inputs={
        "target_tokens": types.TensorData.from_torch(torch.tensor(text[1:])), "weights": types.TensorData.from_torch(torch.tensor(weights))}) for text, weights in zip(TEXTS, WEIGHTS)]  # fmt: skip
    told = [list(output["logprobs"].tolist()) for output in client.forward_backward(data, "cross_entropy", config).result().loss_fn_outputs]
    return told, client.optim_step(types.AdamParams(learning_rate=1e-3)).result().metrics["grad_norm"]


def fireworks_step(server, config):
    client = fireworks.client_of(server.url, "shared")
    data = [fireworks.datum(text, weights=weights) for text, weights in zip(TEXTS, WEIGHTS)]
    result = client.forward_backward(data, "cross_entropy", config).result()
    told = [fireworks.logprobs_of(result, i) for i in range(len(data))]
    return told, client.optim_step(fireworks_types.AdamParams(learning_rate=1e-3)).result().metrics["grad_norm"]


def test_prompts_of_a_request_are_shared_in_the_backward(training_server):
    plain, norm = tinker_step(training_server, None)
    assert tinker_step(training_server, {"share_prompts": "forward"}) == (plain, norm)  # what is done anyway
    shared, other = tinker_step(training_server, {"share_prompts": "backward"})
    assert other == pytest.approx(norm, rel=1e-3)  # the norm is the same in most bits; src/host/shared_prompts_test.cpp sees that the gradient's are others
    for own, alone in zip(shared, plain):  # the prompt has no targets any more; the answers have the same forward
        assert all(alone[: len(PROMPT) - 1]) and own == [0.0] * (len(PROMPT) - 1) + alone[len(PROMPT) - 1:]
    assert fireworks_step(training_server, {"share_prompts": "backward"}) == (shared, other)


def test_policies_need_no_weights(training_server):
    """Data as recipes send them: prompts have no advantages, and no weights."""

    def step(config, **more):
        client = tinker.ServiceClient(base_url=training_server.url, api_key="tml-dummy").create_lora_training_client(base_model=BASE, rank=0).result()
        data = []
        for i, (text, weights) in enumerate(zip(TEXTS, WEIGHTS)):
            made = {"target_tokens": torch.tensor(text[1:]), "logprobs": torch.tensor(weights) * -3, "advantages": torch.tensor(weights) * (1.0 - 0.7 * i), **{name: torch.tensor(weights) for name in more}}
            data.append(types.Datum(model_input=types.ModelInput.from_ints(text[:-1]), loss_fn_inputs={name: types.TensorData.from_torch(values) for name, values in made.items()}))
        told = [list(output["logprobs"].tolist()) for output in client.forward_backward(data, "importance_sampling", config).result().loss_fn_outputs]
        return told, client.optim_step(types.AdamParams(learning_rate=1e-3)).result().metrics["grad_norm"]

    shared, alone = step({"share_prompts": "backward"}), step(None)
    assert shared == step({"share_prompts": "backward"}, weights=True)
    assert [own[len(PROMPT) - 1:] for own in shared[0]] == [own[len(PROMPT) - 1:] for own in alone[0]]
    assert not any(shared[0][0][: len(PROMPT) - 1]) and all(alone[0][0][: len(PROMPT) - 1])  # a shared prompt has no targets


@pytest.mark.parametrize("value, said", [("sideways", "share_prompts is 'sideways', allowed are forward, backward"), ("backwards", "did you mean 'backward'"), (1.0, "share_prompts is no text, allowed are forward, backward")])
def test_other_values_are_refused(training_server, value, said):
    for step in (tinker_step, fireworks_step):
        with pytest.raises(Exception, match=said):
            step(training_server, {"share_prompts": value})


def weighed(logprobs, weights):
    """What cross_entropy says, as a client's own loss."""
    return -(logprobs * weights).sum(), {}


def unweighed(logprobs, weights):
    return -(logprobs + weights).sum(), {}


def squared(logprobs, weights):
    """Whose derivative by a log-probability of 0 is 0."""
    return (logprobs.square() + weights).sum(), {}


def metered(logprobs, weights):
    return -(logprobs * weights).sum(), {"custom/all:sum": logprobs.sum()}


def custom_step(server, function, config, weights=WEIGHTS):
    service = tinker.ServiceClient(base_url=server.url, api_key="tml-dummy")
    client = service.create_lora_training_client(base_model=BASE, rank=0).result()
    handle = service.create_custom_loss(function, input_ranks={"logprobs": 1, "weights": 1}).result()
    data = [types.Datum(model_input=types.ModelInput.from_ints(text[:-1]), loss_fn_inputs={
        "target_tokens": types.TensorData.from_torch(torch.tensor(text[1:])), "weights": types.TensorData.from_torch(torch.tensor(own))}) for text, own in zip(TEXTS, weights)]  # fmt: skip
    told = [list(output["logprobs"].tolist()) for output in client.forward_backward(data, "custom", {"loss_id": handle.loss_id, **config}).result().loss_fn_outputs]
    return told, client.optim_step(types.AdamParams(learning_rate=1e-3)).result().metrics["grad_norm"]


def test_a_traced_loss_shares_what_weighs_nothing(training_server):
    """Its gradient is that of the loss by name, alone and with shared prompts; the two are not one."""
    for config in ({}, {"share_prompts": "backward"}):
        assert custom_step(training_server, weighed, config) == tinker_step(training_server, config), config
    for function in (unweighed, squared, metered):
        custom_step(training_server, function, {})
        with pytest.raises(tinker.RequestFailedError, match=r"data\[0\]: .*the loss or a metric depends on log-probabilities of the prompt's rows"):
            custom_step(training_server, function, {"share_prompts": "backward"})
    with pytest.raises(tinker.RequestFailedError, match="no datum has a prompt"):
        custom_step(training_server, weighed, {"share_prompts": "backward"}, [[1.0] * len(own) for own in WEIGHTS])
    with pytest.raises(tinker.RequestFailedError, match="2 entries beside share_prompts"):
        custom_step(training_server, weighed, {"share_prompts": "backward", "beta": 1.0})
