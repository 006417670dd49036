"""POST /v1/completions through the client that people use: the `openai` package, against the built server."""
import concurrent.futures
import signal
import threading

import openai
import pytest

MODEL = "countdown-glm"
PROMPT = "3 7 12=48:"
END = 102


@pytest.fixture
def client(server):
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=60) as one:
        yield one


def complete(client, **fields):
    return client.completions.create(**{"model": MODEL, "prompt": PROMPT, "max_tokens": 16, "seed": 1, **fields})


def test_models(client):
    models = client.models.list().data
    assert [m.id for m in models] == [MODEL]
    assert models[0].object == "model" and models[0].owned_by == "lockstep"


def test_completion(client):
    answer = complete(client, temperature=0)
    assert answer.object == "text_completion" and answer.model == MODEL and answer.id.startswith("cmpl-")
    choice = answer.choices[0]
    assert choice.finish_reason == "stop" and choice.token_ids[-1] == END and "=" in choice.text
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.completion_tokens == len(choice.token_ids)
    assert answer.weights_version == 0 and len(answer.profile) == 16 and answer.seed == 1


def test_a_seed_fixes_every_bit(client):
    first = complete(client, logprobs=0, temperature=1.5)
    again = complete(client, logprobs=0, temperature=1.5)
    assert again.choices == first.choices
    others = {tuple(complete(client, seed=s, temperature=1.5).choices[0].token_ids) for s in range(2, 12)}
    assert len(others) > 1


def test_company_changes_nothing(client):
    """The same requests one by one and all at once."""
    def ask(seed):
        return complete(client, seed=seed, logprobs=1, n=2).choices

    alone = [ask(seed) for seed in range(24)]
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        together = list(pool.map(ask, range(24)))
    assert together == alone


def test_logprobs(client):
    choice = complete(client, logprobs=1, temperature=0.5).choices[0]
    n = len(choice.token_ids)
    lists = choice.logprobs
    assert n == len(lists.tokens) == len(lists.token_logprobs) == len(lists.top_logprobs) == len(lists.text_offset)
    assert n == len(choice.sampling_logprobs)
    assert all(value <= 0 for value in lists.token_logprobs)
    assert choice.text.startswith(lists.tokens[0]) and lists.text_offset[0] == 0
    # Two log-probabilities: the model's own, and that of the distribution at this temperature.
    assert lists.token_logprobs != choice.sampling_logprobs
    plain = complete(client, logprobs=0).choices[0]
    assert plain.logprobs.top_logprobs is None
    assert plain.logprobs.token_logprobs == plain.sampling_logprobs  # temperature 1, no filter
    assert complete(client).choices[0].logprobs is None


def test_prompts_in_every_form(client):
    text = complete(client, temperature=0)
    many = complete(client, prompt=[PROMPT, "1 2 3=6:"], temperature=0, n=2)
    assert [c.index for c in many.choices] == [0, 1, 2, 3]
    assert many.choices[0].text == many.choices[1].text == text.choices[0].text
    ids = complete(client, prompt=[3, 136, 7, 136, 12, 155, 48, 152], temperature=0)
    assert ids.choices[0].text == text.choices[0].text
    assert complete(client, prompt=[[3, 136, 7, 136, 12, 155, 48, 152]], temperature=0).choices[0].text == text.choices[0].text


def test_top_logprobs(client):
    choice = complete(client, logprobs=5, temperature=0).choices[0]
    for own, value, top in zip(choice.logprobs.tokens, choice.logprobs.token_logprobs, choice.logprobs.top_logprobs):
        assert top[own] == value == max(top.values())  # the likeliest is what temperature 0 takes
        assert len(top) >= 4


def test_echo_scores_a_text(client):
    answer = complete(client, prompt=PROMPT + "3*12", max_tokens=0, echo=True, logprobs=1)
    choice = answer.choices[0]
    assert choice.text == PROMPT + "3*12" and choice.finish_reason == "length" and choice.token_ids == []
    assert answer.usage.completion_tokens == 0
    assert choice.logprobs.token_logprobs[0] is None and all(x < 0 for x in choice.logprobs.token_logprobs[1:])
    assert "".join(choice.logprobs.tokens) == choice.text
    # A sampled answer, scored as a prompt by its ids, has the same log-probabilities to the bit.
    sampled = complete(client, logprobs=0, extra_body={"return_token_ids": True}).choices[0]
    again = complete(client, prompt=sampled.prompt_token_ids + sampled.token_ids, max_tokens=0, echo=True, logprobs=0).choices[0]
    assert again.logprobs.token_logprobs[len(sampled.prompt_token_ids):] == sampled.logprobs.token_logprobs


def test_penalties_and_biases(client):
    plain = complete(client, temperature=0, max_tokens=6, extra_body={"ignore_eos": True}).choices[0].token_ids
    assert complete(client, temperature=0, max_tokens=6, logit_bias={str(plain[0]): -100}).choices[0].token_ids[0] != plain[0]
    assert complete(client, temperature=0, max_tokens=3, logit_bias={"7": 100}).choices[0].token_ids == [7, 7, 7]
    spread = complete(client, temperature=0, max_tokens=40, frequency_penalty=2, presence_penalty=2, extra_body={"ignore_eos": True})
    ids = spread.choices[0].token_ids
    plain = complete(client, temperature=0, max_tokens=40, extra_body={"ignore_eos": True}).choices[0].token_ids
    assert len(set(ids)) > len(set(plain))
    narrow = complete(client, temperature=2, extra_body={"min_p": 1}).choices[0].token_ids
    assert narrow == complete(client, temperature=0).choices[0].token_ids


def test_tokenize(client):
    answer = client.post("/tokenize", cast_to=object, body={"model": MODEL, "prompt": PROMPT, "return_token_strs": True})
    assert answer["tokens"] == [3, 136, 7, 136, 12, 155, 48, 152] and answer["count"] == 8 and answer["max_model_len"] == 512
    assert len(answer["token_strs"]) == 8
    assert client.post("/detokenize", cast_to=object, body={"tokens": answer["tokens"]}) == {"prompt": PROMPT}


def test_one_model(client):
    model = client.models.retrieve(MODEL)
    assert model.id == MODEL and model.chat is False and model.max_model_len == 512 and model.weights_version == 0
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-5")


def test_stop(client):
    whole = complete(client, temperature=0).choices[0].text
    for stop in (whole[3], whole[2:5], ["nothing like this", whole[4:]]):
        choice = complete(client, temperature=0, stop=stop).choices[0]
        first = min(whole.find(s) for s in ([stop] if isinstance(stop, str) else stop) if s in whole)
        assert choice.text == whole[:first] and choice.finish_reason == "stop"
    ids = complete(client, temperature=0).choices[0].token_ids
    choice = complete(client, temperature=0, extra_body={"stop_token_ids": [ids[1]]}).choices[0]
    assert choice.token_ids == ids[:2] and choice.finish_reason == "stop"


def test_stream(client):
    whole = complete(client, n=2, logprobs=0, stop=",")
    texts, ids, logprobs, finishes, usage = ["", ""], [[], []], [[], []], [None, None], None
    for chunk in complete(client, n=2, logprobs=0, stop=",", stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            ids[choice.index] += choice.token_ids
            logprobs[choice.index] += choice.logprobs.token_logprobs
            finishes[choice.index] = choice.finish_reason or finishes[choice.index]
    for i, choice in enumerate(whole.choices):
        assert (texts[i], ids[i], logprobs[i], finishes[i]) == (
            choice.text, choice.token_ids, choice.logprobs.token_logprobs, choice.finish_reason)
    usage.prompt_tokens_details = whole.usage.prompt_tokens_details = None  # the second finds more in the cache
    assert usage == whole.usage


def test_errors_name_the_field(client):
    def refused(kind, **fields):
        with pytest.raises(kind) as caught:
            complete(client, **fields)
        return caught.value

    error = refused(openai.BadRequestError, extra_body={"max_tokenz": 3})
    assert error.param == "max_tokenz" and "did you mean 'max_tokens'" in error.message
    assert refused(openai.BadRequestError, temperature="hot").param == "temperature"
    assert refused(openai.BadRequestError, max_tokens=100000).param == "max_tokens"
    assert refused(openai.BadRequestError, prompt=[1, 99999]).param == "prompt"
    assert refused(openai.BadRequestError, logprobs=21).param == "logprobs"
    error = refused(openai.BadRequestError, best_of=2)
    assert error.param == "best_of" and error.code == "unsupported"
    error = refused(openai.NotFoundError, model="countdown-gml")
    assert error.code == "model_not_found" and "did you mean 'countdown-glm'" in error.message
    with pytest.raises(openai.BadRequestError, match="no chat template"):
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "hi"}])


def test_a_full_server_says_so(own_server):
    server = own_server("--max-open", "2")
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=60) as client:
        # One that is held has its place, however long the others take to come.
        stream = complete(client, max_tokens=490, stream=True, extra_body={"ignore_eos": True, "hold": {"every": 4, "seconds": 300}})
        next(part for part in stream if (part.model_extra or {}).get("hold"))
        for _ in range(20):
            with pytest.raises(openai.RateLimitError) as refused:
                complete(client, n=2, max_tokens=1)
            assert refused.value.code == "rate_limit_exceeded" and refused.value.response.headers["retry-after"] == "1"
        assert complete(client, max_tokens=1).choices[0].token_ids  # one more has room
        stream.close()
    assert server.stop() == 0


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_shutdown_finishes_what_runs(own_server, how):
    server = own_server()
    results, began = {}, threading.Event()

    def ask():
        with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=60) as client:
            for chunk in complete(client, n=4, max_tokens=400, temperature=100, stream=True):
                began.set()
                results.update({c.index: c.finish_reason for c in chunk.choices if c.finish_reason})

    asking = threading.Thread(target=ask)
    asking.start()
    assert began.wait(60)
    assert server.stop(how) == 0
    asking.join(timeout=60)
    assert set(results) == {0, 1, 2, 3}, results
