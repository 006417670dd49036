"""The context that a server announces is the one that it keeps: the model's, or what its cache holds; and a server that stops says that it was the server."""
import json
import shutil
import signal
import threading
from pathlib import Path

import pytest
import requests
from test_fleet import wait_for

MODEL = Path(__file__).resolve().parents[2] / "models/countdown-glm"
POSITIONS = 65536


@pytest.fixture(scope="module")
def long_folder(tmp_path_factory):
    """The shipped model, whose config says a context that its weights would not mind."""
    folder = tmp_path_factory.mktemp("long") / "long"
    shutil.copytree(MODEL, folder)
    config = json.loads((folder / "config.json").read_text())
    config["max_position_embeddings"] = POSITIONS
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def start(own_server, long_folder):
    return lambda *arguments: own_server(*arguments, model=long_folder)


def announced(server):
    return requests.get(f"{server.url}/v1/models").json()["data"][0]["max_model_len"]


def asked(server, tokens, answer=1):
    return requests.post(f"{server.url}/v1/completions", json={"model": "long", "prompt": [5] * tokens, "max_tokens": answer, "temperature": 0})


def test_a_small_cache_is_the_context(start):
    server = start("--cache-megabytes", "1")
    sentence = server.process.stdout.readline()
    context = announced(server)
    assert 1000 < context < POSITIONS
    assert sentence.startswith(f"context: {context} tokens a request, all that the cache of 1.0 MB holds"), sentence
    assert f"makes room for one of {POSITIONS}\n" in sentence, sentence
    assert asked(server, context - 1).status_code == 200
    refusal = asked(server, context)
    assert refusal.status_code == 400 and refusal.json()["error"]["code"] == "context_length_exceeded", refusal.text
    assert f"maximum context length is {context} tokens" in refusal.json()["error"]["message"], refusal.text
    raised = int(sentence.split("--cache-megabytes ")[1].split()[0])
    assert announced(start("--cache-megabytes", str(raised))) == POSITIONS  # what the sentence says raises it, does


def test_the_cache_is_made_of_memory_that_is_there(start):
    sizes = {}
    for megabytes in (400, 2000):
        server = start("--memory-megabytes", str(megabytes))
        sentence = server.process.stdout.readline()
        assert announced(server) == POSITIONS, sentence
        sizes[megabytes] = float(sentence.split("the cache of ")[1].split()[0])
        assert server.stop() == 0
    assert 40 < sizes[400] < 200 and 500 < sizes[2000] < 1000, sizes  # half of what the program, answers and uploads leave


def test_a_stopping_server_does_not_blame_its_client(start):
    server = start("--stop-seconds", "0.2")
    body = {"model": "long", "prompt": [5], "max_tokens": 60000, "temperature": 1, "ignore_eos": True, "stream": True}
    answer = requests.post(f"{server.url}/v1/completions", json=body, stream=True)
    lines = answer.iter_lines()
    assert next(lines).startswith(b"data: ")
    stopping = threading.Thread(target=server.stop)
    stopping.start()
    errors = [json.loads(line[6:])["error"]["message"] for line in lines if b'"error"' in line]
    stopping.join()
    assert errors == ["the server is stopping; the request was not finished"]


def test_a_hang_up_stops_a_server_without_a_key_file(start):
    assert start().stop(signal.SIGHUP) == 0


def test_a_hang_up_reads_keys_where_there_is_a_file(start, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("ada a-key-of-ada-000000\n")
    server = start("--api-key-file", str(keys))
    keys.write_text("bob a-key-of-bob-000000\n")
    server.process.send_signal(signal.SIGHUP)
    wait_for("the keys are read again", lambda: requests.get(f"{server.url}/v1/models", headers={"Authorization": "Bearer a-key-of-bob-000000"}).status_code == 200)
    assert server.stop() == 0
