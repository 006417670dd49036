"""No field is taken and ignored. Every field of the vendors' own request types is honoured, refused, or on the list of harmless ones
(docs/fields.md), on every route of the three wires; a name that nobody knows is an error that says what was probably meant.

Honoured, on a training route: a value that the field cannot have is refused by its name, so it is read. (What it does there is other
tests' business.) Of completions: what it does to the answer.
"""
import dataclasses
import itertools
import json
import re
import typing
from pathlib import Path

import fireworks.training.sdk.types as fireworks_types
import openai.types.chat.completion_create_params as openai_chat
import openai.types.completion_create_params as openai_completions
import openai.types.embedding_create_params as openai_embeddings
import openai.types.responses.response_create_params as openai_responses
import pytest
import requests
import tinker
from fireworks.training.sdk.deployment import DeploymentConfig, DeploymentManager
from fireworks.training.sdk.trainer import TrainerJobConfig, TrainerJobManager
from fireworks.types import completion_create_params as fireworks_completions
from tinker.types import search_owner, session_search_cursor, session_status_query

from test_external_weights import adapter_folder  # noqa: F401
from test_wire import BASE, TOKENS, Client

ROOT = Path(__file__).resolve().parents[2]
WRONG = {"no": ["such"]}  # of a field that is no object
NUMBERS = itertools.count(1000)


def documented():
    """{name: reason} of the list in docs/fields.md."""
    text = (ROOT / "docs/fields.md").read_text()
    return dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", text.split("## Harmless")[1].split("\n## ")[0], re.MULTILINE))


def test_the_list_is_what_the_server_has():
    source = (ROOT / "src/api/harmless_fields.cpp").read_text()
    rows = re.findall(r'^    \{"(\w+)", "((?:[^"\\]|\\.)*)"\},$', source, re.MULTILINE)
    assert len(rows) > 30 and len(dict(rows)) == len(rows)
    assert documented() == {name: reason.replace('\\"', '"') for name, reason in rows}


@pytest.fixture(scope="module")
def client(training_server):
    return Client(training_server.url, "tml-fields")


class Wire:
    """One route: what a body of it comes to."""

    def __init__(self, client):
        self.client, self.root = client, client.url.removesuffix("/api/v1/")
        self.model = client.model(700)
        self.number = 1  # of the model's next operation; one that was not taken is used again
        self.sampler = client.post("create_sampling_session", session_id=client.session, sampling_session_seq_id=700, base_model=BASE)["sampling_session_id"]
        self.finished = client.post("save_weights", model_id=self.model, seq_id=1, path="fields")["request_id"]
        self.checkpoint = client.result(self.finished)["path"]
        client.result(client.post("save_weights_for_sampler", model_id=self.model, seq_id=2, path="fields-sampler")["request_id"])
        self.number = 3
        made = client.post("create_model", session_id=client.session, model_seq_id=701, base_model=BASE, lora_config={"rank": 2})
        self.adapted = client.result(made["request_id"])["model_id"]
        self.adapter = client.result(client.post("save_weights_for_sampler", model_id=self.adapted, seq_id=1, path="fields-adapter")["request_id"])["path"]
        self.adapted_number = 2
        self.session = client.post("create_session", tags=[], user_metadata={})["session_id"]  # that may be finished

    def said(self, route, body, method="POST", written=json.dumps):
        """None: accepted, whole result and all; else the error. `written`: the body's text."""
        route = route.format(session=self.session, home=self.client.session, run=self.model)
        url = self.root + route if route.startswith("/") else self.client.url + route
        headers = {"X-API-Key": self.client.key, "fireworks-deployment": "accounts/local/deployments/fields", "Content-Type": "application/json"}
        answer = requests.request(method, url, data=written(body), headers=headers, timeout=60)
        if answer.status_code == 204:
            return None
        told = answer.json()
        if answer.status_code != 200:
            assert answer.status_code in (400, 404, 422), answer.text
            return told.get("detail") or told["error"]["message"]
        if "request_id" in told and route != "retrieve_future":
            self.number += isinstance(body, dict) and body.get("model_id") == self.model and "seq_id" in body
            self.adapted_number += isinstance(body, dict) and body.get("model_id") == self.adapted and "seq_id" in body
            result = self.client.result(told["request_id"])
            return result["error"] if isinstance(result, dict) and "error" in result else None
        return None


@pytest.fixture(scope="module")
def wire(client):
    made = Wire(client)
    requests.post(made.root + "/v1/accounts/local/deployments?deploymentId=fields", json={"baseModel": BASE}, headers={"X-API-Key": client.key}, timeout=60)
    return made


DATUM = {"model_input": {"chunks": [{"type": "encoded_text", "tokens": TOKENS[:-1]}]}, "loss_fn_inputs": {"target_tokens": {"dtype": "int64", "data": TOKENS[1:]}}}


def numbered(**body):
    return lambda w: {"model_id": w.model, "seq_id": w.number, **body}


# Of each route: a body, the types whose fields it has, and what is expected of each field beside "honoured, and no object".
# Values: how a field of another kind looks when it is wrong; what is given where it is harmless or refused.
@dataclasses.dataclass
class Row:
    route: str
    body: typing.Callable
    types: tuple = ()
    more: tuple = ()                                             # fields that the packages put beside their types
    objects: tuple = ()                                          # honoured ones that are objects
    values: dict = dataclasses.field(default_factory=dict)       # honoured ones of which an object is not wrong: what is
    harmless: dict = dataclasses.field(default_factory=dict)
    refused: dict = dataclasses.field(default_factory=dict)
    inside: str = ""                                             # the type is the value of this field: "a.b"
    names: dict = dataclasses.field(default_factory=dict)        # of the type -> on the wire
    method: str = "POST"


def both(name):
    return tuple(getattr(module, name) for module in (tinker.types, fireworks_types) if hasattr(module, name))


def envelope(name):
    return {name: {"data": [DATUM], "loss_fn": "cross_entropy"}}


def stepped(w):
    """A step needs a gradient before it."""
    assert w.said("forward_backward", numbered(**envelope("forward_backward_input"))(w)) is None
    return numbered(adam_params={"learning_rate": 0.0})(w)


SAMPLE = {"prompt": {"chunks": [{"type": "encoded_text", "tokens": TOKENS[:3]}]}, "sampling_params": {"max_tokens": 1}}


def sampled(w):
    return {"sampling_session_id": w.sampler, "seq_id": next(NUMBERS), **SAMPLE}


SESSION = lambda w: {"session_id": w.client.session}  # noqa: E731
MODEL = lambda w: {"session_id": w.client.session, "model_seq_id": next(NUMBERS), "base_model": BASE, "lora_config": {"rank": 2}}  # noqa: E731
TYPE = {"type": "whatever"}


def custom_loss(w):
    return {"session_id": w.client.session, "custom_loss_seq_id": next(NUMBERS), "name": "n", "inputs": [{"name": "logprobs", "rank": 1}], "graph": {"format": 1, "nodes": [
        {"op": "placeholder", "name": "logprobs", "target": "logprobs", "args": [], "kwargs": {}},
        {"op": "call_method", "name": "end", "target": "sum", "args": [{"ref": "logprobs"}], "kwargs": {}},
        {"op": "output", "name": "output", "target": "output", "args": [{"tuple": [{"ref": "end"}, {"dict": {}}]}], "kwargs": {}}]}}


def targets(w):
    return {**sampled(w), "target_prompt_logprobs": {"dtype": "int64", "data": TOKENS[1:3], "shape": [2, 1]}}


ROWS = [
    Row("client/config", lambda w: {}, both("ClientConfigRequest"), harmless={"sdk_version": "9"}),
    Row("create_session", lambda w: {}, both("CreateSessionRequest"), objects=("user_metadata",), harmless={"sdk_version": "9", **TYPE}),
    Row("session_heartbeat", SESSION, both("SessionHeartbeatRequest"), harmless=TYPE),
    Row("telemetry", SESSION, both("TelemetrySendRequest"), harmless={"session_id": "s", "events": [{}], "platform": "x", "sdk_version": "9", "process_uuid": "u"}),
    Row("create_model", MODEL, both("CreateModelRequest"), objects=("user_metadata", "lora_config", "optimizer_config"), values={"projection_head_dim": 4}, harmless=TYPE),
    Row("create_model", MODEL, both("LoraConfig"), inside="lora_config"),
    Row("create_model", lambda w: {**MODEL(w), "optimizer_config": {"type": "dimuon"}}, (tinker.types.DimuonOptimizerConfig,), inside="optimizer_config", values={"type": 7}),
    Row("get_info", lambda w: {"model_id": w.model}, both("GetInfoRequest"), harmless=TYPE),
    Row("unload_model", lambda w: {"model_id": w.client.model(next(NUMBERS))}, both("UnloadModelRequest"), harmless=TYPE),
    Row("forward", numbered(**envelope("forward_input")), (fireworks_types.ForwardRequest,), more=("comms",), objects=("forward_input",), harmless={"comms": "v2"}),
    Row("forward_backward", numbered(**envelope("forward_backward_input")), (fireworks_types.ForwardBackwardRequest,), more=("comms",), objects=("forward_backward_input",), harmless={"comms": "v2"}),
    Row("forward_backward", numbered(**envelope("forward_backward_input")), (fireworks_types.ForwardBackwardInput,), inside="forward_backward_input", objects=("loss_fn_config",)),
    Row("forward_backward", numbered(**envelope("forward_backward_input")), (fireworks_types.Datum,), inside="forward_backward_input.data.0", objects=("model_input", "loss_fn_inputs")),
    Row("forward_backward", numbered(**envelope("forward_backward_input")), (fireworks_types.ModelInput,), inside="forward_backward_input.data.0.model_input",
        refused={"routing_references": {"a": 1}, "routing_matrix_format": "parquet_v1", "top_sampling_references": {"a": 1}, "sampling_mask_references": {"a": 1}}),
    Row("forward_backward", numbered(**envelope("forward_backward_input")), (fireworks_types.TensorData,), inside="forward_backward_input.data.0.loss_fn_inputs.target_tokens", more=("data",),
        values={"sparse_crow_indices": None}),
    Row("forward_backward", numbered(**envelope("forward_backward_input")), both("EncodedTextChunk"), inside="forward_backward_input.data.0.model_input.chunks.0"),
    Row("optim_step", stepped, (fireworks_types.OptimStepRequest, tinker.types.OptimStepRequest), more=("grad_accumulation_normalization", "optimizer_params"),
        objects=("adam_params", "optimizer_params"), names={"optim_params": "adam_params"}, harmless=TYPE),
    Row("optim_step", stepped, (fireworks_types.AdamParams, tinker.types.AdamParams), inside="adam_params"),
    Row("save_weights", lambda w: {**numbered()(w), "path": f"w{next(NUMBERS)}"}, both("SaveWeightsRequest"), objects=("user_metadata",), harmless=TYPE),
    Row("save_weights_for_sampler", lambda w: {**numbered()(w), "path": f"s{next(NUMBERS)}"}, both("SaveWeightsForSamplerRequest"), more=("checkpoint_type", "metadata"),
        objects=("user_metadata", "metadata"), harmless={"sampling_session_seq_id": 3, **TYPE}),
    Row("save_weights_external", lambda w: {**numbered()(w), "path": f"e{next(NUMBERS)}"}, both("SaveWeightsExternalRequest"), harmless=TYPE, refused={"age_encryption_recipients": ["age1x"]}),
    Row("load_weights", lambda w: {"session_id": w.client.session, "model_seq_id": next(NUMBERS), "path": w.checkpoint}, both("LoadWeightsRequest"), objects=("user_metadata", "optimizer_config"),
        values={"model_id": 7}, harmless=TYPE, refused={"weights_access_token": "t"}),
    Row("load_adapter", lambda w: {"model_id": w.adapted, "seq_id": w.adapted_number, "adapter_path": w.adapter}, more=("adapter_path", "model_id", "seq_id", "type"), harmless=TYPE),
    Row("weights_info", lambda w: {"tinker_path": w.checkpoint}, more=("tinker_path",)),
    Row("copy_weights", lambda w: {"source_path": w.checkpoint}, both("CopyWeightsRequest"), refused={"weights_access_token": "t"}),
    Row("create_sampling_session", lambda w: {"session_id": w.client.session, "sampling_session_seq_id": next(NUMBERS), "base_model": BASE}, both("CreateSamplingSessionRequest"), harmless=TYPE),
    Row("join_sampling_session", lambda w: {"sampling_session_id": w.sampler}, both("JoinSamplingSessionRequest"), harmless=TYPE),
    Row("asample", sampled, both("SampleRequest"), more=("keep_forward",), objects=("prompt", "sampling_params"), values={"target_prompt_logprobs": 7}, harmless={"record_stability_info": True, **TYPE}, refused={"base_model": BASE, "model_path": "x"}),
    Row("asample", sampled, both("SamplingParams"), inside="sampling_params"),
    Row("asample", sampled, (tinker.types.ModelInput,), inside="prompt"),
    Row("asample", sampled, (tinker.types.EncodedTextChunk,), inside="prompt.chunks.0"),
    Row("asample", targets, (fireworks_types.TensorData,), inside="target_prompt_logprobs", more=("data",)),
    Row("create_custom_loss", custom_loss, both("CreateCustomLossRequest"),
        objects=("graph",), harmless=TYPE),
    Row("create_custom_loss", custom_loss, (tinker.types.CustomLossInput,), inside="inputs.0"),
    Row("create_custom_loss", custom_loss, (tinker.types.CustomLossGraph,), inside="graph"),
    Row("create_custom_loss", custom_loss, (tinker.types.CustomLossNode,), inside="graph.nodes.1", values={"args": 5, "kwargs": 5}),
    Row("retrieve_futures", lambda w: {"target": {"type": "sampling_session", "sampling_session_id": w.sampler, "cloned_sampler_id": 0}, "timeout": 0}, both("FuturesRetrieveRequest"), objects=("target",),
        harmless={"retrieved_request_ids": ["a"]}),
    Row("retrieve_future", lambda w: {"request_id": w.finished}, both("FutureRetrieveRequest"), harmless={"allow_metadata_only": True}),
    Row("cancel_future", lambda w: {"request_id": w.client.post("asample", **sampled(w))["request_id"]}, more=("request_id",)),
    Row("client/dynamic_config", lambda w: {}, more=("sdk_version",), harmless={"sdk_version": "9"}),
    Row("sessions/search", lambda w: {}, both("SessionSearchRequest"), objects=("user_metadata", "owner", "cursor")),
    Row("sessions/search", lambda w: {"owner": {"type": "user", "owner_urns": ["a"]}}, (search_owner.UserSearchOwner,), inside="owner"),
    Row("sessions/search", lambda w: {"statuses": [{"type": "client_finished", "reasons": ["success"]}]}, (session_status_query.ClientFinishedSessionStatusQuery,), inside="statuses.0"),
    Row("sessions/search", lambda w: {"cursor": {"last_session_id": "s"}}, (session_search_cursor.SessionSearchCursor,), inside="cursor", harmless={"last_created_at": "2026-01-01T00:00:00Z"}),
    Row("sessions/{session}/project", lambda w: {"project_id": "p"}, more=("project_id",), method="PUT"),
    Row("training_runs/{run}/checkpoints/weights/fields/ttl", lambda w: {"ttl_seconds": 9999}, more=("ttl_seconds",), method="PUT"),
    Row("sessions/{session}/finish", lambda w: {}, more=("detail", "reason"), objects=("reason",)),
    Row("sessions/{session}/finish", lambda w: {"reason": {"type": "success"}}, more=("type", "request_id", "request_type"), inside="reason"),
    Row("create_sampling_route", lambda w: {"base_model": BASE}, more=("base_model", "training_run")),
    Row("/v1/accounts/local/checkpoints/fields-sampler:promote", lambda w: {"output_model": f"accounts/local/models/m{next(NUMBERS)}"},
        more=("output_model", "outputModel", "trainer_job_id", "base_model", "async_promotion", "hot_load_deployment_id"), harmless={"hot_load_deployment_id": "d"}),
    Row("/v1/accounts/local/trainingSessions/{home}/checkpoints/fields-sampler:promote", lambda w: {"output_model": f"accounts/local/models/m{next(NUMBERS)}"},
        more=("output_model", "outputModel", "base_model")),
    Row("/v1/accounts/local/deployments/fields", lambda w: {"description": "d"}, method="PATCH",
        more=("hotLoadTrainerJob", "hotLoadTransitionType", "description", "minReplicaCount", "maxReplicaCount", "forTraining", "placement", "acceleratorType", "annotations", "preemptible",
              "extraArgs", "extraValues", "enableHotLoad", "hotLoadBucketType"),
        harmless={"forTraining": True, "placement": {"region": "r"}, "acceleratorType": "a", "annotations": {"a": "b"}, "preemptible": True},
        refused={"extraArgs": ["--a"], "extraValues": {"a": 1}, "enableHotLoad": False, "hotLoadBucketType": "MINE"}),
    Row("/v1/accounts/local/rlorTrainerJobs/local:resume", lambda w: {}),
    Row("training_runs/{run}/checkpoints/weights/fields/publish", lambda w: {}),
    Row("auth/token", lambda w: {}),
    Row("/v1/embeddings", lambda w: {"model": BASE, "input": "3 7"}, (openai_embeddings.EmbeddingCreateParams,), more=("pooling", "add_special_tokens"), harmless={"user": "u"}),
    # As vLLM has them.
    Row("/v1/tokenize", lambda w: {"prompt": "3 7"}, more=("model", "prompt", "messages", "tools", "add_generation_prompt", "continue_final_message", "chat_template_kwargs", "reasoning_effort",
                                                             "add_special_tokens", "return_token_strs"), objects=("chat_template_kwargs",)),
    Row("/v1/tokenize", lambda w: {"prompt": "3 7"}, more=("prompt_token_ids",), refused={"prompt_token_ids": [1]}),
    Row("/v1/detokenize", lambda w: {"tokens": [5, 6]}, more=("model", "tokens", "skip_special_tokens")),
    Row("/hot_load/v1/models/hot_load", lambda w: {"identity": "absent"}, more=("identity", "reset_prompt_cache", "incremental_snapshot_metadata"),
        harmless={"reset_prompt_cache": True, "incremental_snapshot_metadata": {"previous_snapshot_identity": "a"}}),
]  # fmt: skip


ADAPTER = {"lora_name": "one", "lora_path": "mine", "load_inplace": True}


def loaded(w):
    assert w.said("/v1/load_lora_adapter", ADAPTER) is None
    return {"lora_name": "one"}


# Of a server with a folder of adapters.
ADAPTER_ROWS = [Row("/v1/load_lora_adapter", lambda w: ADAPTER, more=(*ADAPTER, "lora_int_id"), harmless={"lora_int_id": 1}),
                Row("/v1/unload_lora_adapter", loaded, more=("lora_name", "lora_int_id"), harmless={"lora_int_id": 1})]  # fmt: skip


def fields_of(row):
    names = set(row.more)
    for one in row.types:
        own = one.model_fields if hasattr(one, "model_fields") else one.__annotations__
        names |= {row.names.get(name, name) for name in own if not name.startswith("_")}
    return sorted(names)


def put(body, place, name, value):
    body = json.loads(json.dumps(body))
    at = body
    for step in filter(None, place.split(".")):
        at = at[int(step)] if isinstance(at, list) else at.setdefault(step, {})
    at[name] = value
    return body


def unread_fields(wire, row):
    """(field, what was expected, what was said) of those that are none of honoured, refused and harmless."""
    for values in (row.harmless, row.refused, row.values):
        assert set(values) <= set(fields_of(row)) | set(row.more), set(values) - set(fields_of(row))
    assert wire.said(row.route, row.body(wire), row.method) is None
    unread = []
    if not fields_of(row) and "unknown field 'tags'" not in (wire.said(row.route, {"tags": []}, row.method) or ""):
        unread.append(("tags", "unknown"))
    for name in fields_of(row):
        known = re.sub(r"s?$", "", name)
        misspelt = wire.said(row.route, put(row.body(wire), row.inside, name + "z", 1), row.method)
        if misspelt is None or f"{name}z" not in misspelt or "did you mean" not in misspelt:
            unread.append((name, "misspelt", misspelt))
        if name in row.harmless:
            said = wire.said(row.route, put(row.body(wire), row.inside, name, row.harmless[name]), row.method)
            if said is not None or name not in documented():
                unread.append((name, "harmless", said))
            continue
        if name in row.values and row.values[name] is None:
            continue  # is checked where others use it
        wrong = row.refused.get(name, row.values.get(name, "text" if name in row.objects else WRONG))
        said = wire.said(row.route, put(row.body(wire), row.inside, name, wrong), row.method)
        if said is None or known not in said:
            unread.append((name, "refused" if name in row.refused else "honoured", said))
    return unread


@pytest.mark.parametrize("row", ROWS, ids=lambda r: f"{r.method if r.method != 'POST' else ''}{r.route}:{r.inside}".rstrip(":"))
def test_training_routes(wire, row):
    unread = unread_fields(wire, row)
    assert not unread, unread


def test_a_promotion_below_a_session_names_no_job(wire):
    """Its path says whose the checkpoint is, and its answer is the model: fields of the other promotion would do nothing."""
    path = "/v1/accounts/local/trainingSessions/{home}/checkpoints/fields-sampler:promote"
    for field, value in (("trainer_job_id", "accounts/local/rlorTrainerJobs/local"), ("async_promotion", True), ("hot_load_deployment_id", "d")):
        said = wire.said(path, {"output_model": f"accounts/local/models/m{next(NUMBERS)}", field: value})
        assert said and f"unknown field '{field}'" in said, said


def test_adapters(start_server, adapter_folder):  # noqa: F811
    wire = Wire(Client(start_server("--adapter-folder", str(adapter_folder[0])).url, "tml-adapters"))
    for row in ADAPTER_ROWS:
        unread = unread_fields(wire, row)
        assert not unread, unread


# --- jobs and deployments: what the package's own builders send

def everything(kind, **given):
    """A configuration with a value in every field."""
    values = {}
    for field in dataclasses.fields(kind):
        text = str(field.type)
        values[field.name] = given.get(field.name, True if "bool" in text else 3 if "int" in text else 1e-3 if "float" in text else ["--a"] if "ist[" in text else {"a": "b"} if "ict[" in text or "Mapping" in text else "x")
    return kind(**values)


JOB = {"honoured": ("baseModel", "loraRank", "maxContextLength", "displayName", "forwardOnly"),
       "refused": {"dataset": "d", "extraValues": {"a": 1}, "projectionHeadDim": 4, "customImageTag": "x", "extraArgs": ["--a"], "serviceMode": False}}
DEPLOYMENT = {"honoured": ("baseModel", "description", "minReplicaCount", "maxReplicaCount", "hotLoadTrainerJob", "hotLoadTransitionType", "deploymentShape"),
              "refused": {"extraArgs": ["--a"], "extraValues": {"a": 1}, "enableHotLoad": False, "hotLoadBucketType": "MINE"}}


MAKING = {"job": "/v1/accounts/local/rlorTrainerJobs?rlorTrainerJobId={}&skipValidations=true", "deployment": "/v1/accounts/local/deployments?deploymentId={}"}


def sent_by_the_package(kind):
    keys = set()
    if kind == "job":
        for shape in ({"training_shape_ref": None, "auto_select_training_shape": False}, {"training_shape_ref": "accounts/a/trainingShapes/s/versions/1"}):
            payload = TrainerJobManager._build_trainer_create_payload(everything(TrainerJobConfig, inactivity_timeout="1800s", **shape))
            keys |= {("", name) for name in payload if name != "trainingConfig"} | {("trainingConfig", name) for name in payload["trainingConfig"]}
    else:
        for shape in (None, "accounts/a/deploymentShapes/s"):
            config = everything(DeploymentConfig, deployment_shape=shape, hot_load_transition_type="ASYNC", min_replica_count=1, max_replica_count=1, hot_load_trainer_job=None if shape else "accounts/a/rlorTrainerJobs/j")
            config.validate = lambda: None
            builder = DeploymentManager._build_deployment_body
            keys |= {("", name) for name in builder(config)}
    return sorted(keys)


@pytest.mark.parametrize("kind", ["job", "deployment"])
def test_jobs_and_deployments(wire, kind):
    table = JOB if kind == "job" else DEPLOYMENT
    body = {"job": {"serviceMode": True, "trainingConfig": {"baseModel": BASE}}, "deployment": {"baseModel": BASE}}[kind]
    keys = sent_by_the_package(kind)
    assert len(keys) > 10
    unread = []
    for place, name in keys:
        def said(value, called=name):
            return wire.said(MAKING[kind].format(f"f{next(NUMBERS)}"), put(body, place, called, value))
        misspelt = said(1, name + "z")
        if misspelt is None or f"{name}z" not in misspelt:
            unread.append((name, "misspelt", misspelt))
        if name in table["refused"]:
            answer = said(table["refused"][name])
            ok = answer is not None and name in answer
        elif name in table["honoured"]:
            answer = said(WRONG)
            ok = answer is not None and name in answer
        else:
            answer = said({"region": "r"} if name == "placement" else True)
            ok = answer is None and name in documented()
        if not ok:
            unread.append((name, answer))
    assert not unread, unread


# --- completions

def told(training_server, route, body):
    answer = requests.post(training_server.url + route, json=body, headers={"X-API-Key": "fields"}, timeout=60)
    if "event-stream" in answer.headers["content-type"]:
        return {"stream": [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]}
    return {"status": answer.status_code, **answer.json()}


def ids_of(answer):
    choice = answer["choices"][0]
    return choice["token_ids"] if "token_ids" in choice else choice["raw_output"]["completion_token_ids"]


PROMPT = [16, 19, 14, 17]
SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}


def other_ids(answer, base):
    return ids_of(answer) != ids_of(base)


def is_json(answer, _):
    return json.loads(answer["choices"][0]["text"]) in ({"a": 1}, {"a": 2})


def predicts(a, b):
    """No token depends on it; usage tells that it was read."""
    return ids_of(a) == ids_of(b) and "accepted_prediction_tokens" in a["usage"]["completion_tokens_details"]


FORMAT = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
HARMLESS, REFUSED = "harmless", "refused"
# field: (values, what an answer with them shows against one without) or (values, its class). `first`, `greedy`: filled in by the test.
SHARED = {
    "model": ({"model": "absent"}, REFUSED), "prompt": ({"prompt": [5, 6]}, lambda a, b: a["usage"]["prompt_tokens"] == 2),
    "max_tokens": ({"max_tokens": 3}, lambda a, b: len(ids_of(a)) == 3),
    "temperature": ({"temperature": 0}, other_ids), "top_p": ({"top_p": 1e-6}, other_ids), "seed": ({"seed": 9}, other_ids),
    "frequency_penalty": ({"frequency_penalty": 2}, other_ids), "presence_penalty": ({"presence_penalty": 2}, other_ids),
    "logit_bias": ({"logit_bias": {"first": -100}}, lambda a, b: ids_of(a)[0] != ids_of(b)[0]),
    "stop": ({"stop": "first"}, lambda a, b: len(ids_of(a)) < len(ids_of(b)) and a["choices"][0]["finish_reason"] == "stop"),
    "stream": ({"stream": True}, lambda a, b: len(a["stream"]) >= 1), "user": ({"user": "u"}, HARMLESS),
    "logprobs": ({"logprobs": 2}, lambda a, b: a["choices"][0]["logprobs"] and not b["choices"][0]["logprobs"]),
    "keep_forward": ({"keep_forward": True}, REFUSED),  # by a server that keeps nothing; what it does on others: test_kept_forwards.py
    "echo": ({"echo": True}, lambda a, b: a["choices"][0]["text"].endswith(b["choices"][0]["text"]) and len(a["choices"][0]["text"]) > len(b["choices"][0]["text"])),
}
HOLDS = {"attempt": ({"attempt": 1}, other_ids),
         "hold": ({"stream": True, "hold": {"every": 5, "seconds": 0.1}}, lambda a, b: any(part.get("hold", {}).get("position") == 5 for part in a["stream"]))}
OPENAI = {**SHARED, **HOLDS, "service_tier": ({"service_tier": "flex"}, lambda a, b: (a["service_tier"], b["service_tier"]) == ("flex", "default") and ids_of(a) == ids_of(b)), "best_of": ({"best_of": 2}, REFUSED), "n": ({"n": 2}, lambda a, b: len(a["choices"]) == 2), "suffix": ({"suffix": "x"}, REFUSED),
          "stream_options": ({"stream": True, "stream_options": {"include_usage": True}}, lambda a, b: a["stream"][-1]["usage"]["completion_tokens"] == 24)}
FIREWORKS = {
    **SHARED, **HOLDS, "n": ({"n": 2}, REFUSED), "context_length_exceeded_behavior": ({"context_length_exceeded_behavior": "error", "max_tokens": 5000}, REFUSED),
    "echo_last": ({"echo_last": 2, "logprobs": True}, lambda a, b: len(a["choices"][0]["logprobs"]["content"]) == 26), "ignore_eos": ({"ignore_eos": False, "logit_bias": {"102": 100}}, lambda a, b: ids_of(a) == [102]),
    "images": ({"images": ["data:image/png;base64,AAAA"]}, REFUSED), "max_completion_tokens": ({"max_tokens": None, "max_completion_tokens": 3}, lambda a, b: len(ids_of(a)) == 3),
    "metadata": ({"metadata": {"a": "b"}}, HARMLESS), "min_p": ({"min_p": 1}, other_ids), "mirostat_lr": ({"mirostat_lr": 0.1}, REFUSED), "mirostat_target": ({"mirostat_target": 3}, REFUSED),
    "perf_metrics_in_response": ({"perf_metrics_in_response": True}, lambda a, b: "perf_metrics" in a and "perf_metrics" not in b), "prediction": ({"prediction": "x"}, predicts),
    "prompt_cache_isolation_key": ({"prompt_cache_isolation_key": "k"}, REFUSED), "prompt_cache_key": ({"prompt_cache_key": "k"}, HARMLESS),
    "raw_output": ({"raw_output": False, "return_token_ids": True}, lambda a, b: "raw_output" not in a["choices"][0] and "raw_output" in b["choices"][0]),
    "reasoning_effort": ({"reasoning_effort": "low"}, REFUSED), "reasoning_history": ({"reasoning_history": "disabled"}, REFUSED), "thinking": ({"thinking": {"type": "enabled"}}, REFUSED),
    "repetition_penalty": ({"repetition_penalty": 2}, other_ids), "response_format": ({"response_format": FORMAT}, is_json),
    "return_token_ids": ({"return_token_ids": True}, lambda a, b: a["choices"][0]["token_ids"] == ids_of(b) and a["choices"][0]["prompt_token_ids"] == PROMPT),
    "service_tier": ({"service_tier": "flex"}, HARMLESS), "speculation": ({"speculation": "x"}, predicts), "speculative": ({"speculative": {"draft": [5, 6]}}, predicts), "top_k": ({"top_k": 1}, other_ids),
    "top_logprobs": ({"logprobs": True, "top_logprobs": 3}, lambda a, b: len(a["choices"][0]["logprobs"]["content"][0]["top_logprobs"]) == 3), "typical_p": ({"typical_p": 0.5}, REFUSED),
    # beside the type: what the package's sampler sends
    "stop_token_ids": ({"stop_token_ids": ["first"]}, lambda a, b: len(ids_of(a)) < len(ids_of(b))), "min_tokens": ({"min_tokens": 5, "ignore_eos": False, "logit_bias": {"102": 100}}, lambda a, b: len(ids_of(a)) == 6),
    "include_routing_matrix": ({"include_routing_matrix": True}, lambda a, b: a["choices"][0]["logprobs"]["content"][0]["routing_matrix"]),
    "include_kept_tokens": ({"include_kept_tokens": True, "top_k": 5}, lambda a, b: all(len(t["kept_tokens"]) <= 5 and t["token_id"] in t["kept_tokens"] and t["kept_by_rank"] for t in a["choices"][0]["logprobs"]["content"])),
    "routing_matrix_format": ({"routing_matrix_format": "parquet_v1"}, REFUSED), "sampling_mask": ({"sampling_mask": "parquet_v1"}, REFUSED),
    "top_sampling_logprobs": ({"top_sampling_logprobs": 3}, REFUSED), "top_sampling_format": ({"top_sampling_format": "parquet_v1"}, REFUSED), "grammar": ({"grammar": "root"}, REFUSED),
}  # fmt: skip
ROUTES = {
    "openai": ("/v1/completions", OPENAI, openai_completions.CompletionCreateParamsStreaming, {"ignore_eos": True}),
    "fireworks": ("/inference/v1/completions", FIREWORKS, fireworks_completions.CompletionCreateParamsStreaming, {"ignore_eos": True, "raw_output": True}),
}


@pytest.mark.parametrize("name", ROUTES)
def test_completions(training_server, name):
    route, table, vendors, more = ROUTES[name]
    assert set(typing.get_type_hints(vendors)) <= set(table), set(typing.get_type_hints(vendors)) - set(table)
    body = {"model": BASE, "prompt": PROMPT, "max_tokens": 24, "seed": 4, "temperature": 1.3, **more}
    base = told(training_server, route, body)
    assert base["status"] == 200 and ids_of(told(training_server, route, body)) == ids_of(base)  # so what differs is the field's doing
    text = base["choices"][0]["text"]

    def filled(value):
        if isinstance(value, dict):
            return {str(ids_of(base)[0]) if k == "first" else k: filled(v) for k, v in value.items()}
        if isinstance(value, list):
            return [ids_of(base)[0] if v == "first" else filled(v) for v in value]
        return text[2] if value == "first" else value

    wrong = []
    for field, (values, effect) in table.items():
        answer = told(training_server, route, {**body, **filled(values)})
        if effect == REFUSED:
            fine = answer["status"] in (400, 404) and answer["error"]["param"] in (field, "max_tokens")
        elif effect == HARMLESS:
            fine = answer["status"] == 200 and field in documented() and ids_of(answer) == ids_of(base)
        else:
            fine = answer.get("status", 200) == 200 and bool(effect(answer, base))
        misspelt = told(training_server, route, {**body, field + "z": 1})
        if misspelt.get("status") != 400 or misspelt["error"]["param"] != field + "z" or (len(field) > 1 and f"did you mean '{field}'" not in misspelt["error"]["message"]):
            wrong.append((field, "misspelt", misspelt))
        if not fine:
            wrong.append((field, answer))
    assert not wrong, wrong


def test_actions_of_a_held_stream(training_server):
    """Each field of POST /v1/streams/{id}: a wrong value is refused by its name, and so is a name that is none; the stream stays as it was."""
    key = {"X-API-Key": "fields"}
    body = {"model": BASE, "prompt": PROMPT, "max_tokens": 8, "ignore_eos": True, "stream": True, "hold": {"every": 3}}
    with requests.post(training_server.url + "/v1/completions", json=body, headers=key, stream=True, timeout=60) as answer:
        parts = (json.loads(line[6:]) for line in answer.iter_lines() if line.startswith(b"data: {"))
        path = training_server.url + "/v1/streams/" + next(part["hold"]["id"] for part in parts if "hold" in part)
        for name, wrong in {"action": 5, "position": "x", "tokens": 5, "text": 5}.items():
            for field, value in ((name, wrong), (name + "z", 1)):
                said = requests.post(path, json={"action": "rollback", "position": 1, field: value}, headers=key, timeout=60)
                assert said.status_code == 400 and said.json()["error"]["param"] == field, said.text
                assert field == name or f"did you mean '{name}'" in said.json()["error"]["message"]
        assert requests.post(path, json={"action": "stop"}, headers=key, timeout=60).json()["position"] == 3
        assert [part["choices"][0]["finish_reason"] for part in parts][-1] == "stop"


def test_logprobs_false_is_none(training_server):
    for value, rows in ((False, False), (None, False), (True, True), (0, True)):
        answer = told(training_server, "/inference/v1/completions", {"model": BASE, "prompt": PROMPT, "max_tokens": 2, "logprobs": value})
        assert bool(answer["choices"][0]["logprobs"]) == rows, value


@pytest.mark.parametrize("form", [FORMAT, {"type": "json_object", "schema": SCHEMA}, {"type": "json_schema", "json_schema": SCHEMA}, {"type": "json_schema", "json_schema": json.dumps(SCHEMA)}])
def test_formats_of_fireworks(training_server, form):
    for seed in range(3):
        answer = told(training_server, "/inference/v1/completions", {"model": BASE, "prompt": PROMPT, "max_tokens": 60, "seed": seed, "response_format": form})
        assert is_json(answer, None) and answer["choices"][0]["finish_reason"] == "stop"


def test_what_the_package_falls_back_from(training_server):
    """Its sampler knows these words, and then asks for matrices in the answer itself."""
    for field in ("routing_matrix_format", "sampling_mask", "top_sampling_format"):
        answer = told(training_server, "/inference/v1/completions", {"model": BASE, "prompt": "R3 compatibility check.", "max_tokens": 0, field: "parquet_v1"})
        assert (answer["status"], answer["error"]["code"], answer["error"]["message"]) == (400, "INVALID_ARGUMENT", f"Extra inputs are not permitted, field: '{field}'")


CHAT_FIELDS = {
    "honoured": {"frequency_penalty": "x", "keep_forward": "x", "logit_bias": [], "logprobs": 3, "max_completion_tokens": -1, "max_tokens": -1, "messages": 5, "model": 5, "n": 0, "parallel_tool_calls": 3, "prediction": 5, "presence_penalty": 9,
                 "reasoning_effort": 5, "response_format": 5, "seed": "x", "service_tier": "scale", "stop": 5, "stream": 5, "stream_options": 5, "temperature": -1, "tool_choice": "no", "tools": 5, "top_logprobs": 99, "top_p": 5},
    "refused": {"audio": {"voice": "a"}, "function_call": "auto", "functions": [{"name": "f"}], "modalities": ["audio"], "moderation": {"a": 1}, "verbosity": "low", "web_search_options": {}},
    "harmless": {"metadata": {"a": "b"}, "prompt_cache_key": "k", "prompt_cache_options": {"a": 1}, "prompt_cache_retention": "24h", "safety_identifier": "s",
                 "store": True, "user": "u"},
}  # fmt: skip
RESPONSE_FIELDS = {
    "honoured": {"input": 5, "instructions": 5, "keep_forward": "x", "max_output_tokens": 0, "metadata": 5, "model": 5, "parallel_tool_calls": 3, "previous_response_id": 5, "reasoning": 5, "service_tier": "scale", "store": 5, "stream": 5, "stream_options": 5,
                 "temperature": -1, "text": 5, "tool_choice": "no", "tools": 5, "top_p": 5},
    "refused": {"access_programs": {"cyber": "standard"}, "background": True, "background_options": {"a": 1}, "context_management": [{"type": "compaction"}], "conversation": "c", "image": {"a": 1},
                "include": ["reasoning.encrypted_content"], "max_tool_calls": 3, "moderation": {"model": "m"}, "prompt": {"id": "p"}, "top_logprobs": 5, "truncation": "auto"},
    "harmless": {"prompt_cache_key": "k", "prompt_cache_options": {"a": 1}, "prompt_cache_retention": "24h", "safety_identifier": "s", "user": "u"},
}  # fmt: skip
TALKS = {
    "/v1/chat/completions": ({"messages": [{"role": "user", "content": "a"}]}, CHAT_FIELDS, openai_chat.CompletionCreateParamsStreaming),
    "/v1/responses": ({"input": "a"}, RESPONSE_FIELDS, openai_responses.ResponseCreateParamsStreaming),
}


@pytest.mark.parametrize("route", TALKS)
def test_talks(training_server, route):
    """Of a model without a chat template: what is wrong with a field is said before that."""
    talk, table, sent = TALKS[route]
    vendors = set(sent.__annotations__)
    assert vendors <= set().union(*table.values()), vendors - set().union(*table.values())
    body = {"model": BASE, **talk}
    for kind, fields in table.items():
        for field, value in fields.items():
            answer = told(training_server, route, {**body, field: value})
            assert answer["status"] == 400, (field, answer)
            if kind == "harmless":
                assert answer["error"]["param"] == "model" and field in documented(), (field, answer)
            else:
                assert answer["error"]["param"].split(".")[0].split("[")[0] == field, (field, answer)
            misspelt = told(training_server, route, {**body, field + "z": 1})
            assert misspelt["error"]["param"] == field + "z" and (len(field) == 1 or f"did you mean '{field}'" in misspelt["error"]["message"]), misspelt


# --- every route

PREFIXES = ("/training/v1/rlorTrainerJobs/{account}/{job}", "/training/v1/serverless")  # under which the same routes stand again


def routes_with_bodies(url):
    """(method, path) by what the server says of itself: its paths, and the methods of each."""
    known = requests.get(url + "/nothing-of-that-name", timeout=10).json()["error"]["message"].split("known are ")[1].split(", ")
    found = set()
    for path in known:
        answer = requests.options(url + re.sub(r"\{[^}]*\}", "x", path), timeout=10)
        for prefix in PREFIXES:
            path = path.removeprefix(prefix)
        found |= {(method, path) for method in answer.headers["Allow"].split(", ") if method in ("POST", "PUT", "PATCH")}
    return found


def without_row(routes, tested):
    def is_tested(method, path):
        form = re.sub(r"\{[^}]*\}", "[^/]+", path)
        return any(method == one and re.fullmatch(form, called) for one, called in tested)
    return sorted(route for route in routes if not is_tested(*route))


def test_every_route_has_a_row(training_server):
    tested = {(row.method, row.route if row.route.startswith("/") else "/api/v1/" + row.route) for row in ROWS + ADAPTER_ROWS}
    tested |= {("POST", path.split("?")[0]) for path in MAKING.values()} | {("POST", route) for route, *_ in ROUTES.values()} | {("POST", route) for route in TALKS}
    tested |= {("POST", "/v1/streams/one")}  # test_actions_of_a_held_stream
    routes = routes_with_bodies(training_server.url)
    assert len(routes) > 45, len(routes)
    assert not without_row(routes, tested), without_row(routes, tested)
    for one in (("POST", "/api/v1/load_adapter"), ("PATCH", "/v1/accounts/local/deployments/fields"), ("POST", "/v1/responses")):
        assert len(without_row(routes, tested - {one})) == 1, one
