"""Bodies of a client that means harm: each is answered with one clear error, soon, and nobody else waits for it."""
import http.client
import itertools
import json
import re
import statistics
import threading
import time

import pytest

CHAT, TEXT, TOKENIZE, DETOKENIZE = "/v1/chat/completions", "/v1/completions", "/v1/tokenize", "/v1/detokenize"
MESSAGES = '"messages":[{"role":"user","content":"a"}]'


def post(server, path, body, key=""):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("POST", path, body.encode() if isinstance(body, str) else body, {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})})
    reply = connection.getresponse()
    answer = json.loads(reply.read())
    connection.close()
    assert ("error" in answer) == (reply.status != 200)
    if reply.status != 200:
        assert set(answer["error"]) == {"message", "type", "param", "code"} and "\n" not in answer["error"]["message"]
        assert len(answer["error"]["message"]) < 1000
    return reply.status, answer


def chat(fields):
    return '{"model":"countdown-chat",' + MESSAGES + "," + fields + "}"


# What is no number, what no double holds, and what lies beyond what is allowed. -> what a float field and an integer field say.
NUMBERS = {"NaN": 400, "Infinity": 400, "-Infinity": 400, "1e999": 400, "-1e999": 400, "1" * 400: 400, "01": 400, "0x10": 400, ".5": 400, "1.": 400,
           "+1": 400, "--1": 400, "1e": 400, '"1"': 400, "true": 400, "[]": 400, "{}": 400, "1e308": 400, "18446744073709551616": 400, "null": 200}
FRACTIONS = {"1.0": 400, "1.5": 400, "1e0": 400, "-1": 400, "9223372036854775808": 400}


@pytest.mark.parametrize("field", ["n", "max_tokens", "max_completion_tokens", "min_tokens", "top_logprobs", "temperature", "top_p", "min_p", "presence_penalty",
                                   "frequency_penalty", "repetition_penalty", "seed", "top_k"])
def test_numbers_that_are_none(chat_server, field):
    integer = field in ("n", "max_tokens", "max_completion_tokens", "min_tokens", "top_logprobs")
    for value, wanted in {**NUMBERS, **(FRACTIONS if integer else {})}.items():
        more = ',"logprobs":true' if field == "top_logprobs" else ""
        limit = "" if field.startswith("max") else ',"max_tokens":1'
        status, answer = post(chat_server, CHAT, chat(f'"{field}":{value}{more}{limit}'))
        assert status == wanted, (value[:40], answer)
        if status == 400 and value in ('"1"', "true", "[]", "{}", "1e308", *FRACTIONS):
            assert answer["error"]["param"] == field


@pytest.mark.parametrize("body", [
    "", "{", "[]", "5", "null", '"a"', "{}", "{}{}", "\x00", "// c\n{}", '{"model":"countdown-chat",}', '{"model":5}', "[" * 3_000_000, '{"a":' * 500_000,
    b'{"model":"\xff"}', b'{"model":"\xc3\x28"}', b'{"model":"\xc0\xaf"}', b'{"model":"\xed\xa0\x80"}', '{"model":"\\ud800"}', '{"model":"\\udc00\\ud800"}',
    '{"model":"m"}'.encode("utf-16"), '{"' + "k" * 1_000_000 + '":1}', '{"__proto__":{}}', '{"model":"countdown-chat","messages":' + "[" * 63 + "]" * 63 + "}"])
@pytest.mark.parametrize("path", [CHAT, TEXT, TOKENIZE, DETOKENIZE])
def test_bodies_that_are_none(chat_server, path, body):
    began = time.monotonic()
    assert post(chat_server, path, body)[0] in (400, 404)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("fields,param", [
    ('"stop":["a",null]', "stop[1]"), ('"stop":[""]', "stop"), ('"stop":"\\ud800"', None), ('"logit_bias":{"-1":1}', "logit_bias"), ('"logit_bias":{"1e3":1}', "logit_bias"),
    ('"logit_bias":{"05":1,"5":2}', "logit_bias"), ('"logit_bias":{"5":1e999}', None), ('"logit_bias":{"200000":1}', "logit_bias"), ('"response_format":{}', "response_format.type"),
    ('"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"$ref":"#"}}}', "response_format.json_schema.schema"),
    ('"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":false}}', "response_format.json_schema.schema"),
    ('"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"pattern":"(a{1000}){1000}"}}}', "response_format.json_schema.schema"),
    ('"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"string"}}}]', "tools[0].function.parameters.type"),
    ('"tools":[{"type":"function","function":{"name":"f","parameters":[]}}]', "tools[0].function.parameters"), ('"tools":[5]', "tools[0]"),
    ('"tools":[{"type":"function","function":{"name":"a b"}}]', "tools[0].function.name"), ('"stream":1', "stream"), ('"temprature":1', "temprature"),
    ('"n":257', "n"), ('"chat_template_kwargs":{"messages":[]}', "chat_template_kwargs.messages"), ('"functions":[]', "functions")])
def test_fields_that_are_wrong(chat_server, fields, param):
    status, answer = post(chat_server, CHAT, chat(fields))
    assert status == 400 and answer["error"]["param"] == param, answer


@pytest.mark.parametrize("arguments", ["[", "{\"a\":NaN}", "[" * 100_000, '{"a":' * 5000, "{" + ",".join(f'"k{i}":1' for i in range(50_000)) + "}", '{"a":1e999}', "\ud800"])
def test_arguments_that_are_none(chat_server, arguments):
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}]}]
    began = time.monotonic()
    status, answer = post(chat_server, CHAT, json.dumps({"model": "countdown-chat", "messages": messages}))
    assert status == 400 and answer["error"]["param"] == (None if arguments == "\ud800" else "messages[1].tool_calls[0].function.arguments"), answer
    assert time.monotonic() - began < 5


def test_an_object_of_very_many_members(chat_server):
    """Looking up each among those before it took 40 seconds of the server's only thread."""
    began = time.monotonic()
    for body in ("{" + ",".join(f'"k{i}":1' for i in range(200_000)) + "}",
                 chat('"metadata":{' + ",".join(f'"k{i}":"v"' for i in range(200_000)) + "}"),
                 chat('"metadata":[' + ",".join("{" + ",".join(f'"k{j}":1' for j in range(900)) + "}" for i in range(200)) + "]")):
        status, answer = post(chat_server, CHAT, body)
        assert status == 400 and "too many keys" in answer["error"]["message"]
    assert time.monotonic() - began < 15


def of_schema(schema):
    return chat('"max_tokens":1,"response_format":' + json.dumps({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}))


def slow_schema(salt):
    """As slow as a schema can be: automata of a thousand states, until there are too many edges for one grammar."""
    patterns = {f"k{i}": {"type": "string", "pattern": f"([a-z{i}])*a[a-z{i}]{{10}}"} for i in range(32)}
    return of_schema({"type": "object", "properties": {salt: {"type": "boolean"}, **patterns}, "required": [salt, *patterns]})


def test_nobody_waits_for_anothers_schema(own_server, chat_folder, tmp_path):
    """A key that has slow schemas compiled, on as many threads as it gets, holds up neither plain requests nor schemas of another key."""
    ann, bob = "key-of-ann-0123456789", "key-of-bob-0123456789"
    (tmp_path / "keys.txt").write_text(f"ann {ann}\nbob {bob}\n")
    server = own_server("--api-key-file", str(tmp_path / "keys.txt"), model=chat_folder)

    def timed(body, key, wanted):
        began = time.monotonic()
        status, answer = post(server, CHAT, body, key)
        assert status == wanted, answer
        return time.monotonic() - began

    small = (of_schema({"enum": [f"schema {i}"]}) for i in itertools.count())  # each a new one
    plain = chat('"max_tokens":1')
    usual = statistics.median(timed(body, bob, 200) for _ in range(5) for body in (plain, next(small)))
    assert timed(slow_schema("alone"), ann, 400) > 10 * usual
    # The same, its key spelled with an escape.
    for name, spelled in (("plain", str), ("escaped", lambda body: body.replace("response_format", "response\\u005fformat"))):
        slow, beside = [], {"plain": [], "schema": []}
        threads = [threading.Thread(target=lambda i=i: slow.append(timed(spelled(slow_schema(f"{name} {i}")), ann, 400))) for i in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.1)
        while any(thread.is_alive() for thread in threads):
            beside["plain"].append(timed(plain, bob, 200))
            beside["schema"].append(timed(next(small), bob, 200))
        assert len(slow) == 4  # each was answered as it must be
        assert max(max(took) for took in beside.values()) < min(slow) / 2, (beside, slow)


def test_memory_is_flat(own_server, chat_folder):
    server = own_server(model=chat_folder)

    def resident():
        with open(f"/proc/{server.process.pid}/status") as status:
            return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1]) >> 10

    def attack():
        for body in ("[" * 2_000_000, "{" + ",".join(f'"k{i}":1' for i in range(100_000)) + "}", chat('"stop":"' + "a" * 2_000_000 + '"'),
                     '{"model":"countdown-chat","messages":[{"role":"user","content":"' + "a" * 1_000_000 + '"}]}'):
            assert post(server, CHAT, body)[0] in (400, 404)

    for _ in range(3):
        attack()
    before = resident()
    for _ in range(12):
        attack()
    assert resident() < before + 40, (before, resident())
