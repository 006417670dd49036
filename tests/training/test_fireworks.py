"""The `fireworks-ai` package's training SDK, unmodified, against our server."""
import pytest
import torch
from fireworks.training.sdk import FiretitanServiceClient, TrainerJobManager
import fireworks.training.sdk.types as types

BASE = "countdown-glm"
TOKENS = [1, 5, 7, 9, 11, 13, 8, 6, 3, 2]


def tensor(values, dtype):
    return types.TensorData(data=list(values), dtype=dtype, shape=[len(values)])


def datum(tokens=TOKENS, **floats):
    inputs = {"target_tokens": tensor(tokens[1:], "int64")}
    inputs.update({name: tensor(values, "float32") for name, values in floats.items()})
    return types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=inputs)


def logprobs_of(result):
    return list(result.loss_fn_outputs[0]["logprobs"].data)


@pytest.mark.parametrize("api_key", ["anything", "tml-dummy"])
def test_the_published_snippet(training_server, api_key):
    endpoint, base_model, data = training_server.url, BASE, [datum()]

    def my_loss(data, logprobs):
        return -torch.stack([lp.sum() for lp in logprobs]).sum(), {"custom_metric": 1.5}

    service = FiretitanServiceClient(base_url=endpoint, api_key=api_key)
    policy = service.create_training_client(base_model=base_model)
    custom = policy.forward_backward_custom(data, my_loss)
    refused = policy.forward_backward(data, "ppo", {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2})

    custom = custom.result()
    assert custom.metrics["custom_metric"] == 1.5 and custom.metrics["loss:sum"] > 0
    with pytest.raises(Exception, match="has no logprobs and no advantages, which the loss ppo needs"):
        refused.result()
    proper = [datum(logprobs=logprobs_of(custom), advantages=[1.0] * 9)]
    result = policy.forward_backward(proper, "ppo", {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}).result()
    assert result.metrics["loss:sum"] == pytest.approx(-9)
    step = policy.optim_step(types.AdamParams(learning_rate=1e-4)).result()
    assert step.metrics["grad_norm"] > 0


def test_states_are_saved_and_loaded_at_any_point(training_server):
    policy = FiretitanServiceClient(base_url=training_server.url, api_key="x").create_training_client(base_model=BASE)

    def steps(count):
        losses = []
        for _ in range(count):
            losses.append(policy.forward_backward([datum()], "cross_entropy").result().metrics["loss:sum"])
            policy.optim_step(types.AdamParams(learning_rate=1e-3)).result()
        return losses

    steps(2)
    policy.save_state("middle").result()
    went_on = steps(3)
    policy.load_state_with_optimizer("middle").result()
    assert steps(3) == went_on


def test_training_profile_is_resolved(training_server):
    manager = TrainerJobManager(api_key="x", base_url=training_server.url)
    profile = manager.resolve_training_profile("accounts/fireworks/trainingShapes/qwen3-8b-128k")
    assert profile.max_supported_context_length == 128000 and profile.accelerator_count == 4
    assert (profile.accelerator_type, profile.node_count, profile.pipeline_parallelism) == ("NVIDIA_B200_180GB", 1, 1)
    assert profile.trainer_mode == "POLICY_TRAINER" and profile.base_model_weight_precision == "BF16"
    lora = manager.resolve_training_profile("accounts/fireworks/trainingShapes/kimi-k2p5-lora-256k/versions/1")
    assert lora.trainer_mode == "LORA_TRAINER" and lora.base_model_weight_precision == "INT4"
    own = manager.resolve_training_profile("accounts/fireworks/trainingShapes/countdown-glm-lora-cpu")
    assert (own.accelerator_type, own.max_supported_context_length) == ("CPU", 512)
    with pytest.raises(Exception, match="qwen3-8b-128"):
        manager.resolve_training_profile("accounts/fireworks/trainingShapes/qwen3-8b-128")


def test_a_job_gets_a_shape_or_the_reason(training_server):
    import requests
    jobs = training_server.url + "/v1/accounts/local/rlorTrainerJobs"

    def job(query="", **config):
        return requests.post(jobs + query, json={"trainingConfig": config}, headers={"X-API-Key": "x"}, timeout=30)

    assert job(baseModel=BASE).json()["trainingShape"].endswith("/trainingShapes/countdown-glm-cpu/versions/1")
    assert job(baseModel="accounts/me/models/" + BASE, loraRank=8).json()["trainingShape"].endswith("/countdown-glm-lora-cpu/versions/1")
    assert job(baseModel="Qwen/Qwen3-8B").json()["trainingShape"].endswith("/countdown-glm-cpu/versions/1")  # the server's alias
    assert job("?trainingShape=accounts/x/trainingShapes/qwen3-32b-65k", baseModel=BASE).json()["trainingShape"].endswith("/qwen3-32b-65k/versions/1")
    assert job("?trainingShape=accounts/x/trainingShapes/qwen3-32b-66k", baseModel=BASE).status_code == 404
    assert "trainingShape" not in job("?skipValidations=true", baseModel=BASE).json()
    long = job(baseModel=BASE, maxContextLength=4096)
    assert long.status_code == 400 and "its context is 512, 4096 tokens are asked for" in long.text
    other = job(baseModel="moonshotai/Kimi-K2.5")
    assert other.status_code == 400 and "this server trains countdown-glm alone" in other.text and "64 x NVIDIA_B200_180GB" in other.text
    assert job(baseModel="nobody/none").status_code == 404


def test_weights_are_synced_and_sampled(training_server):
    """WeightSyncer saves and hot-loads, DeploymentSampler samples: with the bits that the trainer gives."""
    import asyncio
    import struct
    from fireworks.training.sdk.deployment import DeploymentConfig, DeploymentManager
    from fireworks.training.sdk.sampling import DeploymentSampler
    from fireworks.training.sdk.weight_syncer import WeightSyncer

    url = training_server.url
    bits = lambda values: [struct.pack("<f", v) for v in values]
    policy = FiretitanServiceClient(base_url=url, api_key="sync").create_training_client(base_model=BASE)
    manager = DeploymentManager(api_key="sync", base_url=url, inference_url=url, hotload_api_url=url)
    manager.create_or_get(DeploymentConfig(deployment_id="rollouts", base_model=BASE, accept_shapeless_risk=True))
    syncer = WeightSyncer(policy_client=policy, deploy_mgr=manager, deployment_id="rollouts", base_model=BASE)
    model = f"accounts/{manager.account_id}/deployments/rollouts"
    seen = []
    for step in range(3):
        policy.forward_backward([datum()], "cross_entropy").result()
        policy.optim_step(types.AdamParams(learning_rate=1e-3)).result()
        assert syncer.save_and_hotload(f"step-{step}")
        sampler = DeploymentSampler(inference_url=url, model=model, api_key="sync")
        out = asyncio.run(sampler.sample_with_prompt_tokens(TOKENS[:4], n=2, max_tokens=6, temperature=0.7, seed=5, logprobs=True))
        for completion in out:
            tokens = list(completion.full_tokens)
            trained = policy.forward([datum(tokens)], "cross_entropy").result()
            assert bits(completion.inference_logprobs) == bits(logprobs_of(trained)[3:])
            assert bits(completion.sampling_logprobs) != bits(completion.inference_logprobs)  # another temperature
        seen.append(out[0].inference_logprobs)
    assert bits(seen[0]) != bits(seen[2])
    checkpoints = TrainerJobManager(api_key="sync", base_url=url)
    assert checkpoints
