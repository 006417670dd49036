"""POST /v1/responses and what is kept of it, through the `openai` package, on the shipped model with a chat template of the test's own."""
import itertools
import json

import openai
import pydantic
import pytest
import requests

MODEL = "countdown-chat"
TEXT = "3 7 12=48:"
ADD = {"type": "function", "name": "add", "description": "adds", "strict": False, "parameters": {
    "type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}, "b": {"enum": [1, 2, 3]}},
    "required": ["a", "b"], "additionalProperties": False}}


@pytest.fixture
def client(chat_server):
    with openai.OpenAI(base_url=chat_server.url + "/v1", api_key="none", max_retries=0, timeout=120) as one:
        yield one


def create(client, **fields):
    return client.responses.create(**{"model": MODEL, "input": TEXT, "max_output_tokens": 16, "temperature": 0, **fields})


def bare(response):
    """What does not differ between two equal requests: no ids, no times, no cache."""
    told = response.model_dump()
    for name in ("id", "created_at", "usage"):
        told.pop(name)
    for item in told["output"]:
        item.pop("id")
    return told


def test_a_response_says_what_chat_says(client):
    chat = client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": TEXT}], max_tokens=16, temperature=0, seed=1)
    response = create(client, extra_body={"seed": 1})
    assert response.object == "response" and response.model == MODEL and response.id.startswith("resp_")
    assert response.output_text == chat.choices[0].message.content
    cut = chat.choices[0].finish_reason == "length"
    assert response.status == ("incomplete" if cut else "completed")
    assert (response.incomplete_details.reason if cut else response.incomplete_details) == ("max_output_tokens" if cut else None)
    assert response.usage.input_tokens == chat.usage.prompt_tokens and response.usage.output_tokens == chat.usage.completion_tokens
    assert response.usage.total_tokens == chat.usage.total_tokens
    assert response.weights_version == 0 and response.seed == 1 and response.profile == chat.profile
    assert type(response).model_validate(response.model_dump(mode="json"))


def test_instructions_stand_first(client):
    chat = client.chat.completions.create(model=MODEL, messages=[{"role": "system", "content": "7"}, {"role": "user", "content": TEXT}], max_tokens=16, temperature=0)
    response = create(client, instructions="7")
    assert response.output_text == chat.choices[0].message.content and response.usage.input_tokens == chat.usage.prompt_tokens
    assert response.instructions == "7"
    assert create(client).usage.input_tokens < response.usage.input_tokens


@pytest.mark.parametrize("fields", [{}, {"tools": [ADD], "tool_choice": "required", "max_output_tokens": 60}], ids=["text", "call"])
def test_a_stream_makes_the_whole_answer(client, fields):
    whole = create(client, extra_body={"seed": 3}, **fields)
    events = list(create(client, stream=True, extra_body={"seed": 3}, **fields))
    assert [e.sequence_number for e in events] == list(range(len(events)))
    assert [e.type for e in events[:3]] == ["response.created", "response.in_progress", "response.output_item.added"]
    assert events[-1].type == "response." + whole.status
    assert bare(events[-1].response) == bare(whole)
    texts = {}
    for event in events:
        if event.type.endswith(".delta"):
            texts[event.item_id] = texts.get(event.item_id, "") + event.delta
    for item in events[-1].response.output:
        assert texts.get(item.id, "") == (item.arguments if item.type == "function_call" else item.content[0].text)
    done = [e.item.model_dump() for e in events if e.type == "response.output_item.done"]
    assert done == [item.model_dump() for item in events[-1].response.output]
    with client.responses.stream(model=MODEL, input=TEXT, max_output_tokens=fields.get("max_output_tokens", 16), temperature=0, extra_body={"seed": 3},
                                 **{k: v for k, v in fields.items() if k != "max_output_tokens"}) as stream:
        kinds = [event.type for event in stream]
    runs = lambda all_kinds: [kind for kind, _ in itertools.groupby(all_kinds)]  # noqa: E731  in how many parts a text comes depends on the engine's steps
    assert runs(kinds) == runs(event.type for event in events)


def test_a_call_and_its_output(client):
    response = create(client, tools=[ADD], tool_choice="required", parallel_tool_calls=False, max_output_tokens=120)
    assert response.status == "completed"
    (call,) = [item for item in response.output if item.type == "function_call"]
    arguments = json.loads(call.arguments)
    assert call.name == "add" and 0 <= arguments["a"] <= 99 and arguments["b"] in (1, 2, 3)
    talk = [{"role": "user", "content": TEXT}, *response.output, {"type": "function_call_output", "call_id": call.call_id, "output": "7"}]
    second = create(client, input=talk, tools=[ADD])
    chat = client.chat.completions.create(model=MODEL, max_tokens=16, temperature=0, tools=[{"type": "function", "function": {k: v for k, v in ADD.items() if k != "type"}}], messages=[
        {"role": "user", "content": TEXT},
        {"role": "assistant", "content": "", "tool_calls": [{"id": call.call_id, "type": "function", "function": {"name": "add", "arguments": call.arguments}}]},
        {"role": "tool", "tool_call_id": call.call_id, "content": "7"}])
    assert second.usage.input_tokens == chat.usage.prompt_tokens
    assert second.output_text == (chat.choices[0].message.content or "")
    named = create(client, tools=[ADD], tool_choice={"type": "function", "name": "add"}, parallel_tool_calls=False, max_output_tokens=120)
    assert [item.name for item in named.output if item.type == "function_call"] == ["add"]


class Pair(pydantic.BaseModel):
    a: int = pydantic.Field(ge=0, le=9)
    b: bool


def test_structured_output(client):
    parsed = client.responses.parse(model=MODEL, input=TEXT, text_format=Pair, max_output_tokens=60)
    assert isinstance(parsed.output_parsed, Pair)
    schema = {"type": "object", "properties": {"a": {"const": 5}}, "required": ["a"], "additionalProperties": False}
    told = create(client, text={"format": {"type": "json_schema", "name": "x", "schema": schema, "strict": True}}, max_output_tokens=60)
    assert json.loads(told.output_text) == {"a": 5} and told.text.format.name == "x"


def test_a_stored_response_is_continued_read_and_deleted(client):
    first = create(client, metadata={"topic": "sums"}, instructions="not for the next")
    second = create(client, input="and now?", previous_response_id=first.id)
    whole = create(client, input=[{"role": "user", "content": TEXT}, {"role": "assistant", "content": first.output_text}, {"role": "user", "content": "and now?"}])
    assert second.output_text == whole.output_text and second.usage.input_tokens == whole.usage.input_tokens
    assert second.previous_response_id == first.id
    read = client.responses.retrieve(first.id)
    assert read.model_dump() == first.model_dump() and read.metadata == {"topic": "sums"}
    (item,) = client.responses.input_items.list(first.id).data
    assert item.role == "user" and item.content[0].text == TEXT
    client.responses.delete(first.id)
    for gone in (lambda: client.responses.retrieve(first.id), lambda: client.responses.delete(first.id), lambda: client.responses.input_items.list(first.id)):
        with pytest.raises(openai.NotFoundError):
            gone()
    with pytest.raises(openai.BadRequestError, match="previous_response_id"):
        create(client, previous_response_id=first.id)
    unkept = create(client, store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(unkept.id)


def test_input_items_come_in_pages(client):
    response = create(client, input=[{"role": "user", "content": str(i)} for i in range(5)])
    page = client.responses.input_items.list(response.id, limit=2, order="asc")
    assert page.has_more and [i.content[0].text for i in page.data] == ["0", "1"]
    assert [i.content[0].text for i in page] == [str(i) for i in range(5)]
    assert [i.content[0].text for i in client.responses.input_items.list(response.id)] == [str(i) for i in reversed(range(5))]


def test_a_response_belongs_to_its_key(own_server, chat_folder, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("ann secret-of-ann-000001\nbob secret-of-bob-000001\n")
    keys.chmod(0o600)
    server = own_server("--api-key-file", str(keys), model=chat_folder)
    ann, bob = (openai.OpenAI(base_url=server.url + "/v1", api_key=f"secret-of-{name}-000001", max_retries=0) for name in ("ann", "bob"))
    response = create(ann)
    assert ann.responses.retrieve(response.id).id == response.id
    for other in (lambda: bob.responses.retrieve(response.id), lambda: bob.responses.delete(response.id)):
        with pytest.raises(openai.NotFoundError):
            other()
    with pytest.raises(openai.BadRequestError):
        create(bob, previous_response_id=response.id)
    assert ann.responses.retrieve(response.id).id == response.id


def test_a_key_keeps_its_last_responses(client):
    first = create(client, max_output_tokens=1)
    touched = create(client, max_output_tokens=1)
    session = requests.Session()
    for i in range(1000):
        assert session.post(f"{client.base_url}responses", json={"input": "1", "max_output_tokens": 1}).status_code == 200
        if i == 500:
            client.responses.retrieve(touched.id)
    assert client.responses.retrieve(touched.id).id == touched.id
    with pytest.raises(openai.NotFoundError, match="1000"):
        client.responses.retrieve(first.id)


@pytest.mark.parametrize("fields, param", [
    ({"background": True}, "background"), ({"conversation": "conv_1"}, "conversation"), ({"truncation": "auto"}, "truncation"),
    ({"include": ["reasoning.encrypted_content"]}, "include"), ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ({"tools": [{**ADD, "name": "a b"}]}, "tools[0].name"), ({"tool_choice": {"type": "function", "name": "no"}, "tools": [ADD]}, "tool_choice.name"),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input[0].content[0].type"),
    ({"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{"}]}, "input[0].arguments"),
    ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"), ({"input": []}, "input"),
    ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema"),
    ({"text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "array", "uniqueItems": True}}}}, "text.format.schema"),
    ({"max_output_tokens": 0}, "max_output_tokens"), ({"max_output_tokens": 100000}, "max_output_tokens"), ({"metadata": {"a": 1}}, "metadata.a"),
    ({"reasoning": {"summary": "detailed"}}, "reasoning.summary"), ({"max_tokens": 5}, "max_tokens")])
def test_what_is_not_there_is_refused_by_name(client, fields, param):
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(**{"model": MODEL, "input": TEXT, "max_output_tokens": 16, "extra_body": fields})
    assert refused.value.param == param, refused.value.message
    assert param in refused.value.message


def test_defaults_spelled_out_are_taken(client):
    create(client, extra_body={**dict.fromkeys(["conversation", "prompt", "moderation", "max_tool_calls", "context_management", "previous_response_id", "instructions", "reasoning"]),
                               "background": False, "truncation": "disabled", "include": [], "top_logprobs": 0, "tool_choice": "auto", "tools": [], "parallel_tool_calls": True,
                               "service_tier": "auto", "user": "u", "text": {"verbosity": "medium"}, "prompt_cache_options": {}})
