"""A server under a limit of memory, and clients that want more than there is: their models take turns there, what fits beside nothing is
refused, and what was acknowledged is there after a kill."""
import os
import re
import resource
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
import requests

from test_damage import Trainer
from test_wire import BASE, TOKENS

REPOSITORY = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("LOCKSTEP_BINARY", REPOSITORY / "build" / "lockstep")).resolve()
MEGABYTE = 1 << 20
NO_GRADIENT = "optim_step without a forward_backward before it"


@pytest.fixture
def limited(tmp_path, monkeypatch):
    """limited(megabytes): programs that are started from here on may take so much data (RLIMIT_DATA), and not a byte more."""

    def limit(megabytes):
        script = tmp_path / "limited"
        script.write_text(f'#!/bin/sh\nexec prlimit --data={megabytes * MEGABYTE} -- "{BINARY}" "$@"\n')
        script.chmod(0o755)
        monkeypatch.setenv("LOCKSTEP_BINARY", str(script))
        return script

    return limit


def megabytes_of(process, name):
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split(name + ":")[1].split()[0]) / 1024


def data_megabytes(server, name):
    return megabytes_of(server.process, name)


def refusal(answer):
    """The error of a result, or None."""
    return answer.get("error") if isinstance(answer, dict) else None


class Greedy(Trainer):
    """Makes whole models and takes gradients that it does not step; saves what it trains."""

    def __init__(self, url, key):
        super().__init__(url, key)
        self.models, self.refused, self.saved = [], [], {}

    def run(self, count):
        for number in range(count):
            made = self.result(self.post("create_model", session_id=self.session, model_seq_id=number, base_model=BASE, lora_config={"rank": 0})["request_id"])
            if refusal(made):
                self.refused.append(made["error"])
                continue
            model = made["model_id"]
            self.models.append(model)
            for step in range(2):
                answers = []
                for _ in range(2):  # two gradients: accumulators
                    self.numbers[model] = self.numbers.get(model, 0) + 1
                    answers.append(self.result(self.backward(model, self.numbers[model], TOKENS)))
                if step == 0:
                    answers.append(self.do(model, "optim_step", adam_params={"learning_rate": 1e-3}))
                    answers.append(self.do(model, "save_weights", path=f"kept-{number}"))
                    if refusal(answers[-1]) is None:
                        self.saved[answers[-1]["path"]] = None
                self.refused += [refusal(a) for a in answers if refusal(a)]


# The least that leaves room for some models: each holds 10 MB, and 16 MB more with two gradients.
LEDGER = 460
OPTIONS = ("--cache-megabytes", "16", "--key-share", "100")
SLACK = 144  # MB of data that no claim stands for: stacks of threads that begin with the first clients, what the allocator rounds up and keeps. With 48 the server was too large, on two processors


def left_to_give(server):
    """Bytes that its ledger has not promised yet."""
    figures = memory_figures(server)
    return figures["lockstep_memory_limit_bytes"] - sum(value for name, value in figures.items() if "claimed" in name)


def limit_data(server, room):
    """From here on the server gets `room` bytes more data from the system (RLIMIT_DATA), and the slack. Before any client: what it has until then, stacks of
    threads first of all, depends on the machine."""
    most = int(data_megabytes(server, "VmData") * MEGABYTE + room + SLACK * MEGABYTE)
    resource.prlimit(server.process.pid, resource.RLIMIT_DATA, (most, most))


def memory_figures(server):
    text = requests.get(server.url + "/metrics", timeout=10).text
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith("lockstep_memory_")}


def let_loose(clients, count):
    """What went wrong in each client's `count` models."""
    failures = []

    def run(client):
        try:
            client.run(count)
        except Exception as e:  # told by the caller: a thread's own is lost
            failures.append(repr(e))

    threads = [threading.Thread(target=run, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


def test_a_server_that_thinks_it_has_more_does_not_live(start_server):
    """The control of the limit below: without a ledger that knows it, what clients want is not there when it is taken."""
    server = start_server("--memory-megabytes", str(LEDGER), *OPTIONS)
    room = left_to_give(server)
    server.stop()
    server = start_server("--memory-megabytes", "3000", *OPTIONS)
    limit_data(server, room)
    clients = [Greedy(server.url, f"tml-greedy-{i}") for i in range(3)]
    failures = let_loose(clients, 8)
    assert server.process.poll() is not None or failures or any(client.refused for client in clients), "the limit does not bite"


def test_greedy_clients_take_turns_and_nothing_acknowledged_is_lost(start_server):
    server = start_server("--memory-megabytes", str(LEDGER), *OPTIONS)
    room = left_to_give(server)
    limit_data(server, room)
    clients = [Greedy(server.url, f"tml-greedy-{i}") for i in range(3)]
    failures = let_loose(clients, 8)
    assert not failures and server.process.poll() is None, failures + server.errors[-20:]
    refused = [error for client in clients for error in client.refused]
    assert not refused, refused[:3]
    assert data_megabytes(server, "VmHWM") < LEDGER, "more than it may take"
    figures = memory_figures(server)
    assert figures["lockstep_memory_limit_bytes"] == LEDGER * MEGABYTE
    assert 0 < sum(value for name, value in figures.items() if "claimed" in name) <= LEDGER * MEGABYTE
    # 24 models hold 26 MB each with their gradients: most of them wait on disk, and every step finds its own.
    assert "lockstep_training_gradients_saved_total 0" not in requests.get(server.url + "/metrics", timeout=10).text
    for again in (False, True):
        for client in clients:
            for model in client.models:
                stepped = client.do(model, "optim_step", adam_params={"learning_rate": 1e-3})
                assert refusal(stepped) == (NO_GRADIENT if again else None), stepped
    model = clients[0].models[-1]
    clients[0].numbers[model] += 1
    answer = clients[0].result(clients[0].backward(model, clients[0].numbers[model], TOKENS))
    assert refusal(answer) is None, answer
    assert sum(len(client.saved) for client in clients) == 24
    for client in clients:
        for path in client.saved:
            client.saved[path] = client.sampled(path, 1000 + list(client.saved).index(path))
            assert refusal(client.saved[path]) is None, client.saved[path]
    # A kill takes nothing that was acknowledged.
    server.stop(signal.SIGKILL)
    again = start_server("--memory-megabytes", str(LEDGER), *OPTIONS)
    limit_data(again, room)
    for client in clients:
        client.url = again.url + "/api/v1/"
        for path, bits in client.saved.items():
            sample = client.sampled(path, 2000 + list(client.saved).index(path))
            assert isinstance(sample, bytes) and sample == bits, path
    assert again.stop() == 0, "".join(again.errors)


def run(*arguments, timeout=60):
    return subprocess.run([os.environ["LOCKSTEP_BINARY"], *map(str, arguments)], capture_output=True, text=True, timeout=timeout)


def test_what_does_not_fit_is_refused_before_it_is_begun(limited, tmp_path):
    limited(150)  # a comparison takes 213 MB, the serving of 8 sequences of 1,024 tokens 136 MB
    model = REPOSITORY / "models/countdown-glm"
    for arguments in (["serve", "--model", model, "--port", "0", "--training", "--state", tmp_path / "state", "--cache-megabytes", "256"],
                      ["serve", "--model", model, "--port", "0", "--memory-megabytes", "70"],
                      ["parity", "--model", model, "--fuzz", "1"]):
        ended = run(*arguments)
        assert ended.returncode == 1 and "of memory" in ended.stderr and "are free" in ended.stderr, (arguments, ended.stderr)
        assert "could not be allocated" not in ended.stderr and "bad_alloc" not in ended.stderr, ended.stderr


def test_a_comparison_takes_no_more_than_its_plan_says(limited):
    """The plan is what its refusal names; with so much beside what the program has when it plans, and the slack, a run ends well."""
    arguments = ["parity", "--model", str(REPOSITORY / "models/countdown-glm"), "--fuzz", "1"]
    limited(150)
    said = re.search(r"takes ([\d.]+) MB of memory, ([\d.]+) MB are free", run(*arguments).stderr)
    assert said, "it is refused, as above"
    planned, used = float(said[1]), 150 - float(said[2])
    limited(int(used + planned + SLACK + 8 * 64))  # the limit counts whole stacks, 8 MB each, of the threads of up to eight ranks
    process = subprocess.Popen([os.environ["LOCKSTEP_BINARY"], *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    said_at_last, most = [], 0.0
    reader = threading.Thread(target=lambda: said_at_last.append(process.stderr.read()))
    reader.start()
    while process.poll() is None:
        try:
            most = max(most, megabytes_of(process, "VmHWM"))
        except (OSError, IndexError):
            pass  # it has just ended
        time.sleep(0.02)
    reader.join()
    print(f"planned {planned} MB, took at most {most:.1f} MB, of which {used:.1f} MB before it planned")
    assert process.returncode == 0, said_at_last
    assert 0 < most <= planned, (most, planned)
