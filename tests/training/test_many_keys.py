"""Fifty keys at once, each with a session, a model and a sampler of its own: each gets the bits that it gets alone, and none sees, reads,
moves or ends anything of another's."""
import random
import threading
import time

import pytest
import requests
from test_damage import PROMPT, Trainer
from test_wire import BASE

KEYS = 50
ROUNDS = 2


class Tenant(Trainer):
    """One key's life; `bits` is all that it was told that depends on weights and data."""

    def __init__(self, server, index, company):
        super().__init__(server.url, f"tml-key-of-{company}-{index:02}-0123456789")
        draws = random.Random(index)
        self.data = [[draws.randrange(1, 90) for _ in range(draws.randrange(6, 14))] for _ in range(ROUNDS)]
        self.rank = 0 if index == 0 else 2 + index % 3
        self.bits, self.requests = [], []

    def live(self):
        self.model = self.made(0, self.rank)
        for tokens in self.data:
            self.bits.append(self.scored(self.model, tokens))
            self.trained(self.model, tokens)
            sampler = self.do(self.model, "save_weights_for_sampler", kind="snapshot")["sampling_session_id"]
            asked = self.post("asample", sampling_session_id=sampler, seq_id=0, num_samples=2, prompt=PROMPT, prompt_logprobs=True, sampling_params={"max_tokens": 5, "seed": 7, "stop": []})
            self.requests.append(asked["request_id"])
            self.bits.append(self.result(asked["request_id"]))
        self.sampler = sampler
        self.path = self.do(self.model, "save_weights", path="end")["path"]
        self.bits.append(self.scored(self.model, self.data[0]))
        return self

    def get(self, route):
        answer = requests.get(self.url + route, headers={"X-API-Key": self.key}, timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.text

    def own_names(self):
        return {self.session, self.model, self.sampler, self.path}

    def seen(self):
        """Everything that a key may list, as text."""
        return "".join(self.get(route) for route in ("sessions", "training_runs", "checkpoints", f"sessions/{self.session}"))

    def try_all(self, other):
        """The answers to everything that would read, move or end what is another's."""
        tokens = other.data[0]
        datum = {"model_input": {"chunks": [{"type": "encoded_text", "tokens": tokens[:-1]}]}, "loss_fn_inputs": {"target_tokens": {"dtype": "int64", "data": tokens[1:]}}}
        batch = {"data": [datum], "loss_fn": "cross_entropy"}
        asked = {
            "forward": self.raw("forward", json={"model_id": other.model, "seq_id": 100, "forward_input": batch}),
            "forward_backward": self.raw("forward_backward", json={"model_id": other.model, "seq_id": 100, "forward_backward_input": batch}),
            "optim_step": self.raw("optim_step", json={"model_id": other.model, "seq_id": 100}),
            "save_weights": self.raw("save_weights", json={"model_id": other.model, "seq_id": 100, "path": "stolen"}),
            "get_info": self.raw("get_info", json={"model_id": other.model}),
            "asample": self.raw("asample", json={"sampling_session_id": other.sampler, "seq_id": 9, "num_samples": 1, "prompt": PROMPT, "sampling_params": {"max_tokens": 1}}),
            "create_model": self.raw("create_model", json={"session_id": other.session, "model_seq_id": 9, "base_model": BASE, "lora_config": {"rank": 2}}),
            "create_sampling_session": self.raw("create_sampling_session", json={"session_id": other.session, "sampling_session_seq_id": 99, "base_model": BASE}),
            "weights_info": self.raw("weights_info", json={"tinker_path": other.path}),
            "retrieve_future": self.raw("retrieve_future", json={"request_id": other.requests[-1]}),
            "unload_model": self.raw("unload_model", json={"model_id": other.model}),
        }
        return {name: answer.status_code for name, answer in asked.items()}


def together(tenants, work):
    """work(tenant) of all at once; what any of them raised is raised here."""
    faults, gate = [], threading.Barrier(len(tenants))

    def run(tenant):
        try:
            gate.wait(60)
            work(tenant)
        except BaseException as error:  # noqa: BLE001 it is told below
            faults.append((tenant.key, error))

    threads = [threading.Thread(target=run, args=(tenant,)) for tenant in tenants]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults, faults[:3]


@pytest.fixture(scope="module")
def crowd(training_server):
    """(each key alone, one after another; the same lives all at once, under other keys; seconds of both)"""
    began = time.monotonic()
    alone = [Tenant(training_server, index, "alone").live() for index in range(KEYS)]
    middle = time.monotonic()
    crowded = [Tenant(training_server, index, "crowd") for index in range(KEYS)]
    together(crowded, Tenant.live)
    return alone, crowded, (middle - began, time.monotonic() - middle)


def test_each_of_fifty_keys_gets_what_it_gets_alone(crowd):
    alone, crowded, seconds = crowd
    different = [index for index in range(KEYS) if crowded[index].bits != alone[index].bits]
    assert not different, f"keys {different} got other bits in company"
    results = sum(len(tenant.bits) for tenant in crowded)
    assert results == KEYS * (2 * ROUNDS + 1) and all(isinstance(part, bytes) for tenant in crowded for part in tenant.bits)
    assert len({tuple(tenant.bits) for tenant in crowded}) == KEYS  # the control: every life is another
    print(f"{KEYS} keys, {results} results with equal bits: {seconds[0]:.1f} s one after another, {seconds[1]:.1f} s at once")


def test_none_of_fifty_keys_sees_another(crowd):
    alone, crowded, _ = crowd
    names = {name: tenant.key for tenant in alone + crowded for name in tenant.own_names()}
    assert len(names) == 4 * 2 * KEYS
    leaks = []

    def look(tenant):
        text = tenant.seen()
        assert tenant.model in text and tenant.session in text, "its own are not listed"
        leaks.extend((tenant.key, name) for name, key in names.items() if key != tenant.key and name in text)

    together(crowded, look)
    assert not leaks, leaks[:5]


def test_none_of_fifty_keys_touches_another(crowd):
    _, crowded, _ = crowd
    answers = []
    together(crowded, lambda tenant: answers.append(tenant.try_all(crowded[(crowded.index(tenant) + 17) % KEYS])))
    assert len(answers) == KEYS
    reached = [(route, status) for found in answers for route, status in found.items() if status not in (404, 410)]
    assert not reached, reached[:5]
    assert sum(map(len, answers)) == KEYS * 11
    # And everybody's model is where it was.
    together(crowded, lambda tenant: tenant.bits.append(tenant.scored(tenant.model, tenant.data[0])))
    assert all(tenant.bits[-1] == tenant.bits[-2] for tenant in crowded)
    # The control: whose things they are reaches all of them.
    own = crowded[0].try_all(crowded[0])
    assert not set(own.values()) & {404, 410}, own
