"""Adapters over a base that is held in few bits, through the real SDK: trainer and sampler have the same bits, losses fall, and what would need
the base's own weights is refused."""
import os
import subprocess
from pathlib import Path

import pytest
import tinker
from safetensors.torch import load_file, save_file
from tinker import types

from test_tinker import TOKENS, bits, client_of, logprobs_of, model_of, train, weighted

FORMATS = [("int4", "linear"), ("fp8", "linear"), ("mxfp8", "linear"), ("mxfp4", "linear"), ("int4", "experts"), ("fp8", "experts")]


@pytest.mark.parametrize("kind,layers", FORMATS)
def test_training_and_sampling_over_a_low_bit_base(start_server, kind, layers):
    check_training_and_sampling(start_server("--frozen-base", kind, "--frozen-layers", layers))


def check_training_and_sampling(server):
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
    assert "low-bit" in refusal_of_rank_0(service)
    return base


def test_training_over_a_folder_of_int4_experts(start_server, tmp_path):
    """Its own integers are the base, those that our quantiser does not make, -8, among them."""
    repository = Path(__file__).resolve().parents[2]
    binary = os.environ.get("LOCKSTEP_BINARY", repository / "build/lockstep")
    subprocess.run([binary, "convert", repository / "models/countdown-glm", tmp_path / "packed", "--profile", "cpu-int4-experts"], check=True, stdout=subprocess.DEVNULL)
    arguments = ["--frozen-base", "int4", "--frozen-layers", "experts", "--name", "countdown-glm"]

    def base(server):
        return client_of(server).create_sampling_client(base_model="countdown-glm").result().compute_logprobs(types.ModelInput.from_ints(TOKENS)).result()

    ours = start_server(*arguments, model=tmp_path / "packed")
    plain = start_server(*arguments[:4], "--state", str(tmp_path / "other"))
    assert bits(base(ours)[1:]) == bits(base(plain)[1:]), "the folder holds what the profile computes with"
    assert ours.stop() == 0 and plain.stop() == 0
    weights = tmp_path / "packed" / "model.safetensors"
    tensors = load_file(weights)
    for name, words in tensors.items():
        if name.endswith("_packed"):
            words[::3] &= ~0xF  # the first of eight numbers, in every third row: -8
    save_file(tensors, weights, metadata={"format": "pt"})
    assert bits(check_training_and_sampling(start_server(*arguments, model=tmp_path / "packed"))[1:]) != bits(base(start_server(*arguments[:4], "--state", str(tmp_path / "other")))[1:])


def refusal_of_rank_0(service):
    try:
        client = model_of(service, rank=0)
        client.forward([weighted()], "cross_entropy").result()
    except (tinker.RequestFailedError, tinker.APIStatusError) as error:
        return str(error)
    pytest.fail("all parameters of a low-bit base are trained")


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
