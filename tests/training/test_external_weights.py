"""Weights for other programs: `save_weights_external` of the `tinker` package gives PEFT's files (or a Hugging Face folder) by plain HTTP,
and PEFT's folders come in: by name in OpenAI's API, as a sampler, as the start of a training run."""
import json
import shutil

import numpy as np
import pytest
import requests
import tinker
from safetensors.numpy import load_file, save_file
from tinker import types

from test_tinker import BASE, FOLDER, TOKENS, bits, client_of, logprobs_of, model_of, train, weighted


def rest_of(server, key="tml-dummy"):
    return tinker.RestClient(base_url=server.url, api_key=key)


def download(server, path, to, key="tml-dummy"):
    """As a downloader without a key does it."""
    urls = rest_of(server, key).get_external_weights_urls(path).result()
    to.mkdir(parents=True, exist_ok=True)
    for name, url in urls.urls.items():
        answer = requests.get(url, timeout=60)
        assert answer.status_code == 200, answer.text
        (to / name).write_bytes(answer.content)
    return urls


def trained(server, rank, name="out"):
    client = model_of(client_of(server), rank, seed=7)
    train(client, [weighted()], steps=3, learning_rate=1e-2)
    return client, client.save_weights_external(name).result()


def test_an_adapter_goes_out_as_peft_keeps_it(training_server, tmp_path):
    client, saved = trained(training_server, 8)
    urls = download(training_server, saved.path, tmp_path)
    assert set(urls.urls) == {"adapter_model.safetensors", "adapter_config.json"}
    listed = rest_of(training_server).list_checkpoints(saved.path.split("/")[2]).result().checkpoints
    assert [c.size_bytes for c in listed] == [sum(f.stat().st_size for f in tmp_path.iterdir())]
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert (config["peft_type"], config["r"], config["lora_alpha"], config["base_model_name_or_path"]) == ("LORA", 8, 32, BASE)
    tensors = load_file(tmp_path / "adapter_model.safetensors")
    assert all(name.startswith("base_model.model.") and (".lora_A.weight" in name or ".lora_B.weight" in name) for name in tensors)
    moved = [name for name, value in tensors.items() if name.endswith("lora_B.weight") and np.any(value)]
    assert moved, "three steps moved no B"


def test_the_urls_are_the_owners_and_nobody_guesses_them(training_server, tmp_path):
    _, saved = trained(training_server, 4)
    urls = rest_of(training_server).get_external_weights_urls(saved.path).result()
    with pytest.raises(tinker.NotFoundError):
        rest_of(training_server, "tml-somebody-else").get_external_weights_urls(saved.path).result()
    url = urls.urls["adapter_config.json"]
    word = url.split("/")[-2]
    assert len(word) == 48
    for bad in (url.replace(word, "0" * 48), url[:-1], url.rsplit("/", 1)[0] + "/..%2f..%2flockstep.db", url.rsplit("/", 1)[0] + "/"):
        assert requests.get(bad, timeout=10).status_code == 404, bad
    rest = rest_of(training_server)
    assert {c.checkpoint_type for c in rest.list_checkpoints(saved.path.split("/")[2]).result().checkpoints} == {"external"}
    rest.set_checkpoint_ttl_from_tinker_path(saved.path, 7200).result()
    assert rest.list_checkpoints(saved.path.split("/")[2]).result().checkpoints[0].expires_at is not None
    with pytest.raises(tinker.APIStatusError, match="ttl_seconds is 60"):
        rest.set_checkpoint_ttl_from_tinker_path(saved.path, 60).result()
    rest.delete_checkpoint_from_tinker_path(saved.path).result()
    assert requests.get(url, timeout=10).status_code == 404
    with pytest.raises(tinker.NotFoundError):
        rest.get_external_weights_urls(saved.path).result()


def test_age_is_refused_and_takes_its_number(training_server):
    client = model_of(client_of(training_server), 4)
    with pytest.raises(tinker.RequestFailedError, match="age_encryption_recipients is given"):
        client.save_weights_external("secret", age_encryption_recipients=["age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"]).result()
    assert train(client, [weighted()])[0] > 0
    with pytest.raises(tinker.RequestFailedError, match="ttl_seconds is 5, allowed is 3600"):
        client.save_weights_external("short", ttl_seconds=5).result()


def test_an_external_checkpoint_comes_back_with_its_bits(training_server):
    client, saved = trained(training_server, 8)
    now = logprobs_of(client.forward([weighted()], "cross_entropy").result())
    service = client_of(training_server)
    sampler = service.create_sampling_client(model_path=saved.path).result()
    assert bits(sampler.compute_logprobs(types.ModelInput.from_ints(TOKENS)).result()[1:]) == bits(now)
    again = service.create_training_client_from_state(saved.path).result()
    assert bits(logprobs_of(again.forward([weighted()], "cross_entropy").result())) == bits(now)
    assert train(again, [weighted()], steps=2)[1] > 0
    with pytest.raises(tinker.RequestFailedError, match="has no optimizer state"):
        service.create_training_client_from_state_with_optimizer(saved.path).result()
    fresh = logprobs_of(model_of(service, 8, seed=7).forward([weighted()], "cross_entropy").result())
    assert bits(fresh) != bits(now)  # the control


def test_all_parameters_go_out_as_a_hugging_face_folder(training_server, tmp_path):
    client, saved = trained(training_server, 0)
    now = logprobs_of(client.forward([weighted()], "cross_entropy").result())
    urls = download(training_server, saved.path, tmp_path / "model")
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(urls.urls)
    # Another server serves it: the bits of the trainer's forward.
    other = type(training_server)("--training", "--state", str(tmp_path / "state"), model=tmp_path / "model")
    try:
        sampler = client_of(other).create_sampling_client(base_model="model").result()
        assert bits(sampler.compute_logprobs(types.ModelInput.from_ints(TOKENS)).result()[1:]) == bits(now)
    finally:
        assert other.stop() == 0


def completion(server, model, **more):
    answer = requests.post(server.url + "/v1/completions", json={"model": model, "prompt": TOKENS[:4], "max_tokens": 6, "temperature": 0, "logprobs": 1, **more}, timeout=60)
    return answer.status_code, answer.json()


@pytest.fixture(scope="module")
def adapter_folder(training_server, tmp_path_factory):
    """A trained adapter as PEFT's folder, its training client's log-probabilities."""
    folder = tmp_path_factory.mktemp("adapters")
    client, saved = trained(training_server, 8, "for-others")
    download(training_server, saved.path, folder / "mine")
    return folder, logprobs_of(client.forward([weighted()], "cross_entropy").result())


def test_peft_folders_are_served_by_name(start_server, adapter_folder):
    folder, now = adapter_folder
    server = start_server("--adapter", f"mine={folder / 'mine'}", "--adapter-folder", str(folder))
    status, ours = completion(server, "mine")
    assert status == 200 and ours["model"] == "mine"
    _, base = completion(server, BASE)
    assert ours["choices"][0]["logprobs"]["token_logprobs"] != base["choices"][0]["logprobs"]["token_logprobs"]
    echoed = completion(server, "mine", prompt=TOKENS, echo=True, max_tokens=0)[1]["choices"][0]["logprobs"]["token_logprobs"]
    assert bits(echoed[1:]) == bits(now)
    listed = {m["id"]: m for m in requests.get(server.url + "/v1/models", timeout=10).json()["data"]}
    assert listed["mine"]["parent"] == BASE and listed["mine"]["rank"] == 8
    # As the `tinker` package names it: a sampler, and the start of a training run.
    service = client_of(server)
    path = "tinker://adapters/external_weights/mine"
    sampler = service.create_sampling_client(model_path=path).result()
    assert bits(sampler.compute_logprobs(types.ModelInput.from_ints(TOKENS)).result()[1:]) == bits(now)
    started = service.create_training_client_from_state(path).result()
    assert started.get_info().lora_rank == 8
    assert bits(logprobs_of(started.forward([weighted()], "cross_entropy").result())) == bits(now)
    losses = train(started, [weighted()], steps=5, learning_rate=1e-2)
    assert losses[-1] < losses[0]
    assert bits(sampler.compute_logprobs(types.ModelInput.from_ints(TOKENS)).result()[1:]) == bits(now)  # the server's stays


def test_adapters_come_and_go_while_the_server_runs(start_server, adapter_folder, tmp_path):
    folder, now = adapter_folder
    shutil.copytree(folder / "mine", tmp_path / "outside")
    server = start_server("--adapter-folder", str(folder), "--max-adapters", "2")

    def post(route, **body):
        answer = requests.post(server.url + route, json=body, timeout=60)
        return answer.status_code, answer.json()

    assert completion(server, "late")[0] == 404
    assert post("/v1/load_lora_adapter", lora_name="late", lora_path="mine")[0] == 200
    echoed = completion(server, "late", prompt=TOKENS, echo=True, max_tokens=0)[1]["choices"][0]["logprobs"]["token_logprobs"]
    assert bits(echoed[1:]) == bits(now)
    assert post("/v1/load_lora_adapter", lora_name="late", lora_path="mine")[0] == 409
    assert post("/v1/load_lora_adapter", lora_name="late", lora_path=str(folder / "mine"), load_inplace=True)[0] == 200
    for path in ("../mine", str(tmp_path / "outside"), "/etc", ".", "nothing"):
        assert post("/v1/load_lora_adapter", lora_name="other", lora_path=path)[0] == 404, path
    assert post("/v1/load_lora_adapter", lora_name="a/b", lora_path="mine")[0] == 400
    assert post("/v1/load_lora_adapter", lora_name=BASE, lora_path="mine")[0] == 409
    assert post("/v1/load_lora_adapter", lora_name="second", lora_path="mine")[0] == 200
    assert post("/v1/load_lora_adapter", lora_name="third", lora_path="mine")[0] == 429
    assert post("/v1/unload_lora_adapter", lora_name="late")[0] == 200
    assert completion(server, "late")[0] == 404 and post("/v1/unload_lora_adapter", lora_name="late")[0] == 404
    assert completion(server, "second")[0] == 200


def test_half_of_pefts_usual_modules_are_zeros_elsewhere(start_server, adapter_folder, tmp_path):
    """PEFT adapts what it is told to: an adapter of some modules is one whose others add nothing."""
    folder, now = adapter_folder
    tensors = load_file(folder / "mine/adapter_model.safetensors")
    for name, keep in {"some": lambda n: ".o_proj." in n, "silent": lambda n: True}.items():
        shutil.copytree(folder / "mine", tmp_path / name)
        chosen = {n: (np.zeros_like(v) if name == "silent" and n.endswith("lora_B.weight") else v) for n, v in tensors.items() if keep(n)}
        save_file(chosen, tmp_path / name / "adapter_model.safetensors")
    server = start_server("--adapter", f"some={tmp_path / 'some'}", "--adapter", f"silent={tmp_path / 'silent'}")
    scores = {name: completion(server, name, prompt=TOKENS, echo=True, max_tokens=0)[1]["choices"][0]["logprobs"]["token_logprobs"][1:] for name in ("some", "silent", BASE)}
    assert bits(scores["silent"]) == bits(scores[BASE])
    assert bits(scores["some"]) != bits(scores[BASE]) and bits(scores["some"]) != bits(now)
