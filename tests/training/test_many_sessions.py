"""A hundred ordinary sessions at once, at defaults and with two places in memory: none fails, and each has the bits that it has alone.
LOCKSTEP_SESSIONS says another number; ./check --soak takes 1,000."""
import os
import random
import resource
import threading

import pytest
import requests
from test_damage import Trainer

SESSIONS = int(os.environ.get("LOCKSTEP_SESSIONS", "100"))
KINDS = 5  # of data and rank: so many sessions have equal bits, and others do not
KEYS = 10


def life(url, key, kind):
    """A session with a model, two gradients in a step, and a forward: all bits that it was told."""
    draws = random.Random(kind)
    data = [[draws.randrange(1, 90) for _ in range(12)] for _ in range(3)]
    client = Trainer(url, key)
    model = client.made(0, (2, 4, 2, 8, 4)[kind])
    told = []
    for tokens in data[:2]:
        client.numbers[model] = client.numbers.get(model, 0) + 1
        told.append(client.result(client.backward(model, client.numbers[model], tokens)))
    stepped = client.do(model, "optim_step", adam_params={"learning_rate": 1e-2})
    told += [stepped["metrics"]["grad_norm"], client.scored(model, data[2])]
    return told


@pytest.fixture(scope="module")
def alone(training_server):
    told = [life(training_server.url, f"tml-alone-{kind}", kind) for kind in range(KINDS)]
    assert len({str(one) for one in told}) == KINDS
    return told


@pytest.mark.parametrize("options", [(), ("--max-models", "2")], ids=["defaults", "two-places"])
def test_many_sessions_at_once(start_server, alone, options):
    server = start_server(*options)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a connection each
    told, failures = {}, []

    def run(i):
        try:
            told[i] = life(server.url, f"tml-key-{i % KEYS}", i % KINDS)
        except Exception as e:  # told below: a thread's own is lost
            failures.append(f"{i}: {e!r}")

    threads = [threading.Thread(target=run, args=(i,)) for i in range(SESSIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[:3]
    assert [told[i] for i in range(SESSIONS)] == [alone[i % KINDS] for i in range(SESSIONS)]
    if options:  # they did wait on disk
        figures = requests.get(server.url + "/metrics", timeout=60).text
        assert "lockstep_training_gradients_saved_total 0" not in figures and "lockstep_training_gradients_read_total 0" not in figures
