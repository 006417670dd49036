"""POST /v1/chat/completions through the `openai` package, on the shipped model with a chat template of the test's own."""
import asyncio
import json
import shutil
import types
import typing

import jsonschema
import openai
import pydantic
import pytest
import requests

MODEL = "countdown-chat"
MESSAGES = [{"role": "user", "content": "3 7 12=48:"}]
ADD = {"type": "function", "function": {"name": "add", "description": "adds", "parameters": {
    "type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}, "b": {"enum": [1, 2, 3]}},
    "required": ["a", "b"], "additionalProperties": False}}}
SAY = {"type": "function", "function": {"name": "say", "parameters": {
    "type": "object", "properties": {"text": {"type": "string", "maxLength": 5}}, "required": ["text"], "additionalProperties": False}}}


@pytest.fixture
def client(chat_server):
    with openai.OpenAI(base_url=chat_server.url + "/v1", api_key="none", max_retries=0, timeout=120) as one:
        yield one


def chat(client, **fields):
    return client.chat.completions.create(**{"model": MODEL, "messages": MESSAGES, "max_tokens": 16, "seed": 1, **fields})


def gathered(stream):
    """What a client makes of a stream: (message, finish, logprobs) a choice, and the usage."""
    choices, usage = {}, None
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            one = choices.setdefault(choice.index, {"role": None, "content": "", "reasoning": "", "calls": {}, "finish": None, "logprobs": []})
            delta = choice.delta
            assert (delta.role is not None) == (one["role"] is None)
            one["role"] = one["role"] or delta.role
            one["content"] += delta.content or ""
            one["reasoning"] += getattr(delta, "reasoning_content", None) or ""
            for call in delta.tool_calls or []:
                known = one["calls"].setdefault(call.index, {"id": "", "name": "", "arguments": ""})
                known["id"] += call.id or ""
                known["name"] += call.function.name or ""
                known["arguments"] += call.function.arguments or ""
            if choice.logprobs:
                one["logprobs"] += choice.logprobs.content
            one["finish"] = choice.finish_reason or one["finish"]
    return choices, usage


def told(answer):
    """The same of a whole answer."""
    return {c.index: {"role": c.message.role, "content": c.message.content or "", "reasoning": getattr(c.message, "reasoning_content", None) or "",
                      "calls": {i: {"id": t.id, "name": t.function.name, "arguments": t.function.arguments} for i, t in enumerate(c.message.tool_calls or [])},
                      "finish": c.finish_reason, "logprobs": c.logprobs.content if c.logprobs else []} for c in answer.choices}


def test_models_can_chat(client):
    assert client.models.retrieve(MODEL).chat is True


def test_an_answer(client):
    answer = chat(client, temperature=0)
    assert answer.object == "chat.completion" and answer.model == MODEL and answer.id.startswith("chatcmpl-")
    assert answer.choices[0].message.role == "assistant" and answer.choices[0].finish_reason in ("stop", "length")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.weights_version == 0 and len(answer.profile) == 16 and answer.seed == 1
    assert answer.system_fingerprint == f"fp_{answer.profile}_0"


def test_cached_tokens_are_told(client):
    messages = [{"role": "user", "content": "say nothing of 3 7 12=48 to anybody but me and only once"}]
    chat(client, messages=messages)
    assert chat(client, messages=messages).usage.prompt_tokens_details.cached_tokens >= 16


@pytest.mark.parametrize("fields", [
    {}, {"n": 3}, {"stop": ["1", "2"]}, {"logprobs": True, "top_logprobs": 3}, {"temperature": 0}, {"max_tokens": 0},
    {"extra_body": {"chat_template_kwargs": {"enable_thinking": True}}},
    {"response_format": {"type": "json_object"}, "max_tokens": 60},
    {"tools": [ADD], "tool_choice": {"type": "function", "function": {"name": "add"}}, "max_tokens": 60},
    {"tools": [ADD, SAY], "tool_choice": "required", "max_tokens": 90, "n": 2},
    {"tools": [ADD]},
], ids=str)
def test_streams_are_the_whole_answer(client, fields):
    whole = chat(client, **fields)
    choices, usage = gathered(chat(client, **fields, stream=True, stream_options={"include_usage": True}))
    assert choices == told(whole)
    assert usage.completion_tokens == whole.usage.completion_tokens and usage.prompt_tokens == whole.usage.prompt_tokens


def test_tokens_in_and_out(client):
    first = chat(client, extra_body={"return_token_ids": True})
    again = chat(client, messages=[], extra_body={"prompt_token_ids": first.prompt_token_ids, "return_token_ids": True})
    assert again.choices[0].token_ids == first.choices[0].token_ids and again.prompt_token_ids == first.prompt_token_ids
    ids = client.post("/tokenize", cast_to=object, body={"model": MODEL, "messages": MESSAGES})["tokens"]
    assert ids == first.prompt_token_ids
    # The same tokens as a completion have the same log-probabilities.
    chatted = chat(client, logprobs=True, extra_body={"return_token_ids": True}).choices[0]
    completed = client.completions.create(model=MODEL, prompt=ids, max_tokens=16, seed=1, logprobs=0).choices[0]
    assert completed.token_ids == chatted.token_ids
    assert completed.logprobs.token_logprobs == [t.logprob for t in chatted.logprobs.content]


def test_logprobs(client):
    choice = chat(client, logprobs=True, top_logprobs=5, temperature=0).choices[0]
    for token in choice.logprobs.content:
        assert token.logprob == max(t.logprob for t in token.top_logprobs) and len(token.top_logprobs) == 5
        assert bytes(token.bytes).decode("utf-8", "replace") == token.token
    assert chat(client).choices[0].logprobs is None


def test_continue_the_last_message(client):
    begun = [*MESSAGES, {"role": "assistant", "content": "3*12"}]
    ids = client.post("/tokenize", cast_to=object, body={"model": MODEL, "messages": begun, "continue_final_message": True})["tokens"]
    text = client.post("/detokenize", cast_to=object, body={"tokens": ids})["prompt"]
    assert text.endswith("3*12")
    answer = chat(client, messages=begun, extra_body={"continue_final_message": True, "return_token_ids": True})
    assert answer.prompt_token_ids == ids


def test_reasoning(client):
    """An answer that begins inside of <think> is reasoning until it says otherwise."""
    answer = chat(client, extra_body={"chat_template_kwargs": {"enable_thinking": True}, "ignore_eos": True})
    assert answer.choices[0].message.reasoning_content and not answer.choices[0].message.content
    assert answer.usage.completion_tokens_details.reasoning_tokens > 0


SCHEMAS = [
    {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 999}, "b": {"type": "boolean"}}, "required": ["a", "b"],
     "additionalProperties": False},
    {"enum": ["red", "green", {"x": [1, None]}]},
    {"type": "array", "items": {"enum": [1, 2, 3]}, "minItems": 2, "maxItems": 4},
    {"type": "string", "pattern": "^[a-c]{2,4}$"},
    {"$defs": {"leaf": {"type": "object", "properties": {"v": {"enum": [0, 1]}}, "required": ["v"], "additionalProperties": False}},
     "type": "array", "items": {"$ref": "#/$defs/leaf"}, "minItems": 1, "maxItems": 2},
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
@pytest.mark.parametrize("temperature", [0, 1, 3])
def test_json_schema(client, schema, temperature):
    answer = chat(client, temperature=temperature, max_tokens=120, n=2, logprobs=True, extra_body={"return_token_ids": True},
                  response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}})
    for choice in answer.choices:
        assert choice.finish_reason == "stop", choice.message.content
        jsonschema.validate(json.loads(choice.message.content), schema)
        assert all(t.logprob <= 0 for t in choice.logprobs.content)


def test_json_object(client):
    for seed in range(8):
        choice = chat(client, seed=seed, max_tokens=200, temperature=0.8, response_format={"type": "json_object"}).choices[0]
        if choice.finish_reason == "stop":
            assert isinstance(json.loads(choice.message.content), dict)
        else:
            assert choice.message.content.startswith("{")


def test_a_schema_that_is_not_offered_names_its_field(client):
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "strin"}}})
    assert caught.value.param.startswith("response_format.json_schema.schema")


def test_log_probabilities_are_over_what_is_allowed(client):
    """One token allowed: its log-probability is 0."""
    choice = chat(client, logprobs=True, max_tokens=20, response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"const": 7}}}).choices[0]
    assert json.loads(choice.message.content) == 7
    assert choice.logprobs.content[-1].logprob == 0


def test_named_tool(client):
    for seed in range(4):
        choice = chat(client, seed=seed, tools=[ADD, SAY], tool_choice={"type": "function", "function": {"name": "add"}}, max_tokens=200).choices[0]
        assert choice.finish_reason == "tool_calls" and choice.message.content is None
        [call] = choice.message.tool_calls
        assert call.function.name == "add" and call.type == "function" and call.id.startswith("call_")
        jsonschema.validate(json.loads(call.function.arguments), ADD["function"]["parameters"])


def test_required_tools(client):
    schemas = {t["function"]["name"]: t["function"]["parameters"] for t in (ADD, SAY)}
    for seed in range(6):
        choice = chat(client, seed=seed, tools=[ADD, SAY], tool_choice="required", parallel_tool_calls=False, max_tokens=200).choices[0]
        assert choice.finish_reason == "tool_calls"
        [call] = choice.message.tool_calls
        jsonschema.validate(json.loads(call.function.arguments), schemas[call.function.name])


@pytest.fixture
def calling_server(chat_folder, tmp_path, own_server):
    """A model that has the family's mark of calls as one token, so that a bias makes it call."""
    folder = tmp_path / "countdown-chat"
    shutil.copytree(chat_folder, folder)
    text = (folder / "tokenizer.json").read_text()
    assert text.count('"<|reserved_0|>"') >= 1
    (folder / "tokenizer.json").write_text(text.replace('"<|reserved_0|>"', '"<tool_call>"'))
    server = own_server(model=folder)
    yield server
    assert server.stop() == 0, "".join(server.errors)


CALL_TOKEN = "504"


def strict(tool, value=True):
    return {"type": "function", "function": {**tool["function"], "strict": value}}


@pytest.mark.parametrize("stream", [False, True])
def test_strict_tools_hold_calls_that_the_model_begins_by_itself(calling_server, stream):
    client = openai.OpenAI(base_url=calling_server.url + "/v1", api_key="none", max_retries=0)
    schemas = {t["function"]["name"]: t["function"]["parameters"] for t in (ADD, SAY)}

    def called(seed, tools):
        arguments = dict(tools=tools, seed=seed, temperature=1, max_tokens=200, parallel_tool_calls=False, logit_bias={CALL_TOKEN: 100})
        if not stream:
            return chat(client, **arguments).choices[0].message.tool_calls or []
        whole = {}
        for part in chat(client, stream=True, **arguments):
            for call in (part.choices[0].delta.tool_calls if part.choices else None) or []:
                known = whole.setdefault(call.index, types.SimpleNamespace(function=types.SimpleNamespace(name="", arguments="")))
                known.function.name += call.function.name or ""
                known.function.arguments += call.function.arguments or ""
        return list(whole.values())

    for seed in range(6):
        [call] = called(seed, [strict(ADD), SAY])
        jsonschema.validate(json.loads(call.function.arguments), schemas[call.function.name])
    # The same without the word: nothing holds them, and this model cannot write one.
    assert not any(call.function.name in schemas for seed in range(6) for call in called(seed, [strict(ADD, False), SAY]))


LLAMA = """{% if tools %}{"name": function name, "parameters": dictionary of argument name and its value}. {% for t in tools %}{{ t.function.name }} {% endfor %}{% endif %}
{% for m in messages %}{{ m.role }}: {{ m.content }}
{% endfor %}assistant: """


def test_strict_tools_of_a_family_whose_calls_have_no_mark(chat_folder, tmp_path, own_server):
    """What clients such as openai-agents send: strict tools that the model may call or not."""
    folder = tmp_path / "countdown-chat"
    shutil.copytree(chat_folder, folder)
    (folder / "chat_template.jinja").write_text(LLAMA)
    server = own_server(model=folder)
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
    [brace] = requests.post(server.url + "/v1/tokenize", json={"prompt": "{"}, timeout=60).json()["tokens"]
    for seed in range(4):
        begun = chat(client, tools=[strict(ADD)], seed=seed, max_tokens=200, parallel_tool_calls=False, logit_bias={str(brace): 100}).choices[0]
        jsonschema.validate(json.loads(begun.message.tool_calls[0].function.arguments), ADD["function"]["parameters"])
        assert begun.finish_reason == "tool_calls"
        text = chat(client, tools=[strict(ADD)], seed=seed, max_tokens=40, logit_bias={str(brace): -100}).choices[0]
        assert not text.message.tool_calls and text.message.content
    # The control: nothing holds them without the word, and this model cannot write one.
    assert not chat(client, tools=[strict(ADD, False)], seed=0, max_tokens=200, logit_bias={str(brace): 100}).choices[0].message.tool_calls


def test_strict_leaves_text_as_it_is(client):
    """No call is begun: the same tokens and, but for what no text holds, the same log-probabilities as without it."""
    free, held = (chat(client, tools=[strict(ADD, value)], seed=3, logprobs=True, extra_body={"return_token_ids": True}).choices[0] for value in (False, True))
    assert free.message.content == held.message.content and free.token_ids == held.token_ids
    assert [t.logprob for t in held.logprobs.content] == pytest.approx([t.logprob for t in free.logprobs.content], abs=1e-3)


def test_what_would_cut_a_grammar_is_refused(client):
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}}}
    for more in ({"response_format": schema}, {"tools": [ADD], "tool_choice": "required"}, {"tools": [strict(ADD)]}):
        with pytest.raises(openai.BadRequestError) as caught:
            chat(client, extra_body={"stop_token_ids": [102, 7]}, **more)  # the model's own end may be named
        assert caught.value.param == "stop_token_ids[1]"
        assert chat(client, extra_body={"stop_token_ids": [102]}, **more).choices[0].finish_reason
    with pytest.raises(openai.BadRequestError) as caught:  # what is JSON all through is not looked through for it (test_generation_config.py)
        chat(client, stop="a", tools=[strict(ADD)])
    assert caught.value.param == "stop" and "beside strict tools" in str(caught.value)


def test_strict_where_calls_have_no_mark_is_one_error(chat_folder, tmp_path, own_server):
    folder = tmp_path / "countdown-chat"
    shutil.copytree(chat_folder, folder)
    (folder / "chat_template.jinja").write_text("{% if tools %}{{ tools | length }} tools\n{% endif %}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: ")
    client = openai.OpenAI(base_url=own_server(model=folder).url + "/v1", api_key="none", max_retries=0)
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, tools=[SAY, strict(ADD)])
    assert caught.value.param == "tools[1].function.strict" and "tool_choice required" in str(caught.value)
    assert chat(client, tools=[strict(ADD)], tool_choice="required", max_tokens=200).choices[0].message.tool_calls


def test_a_tool_answer_goes_back(client):
    called = chat(client, tools=[ADD], tool_choice="required", parallel_tool_calls=False, max_tokens=200).choices[0].message
    talk = [*MESSAGES, called, {"role": "tool", "tool_call_id": called.tool_calls[0].id, "content": "4"}]
    assert chat(client, messages=talk, tools=[ADD]).choices[0].finish_reason in ("stop", "length")


def test_no_tools_when_none_are_to_be_called(client):
    assert chat(client, tools=[ADD], tool_choice="none").usage.prompt_tokens == chat(client).usage.prompt_tokens
    assert chat(client, tools=[ADD]).usage.prompt_tokens > chat(client).usage.prompt_tokens


REFUSALS = [
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "usr", "content": "a"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "messages[0].content[0].type"),
    ({"messages": [*MESSAGES, {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "["}}]}]},
     "messages[1].tool_calls[0].function.arguments"),
    ({"messages": [*MESSAGES, {"role": "tool", "content": "a"}]}, "messages[1].tool_call_id"),
    ({"messages": [{"role": "user", "content": "x" * 600}]}, "messages"),
    ({"max_completion_tokens": 100000, "max_tokens": openai.omit}, "max_completion_tokens"),
    ({"max_tokens": 600}, "max_tokens"),
    ({"temperature": 101}, "temperature"),
    ({"top_p": 1.5}, "top_p"),
    ({"n": 1000}, "n"),
    ({"presence_penalty": 2.5}, "presence_penalty"),
    ({"frequency_penalty": "x"}, "frequency_penalty"),
    ({"logit_bias": {"x": 1}}, "logit_bias"),
    ({"logit_bias": {"512": 1}}, "logit_bias"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 30}, "top_logprobs"),
    ({"stop": [""]}, "stop"),
    ({"stop": ["a"] * 17}, "stop"),
    ({"tools": [ADD, ADD]}, "tools[1].function.name"),
    ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools[0].custom"),
    ({"tools": [ADD], "tool_choice": {"type": "function", "function": {"name": "ad"}}}, "tool_choice.function.name"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"response_format": {"type": "json"}}, "response_format.type"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, "response_format.json_schema.schema"),
    ({"modalities": ["text", "audio"]}, "modalities"),
    ({"audio": {"voice": "alloy", "format": "wav"}}, "audio"),
    ({"web_search_options": {}}, "web_search_options"),
    ({"functions": [{"name": "f"}]}, "functions"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"extra_body": {"temprature": 1}}, "temprature"),
    ({"extra_body": {"prompt_token_ids": [1]}}, "prompt_token_ids"),
    ({"extra_body": {"prompt_token_ids": [600]}, "messages": []}, "prompt_token_ids"),
    ({"extra_body": {"stop_token_ids": [600]}}, "stop_token_ids"),
    ({"extra_body": {"min_p": -1}}, "min_p"),
    ({"extra_body": {"min_tokens": 17}}, "min_tokens"),
    ({"extra_body": {"continue_final_message": True}}, "messages[0].role"),
    ({"extra_body": {"chat_template_kwargs": {"tools": []}}}, "chat_template_kwargs.tools"),
]


@pytest.mark.parametrize("fields,param", REFUSALS, ids=str)
def test_bad_inputs_name_the_field(client, fields, param):
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, **fields)
    error = caught.value
    assert error.param == param and error.type == "invalid_request_error" and param.split("[")[0].split(".")[0] in error.message


def test_fields_without_effect_are_accepted(client):
    plain = told(chat(client))
    assert plain == told(chat(client, user="u", metadata={"a": "b"}, store=False, service_tier="auto", verbosity="medium", parallel_tool_calls=True,
                              safety_identifier="x", prompt_cache_key="k", modalities=["text"]))


class Colour(pydantic.BaseModel):
    name: typing.Literal["red", "green"]
    parts: list[typing.Literal[0, 1]] = pydantic.Field(max_length=3)


def test_the_clients_own_helpers(client):
    """parse() and stream(), with a schema that the client makes of a class."""
    parsed = client.chat.completions.parse(model=MODEL, messages=MESSAGES, seed=3, max_tokens=120, response_format=Colour).choices[0].message.parsed
    assert isinstance(parsed, Colour)
    with client.chat.completions.stream(model=MODEL, messages=MESSAGES, seed=3, max_tokens=120, response_format=Colour) as stream:
        text = "".join(event.delta for event in stream if event.type == "content.delta")
        final = stream.get_final_completion().choices[0]
    assert final.message.parsed == parsed and json.loads(text) == parsed.model_dump()
    tool = openai.pydantic_function_tool(Colour)
    with client.chat.completions.stream(model=MODEL, messages=MESSAGES, seed=3, max_tokens=150, tools=[tool], tool_choice="required",
                                        parallel_tool_calls=False) as stream:
        final = stream.get_final_completion().choices[0]
    assert isinstance(final.message.tool_calls[0].function.parsed_arguments, Colour)


def test_many_callers_of_one_client(chat_server):
    """The asynchronous client, 24 at once."""
    async def run():
        async with openai.AsyncOpenAI(base_url=chat_server.url + "/v1", api_key="none", max_retries=0, timeout=120) as client:
            return await asyncio.gather(*(client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=16, seed=s) for s in range(24)))

    together = asyncio.run(run())
    with openai.OpenAI(base_url=chat_server.url + "/v1", api_key="none", max_retries=0, timeout=120) as client:
        assert [told(a) for a in together] == [told(chat(client, seed=s)) for s in range(24)]
