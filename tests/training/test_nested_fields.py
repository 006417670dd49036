"""No field is taken and ignored, where it stands in another one, in a protobuf message, or in a path (?name=value): the vendors' own types are
walked to their leaves. (Fields of bodies: test_fields.py.)
"""
import json
import re
import typing
from pathlib import Path

import fireworks.training.sdk.deployment
import openai.types.chat.completion_create_params as openai_chat
import openai.types.responses.response_create_params as openai_responses
import pytest
import requests
import tinker
import typing_extensions
from openai.types import embedding_create_params as openai_embeddings
from openai.types.responses import input_item_list_params, response_retrieve_params
from tinker.proto import tinker_public_pb2 as pb

from test_fields import BASE, WRONG, Wire, custom_loss, documented, put
from test_wire import TOKENS, Client


@pytest.fixture(scope="module")
def client(training_server):
    return Client(training_server.url, "tml-nested")


@pytest.fixture(scope="module")
def wire(client):
    return Wire(client)


# --- OpenAI's bodies

def typed_dicts(hint):
    if typing_extensions.is_typeddict(hint):
        yield hint
    for part in typing.get_args(hint):
        if isinstance(part, type) or typing.get_origin(part) or typing_extensions.is_typeddict(part):
            yield from typed_dicts(part)


def name_of(kind):
    return f"{kind.__module__.rpartition('.')[2].removesuffix('_param')}.{kind.__name__}"


def nested(kind, ends, found=None):
    """{name: type} of every object within `kind`, but for what stands within those of `ends`."""
    found = {} if found is None else found
    for hint in typing.get_type_hints(kind).values():
        for inner in typed_dicts(hint):
            if name_of(inner) not in found:
                found[name_of(inner)] = inner
                if name_of(inner) not in ends:
                    nested(inner, ends, found)
    return found


CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": False}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}
USER, ASSISTANT = {"role": "user", "content": "a"}, {"role": "assistant", "content": "a"}


def talk(*messages, **more):
    return {"messages": [*messages], **more}


# type -> (body, place of an object of that type)
CHAT = {
    "chat_completion_developer_message.ChatCompletionDeveloperMessageParam": (talk({"role": "developer", "content": "a"}, USER), "messages.0"),
    "chat_completion_system_message.ChatCompletionSystemMessageParam": (talk({"role": "system", "content": "a"}, USER), "messages.0"),
    "chat_completion_user_message.ChatCompletionUserMessageParam": (talk(USER), "messages.0"),
    "chat_completion_assistant_message.ChatCompletionAssistantMessageParam": (talk(USER, ASSISTANT), "messages.1"),
    "chat_completion_tool_message.ChatCompletionToolMessageParam": (talk(USER, {"role": "assistant", "tool_calls": [CALL]}, {"role": "tool", "content": "a", "tool_call_id": "c"}), "messages.2"),
    "chat_completion_content_part_text.ChatCompletionContentPartTextParam": (talk({"role": "user", "content": [{"type": "text", "text": "a"}]}), "messages.0.content.0"),
    "chat_completion_content_part_refusal.ChatCompletionContentPartRefusalParam": (talk(USER, {"role": "assistant", "content": [{"type": "refusal", "refusal": "a"}]}), "messages.1.content.0"),
    "chat_completion_message_function_tool_call.ChatCompletionMessageFunctionToolCallParam": (talk(USER, {"role": "assistant", "tool_calls": [CALL]}), "messages.1.tool_calls.0"),
    "chat_completion_message_function_tool_call.Function": (talk(USER, {"role": "assistant", "tool_calls": [CALL]}), "messages.1.tool_calls.0.function"),
    "chat_completion_function_tool.ChatCompletionFunctionToolParam": (talk(USER, tools=[TOOL]), "tools.0"),
    "function_definition.FunctionDefinition": (talk(USER, tools=[TOOL]), "tools.0.function"),
    "chat_completion_named_tool_choice.ChatCompletionNamedToolChoiceParam": (talk(USER, tools=[TOOL], tool_choice={"type": "function", "function": {"name": "f"}}), "tool_choice"),
    "chat_completion_named_tool_choice.Function": (talk(USER, tools=[TOOL], tool_choice={"type": "function", "function": {"name": "f"}}), "tool_choice.function"),
    "response_format_text.ResponseFormatText": (talk(USER, response_format={"type": "text"}), "response_format"),
    "response_format_json_object.ResponseFormatJSONObject": (talk(USER, response_format={"type": "json_object"}), "response_format"),
    "response_format_json_schema.ResponseFormatJSONSchema": (talk(USER, response_format=SCHEMA), "response_format"),
    "response_format_json_schema.JSONSchema": (talk(USER, response_format=SCHEMA), "response_format.json_schema"),
    "chat_completion_prediction_content.ChatCompletionPredictionContentParam": (talk(USER, prediction={"type": "content", "content": "a"}), "prediction"),
    "chat_completion_stream_options.ChatCompletionStreamOptionsParam": (talk(USER, stream=True, stream_options={"include_usage": True}), "stream_options"),
}  # fmt: skip
# What is refused as it stands: (body, place in which the error is).
CHAT_REFUSED = {
    "chat_completion_content_part_image.ChatCompletionContentPartImageParam": (talk({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}), "messages.0.content.0"),
    "chat_completion_content_part_input_audio.ChatCompletionContentPartInputAudioParam": (talk({"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}), "messages.0.content.0"),
    "chat_completion_content_part.File": (talk({"role": "user", "content": [{"type": "file", "file": {}}]}), "messages.0.content.0"),
    "chat_completion_assistant_message.Audio": (talk(USER, {**ASSISTANT, "audio": {"id": "a"}}), "messages.1.audio"),
    "chat_completion_assistant_message.FunctionCall": (talk(USER, {**ASSISTANT, "function_call": {"name": "f", "arguments": "{}"}}), "messages.1.function_call"),
    "chat_completion_message_custom_tool_call.ChatCompletionMessageCustomToolCallParam": (talk(USER, {"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "f", "input": "x"}}]}), "messages.1.tool_calls.0"),
    "chat_completion_function_message.ChatCompletionFunctionMessageParam": (talk(USER, {"role": "function", "name": "f", "content": "a"}), "messages.1"),
    "chat_completion_audio.ChatCompletionAudioParam": (talk(USER, audio={"voice": "a", "format": "wav"}), "audio"),
    "chat_completion_function_call_option.ChatCompletionFunctionCallOptionParam": (talk(USER, function_call={"name": "f"}), "function_call"),
    "completion_create_params.Function": (talk(USER, functions=[{"name": "f"}]), "functions"),
    "completion_create_params.Moderation": (talk(USER, moderation={"model": "m"}), "moderation"),
    "completion_create_params.WebSearchOptions": (talk(USER, web_search_options={"search_context_size": "low"}), "web_search_options"),
    "chat_completion_allowed_tool_choice.ChatCompletionAllowedToolChoiceParam": (talk(USER, tools=[TOOL], tool_choice={"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}), "tool_choice"),
    "chat_completion_named_tool_choice_custom.ChatCompletionNamedToolChoiceCustomParam": (talk(USER, tools=[TOOL], tool_choice={"type": "custom", "custom": {"name": "f"}}), "tool_choice"),
    "chat_completion_custom_tool.ChatCompletionCustomToolParam": (talk(USER, tools=[{"type": "custom", "custom": {"name": "f"}}]), "tools.0"),
}  # fmt: skip
CHAT_HARMLESS = {"completion_create_params.PromptCacheOptions": "prompt_cache_options",
                 "chat_completion_content_part_text.PromptCacheBreakpoint": "prompt_cache_breakpoint"}  # fmt: skip

ITEM = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}
RESPONSES = {
    "easy_input_message.EasyInputMessageParam": ({"input": [{"type": "message", **USER}]}, "input.0"),
    "response_input.Message": ({"input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]}]}, "input.0"),
    "response_output_message.ResponseOutputMessageParam": ({"input": [{"type": "message", **USER}, {"type": "message", "id": "i", "status": "completed", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}]}, "input.1"),
    "response_input_text.ResponseInputTextParam": ({"input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]}]}, "input.0.content.0"),
    "response_output_text.ResponseOutputTextParam": ({"input": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}]}, "input.0.content.0"),
    "response_output_refusal.ResponseOutputRefusalParam": ({"input": [{"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "a"}]}]}, "input.0.content.0"),
    "response_function_tool_call.ResponseFunctionToolCallParam": ({"input": [ITEM]}, "input.0"),
    "response_input.FunctionCallOutput": ({"input": [ITEM, {"type": "function_call_output", "call_id": "c", "output": "a"}]}, "input.1"),
    "response_input_text_content.ResponseInputTextContentParam": ({"input": [ITEM, {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "a"}]}]}, "input.1.output.0"),
    "response_reasoning_item.ResponseReasoningItemParam": ({"input": [{"type": "message", **USER}, {"type": "reasoning", "id": "r", "summary": []}]}, "input.1"),
    "response_reasoning_item.Summary": ({"input": [{"type": "message", **USER}, {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "a"}]}]}, "input.1.summary.0"),
    "response_reasoning_item.Content": ({"input": [{"type": "message", **USER}, {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "a"}]}]}, "input.1.content.0"),
    "function_tool.FunctionToolParam": ({"input": "a", "tools": [FUNCTION]}, "tools.0"),
    "tool_choice_function.ToolChoiceFunctionParam": ({"input": "a", "tools": [FUNCTION], "tool_choice": {"type": "function", "name": "f"}}, "tool_choice"),
    "response_text_config.ResponseTextConfigParam": ({"input": "a", "text": {"format": {"type": "text"}}}, "text"),
    "response_format_text.ResponseFormatText": ({"input": "a", "text": {"format": {"type": "text"}}}, "text.format"),
    "response_format_json_object.ResponseFormatJSONObject": ({"input": "a", "text": {"format": {"type": "json_object"}}}, "text.format"),
    "response_format_text_json_schema_config.ResponseFormatTextJSONSchemaConfigParam": ({"input": "a", "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}}}, "text.format"),
    "reasoning.Reasoning": ({"input": "a", "reasoning": {"effort": "low"}}, "reasoning"),
    "response_create_params.StreamOptions": ({"input": "a", "stream_options": {"include_obfuscation": False}}, "stream_options"),
}  # fmt: skip
RESPONSES_TOP = {
    "honoured": {"input": 5, "instructions": 5, "max_output_tokens": -1, "metadata": 5, "model": 5, "parallel_tool_calls": 3, "previous_response_id": 5, "reasoning": 5, "service_tier": "scale", "store": 5, "stream": 5, "stream_options": 5,
                 "temperature": -1, "text": 5, "tool_choice": "no", "tools": 5, "top_p": 5},
    "refused": {"access_programs": {"cyber": "a"}, "background": True, "background_options": {"a": 1}, "context_management": [{"type": "a"}], "conversation": "c", "image": {"a": 1}, "include": ["file_search_call.results"],
                "max_tool_calls": 3, "moderation": {"a": 1}, "prompt": {"id": "p"}, "top_logprobs": 3, "truncation": "auto"},
    "harmless": {"prompt_cache_key": "k", "prompt_cache_options": {"mode": "auto"}, "prompt_cache_retention": "24h", "safety_identifier": "s", "user": "u"},
}  # fmt: skip


def dotted(place):
    """messages.0.content -> messages[0].content"""
    return re.sub(r"\.(\d+)", r"[\1]", place)


def refusal(training_server, route, body):
    """(param, message) of the error, or None."""
    answer = requests.post(training_server.url + route, json={"model": BASE, **body}, headers={"X-API-Key": "fields"}, timeout=60)
    return None if answer.status_code == 200 else (answer.json()["error"]["param"] or "", answer.json()["error"]["message"])


def is_in(param, place):
    return param == place or param.startswith((place + ".", place + "["))


def unread_fields(training_server, route, kind, body, place):
    """The model has no chat template, so every body ends in an error: one that names `model`, where all of it was read."""
    base, at = refusal(training_server, route, body), dotted(place)
    assert base is None or base[0] == "model", (place, base)
    for field in typing.get_type_hints(kind):
        misspelt = refusal(training_server, route, put(body, place, field + "z", 1))
        if misspelt is None or not is_in(misspelt[0], f"{at}.{field}z"):
            yield field, "misspelt", misspelt
        wrong = ["text" if field in ("parameters", "schema") else 5 if field in ("arguments", "prompt_cache_breakpoint") else WRONG]
        said = refusal(training_server, route, put(body, place, field, wrong[0]))
        if said == base:
            if field not in documented():
                yield field, "taken and ignored", said
        elif said is None or not is_in(said[0], f"{at}.{field}"):
            yield field, said


@pytest.mark.parametrize("name", CHAT)
def test_fields_within_fields_of_chat(training_server, name):
    kind = nested(openai_chat.CompletionCreateParamsStreaming, {*CHAT_REFUSED, *CHAT_HARMLESS})[name]
    unread = list(unread_fields(training_server, "/v1/chat/completions", kind, *CHAT[name]))
    assert not unread, unread


def test_every_object_of_chat_is_known_or_refused(training_server):
    missing = set(nested(openai_chat.CompletionCreateParamsStreaming, {*CHAT_REFUSED, *CHAT_HARMLESS})) - {*CHAT, *CHAT_REFUSED, *CHAT_HARMLESS}
    assert not missing
    assert set(CHAT_HARMLESS.values()) <= set(documented())
    for name, (body, place) in CHAT_REFUSED.items():
        said = refusal(training_server, "/v1/chat/completions", body)
        assert said is not None and is_in(said[0], dotted(place)), (name, said)


@pytest.mark.parametrize("name", RESPONSES)
def test_fields_within_fields_of_responses(training_server, name):
    kind = nested(openai_responses.ResponseCreateParamsStreaming, set())[name]
    unread = list(unread_fields(training_server, "/v1/responses", kind, *RESPONSES[name]))
    assert not unread, unread


def literals(kind, field="type"):
    hint = typing.get_type_hints(kind).get(field)
    return [value for value in typing.get_args(hint) if isinstance(value, str)]


def test_items_and_tools_of_responses_that_are_not_known_are_refused(training_server):
    hints = typing.get_type_hints(openai_responses.ResponseCreateParamsStreaming)
    count = 0
    for field, known in (("input", {"message", "reasoning", "function_call", "function_call_output"}), ("tools", {"function"}), ("tool_choice", {"function"})):
        kinds = {value: kind for kind in typed_dicts(hints[field]) for value in literals(kind)}
        for value in sorted(set(kinds) - known):
            # Content parts and annotations are no items either.
            one = {"type": value, "role": "user", "name": "f"}
            said = refusal(training_server, "/v1/responses", {"input": "a", "tools": [FUNCTION], **{field: one if field == "tool_choice" else [one]}})
            assert said is not None and is_in(said[0], field if field == "tool_choice" else f"{field}[0]"), (field, value, said)
            count += 1
    assert count > 30


@pytest.mark.parametrize("route, kind, table", [
    ("/v1/responses", openai_responses.ResponseCreateParamsStreaming, RESPONSES_TOP),
    ("/v1/embeddings", openai_embeddings.EmbeddingCreateParams, {"honoured": {"input": 5, "model": 5, "dimensions": -1, "encoding_format": "x"}, "refused": {}, "harmless": {"user": "u"}}),
])  # fmt: skip
def test_fields_of_responses_and_embeddings(training_server, route, kind, table):
    assert set(typing.get_type_hints(kind)) <= set().union(*table.values()), set(typing.get_type_hints(kind)) - set().union(*table.values())
    body = {"input": "a"} if route == "/v1/responses" else {"input": [5, 6]}
    base = refusal(training_server, route, body)
    for group, fields in table.items():
        for field, value in fields.items():
            said = refusal(training_server, route, {**body, field: value})
            if group == "harmless":
                assert said == base and field in documented(), (field, said)
            else:
                assert said is not None and said != base and is_in(said[0], field), (field, said)
            misspelt = refusal(training_server, route, {**body, field + "z": 1})
            assert misspelt is not None and misspelt[0] == field + "z", (field, misspelt)


# --- protobuf

def batch(wire, **changes):
    message = pb.ForwardBackwardRequest(model_id=wire.model, seq_id=wire.number, loss_fn="cross_entropy")
    datum = message.data.add()
    datum.model_input.add().encoded_text.tokens = b"".join(t.to_bytes(4, "little") for t in TOKENS[:-1])
    targets = datum.loss_fn_inputs["target_tokens"]
    targets.dtype, targets.dense = pb.DTYPE_INT64, b"".join(t.to_bytes(8, "little") for t in TOKENS[1:])
    targets.shape.append(len(TOKENS) - 1)
    return message


def result_of(wire, message):
    """None: done; else the error, at once or as the operation's result."""
    answer = wire.client.raw("forward_backward", data=message if isinstance(message, bytes) else message.SerializeToString(), headers={"Content-Type": "application/x-protobuf"})
    told = answer.json()
    if answer.status_code != 200:
        return told.get("detail") or told["error"]["message"]
    wire.number += 1
    result = wire.client.result(told["request_id"])
    return result["error"] if isinstance(result, dict) and "error" in result else None


def sparse(message):
    weights = message.data[0].loss_fn_inputs["weights"]
    weights.dtype = pb.DTYPE_FLOAT32
    weights.shape.extend([len(TOKENS) - 1, 1])
    return weights


def set_spans(field):
    def change(m):
        for other in ("model_input_spans", "loss_fn_input_spans"):
            span = getattr(m.data[0], other).add().prompt_tokens
            span.sequence_id, span.length = "s", len(TOKENS) - 1
    return change


def change_to(text):
    """A function that runs `text` with the message m."""
    return lambda m: exec(text, {"m": m, "pb": pb, "sparse": sparse})  # noqa: S102


# message.field -> (change, what its error says), or "harmless", or "inside" of one that is refused or harmless.
FIELDS = {
    "ForwardBackwardRequest.model_id": (change_to("m.model_id = 'absent'"), "absent"),
    "ForwardBackwardRequest.seq_id": (change_to("m.seq_id = -5"), "-5"),
    "ForwardBackwardRequest.data": (change_to("del m.data[:]"), "data"),
    "ForwardBackwardRequest.loss_fn": (change_to("m.loss_fn = 'nonsense'"), "nonsense"),
    "ForwardBackwardRequest.loss_fn_config": (change_to("m.loss_fn_config['nonsense'] = 1"), "nonsense"),
    "ForwardBackwardRequest.loss_fn_config_v2": (change_to("m.loss_fn_config_v2['nonsense'].number = 1"), "nonsense"),
    "ForwardBackwardRequest.forward_only": "by its effect",
    "LossConfigValue.number": (change_to("m.loss_fn_config_v2['nonsense'].number = 1"), "nonsense"),
    "LossConfigValue.text": (change_to("m.loss_fn_config_v2['nonsense'].text = 'a'"), "nonsense"),
    "Datum.model_input": (change_to("del m.data[0].model_input[:]"), "data[0]"),
    "Datum.loss_fn_inputs": (change_to("m.data[0].loss_fn_inputs.clear()"), "target_tokens"),
    "Datum.model_input_spans": "harmless",
    "Datum.loss_fn_input_spans": "harmless",
    "ProvenanceSpan.prompt_tokens": "inside",
    "ProvenanceSpan.sampled_tokens": "inside",
    **{f"{kind}ProvenanceSpan.{field}": "inside" for kind in ("Prompt", "Sampled") for field in ("sequence_id", "offset", "length")},
    "Chunk.encoded_text": (change_to("m.data[0].model_input[0].encoded_text.tokens = b'abc'"), "model_input.chunks[0]"),
    "Chunk.image": (change_to("m.data[0].model_input[0].image.data = b'abc'"), "model_input.chunks[0]"),
    "Chunk.dmel": (change_to("m.data[0].model_input[0].dmel.dmel = b'abc'"), "model_input.chunks[0]"),
    "EncodedTextChunk.tokens": (change_to("m.data[0].model_input[0].encoded_text.tokens = b'abc'"), "tokens"),
    **{f"ImageChunk.{field}": "inside" for field in ("data", "format", "expected_tokens", "override_dimensions")},
    **{f"ImageDimensions.{field}": "inside" for field in ("width", "height")},
    "DmelChunk.dmel": "inside",
    "Tensor.dense": (change_to("m.data[0].loss_fn_inputs['target_tokens'].dense = b'abc'"), "target_tokens"),
    "Tensor.sparse_csr": (change_to("sparse(m).sparse_csr.values = b'abcd'"), "weights"),
    "Tensor.dtype": (change_to("m.data[0].loss_fn_inputs['target_tokens'].dtype = pb.DTYPE_BFLOAT16"), "dtype"),
    "Tensor.shape": (change_to("m.data[0].loss_fn_inputs['target_tokens'].shape[0] = 99"), "target_tokens"),
    "SparseCsr.values": (change_to("sparse(m).sparse_csr.values = b'abc'"), "weights.values"),
    "SparseCsr.crow_indices": (change_to("sparse(m).sparse_csr.crow_indices = b'abc'"), "weights.crow_indices"),
    "SparseCsr.col_indices": (change_to("sparse(m).sparse_csr.col_indices = b'abc'"), "weights.col_indices"),
}  # fmt: skip


def fields_of_messages(descriptor, found=None):
    found = {} if found is None else found
    for field in descriptor.fields:
        inner = field.message_type
        if inner is not None and inner.GetOptions().map_entry:
            inner = inner.fields_by_name["value"].message_type
        found[f"{descriptor.name}.{field.name}"] = field
        if inner is not None and not any(name.startswith(inner.name + ".") for name in found):
            fields_of_messages(inner, found)
    return found


def test_protobuf_bodies(wire):
    assert set(fields_of_messages(pb.ForwardBackwardRequest.DESCRIPTOR)) == set(FIELDS), set(fields_of_messages(pb.ForwardBackwardRequest.DESCRIPTOR)) ^ set(FIELDS)
    assert result_of(wire, batch(wire)) is None
    unread = []
    for name, expected in FIELDS.items():
        message = batch(wire)
        if expected == "harmless":
            set_spans(name)(message)
            said = result_of(wire, message)
            if said is not None or name.partition(".")[2] not in documented():
                unread.append((name, said))
        elif isinstance(expected, tuple):
            expected[0](message)
            said = result_of(wire, message)
            if said is None or expected[1] not in said:
                unread.append((name, said))
    assert not unread, unread


def test_forward_only_has_no_gradient(wire):
    model = wire.client.model(720)
    def run(number, only):
        message = batch(wire)
        message.model_id, message.seq_id, message.forward_only = model, number, only
        answer = wire.client.raw("forward_backward", data=message.SerializeToString(), headers={"Content-Type": "application/x-protobuf"})
        assert isinstance(wire.client.result(answer.json()["request_id"]), bytes)
        return wire.client.result(wire.client.step(model, number + 1))
    assert "error" in run(1, True)
    assert "error" not in run(3, False)


def test_a_field_that_a_message_does_not_have(wire):
    """Of a newer package, say: what it asks for would not be done."""
    message = batch(wire).SerializeToString()
    strange = b"\xfa\x06\x01x"  # field 111
    assert result_of(wire, message + strange) == "ForwardBackwardRequest has a field 111 that is not known"
    chunk = batch(wire)
    tokens = chunk.data[0].model_input[0].encoded_text.SerializeToString()
    inner = b"\x0a" + bytes([len(tokens) + len(strange)]) + tokens + strange
    datum = b"\x0a" + bytes([len(inner)]) + inner
    del chunk.data[:]
    assert result_of(wire, chunk.SerializeToString() + b"\x1a" + bytes([len(datum)]) + datum) == "EncodedTextChunk has a field 111 that is not known"
    assert result_of(wire, batch(wire)) is None


def test_nodes_of_a_custom_loss_that_take_nothing(wire):
    for node, field, value, said in ((0, "args", [1.0], "is a placeholder with args or kwargs"), (0, "kwargs", {"a": 1}, "is a placeholder with args or kwargs"), (2, "kwargs", {"a": 1}, "is the output with kwargs")):
        assert said in wire.said("create_custom_loss", put(custom_loss(wire), f"graph.nodes.{node}", field, value))


# --- paths

ACCOUNT = "/v1/accounts/local/"
# name -> [(method, path, values that are taken, values that are not, None: harmless)]
QUERY = {
    "access_scope": [("GET", "/api/v1/training_runs", ["owned", "accessible"], ["all"]), ("GET", "/api/v1/training_runs/{model}", ["owned"], ["all"]), ("GET", "/api/v1/sessions", ["owned"], ["all"]),
                     ("GET", "/api/v1/sessions/{session}", ["owned"], ["all"])],
    "limit": [("GET", "/api/v1/training_runs", ["2"], ["-1", "x"]), ("GET", "/api/v1/checkpoints", ["2"], ["x"]), ("GET", "/api/v1/sessions", ["2"], ["x"])],
    "offset": [("GET", "/api/v1/training_runs", ["0"], ["-1", "x"]), ("GET", "/api/v1/checkpoints", ["0"], ["x"]), ("GET", "/api/v1/sessions", ["0"], ["x"])],
    "project_id": [("GET", "/api/v1/training_runs", ["p"], []), ("GET", "/api/v1/billing/usage/checkpoints/current", ["p"], [])],
    "pageSize": [("GET", "/v1/accounts", ["2"], ["x"]), *[("GET", ACCOUNT + name, ["2"], ["x"]) for name in ("deployments", "rlorTrainerJobs", "models", "trainingSessions", "rlorTrainerJobs/nested/checkpoints",
                                                                                                             "trainingShapes/countdown-glm-cpu/versions")]],
    "pageToken": [("GET", ACCOUNT + name, ["0"], ["x"]) for name in ("deployments", "rlorTrainerJobs", "models", "trainingSessions")],
    "filter": [("GET", ACCOUNT + "trainingShapes/countdown-glm-cpu/versions", ["latest_validated=true"], ["latest_validated=false"])],
    "rlorTrainerJobId": [("POST", ACCOUNT + "rlorTrainerJobs", ["query-{n}"], [])],
    "trainingShape": [("POST", ACCOUNT + "rlorTrainerJobs", ["accounts/local/trainingShapes/countdown-glm-cpu/versions/1"], ["accounts/local/trainingShapes/none/versions/1"])],
    "skipValidations": [("POST", ACCOUNT + "rlorTrainerJobs", ["true", "false"], ["maybe"])],
    "deploymentId": [("POST", ACCOUNT + "rlorTrainerJobs", ["d"], None), ("POST", ACCOUNT + "deployments", ["query-{n}"], [])],
    "skipShapeValidation": [("POST", ACCOUNT + "deployments?deploymentId=q1-{n}", ["true"], None)],
    "acceptShapelessRisk": [("POST", ACCOUNT + "deployments?deploymentId=q2-{n}", ["true"], None)],
    "disableSpeculativeDecoding": [("POST", ACCOUNT + "deployments?deploymentId=q3-{n}", ["true", "false"], ["maybe"])],
    "ignoreChecks": [("DELETE", ACCOUNT + "deployments/none", ["true"], None)], "hard": [("DELETE", ACCOUNT + "deployments/none", ["true", "false"], None)],
    "updateMask": [("PATCH", ACCOUNT + "deployments/nested", ["description"], ["nonsense"])],
    "include": [], "include_obfuscation": [("GET", "/v1/responses/none", ["false"], None)], "starting_after": [], "stream": [("GET", "/v1/responses/none", ["false"], ["true"])],
    "after": [("GET", "/v1/responses/none/input_items", ["i"], [])], "order": [("GET", "/v1/responses/none/input_items", ["asc"], [])],
    "event_type": [], "day": [], "starting_on": [], "ending_before": [],  # of routes that are refused
}  # fmt: skip


def sent_by_the_packages():
    """Names of query parameters, from the packages' types, and where they have none, from their source."""
    names = set()
    for kind in (response_retrieve_params.ResponseRetrieveParamsStreaming, input_item_list_params.InputItemListParams):
        names |= set(typing.get_type_hints(kind))
    for kind in (tinker.types.billing_usage_request.GetBillingUsageRequest, tinker.types.current_checkpoint_storage_usage_request.GetCurrentCheckpointStorageUsageRequest):
        names |= set(kind.model_fields)
    for file in (Path(tinker.__file__).parent / "lib/public_interfaces").glob("*.py"):
        for given in re.findall(r"params(?:\"|')?\s*[:=][^{\n]*(\{.*?\})", file.read_text(), re.DOTALL):
            names |= set(re.findall(r'"(\w+)":', given))
        names |= set(re.findall(r'params\["(\w+)"\]', file.read_text()))
    for file in Path(fireworks.training.sdk.deployment.__file__).parent.glob("*.py"):
        text = file.read_text()
        names |= set(re.findall(r'query_params\.append\(\("(\w+)"', text)) | set(re.findall(r'[?&](\w+)=(?:true|\{|\d)', text)) | set(re.findall(r'query(?:: dict\[str, str\] = \{|\[)"(\w+)"', text))
        names |= set(re.findall(r'params=\{"(\w+)"', text)) | set(re.findall(r'params\.append\("(\w+)=', text)) | {name for given in re.findall(r"urlencode\((\{.*?\})\)", text) for name in re.findall(r"'(\w+)':", given)}
    return names


def test_the_packages_send_what_is_known():
    assert sent_by_the_packages() == set(QUERY), sent_by_the_packages() ^ set(QUERY)


def test_query_parameters(wire):
    headers = {"X-API-Key": wire.client.key}
    requests.post(wire.root + ACCOUNT + "deployments?deploymentId=nested", json={"baseModel": BASE}, headers=headers, timeout=60)
    requests.post(wire.root + ACCOUNT + "rlorTrainerJobs?rlorTrainerJobId=nested&skipValidations=true", json={"serviceMode": True, "trainingConfig": {"baseModel": BASE}}, headers=headers, timeout=60)
    count, wrong = 0, []

    def said(method, path, name, value):
        nonlocal count
        count += 1
        path = path.format(model=wire.model, session=wire.client.session, n=count)
        body = None if method == "GET" else {"description": "d"} if method == "PATCH" else {"baseModel": BASE} if "deployments" in path else {"serviceMode": True, "trainingConfig": {"baseModel": BASE}}
        answer = requests.request(method, wire.root + path, params={name: value.format(n=count)}, json=body, headers=headers, timeout=60)
        told = answer.json()
        return None if answer.status_code == 200 else told.get("detail") or told["error"]["message"]

    for name, rows in QUERY.items():
        for method, path, taken, refused in rows:
            misspelt = said(method, path, name + "z", "1")
            if misspelt is None or f"unknown query parameter '{name}z'" not in misspelt:
                wrong.append((path, name, "misspelt", misspelt))
            for value in taken:
                if (answer := said(method, path, name, value)) is not None and ("/none" not in path or "query parameter" in answer):
                    wrong.append((path, name, value, answer))
            if refused is None and name not in documented():
                wrong.append((name, "is on no list"))
            for value in refused or []:
                if (answer := said(method, path, name, value)) is None or (name not in answer and value.split("/")[-3 if "/" in value else 0] not in answer):
                    wrong.append((path, name, value, answer))
    assert not wrong, wrong
    for path in ("/api/v1/get_server_capabilities", "/api/v1/healthz", "/v1/models", "/hot_load/v1/models/hot_load", f"/api/v1/training_runs/{wire.model}/checkpoints"):
        assert "unknown query parameter 'x'" in json.dumps(requests.get(wire.root + path, params={"x": 1}, headers={**headers, "fireworks-deployment": "accounts/local/deployments/nested"}, timeout=60).json()), path


def test_a_mask_says_which_fields_change(wire):
    headers, url = {"X-API-Key": wire.client.key}, wire.root + ACCOUNT + "deployments"
    requests.post(url, params={"deploymentId": "masked"}, json={"baseModel": BASE, "description": "first", "minReplicaCount": 1, "maxReplicaCount": 2}, headers=headers, timeout=60)

    def patched(body, **query):
        answer = requests.patch(url + "/masked", params=query, json=body, headers=headers, timeout=60).json()
        return answer["description"], answer["minReplicaCount"], answer["maxReplicaCount"]

    assert patched({"description": "no", "minReplicaCount": 5}, updateMask="min_replica_count") == ("first", 5, 2)
    assert patched({"description": "second"}, updateMask="description,max_replica_count") == ("second", 5, 0)  # in the mask and not in the body: emptied
    assert patched({"maxReplicaCount": 3, "description": None}) == ("second", 5, 3)
