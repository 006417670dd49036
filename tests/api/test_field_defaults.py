"""Fields of other servers at the value that changes nothing are taken, at any other refused by name; `model` may be left out."""
import re
from pathlib import Path

import openai
import pytest
import requests

MESSAGES = [{"role": "user", "content": "3 7 12=48:"}]
BODIES = {"chat/completions": {"messages": MESSAGES, "max_tokens": 2}, "completions": {"prompt": "3 7 12=48:", "max_tokens": 2}, "responses": {"input": "3 7 12=48:", "max_output_tokens": 2},
          "embeddings": {"input": "3 7"}}
IDLE = {**dict.fromkeys(["use_beam_search", "include_stop_str_in_output", "early_stopping", "return_tokens_as_token_ids"], False),
        **dict.fromkeys(["detokenize", "spaces_between_special_tokens"], True), **dict.fromkeys(["length_penalty", "repeat_penalty", "typical_p"], 1.0),
        **dict.fromkeys(["priority", "mirostat", "n_probs", "xtc_probability", "dry_multiplier", "dynatemp_range"], 0), "id_slot": -1, "bad_words": [], "grammar": "",
        **dict.fromkeys(["prompt_logprobs", "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "truncate_prompt_tokens", "allowed_token_ids",
                         "logits_processors", "documents", "chat_template", "mm_processor_kwargs", "kv_transfer_params"])}


def post(server, route, **fields):
    return requests.post(f"{server.url}/v1/{route}", json={**BODIES[route], **fields}, timeout=60)


@pytest.mark.parametrize("route", BODIES)
def test_defaults_of_other_servers(chat_server, route):
    assert (plain := post(chat_server, route, temperature=0) if route != "embeddings" else post(chat_server, route)).status_code == 200  # without `model`
    assert plain.json()["model"] == "countdown-chat"
    assert post(chat_server, route, **IDLE).status_code == 200
    for name in IDLE:
        refused = post(chat_server, route, **{name: "some" if IDLE[name] == "" else {"type": "x"}})
        assert refused.status_code == 400 and refused.json()["error"]["param"] == name and name in refused.json()["error"]["message"]
    for name in ("cache_prompt", "cache_control", "prompt_cache_options"):
        assert post(chat_server, route, **{name: {"type": "ephemeral"}}).status_code == 200


def test_the_table_names_all_of_them():
    text = (Path(__file__).resolve().parents[2] / "docs/fields.md").read_text().split("## Taken at the value")[1].split("\n## ")[0]
    assert set(re.findall(r"`(\w+)`", text.split("|---|---|")[1])) - {"false", "true"} == set(IDLE) | {"add_special_tokens"}


def test_chat_takes_moderation_null_and_marks_of_caches(chat_server):
    part = {"type": "text", "text": "3 7 12=48:", "cache_control": {"type": "ephemeral"}}
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}, "cache_control": {"type": "ephemeral"}}
    assert post(chat_server, "chat/completions", messages=[{"role": "user", "content": [part]}], tools=[tool], moderation=None, add_special_tokens=False).status_code == 200
    for name, value in (("moderation", {"a": 1}), ("add_special_tokens", True)):
        assert post(chat_server, "chat/completions", **{name: value}).json()["error"]["param"] == name


@pytest.mark.parametrize("schema, place", [({"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, "properties/x/uniqueItems"),
                                           ({"type": "string", "pattern": "^(?!a)b$"}, "properties/x/pattern")])
def test_what_a_grammar_cannot_hold_is_refused_with_its_place(chat_server, schema, place):
    client = openai.OpenAI(base_url=chat_server.url + "/v1", api_key="none", max_retries=0)
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="countdown-chat", messages=MESSAGES, response_format={"type": "json_schema", "json_schema": {
            "name": "x", "schema": {"type": "object", "properties": {"x": schema}, "required": ["x"], "additionalProperties": False}}})
    assert place in refused.value.message and refused.value.param == "response_format.json_schema.schema"
