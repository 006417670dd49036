"""Tool calls in the ways that model families write them, as the `openai` client's own streaming helper sees them."""
import json
import os
import shutil
import subprocess
from pathlib import Path

import jsonschema
import openai
import pydantic
import pytest
from conftest import MODEL, REPOSITORY
from test_chat import ADD, SAY

BINARIES = Path(os.environ.get("LOCKSTEP_BINARY", REPOSITORY / "build" / "lockstep")).resolve().parent


class Weather(pydantic.BaseModel):
    city: str
    days: int
    note: str


WANTED = Weather(city='St. "X"\nline', days=3, note="</t> \\ {}")
ARGUMENTS = json.dumps(WANTED.model_dump())
VALUES = {"city": WANTED.city, "days": "3", "note": WANTED.note}


def tags(begin, end, values=VALUES):
    return "".join(begin % key + value + end for key, value in values.items())


# What a model of each family writes (the shipped model's alphabet has no letters for DeepSeek's markers).
SAID = {
    "glm": ("glm", "I ask. <tool_call>Weather" + tags("\n<arg_key>%s</arg_key>\n<arg_value>", "</arg_value>") + "\n</tool_call>"),
    "qwen": ("qwen", 'I ask. <tool_call>\n{"name": "Weather", "arguments": ' + ARGUMENTS + "}\n</tool_call>"),
    "qwen-tags": ("qwen", "I ask. <tool_call>\n<function=Weather>" + tags("\n<parameter=%s>\n", "\n</parameter>") + "\n</function>\n</tool_call>"),
    "llama": ("llama", '{"name": "Weather", "parameters": ' + ARGUMENTS + "}"),
    "kimi": ("kimi", "I ask. <|tool_calls_section_begin|><|tool_call_begin|>functions.Weather:0<|tool_call_argument_begin|>" + ARGUMENTS
             + "<|tool_call_end|><|tool_calls_section_end|>"),
    "minimax": ("minimax", 'I ask. <minimax:tool_call>\n<invoke name="Weather">' + tags('\n<parameter name="%s">', "</parameter>") + "\n</invoke>\n</minimax:tool_call>"),
    "nemotron": ("nemotron", 'I ask. <TOOLCALL>[{"name": "Weather", "arguments": ' + ARGUMENTS + "}]</TOOLCALL>"),
}


@pytest.fixture(scope="module")
def said_server():
    program = BINARIES / "said_server"
    if not os.access(program, os.X_OK):
        pytest.fail(f"there is no said_server at {program}; build the tests first")
    process = subprocess.Popen([program, MODEL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    assert line.startswith("listening on http://"), line
    yield line.split()[-1]
    process.stdin.close()
    assert process.wait(timeout=30) == 0


@pytest.mark.parametrize("family", SAID)
def test_the_clients_stream_gathers_a_call(said_server, family):
    form, said = SAID[family]
    asked = {"model": "m", "messages": [{"role": "user", "content": said}], "tools": [openai.pydantic_function_tool(Weather)], "seed": 1,
             "extra_body": {"chat_template_kwargs": {"format": form}}}
    with openai.OpenAI(base_url=said_server + "/v1", api_key="none", max_retries=0, timeout=120) as client:
        pieces, deltas = [], 0
        with client.chat.completions.stream(**asked) as stream:
            for event in stream:
                if event.type == "tool_calls.function.arguments.delta":
                    pieces.append(event.arguments_delta)
                if event.type == "chunk" and event.chunk.choices and event.chunk.choices[0].delta.tool_calls:
                    deltas += 1
            final = stream.get_final_completion().choices[0]
        whole = client.chat.completions.create(**asked).choices[0]
    [call] = final.message.tool_calls
    assert call.function.name == "Weather" and call.function.parsed_arguments == WANTED
    assert final.finish_reason == "tool_calls" and (final.message.content or "") == ("" if family == "llama" else "I ask.")
    assert deltas > 20 and len([p for p in pieces if p]) > 20  # a letter at a time, nearly
    assert "".join(pieces) == call.function.arguments
    [same] = whole.message.tool_calls
    assert (same.id, same.function.name, same.function.arguments) == (call.id, call.function.name, call.function.arguments)
    assert (whole.message.content or "") == (final.message.content or "")


@pytest.mark.parametrize("family", SAID)
def test_a_call_that_is_cut_off_is_no_json(said_server, family):
    form, said = SAID[family]
    with openai.OpenAI(base_url=said_server + "/v1", api_key="none", max_retries=0, timeout=120) as client:
        asked = {"model": "m", "messages": [{"role": "user", "content": said}], "tools": [openai.pydantic_function_tool(Weather)], "seed": 1,
                 "extra_body": {"chat_template_kwargs": {"format": form}}}
        tokens = client.chat.completions.create(**asked).usage.completion_tokens
        # So many characters, and more tokens, stand behind the last letter of the last argument.
        choice = client.chat.completions.create(**asked, max_tokens=tokens - len(said) + said.rindex("t>")).choices[0]
    assert choice.finish_reason == "length"
    [call] = choice.message.tool_calls
    assert call.function.name == "Weather"
    with pytest.raises(json.JSONDecodeError):
        json.loads(call.function.arguments)


FORCED = {  # signs of the family in a template, and what a forced call begins with
    "<tool_call>": '<tool_call>\n{"name": "',
    "<TOOLCALL>": '<TOOLCALL>[{"name": "',
    "<|python_tag|>": '{"name": "',
    "<tool_call><function=": "<tool_call>\n<function=",
    "<arg_key>": "<tool_call>",
    "<minimax:tool_call>": '<minimax:tool_call>\n<invoke name="',
    "<|tool_calls_section_begin|>": "<|tool_calls_section_begin|><|tool_call_begin|>functions.",
    "tools": "[{",  # none: plain JSON
}


@pytest.mark.parametrize("sign", FORCED)
def test_forced_calls_are_written_as_the_family_does(tmp_path, own_server, sign):
    folder = tmp_path / "model"
    shutil.copytree(MODEL, folder)
    (folder / "chat_template.jinja").write_text("{% if tools %}" + sign + "{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}{% if enable_thinking %}<think>{% endif %}")
    server = own_server(model=folder)
    schemas = {t["function"]["name"]: t["function"]["parameters"] for t in (ADD, SAY)}
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=120) as client:
        for seed in range(4):
            for choice in ("required", {"type": "function", "function": {"name": "say"}}):
                asked = {"model": "model", "messages": [{"role": "user", "content": "3 7 12=48:"}], "tools": [ADD, SAY], "tool_choice": choice, "seed": seed,
                         "max_tokens": 300, "extra_body": {"return_token_ids": True}}
                answer = client.chat.completions.create(**asked).choices[0]
                raw = client.post("/detokenize", body={"tokens": answer.token_ids}, cast_to=object)["prompt"]
                if choice == "required" or FORCED[sign] != "[{":
                    assert raw.startswith(FORCED[sign]), raw
                assert answer.finish_reason in ("tool_calls", "length") and answer.message.content is None
                for call in answer.message.tool_calls[:-1 if answer.finish_reason == "length" else None]:
                    jsonschema.validate(json.loads(call.function.arguments), schemas[call.function.name])
                with client.chat.completions.stream(**{**asked, "parallel_tool_calls": False, "max_tokens": 450}) as stream:
                    [call] = stream.get_final_completion().choices[0].message.tool_calls
                jsonschema.validate(json.loads(call.function.arguments), schemas[call.function.name])
