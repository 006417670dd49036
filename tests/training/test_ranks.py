"""The real `tinker` client against servers whose models train over ranks (docs/ranks.md): every number that it is told, the states that it saves and the
tokens that it samples have the bits of a server without ranks, whole weights and adapters; a state goes on under another layout."""
import os
import re
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import requests
import tinker
import torch
from fireworks.training.sdk import FiretitanServiceClient
from tinker import types

import fireworks_tools
from conftest import REPOSITORY, Server
from test_batch_losses import masters
from test_tinker import BASE, TOKENS, bits, client_of, datum, logprobs_of, model_of, weighted

# One host; as root, and more processes than processors.
ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
               "OMPI_MCA_plm": "isolated", "TMPDIR": "/tmp"}
OTHERS = [9, 4, 2, 250, 31, 8]


POLICY = datum(logprobs=[-1.0] * 9, advantages=[0.5] * 9)


def steps_of(client, count, rate=1e-3):
    """The bits of what the client is told in so many steps of two calls each."""
    told = []
    for _ in range(count):
        calls = [client.forward_backward([weighted(), weighted(OTHERS)], "cross_entropy"),
                 client.forward_backward([POLICY], "importance_sampling")]
        step = client.optim_step(types.AdamParams(learning_rate=rate))
        for call in calls:
            told.append([bits(logprobs_of(call.result(), i)) for i in range(len(call.result().loss_fn_outputs))])
        told.append(step.result().metrics["grad_norm"].hex())
    return told


def sampled(client):
    sampler = client.save_weights_and_get_sampling_client().result()
    prompt = types.ModelInput.from_ints(TOKENS[:4])
    out = sampler.sample(prompt, num_samples=2, sampling_params=types.SamplingParams(max_tokens=8, temperature=1.0, seed=3, stop=[])).result()
    return [(list(one.tokens), bits(one.logprobs)) for one in out.sequences], bits(sampler.compute_logprobs(types.ModelInput.from_ints(TOKENS)).result()[1:])


def everything(server, folder):
    """What a client sees of a model of all weights and of an adapter, and the hashes of the states that they save."""
    service, told = client_of(server), {}
    for rank, client in [(rank, model_of(service, rank, seed=7)) for rank in (0, 8)]:  # both are there at a time
        told[f"steps-{rank}"] = steps_of(client, 2)
        told[f"forward-{rank}"] = client.forward([POLICY], "importance_sampling").result().metrics["loss:sum"].hex()
        client.save_state(f"at-{rank}").result()
        told[f"state-{rank}"] = masters(folder, f"state/checkpoints/*/weights/at-{rank}/**/state.safetensors")
        told[f"sampled-{rank}"] = sampled(client)
    return told


def values_of(server, folder):
    """The same of critics, of all weights and an adapter."""
    told = {}
    for rank in (0, 8):
        client = client_of(server).create_lora_training_client(base_model=BASE + ":value", rank=rank, seed=7).result()
        state = types.Datum(model_input=types.ModelInput.from_ints(TOKENS), loss_fn_inputs={"returns": np.ones(len(TOKENS), np.float32)})
        for step in range(2):
            call = client.forward_backward([state], "value", {"averaging": "token_mean"})
            norm = client.optim_step(types.AdamParams(learning_rate=1e-2)).result().metrics["grad_norm"]
            told[f"{rank}-{step}"] = (call.result().metrics["loss:sum"].hex(), norm.hex())
        told[f"values-{rank}"] = [out["values"].tolist() for out in client.forward([state], "value").result().loss_fn_outputs]
        client.save_state(f"critic-{rank}").result()
        told[f"state-{rank}"] = masters(folder, f"state/checkpoints/*/weights/critic-{rank}/**/state.safetensors")
    return told


def reference_of(server):
    """What the base says while a policy over it moves; it refuses to train, and goes on."""
    policy = FiretitanServiceClient(base_url=server.url, api_key="references").create_training_client(base_model=BASE, lora_rank=8, seed=7)
    reference = policy.create_base_training_client(BASE)
    told = []
    for _ in range(2):
        told.append([fireworks_tools.bits(fireworks_tools.scored(client)) for client in (reference, policy)])
        fireworks_tools.trained(policy, steps=1)
    with pytest.raises(Exception, match="base_only"):
        reference.forward_backward([fireworks_tools.datum()], "cross_entropy").result()
    told.append(fireworks_tools.bits(fireworks_tools.scored(reference)))
    assert told[0][0] == told[1][0] == told[2] != told[1][1]
    return told


def taught_by_path(server):
    """What students of a teacher of the other kind are told, whom the server scores under the weights that it saved; another teacher is seen."""
    service, told, rows = client_of(server), {}, len(TOKENS) - 1
    targets = torch.arange(5).repeat(rows, 1)  # all other tokens are one outcome more
    inputs = {"target_tokens": types.TensorData.from_torch(targets), "weights": types.TensorData.from_torch(torch.ones(rows, 5))}
    data = [types.Datum(model_input=types.ModelInput.from_ints(TOKENS[:-1]), loss_fn_inputs=inputs)]
    for rank, other, steps in ((0, 8, 1), (8, 0, 1), (8, 0, 2)):
        teacher, student = model_of(service, other, seed=9), model_of(service, rank, seed=7)
        steps_of(teacher, steps, 1e-2)
        path = teacher.save_weights_for_sampler(name="teacher").result().path
        call = student.forward_backward(data, "distill", {"teacher": path, "averaging": "token_mean"})
        norm = student.optim_step(types.AdamParams(learning_rate=1e-2)).result().metrics["grad_norm"]
        told[rank, steps] = (call.result().metrics["loss:sum"].hex(), norm.hex())
    assert told[8, 1] != told[8, 2]
    return told


@pytest.fixture(scope="module")
def without_ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("without")
    server = Server("--training", "--state", str(folder / "state"), "--threads", "2")
    yield {**everything(server, folder), "critics": values_of(server, folder), "reference": reference_of(server), "taught": taught_by_path(server)}
    server.stop()


@pytest.mark.parametrize("ranks", ["tp=2", "tp=2,dp=2,ep=2"])
def test_a_client_sees_the_bits_of_one_rank(start_server, tmp_path, without_ranks, ranks):
    server = start_server("--threads", "2", "--ranks", ranks)
    assert everything(server, tmp_path) == {name: told for name, told in without_ranks.items() if name not in ("critics", "reference", "taught")}


def test_a_state_goes_on_under_another_layout(start_server, tmp_path, without_ranks):
    server = start_server("--threads", "2", "--ranks", "dp=2")
    paths = {}
    for rank in (0, 8):
        client = model_of(client_of(server), rank, seed=7)
        steps_of(client, 1)
        paths[rank] = client.save_state("half").result().path
    server.stop()
    server = start_server("--threads", "2", "--ranks", "tp=2,ep=2")
    for rank, rate in ((0, 1e-3), (8, 1e-3), (8, 2e-3)):  # the last one is a control: another rate is seen
        client = client_of(server).create_training_client_from_state_with_optimizer(paths[rank])
        client = client.result() if hasattr(client, "result") else client
        steps_of(client, 1, rate)
        client.save_state("end").result()
        ends = masters(tmp_path, "state/checkpoints/*/weights/end/**/state.safetensors")
        assert (ends == without_ranks[f"state-{rank}"]) == (rate == 1e-3)


def rank_figures(server):
    """{name: {rank: value}} of /metrics, and the processes that its labels name."""
    told, processes = {}, set()
    for name, labels, value in re.findall(r"^(lockstep_rank_\w+)\{(.*)\} (\S+)$", requests.get(server.url + "/metrics", timeout=60).text, re.M):
        of = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        assert set(of) == {"rank", "process", "host"} and of["host"], labels
        told.setdefault(name, {})[int(of["rank"])] = float(value)
        processes.add(of["process"])
    return told, processes


def test_what_each_rank_did(start_server):
    """On /metrics, after each optimizer step: no rank was busy for longer than the client waited, and equal steps move equal bytes."""
    times = ["lockstep_rank_computed_seconds_total", "lockstep_rank_waited_seconds_total", "lockstep_rank_sent_seconds_total"]
    moved = "lockstep_rank_received_bytes_total"
    alone = start_server("--threads", "2")
    steps_of(model_of(client_of(alone), 0, seed=7), 1)
    assert rank_figures(alone) == ({}, set())
    alone.stop()
    began, seen = time.monotonic(), []
    server = start_server("--threads", "2", "--ranks", "tp=2,dp=2")
    assert rank_figures(server) == ({}, set()), "figures before any step"
    client = model_of(client_of(server), 0, seed=7)
    for _ in range(3):
        steps_of(client, 1)
        told, processes = rank_figures(server)
        took = time.monotonic() - began
        assert set(told) == {*times, moved} and processes == {"0"} and all(sorted(by_rank) == [0, 1, 2, 3] for by_rank in told.values()), told
        for rank in range(4):
            assert 0 < told[times[0]][rank] and sum(told[name][rank] for name in times) <= took, (rank, told, took)
        seen.append(told)
    for name in (*times, moved):
        for rank in range(4):
            assert seen[0][name][rank] < seen[1][name][rank] < seen[2][name][rank] or name == times[1], (name, rank, seen)
    for rank in range(4):
        assert seen[2][moved][rank] - seen[1][moved][rank] == seen[1][moved][rank] - seen[0][moved][rank] > 0, seen


def test_ranks_over_processes_have_the_bits_of_one_rank(start_server, tmp_path, without_ranks, monkeypatch):
    binary = Path(os.environ.get("LOCKSTEP_BINARY", REPOSITORY / "build" / "lockstep")).resolve()
    if not shutil.which("mpirun") or not binary.with_name("lockstep_mpi.so").exists():
        pytest.skip("no Open MPI")
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    script = tmp_path / "lockstep"
    script.write_text(f'#!/bin/sh\nexec mpirun --oversubscribe --bind-to none -n 2 {binary} "$@" --transport mpi\n')
    script.chmod(0o755)
    monkeypatch.setenv("LOCKSTEP_BINARY", str(script))
    server = start_server("--threads", "2", "--ranks", "tp=2")
    assert {**everything(server, tmp_path), "critics": values_of(server, tmp_path), "reference": reference_of(server), "taught": taught_by_path(server)} == without_ranks
    told, processes = rank_figures(server)
    assert processes == {"0", "1"} and all(told[name][rank] > 0 for name in told for rank in (0, 1) if "waited" not in name) and len(told) == 4, told
    # mpirun itself, asked to end, would wait for seconds; of its processes the first one heeds this.
    for child in Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split():
        os.kill(int(child), signal.SIGTERM)
    assert server.process.wait(timeout=60) == 0, server.errors


def test_muon_over_ranks_has_the_bits_of_one(tmp_path):
    told = {}
    for name, ranks in (("one", ()), ("two", ("--ranks", "tp=2"))):
        server = Server("--training", "--state", str(tmp_path / name), "--threads", "2", *ranks)
        try:
            client = model_of(client_of(server), 0, seed=7, optimizer=tinker.DimuonOptimizerConfig())
            for _ in range(2):
                call = client.forward_backward([weighted()], "cross_entropy")
                norm = client.optim_step(types.DimuonParams(learning_rate=0.02)).result().metrics["grad_norm"]
                told.setdefault(name, []).append((bits(logprobs_of(call.result(), 0)), norm.hex()))
        finally:
            server.stop()
    assert told["one"] == told["two"] and told["one"][0] != told["one"][1]
