"""The `fireworks-ai` package's training SDK, unmodified, against our server."""
import pytest
import torch
from fireworks.training.sdk import FiretitanServiceClient, TrainerJobManager
import fireworks.training.sdk.types as types

from comparison import assert_near, largest_difference
from fireworks_tools import BASE, TOKENS, datum, logprobs_of, tensor
from optimizer_oracle import saved_state


OTHER = [4, 4, 9, 2, 12, 3, 7, 10, 5, 1]


@pytest.mark.parametrize("api_key", ["anything", "tml-dummy"])
def test_the_published_snippet(training_server, api_key):
    endpoint, base_model = training_server.url, BASE
    data, advantages = [datum(), datum(OTHER)], [[1.0, -0.5, 0.25] * 3, [-1.0] * 9]

    def my_loss(data, logprobs):
        return -torch.stack([lp.sum() for lp in logprobs]).sum(), {"custom_metric": 1.5}

    service = FiretitanServiceClient(base_url=endpoint, api_key=api_key)
    policy = service.create_training_client(base_model=base_model)
    custom = policy.forward_backward_custom(data, my_loss).result()
    # The package takes target_tokens and weights alone for a custom loss, and ppo needs more: what was sampled, and how good it was.
    for one, given, logprobs in zip(data, advantages, (logprobs_of(custom, i) for i in range(2))):
        one.loss_fn_inputs.update(logprobs=tensor(logprobs, "float32"), advantages=tensor(given, "float32"))
    result = policy.forward_backward(data, "ppo", {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}).result()

    assert custom.metrics["custom_metric"] == 1.5
    assert custom.metrics["loss:sum"] == pytest.approx(-sum(sum(logprobs_of(custom, i)) for i in range(2)), rel=1e-5)
    assert result.metrics["loss:sum"] == pytest.approx(-sum(map(sum, advantages)), rel=1e-6)  # every ratio is 1, none is clipped
    assert [logprobs_of(result, i) for i in range(2)] == [logprobs_of(custom, i) for i in range(2)]
    step = policy.optim_step(types.AdamParams(learning_rate=1e-4)).result()
    assert step.metrics["grad_norm"] > 0
    assert logprobs_of(policy.forward([datum()], "cross_entropy").result()) != logprobs_of(custom)


def test_the_snippet_with_data_that_ppo_cannot_use_is_one_error_and_the_client_goes_on(training_server):
    policy = FiretitanServiceClient(base_url=training_server.url, api_key="x").create_training_client(base_model=BASE)
    refused = policy.forward_backward([datum()], "ppo", {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2})
    with pytest.raises(Exception, match="has no logprobs and no advantages, which the loss ppo needs"):
        refused.result()
    assert policy.forward_backward([datum()], "cross_entropy").result().metrics["loss:sum"] > 0


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


# eps is large, so that the size of a gradient shows in the update.
STEP = dict(learning_rate=1e-2, eps=0.05)


def stepped(client, batches, factor=1.0, **step):
    """A forward_backward a batch, one step; its metrics, and what the model then says."""
    for batch in batches:
        client.forward_backward([datum(tokens, weights=[w * factor for w in weights]) for tokens, weights in batch], "cross_entropy").result()
    metrics = client.optim_step(types.AdamParams(**STEP), **step).result().metrics
    return metrics, logprobs_of(client.forward([datum()], "cross_entropy").result())


@pytest.fixture(params=[0, 8], ids=["full", "rank-8"])
def trained_model(request, training_server):
    return lambda: FiretitanServiceClient(base_url=training_server.url, api_key="x").create_training_client(base_model=BASE, lora_rank=request.param, seed=7)


def test_gradients_are_divided_by_what_they_came_from(trained_model):
    five, three = [0, 0, 0, 0, 1.0, 2.0, 1.0, 1.0, 0.5], [1.0, 1.0, -1.0, 0, 0, 0, 0, 0, 0]
    batches = [[(TOKENS, five)], [(OTHER, three), (TOKENS, [0.0] * 9)]]  # 8 tokens, 2 sequences, over two calls
    plain_metrics, plain = stepped(trained_model(), batches)
    for name, count in (("num_loss_tokens", 8), ("num_sequences", 2)):
        client = trained_model()
        with pytest.raises(Exception, match="is not known"):  # what is refused counts nothing, and takes nothing away
            client.forward_backward([datum(weight=[1.0] * 9)], "cross_entropy").result()
        metrics, got = stepped(client, batches, grad_accumulation_normalization=name)
        want_metrics, want = stepped(trained_model(), batches, 1 / count)
        assert got == want != plain
        assert metrics["grad_norm"] == want_metrics["grad_norm"] == plain_metrics["grad_norm"] / count
        assert metrics["num_loss_tokens"] == 8 and metrics["num_sequences"] == 2
        # The counts begin anew, as the gradients do.
        again, _ = stepped(client, [[(TOKENS, five)]], grad_accumulation_normalization=name)
        assert again["num_loss_tokens"] == 5 and again["num_sequences"] == 1
        none, _ = stepped(client, [[(TOKENS, [0.0] * 9)]], grad_accumulation_normalization=name)
        assert none["num_loss_tokens"] == 0 and none["grad_norm"] == 0


def test_normalised_steps_are_torchs_adamw(start_server, tmp_path):
    url = start_server().url
    batches = [[(TOKENS, [1.0] * 9)], [(OTHER, [1.0] * 4 + [0.0] * 5)], [(TOKENS[::-1], [0.5] * 9)]]
    for name, count in (("none", 1), ("num_sequences", 3), ("num_loss_tokens", 22)):
        client = FiretitanServiceClient(base_url=url, api_key="x").create_training_client(base_model=BASE)  # a service has one
        label = name.replace("_", "-")
        client.save_state("before-" + label).result()
        stepped(client, batches, grad_accumulation_normalization=name)
        client.save_state("after-" + label).result()
    raw = {tensor: m / 0.1 for tensor, m in saved_state(tmp_path / "state", "after-none")["m"].items()}  # m = (1 - beta1) g
    for label, count in (("num-sequences", 3), ("num-loss-tokens", 22)):
        before, after = (saved_state(tmp_path / "state", f"{when}-{label}")["master"] for when in ("before", "after"))
        for tensor, gradient in raw.items():
            parameter = torch.nn.Parameter(before[tensor].clone())
            parameter.grad = gradient / count
            torch.optim.AdamW([parameter], lr=STEP["learning_rate"], betas=(0.9, 0.95), eps=STEP["eps"], weight_decay=0.0).step()
            assert_near(parameter, after[tensor], rtol=1e-6, atol=2e-7, err_msg=tensor)
        assert any(largest_difference(after[t], saved_state(tmp_path / "state", "after-none")["master"][t]) > 1e-5 for t in raw)


def test_norms_are_told_as_wanted(trained_model):
    def metrics_of(**step):
        return stepped(trained_model(), [[(TOKENS, [1.0] * 9)]], **step)[0]

    quiet, basic, detailed = metrics_of(), metrics_of(emit_grad_norm_metrics=True), metrics_of(emit_grad_norm_metrics="detailed")
    assert not [k for k in quiet if k.startswith("grad_norm") and k != "grad_norm"]
    assert 0 < basic["grad_norm_rms"] < basic["grad_norm"] == quiet["grad_norm"]
    groups = {k: v for k, v in detailed.items() if k.startswith("grad_norm/")}
    assert {"grad_norm/attention", "grad_norm/mlp"} <= set(groups)
    assert sum(v * v for v in groups.values()) ** 0.5 == pytest.approx(detailed["grad_norm"], rel=1e-5)


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
