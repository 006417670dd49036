"""PEFT and we read each other's adapters, and transformers with PEFT, in float64, computes what we do.

What PEFT cannot take of ours: adapters of routed experts (transformers keeps a layer's experts as one tensor, which has no module a
LoRA could stand on), so GLM's are exported for PEFT without them, and gpt-oss' are added by hand. The other way round nothing is lost: modules that an adapter leaves
alone are zeros here.
"""

import importlib.util
import json
from pathlib import Path

import make_goldens
import numpy as np
import pytest
import requests
import tinker
import torch
from comparison import relative_error
from oracle_cases import LOGPROB_TOLERANCE, VIAS, fresh_case, fresh_seeds, golden_case, load, target_logprobs
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from safetensors.numpy import load_file, save_file
from test_dense_families import random_config
from tinker import types

spec = importlib.util.spec_from_file_location("lockstep_api_conftest", Path(__file__).resolve().parents[1] / "api/conftest.py")
api = importlib.util.module_from_spec(spec)
spec.loader.exec_module(api)

ATTENTION, MLP = ["q_proj", "k_proj", "v_proj", "o_proj"], ["gate_proj", "up_proj", "down_proj"]
GLM_ATTENTION = ["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"]


@pytest.fixture(scope="module", params=[(f, fresh_seeds()[0]) for f in ("llama", "qwen2", "qwen3", "mistral")], ids=lambda p: f"{p[0]}-seed{p[1]}")
def case(request, tmp_path_factory):
    family, seed = request.param
    return fresh_case(*random_config(family, seed), seed, tmp_path_factory.mktemp("peft"))


@pytest.fixture(scope="module")
def glm(tmp_path_factory):
    name = next(name for name in make_goldens.GOLDENS if name.startswith("glm_moe_dsa/"))
    return golden_case(name, tmp_path_factory.mktemp("glm"))


@pytest.fixture(scope="module")
def deepseek(tmp_path_factory):
    return golden_case("deepseek_v3/groups", tmp_path_factory.mktemp("deepseek"))


def adapter_by_peft(case, folder, modules, rank, alpha, seed=5):
    """A random adapter as PEFT writes it; B is not zero."""
    model = get_peft_model(load(case.folder)[0], LoraConfig(task_type="CAUSAL_LM", r=rank, lora_alpha=alpha, target_modules=modules, lora_dropout=0.0))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * (0.3 if "lora_A" in name else 0.1))
    model.save_pretrained(folder, save_embedding_layers=False)


def by_transformers(case, adapter):
    """Log-probabilities in float64 by transformers with PEFT, and what PEFT made of the file."""
    model = PeftModel.from_pretrained(load(case.folder)[0].double(), adapter).double().eval()
    with torch.no_grad():
        logits = model(input_ids=torch.from_numpy(np.asarray(case.tokens, np.int64))[None], use_cache=False).logits[0].numpy()
    taken = {name: value.float().numpy() for name, value in get_peft_model_state_dict(model, save_embedding_layers=False).items()}
    return target_logprobs(logits, case.tokens), taken


def check_our_scores(lockstep, case, adapter, truth, profile="cpu-f32"):
    tokens = lockstep.tokens_file([case.tokens])
    bits = set()
    for via in VIAS:
        row = json.loads(lockstep.run("score", "--model", case.folder, "--adapter", adapter, "--tokens", tokens, "--via", via, "--profile", profile))
        error = relative_error(np.array(row["logprobs"]), truth)
        assert error <= LOGPROB_TOLERANCE, f"--via {via}: log-probabilities under the adapter are off by {error:.3g}"
        bits.add(row["bits"])
    assert len(bits) == 1
    assert relative_error(np.array(lockstep.score(case.folder, [case.tokens], "train")[0]["logprobs"]), truth) > 1e-3, "the adapter changes nothing"


@pytest.mark.parametrize("modules", [ATTENTION + MLP + ["lm_head"], ["q_proj", "v_proj"], MLP, ["down_proj", "lm_head"]], ids="-".join)
def test_what_peft_writes_we_read(lockstep, case, tmp_path, modules):
    adapter_by_peft(case, tmp_path / "adapter", modules, rank=5, alpha=7)
    check_our_scores(lockstep, case, tmp_path / "adapter", by_transformers(case, tmp_path / "adapter")[0])


@pytest.mark.parametrize("modules", [GLM_ATTENTION, ["kv_b_proj"], [*GLM_ATTENTION, "lm_head"]], ids="-".join)
def test_what_peft_writes_of_glm_we_read(lockstep, glm, tmp_path, modules):
    adapter_by_peft(glm, tmp_path / "adapter", modules, rank=3, alpha=2)
    check_our_scores(lockstep, glm, tmp_path / "adapter", by_transformers(glm, tmp_path / "adapter")[0])


@pytest.mark.parametrize("profile", ["cpu-f32", "cpu-f32-expanded"])
@pytest.mark.parametrize("modules", [GLM_ATTENTION, ["kv_b_proj"]], ids="-".join)
def test_what_peft_writes_of_deepseek_we_read_in_both_forms_of_attention(lockstep, deepseek, tmp_path, modules, profile):
    adapter_by_peft(deepseek, tmp_path / "adapter", modules, rank=3, alpha=2)
    check_our_scores(lockstep, deepseek, tmp_path / "adapter", by_transformers(deepseek, tmp_path / "adapter")[0], profile)


def trained_export(folder, tokens, to, **layers):
    """An adapter that a client of the training API trained, as it was exported; and its own log-probabilities."""
    server = api.Server("--training", "--state", str(to / "state"), "--profile", "cpu-f32", "--name", "base", model=folder)
    try:
        service = tinker.ServiceClient(base_url=server.url, api_key="tml-dummy")
        client = service.create_lora_training_client(base_model="base", rank=6, seed=3, **layers).result()
        tokens = [int(t) for t in tokens]
        datum = types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs={"target_tokens": tokens[1:], "weights": [1.0] * (len(tokens) - 1)})
        for _ in range(4):
            client.forward_backward([datum], "cross_entropy").result()
            client.optim_step(types.AdamParams(learning_rate=2e-2)).result()
        path = client.save_weights_external("out").result().path
        urls = tinker.RestClient(base_url=server.url, api_key="tml-dummy").get_external_weights_urls(path).result().urls
        (to / "adapter").mkdir()
        for name, url in urls.items():
            (to / "adapter" / name).write_bytes(requests.get(url, timeout=60).content)
        return client.forward([datum], "cross_entropy").result().loss_fn_outputs[0]["logprobs"].tolist()
    finally:
        assert server.stop() == 0


def check_export(lockstep, case, to, **layers):
    ours = trained_export(case.folder, case.tokens, to, **layers)
    truth, taken = by_transformers(case, to / "adapter")
    written = load_file(to / "adapter/adapter_model.safetensors")
    assert set(taken) == set(written), "PEFT left out, or made up, tensors"
    assert all(np.array_equal(taken[name], written[name]) for name in written)
    error = relative_error(np.array(ours), truth)
    assert error <= LOGPROB_TOLERANCE, f"the trainer's log-probabilities are off by {error:.3g}"
    check_our_scores(lockstep, case, to / "adapter", truth)


@pytest.mark.parametrize("layers", [{}, {"train_mlp": False, "train_unembed": False}, {"train_attn": False}], ids=["all", "attention", "mlp-and-head"])
def test_what_we_export_peft_reads(lockstep, case, tmp_path, layers):
    check_export(lockstep, case, tmp_path, **layers)


def test_what_we_export_of_glms_attention_peft_reads(lockstep, glm, tmp_path):
    check_export(lockstep, glm, tmp_path, train_mlp=False)


@pytest.fixture(scope="module")
def gpt_oss(tmp_path_factory):
    return golden_case("gpt_oss/window", tmp_path_factory.mktemp("gpt_oss"))


@pytest.mark.parametrize("modules", [ATTENTION, [*ATTENTION, "lm_head"]], ids="-".join)
def test_what_peft_writes_of_gpt_oss_we_read(lockstep, gpt_oss, tmp_path, modules):
    adapter_by_peft(gpt_oss, tmp_path / "adapter", modules, rank=3, alpha=2)
    check_our_scores(lockstep, gpt_oss, tmp_path / "adapter", by_transformers(gpt_oss, tmp_path / "adapter")[0])


# PEFT has no module for experts that stand in one tensor; the truth is transformers, in float64, with each expert's product added to its part.
def test_adapters_of_gpt_oss_experts_are_added_to_their_part(lockstep, gpt_oss, tmp_path):
    rank, alpha, rng = 3, 6, np.random.default_rng(8)
    adapter_by_peft(gpt_oss, tmp_path / "adapter", ATTENTION, rank=rank, alpha=alpha)
    config = json.loads((tmp_path / "adapter/adapter_config.json").read_text())
    tensors = load_file(tmp_path / "adapter/adapter_model.safetensors")
    weights = {name: value.astype(np.float64) for name, value in gpt_oss.weights.items()}
    for name in {key.split(".lora_")[0] for key in tensors}:
        weight = name.removeprefix("base_model.model.") + ".weight"
        weights[weight] = weights[weight] + alpha / rank * tensors[name + ".lora_B.weight"].astype(np.float64) @ tensors[name + ".lora_A.weight"]
    hidden, width = gpt_oss.config["hidden_size"], gpt_oss.config["intermediate_size"]
    for layer in range(gpt_oss.config["num_hidden_layers"]):
        for e in range(gpt_oss.config["num_local_experts"]):
            experts = f"model.layers.{layer}.mlp.experts."
            for part, outputs, inputs in (("gate", width, hidden), ("up", width, hidden), ("down", hidden, width)):
                a = rng.normal(size=(rank, inputs)).astype(np.float32) * np.float32(0.3)
                b = rng.normal(size=(outputs, rank)).astype(np.float32) * np.float32(0.1)
                name = f"base_model.model.{experts}{e}.{part}_proj.lora_"
                tensors[name + "A.weight"], tensors[name + "B.weight"] = a, b
                added = (alpha / rank * b.astype(np.float64) @ a).T
                if part == "down":
                    weights[experts + "down_proj"][e] += added
                else:
                    weights[experts + "gate_up_proj"][e][:, int(part == "up") :: 2] += added
    save_file(tensors, tmp_path / "adapter/adapter_model.safetensors")
    config["target_modules"] = ATTENTION + MLP
    (tmp_path / "adapter/adapter_config.json").write_text(json.dumps(config))
    truth = make_goldens.run_oracle(make_goldens.GOLDENS["gpt_oss/window"].config, weights, gpt_oss.tokens).logits
    check_our_scores(lockstep, gpt_oss, tmp_path / "adapter", target_logprobs(truth, gpt_oss.tokens))
