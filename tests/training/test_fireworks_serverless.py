"""Serverless training through the `fireworks-ai` package: sessions, runs, sampling by name, resuming."""
import re
import signal

import pytest
from fireworks.training.sdk import FiretitanServiceClient
from fireworks.training.sdk.fireworks_client import FireworksClient
import fireworks.training.sdk.types as types

from fireworks_tools import BASE, TOKENS, bits, scored, trained

KEY = "serverless"
PROMPT = TOKENS[:4]


def service_of(server, key=KEY):
    return FiretitanServiceClient(base_url=server.url + "/training/v1/serverless", api_key=key)


def sampled(sampler, seed=3, **arguments):
    settings = types.SamplingParams(max_tokens=6, temperature=1.0, seed=seed, **arguments)
    return sampler.sample(prompt=types.ModelInput.from_ints(PROMPT), num_samples=1, sampling_params=settings).result().sequences[0]


def same_bits(policy, sequence):
    return bits(sequence.logprobs) == bits(scored(policy, PROMPT + list(sequence.tokens))[3:])


def test_a_session_is_trained_sampled_and_resumed(start_server):
    server = start_server()
    service = service_of(server)
    assert re.fullmatch("ts-[0-9a-f]+", service.training_session_id)
    policy = service.create_lora_training_client(base_model=BASE, rank=8, seed=5)
    assert re.fullmatch("run-[0-9a-f]{32}", policy.run_id)
    assert service.training_session_name == f"accounts/local/trainingSessions/{service.training_session_id}"
    assert policy.run_name == f"accounts/local/trainingRuns/{policy.run_id}"
    reference = service.create_base_training_client(BASE)
    assert reference.run_id is None
    base = scored(reference)
    trained(policy)
    assert bits(scored(reference)) == bits(base) != bits(scored(policy))

    state = policy.save_state("state-1").result().path
    assert state == f"local/{policy.run_id}/state-1"
    path = policy.save_weights_for_sampler("step-1").result().path
    assert path.startswith(f"local/{policy.run_id}/step-1-")
    sampler = service.create_sampling_client(model_path=path)
    assert sampler.deployment_sampler.model == f"{service.training_session_name}/checkpoints/{path}"
    assert same_bits(policy, sampled(sampler))
    base_sampler = service.create_sampling_client(base_model=BASE)
    assert base_sampler.deployment_sampler.model == service.training_session_name
    assert same_bits(reference, sampled(base_sampler)) and not same_bits(policy, sampled(base_sampler))
    expected, went_on = scored(policy), trained(policy, steps=2)
    first = sampled(sampler)  # the snapshot did not move

    # A second run in the session saves under the same names.
    twin = service.create_training_client(base_model=BASE, lora_rank=16, seed=6)
    assert twin.run_id != policy.run_id
    trained(twin, steps=1)
    twin.save_state("state-1").result()

    again = start_again(start_server, server)
    fresh = service_of(again)
    resumed = fresh.create_training_client_from_state_with_optimizer(state)
    assert resumed.run_id not in (policy.run_id, twin.run_id)
    assert bits(scored(resumed)) == bits(expected)
    assert trained(resumed, steps=2) == went_on
    without = service_of(again).create_training_client_from_state(state)
    assert bits(scored(without)) == bits(expected)

    # Without a model in the session: the standalone routes.
    standalone = service_of(again)
    by_path = standalone.create_sampling_client(model_path=path)
    assert by_path.deployment_sampler.model == f"accounts/local/trainingSamplers/checkpoints/{path}"
    second = sampled(by_path)
    assert list(second.tokens) == list(first.tokens) and bits(second.logprobs) == bits(first.logprobs)
    of_base = standalone.create_sampling_client(base_model=BASE)
    assert of_base.deployment_sampler.model == f"accounts/local/trainingSamplers/{BASE}"
    assert bits(sampled(of_base).logprobs) == bits(sampled(base_again(service, again)).logprobs)
    with pytest.raises(Exception, match="is not there, or has no checkpoint"):
        standalone.create_sampling_client(model_path=f"local/run-{'0' * 32}/step-1")
    with pytest.raises(Exception, match="allowed are"):
        standalone.create_sampling_client(base_model="another/model")


def start_again(start, server):
    server.stop(signal.SIGKILL)
    return start()


def base_again(service, server):
    """The base weights of a session that an earlier server made."""
    from fireworks.training.sdk.client import FiretitanSamplingClient

    return FiretitanSamplingClient.create(inference_url=server.url + "/training/v1/serverless", model=f"accounts/local/trainingSessions/{service.training_session_id}", api_key=KEY)


def test_sessions_are_listed_promoted_and_closed(start_server):
    server = start_server()
    service = service_of(server)
    policy = service.create_lora_training_client(base_model=BASE, rank=8)
    trained(policy)
    policy.save_state("state").result()
    policy.save_weights_for_sampler("sampler").result()
    name = service.training_session_name
    client = FireworksClient(api_key=KEY, base_url=server.url)
    rows = client.list_training_session_checkpoints(name, page_size=1)
    assert [(r["checkpointType"], r["promotable"]) for r in rows] == [("CHECKPOINT_TYPE_TRAINING_LORA", False), ("CHECKPOINT_TYPE_INFERENCE_LORA", True)]
    model = client.promote_session_checkpoint(rows[1]["name"], "of-session", BASE)
    assert model["name"] == "accounts/local/models/of-session" and model["kind"] == "HF_PEFT_ADDON"
    expected = scored(policy)
    loaded = service_of(server).create_lora_training_client(base_model=BASE, rank=8)
    loaded.load_adapter(model["name"]).result()
    assert bits(scored(loaded)) == bits(expected)

    with pytest.raises(Exception, match="there is no session"):
        FireworksClient(api_key="another", base_url=server.url).list_training_session_checkpoints(name)
    service.delete_training_session()
    service.delete_training_session()  # again: nothing happens
    with pytest.raises(Exception):
        scored(policy)
    assert len(client.list_training_session_checkpoints(name)) == 2
