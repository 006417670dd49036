"""One server, several keys: what each has of the device, as /metrics accounts for it, and what a key's rate limits say to its clients."""
import contextlib
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
from relay import Relay
from test_damage import Trainer
from test_tinker import client_of, model_of, train, weighted
from tinker import types
from tinker.lib.queue_state_logger import QueueState

ANN, BOB = "tml-ann-0123456789abcdef", "tml-bob-0123456789abcdef"
LOOPS = 16


@pytest.fixture
def server(start_server, tmp_path):
    """start(behind_ann, *arguments): a server with two keys; what stands behind ann's in the key file."""

    def start(behind_ann="", *arguments):
        keys = tmp_path / "keys.txt"
        keys.write_text(f"ann {ANN} {behind_ann}\nbob {BOB}\n")
        return start_server("--api-key-file", str(keys), *arguments)

    return start


def complete(server, key, **fields):
    body = {"model": "countdown-glm", "prompt": "3 7 12=48:", "max_tokens": 400, "ignore_eos": True, **fields}
    return requests.post(server.url + "/v1/completions", json=body, headers={"Authorization": f"Bearer {key}"}, timeout=120)


def metrics(server):
    """{(name, frozenset of labels): value}"""
    text = requests.get(server.url + "/metrics", headers={"Authorization": f"Bearer {BOB}"}, timeout=60).text
    found = re.findall(r'^(\w+)\{(.*)\} (\S+)$', text, re.MULTILINE)
    return {(name, frozenset(labels.split(","))): float(value) for name, labels, value in found}


def seconds(told, work, key):
    return told.get(("lockstep_device_seconds_total", frozenset({f'class="{work}"', f'key="{key}"'})), 0.0)


@contextlib.contextmanager
def loops(server, key, count, **fields):
    """Completions of `key`, `count` at a time, until the block ends; the list of their statuses."""
    statuses, end = [], threading.Event()

    def loop():
        while not end.is_set():
            statuses.append(complete(server, key, **fields).status_code)

    threads = [threading.Thread(target=loop) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield statuses
    finally:
        end.set()
        for thread in threads:
            thread.join()


def test_a_training_step_goes_on_under_the_completions_of_another_key(server):
    running = server()
    trainer = Trainer(running.url, BOB)
    model = trainer.made(0, 0)
    datum = {"model_input": {"chunks": [{"type": "encoded_text", "tokens": [1 + i % 60 for i in range(64)]}]},
             "loss_fn_inputs": {"target_tokens": {"dtype": "int64", "data": [1 + (i + 1) % 60 for i in range(64)]}}}
    batch = {"data": [datum] * 64, "loss_fn": "cross_entropy"}
    with loops(running, ANN, LOOPS) as statuses:
        while not statuses:  # they are under way
            complete(running, ANN, max_tokens=1)
        before = metrics(running)
        assert "error" not in str(trainer.do(model, "forward_backward", forward_backward_input=batch))[:200]
        trainer.do(model, "optim_step", adam_params={"learning_rate": 1e-4})
        after = metrics(running)
    trained = seconds(after, "training", "bob") - seconds(before, "training", "bob")
    answered = seconds(after, "live", "ann") - seconds(before, "live", "ann")
    # 20 of 60 + 20 while both have work: three times as much, and what passes between a result and the next request.
    assert trained > 0 and answered > 0
    assert answered <= 5 * trained + 0.5, (trained, answered)
    assert seconds(after, "training", "ann") == 0
    longest = {labels: value for (name, labels), value in after.items() if name == "lockstep_device_longest_piece_seconds"}
    assert {frozenset({'kind="batch"'}), frozenset({'kind="forward"'}), frozenset({'kind="create"'})} <= longest.keys()
    assert set(statuses) == {200}


@contextlib.contextmanager
def samples(service, count):
    """Samples of the package, `count` at a time, until the block ends."""
    sampler, end, failures = service.create_sampling_client(base_model="countdown-glm").result(), threading.Event(), []

    def loop():
        while not end.is_set():
            try:
                sampler.sample(types.ModelInput.from_ints([3, 7, 12]), num_samples=16, sampling_params=types.SamplingParams(max_tokens=300, stop=[])).result()
            except Exception as e:  # told below: a thread's own is lost
                return failures.append(e)

    threads = [threading.Thread(target=loop) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        end.set()
        for thread in threads:
            thread.join()
    assert not failures, failures


def had_while_bob_trains(running, calls):
    """{(work, key): seconds of the device} between two looks at the accounts, each just behind a piece of bob's training, so that what passes before his first call
    is there and after his last result is told is in no account. `calls` sends them and waits for their results."""
    with ThreadPoolExecutor(1) as pool:
        looks, done = [metrics(running)], pool.submit(calls)
        while not done.done():
            looks.append(metrics(running))
        done.result()
    busy = [look for last, look in zip(looks, looks[1:]) if seconds(look, "training", "bob") > seconds(last, "training", "bob")]
    return {work: seconds(busy[-1], *work) - seconds(busy[0], *work) for work in (("live", "ann"), ("rollouts", "ann"), ("training", "bob"))}


@pytest.mark.parametrize("completions, sampled, share", [(0, 8, 20 / 40), (16, 8, 20 / 100)], ids=["samples", "samples-and-completions"])
def test_the_packages_steps_have_their_share(server, completions, sampled, share):
    """Of the device's seconds, as accounted, while the other key's loops have work all the time. On a loaded machine the client may have sent the next call too
    late, and the device goes on without it, so one round of three has to keep the share. By order of arrival a step would have less in each."""
    running = server()
    client, data = model_of(client_of(running, BOB), 4), [weighted([1 + (7 * i + j) % 60 for j in range(100)]) for i in range(40)]
    train(client, data)

    def two_steps():
        # The next step's calls are there before the last one's result is asked for: its class has work all the time.
        waiting = [(client.forward_backward(data, "cross_entropy"), client.optim_step(types.AdamParams(learning_rate=1e-4))) for _ in range(2)]
        for backward, step in waiting:
            backward.result(), step.result()

    rounds = []
    with loops(running, ANN, completions), samples(client_of(running, ANN), sampled):
        while not all(seconds(metrics(running), work, "ann") > 0.05 for work, count in (("live", completions), ("rollouts", sampled)) if count):
            time.sleep(0.05)
        for _ in range(3):
            had = had_while_bob_trains(running, two_steps)
            longest = max(value for (name, _), value in metrics(running).items() if name == "lockstep_device_longest_piece_seconds")
            if had["training", "bob"] >= 0.85 * share * sum(had.values()) - longest > 0:
                return
            rounds.append((had, longest))
    assert False, rounds


def test_two_trainers_are_even_whatever_their_data(server):
    """Each call of one has a hundred times the other's data. When the small ones are done, all sent ahead, the other has had no more of the device.

    The bound holds while both have work. On a loaded machine a small call may be done before the client has sent the next, and the device goes on with
    the large ones meanwhile, so one round of three has to keep it. By order of arrival the large ones would be done first in each.
    """
    running = server("", "--separate-passes")  # in one pass the small ones would ride along
    small, large = model_of(client_of(running, BOB), 4), model_of(client_of(running, ANN), 4)
    rows = [weighted([1 + (7 * i + j) % 60 for j in range(64)]) for i in range(400)]
    train(small, rows[:4]), train(large, rows[:4])

    def round_of_calls():
        """(what each has had of the device when the small calls are done, what the large ones took in all)"""
        before = metrics(running)
        ahead = [large.forward_backward(rows, "cross_entropy") for _ in range(2)]
        waiting = [small.forward_backward(rows[:4], "cross_entropy") for _ in range(16)]
        for backward in waiting:
            backward.result()
        after = metrics(running)
        for backward in ahead:
            backward.result()
        had, in_all = ({key: seconds(told, "training", key) - seconds(before, "training", key) for key in ("ann", "bob")} for told in (after, metrics(running)))
        return had, in_all["ann"]

    rounds = []
    for _ in range(3):
        had, all_of_ann = round_of_calls()
        longest = max(value for (name, _), value in metrics(running).items() if name == "lockstep_device_longest_piece_seconds")
        even = had["ann"] <= had["bob"] + 3 * longest + 0.1
        far_from_done = had["ann"] < 0.8 * all_of_ann
        if even and far_from_done:
            return
        rounds.append((had, all_of_ann, longest))
    assert False, rounds


def test_the_package_waits_for_its_keys_rate_and_goes_on(server):
    running = server("requests_per_minute=120")
    assert 429 in (complete(running, ANN, max_tokens=1).status_code for _ in range(200))
    began = time.monotonic()
    client = model_of(client_of(running, ANN), 4)
    losses = train(client, [weighted()], steps=2, learning_rate=1e-2)
    assert losses[1] < losses[0] and time.monotonic() - began > 1  # half a second for each request


def test_a_keys_rates_and_streams_are_its_own(server):
    running = server("requests_per_minute=1000 tokens_per_minute=300 streams=2")
    first = complete(running, ANN, max_tokens=100, n=2)
    assert first.status_code == 200
    assert first.headers["x-ratelimit-limit-requests"] == "1000" and first.headers["x-ratelimit-remaining-requests"] == "999"
    assert first.headers["x-ratelimit-limit-tokens"] == "300" and first.headers["x-ratelimit-remaining-tokens"] == "300"
    assert complete(running, ANN, max_tokens=100, n=3).status_code == 400  # never: it has two streams
    assert complete(running, ANN, max_tokens=200).status_code == 200  # begun while there was room
    refused = complete(running, ANN)
    assert refused.status_code == 429 and "tokens_per_minute" in refused.json()["error"]["message"]
    assert int(refused.headers["Retry-After"]) >= 1 and refused.headers["x-ratelimit-remaining-tokens"] == "0"
    other = complete(running, BOB, max_tokens=100, n=3)
    assert other.status_code == 200 and not any(name.lower().startswith("x-ratelimit") for name in other.headers)


def test_the_package_is_told_that_its_work_waits_for_its_share(server):
    """After a hold of 25 seconds, for which one thread is kept busy; while nobody else has work it is not told so."""
    running = server("", "--shares", "live=98,rollouts=1,training=1", "--threads", "1")
    with Relay(running.url) as relay:
        def heard():
            """Of each poll so far, in the package's words. (It writes a line of its own after a pause of 15 minutes.)"""
            return [(QueueState(wait["queue_state"]), wait["queue_state_reason"]) for wait in relay.waits]

        client = model_of(client_of(relay, BOB), 4)
        data = [weighted([1 + (7 * i + j) % 60 for j in range(400)]) for i in range(64)]
        with loops(running, ANN, LOOPS) as statuses:
            while not statuses:
                complete(running, ANN, max_tokens=1)
            waiting = client.forward_backward(data, "cross_entropy")
            step = client.optim_step(types.AdamParams(learning_rate=1e-4))
            end = time.monotonic() + 60
            while not any(state == QueueState.PAUSED_RATE_LIMIT for state, _ in heard()) and time.monotonic() < end:
                complete(running, ANN, max_tokens=1)
        waiting.result(), step.result()
        told = heard()
        paused = [reason for state, reason in told if state == QueueState.PAUSED_RATE_LIMIT]
        assert paused, told
        assert re.fullmatch(r"this key's training had \d+\.\d of the last \d+\.\d seconds of the device, others \d+\.\d: training has 1 of 99 shares beside live \(--shares\)", paused[0]), paused
        assert not any(state == QueueState.PAUSED_CAPACITY for state, _ in told)
        assert client.forward(data[:4], "cross_entropy").result()
        assert all(state == QueueState.ACTIVE for state, _ in heard()[len(told):]), heard()
