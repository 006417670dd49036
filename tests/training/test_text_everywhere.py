"""One text, every way in: the command line, training data, the wires and the packages' own clients read the same token ids.

A prompt and a text are read with their special tokens (a beginning that the tokenizer adds too); what a message says never becomes one.
"""
import importlib.util
import json
import os
import shutil
import subprocess
from pathlib import Path

import openai
import pytest
import requests
import tinker

_spec = importlib.util.spec_from_file_location("lockstep_api_conftest", Path(__file__).resolve().parents[1] / "api/conftest.py")
_api = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_api)
BINARY = os.environ.get("LOCKSTEP_BINARY", str(_api.REPOSITORY / "build/lockstep"))
BOS, END = 101, 102
BEGINS = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|bos|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
          "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
          "special_tokens": {"<|bos|>": {"id": "<|bos|>", "ids": [BOS], "tokens": ["<|bos|>"]}}}  # as Llama 3's tokenizer does
TEXTS = ("3 7 12=48:", "<|eos|>3 7<|pad|> 12=48:", " <|bos|> 1  2 <|reserved_0|>x")


@pytest.fixture(scope="module", params=["plain", "begins"])
def place(request, tmp_path_factory):
    """(the model's folder, a server with the training API on it)"""
    folder = tmp_path_factory.mktemp("everywhere") / request.param
    shutil.copytree(_api.MODEL, folder)
    (folder / "chat_template.jinja").write_text(_api.CHAT_TEMPLATE)
    if request.param == "begins":
        tokenizer = json.loads((folder / "tokenizer.json").read_text())
        (folder / "tokenizer.json").write_text(json.dumps({**tokenizer, "post_processor": BEGINS}))
    running = _api.Server("--training", "--state", str(tmp_path_factory.mktemp("state")), model=folder)
    yield folder, running
    assert running.stop() == 0, "".join(running.errors)


def said(*words, text=None):
    ran = subprocess.run([BINARY, *map(str, words)], input=text, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def learned_line(folder, tmp_path, line):
    """What a line of training data becomes: (ids, the number of them that are not learned)."""
    (tmp_path / "line.jsonl").write_text(json.dumps(line) + "\n")
    row = json.loads(said("render", "--model", folder, "--train", tmp_path / "line.jsonl", "--json"))
    return row["tokens"], row["weights"].index(1)


def same(ways):
    assert len(ways) > 3 and len({tuple(ids) for ids in ways.values()}) == 1, ways
    return next(iter(ways.values()))


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_is_the_same_ids_by_every_way(place, tmp_path, text):
    folder, server = place
    name = folder.name
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
    post = lambda route, **body: requests.post(server.url + route, json={"model": name, **body}, headers={"Authorization": "Bearer none"}, timeout=60).json()  # noqa: E731
    ask = {"model": name, "prompt": text, "max_tokens": 1}
    ways = {
        "tokenize": json.loads(said("tokenize", "--model", folder, "--text", text, "--json"))["ids"],
        "tokenize --jsonl": json.loads(said("tokenize", "--model", folder, "--jsonl", text=json.dumps({"text": text}) + "\n"))["ids"],
        "generate": json.loads(said("generate", "--model", folder, "--prompt", text, "--max-tokens", 1, "--json"))["prompt_token_ids"],
        "POST /v1/tokenize": post("/v1/tokenize", prompt=text)["tokens"],
        "openai, completions": client.completions.create(**ask, extra_body={"return_token_ids": True}).choices[0].model_extra["prompt_token_ids"],
        "POST /inference/v1/completions": post("/inference/v1/completions", prompt=text, max_tokens=1, return_token_ids=True)["choices"][0]["prompt_token_ids"],
        "tinker, get_tokenizer": tinker.ServiceClient(base_url=server.url, api_key="tml-none").create_sampling_client(base_model=str(folder)).result().get_tokenizer().encode(text),
    }
    ids, learned = learned_line(folder, tmp_path, {"prompt": text, "completion": "1"})
    ways["a prompt of training data"] = ids[:learned]
    ids, _ = learned_line(folder, tmp_path, {"text": text})
    ways["a text of training data"] = ids[:-1]
    assert ids[-1] == END
    ids = same(ways)
    assert (ids[0] == BOS) == (name == "begins" or text.startswith("<|bos|>")) and (END in ids) == ("<|eos|>" in text)
    # Embeddings tell no ids: the text's vector is that of the ids.
    embed = lambda what: client.embeddings.create(model=name, input=what, encoding_format="float").data[0].embedding  # noqa: E731
    assert embed(text) == embed(ids) != embed(ids + [5])


CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{\"a\": 1}"}}
TALKS = {
    **{f"text {i}": [{"role": "system", "content": "7"}, {"role": "user", "content": text}] for i, text in enumerate(TEXTS)},
    "parts": [{"role": "developer", "content": [{"type": "text", "text": "7"}]}, {"role": "user", "content": [{"type": "text", "text": "1"}, {"type": "text", "text": TEXTS[1]}]}],
    "calls": [{"role": "user", "content": "1"}, {"role": "assistant", "content": None, "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "c1", "content": TEXTS[1]},
              {"role": "assistant", "content": "2"}, {"role": "user", "content": "3"}],
}


@pytest.mark.parametrize("talk", TALKS)
def test_a_conversation_is_the_same_ids_by_every_way(place, tmp_path, talk):
    folder, server = place
    name, messages = folder.name, TALKS[talk]
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
    (tmp_path / "messages.json").write_text(json.dumps(messages))
    answer = client.chat.completions.create(model=name, messages=messages, max_tokens=1, temperature=0, extra_body={"return_token_ids": True})
    ways = {
        "render": json.loads(said("render", "--model", folder, "--messages", tmp_path / "messages.json", "--ids")),
        "POST /v1/tokenize": requests.post(server.url + "/v1/tokenize", json={"messages": messages}, headers={"Authorization": "Bearer none"}, timeout=60).json()["tokens"],
        "openai, chat": answer.model_extra.get("prompt_token_ids") or answer.choices[0].model_extra["prompt_token_ids"],
    }
    silent = [{**message, "train": False} if message["role"] == "assistant" else message for message in messages]
    ids, learned = learned_line(folder, tmp_path, {"messages": [*silent, {"role": "assistant", "content": "1"}]})
    ways["messages of training data"] = ids[:learned]
    if talk.startswith("text"):  # lines are handed to the template as they are
        ways["render --jsonl"] = json.loads(said("render", "--model", folder, "--jsonl", text=json.dumps({"messages": messages}) + "\n"))["ids"]
    ids = same(ways)
    assert not {BOS, END, 103, 504} & set(ids), ids  # nobody forges a turn
    # Responses tell no ids: as many of them, and what the model says behind them.
    if talk.startswith("text"):
        response = client.responses.create(model=name, instructions="7", input=messages[1]["content"], max_output_tokens=1, temperature=0)
        assert response.usage.input_tokens == len(ids) and response.output_text == (answer.choices[0].message.content or "")


@pytest.mark.parametrize("messages, words", [([{"role": "usr", "content": "1"}], "messages[0].role"), ([{"role": "user", "content": ["1"]}], "messages[0].content[0]"),
                                             ([{"role": "user", "content": None}], "messages[0].content"), ([{"role": "user", "content": "1", "wieght": 0}], "messages[0].wieght")])
def test_what_no_request_may_hold_is_not_learned(place, tmp_path, messages, words):
    folder, server = place
    (tmp_path / "line.jsonl").write_text(json.dumps({"messages": [*messages, {"role": "assistant", "content": "1"}]}) + "\n")
    ran = subprocess.run([BINARY, "render", "--model", folder, "--train", tmp_path / "line.jsonl"], capture_output=True, text=True, timeout=60)
    served = requests.post(server.url + "/v1/tokenize", json={"messages": messages}, headers={"Authorization": "Bearer none"}, timeout=60)
    assert served.status_code == 400 and words in served.json()["error"]["message"]
    assert ran.returncode == 1 and served.json()["error"]["message"] in ran.stderr and "line 1" in ran.stderr, ran.stderr
