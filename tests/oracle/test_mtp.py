"""A layer of multi-token prediction: its goldens are what NumPy, torch and transformers say now; a folder with one scores as without it, is written again as it
is, and transformers scores what was written alike."""

import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path

import golden_weights
import layer_files
import make_mtp_goldens
import numpy as np
import pytest
import requests
import torch
import torch_mtp
from comparison import relative_error
from oracle_cases import EXPORT_TOLERANCE, golden_case, load, target_logprobs
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from safetensors.torch import load_file as load_torch_file
from safetensors.torch import save_file as save_torch_file

REPOSITORY = Path(__file__).resolve().parents[2]
SHIPPED = REPOSITORY / "models/countdown-glm"
_spec = importlib.util.spec_from_file_location("lockstep_api_conftest", REPOSITORY / "tests/api/conftest.py")
server_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(server_module)


@pytest.mark.parametrize("name", make_mtp_goldens.GOLDENS)
def test_a_golden_is_what_is_computed_now(name):
    assert make_mtp_goldens.differences(name) == []


def folder_with_layer(case, folder, seed, without=()):
    """The case's folder with the tensors of such a layer, but for some."""
    shutil.copytree(case.folder, folder)
    config = json.loads((folder / "config.json").read_text()) | {"num_nextn_predict_layers": 1}
    (folder / "config.json").write_text(json.dumps(config))
    layer = golden_weights.mtp_weights(config, seed)
    tensors = load_file(folder / "model.safetensors") | {name: value for name, value in layer.items() if not name.endswith(tuple(without))}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return layer


def told(lockstep, folder):
    return json.loads(lockstep.run("info", folder, "--json"))


@pytest.mark.parametrize("name", ["glm_moe_dsa/sharing", "deepseek_v3/groups"])
def test_a_folder_with_a_layer(lockstep, tmp_path, name):
    case = golden_case(name, tmp_path / "plain")
    layer = folder_with_layer(case, tmp_path / "with", 5)
    # No hash and no score of the model knows of it.
    plain, with_layer = told(lockstep, tmp_path / "plain"), told(lockstep, tmp_path / "with")
    assert with_layer["weights_sha256"] == plain["weights_sha256"] and with_layer["parameters"] == plain["parameters"]
    assert with_layer["multi_token_prediction"]["tensors"] == len(layer) and with_layer["notes"] == []
    assert with_layer["multi_token_prediction"]["draft_sha256"] != plain["weights_sha256"]
    assert "multi_token_prediction" not in plain
    rows = [lockstep.score(tmp_path / folder, [case.tokens], "train")[0] for folder in ("plain", "with")]
    assert rows[0] == rows[1]
    # What is written has it, and the same hashes; transformers passes over it, and scores alike.
    lockstep.run("convert", tmp_path / "with", tmp_path / "again", "--dtype", "f32")
    again = told(lockstep, tmp_path / "again")
    assert again["weights_sha256"] == plain["weights_sha256"]
    assert again["multi_token_prediction"] == with_layer["multi_token_prediction"]
    written = load_file(tmp_path / "again" / "model.safetensors")
    assert all(np.array_equal(written[tensor], value) for tensor, value in layer.items())
    model, info = load(tmp_path / "again")
    assert not info["missing_keys"] and all(key.startswith(f"model.layers.{case.config['num_hidden_layers']}.") for key in info["unexpected_keys"])
    with torch.no_grad():
        logits = model(input_ids=torch.from_numpy(np.asarray(case.tokens, np.int64))[None], use_cache=False).logits[0].numpy()
    assert relative_error(np.array(rows[1]["logprobs"]), target_logprobs(logits, case.tokens)) <= EXPORT_TOLERANCE


def test_a_layer_that_lacks_a_tensor_is_a_note(lockstep, tmp_path):
    case = golden_case("glm_moe_dsa/sharing", tmp_path / "plain")
    folder_with_layer(case, tmp_path / "with", 5, without=("hnorm.weight",))
    info = told(lockstep, tmp_path / "with")
    assert "multi_token_prediction" not in info
    assert any("hnorm.weight" in note and "nothing is drafted with it" in note for note in info["notes"]), info["notes"]


def bare(folder):
    """The shipped model without any layer."""
    return layer_files.without_layer(SHIPPED, folder)


def shipped_with_layer(folder):
    """The shipped model with such a layer of random weights, in bf16 as the others."""
    bare(folder)
    config = json.loads((folder / "config.json").read_text()) | {"num_nextn_predict_layers": 1}
    (folder / "config.json").write_text(json.dumps(config))
    tensors = load_torch_file(folder / "model.safetensors")
    for name, value in golden_weights.mtp_weights(config, 3).items():
        value = torch.from_numpy(value)
        tensors[name] = value if name.endswith("e_score_correction_bias") else value.bfloat16()
    save_torch_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_answers_do_not_depend_on_its_guesses(lockstep, tmp_path):
    folder = shipped_with_layer(tmp_path / "with")

    def said(model, seed, *options):
        words = ("--prompt", "3 7 12=48:", "--temperature", "1.2", "--max-tokens", "60", "--seed", seed, "--json")
        return json.loads(lockstep.run("generate", "--model", model, *words, *options))

    texts = set()
    for seed, options in enumerate((("off",), ("mtp", "--draft-tokens", "8"), ("mtp", "--draft-tokens", "1"), ("mtp,ngram",), ("auto",), ("mtp",), ("mtp", "--ranks", "tp=2"))):
        want = said(SHIPPED, seed, "--speculate", "off")
        assert said(folder, seed, "--speculate", *options) == want, options
        texts.add(tuple(want["token_ids"]))
    assert len(texts) > 1  # the comparison can fail
    refused = subprocess.run([str(lockstep.binary), "generate", "--model", str(bare(tmp_path / "bare")), "--prompt", "1", "--speculate", "mtp"], capture_output=True, text=True)
    assert refused.returncode != 0 and "is 'mtp', and there is no layer of multi-token prediction to draft with" in refused.stderr, refused.stderr


def test_a_server_drafts_with_it(tmp_path):
    """What is said over HTTP is what is said without guesses, and /metrics counts them."""
    server = server_module.Server(model=shipped_with_layer(tmp_path / "with"))
    try:

        def said(**speculative):
            body = {"model": "with", "prompt": "3 7 12=48:", "max_tokens": 60, "seed": 5, "temperature": 1.2, "logprobs": 2, "ignore_eos": True, "n": 3}
            answer = requests.post(server.url + "/v1/completions", json=body | {"speculative": speculative}, timeout=60)
            assert answer.status_code == 200, answer.text
            return answer.json()["choices"]

        def counted(name):
            text = requests.get(server.url + "/metrics", timeout=30).text
            return float(re.search(rf'^lockstep_spec_decode_num_{name}_total{{source="mtp"}} (\S+)$', text, re.MULTILINE)[1])

        off = said(mode="off")
        assert counted("draft_tokens") == 0
        for speculative in ({"mode": "mtp"}, {"mode": "mtp", "tokens": 8}, {"mode": "mtp,siblings,ngram"}, {"mode": "auto"}):
            assert said(**speculative) == off, speculative
        assert counted("draft_tokens") > 200 and counted("accepted_tokens") > 0
    finally:
        assert server.stop() == 0


def test_weights_do_not_depend_on_a_frozen_layer(lockstep, tmp_path):
    """Rollouts that it drafts: every weight is as without guesses and as without a layer, and the layer is written as it was."""
    folder = shipped_with_layer(tmp_path / "with")

    def trained(name, model, speculation, seed=1):
        values = {"name": name, "model": model, "rollout_speculation": speculation, "seed": seed, "steps": 2, "problems": 4, "warmup": 0}
        words = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
        lockstep.run("train", "rl", "--config", REPOSITORY / "recipes/countdown_rl.toml", "--runs", tmp_path / "runs", "--no-page", *words)
        metrics = [json.loads(line) for line in (tmp_path / "runs" / name / "metrics.jsonl").read_text().splitlines()]
        return told(lockstep, tmp_path / "runs" / name / "export"), [step["accepted_length"] for step in metrics if "accepted_length" in step]

    absent, none = trained("absent", SHIPPED, "off")
    frozen, lengths = trained("frozen", folder, "mtp")
    assert none == [] and len(lengths) == 2 and all(1 <= length <= 6 for length in lengths) and max(lengths) > 1, lengths
    assert frozen["weights_sha256"] == absent["weights_sha256"] != told(lockstep, SHIPPED)["weights_sha256"]
    assert frozen["multi_token_prediction"] == told(lockstep, folder)["multi_token_prediction"]
    assert trained("other", folder, "mtp", seed=2)[0]["weights_sha256"] != absent["weights_sha256"]


def test_rollouts_by_rejection_have_the_trainers_numbers(lockstep, tmp_path):
    """Other texts than coupled guesses make, log-probabilities that are the trainer's to the bit, and one hash whatever computes it."""
    folder = shipped_with_layer(tmp_path / "with")

    def trained(name, acceptance, *options):
        values = {"name": name, "model": folder, "rollout_speculation": "mtp", "acceptance": acceptance, "draft_tokens": 3, "steps": 2, "problems": 4, "warmup": 0}
        words = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
        lockstep.run("train", "rl", "--config", REPOSITORY / "recipes/countdown_rl.toml", "--runs", tmp_path / "runs", "--no-page", *words, *options)
        metrics = [json.loads(line) for line in (tmp_path / "runs" / name / "metrics.jsonl").read_text().splitlines()]
        return told(lockstep, tmp_path / "runs" / name / "export")["weights_sha256"], metrics

    rejection, metrics = trained("rejection", "rejection")
    assert all(step["different_bits"] == 0 and 1 <= step["accepted_length"] <= 4 for step in metrics), metrics
    assert trained("again", "rejection", "--threads", "1")[0] == rejection
    assert trained("coupled", "coupled")[0] != rejection


def joint_case(name):
    """config, seed and tokens of a golden."""
    with safe_open(make_mtp_goldens.FOLDER / name / "golden.safetensors", "np") as stored:
        seed, tokens = int(stored.metadata()["seed"]), stored.get_tensor("tokens").tolist()
    return json.loads((make_mtp_goldens.FOLDER / name / "config.json").read_text()), seed, tokens


@pytest.mark.parametrize("name", make_mtp_goldens.GOLDENS)
def test_gradients_of_training_are_those_of_autograd(lockstep, tmp_path, name):
    """Of both losses, out of the first moments of a run's first step; each is not the other's."""
    golden = make_mtp_goldens.FOLDER / name
    config = json.loads((golden / "config.json").read_text())
    wanted = {}
    for kind, file in (("ce", "golden"), ("tv", "tv")):
        with safe_open(golden / f"{file}.safetensors", "np") as stored:
            wanted[kind] = {key.removeprefix("grad."): stored.get_tensor(key) for key in stored.keys() if key.startswith("grad.")}
            wanted[kind]["loss"] = float(stored.metadata()["loss"])
            if kind == "ce":
                seed, tokens = int(stored.metadata()["seed"]), stored.get_tensor("tokens").tolist()
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file(make_mtp_goldens.all_weights(config, seed), folder / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "text.jsonl").write_text(json.dumps({"tokens": tokens, "weights": [1.0] * (len(tokens) - 1)}) + "\n")
    layer = f"model.layers.{config['num_hidden_layers']}."

    def errors(kind):
        words = ("--model", folder, "--data", tmp_path / "text.jsonl", "--runs", tmp_path, "--name", kind, "--steps", "1", "--batch", "1",
                 "--eval-share", "0", "--warmup", "0", "--learning-rate", "0", "--profile", "cpu-f32", "--no-page", "--json",
                 "--mtp-depths", make_mtp_goldens.DEPTHS, "--mtp-loss", kind, "--mtp-max-norm", "0")  # fmt: skip
        lockstep.run("train", "sft", *words)
        moments = load_file(tmp_path / kind / "mtp/checkpoints/step-000001/state.safetensors")
        loss = json.loads((tmp_path / kind / "metrics.jsonl").read_text())["mtp_loss"]
        own, other = wanted[kind], wanted["tv" if kind == "ce" else "ce"]
        assert abs(loss - own["loss"]) <= 1e-5 * own["loss"]
        keys = [key for key in own if key.startswith(layer) and own[key].any()]
        assert len(keys) >= 20
        gradients = {key: moments["m." + key] / (1 - 0.9) for key in keys}  # 0.9: --beta1
        return [max(relative_error(gradients[key], side[key]) for key in keys) for side in (own, other)]

    for kind in ("ce", "tv"):
        own, other = errors(kind)
        assert own <= 1e-4 and other > 1e-2, (kind, own, other)


@pytest.mark.parametrize("kind", ["ce", "tv"])
@pytest.mark.parametrize("name", ["sparse", "groups"])
def test_gradients_of_joint_training_are_those_of_autograd(lockstep, tmp_path, name, kind):
    """Of the model's and the layer's tensors, out of the first moments of a run's first step; alone the model's are others."""
    config, seed, tokens = joint_case(name)
    weights = make_mtp_goldens.all_weights(config, seed)
    loss, wanted = torch_mtp.joint_gradients(config, weights, tokens, make_mtp_goldens.DEPTHS, kind)
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "text.jsonl").write_text(json.dumps({"tokens": tokens, "weights": [1.0] * (len(tokens) - 1)}) + "\n")

    def errors(run, *options):
        words = ("--model", folder, "--data", tmp_path / "text.jsonl", "--runs", tmp_path, "--name", run, "--steps", "1", "--batch", "1",
                 "--eval-share", "0", "--warmup", "0", "--learning-rate", "1e-3", "--max-norm", "0", "--profile", "cpu-f32", "--no-page", "--json",
                 "--mtp-depths", make_mtp_goldens.DEPTHS, "--mtp-loss", kind, "--mtp-max-norm", "0", *options)  # fmt: skip
        lockstep.run("train", "sft", *words)
        told = json.loads((tmp_path / run / "metrics.jsonl").read_text())
        assert abs(told["mtp_loss"] - loss) <= 1e-5 * loss
        state = "checkpoints/step-000001/state.safetensors"
        moments = load_file(tmp_path / run / state) | load_file(tmp_path / run / "mtp" / state)
        keys = [key for key in wanted if ".indexer." not in key and wanted[key].any()]
        found = {key: relative_error(moments["m." + key] / (1 - 0.9), wanted[key]) for key in keys}  # 0.9: --beta1
        layer = f"model.layers.{config['num_hidden_layers']}."
        of_layer = [error for key, error in found.items() if key.startswith(layer)]
        of_model = {key: error for key, error in found.items() if not key.startswith(layer)}
        assert len(of_layer) >= 20 and len(of_model) >= 30
        return max(of_layer), of_model

    of_layer, of_model = errors("joint", "--mtp-joint")
    assert of_layer <= 1e-4 and max(of_model.values()) <= 2e-4, (of_layer, max(of_model, key=of_model.get), max(of_model.values()))
    of_layer, of_model = errors("alone")
    assert of_layer <= 1e-4 and max(of_model.values()) > 1e-2
    assert min(of_model[key] for key in ("model.embed_tokens.weight", "lm_head.weight", "model.norm.weight")) > 1e-3


def test_a_layer_is_trained_beside_the_model(lockstep, tmp_path):
    """By the recipe, in a few steps: the model is, tensor by tensor, the shipped one, the layer's guesses become right, and transformers loads the export."""

    def drafts(folder, *more):
        words = ("--environment", "countdown", "--n", "24", "--speculate", "mtp", "--draft-tokens", "3", "--at-once", "8", "--json", *more)
        return json.loads(lockstep.run("eval", "drafts", "--model", folder, *words))

    def trained(name, steps):
        values = {"name": name, "steps": steps, "warmup": 0, "batch": 4, "mtp.depths": 2, "mtp.learning_rate": 5e-3}
        words = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
        recipe = ("--config", REPOSITORY / "recipes/countdown_mtp.toml", "--model", without)
        said = lockstep.run("train", "sft", *recipe, "--runs", tmp_path, "--no-page", "--json", *words)
        return json.loads(said), tmp_path / name / "export"

    without = bare(tmp_path / "bare")
    first, at_first = trained("first", 1)
    last, export = trained("last", 40)
    assert first["weights_sha256"] == last["weights_sha256"] == told(lockstep, export)["weights_sha256"] == told(lockstep, SHIPPED)["weights_sha256"]
    assert first["draft_sha256"] != last["draft_sha256"]
    shipped, written = load_torch_file(without / "model.safetensors"), load_torch_file(export / "model.safetensors")
    assert all(torch.equal(written[name], value) for name, value in shipped.items())
    assert all(name.startswith("model.layers.4.") for name in written.keys() - shipped.keys()) and len(written) > len(shipped)
    before, after = drafts(at_first), drafts(export)
    assert before["different_bits"] == after["different_bits"] == 0 and before["tokens"] == after["tokens"] > 200
    assert after["accepted_length"] > before["accepted_length"] + 0.4, (before, after)
    assert after["forwards_with"] < after["forwards_without"]
    # Rejection sampling draws other answers, of which guesses are taken more often as they become right; at temperature 0 it is the same check.
    worse, better = (drafts(folder, "--acceptance", "rejection") for folder in (at_first, export))
    assert better["acceptance"] == "rejection" and better["different_bits"] > 0 and better["accepted_length"] > worse["accepted_length"] + 0.4, (worse, better)
    assert drafts(export, "--acceptance", "rejection", "--temperature", "0")["different_bits"] == 0
    _, info = load(export)
    assert not info["missing_keys"] and all(key.startswith("model.layers.4.") for key in info["unexpected_keys"])
