"""A server that is killed while gradients are being written, and clients that go on with the same sessions as soon as it is back: what was
acknowledged is there, and what cannot be there is told."""
import signal
import threading
import time

import pytest
import tinker
from tinker import types

from test_tinker import TOKENS, client_of, logprobs_of, model_of, train, weighted
from test_wire import OTHER

GONE = "the gradients of earlier forward_backward calls"
KILLS = 2


def killed_while_it_writes(server, folder, work, seconds=60):
    """Runs `work` in a thread until the server is killed in the middle of a write below `folder`; what was under way there."""
    failures = []

    def run():
        try:
            while server.process.poll() is None:
                work()
        except Exception as e:  # the server is gone
            failures.append(e)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            partial = [path.name for path in folder.glob("*/*.lockstep.partial")] + [path.name for path in folder.glob("*.lockstep.partial")]
        except FileNotFoundError:  # a folder went away while it was looked through
            continue
        if partial:
            server.process.send_signal(signal.SIGKILL)
            server.process.wait(timeout=30)
            return partial
    pytest.fail(f"nothing was written in {seconds} seconds: {failures}")


def test_a_kill_while_gradients_are_written_takes_nothing_that_was_acknowledged(start_server, tmp_path):
    server = start_server("--max-models", "1")
    port, gradients = server.port, tmp_path / "state/gradients"
    service = client_of(server)
    clients = [model_of(service, 0) for _ in range(2)]  # whole models: their gradients are the largest
    saved, want = [], []
    for client, tokens in zip(clients, (TOKENS, OTHER)):
        train(client, [weighted(tokens)], steps=1, learning_rate=1e-2)
        saved.append(client.save_state("kept").result().path)
        want.append(logprobs_of(client.forward([weighted()], "cross_entropy").result()))
    assert want[0] != want[1]
    for attempt in range(KILLS):
        # Each call brings one model to memory, and writes the other's gradients.
        acknowledged = [0, 0]

        def work():
            for i, client in enumerate(clients):
                client.forward_backward([weighted()], "cross_entropy").result()
                acknowledged[i] += 1

        work()
        killed_while_it_writes(server, gradients, work)
        assert min(acknowledged) > 0
        server = start_server("--max-models", "1", "--port", str(port))
        assert not list(gradients.iterdir())  # nobody reads them any more
        for path, logprobs in zip(saved, want):  # checkpoints
            fresh = client_of(server).create_training_client_from_state(path).result()
            assert logprobs_of(fresh.forward([weighted()], "cross_entropy").result()) == logprobs
            del fresh
        # Others go on from them, until the next kill.
        clients = [client_of(server).create_training_client_from_state_with_optimizer(path).result() for path in saved]
        for client, logprobs in zip(clients, want):
            assert logprobs_of(client.forward([weighted()], "cross_entropy").result()) == logprobs


def test_a_step_is_never_made_of_the_gradients_that_came_after_a_kill(start_server):
    """forward_backward, kill, forward_backward, optim_step: the package goes on by itself, and learns that the first is gone."""
    server = start_server()
    port = server.port
    client, undisturbed = model_of(client_of(server), 4, seed=3), model_of(client_of(server), 4, seed=3)
    for one in (client, undisturbed):
        one.forward_backward([weighted()], "cross_entropy").result()
    undisturbed.forward_backward([weighted(OTHER)], "cross_entropy").result()
    undisturbed.optim_step(types.AdamParams(learning_rate=1e-2)).result()
    want = logprobs_of(undisturbed.forward([weighted()], "cross_entropy").result())
    server.stop(signal.SIGKILL)
    start_server("--port", str(port))
    client.forward_backward([weighted(OTHER)], "cross_entropy").result()
    with pytest.raises(tinker.RequestFailedError, match=GONE):
        client.optim_step(types.AdamParams(learning_rate=1e-2)).result()
    for tokens in (None, OTHER):
        client.forward_backward([weighted(tokens) if tokens else weighted()], "cross_entropy").result()
    client.optim_step(types.AdamParams(learning_rate=1e-2)).result()
    assert logprobs_of(client.forward([weighted()], "cross_entropy").result()) == want
