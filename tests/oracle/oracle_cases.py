"""A checkpoint beside what the float64 oracle says of it, and the checks that every family shares.

The truth is the float64 oracle, for goldens as committed (fp32 of float64) and for fresh configs computed here.
LOCKSTEP_ORACLE_SEEDS="1,2,3" replays the fresh configs of a failed run; their seeds are the test ids.
"""

import json
import os
import re
import secrets
import shutil
from pathlib import Path

import golden_weights
import make_goldens
import numpy as np
import pytest
import torch
from comparison import relative_error
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

VIAS = ["train", "prefill", "chunked", "decode"]
LOGPROB_TOLERANCE = 1e-5
GRADIENT_TOLERANCE = 1e-4
EXPORT_TOLERANCE = 1e-4

torch.set_num_threads(1)


class Case:
    """A checkpoint in a folder, a sequence, and what the float64 oracle says about it."""

    def __init__(self, folder, config, weights, tokens, logits):
        self.folder, self.config, self.weights, self.tokens = folder, config, weights, tokens
        self.logprobs = target_logprobs(logits, tokens)


def target_logprobs(logits, tokens):
    """log p(token t+1 | tokens up to t), in float64: [T-1]."""
    z = np.asarray(logits, np.float64)[:-1]
    largest = z.max(axis=-1)
    log_sum = largest + np.log(np.exp(z - largest[:, None]).sum(axis=-1))
    return z[np.arange(len(z)), np.asarray(tokens)[1:]] - log_sum


def golden_case(name, folder):
    """A golden's checkpoint, saved by transformers from the seed, and its committed gradients."""
    with safe_open(make_goldens.FOLDER / name / "golden.safetensors", "np") as file:
        seed, tensors = int(file.metadata()["seed"]), {key: file.get_tensor(key) for key in file.keys()}
    committed_config = json.loads((make_goldens.FOLDER / name / "config.json").read_text())
    weights = golden_weights.weights(committed_config, seed)
    config = make_goldens.save_checkpoint(make_goldens.GOLDENS[name].config, weights, folder)
    assert config == committed_config
    case = Case(folder, config, weights, tensors["tokens"], tensors["logits"])
    case.grads = {key.removeprefix("grad."): value for key, value in tensors.items() if key.startswith("grad.")}
    return case


def fresh_case(arguments, count, seed, folder):
    """A checkpoint that has never existed before. Its weights' seed is the first from `seed` on that is far from ties."""
    resolved = make_goldens.resolve(arguments)
    _, weights, tokens, _ = make_goldens.find_seed(resolved, count, range(seed, seed + 1000))
    config = make_goldens.save_checkpoint(arguments, weights, folder)
    result = make_goldens.run_oracle(arguments, weights, tokens)
    case = Case(folder, config, weights, tokens, result.logits)
    case.arguments, case.grads = arguments, result.grads
    return case


def with_fused_experts(case, folder):
    """The case's folder as newer transformers holds it in memory: of each layer two tensors with all experts."""
    shutil.copytree(case.folder, folder)
    tensors = load_file(folder / "model.safetensors")
    prefixes = sorted({name.split("experts.")[0] + "experts." for name in tensors if re.search(r"experts\.\d+\.", name)})
    assert prefixes, "no tensor of an expert"
    for prefix in prefixes:
        count = 1 + max(int(name.removeprefix(prefix).split(".")[0]) for name in tensors if re.match(re.escape(prefix) + r"\d+\.", name))

        def stacked(part):
            return torch.stack([tensors.pop(f"{prefix}{e}.{part}.weight") for e in range(count)])

        gate, up, down = ("w1", "w3", "w2") if f"{prefix}0.w1.weight" in tensors else ("gate_proj", "up_proj", "down_proj")
        tensors[prefix + "gate_up_proj"] = torch.cat([stacked(gate), stacked(up)], dim=1)
        tensors[prefix + "down_proj"] = stacked(down)
    save_file(tensors, folder / "model.safetensors")
    return folder


def fresh_seeds():
    replayed = os.environ.get("LOCKSTEP_ORACLE_SEEDS")
    return [int(seed) for seed in replayed.split(",")] if replayed else [secrets.randbits(32) for _ in range(3)]


def check_scores(lockstep, case, profile="cpu-f32"):
    """All four paths: near the oracle, and one another's equal on bits, for a sequence and for prefixes beside it.

    Only the whole sequence is held against the oracle: a prefix of two tokens has one log-probability, and where that happens to be
    near 0 (a random model may be sure of a token) its rounding is large beside it. A prefix must have the bits of the whole one's rows.
    """
    lengths = [len(case.tokens), 2, len(case.tokens) // 2]
    sequences = [case.tokens[:length] for length in lengths]
    rows = {via: lockstep.score(case.folder, sequences, via, profile) for via in VIAS}
    for via in VIAS:
        whole = rows[via][0]["logprobs"]
        error = relative_error(np.array(whole), case.logprobs)
        assert error <= LOGPROB_TOLERANCE, f"--via {via}: log-probabilities are off by {error:.3g}"
        for length, row in zip(lengths, rows[via]):
            assert row["logprobs"] == whole[: length - 1], f"--via {via}: a prefix of {length} tokens scores differently on its own"
    for length, of_vias in zip(lengths, zip(*rows.values())):
        bits = dict(zip(VIAS, (row["bits"] for row in of_vias)))
        assert len(set(bits.values())) == 1, f"{length} tokens: the paths differ in bits: {bits}"
    # Equal bits of unequal rows would mean that `bits` says nothing.
    assert len({row["bits"] for row in rows["train"]}) == len(lengths)


def check_gradients(computed, case, expected):
    """computed, expected: name -> gradient. A frozen indexer has zeros; a correction bias is no parameter."""
    bias = {name for name in case.weights if name.endswith("e_score_correction_bias")}
    assert set(computed) - bias == set(case.weights) - bias
    errors = {}
    for name, value in computed.items():
        assert value.dtype == np.float32 and value.shape == case.weights[name].shape, name
        if name not in expected or not np.any(expected[name]):  # also experts that no token was sent to
            assert not np.any(value), f"{name} must have no gradient"
        else:
            errors[name] = relative_error(value, expected[name])
    wrong = {name: error for name, error in errors.items() if not error <= GRADIENT_TOLERANCE}
    assert not wrong, f"gradients off by more than {GRADIENT_TOLERANCE}: {wrong}"
    return max(errors.values())


def check_float32_oracle(case):
    model, info = load(case.folder)
    assert not any(info.values()), info
    result = make_goldens.run_model(model, case.tokens)
    error = relative_error(target_logprobs(result.logits, case.tokens), case.logprobs)
    assert error <= LOGPROB_TOLERANCE
    zeros = {name: np.zeros_like(value) for name, value in case.weights.items()}
    return error, check_gradients(zeros | result.grads, case, case.grads)


def load(folder):
    """(the model in float32, what transformers found missing or surplus)"""
    eager = make_goldens.eager(json.loads((Path(folder) / "config.json").read_text())["model_type"])
    model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True, **eager)
    return model.eval(), info


def check_gradients_of_two_sequences(lockstep, case, profile="cpu-f32"):
    prefix = case.tokens[: len(case.tokens) // 2]
    of_prefix = make_goldens.run_oracle(case.arguments, case.weights, prefix).grads
    expected = {name: value + of_prefix[name] for name, value in case.grads.items()}
    check_gradients(lockstep.grad(case.folder, [case.tokens, prefix], profile), case, expected)


def check_transformers_agrees(lockstep, folder, tokens):
    """transformers, in float32, scores `tokens` as lockstep does with the same folder."""
    model, info = load(folder)
    assert not any(info.values()), f"transformers finds missing, unexpected or mismatched tensors: {info}"
    with torch.no_grad():
        logits = model(input_ids=torch.from_numpy(np.asarray(tokens, np.int64))[None], use_cache=False).logits[0].numpy()
    row = lockstep.score(folder, [tokens], "train")[0]
    error = relative_error(np.array(row["logprobs"]), target_logprobs(logits, tokens))
    assert error <= EXPORT_TOLERANCE, f"log-probabilities of the exported model are off by {error:.3g}"


def tokens_far_from_ties(config, weights, count):
    for seed in range(100):
        tokens = golden_weights.tokens(seed, count, config["vocab_size"])
        if make_goldens.numpy_forward(config, weights, tokens)[1] >= make_goldens.SMALLEST_GAP:
            return tokens
    pytest.fail(f"no random sequence of {count} tokens keeps its selections {make_goldens.SMALLEST_GAP} from a tie")


def check_trained_export(lockstep, case, folder, dtype):
    """Three steps on the case's text make it likelier, and transformers scores the export as lockstep does."""
    data, export = folder / "data.jsonl", folder / "export"
    line = {"tokens": [int(t) for t in case.tokens], "weights": [1.0] * (len(case.tokens) - 1)}
    data.write_text(json.dumps(line) + "\n")
    lockstep.run(
        "train", "sft", "--model", case.folder, "--data", data, "--runs", folder, "--name", "run", "--steps", 3, "--batch", 2,
        "--learning-rate", 0.01, "--warmup", 0, "--export-dtype", dtype, "--export-to", export, "--quiet",
    )  # fmt: skip
    before, after = (lockstep.score(model, [case.tokens], "decode")[0]["logprobs"] for model in (case.folder, export))
    assert np.mean(after) > np.mean(before) + 0.1, "three steps on one text did not make it likelier"
    weights = {name: value.float().numpy() for name, value in load_file(export / "model.safetensors").items()}
    check_transformers_agrees(lockstep, export, tokens_far_from_ties(case.config, weights, len(case.tokens)))
