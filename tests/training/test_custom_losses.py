"""Traced losses of `tinker` (create_custom_loss): the server's interpreter of their graphs against torch in float64, and the same
losses through the real SDK with the server running them and with the client running them."""
import json
import os
import subprocess
from pathlib import Path

import pytest
import tinker
import torch
from tinker import types
from tinker.lib.public_interfaces.custom_loss import encode_graph, trace_loss

from custom_loss_functions import LOSSES, input_of, ranks_of

REPOSITORY = Path(__file__).resolve().parents[2]
BRIDGE = Path(os.environ.get("LOCKSTEP_BINARY", REPOSITORY / "build" / "lockstep")).resolve().parent / "custom_loss_bridge"
BASE = "countdown-glm"
CASES = pytest.mark.parametrize(("function", "inputs"), LOSSES, ids=[f.__name__ for f, _ in LOSSES])


@pytest.fixture(scope="module")
def bridge():
    if not BRIDGE.exists():
        pytest.fail(f"there is no custom_loss_bridge at {BRIDGE}; build the tests first")
    with subprocess.Popen([BRIDGE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def ask(request):
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield ask
        process.stdin.close()
        assert process.wait() == 0


def made(function, inputs, seed, length=9, columns=2):
    draws = torch.Generator().manual_seed(seed)
    ranks = ranks_of(inputs)
    shape = (length,) if ranks["logprobs"] == 1 else (length, columns)
    logprobs = -4.0 * torch.rand(shape, generator=draws) - 1e-3
    return ranks, logprobs, {name: input_of(name, rank, length, columns, draws) for name, rank in inputs.items()}


def wire(tensor):
    return {"shape": list(tensor.shape), "dtype": "float32" if tensor.is_floating_point() else "int64", "data": tensor.flatten().tolist()}


def in_double(graph, logprobs, tensors):
    leaf = logprobs.double().requires_grad_(True)
    loss, metrics = graph(leaf, *[t.double() if t.is_floating_point() else t for t in tensors])
    loss.backward()
    return loss.item(), leaf.grad, {name: float(value) for name, value in metrics.items()}


@CASES
def test_the_interpreter_is_torch_in_double(bridge, function, inputs):
    for seed in range(5):
        ranks, logprobs, tensors = made(function, inputs, seed)
        handle = trace_loss(function, ranks, "session")
        graph = encode_graph(handle).model_dump()
        answer = bridge({"inputs": [{"name": i.name, "rank": i.rank} for i in handle.inputs], "graph": graph, "shape": list(logprobs.shape),
                         "logprobs": logprobs.flatten().tolist(), "tensors": {name: wire(t) for name, t in tensors.items()}})
        assert "error" not in answer, answer
        loss, gradient, metrics = in_double(handle.graph, logprobs, [tensors[name] for name in handle.input_names])
        assert answer["loss"] == pytest.approx(loss, rel=1e-12, abs=1e-12)
        assert answer["gradient"] == pytest.approx(gradient.flatten().tolist(), rel=1e-7, abs=1e-12)
        assert answer["metrics"] == pytest.approx(metrics, rel=1e-6, abs=1e-12)
        assert any(g != 0 for g in answer["gradient"])


def test_the_comparison_would_see_another_gradient(bridge):
    ranks, logprobs, tensors = made(*LOSSES[1], 0)
    handle = trace_loss(LOSSES[1][0], ranks, "session")
    graph = encode_graph(handle).model_dump()
    for node in graph["nodes"]:
        node["args"] = [9.0 if arg == 1.2 else arg for arg in node["args"]]  # another clip
    answer = bridge({"inputs": [{"name": i.name, "rank": i.rank} for i in handle.inputs], "graph": graph, "shape": [9],
                     "logprobs": logprobs.tolist(), "tensors": {name: wire(t) for name, t in tensors.items()}})
    _, gradient, _ = in_double(handle.graph, logprobs, [tensors[name] for name in handle.input_names])
    assert answer["gradient"] != pytest.approx(gradient.tolist(), rel=1e-7, abs=1e-12)


def test_what_cannot_be_names_its_node(bridge):
    def ask(nodes, inputs=({"name": "logprobs", "rank": 1},)):
        nodes = [{"op": "placeholder", "name": "logprobs", "target": "logprobs"}, *nodes]
        return bridge({"inputs": list(inputs), "graph": {"format": 1, "nodes": nodes}, "shape": [3], "logprobs": [-1.0, -2.0, -3.0], "tensors": {}})

    def call(target, *args, name="y", op="call_function"):
        return {"op": op, "name": name, "target": target, "args": list(args), "kwargs": {}}

    end = {"op": "output", "name": "output", "target": "output", "args": [{"tuple": [{"ref": "y"}, {"dict": {}}]}], "kwargs": {}}
    lp = {"ref": "logprobs"}
    assert ask([call("torch.sum", lp), end])["loss"] == -6.0
    for nodes, words in [
        ([call("os.system", "true"), end], "os.system"), ([call("torch.load", "x"), end], "allowed are"), ([call("torch.summ", lp), end], "did you mean 'sum'"),
        ([call("item", lp, op="call_method"), end], "item"), ([call("torch.sum", {"ref": "later"}), end], "later"), ([call("torch.exp", lp), end], "shape [3]"),
        ([call("torch.sum", lp, 4), end], "dimension 4"), ([call("torch.zeros", 1 << 40), end], "'y' (torch.zeros)"),
        ([call("operator.add", lp, {"list": []}), end], "list"), ([call("torch.sum", lp)], "output"), ([call("torch.sum", lp, name="logprobs"), end], "earlier node"),
        ([{"op": "get_attr", "name": "y", "target": "w"}, end], "get_attr"), ([call("torch.log", {"float": "-inf"}), end], "does not depend on logprobs"),
        ([call("torch.log", lp, name="l"), call("sum", {"ref": "l"}, op="call_method"), end], "finite"),
    ]:
        answer = ask(nodes)
        assert words in answer.get("error", ""), (nodes, answer)
        assert answer["code"] in ("invalid_argument", "unsupported")


# --- through the SDK


def datum_of(function, inputs, seed, length=7, columns=2):
    _, logprobs, tensors = made(function, inputs, seed, length, columns)
    draws = torch.Generator().manual_seed(seed + 100)
    if "target_tokens" not in tensors:
        tensors["target_tokens"] = torch.randint(0, 29, tuple(logprobs.shape), generator=draws)
    tokens = torch.randint(0, 29, (length,), generator=draws).tolist()
    return types.Datum(model_input=types.ModelInput.from_ints(tokens), loss_fn_inputs={name: types.TensorData.from_torch(t) for name, t in tensors.items()})


def run(server, function, inputs, rank):
    """What two batches and a step give: results, the gradient's norm, and log-probabilities behind the step."""
    service = tinker.ServiceClient(base_url=server.url, api_key="tml-dummy")
    client = service.create_lora_training_client(base_model=BASE, rank=rank, seed=3).result()
    handle = service.create_custom_loss(function, input_ranks=ranks_of(inputs)).result()
    out = [client.forward_backward_custom([datum_of(function, inputs, 10 * call + s) for s in range(3)], handle).result() for call in range(2)]
    norm = client.optim_step(types.AdamParams(learning_rate=1e-3)).result().metrics["grad_norm"]
    after = client.forward([datum_of(*LOSSES[0], 1)], "cross_entropy").result()
    return handle, out, norm, after.loss_fn_outputs[0]["logprobs"].tolist()


@pytest.fixture(scope="module")
def servers(training_server, tmp_path_factory):
    other = type(training_server)("--training", "--state", str(tmp_path_factory.mktemp("client-losses")), "--custom-loss", "client", "--reuse-megabytes", "0")
    yield training_server, other
    assert other.stop() == 0, "".join(other.errors)


@CASES
def test_the_server_runs_what_the_client_would(servers, function, inputs):
    rank = 8 if LOSSES.index((function, inputs)) % 2 else 0
    here, there = (run(server, function, inputs, rank) for server in servers)
    assert here[0].loss_id and there[0].loss_id is None
    for ours, theirs in zip(here[1], there[1]):
        for one, other in zip(ours.loss_fn_outputs, theirs.loss_fn_outputs):
            assert one["logprobs"].tolist() == other["logprobs"].tolist()
        # The client computes in float32.
        assert ours.metrics["loss:sum"] == pytest.approx(theirs.metrics["loss:sum"], rel=1e-5, abs=1e-5)
        assert ours.metrics["surrogate_loss:sum"] == pytest.approx(theirs.metrics["surrogate_loss:sum"], rel=1e-4, abs=1e-4)
        custom = {name: value for name, value in theirs.metrics.items() if name.startswith("custom/")}
        assert {name: value for name, value in ours.metrics.items() if name.startswith("custom/")} == pytest.approx(custom, rel=1e-5, abs=1e-5)
    assert here[2] == pytest.approx(there[2], rel=1e-4)
    assert here[3] == pytest.approx(there[3], abs=1e-3)


def test_wrong_losses_are_the_clients_fault_and_it_goes_on(training_server):
    service = tinker.ServiceClient(base_url=training_server.url, api_key="tml-dummy")
    client = service.create_lora_training_client(base_model=BASE, rank=0).result()

    def median(logprobs):
        return logprobs.median(), {}

    with pytest.raises(tinker.RequestFailedError, match="median"):
        service.create_custom_loss(median, input_ranks={"logprobs": 1}).result()

    def unreduced(logprobs):
        return logprobs.exp(), {}

    handle = service.create_custom_loss(unreduced, input_ranks={"logprobs": 1}).result()
    with pytest.raises(tinker.RequestFailedError, match=r"data\[0\].*shape \[7\]"):
        client.forward_backward_custom([datum_of(*LOSSES[0], 1)], handle).result()
    with pytest.raises(tinker.RequestFailedError, match="loss_id"):
        client.forward_backward([datum_of(*LOSSES[0], 1)], "custom", {"loss_id": "nobody's"}).result()
    good = service.create_custom_loss(LOSSES[0][0], input_ranks=ranks_of(LOSSES[0][1])).result()
    result = client.forward_backward_custom([datum_of(*LOSSES[0], 1)], good).result()
    assert "custom/neg_ll:sum" in result.metrics
    stranger = tinker.ServiceClient(base_url=training_server.url, api_key="tml-stranger")
    foreign = stranger.create_lora_training_client(base_model=BASE, rank=0).result()
    with pytest.raises(tinker.RequestFailedError, match="loss_id"):
        foreign.forward_backward([datum_of(*LOSSES[0], 1)], "custom", {"loss_id": good.loss_id}).result()


def scraped(server, name):
    import urllib.request

    with urllib.request.urlopen(server.url + "/metrics") as answer:
        return next(float(line.split()[1]) for line in answer.read().decode().splitlines() if line.startswith(name + " "))


def test_the_second_call_of_a_clients_loss_reuses_the_forward(servers, training_server):
    """The SDK's two calls with a Python loss: hits are counted, and the bits are those of a server that keeps nothing."""
    def loss(data, logprobs):
        return sum((lp.exp() * lp).sum() for lp in logprobs), {}

    results = []
    for server in servers:
        before = {name: scraped(server, "lockstep_training_forwards_" + name) for name in ("kept_total", "reused_total", "dropped_total")}
        client = tinker.ServiceClient(base_url=server.url, api_key="tml-dummy").create_lora_training_client(base_model=BASE, rank=8, seed=5).result()
        data = [datum_of(*LOSSES[0], s, length=40) for s in range(6)]
        for _ in range(2):
            result = client.forward_backward_custom(data, loss).result()
            client.optim_step(types.AdamParams(learning_rate=1e-2)).result()
        results.append(([o["logprobs"].tolist() for o in client.forward(data, "cross_entropy").result().loss_fn_outputs], result.metrics))
        grown = {name: scraped(server, "lockstep_training_forwards_" + name) - count for name, count in before.items()}
        # Two calls of a loss, and the forward above, whose gradient nobody asks for.
        keeps = server is training_server
        assert grown["kept_total"] == 3 * keeps and grown["reused_total"] == 2 * keeps, ("lockstep_training_forwards_kept_total", "lockstep_training_forwards_reused_total", grown)
        assert 0 <= grown["dropped_total"] <= 1 * keeps, ("lockstep_training_forwards_dropped_total", grown)  # of models of earlier tests
        assert (scraped(server, "lockstep_training_forwards_kept_bytes") > 0) == keeps
    assert results[0] == results[1]
