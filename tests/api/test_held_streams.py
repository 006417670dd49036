"""Streams that a program checks on the way and corrects (`hold`, POST /v1/streams/{id}), through the official `openai` client."""
import time

import openai
import pytest

from conftest import Server

MODEL = "countdown-glm"
PROMPT = "3 7 12=48:"
FIELDS = {"model": MODEL, "max_tokens": 24, "seed": 9, "temperature": 1.5, "logprobs": 0}


@pytest.fixture
def client(server):
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=60) as one:
        yield one


def act(client, stream, **action):
    return client.post(f"/streams/{stream}", body=action, cast_to=object)


class Reader:
    """An answer as a program has it; `check` is called at each hold and says how it goes on."""

    def __init__(self, client, check, hold, **fields):
        self.ids, self.logprobs, self.text, self.holds, self.finish, self.usage = [], [], "", [], None, None
        stream = client.completions.create(**{**FIELDS, "prompt": PROMPT, **fields}, stream=True, stream_options={"include_usage": True},
                                           extra_body={"hold": hold, "ignore_eos": True})
        for part in stream:
            self.usage = part.usage or self.usage
            for choice in part.choices:
                self.text += choice.text
                self.ids += choice.token_ids
                self.logprobs += choice.logprobs.token_logprobs
                self.finish = choice.finish_reason or self.finish
            told = (part.model_extra or {}).get("hold")
            if told and told["state"] == "rolled_back":
                kept = told["position"] - len(told["token_ids"])
                self.text = told["text"]
                self.ids = self.ids[:kept] + told["token_ids"]
                self.logprobs = self.logprobs[:kept] + [None] * len(told["token_ids"])
            elif told:
                assert told["state"] == "held" and told["id"] == part.id and told["position"] == len(self.ids)
                self.holds.append(told)
                act(client, part.id, **check(self))


def fresh(client, ids, attempt, most, **fields):
    return client.completions.create(**{**FIELDS, **fields, "prompt": ids, "max_tokens": most}, extra_body={"attempt": attempt, "ignore_eos": True}).choices[0]


def test_a_checked_answer_has_the_bits_of_new_requests(client):
    prompt = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=1, extra_body={"return_token_ids": True}).choices[0].prompt_token_ids
    whole = fresh(client, prompt, 0, 24)
    went_on = Reader(client, lambda r: {"action": "continue"}, {"every": 5, "strings": ["="]})
    assert (went_on.ids, went_on.logprobs, went_on.text) == (whole.token_ids, whole.logprobs.token_logprobs, whole.text)
    assert {5, 10, 15, 20} <= {h["position"] for h in went_on.holds} and went_on.finish == "length"

    for put_in in ({}, {"text": "12-"}):
        corrected = Reader(client, lambda r: {"action": "rollback", "position": 3, **put_in} if len(r.holds) <= 2 else {"action": "continue"}, {"every": 8})
        assert [h["attempt"] for h in corrected.holds][:3] == [0, 1, 2]
        said = len([x for x in corrected.logprobs if x is None]) + 3
        rest = fresh(client, prompt + corrected.ids[:said], 2, 24 - said)
        assert corrected.ids[said:] == rest.token_ids and corrected.logprobs[said:] == rest.logprobs.token_logprobs  # floats, to the bit
        assert len(corrected.ids) == 24 and corrected.usage.completion_tokens == 8 + 8 - said + 24 - said
        assert corrected.usage.completion_tokens_details.model_extra == {"rolled_back_tokens": 10, "put_in_tokens": 2 * (said - 3)}
        # The controls: without a new attempt the same tokens come for ever, and another attempt has others.
        assert fresh(client, prompt + whole.token_ids[:3], 0, 5).token_ids == whole.token_ids[3:8]
        assert fresh(client, prompt + corrected.ids[:said], 1, 24 - said).token_ids != rest.token_ids


def test_penalties_are_replayed(client):
    """A hold that goes on is no new prompt to penalties: no bit differs."""
    penalties = {"presence_penalty": 1.5, "frequency_penalty": 1}
    whole = client.completions.create(**{**FIELDS, **penalties}, prompt=PROMPT, extra_body={"ignore_eos": True}).choices[0]
    went_on = Reader(client, lambda r: {"action": "continue"}, {"every": 4}, **penalties)
    assert went_on.ids == whole.token_ids and went_on.logprobs == whole.logprobs.token_logprobs
    # The control: as the prompt of a new request the first tokens are not penalised.
    plain = client.completions.create(**FIELDS, prompt=PROMPT, extra_body={"ignore_eos": True}).choices[0]
    assert plain.token_ids != whole.token_ids


def test_a_response_that_is_checked(chat_server):
    with openai.OpenAI(base_url=chat_server.url + "/v1", api_key="none", max_retries=0, timeout=60) as client:
        def response(hold=None):
            """The text as a program has it, and the last event's."""
            text, holds = "", 0
            for event in client.responses.create(model="countdown-chat", input=PROMPT, max_output_tokens=12, temperature=1.5, stream=True, extra_body={"seed": 9, **(hold or {})}):
                if event.type == "response.output_text.delta":
                    text += event.delta
                elif event.type == "response.hold" and event.hold["state"] == "rolled_back":
                    text = ""  # all items begin anew
                elif event.type == "response.hold":
                    holds += 1
                    act(client, event.hold["id"], **({"action": "rollback", "position": 0, "text": "12-"} if holds == 1 else {"action": "continue"}))
            return text, event.response

        plain, _ = response()
        text, last = response({"hold": {"every": 3}})
        assert text == last.output_text and text.startswith("12-") and text != plain
        assert last.usage.output_tokens_details.model_extra["rolled_back_tokens"] == 3
        assert client.responses.retrieve(last.id).output_text == text


def test_a_stream_that_nobody_answers_ends_and_says_why(client):
    stream = client.completions.create(**FIELDS, prompt=PROMPT, stream=True, extra_body={"hold": {"every": 4, "seconds": 0.2}})
    with pytest.raises(openai.APIError) as ended:
        for _ in stream:
            pass
    assert ended.value.code == "hold_expired" and "held at position 4" in ended.value.message


def test_another_keys_stream_is_none_and_a_client_that_leaves_ends_its_own(own_server, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("ann key-of-ann-0123456789\nbob key-of-bob-0123456789\n")
    server: Server = own_server("--api-key-file", str(keys))
    ann, bob = (openai.OpenAI(base_url=server.url + "/v1", api_key=f"key-of-{who}-0123456789", max_retries=0, timeout=60) for who in ("ann", "bob"))
    stream = ann.completions.create(**FIELDS, prompt=PROMPT, stream=True, extra_body={"hold": {"every": 4}})
    held = next(part.hold for part in stream if (part.model_extra or {}).get("hold"))
    with pytest.raises(openai.NotFoundError) as none:
        act(bob, held["id"], action="continue")
    assert none.value.code == "stream_not_found"
    assert act(ann, held["id"], action="rollback", position=2)["attempt"] == 1
    next(part for part in stream if (part.model_extra or {}).get("hold") and part.hold["state"] == "held")
    stream.close()
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            act(ann, held["id"], action="rollback", position=99)
        except openai.NotFoundError:
            break
        except (openai.BadRequestError, openai.ConflictError):  # as long as it is held, and while it ends
            time.sleep(0.02)
    else:
        pytest.fail("the stream of a client that has left is still open")
