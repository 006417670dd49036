"""The training protocol itself, without an SDK: orders of arrival, repetitions, hostile bodies and names, kills."""
import signal
import time

import pytest
import requests
import zstandard

BASE = "countdown-glm"
TOKENS = [1, 5, 7, 9, 11, 13, 8, 6, 3, 2]


class Client:
    def __init__(self, url, key="tml-wire"):
        self.url, self.key = url + "/api/v1/", key
        self.session = self.post("create_session", tags=[], user_metadata={})["session_id"]

    def raw(self, path, **arguments):
        headers = {"X-API-Key": self.key, **arguments.pop("headers", {})}
        return requests.post(self.url + path, headers=headers, timeout=60, **arguments)

    def post(self, route, **fields):
        answer = self.raw(route, json=fields)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def result(self, request_id):
        while True:
            answer = self.raw("retrieve_future", json={"request_id": request_id})
            if answer.status_code == 408:
                continue
            assert answer.status_code == 200, answer.text
            return answer.json() if "json" in answer.headers["content-type"] else answer.content

    def model(self, number=0):
        answer = self.post("create_model", session_id=self.session, model_seq_id=number, base_model=BASE)
        return self.result(answer["request_id"])["model_id"]

    def backward(self, model, sequence, tokens=TOKENS):
        datum = {"model_input": {"chunks": [{"type": "encoded_text", "tokens": tokens[:-1]}]},
                 "loss_fn_inputs": {"target_tokens": {"dtype": "int64", "data": tokens[1:]}}}
        return self.post("forward_backward", model_id=model, seq_id=sequence, forward_backward_input={"data": [datum], "loss_fn": "cross_entropy"})["request_id"]

    def step(self, model, sequence):
        return self.post("optim_step", model_id=model, seq_id=sequence, adam_params={"learning_rate": 1e-3})["request_id"]


@pytest.fixture(scope="module")
def client(training_server):
    return Client(training_server.url)


OTHER = [2, 2, 7, 1, 4]


def norm_of(client, model, order):
    """The gradient norm of two batches and a step, submitted in that order, each twice."""
    requests_of = {}
    for sequence in order:
        for _ in range(2):
            if sequence == 3:
                again = client.step(model, 3)
            else:
                again = client.backward(model, sequence, TOKENS if sequence == 1 else OTHER)
            assert requests_of.setdefault(sequence, again) == again
    return client.result(requests_of[3])["metrics"]["grad_norm"]


def test_arrival_changes_nothing_and_a_repetition_is_done_once(client):
    norms = {tuple(order): norm_of(client, client.model(10 + i), order) for i, order in enumerate([[1, 2, 3], [2, 3, 1], [3, 2, 1]])}
    assert len(set(norms.values())) == 1, norms
    control = client.model(20)
    client.backward(control, 1)
    assert client.result(client.step(control, 2))["metrics"]["grad_norm"] not in norms.values()


def test_later_numbers_are_acknowledged_and_wait(client):
    model = client.model(30)
    request = client.step(model, 2)
    time.sleep(0.3)
    begin = time.time()
    first = client.backward(model, 1)
    assert "metrics" in client.result(request) and time.time() - begin < 30
    assert client.result(first)


def test_results_are_kept_after_their_delivery(client):
    model = client.model(31)
    request = client.backward(model, 1)
    assert client.result(request) == client.result(request)


def test_anothers_things_are_as_good_as_absent(client, training_server):
    model = client.model(32)
    request = client.backward(model, 1)
    other = Client(training_server.url, "tml-other")
    assert other.raw("retrieve_future", json={"request_id": request}).status_code == 410
    assert other.raw("get_info", json={"model_id": model}).status_code == 404
    assert other.raw("optim_step", json={"model_id": model, "seq_id": 2}).status_code == 404
    assert other.raw("session_heartbeat", json={"session_id": client.session}).status_code == 404


def test_names_that_are_no_names(client):
    model = client.model(40)
    for sequence, name in enumerate(["../../x", "a/b", "", ".hidden", "x" * 200, "a\0b"], 1):
        result = client.result(client.post("save_weights", model_id=model, seq_id=sequence, path=name)["request_id"])
        assert result["category"] == "user" and "letters, digits" in result["error"], (name, result)


def test_hostile_bodies(client):
    grown = 600 << 20
    field = b"\x7a" + bytes([grown >> shift & 0x7F | (0x80 if shift < 28 else 0) for shift in range(0, 35, 7)])  # one that no message has, as long as that
    bomb = zstandard.ZstdCompressor().compress(field + b"\0" * grown)
    assert len(bomb) < 1 << 20
    nothing = zstandard.ZstdCompressor().compress(b"\0" * grown)  # no message from its first byte on: the rest need not be unpacked
    protobuf = {"content-type": "application/x-protobuf"}
    assert client.raw("forward_backward", data=bomb, headers={**protobuf, "content-encoding": "zstd"}).status_code == 413
    assert client.raw("forward_backward", data=bomb[: len(bomb) // 2], headers={**protobuf, "content-encoding": "zstd"}).status_code in (400, 413)
    took = []
    for _ in range(5):
        began = time.monotonic()
        assert client.raw("forward_backward", data=nothing, headers={**protobuf, "content-encoding": "zstd"}).status_code == 400
        took.append(time.monotonic() - began)
    assert min(took) < 0.2, took  # of several, for the machine may have others to run
    assert client.raw("forward_backward", data=b"no zstd", headers={**protobuf, "content-encoding": "zstd"}).status_code == 400
    assert client.raw("forward_backward", data=b"x", headers={**protobuf, "content-encoding": "br"}).status_code == 415
    assert client.raw("forward_backward", data=b"\xff\xff\xff", headers=protobuf).status_code == 400
    assert client.raw("create_model", data=b"{" * 100000, headers={"content-type": "application/json"}).status_code in (400, 422)
    for fields in ({}, {"session_id": 5}, {"session_id": client.session, "model_seq_id": "x"}, {"session_id": client.session, "model_seq_id": 99, "lora_config": {"rank": -1}}):
        answer = client.raw("create_model", json=fields)
        assert answer.status_code in (400, 422) and answer.json()["detail"], answer.text
    assert requests.get(client.url + "healthz", timeout=10).json() == {"status": "ok"}


def test_a_kill_loses_no_acknowledged_checkpoint_and_nothing_silently(start_server):
    server = start_server()
    client = Client(server.url)
    model = client.model()
    client.backward(model, 1)
    client.result(client.step(model, 2))
    saved = client.result(client.post("save_weights", model_id=model, seq_id=3, path="kept")["request_id"])
    client.backward(model, 4)
    client.result(client.step(model, 5))
    server.stop(signal.SIGKILL)
    again = start_server()
    client.url = again.url + "/api/v1/"
    lost = client.result(client.backward(model, 6))
    assert lost["category"] == "server" and "load_state" in lost["error"]
    loaded = client.result(client.post("load_weights", model_id=model, seq_id=7, path=saved["path"], optimizer=True)["request_id"])
    assert loaded["model_id"] == model
    client.backward(model, 8)
    assert client.result(client.step(model, 9))["metrics"]["weights_version"] == 2


def test_steps_with_values_that_there_are_not(client):
    model = client.model(50)
    client.backward(model, 1)
    for sequence, (fields, error) in enumerate(
        [({"grad_accumulation_normalization": "mean"}, "grad_accumulation_normalization is 'mean', allowed are none, num_loss_tokens, num_sequences"),
         ({"adam_params": {"emit_grad_norm_metrics": "all"}}, "adam_params.emit_grad_norm_metrics is 'all', allowed are true, false, off, basic, detailed"),
         ({"optimizer_params": {"type": "dimuon"}}, "learning_rate is missing"),
         ({"optimizer_params": {"type": "sgd", "learning_rate": 1}}, "the step is of optimizer 'sgd', the model's is adamw")], 2):  # fmt: skip
        result = client.result(client.post("optim_step", model_id=model, seq_id=sequence, **fields)["request_id"])
        assert result["category"] == "user" and error in result["error"], result
    assert client.result(client.step(model, 6))["metrics"]["grad_norm"] > 0  # the gradient is still there
    answer = client.post("create_model", session_id=client.session, model_seq_id=51, base_model=BASE, optimizer_config={"type": "adam"})
    assert "did you mean 'adamw'" in client.result(answer["request_id"])["error"]
    assert client.raw("create_model", json={"session_id": client.session, "model_seq_id": 52, "base_model": BASE,
                                            "optimizer_config": {"type": "dimuon", "version": 2}}).status_code == 422  # fmt: skip


def test_gradients_beside_a_gap_are_neither_lost_nor_counted_twice(client):
    """Batches 1 and 3, a save 2 or a step 2 between them, a step 4: in any order of arrival what they are in order."""
    def norms(number, order, between):
        model, requests_of = client.model(number), {}
        for sequence in order:
            if sequence in (1, 3):
                requests_of[sequence] = client.backward(model, sequence, TOKENS if sequence == 1 else OTHER)
            elif sequence == 2 and between == "save":
                requests_of[2] = client.post("save_weights", model_id=model, seq_id=2, path="between")["request_id"]
            else:
                requests_of[sequence] = client.step(model, sequence)
            time.sleep(0.2)  # what may be early is
        results = {sequence: client.result(request) for sequence, request in requests_of.items()}
        return [results[s]["metrics"]["grad_norm"] for s in (2, 4) if s == 4 or between == "step"]

    for place, between in enumerate(("save", "step")):
        want = norms(60 + 10 * place, [1, 2, 3, 4], between)
        for i, order in enumerate([[3, 1, 2, 4], [3, 2, 1, 4], [4, 3, 2, 1], [3, 4, 1, 2]], 1):
            assert norms(60 + 10 * place + i, order, between) == want, (between, order)


def test_what_is_wrong_in_a_request_takes_its_number(client):
    model = client.model(80)
    for sequence, (route, fields) in enumerate([("save_weights", {"path": 5}), ("save_weights_for_sampler", {"path": "x", "ttl_seconds": "y"}),
                                                ("save_weights_external", {"path": []}), ("load_weights", {"path": 7}), ("load_adapter", {})], 1):  # fmt: skip
        result = client.result(client.post(route, model_id=model, seq_id=sequence, **fields)["request_id"])
        assert result["category"] == "user", (route, result)
    begin = time.time()
    client.backward(model, 6)
    assert client.result(client.step(model, 7))["metrics"]["grad_norm"] > 0 and time.time() - begin < 30


def test_sizes_that_would_take_the_server_down(client):
    """Names that repeat themselves, lists that are copied for each sample, tuples that double, headers of any bytes."""
    root = client.url.removesuffix("/api/v1/")
    name = "accounts/a/trainingSamplers/" * 16000
    assert requests.post(root + "/inference/v1/completions", json={"model": name, "prompt": [1, 2], "max_tokens": 1}, headers={"X-API-Key": "tml-a"}, timeout=20).status_code in (400, 404)
    assert requests.post(root + "/hot_load/v1/models/hot_load", json={"identity": "x"}, headers={"X-API-Key": "tml-a", "fireworks-deployment": b"\xff\xfe"}, timeout=20).status_code == 422
    sampler = client.post("create_sampling_session", session_id=client.session, sampling_session_seq_id=900, base_model=BASE)["sampling_session_id"]
    prompt = {"chunks": [{"type": "encoded_text", "tokens": [1, 2, 3]}]}
    for stop in (["abc"] * 100000, list(range(100000)), ["a" * 5000]):
        answer = client.raw("asample", json={"sampling_session_id": sampler, "seq_id": 0, "num_samples": 1024, "prompt": prompt, "sampling_params": {"max_tokens": 1, "stop": stop}})
        said = answer.json() if answer.status_code != 200 else client.result(answer.json()["request_id"])
        assert "sampling_params.stop" in str(said) and "allowed" in str(said), said
    nodes = [{"op": "placeholder", "name": "logprobs", "target": "logprobs", "args": [], "kwargs": {}}]
    last = {"ref": "logprobs"}
    for i in range(40):
        nodes.append({"op": "call_function", "name": f"n{i}", "target": "operator.getitem", "args": [{"tuple": [{"tuple": [last, last]}]}, 0], "kwargs": {}})
        last = {"ref": f"n{i}"}
    nodes += [{"op": "call_method", "name": "end", "target": "sum", "args": [{"ref": "logprobs"}], "kwargs": {}},
              {"op": "output", "name": "output", "target": "output", "args": [{"tuple": [{"ref": "end"}, {"dict": {}}]}], "kwargs": {}}]  # fmt: skip
    made = client.result(client.post("create_custom_loss", session_id=client.session, custom_loss_seq_id=0, name="doubles", inputs=[{"name": "logprobs", "rank": 1}],
                                     graph={"format": 1, "nodes": nodes})["request_id"])  # fmt: skip
    model = client.model(90)
    datum = {"model_input": {"chunks": [{"type": "encoded_text", "tokens": TOKENS[:-1]}]}, "loss_fn_inputs": {"target_tokens": {"dtype": "int64", "data": TOKENS[1:]}}}
    request = client.post("forward_backward", model_id=model, seq_id=1, forward_backward_input={"data": [datum], "loss_fn": "custom", "loss_fn_config": {"loss_id": made["loss_id"]}})
    result = client.result(request["request_id"])
    assert result["category"] == "user" and "more elements than a datum may take" in result["error"], result


def test_a_session_that_has_finished_takes_no_work(training_server):
    """What was accepted goes on and is told; nothing new begins: models, operations, samplers, samples, losses, copies."""
    client, other = Client(training_server.url, "tml-finished"), Client(training_server.url, "tml-finished")
    model = client.model()
    saved = client.result(client.post("save_weights", model_id=model, seq_id=1, path="kept")["request_id"])["path"]
    sampler = client.post("create_sampling_session", session_id=client.session, sampling_session_seq_id=1, base_model=BASE)["sampling_session_id"]
    under_way = client.backward(model, 2)
    assert client.raw(f"sessions/{client.session}/finish", json={"reason": {"type": "success"}}).status_code == 200
    assert not isinstance(client.result(under_way), dict)  # a result
    assert client.backward(model, 2) == under_way  # a repetition begins nothing
    session = {"session_id": client.session}
    graph = {"format": 1, "nodes": []}
    sample = {"num_samples": 1, "prompt": {"chunks": [{"type": "encoded_text", "tokens": TOKENS[:3]}]}, "sampling_params": {"max_tokens": 1}}
    work = [("create_model", {**session, "model_seq_id": 1, "base_model": BASE}), ("load_weights", {**session, "model_seq_id": 2, "path": saved}),
            ("optim_step", {"model_id": model, "seq_id": 3}), ("save_weights", {"model_id": model, "seq_id": 3, "path": "more"}),
            ("create_sampling_session", {**session, "sampling_session_seq_id": 2, "base_model": BASE}), ("asample", {"sampling_session_id": sampler, "seq_id": 0, **sample}),
            ("create_custom_loss", {**session, "custom_loss_seq_id": 0, "name": "n", "inputs": [], "graph": graph}), ("copy_weights", {**session, "model_seq_id": 3, "source_path": saved})]
    for route, fields in work:
        answer = client.raw(route, json=fields)
        assert answer.status_code == 400 and f"session '{client.session}' has finished" in answer.json()["detail"], (route, answer.text)
    # To be looked at, and its checkpoints are another session's to load.
    assert client.raw("get_info", json={"model_id": model}).status_code == 200
    assert requests.get(f"{client.url}sessions/{client.session}", headers={"X-API-Key": client.key}, timeout=60).json()["training_run_ids"] == [model]
    loaded = other.post("load_weights", session_id=other.session, model_seq_id=0, path=saved)
    assert "model_id" in other.result(loaded["request_id"])
