"""Losses of preferences and of distillation by name, through the real `tinker` client: after a few steps the weights are, bit for bit, those that
`lockstep train preference` and `lockstep train distill` make of the same data; and what is wrong is named."""
import hashlib
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tinker
import torch
from safetensors import safe_open
from tinker import types
from tokenizers import Tokenizer

from test_tinker import BASE, FOLDER, client_of, logprobs_of

BINARY = Path(os.environ.get("LOCKSTEP_BINARY", Path(FOLDER).parents[1] / "build" / "lockstep")).resolve()
NUMBERS = ((3, 7, 12), (5, 9, 14), (2, 8, 31), (16, 4, 9), (6, 1, 40), (11, 13, 2))
PAIRS = [{"prompt": f"{a} {b} {c}={a + b + c}:", "chosen": f"{a}+{b}={a + b},{a + b}+{c}={a + b + c}", "rejected": f"{c}-{b}={c - b}"} for a, b, c in NUMBERS]
TOKENIZER, END = Tokenizer.from_file(FOLDER + "/tokenizer.json"), 102
ADAM = types.AdamParams(learning_rate=1e-3, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.0, grad_clip_norm=1.0)
STEPS = 4
COMMON = ["--model", FOLDER, "--adapter-rank", "8", "--learning-rate", "1e-3", "--warmup", "0", "--steps", str(STEPS), "--no-page", "--json"]


def lockstep(folder, *arguments):
    done = subprocess.run([BINARY, *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def masters(folder, pattern):
    """SHA-256 of the fp32 masters in the newest state.safetensors under there."""
    path = sorted(Path(folder).glob(pattern), key=lambda p: p.stat().st_mtime)[-1]
    digest = hashlib.sha256()
    with safe_open(path, "pt") as file:
        names = sorted(name for name in file.keys() if name.startswith("master."))
        for name in names:
            digest.update(name.encode() + file.get_tensor(name).numpy().tobytes())
    assert names
    return digest.hexdigest()


def answer(prompt, completion, **more):
    tokens = TOKENIZER.encode(prompt).ids
    first = len(tokens) - 1
    tokens = tokens + TOKENIZER.encode(completion).ids + [END]
    inputs = {"target_tokens": tokens[1:], "weights": [0.0] * first + [1.0] * (len(tokens) - 1 - first), **more}
    return types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=inputs)


def student(server, seed):
    return client_of(server).create_lora_training_client(base_model=BASE, rank=8, seed=seed, train_unembed=False).result()


def train(client, data, loss, config, steps=STEPS):
    results = []
    for _ in range(steps):
        results.append(client.forward_backward(data() if callable(data) else data, loss, config).result())
        client.optim_step(ADAM).result()
    return results


def preferred(client, names=("chosen", "rejected")):
    plain = [answer(pair["prompt"], pair[side]) for pair in PAIRS for side in names]
    result = client.forward(plain, "cross_entropy").result()
    references = [logprobs_of(result, i) for i in range(len(plain))]
    return [answer(pair["prompt"], pair[side], reference_logprobs=np.array(references[2 * i + k], np.float32)) for i, pair in enumerate(PAIRS) for k, side in enumerate(names)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("runs")
    (made / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in PAIRS))
    (made / "prompts.jsonl").write_text("".join(json.dumps({"prompt": pair["prompt"]}) + "\n" for pair in PAIRS))
    (made / "teachers.toml").write_text('[[teacher]]\nname = "dpo"\nadapter = "runs/dpo/export"\n')
    return made


def test_dpo_and_distillation_have_the_weights_of_the_commands(start_server, tmp_path, folder):
    server = start_server()
    told = lockstep(folder, "train", "preference", *COMMON, "--loss", "dpo", "--data", "pairs.jsonl", "--name", "dpo", "--batch", len(PAIRS), "--eval-share", 0, "--init-seed", 7)
    client = student(server, 7)
    data = preferred(client)
    results = train(client, data, "dpo", {"beta": 0.1, "averaging": "pair_mean"})
    client.save_state("dpo").result()
    wanted = masters(folder, "runs/dpo/checkpoints/*/state.safetensors")
    state = lambda name: masters(tmp_path, f"state/checkpoints/*/weights/{name}/**/state.safetensors")  # noqa: E731
    assert state("dpo") == wanted
    assert results[0].metrics["loss:sum"] == pytest.approx(0.6931472, abs=1e-6) and results[-1].metrics["loss:sum"] < 0.69
    assert told["last"]["accuracy"] == results[-1].metrics["accuracy:mean"] == 1.0
    # The controls: another loss, and a reference that is another's, give other weights.
    for loss, given in (("ipo", data), ("dpo", preferred(client))):
        other = student(server, 7)
        train(other, given, loss, {"averaging": "pair_mean"})
        other.save_state(f"other-{loss}").result()
        assert state(f"other-{loss}") != wanted
    # Prompts that pairs share in the backward too are those of the command; that they are is another gradient.
    lockstep(folder, "train", "preference", *COMMON, "--loss", "dpo", "--data", "pairs.jsonl", "--name", "shared", "--batch", len(PAIRS), "--eval-share", 0, "--init-seed", 7, "--share-prompts", "backward")
    sharing = student(server, 7)
    train(sharing, data, "dpo", {"beta": 0.1, "averaging": "pair_mean", "share_prompts": "backward"})
    sharing.save_state("shared").result()
    assert state("shared") == masters(folder, "runs/shared/checkpoints/*/state.safetensors") != wanted

    # The teacher is what DPO made, here as a PEFT folder and there as the client that trained it.
    lockstep(folder, "train", "distill", *COMMON, "--teachers", "teachers.toml", "--data", "prompts.jsonl", "--name", "distilled", "--prompts", len(PAIRS), "--temperature", 0.001, "--max-tokens", 12, "--init-seed", 3)
    pupil = student(server, 3)
    vocabulary = TOKENIZER.get_vocab_size()

    def written_by(pupil):
        sampler = pupil.save_weights_and_get_sampling_client().result()
        data = []
        for pair in PAIRS:
            prompt = TOKENIZER.encode(pair["prompt"]).ids
            tokens = prompt + list(sampler.sample(types.ModelInput.from_ints(prompt), num_samples=1, sampling_params=types.SamplingParams(max_tokens=12, temperature=0.0)).result().sequences[0].tokens)
            rows = len(tokens) - 1
            ids = torch.arange(vocabulary).repeat(rows, 1)
            weights = torch.zeros(rows, vocabulary)
            weights[len(prompt) - 1 :] = 1
            inputs = {"target_tokens": types.TensorData.from_torch(ids), "weights": types.TensorData.from_torch(weights)}
            row = types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=inputs)
            said = client.forward([row], "cross_entropy").result().loss_fn_outputs[0]["logprobs"]
            data.append(types.Datum(model_input=row.model_input, loss_fn_inputs={**inputs, "teacher_logprobs": said}))
        return data

    written = lambda: written_by(pupil)  # noqa: E731
    results = train(pupil, written, "distill", {"divergence": "reverse", "averaging": "token_mean"})
    pupil.save_state("distilled").result()
    assert state("distilled") == masters(folder, "runs/distilled/checkpoints/*/state.safetensors")
    assert 0 < results[-1].metrics["loss:sum"] < results[0].metrics["loss:sum"]
    # The server may score the same tokens itself, under weights that were saved for sampling: the base's teach something else.
    paths = [one.save_weights_for_sampler(name="teacher").result().path for one in (client, student(server, 7))]
    for name, path, equal in (("taught", paths[0], True), ("untaught", paths[1], False)):
        other = student(server, 3)
        given = lambda: [types.Datum(model_input=d.model_input, loss_fn_inputs={k: v for k, v in d.loss_fn_inputs.items() if k != "teacher_logprobs"}) for d in written_by(other)]  # noqa: B023, E731
        train(other, given, "distill", {"divergence": "reverse", "averaging": "token_mean", "teacher": path})
        other.save_state(name).result()
        assert (state(name) == state("distilled")) == equal, name
    refused(pupil, written(), "distill", {"teacher": paths[0]}, "allowed is one of them")
    refused(pupil, given(), "distill", {"teacher": "tinker://nobody/sampler_weights/x"}, "nobody")


def labelled(client, other=1):
    """Of each pair a good answer and a bad one, each before its mismatched one: the prompt with the right answer of the pair that stands `other` further on."""
    asked = []
    for i, pair in enumerate(PAIRS):
        for side, label in (("chosen", 1), ("rejected", 0)):
            asked += [(pair["prompt"], pair[side], label), (pair["prompt"], PAIRS[(i + other) % len(PAIRS)]["chosen"], -1)]
    result = client.forward([answer(prompt, text) for prompt, text, _ in asked], "cross_entropy").result()
    return [answer(prompt, text, reference_logprobs=np.array(logprobs_of(result, i), np.float32), label=np.array([label], np.int64)) for i, (prompt, text, label) in enumerate(asked)]


def test_kto_has_the_weights_of_the_command(start_server, tmp_path, folder):
    server = start_server()
    lockstep(folder, "train", "kto", *COMMON, "--data", "pairs.jsonl", "--name", "kto", "--batch", 2 * len(PAIRS), "--eval-share", 0, "--init-seed", 7)
    state = lambda name: masters(tmp_path, f"state/checkpoints/*/weights/{name}/**/state.safetensors")  # noqa: E731
    wanted = masters(folder, "runs/kto/checkpoints/*/state.safetensors")
    trained = {}
    for name, other, config in (("kto", 1, {"averaging": "answer_mean"}), ("own", 0, {"averaging": "answer_mean"}), ("heavy", 1, {"averaging": "answer_mean", "undesirable_weight": 2.0})):
        client = student(server, 7)
        data = labelled(client, other)
        trained[name] = train(client, data, "kto", config)
        client.save_state(name).result()
        for i, datum in enumerate(data):  # of every answer, whatever its label, in the order of the data
            assert [np.float32(x) for x in logprobs_of(trained[name][0], i)] == list(datum.loss_fn_inputs["reference_logprobs"].data), (name, i)
    assert state("kto") == wanted
    told = [json.loads(line) for line in (folder / "runs/kto/metrics.jsonl").read_text().splitlines()]
    for step, result in zip(told, trained["kto"], strict=True):
        for ours, theirs in (("loss", "loss:sum"), ("accuracy", "accuracy:mean"), ("margin", "margin:mean"), ("chosen_reward", "chosen_reward:mean"), ("shift", "shift:mean")):
            assert result.metrics[theirs] == pytest.approx(step[ours], rel=1e-12, abs=1e-12), (step["step"], ours)
    lockstep(folder, "train", "kto", *COMMON, "--data", "pairs.jsonl", "--name", "kto-shared", "--batch", 2 * len(PAIRS), "--eval-share", 0, "--init-seed", 7, "--share-prompts", "backward")
    client = student(server, 7)
    train(client, labelled(client), "kto", {"averaging": "answer_mean", "share_prompts": "backward"})
    client.save_state("shared").result()
    assert state("shared") == masters(folder, "runs/kto-shared/checkpoints/*/state.safetensors") != wanted
    # The controls: answers that fit as mismatched ones, so another shift, and another weight.
    assert trained["own"][-1].metrics["shift:mean"] > 0
    assert state("own") != wanted and state("heavy") != wanted


@pytest.fixture(scope="module")
def client(training_server):
    return student(training_server, 5)


@pytest.mark.parametrize("loss", ["cdpo", "robust", "hinge", "ipo", "sigmoid_norm", "simpo", "orpo", "cpo"])
def test_each_loss_learns_which_is_better(training_server, loss):
    own = student(training_server, 5)
    data = [answer(pair["prompt"], pair[side]) for pair in PAIRS for side in ("chosen", "rejected")] if loss in ("simpo", "orpo", "cpo") else preferred(own)  # which compare with no reference
    results = train(own, data, loss, {})
    assert results[-1].metrics["loss:sum"] < results[0].metrics["loss:sum"]
    assert results[-1].metrics["margin:mean"] > results[0].metrics["margin:mean"]


def refused(client, data, loss, config, text):
    with pytest.raises((tinker.RequestFailedError, tinker.APIStatusError)) as failure:
        client.forward_backward(data, loss, config).result()
    assert text in str(failure.value), str(failure.value)


def test_what_is_wrong_is_named(client):
    data = preferred(client)
    refused(client, data[:-1], "dpo", {}, "data[10] is alone")
    refused(client, [answer(p["prompt"], p[s]) for p in PAIRS[:1] for s in ("chosen", "rejected")], "dpo", {}, "data[0].loss_fn_inputs has no reference_logprobs")
    refused(client, data, "dpo", {"gamma": 1.0}, "'gamma' is no option of the loss dpo, allowed are averaging, beta")
    refused(client, data, "dpo", {"beta": 0.0}, "beta")
    refused(client, data, "simpo", {}, "data[0].loss_fn_inputs.reference_logprobs is nothing that the loss simpo takes")
    answers = labelled(client)
    refused(client, data, "kto", {}, "data[0].loss_fn_inputs has no label")
    refused(client, answers[::2], "kto", {}, "needs mismatched answers")
    refused(client, [answers[0], answers[1], answer("1 2=", "3", label=np.array([2], np.int64))], "kto", {}, "data[2].loss_fn_inputs.label is 2")
    refused(client, [answers[0], answer("1 2=", "3", label=np.array([-1], np.int64))], "kto", {}, "data[1].loss_fn_inputs has no reference_logprobs")
    refused(client, answers, "kto", {"gamma": 1.0}, "allowed are averaging, beta, desirable_weight, undesirable_weight")
    refused(client, answers, "dpo", {}, "loss_fn_inputs.label is not known")
    refused(client, data, "dppo_", {}, "did you mean 'dppo'")
    refused(client, data, "dpo_", {}, "did you mean 'dpo'")
    refused(client, data, "distill", {}, "has no teacher_logprobs")
