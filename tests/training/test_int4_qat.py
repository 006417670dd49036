"""All weights, and adapters, trained through the real SDK by a server under `cpu-int4-qat` and `cpu-mxfp8`: trainer and sampler have the same bits,
losses fall, and what was saved goes on."""
import pytest
from tinker import types

from test_tinker import TOKENS, bits, client_of, logprobs_of, model_of, train, weighted


def forward(client):
    return bits(logprobs_of(client.forward([weighted()], "cross_entropy").result()))


def sampler_of(client):
    return client.save_weights_and_get_sampling_client().result()


def scored(sampler):
    return bits(sampler.compute_logprobs(types.ModelInput.from_ints(TOKENS)).result()[1:])


@pytest.mark.parametrize("profile, rank", [("cpu-int4-qat", 0), ("cpu-int4-qat", 8), ("cpu-mxfp8", 0)], ids=["full", "adapter", "mxfp8"])
def test_training_and_sampling_in_few_bits(start_server, profile, rank):
    server = start_server("--profile", profile)
    service = client_of(server)
    client = model_of(service, rank=rank, seed=7)
    base = forward(client)
    assert scored(service.create_sampling_client(base_model="countdown-glm").result()) == base
    losses = train(client, [weighted()], steps=12, learning_rate=1e-3 if rank == 0 else 2e-3)
    assert losses[-1] < 0.5 * losses[0]
    trained, sampler = forward(client), sampler_of(client)
    assert trained != base and scored(sampler) == trained
    sampled = sampler.sample(types.ModelInput.from_ints(TOKENS[:3]), num_samples=1,
                             sampling_params=types.SamplingParams(max_tokens=8, seed=3, stop=[])).result().sequences[0]
    again = client.forward([weighted(TOKENS[:3] + list(sampled.tokens))], "cross_entropy").result()
    assert bits(logprobs_of(again)[2:]) == bits(sampled.logprobs)
    path = client.save_state("here").result().path
    train(client, [weighted()])
    after = forward(client)
    assert after != trained, "the control: other weights, other bits"
    assert server.stop() == 0
    resumed = client_of(start_server("--profile", profile)).create_training_client_from_state_with_optimizer(path).result()
    assert forward(resumed) == trained
    train(resumed, [weighted()])
    assert forward(resumed) == after


def test_another_profile_has_other_bits(start_server, tmp_path):
    servers = [start_server("--profile", profile, "--state", str(tmp_path / profile)) for profile in ("cpu-int4-qat", "cpu-int4-base")]
    first, second = (scored(client_of(server).create_sampling_client(base_model="countdown-glm").result()) for server in servers)
    assert first != second
