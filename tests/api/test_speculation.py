"""Guesses ahead (docs/speculation.md) over HTTP, through the `openai` package: no id and no log-probability depends on them, usage and
/metrics count them, and what is wrong with a field is said by its name."""
import concurrent.futures
import re
import sys
from pathlib import Path

import openai
import pytest
import requests

REPOSITORY = Path(__file__).resolve().parents[2]
SHIPPED = REPOSITORY / "models/countdown-glm"
sys.path.insert(0, str(REPOSITORY / "tools"))
import layer_files  # noqa: E402

MODEL = "countdown-glm"
PROMPT = "3 7 12=48:"
FIELDS = {"prompt": PROMPT, "max_tokens": 40, "seed": 5, "temperature": 1.2, "logprobs": 2, "model": MODEL}


def ask(client, speculative=None, **fields):
    extra = {"ignore_eos": True, **fields.pop("extra", {}), **({"speculative": speculative} if speculative else {})}
    return client.completions.create(**{**FIELDS, **fields}, extra_body=extra)


def said(answer):
    """All that is told of the choices."""
    return [choice.model_dump() for choice in answer.choices]


def predicted(answer):
    """(accepted, rejected) of usage."""
    details = answer.usage.completion_tokens_details
    return details.accepted_prediction_tokens, details.rejected_prediction_tokens


def counters(server):
    text = requests.get(server.url + "/metrics", timeout=30).text
    return {match[1]: float(match[2]) for match in re.finditer(r"^lockstep_spec_decode_num_(\S+) (\S+)$", text, re.MULTILINE)}


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=60) as one:
        yield one


@pytest.fixture(scope="module")
def plain(client):
    return ask(client, {"mode": "off"})


def test_no_bit_depends_on_guesses(client, plain):
    ids, text = plain.choices[0].token_ids, plain.choices[0].text
    assert len(ids) == 40 and predicted(plain) == (None, None)
    hostile = [i + 1 for i in ids]
    for speculative, fields in (({"mode": "auto"}, {}), ({"mode": "ngram", "tokens": 8}, {}), ({"mode": "siblings,ngram"}, {}), (None, {}),
                                ({"mode": "prediction", "draft": ids}, {}), ({"mode": "prediction", "draft": hostile, "tokens": 8}, {}),
                                ({"mode": "prediction"}, {"extra": {"prediction": {"type": "content", "content": text}}})):  # fmt: skip
        answer = ask(client, speculative, **fields)
        assert said(answer) == said(plain), speculative
    for seed in (6, 7):  # and the comparison can fail
        assert said(ask(client, seed=seed)) != said(plain)


def test_usage_tells_what_became_of_a_prediction(client, plain):
    ids = plain.choices[0].token_ids
    # 1 token behind the prompt, then 7 guesses and the token behind them a forward: the first token of all is guessed as well.
    right, wrong = predicted(ask(client, {"mode": "prediction", "draft": ids, "tokens": 7}))
    assert wrong == 0 and 30 <= right < 40
    right, wrong = predicted(ask(client, {"mode": "prediction", "draft": [i + 1 for i in ids], "tokens": 7}))
    assert right == 0 and wrong > 0
    changed = ids[:20] + [ids[20] + 1] + ids[21:]
    right, wrong = predicted(ask(client, {"mode": "prediction", "draft": changed, "tokens": 7}))
    assert 15 <= right < 40 and wrong >= 1
    # Off is off, whatever is brought along; and a stream tells the same.
    assert predicted(ask(client, {"mode": "off", "draft": ids})) == (0, 0)
    parts = list(ask(client, {"mode": "prediction", "draft": ids, "tokens": 7}, stream=True, stream_options={"include_usage": True}))
    assert predicted(parts[-1])[1] == 0 and predicted(parts[-1])[0] >= 30
    assert [i for part in parts for choice in part.choices for i in choice.token_ids] == ids


def test_rejection_says_the_same_whatever_else_runs(client, plain, own_server):
    """Other bytes than without guesses, and the same ones alone, beside others and again; log-probabilities stay those of the tokens."""
    hostile = [i + 1 for i in plain.choices[0].token_ids]
    ahead = {"mode": "prediction,ngram", "draft": hostile, "tokens": 6, "acceptance": "rejection"}
    alone = ask(client, ahead)
    assert said(alone) != said(plain)
    assert said(ask(client, {**ahead, "tokens": 1})) != said(alone)  # a cycle of another length
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        others = [pool.submit(ask, client, {"mode": "auto"}, seed=i, max_tokens=60) for i in range(6)]
        beside = [pool.submit(ask, client, ahead) for _ in range(5)]
        assert all(said(one.result()) == said(alone) for one in beside)
        assert all(one.result().choices for one in others)
    assert said(ask(client, ahead, temperature=0)) == said(ask(client, {"mode": "off"}, temperature=0))
    server = own_server("--speculate", "prediction,ngram", "--draft-tokens", "6", "--acceptance", "rejection")
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=60) as other:
        assert said(ask(other, {"draft": hostile})) == said(alone)
        assert said(ask(other, {"mode": "auto", "acceptance": "coupled"})) == said(plain)
        assert counters(server)["drafts_total"] > 0


def test_several_choices_are_siblings(client, server):
    before = counters(server)
    plain = ask(client, {"mode": "off"}, n=4, temperature=0.3)
    assert counters(server) == before
    for _ in range(2):  # the second time all have been said before
        assert said(ask(client, {"mode": "siblings", "tokens": 6}, n=4, temperature=0.3)) == said(plain)
    now = counters(server)
    gained = {name: now[name] - before[name] for name in now}
    assert gained['accepted_tokens_total{source="siblings"}'] > 60, gained
    assert gained['accepted_tokens_total{source="siblings"}'] <= gained['draft_tokens_total{source="siblings"}']
    assert sum(gained[f'accepted_tokens_per_pos_total{{position="{i}"}}'] for i in range(8)) == gained['accepted_tokens_total{source="siblings"}']
    assert gained['accepted_tokens_per_pos_total{position="0"}'] >= gained['accepted_tokens_per_pos_total{position="5"}'] > 0
    assert gained['accepted_tokens_per_pos_total{position="6"}'] == 0 and gained["drafts_total"] > 0


def test_a_grammar_guesses_what_it_forces(client, server):
    """`{"answer": ` is the only way to begin; with penalties and likeliest tokens."""
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object", "properties": {"answer": {"enum": ["abcdefgh", "abcdefxy"]}}, "required": ["answer"], "additionalProperties": False}}}
    fields = {"extra": {"response_format": form, "ignore_eos": False}, "n": 3, "presence_penalty": 0.5, "max_tokens": 60}
    before = counters(server)
    guessed = ask(client, {"mode": "grammar", "tokens": 8}, **fields)
    now = counters(server)
    assert said(guessed) == said(ask(client, {"mode": "off"}, **fields)) and {c.text for c in guessed.choices} <= {'{"answer":"abcdefgh"}', '{"answer":"abcdefxy"}', '{"answer": "abcdefgh"}', '{"answer": "abcdefxy"}'}
    assert now['accepted_tokens_total{source="grammar"}'] - before['accepted_tokens_total{source="grammar"}'] >= 3 * 8


def test_stop_strings_end_where_they_end(client, plain):
    """A stop in the middle of what is guessed: nothing behind it is told or counted."""
    text, ids = plain.choices[0].text, plain.choices[0].token_ids
    for at in (3, 9, 14):
        stop = text[at : at + 2]
        without = ask(client, {"mode": "off"}, stop=stop)
        guessed = ask(client, {"mode": "prediction", "draft": ids, "tokens": 8}, stop=stop)
        assert said(guessed) == said(without) and guessed.choices[0].finish_reason == "stop" and guessed.choices[0].text == text[: text.index(stop)]
        assert guessed.usage.completion_tokens == without.usage.completion_tokens == len(guessed.choices[0].token_ids) < 20
        assert sum(predicted(guessed)) > 0


def test_a_talk_with_a_prediction(chat_server):
    with openai.OpenAI(base_url=chat_server.url + "/v1", api_key="none", max_retries=0, timeout=60) as client:
        def talk(**fields):
            return client.chat.completions.create(model="countdown-chat", messages=[{"role": "user", "content": PROMPT}], seed=3, max_tokens=30, logprobs=True, **fields)
        plain = talk(extra_body={"ignore_eos": True, "speculative": {"mode": "off"}})
        text = plain.choices[0].message.content
        for content in (text, [{"type": "text", "text": text[:9]}, {"type": "text", "text": text[9:]}]):
            answer = talk(prediction={"type": "content", "content": content}, extra_body={"ignore_eos": True, "speculative": {"mode": "prediction"}})
            assert said(answer) == said(plain)
            assert sum(predicted(answer)) > 0


def refused(client, **body):
    with pytest.raises(openai.BadRequestError) as error:
        client.completions.create(**FIELDS, extra_body=body)
    return error.value.body["param"], error.value.body["message"]


@pytest.mark.parametrize("body, param, words", [
    ({"speculative": {"mode": "ngrams"}}, "speculative.mode", ["'ngrams'", "grammar,prediction,siblings,mtp,ngram", "did you mean 'ngram'"]),
    ({"speculative": {"mode": "eagle"}}, "speculative.mode", ["'eagle'", "allowed are auto, off"]),
    ({"speculative": {"tokens": 9}}, "speculative.tokens", ["9", "1 to 8"]),
    ({"speculative": {"tokens": 0}}, "speculative.tokens", ["0", "1 to 8"]),
    ({"speculative": {"draft": "x"}}, "speculative.draft", []),
    ({"speculative": {"draft": [1, 99999]}}, "speculative.draft", ["99999"]),
    ({"speculative": {"drafts": [1]}}, "speculative.drafts", ["did you mean 'draft'"]),
    ({"speculative": {"acceptance": "rejections"}}, "speculative.acceptance", ["'rejections'", "coupled and rejection", "did you mean 'rejection'"]),
    ({"speculative": {"acceptance": 1}}, "speculative.acceptance", ["1"]),
    ({"speculative": {"acceptance": "rejection"}}, "speculative.acceptance", ["'rejection'", "'auto'", "length depends", "allowed are off"]),
    ({"speculative": {"acceptance": "rejection", "mode": "ngram,siblings"}}, "speculative.acceptance", ["siblings depend", "grammar,prediction,mtp,ngram"]),
    ({"speculative": 3}, "speculative", []),
    ({"prediction": 5}, "prediction", ["5", "allowed is an object or a string"]),
    ({"prediction": {"type": "image", "content": "x"}}, "prediction.type", ["image", "allowed is content"]),
    ({"prediction": {"type": "content", "content": [{"type": "image_url"}]}}, "prediction.content[0].type", ["image_url"]),
    ({"prediction": {"type": "content", "contents": "x"}}, "prediction.contents", ["did you mean 'content'"]),
])  # fmt: skip
def test_what_is_wrong_is_said(client, body, param, words):
    told, message = refused(client, **body)
    assert told == param and all(word in message for word in words), (told, message)


def test_a_layer_that_is_not_there_is_said(own_server, tmp_path):
    server = own_server(model=layer_files.without_layer(SHIPPED, tmp_path / MODEL))
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=60) as client:
        param, message = refused(client, speculative={"mode": "mtp"})
        assert param == "speculative.mode" and all(word in message for word in ("'mtp'", "no layer of multi-token prediction", "allowed are auto, off")), message


def test_a_server_that_never_guesses(own_server, plain):
    server = own_server("--speculate", "off")
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=60) as client:
        assert said(ask(client)) == said(plain)
        assert sum(counters(server).values()) == 0
        assert predicted(ask(client, {"mode": "prediction", "draft": plain.choices[0].token_ids}))[0] >= 25  # unless a request asks for it
