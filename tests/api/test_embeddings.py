"""POST /v1/embeddings through the `openai` package: against transformers in float64, and with bits that no other request in the batch changes."""
import base64
import threading

import numpy as np
import openai
import pytest
import torch
from comparison import distance, largest_difference
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

TOLERANCE = 1e-5  # of the length of the difference of two vectors of length 1, as tests/oracle asks of log-probabilities
VOCABULARY = 97
FAMILIES = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen3": (Qwen3Config, Qwen3ForCausalLM)}
TEXT = "3 7 12=48:"


def client_of(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=120)


@pytest.fixture
def client(server):
    return client_of(server)


def embed(client, inputs, **fields):
    """[inputs, dimensions], with the bits that came."""
    pooling = fields.pop("pooling", None)
    answer = client.embeddings.create(model=fields.pop("model", "countdown-glm"), input=inputs, extra_body={"pooling": pooling} if pooling else {}, **fields)
    assert [one.index for one in answer.data] == list(range(len(answer.data)))
    return np.array([one.embedding for one in answer.data], np.float32)


@pytest.fixture(scope="module", params=FAMILIES)
def oracle(request, tmp_path_factory):
    """A folder with random weights, and the model in float64."""
    config, model = FAMILIES[request.param]
    torch.manual_seed(20261124)
    made = model(config(vocab_size=VOCABULARY, hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=12,
                        max_position_embeddings=512, bos_token_id=None, eos_token_id=1, initializer_range=0.2))
    with torch.no_grad():
        made.model.norm.weight.uniform_(0.5, 2)  # a norm of ones would hide which side of it was read
    folder = tmp_path_factory.mktemp("oracle") / request.param
    made.save_pretrained(folder)
    return folder, made.double().eval()


def truth(model, ids, pooling, before_norm=False):
    with torch.no_grad():
        inner = model.model
        hidden = inner(torch.tensor([ids])).last_hidden_state[0]
        if before_norm:
            caught = []
            hook = inner.norm.register_forward_pre_hook(lambda _, inputs: caught.append(inputs[0][0]))
            inner(torch.tensor([ids]))
            hook.remove()
            hidden = caught[0]
    vector = (hidden[-1] if pooling == "last" else hidden.mean(0)).numpy()
    return vector / np.linalg.norm(vector)


def test_vectors_are_those_of_transformers(own_server, oracle):
    folder, model = oracle
    client = client_of(own_server("--profile", "cpu-f32", model=folder))
    rng = np.random.default_rng(5)
    inputs = [rng.integers(2, VOCABULARY, length).tolist() for length in (1, 2, 17, 300)]
    for pooling in ("last", "mean"):
        vectors = embed(client, inputs, model=folder.name, pooling=pooling)
        for ids, vector in zip(inputs, vectors):
            assert distance(vector, truth(model, ids, pooling)) <= TOLERANCE
            # The comparison sees what is another vector: the other pooling, the state before the norm, another last token.
            others = [truth(model, ids, pooling, before_norm=True), truth(model, ids[:-1] + [ids[-1] % 90 + 2], pooling)]
            if len(ids) > 1:
                others.append(truth(model, ids, "mean" if pooling == "last" else "last"))
            for other in others:
                assert distance(vector, other) > 100 * TOLERANCE
        short = embed(client, inputs, model=folder.name, pooling=pooling, dimensions=7)
        cut = vectors[:, :7] / np.linalg.norm(vectors[:, :7], axis=1, keepdims=True)
        assert short.shape == (4, 7) and largest_difference(short, cut) < 1e-6


def test_bits_do_not_depend_on_company(own_server, oracle):
    """Alone, among others (so many rows that prompts are cut in chunks), on another instruction set, cached and not."""
    folder, model = oracle
    name = folder.name
    rng = np.random.default_rng(6)
    inputs = [rng.integers(2, VOCABULARY, int(length)).tolist() for length in rng.integers(1, 200, 40)]
    inputs.append(inputs[0])
    plain = client_of(own_server("--profile", "cpu-f32", model=folder))
    small = client_of(own_server("--profile", "cpu-f32", "--threads", "1", "--isa", "avx2", model=folder))
    for pooling in ("last", "mean"):
        alone = np.concatenate([embed(plain, ids, model=name, pooling=pooling) for ids in inputs])
        assert np.array_equal(alone[0], alone[-1])
        for client in (plain, plain, small):
            assert embed(client, inputs, model=name, pooling=pooling).tobytes() == alone.tobytes()
        # The control: the same number in another order of additions is near, and has other bits.
        single = np.stack([truth(model.float(), ids, pooling) for ids in inputs]).astype(np.float32)
        model.double()
        assert max(distance(a, b) for a, b in zip(single, alone, strict=True)) < 1e-4 and single.tobytes() != alone.tobytes()


def test_bits_do_not_depend_on_completions_under_way(client):
    texts = [TEXT * (i + 1) for i in range(8)]
    alone = {pooling: np.concatenate([embed(client, text, pooling=pooling) for text in texts]) for pooling in ("last", "mean")}
    talk = threading.Thread(target=lambda: client.completions.create(model="countdown-glm", prompt=TEXT, n=8, max_tokens=400, extra_body={"ignore_eos": True}))
    talk.start()
    beside = 0
    while talk.is_alive():
        for pooling, vectors in alone.items():
            assert embed(client, texts, pooling=pooling).tobytes() == vectors.tobytes()
        beside += talk.is_alive()
    assert beside > 0, "no embedding ran beside a completion"


def test_base64_and_numbers_are_the_same(server, client):
    told = client.embeddings.with_raw_response.create(model="countdown-glm", input=TEXT).http_response.json()
    as_text = client.embeddings.with_raw_response.create(model="countdown-glm", input=TEXT, encoding_format="base64").http_response.json()["data"][0]["embedding"]
    as_numbers = client.embeddings.create(model="countdown-glm", input=TEXT, encoding_format="float").data[0].embedding
    assert np.frombuffer(base64.b64decode(as_text), "<f4").tobytes() == np.array(as_numbers, np.float32).tobytes()
    assert len(as_numbers) == 96 and abs(np.linalg.norm(as_numbers) - 1) < 1e-6
    assert told["usage"]["prompt_tokens"] == told["usage"]["total_tokens"] > 0 and told["model"] == "countdown-glm"


def test_a_text_is_its_tokens(client):
    ids = client.post("/tokenize", body={"prompt": TEXT}, cast_to=object)["tokens"]
    assert np.array_equal(embed(client, TEXT), embed(client, ids)) and np.array_equal(embed(client, [TEXT, "7"])[:1], embed(client, TEXT))
    assert not np.array_equal(embed(client, TEXT), embed(client, TEXT, pooling="mean"))


def test_many_inputs(client):
    texts = [str(i) for i in range(1500)]
    vectors = embed(client, texts)
    assert vectors.shape == (1500, 96) and np.array_equal(vectors[1234:1235], embed(client, "1234"))


@pytest.mark.parametrize("fields, param", [({"input": ""}, "input"), ({"input": []}, "input"), ({"input": [[5], [400000]]}, "input[1]"), ({"input": [5] * 513}, "input"),
                                           ({"dimensions": 97}, "dimensions"), ({"dimensions": 0}, "dimensions"), ({"encoding_format": "int8"}, "encoding_format"),
                                           ({"pooling": "cls"}, "pooling"), ({"input": ["a"] * 2049}, "input")])
def test_bad_input_is_refused_by_name(client, fields, param):
    with pytest.raises(openai.BadRequestError) as refused:
        client.embeddings.create(**{"model": "countdown-glm", "input": TEXT, "encoding_format": "float", "extra_body": fields})
    assert refused.value.param == param, refused.value.message
