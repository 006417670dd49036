"""Adapters through the `fireworks-ai` package: equal bits in trainer and deployment, settings, references, adapters in, merged weights out."""
import glob
import itertools
import json
import os

import pytest
import torch
from fireworks.training.sdk import FiretitanServiceClient
from safetensors.torch import load_file
import fireworks.training.sdk.types as types

from fireworks_tools import BASE, OTHER, TOKENS, Deployed, bits, client_of, datum, same_bits, sample, scored, served, trained

number = itertools.count()


@pytest.fixture
def lora(training_server):
    """lora(rank, ...): a client of an adapter; its key is lora.key."""
    key = f"lora-{next(number)}"

    def make(rank=8, **arguments):
        return client_of(training_server.url, key, lora_rank=rank, seed=7, **arguments)

    make.key, make.url = key, training_server.url
    return make


@pytest.mark.parametrize("rank", [8, 16])
def test_an_adapter_is_trained_and_sampled_with_equal_bits(lora, rank):
    policy, deployment = lora(rank), Deployed(lora.url, lora.key, f"rank-{rank}")
    fresh = scored(policy)
    seen = [deployment.sample()]
    for step in range(2):
        trained(policy, steps=1)
        saved = policy.save_weights_for_sampler_ext(f"step-{step}")
        deployment.load(saved.snapshot_name)
        seen.append(deployment.sample())
        assert same_bits(policy, seen[-1])
    trained(policy, steps=1)
    assert not same_bits(policy, seen[-1])  # the policy moved on, the deployment did not
    assert bits(seen[0].inference_logprobs) != bits(seen[1].inference_logprobs)
    assert bits(scored(policy)) != bits(fresh)


def test_alpha_scales_what_is_learnt(lora):
    losses = {}
    for name, arguments in {"16": {"lora_alpha": 16}, "32": {"lora_alpha": 32}, "absent": {"lora_alpha": None}}.items():
        losses[name] = trained(lora(8, **arguments), steps=3)
    assert losses["16"] == losses["absent"]  # twice the rank
    assert losses["16"][0] == losses["32"][0] and losses["16"][2] != losses["32"][2]


def test_init_methods(lora):
    kaiming, nora = lora(8), lora(8, lora_init_method="nora")
    assert bits(scored(kaiming)) == bits(scored(nora))  # B is zero
    assert trained(lora(8, lora_init_method="kaiming"), steps=3) == trained(kaiming, steps=3)
    assert trained(nora, steps=3)[2] != trained(lora(8), steps=3)[2]
    with pytest.raises(Exception, match="init_method is 'orthogonal', allowed are kaiming and nora"):
        lora(8, lora_init_method="orthogonal")


def test_a_reference_stays_the_base_and_counts_for_itself(lora):
    service = FiretitanServiceClient(base_url=lora.url, api_key=lora.key)
    policy = service.create_training_client(base_model=BASE, lora_rank=8, seed=7)
    reference = policy.create_base_training_client(BASE)
    base = scored(client_of(lora.url, lora.key))
    for _ in range(3):
        assert bits(scored(reference)) == bits(base)
        trained(policy, steps=1)
    assert bits(scored(policy)) != bits(base)
    with pytest.raises(Exception, match="base_only"):
        reference.forward_backward([datum()], "cross_entropy").result()
    assert bits(scored(reference)) == bits(base)


def test_states_of_adapters_go_on_where_they_were(lora):
    policy = lora(8, lora_alpha=None)
    trained(policy)
    policy.save_state("middle").result()
    went_on = trained(policy, steps=2)
    other = lora(8)  # of another alpha: the state's is taken
    other.load_state_with_optimizer("middle").result()
    assert trained(other, steps=2) == went_on
    with pytest.raises(Exception, match="is of rank 8, the model of rank 16"):
        lora(16).load_state("middle").result()


def test_a_promoted_adapter_is_loaded_sampled_and_refused_where_it_does_not_fit(lora):
    from fireworks.training.sdk import TrainerJobManager

    policy = lora(8, lora_alpha=12)
    trained(policy)
    saved = policy.save_weights_for_sampler_ext("adapter")
    manager = TrainerJobManager(api_key=lora.key, base_url=lora.url)
    row = [r for r in manager.list_checkpoints("local") if r["name"].endswith(saved.snapshot_name)][0]
    assert row["checkpointType"] == "CHECKPOINT_TYPE_INFERENCE_LORA" and row["promotable"]
    model = manager.promote_checkpoint(name=row["name"], output_model_id="my-adapter", base_model=BASE)
    assert model["kind"] == "HF_PEFT_ADDON" and model["state"] == "READY" and model["peftDetails"]["r"] == 8
    assert same_bits(policy, sample(lora.url, lora.key, model["name"]))

    fresh = lora(8)
    assert bits(scored(fresh)) != bits(scored(policy))
    loaded = fresh.load_adapter(model["name"]).result()
    assert loaded.type == "load_adapter"
    assert bits(scored(fresh)) == bits(scored(policy))
    trained(fresh, steps=1)
    by_name = lora(8)
    by_name.load_adapter(saved.snapshot_name).result()
    assert bits(scored(by_name)) == bits(scored(policy))
    with pytest.raises(Exception, match="is of rank 8, the model of rank 16"):
        lora(16).load_adapter(model["name"]).result()
    with pytest.raises(Exception, match="there is no adapter 'accounts/local/models/absent'"):
        by_name.load_adapter("accounts/local/models/absent").result()
    with pytest.raises(Exception, match="reads no bucket"):
        by_name.load_adapter("gs://bucket/adapter").result()
    with pytest.raises(Exception, match="has no adapter"):
        client_of(lora.url, lora.key).load_adapter(model["name"]).result()
    assert bits(scored(by_name)) == bits(scored(policy))  # what was refused changed nothing


@pytest.mark.parametrize("precision", [None, "source", "bf16"])
def test_an_adapter_is_merged_into_whole_weights(start_server, tmp_path, precision):
    server, key = start_server(), "merge"
    url = server.url
    policy = client_of(url, key, lora_rank=8, seed=3)
    base = scored(policy)
    trained(policy, steps=3)
    saved = policy.save_weights_for_sampler_ext("merged", checkpoint_type="merged_base", export_precision=precision)
    plain = policy.save_weights_for_sampler_ext("plain")
    folder = glob.glob(str(tmp_path / f"state/checkpoints/*/sampler_weights/{saved.snapshot_name}/model"))[0]
    assert json.load(open(os.path.join(folder, "config.json")))["dtype"] in ("float32", "bfloat16")
    tensors = load_file(os.path.join(folder, "model.safetensors"))
    if precision == "bf16":
        assert {t.dtype for n, t in tensors.items() if n.endswith("down_proj.weight")} == {torch.bfloat16}
    deployment = Deployed(url, key, "merged")
    deployment.load(plain.snapshot_name)
    unmerged = deployment.score()
    assert bits(unmerged) == bits(scored(policy))
    deployment.load(saved.snapshot_name)
    merged = deployment.score()
    assert merged == pytest.approx(unmerged, abs=0.1)
    assert not base == pytest.approx(unmerged, abs=0.5)  # the tolerance tells merged from base
    with served(server, folder, tmp_path) as other:  # a model like any other
        assert bits(Deployed(other.url, key, "base", base_model="model").score()) == bits(merged)


def test_other_precisions_and_whole_models_are_not_merged(lora):
    policy = lora(8)
    for precision in ["nvfp4", "mxfp8", "fp8_block128"]:
        with pytest.raises(Exception, match=f"export_precision is '{precision}', allowed are source"):
            policy.save_weights_for_sampler_ext("merged", checkpoint_type="merged_base", export_precision=precision)
    with pytest.raises(Exception, match="the model has no adapter; allowed are base and delta"):
        client_of(lora.url, lora.key).save_weights_for_sampler_ext("merged", checkpoint_type="merged_base")
    trained(policy, steps=1)  # the client goes on


@pytest.mark.parametrize("rank", [0, 8])
def test_a_forward_tells_the_likeliest_tokens(lora, rank):
    policy = lora(rank)
    trained(policy, steps=2)
    result = policy.forward([datum(), datum(OTHER)], "cross_entropy", {"top_k": 5}).result()
    plain = policy.forward([datum(), datum(OTHER)], "cross_entropy").result()
    among = 0
    for d, tokens in enumerate([TOKENS, OTHER]):
        out = result.loss_fn_outputs[d]
        assert bits(out["logprobs"].data) == bits(plain.loss_fn_outputs[d]["logprobs"].data)
        assert list(out["top_k_indices"].shape) == list(out["top_k_logprobs"].shape) == [len(tokens) - 1, 5]
        indices, logprobs = out["top_k_indices"].to_torch().tolist(), out["top_k_logprobs"].to_torch().tolist()
        for row, (ids, values) in enumerate(zip(indices, logprobs)):
            assert values == sorted(values, reverse=True) and len(set(ids)) == 5
            if tokens[row + 1] in ids:
                among += 1
                assert bits([values[ids.index(tokens[row + 1])]]) == bits([out["logprobs"].data[row]])
    assert among > 5  # the trained ones are likely
    with pytest.raises(Exception, match="top_k is 50, allowed is 1 to 20"):
        policy.forward([datum()], "cross_entropy", {"top_k": 50}).result()
    with pytest.raises(Exception, match="top_k"):
        policy.forward_backward([datum()], "cross_entropy", {"top_k": 5}).result()
