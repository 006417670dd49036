"""A number means what it says. Every numeric field of every request of the three wires (OpenAI's API, tinker with its protobuf, Fireworks) is
given null, which is how tinker's client writes NaN and infinity, NaN and Infinity as Python's json writes them, 1e400, a text and a truth value:
each is an error that names the field. Where null is leaving it out, the table says so and why, and the vendor's own type is looked at.

The walk is whole: numeric fields of the packages' types, and of the server's own readers, that stand in no table are told."""
import json
import re
import struct
import typing

import openai.types.chat.completion_create_params as openai_chat
import openai.types.completion_create_params as openai_completions
import openai.types.embedding_create_params as openai_embeddings
import openai.types.responses.response_create_params as openai_responses
import pytest
import requests
import tinker
from fireworks.training.sdk import types as fireworks_types
from fireworks.types import completion_create_params as fireworks_completions
from tinker.proto import tinker_public_pb2 as pb
from tinker.types import futures_retrieve_request

from test_fields import BASE, MODEL, NUMBERS, ROOT, SAMPLE, SESSION, TOKENS, Client, both, custom_loss, documented, envelope, numbered, sampled, targets, wire  # noqa: F401

VALUES = {"null": "null", "NaN": "NaN", "Infinity": "Infinity", "1e400": "1e400", "text": '"three"', "truth": "true"}
NO_NULL = "-"  # null is no number here
OPTIONAL_INT = "Optional[int] in the package, which has no NaN: null is None, and the default"
SENT_AS_NULL = "the package sends ttl_seconds: null for: never"
OPTIONAL = "Optional in the package, which sends None as null; it refuses to send NaN"
EXTRA = "of vLLM and llama.cpp, whose types are Optional: as the rest of this wire"


@pytest.fixture(scope="module")
def client(training_server):
    return Client(training_server.url, "tml-numbers")


def is_numeric(kind):
    """An int or a float somewhere in the annotation; of lists: their elements."""
    return kind in (int, float) or any(is_numeric(one) for one in typing.get_args(kind))


def is_optional(kind):
    return type(None) in typing.get_args(kind)


def numeric_fields(of):
    return {name: kind for name, kind in typing.get_type_hints(of).items() if is_numeric(kind) and not name.startswith("_") and "ClassVar" not in str(kind)}


def adam(w):
    return numbered(adam_params={})(w)


def dimuon(w):
    return numbered(optimizer_params={"type": "dimuon", "learning_rate": 0.0})(w)


def saved(w):
    return {**numbered()(w), "path": f"n{next(NUMBERS)}"}


def backward(w):
    """A body of its own, to be changed."""
    return json.loads(json.dumps(numbered(**envelope("forward_backward_input"))(w)))


def sparse(w):
    body = backward(w)
    count = len(TOKENS) - 1
    body["forward_backward_input"]["data"][0]["loss_fn_inputs"]["weights"] = {
        "dtype": "float32", "shape": [count, 1], "data": [1.0] * count, "sparse_crow_indices": list(range(count + 1)), "sparse_col_indices": [0] * count}
    return body


def with_loss(w):
    body = backward(w)
    body["forward_backward_input"] |= {"loss_fn": "dro", "loss_fn_config": {}}
    return body


def as_search(**fields):
    return lambda w: fields


DATUM = "forward_backward_input.data.0."
TENSOR = DATUM + "loss_fn_inputs.target_tokens."
# route, body, {field: why null may stand there}, the packages' types that have the fields (of the innermost object)
TRAINING = [
    ("create_model", MODEL, {"model_seq_id": NO_NULL, "projection_head_dim": OPTIONAL_INT}, both("CreateModelRequest")),
    ("create_model", MODEL, {"lora_config.rank": NO_NULL, "lora_config.alpha": OPTIONAL_INT, "lora_config.seed": OPTIONAL_INT}, both("LoraConfig")),
    ("create_model", lambda w: {**MODEL(w), "optimizer_config": {"type": "dimuon"}}, {"optimizer_config.version": NO_NULL}, ()),
    ("forward", numbered(**envelope("forward_input")), {"seq_id": NO_NULL, "forward_input.loss_fn_config.top_k": NO_NULL}, (fireworks_types.ForwardRequest,)),
    ("forward_backward", numbered(**envelope("forward_backward_input")), {"seq_id": NO_NULL}, (fireworks_types.ForwardBackwardRequest,)),
    ("forward_backward", numbered(**envelope("forward_backward_input")), {DATUM + "model_input.chunks.0.tokens.3": NO_NULL}, both("EncodedTextChunk")),
    ("forward_backward", numbered(**envelope("forward_backward_input")), {TENSOR + "data.2": NO_NULL}, ()),
    ("forward_backward", sparse, {DATUM + f"loss_fn_inputs.weights.{name}": NO_NULL for name in ("data.2", "shape.0", "sparse_crow_indices.1", "sparse_col_indices.1")}, (fireworks_types.TensorData,)),
    ("forward_backward", with_loss, {"forward_backward_input.loss_fn_config.beta": NO_NULL}, (fireworks_types.ForwardBackwardInput,)),
    ("optim_step", adam, {"seq_id": NO_NULL}, both("OptimStepRequest")),
    ("optim_step", adam, {f"adam_params.{name}": NO_NULL for name in ("learning_rate", "beta1", "beta2", "eps", "weight_decay", "grad_clip_norm")}, both("AdamParams")),
    ("optim_step", dimuon, {f"optimizer_params.{name}": NO_NULL for name in ("learning_rate", "beta1", "grad_clip_norm")}, both("DimuonParams")),
    ("save_weights", saved, {"seq_id": NO_NULL, "ttl_seconds": OPTIONAL_INT}, both("SaveWeightsRequest")),
    ("save_weights_for_sampler", saved, {"seq_id": NO_NULL, "ttl_seconds": OPTIONAL_INT, "sampling_session_seq_id": "harmless"}, both("SaveWeightsForSamplerRequest")),
    ("save_weights_external", saved, {"seq_id": NO_NULL, "ttl_seconds": OPTIONAL_INT}, both("SaveWeightsExternalRequest")),
    ("load_weights", lambda w: {"session_id": w.client.session, "model_seq_id": next(NUMBERS), "path": w.checkpoint}, {"model_seq_id": NO_NULL}, ()),
    ("load_weights", lambda w: {**numbered()(w), "path": w.checkpoint}, {"seq_id": NO_NULL}, ()),
    ("load_adapter", lambda w: {**numbered()(w), "adapter_path": "p"}, {"seq_id": NO_NULL}, ()),
    ("copy_weights", lambda w: {"source_path": w.checkpoint, "session_id": w.client.session, "model_seq_id": next(NUMBERS)}, {"model_seq_id": NO_NULL, "ttl_seconds": OPTIONAL_INT}, both("CopyWeightsRequest")),
    ("create_sampling_session", lambda w: {**SESSION(w), "sampling_session_seq_id": next(NUMBERS), "base_model": BASE}, {"sampling_session_seq_id": NO_NULL}, both("CreateSamplingSessionRequest")),
    ("asample", sampled, {**{name: NO_NULL for name in ("seq_id", "num_samples", "topk_prompt_logprobs", "topk_sample_logprobs", "prompt_alt_tokens_k")}, "prompt_logprobs_last_n": OPTIONAL_INT}, both("SampleRequest")),
    ("asample", sampled, {**{f"sampling_params.{name}": NO_NULL for name in ("temperature", "top_k", "top_p")}, **{f"sampling_params.{name}": OPTIONAL_INT for name in ("max_tokens", "seed")}}, both("SamplingParams")),
    ("asample", lambda w: {**sampled(w), "sampling_params": {"max_tokens": 1, "stop": [3, 4]}}, {"sampling_params.stop.1": NO_NULL}, both("SamplingParams")),
    ("asample", sampled, {"prompt.chunks.0.tokens.1": NO_NULL}, ()),
    ("asample", targets, {"target_prompt_logprobs.data.0": NO_NULL, "target_prompt_logprobs.shape.0": NO_NULL}, ()),
    ("create_custom_loss", custom_loss, {"custom_loss_seq_id": NO_NULL, "inputs.0.rank": NO_NULL, "graph.format": NO_NULL}, both("CreateCustomLossRequest")),
    ("retrieve_futures", lambda w: {"target": {"sampling_session_id": w.sampler}, "timeout": 0}, {"target.cloned_sampler_id": NO_NULL}, (futures_retrieve_request.SamplingSessionFuturesTarget,)),
    ("retrieve_futures", lambda w: {"target": {"sampling_session_id": w.sampler}, "timeout": 0}, {"prev_cursor": NO_NULL, "timeout": NO_NULL}, both("FuturesRetrieveRequest")),
    ("sessions/search", as_search(), {"limit": NO_NULL}, both("SessionSearchRequest")),
    ("PUT training_runs/{run}/checkpoints/weights/fields/ttl", as_search(), {"ttl_seconds": SENT_AS_NULL}, ()),
    ("/v1/accounts/local/rlorTrainerJobs?rlorTrainerJobId=n&skipValidations=true", lambda w: {"trainingConfig": {"baseModel": BASE}}, {"trainingConfig.loraRank": NO_NULL, "trainingConfig.maxContextLength": NO_NULL}, ()),
    ("/v1/accounts/local/rlorTrainerJobs?rlorTrainerJobId=n", lambda w: {"trainingConfig": {"baseModel": BASE}}, {"trainingConfig.loraRank": NO_NULL, "trainingConfig.maxContextLength": NO_NULL}, ()),
    ("/v1/accounts/local/deployments?deploymentId=n", lambda w: {"baseModel": BASE}, {"minReplicaCount": NO_NULL, "maxReplicaCount": NO_NULL}, ()),
    ("PATCH /v1/accounts/local/deployments/fields", lambda w: {}, {"minReplicaCount": NO_NULL, "maxReplicaCount": NO_NULL}, ()),
    ("PATCH /v1/accounts/local/deployments/fields?updateMask=min_replica_count,max_replica_count", lambda w: {}, {"minReplicaCount": NO_NULL, "maxReplicaCount": NO_NULL}, ()),
]  # fmt: skip
# No numbers of ours: harmless (docs/fields.md), of a kind of chunk that is refused, or made by the packages for themselves.
NOT_OURS = {"expected_tokens", "learningRate", "acceleratorCount", "trainerReplicaCount", "nodeCount"}


def split(path):
    return [int(step) if step.isdigit() else step for step in path.split(".")]


def marked(body, path):
    """The body, and a way to write it with another text in that place."""
    body = json.loads(json.dumps(body))
    at = body
    *steps, last = split(path)
    for step in steps:
        at = at[step] if isinstance(at, list) else at.setdefault(step, {})
    at[str(last) if isinstance(at, dict) else last] = "@@"
    return body, lambda text: lambda given: json.dumps(given).replace('"@@"', text)


def names_it(said, path):
    """The name of the field, or of the list whose element it is."""
    name = [step for step in split(path) if isinstance(step, str)][-1]
    return said is not None and name in said


def rows_of(tables):
    return [pytest.param(*row[:3], id=row[0].split("?")[0] + ":" + ",".join(row[2])) for row in tables]


@pytest.mark.parametrize("route,body,fields", rows_of(TRAINING))
def test_training_routes(wire, route, body, fields):  # noqa: F811
    method, _, path = route.rpartition(" ")
    wrong = []
    for field, null in fields.items():
        for value, text in VALUES.items():
            given, written = marked(body(wire), field)
            said = wire.said(path, given, method or "POST", written(text))
            if value == "null" and null != NO_NULL or null == "harmless" and value in ("text", "truth"):
                if said is not None and "exists already" not in said and field.split(".")[-1] in said:
                    wrong.append((field, value, said))
            elif not names_it(said, field):
                wrong.append((field, value, said))
    assert not wrong, wrong


def test_null_stands_for_absent_where_the_package_says_so():
    wrong = []
    for route, _, fields, types in TRAINING:
        kinds = {}
        for one in types:
            kinds |= {name: (kind, one.__name__) for name, kind in numeric_fields(one).items()}
        names = {next(step for step in reversed(split(path)) if isinstance(step, str)): null for path, null in fields.items()}
        for name, null in names.items():
            if null == OPTIONAL_INT and not (name in kinds and is_optional(kinds[name][0]) and float not in typing.get_args(kinds[name][0])):
                wrong.append((route, name, kinds.get(name)))
            assert null != "harmless" or name in documented(), name
    assert not wrong, wrong


def test_the_tables_are_whole():
    in_tables = {step for _, _, fields, _ in [*TRAINING, *COMPLETIONS] for path in fields for step in split(path) if isinstance(step, str)}
    in_tables |= {name for _, name in QUERIES}
    for _, _, fields, types in TRAINING:
        known = {step for path in fields for step in split(path)}
        for one in types:
            if "SampleRequest" in one.__name__ or "SamplingParams" in one.__name__:
                known |= in_tables  # in several rows
            missing = set(numeric_fields(one)) - known - NOT_OURS
            assert not missing, (one, missing)
    for _, _, fields, types in COMPLETIONS:
        for one in types:
            missing = set(numeric_fields(one)) - {split(path)[0] for path in fields} - REFUSED
            assert not missing, (one, missing)
    # The server's own readers of numbers.
    readers = r'(?:integer|number|optional_number|optional_integer|required_integer|required_number|integer_field|number_field|count_field)\((?:[*\w]+, )?"(\w+)"'
    mine = set()
    for source in (ROOT / "src/api").rglob("*.cpp"):
        if not source.name.endswith("_test.cpp"):
            mine |= set(re.findall(readers, source.read_text()))
    walked = (ROOT / "src/api/openai/alias_gate_test.cpp").read_text()
    assert not {name for name in GATES if f'"{name}"' not in walked}
    assert len(mine) > 30 and not mine - in_tables - GATES, mine - in_tables - GATES


# --- completions

LISTS = {"stop_token_ids": [5], "logit_bias": {"5": 1}}
TEXT = {"model": BASE, "prompt": [16, 19], "max_tokens": 1, **LISTS}
TALK = {"model": BASE, "messages": [{"role": "user", "content": "a"}], **LISTS}
SAMPLING = {name: OPTIONAL for name in ("max_tokens", "temperature", "top_p", "seed", "n", "presence_penalty", "frequency_penalty")} | {
    name: EXTRA for name in ("min_tokens", "top_k", "min_p", "repetition_penalty")} | {"logit_bias.5": NO_NULL, "stop_token_ids.0": NO_NULL}
# Taken at one value, which asks for nothing, and at null (docs/fields.md).
NO_OPS = {name: EXTRA for name in ("length_penalty", "repeat_penalty", "typical_p", "priority", "mirostat", "n_probs", "xtc_probability", "dry_multiplier", "dynatemp_range", "id_slot")}
REFUSED = {"speculation", "mirostat_lr", "mirostat_target", "reasoning_effort", "max_tool_calls"}  # whatever the value, or harmless
COMPLETIONS = [
    ("/v1/completions", TEXT, SAMPLING | NO_OPS | {"best_of": OPTIONAL, "logprobs": OPTIONAL, "attempt": EXTRA, "prompt.1": NO_NULL}, (openai_completions.CompletionCreateParamsStreaming,)),
    ("/v1/completions", {"model": BASE, "prompt_token_ids": [5, 6], "max_tokens": 1}, {"prompt_token_ids.0": NO_NULL}, ()),
    ("/v1/chat/completions", TALK, SAMPLING | NO_OPS | {"max_completion_tokens": OPTIONAL, "top_logprobs": OPTIONAL, "attempt": EXTRA}, (openai_chat.CompletionCreateParamsStreaming,)),
    ("/v1/responses", {"model": BASE, "input": "a"}, {name: OPTIONAL for name in ("max_output_tokens", "temperature", "top_p", "top_logprobs")} | {
        name: EXTRA for name in ("top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "seed", "attempt")}, (openai_responses.ResponseCreateParamsStreaming,)),
    ("/v1/embeddings", {"model": BASE, "input": [5, 6]}, {"dimensions": NO_NULL, "input.1": NO_NULL}, (openai_embeddings.EmbeddingCreateParams,)),
    # Refused, since they are no streams and there is no such stream: that is said after what is wrong with a field.
    ("/v1/completions", {**TEXT, "hold": {"strings": ["="]}}, {"hold.every": EXTRA, "hold.seconds": EXTRA}, ()),
    ("/inference/v1/completions", {**TEXT, "hold": {"strings": ["="]}}, {"hold.every": EXTRA, "hold.seconds": EXTRA}, ()),
    ("/v1/responses", {"model": BASE, "input": "a", "hold": {"strings": ["="]}}, {"hold.every": EXTRA, "hold.seconds": EXTRA}, ()),
    ("/v1/streams/none", {"action": "continue", "tokens": [5]}, {"position": EXTRA, "tokens.0": NO_NULL}, ()),
    ("/v1/detokenize", {"model": BASE, "tokens": [5, 6]}, {"tokens.1": NO_NULL}, ()),
    ("/inference/v1/completions", TEXT, {**SAMPLING, "n": NO_NULL, "max_completion_tokens": OPTIONAL, "echo_last": OPTIONAL, "logprobs": OPTIONAL, "top_logprobs": OPTIONAL, "typical_p": OPTIONAL, "prompt.1": NO_NULL,
                                         "min_p": OPTIONAL, "top_k": OPTIONAL, "repetition_penalty": OPTIONAL, "attempt": EXTRA}, (fireworks_completions.CompletionCreateParamsStreaming,)),
]  # fmt: skip
TRUTH_TOO = {("/inference/v1/completions", "logprobs")}  # Union[int, bool, None]


def complain(server, route, text):
    answer = requests.post(server.url + route, data=text, headers={"X-API-Key": "numbers", "Content-Type": "application/json"}, timeout=60)
    told = answer.json()
    return None if answer.status_code == 200 else told["error"]["message"]


@pytest.mark.parametrize("route,body,fields", rows_of(COMPLETIONS))
def test_completions(training_server, route, body, fields):
    without = complain(training_server, route, json.dumps(body))  # chat: the model has no template, which is said after what is wrong with a field
    wrong = []
    for field, null in fields.items():
        for value, text in VALUES.items():
            given, written = marked(body, field)
            said = complain(training_server, route, written(text)(given))
            if value == "null" and null != NO_NULL or value == "truth" and (route, field) in TRUTH_TOO:
                if said != without:
                    wrong.append((field, value, said))
            elif said == without or not names_it(said, field):
                wrong.append((field, value, said))
    assert not wrong, wrong


def test_null_of_completions_is_as_the_packages_type_it():
    for route, _, fields, types in COMPLETIONS:
        for one in types:
            for name, kind in numeric_fields(one).items():
                if fields.get(name) == OPTIONAL:
                    assert is_optional(kind), (route, name, kind)
                elif fields.get(name) == NO_NULL:
                    assert not is_optional(kind), (route, name, kind)


GATES = {"company", "problems"}  # of PUT /v1/aliases, on servers of several models: AliasGateTest walks them
QUERIES = [("/api/v1/training_runs", "limit"), ("/api/v1/checkpoints", "offset"), ("/v1/accounts/local/models", "pageSize"), ("/v1/accounts/local/models", "pageToken")]


def test_numbers_of_a_query(training_server):
    for path, name in QUERIES:
        for value in ("NaN", "Infinity", "1e400", "three", "true", "null"):
            answer = requests.get(f"{training_server.url}{path}?{name}={value}", headers={"X-API-Key": "tml-numbers"}, timeout=60)
            assert answer.status_code in (400, 422) and name in answer.text, (path, name, value, answer.text)


# --- protobuf: numbers are bits, so null, texts and truth values are no choice; NaN and infinities are

def batch(w, **inputs):
    message = pb.ForwardBackwardRequest(model_id=w.model, seq_id=w.number, loss_fn=inputs.pop("loss_fn", "cross_entropy"))
    datum = message.data.add()
    count = len(TOKENS) - 1
    datum.model_input.add().encoded_text.tokens = struct.pack(f"<{count}i", *inputs.pop("tokens", TOKENS[:-1]))
    wanted = {"target_tokens": (pb.DTYPE_INT64, struct.pack(f"<{count}q", *TOKENS[1:])), **inputs}
    for name, (dtype, data) in wanted.items():
        datum.loss_fn_inputs[name].CopyFrom(pb.Tensor(dtype=dtype, dense=data, shape=[count]))
    return message


def result_of(w, message):
    """The error of the operation, or None."""
    answer = w.client.raw("forward_backward", data=message.SerializeToString(), headers={"Content-Type": "application/x-protobuf"})
    assert answer.status_code == 200, answer.text
    w.number += 1
    result = w.client.result(answer.json()["request_id"])
    return result["error"] if isinstance(result, dict) else None


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")], ids=str)
def test_protobuf(wire, value):  # noqa: F811
    count = len(TOKENS) - 1
    floats = lambda last: (pb.DTYPE_FLOAT32, struct.pack(f"<{count}f", *[1.0] * (count - 1), last))  # noqa: E731
    policy = {"logprobs": floats(-1.0), "advantages": floats(1.0)}
    assert result_of(wire, batch(wire, weights=floats(1.0))) is None and result_of(wire, batch(wire, loss_fn="ppo", **policy)) is None
    for name in ("weights", "advantages", "logprobs", "proximal_logprobs", "reference_logprobs", "clip_low_threshold", "clip_high_threshold", "sequence_ratio_mask"):
        said = result_of(wire, batch(wire, loss_fn="cross_entropy" if name == "weights" else "ppo", **({} if name == "weights" else policy) | {name: floats(value)}))
        assert said and f"data[0].loss_fn_inputs.{name}[{count - 1}] is not a finite number" in said, (name, said)
    for v2 in (False, True):
        message = batch(wire, loss_fn="ppo", **policy)
        if v2:
            message.loss_fn_config_v2["clip_low_threshold"].number = value
        else:
            message.loss_fn_config["clip_low_threshold"] = value
        said = result_of(wire, message)
        assert said and "clip_low_threshold" in said, said


# --- and what they say when they are none of the allowed

def test_token_ids_are_told_as_they_were_sent(wire):  # noqa: F811
    def told(token):
        body = backward(wire)
        body["forward_backward_input"]["data"][0]["model_input"]["chunks"][0]["tokens"][2] = token
        return wire.said("forward_backward", body)
    for token in (2**31, 2**31 - 1, 2**32 + 5, -1, -7, -(2**31), -(2**40), 2**63 - 1, 500000):
        assert re.search(rf"(?<![0-9-]){token}(?![0-9])", told(token)), (token, told(token))
    # Of protobuf, whose ids have 32 bits.
    for token in (2**31 - 1, -1, -(2**31)):
        assert f" is {token}, allowed" in result_of(wire, batch(wire, tokens=[token, *TOKENS[1:-1]]))
    for token in (2**31, 2**32 + 5, -7, 2**63 - 1):
        said = wire.said("asample", {**sampled(wire), "prompt": {"chunks": [{"type": "encoded_text", "tokens": [1, token]}]}})
        assert f"prompt.chunks[0].tokens[1] is {token}," in said
    said = wire.said("asample", {**targets(wire), "target_prompt_logprobs": {"dtype": "int64", "data": [2**64 - 1, 5], "shape": [2, 1]}})
    assert f"target_prompt_logprobs.data holds {2**64 - 1}," in said  # which as 64 bits is -1: no target


def test_numbers_of_models_begin_at_0(wire):  # noqa: F811
    for route, body in (("create_model", MODEL), ("load_weights", lambda w: {**SESSION(w), "path": w.checkpoint}), ("copy_weights", lambda w: {**SESSION(w), "source_path": w.checkpoint})):
        for number in (-1, -(2**63)):
            assert wire.said(route, {**body(wire), "model_seq_id": number}) == f"model_seq_id is {number}, allowed is at least 0", route
    assert wire.said("create_model", {**MODEL(wire), "session_id": wire.client.post("create_session", tags=[])["session_id"], "model_seq_id": 0}) is None


def test_eps_of_adam_is_any_number_from_0_on(client):
    """As large as it gets, AdamW is the gradient's mean over eps: what checks of near-SGD steps use."""
    def norms(eps, number):
        model = client.model(number)
        client.backward(model, 1)
        step = client.result(client.post("optim_step", model_id=model, seq_id=2, adam_params={"learning_rate": 1e-2, "eps": eps})["request_id"])
        if "error" in step:
            return step["error"]
        client.backward(model, 3)
        return client.result(client.post("optim_step", model_id=model, seq_id=4, adam_params={"learning_rate": 0.0})["request_id"])["metrics"]["grad_norm"]
    untouched, near = norms(1e300, 800), norms(1000.0, 801)
    moved = norms(1e-8, 802)
    assert untouched != moved and abs(near - untouched) < 0.02 * abs(moved - untouched), (untouched, near, moved)
    assert norms(0.0, 804) > 0  # weights that had no gradient are numbers still
    assert norms(-1e-9, 803) == "adam_params.eps is -1e-09, allowed is a finite number of at least 0"
