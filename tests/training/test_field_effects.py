"""What each field of a training request does that decides numbers: of a model that is made, a batch, an optimizer's step, a sample.

test_fields.py walks every field of every route and sees that it is read. Here the fields of GROUPS are given another value that they may have, and the
answer must be another. A field that a package's type has and that has no row here fails. A field whose only other value is refused (CLOSED) is told by name.
"""
import itertools

import pytest
from test_fields import ROWS, Wire, documented, fields_of
from test_wire import BASE, TOKENS, Client

NUMBERS = itertools.count(5000)
OTHER = [2, 2, 7, 1, 4, 11, 13, 8, 6, 3]
CLOSED = "closed"


@pytest.fixture(scope="module")
def wire(training_server):
    return Wire(Client(training_server.url, "tml-effects"))


def tensor(values, kind="float32"):
    return {"dtype": kind, "data": values}


def datum(tokens=TOKENS, **inputs):
    return {"model_input": {"chunks": [{"type": "encoded_text", "tokens": tokens[:-1]}]}, "loss_fn_inputs": {"target_tokens": tensor(tokens[1:], "int64"), **inputs}}


def policy_datum():
    """Two chosen tokens of which one became likelier, and one unlikelier, than when they were drawn."""
    rows = len(TOKENS) - 1
    return datum(logprobs=tensor([-30.0, -0.001] + [0.0] * (rows - 2)), advantages=tensor([1.0, -1.0] + [0.0] * (rows - 2)))


class Model:
    """A model of its own and its operations, whose results are what the server sent."""

    def __init__(self, client, **settings):
        self.client, self.number = client, itertools.count(1)
        body = {"session_id": client.session, "model_seq_id": next(NUMBERS), "base_model": BASE, "lora_config": {"rank": 2, "seed": 1}, **settings}
        self.made = client.result(client.post("create_model", **body)["request_id"])
        self.id = self.made.get("model_id")

    def do(self, route, **fields):
        return self.client.result(self.client.post(route, model_id=self.id, seq_id=next(self.number), **fields)["request_id"])

    def backward(self, **envelope):
        return self.do("forward_backward", forward_backward_input={"data": [datum()], "loss_fn": "cross_entropy", **envelope})

    def logprobs(self):
        return self.do("forward", forward_input={"data": [datum()], "loss_fn": "cross_entropy"})


# --- what a group's fields, given to a fresh model or sampler, come to

def made(wire, **lora):
    """The log-probabilities of a model with this adapter after a step."""
    model = Model(wire.client, lora_config={"rank": 2, "seed": 1, **lora})
    model.backward()
    model.do("optim_step", adam_params={"learning_rate": 0.01})
    return model.logprobs()


def optimized(wire, **config):
    model = Model(wire.client, optimizer_config={"type": "adamw", **config})
    return model.made if "error" in model.made else model.client.post("get_info", model_id=model.id)["optimizer_config"]


def batch(wire, **envelope):
    return Model(wire.client).backward(**{"data": [policy_datum()], "loss_fn": "importance_sampling", **envelope})


def configured(wire, **config):
    return batch(wire, loss_fn="ppo", loss_fn_config=config)


def stepped(wire, adam=None, other=None, settings=None, **fields):
    """Two steps on different data: what they told, and the log-probabilities after them."""
    model, told = Model(wire.client, **(settings or {})), []
    how = {"optimizer_params": other} if other else {"adam_params": {"learning_rate": 0.01, **(adam or {})}}
    for data in ([datum()], [datum(OTHER), datum(OTHER[:6])]):
        model.backward(data=data)
        told.append(model.do("optim_step", **how, **fields))
    return told, model.logprobs()


def with_adam(wire, **adam):
    return stepped(wire, adam=adam)


def with_muon(wire, **other):
    return stepped(wire, other={"type": "dimuon", "learning_rate": 0.01, **other}, settings={"optimizer_config": {"type": "dimuon"}})


def sampled(wire, sampling=None, **fields):
    body = {"sampling_session_id": wire.sampler, "seq_id": next(NUMBERS), "num_samples": 2, "prompt": {"chunks": [{"type": "encoded_text", "tokens": TOKENS[:4]}]}, **fields}
    return wire.client.result(wire.client.post("asample", **body, sampling_params={"max_tokens": 12, "seed": 3, "temperature": 1.0, **(sampling or {})})["request_id"])


def drawn(wire, **sampling):
    return sampled(wire, sampling=sampling)


def prompted(wire, **chunk):
    return sampled(wire, prompt={"chunks": [{"type": "encoded_text", "tokens": TOKENS[:4], **chunk}]})


# The rows of test_fields.py by route and place: how the fields are used, what each is given beside what all runs have, and those whose other values are refused.
GROUPS = {
    ("create_model", "lora_config"): (made, {"rank": 3, "alpha": 4.0, "init_method": "nora", "seed": 2, "train_attn": False, "train_mlp": False, "train_unembed": False}),
    ("create_model", "optimizer_config"): (optimized, {"type": "dimuon", "version": (CLOSED, 2)}),
    ("forward_backward", "forward_backward_input"): (batch, {"data": [datum(OTHER, logprobs=tensor([-1.0] * 9), advantages=tensor([1.0] * 9))], "loss_fn": "cross_entropy"}),
    ("forward_backward", "forward_backward_input.loss_fn_config"): (configured, {"clip_low_threshold": 0.5, "clip_high_threshold": 1.01}),
    ("optim_step", ""): (stepped, {"grad_accumulation_normalization": "num_sequences"}),
    ("optim_step", "adam_params"): (with_adam, {"learning_rate": 0.02, "beta1": 0.1, "beta2": 0.1, "eps": 1.0, "weight_decay": 9.0, "grad_clip_norm": 1e-3, "emit_grad_norm_metrics": "detailed"}),
    ("optim_step", "optimizer_params"): (with_muon, {"type": (CLOSED, "adamw"), "version": (CLOSED, 2), "learning_rate": 0.02, "beta1": 0.1, "grad_clip_norm": 1e-3}),
    ("asample", "sampling_params"): (drawn, {"max_tokens": 3, "seed": 4, "stop": list(range(60)), "temperature": 0.2, "top_k": 1, "top_p": 0.1}),
    ("asample", ""): (sampled, {"num_samples": 3, "prompt": {"chunks": [{"type": "encoded_text", "tokens": OTHER[:4]}]}, "prompt_logprobs": True, "topk_prompt_logprobs": 2, "topk_sample_logprobs": 2,
                                "prompt_alt_tokens_k": 2, "target_prompt_logprobs": {"dtype": "int64", "data": TOKENS[1:4], "shape": [3, 1]}}),
    ("asample", "prompt.chunks.0"): (prompted, {"tokens": OTHER[:4], "type": (CLOSED, "image")}),
}  # fmt: skip
# Fields of these places that say which session, model or number is meant, or hold the others: test_wire.py has what they do.
NAMES = {"model_id", "seq_id", "sampling_session_id", "model_seq_id", "session_id", "sampling_params", "adam_params", "optimizer_params", "loss_fn_config"}
WITH_OTHERS = {"prompt_logprobs_last_n", "keep_forward"}  # test_how_many_log_probabilities_of_the_prompt; test_kept_forwards.py: no sample depends on it


@pytest.mark.parametrize("place", GROUPS, ids=lambda place: ":".join(filter(None, place)))
def test_each_has_an_effect(wire, place):
    use, values = GROUPS[place]
    base = use(wire)
    assert not isinstance(base, dict) or "error" not in base, base
    assert use(wire) == base, "the control: the same twice is the same"
    without = []
    for name, value in values.items():
        if isinstance(value, tuple):
            try:
                said = str(use(wire, **{name: value[1]}))
            except AssertionError as refused:
                said = str(refused)
            if name not in said or "allowed" not in said:
                without.append((name, said))
        elif use(wire, **{name: value}) == base:
            without.append((name, value))
    assert not without, without


def test_how_many_log_probabilities_of_the_prompt(wire):
    assert sampled(wire, prompt_logprobs=True, prompt_logprobs_last_n=1) != sampled(wire, prompt_logprobs=True)


def test_no_field_of_these_places_is_without_a_row():
    missing = []
    for row in ROWS:
        if (row.route, row.inside) in GROUPS:
            known = set(GROUPS[row.route, row.inside][1]) | NAMES | set(WITH_OTHERS) | set(row.harmless) | set(row.refused) | set(documented())
            missing += [(row.route, row.inside, name) for name in fields_of(row) if name not in known]
    assert not missing, missing
    # The control.
    row = next(r for r in ROWS if (r.route, r.inside) == ("asample", "sampling_params"))
    assert "top_k" in fields_of(row)
