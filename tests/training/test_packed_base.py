"""Adapters over a base that is held in few bits, through the real SDK: trainer and sampler have the same bits, losses fall, and what would need
the base's own weights is refused."""
import pytest
import tinker
from tinker import types

from test_tinker import TOKENS, bits, client_of, logprobs_of, model_of, train, weighted

FORMATS = [("int4", "linear"), ("fp8", "linear"), ("mxfp8", "linear"), ("int4", "experts"), ("fp8", "experts")]


@pytest.mark.parametrize("kind,layers", FORMATS)
def test_training_and_sampling_over_a_packed_base(start_server, kind, layers):
    server = start_server("--frozen-base", kind, "--frozen-layers", layers)
    service = client_of(server)
    client = model_of(service, rank=8, seed=7)
    prompt = types.ModelInput.from_ints(TOKENS)
    base = service.create_sampling_client(base_model="countdown-glm").result().compute_logprobs(prompt).result()
    assert bits(logprobs_of(client.forward([weighted()], "cross_entropy").result())) == bits(base[1:]), "a fresh adapter is the base"
    losses = train(client, [weighted()], steps=12, learning_rate=2e-3)
    assert losses[-1] < 0.5 * losses[0]
    trained = logprobs_of(client.forward([weighted()], "cross_entropy").result())
    sampler = client.save_weights_and_get_sampling_client().result()
    assert bits(sampler.compute_logprobs(prompt).result()[1:]) == bits(trained)
    sampled = sampler.sample(types.ModelInput.from_ints(TOKENS[:3]), num_samples=1,
                             sampling_params=types.SamplingParams(max_tokens=8, seed=3, stop=[])).result().sequences[0]
    again = client.forward([weighted(TOKENS[:3] + list(sampled.tokens))], "cross_entropy").result()
    assert bits(logprobs_of(again)[2:]) == bits(sampled.logprobs)
    train(client, [weighted()])  # the control: another adapter, other bits
    assert bits(logprobs_of(client.forward([weighted()], "cross_entropy").result())) != bits(trained)
    assert "packed" in refusal_of_rank_0(service)


def refusal_of_rank_0(service):
    try:
        client = model_of(service, rank=0)
        client.forward([weighted()], "cross_entropy").result()
    except (tinker.RequestFailedError, tinker.APIStatusError) as error:
        return str(error)
    pytest.fail("all parameters of a packed base are trained")


def test_a_checkpoint_is_for_the_format_that_it_was_trained_over(start_server):
    server = start_server("--frozen-base", "int4")
    client = model_of(client_of(server), rank=8, seed=7)
    train(client, [weighted()])
    path = client.save_state("here").result().path
    want = bits(logprobs_of(client.forward([weighted()], "cross_entropy").result()))
    assert server.stop() == 0
    same = start_server("--frozen-base", "int4")
    resumed = client_of(same).create_training_client_from_state(path).result()
    assert bits(logprobs_of(resumed.forward([weighted()], "cross_entropy").result())) == want
    assert same.stop() == 0
    other = client_of(start_server("--frozen-base", "fp8"))
    with pytest.raises((tinker.RequestFailedError, tinker.APIStatusError), match="profile digest"):
        other.create_training_client_from_state(path).result().forward([weighted()], "cross_entropy").result()
