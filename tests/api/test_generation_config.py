"""generation_config.json says how a model is sampled where a request does not, and what ends a turn; tools reach a model whose template
shows it none; a stop string never breaks JSON."""
import json
import shutil
import subprocess

import openai
import pytest
from conftest import MODEL
from test_chat_command import BINARY

PROMPT = "3 7 12=48:"


def folder_with(tmp_path, config, template=None):
    folder = tmp_path / "m"
    shutil.copytree(MODEL, folder)
    (folder / "generation_config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    if template:
        (folder / "chat_template.jinja").write_text(template)
    return folder


def client_of(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="x", max_retries=0)


def complete(server, **fields):
    answer = client_of(server).completions.create(model="m", prompt=PROMPT, max_tokens=12, seed=3, extra_body={"return_token_ids": True}, **fields)
    return answer.choices[0].model_extra["token_ids"], answer.choices[0].finish_reason


def test_defaults_come_from_the_file_and_a_request_overrides_them(tmp_path, own_server):
    server = own_server(model=folder_with(tmp_path, {"temperature": 5.0, "top_k": 40, "do_sample": True}))
    said = client_of(server).models.retrieve("m").model_extra["generation_config"]
    assert said == {"temperature": 5, "top_k": 40}
    plain = complete(server)
    assert plain == complete(server, temperature=5) and plain != complete(server, temperature=0)
    none = own_server("--generation-config", "none", model=tmp_path / "m")
    assert client_of(none).models.retrieve("m").model_extra["generation_config"] == {}
    assert complete(none) == complete(none, temperature=1, top_p=1)
    assert complete(none) != plain


SAID = {"temperature": 2.5, "top_p": 0.8, "top_k": 12, "min_p": 0.05, "repetition_penalty": 1.5, "presence_penalty": 0.5, "frequency_penalty": 0.25}


def test_every_word_of_the_file_counts_on_every_route(tmp_path, own_server, chat_folder):
    """What a request leaves out is what the file says: on each route the same tokens as with the words in the request and no file. Any one of them left out is another answer."""
    folder = folder_with(tmp_path, {**SAID, "do_sample": True}, template=(chat_folder / "chat_template.jinja").read_text())
    by_file, by_request = (client_of(own_server(*options, model=folder)) for options in ((), ("--generation-config", "none")))
    assert by_file.models.retrieve("m").model_extra["generation_config"] == SAID

    def answers(client, **fields):
        talk, told = {"model": "m", "messages": [{"role": "user", "content": PROMPT}]}, []
        for seed in range(4):
            told += (client.completions.create(model="m", prompt=PROMPT, max_tokens=60, extra_body={"seed": seed, **fields}).choices[0].text,
                     client.chat.completions.create(**talk, max_tokens=60, extra_body={"seed": seed, **fields}).choices[0].message.content,
                     client.responses.create(model="m", input=PROMPT, max_output_tokens=60, extra_body={"seed": seed, **fields}).output_text)
        return told

    plain = answers(by_file)
    assert plain == answers(by_request, **SAID)
    for name in SAID:
        others = answers(by_request, **{key: value for key, value in SAID.items() if key != name})
        assert others != plain, name


def test_greedy_where_the_file_says_so(tmp_path, own_server):
    server = own_server(model=folder_with(tmp_path, {"do_sample": False, "temperature": 0.6}))
    assert complete(server) == complete(server, temperature=0) != complete(server, temperature=9)


def test_each_end_token_ends_a_turn(tmp_path, own_server):
    plain = own_server()
    ids, _ = without = greedy(plain, "countdown-glm")
    last = ids[3]
    assert last not in ids[:3]
    server = own_server(model=folder_with(tmp_path, {"eos_token_id": [last]}))
    ended, reason = greedy(server, "m")
    assert (ended[-1] == last or ended == ids[:3]) and len(ended) <= 4 and reason == "stop"
    # config.json's own end still ends one, and --generation-config none knows no other.
    none = own_server("--generation-config", "none", model=tmp_path / "m")
    assert greedy(none, "m") == without
    info = json.loads(subprocess.run([BINARY, "info", tmp_path / "m", "--json"], capture_output=True, text=True, check=True).stdout)
    assert info["generation_config"] == {"end_tokens": [last]}


def greedy(server, name):
    answer = client_of(server).completions.create(model=name, prompt=PROMPT, max_tokens=12, temperature=0, extra_body={"return_token_ids": True})
    return answer.choices[0].model_extra["token_ids"], answer.choices[0].finish_reason


@pytest.mark.parametrize("config,words", [('{"temperature": "hot"}', "'temperature' is \"hot\""), ('{"top_p": 2}', "'top_p' is 2"), ("{", "generation_config.json"), ('{"eos_token_id": 99999999}', "'vocab_size'")])
def test_a_broken_file_is_one_error_with_the_way_around(tmp_path, config, words):
    folder = folder_with(tmp_path, config)
    ran = subprocess.run([BINARY, "generate", "--model", folder, "--prompt", PROMPT, "--max-tokens", "2"], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1 and words in ran.stderr and ran.stderr.count("\n") == 1 and ran.stdout == "", ran.stderr
    around = subprocess.run([BINARY, "generate", "--model", folder, "--prompt", PROMPT, "--max-tokens", "2", "--generation-config", "none"], capture_output=True, text=True, timeout=60)
    assert around.returncode == 0, around.stderr


def test_a_talk_begins_at_its_own_temperature(tmp_path, chat_folder):
    def settings(folder, *options):
        return subprocess.run([BINARY, "chat", "--model", folder, *options], input="/set\n", capture_output=True, text=True, timeout=60).stderr

    assert "temperature 0.7, top_p 0.9, top_k 0" in settings(chat_folder)
    own = folder_with(tmp_path, {"temperature": 0.6, "top_k": 20}, template=(chat_folder / "chat_template.jinja").read_text())
    assert "temperature 0.6, top_p 1, top_k 20" in settings(own)
    assert "temperature 0.3, top_p 1, top_k 20" in settings(own, "--temperature", "0.3")
    assert "temperature 0.7, top_p 0.9, top_k 0" in settings(own, "--generation-config", "none")


PLAIN = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "
TOOLS = [{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}}]


def test_tools_for_a_template_that_shows_none(tmp_path, own_server):
    folder = folder_with(tmp_path, {}, template=PLAIN)
    talk = {"model": "m", "messages": [{"role": "user", "content": "3+4?"}], "tools": TOOLS, "max_tokens": 60}
    with pytest.raises(openai.BadRequestError) as refused:
        client_of(own_server(model=folder)).chat.completions.create(**talk)
    assert "shows it no tools" in str(refused.value) and "--tool-format" in str(refused.value) and refused.value.param == "tools"
    for name in ("qwen", "llama", "nemotron"):
        told = own_server("--tool-format", name, model=folder)
        with_tools = client_of(told).chat.completions.create(**talk, tool_choice="none").usage.prompt_tokens
        answer = client_of(told).chat.completions.create(**talk, tool_choice="required", temperature=0)
        assert answer.usage.prompt_tokens > with_tools + 50  # the system message tells of them
        call = answer.choices[0].message.tool_calls[0]
        assert call.function.name == "add" and isinstance(json.loads(call.function.arguments)["a"], int)
    bad = subprocess.run([BINARY, "serve", "--model", folder, "--port", "0", "--tool-format", "qwem"], capture_output=True, text=True, timeout=60)
    assert bad.returncode != 0 and "did you mean 'qwen'" in bad.stderr


def test_a_stop_string_does_not_break_json(chat_server):
    schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 10, "maximum": 99}, "b": {"enum": ["xx"]}}, "required": ["a", "b"], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    client = client_of(chat_server)
    for stop in ('"', "a", ["}", "xx"]):
        answer = client.chat.completions.create(model="countdown-chat", messages=[{"role": "user", "content": "x"}], response_format=form, stop=stop, max_tokens=100)
        assert json.loads(answer.choices[0].message.content)["b"] == "xx" and answer.choices[0].finish_reason == "stop"
        answer = client.chat.completions.create(model="countdown-chat", messages=[{"role": "user", "content": "x"}], tools=TOOLS, tool_choice="required", stop=stop, max_tokens=100)
        assert isinstance(json.loads(answer.choices[0].message.tool_calls[0].function.arguments)["a"], int)
    with pytest.raises(openai.BadRequestError) as refused:  # the control: a token that would cut it
        client.chat.completions.create(model="countdown-chat", messages=[{"role": "user", "content": "x"}], response_format=form, extra_body={"stop_token_ids": [100]}, max_tokens=100)
    assert refused.value.param == "stop_token_ids[0]"
