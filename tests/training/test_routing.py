"""Routing matrices through the `fireworks-ai` package: the sampler's are what independent implementations choose; training under them has
the trainer's own bits; under others the log-probabilities and gradients of transformers in float64, sent to the same experts."""
import base64
import itertools
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from fireworks.training.sdk.client import FiretitanSamplingClient, FiretitanSamplingParams
from safetensors.torch import load_file
import fireworks.training.sdk.types as types

import make_goldens
import numpy_glm_moe_dsa
from comparison import relative_error
from fireworks_tools import BASE, TOKENS, Deployed, bits, client_of, datum, logprobs_of, sample, scored, served, trained
from optimizer_oracle import saved_state

REPOSITORY = Path(__file__).resolve().parents[2]

CONFIG = json.loads((REPOSITORY / "models/countdown-glm/config.json").read_text())
SPARSE = [i for i, kind in enumerate(CONFIG["mlp_layer_types"]) if kind == "sparse"]
EXPERTS, CHOSEN = CONFIG["n_routed_experts"], CONFIG["num_experts_per_tok"]
number = itertools.count()


@pytest.fixture(scope="module")
def weights():
    return {name: value.float().numpy() for name, value in load_file(REPOSITORY / "models/countdown-glm/model.safetensors").items()}


def decoded(matrix):
    """[sparse layers, experts a token], or None for ""."""
    return np.frombuffer(base64.b64decode(matrix, validate=True), np.uint8).reshape(len(SPARSE), CHOSEN) if matrix else None


def encoded(experts):
    return base64.b64encode(np.asarray(experts, np.uint8).tobytes()).decode()


def of_inputs(completion):
    """A completion's matrices, one an input position of its datum: the prompt's are the trainer's to choose."""
    return [""] * (completion.prompt_len - 1) + completion.routing_matrices


def other_routing(tokens, seed):
    """Random experts for two of three input positions, in any order; the others are the trainer's."""
    rng = np.random.default_rng(seed)
    return [encoded([rng.permutation(EXPERTS)[:CHOSEN] for _ in SPARSE]) if i % 3 else "" for i in range(len(tokens) - 1)]


class Sampled:
    """A policy that moved a little, and what its deployment says of a prompt."""

    def __init__(self, url, rank):
        self.url, self.key = url, f"routing-{next(number)}"
        self.policy = client_of(url, self.key, lora_rank=rank, seed=7)
        trained(self.policy, steps=2)
        self.deployment = Deployed(url, self.key, f"routing-{rank}")
        self.deployment.load(self.policy.save_weights_for_sampler_ext("moved").snapshot_name)

    def sample(self, **arguments):
        return self.deployment.sample(include_routing_matrix=True, **arguments)


@pytest.fixture(params=[0, 8], ids=["full", "rank-8"])
def sampled(request, training_server):
    return Sampled(training_server.url, request.param)


def test_each_token_of_a_sample_has_a_matrix_and_no_other_bit(sampled):
    plain, completion = sampled.deployment.sample(), sampled.sample()
    assert plain.routing_matrices is None
    assert completion.full_tokens == plain.full_tokens
    assert bits(completion.inference_logprobs) == bits(plain.inference_logprobs) and bits(completion.sampling_logprobs) == bits(plain.sampling_logprobs)
    assert len(completion.routing_matrices) == completion.completion_len
    echoed = sampled.sample(echo=True)  # the package drops the first token's row, which nothing chose
    assert len(echoed.routing_matrices) == len(echoed.full_tokens) - 1
    assert echoed.routing_matrices[completion.prompt_len - 1:] == completion.routing_matrices
    last = sampled.sample(echo_last=2)
    assert last.routing_matrices == echoed.routing_matrices[completion.prompt_len - 3:]
    for matrix in echoed.routing_matrices:
        experts = decoded(matrix)
        assert (experts[:, 1:] > experts[:, :-1]).all() and experts.max() < EXPERTS  # ascending in a layer
    assert len(set(echoed.routing_matrices)) > 1


def test_the_samplers_client_passes_them_on(sampled):
    with FiretitanSamplingClient.create(inference_url=sampled.url, model=sampled.deployment.model, api_key=sampled.key) as client:
        params = FiretitanSamplingParams(max_tokens=6, temperature=0.7, seed=5, include_routing_matrix=True)
        sequence = client.sample(types.ModelInput.from_ints(TOKENS[:4]), num_samples=1, sampling_params=params).result().sequences[0]
    assert list(sequence.routing_matrices) == sampled.sample().routing_matrices


def test_the_trainer_says_that_it_takes_them(sampled):
    assert sampled.policy.supports_router_replay is True and sampled.policy.routing_matrix_format == "base64_inline"


def test_the_samplers_own_routing_has_the_bits_of_none(sampled):
    completion, policy = sampled.sample(echo=True), sampled.policy
    tokens = list(completion.full_tokens)
    own = bits(scored(policy, tokens))
    assert own[completion.prompt_len - 1:] == bits(completion.inference_logprobs[completion.prompt_len - 1:])
    completions = [""] * (completion.prompt_len - 1) + completion.routing_matrices[completion.prompt_len - 1:]
    reversed_rows = [encoded(decoded(m)[:, ::-1]) for m in completion.routing_matrices]  # their order means nothing
    for routing in (completion.routing_matrices, completions, reversed_rows, [""] * (len(tokens) - 1)):
        assert bits(logprobs_of(policy.forward([datum(tokens, routing)], "cross_entropy").result())) == own
    other = bits(logprobs_of(policy.forward([datum(tokens, other_routing(tokens, 1))], "cross_entropy").result()))
    assert other != own and other[0] == own[0]  # the first position is the trainer's, and sees no other


def test_training_under_them_moves_the_same_weights(sampled):
    completion = sampled.sample(echo=True)
    tokens = list(completion.full_tokens)
    routings = {"none": None, "own": completion.routing_matrices, "other": other_routing(tokens, 2)}
    sampled.policy.save_state("before").result()

    def stepped(routing, custom):
        sampled.policy.load_state_with_optimizer("before").result()
        data = [datum(tokens, routing), datum(TOKENS), datum(tokens, routing)]
        if custom:  # a forward, kept, and a gradient of the same rows
            sampled.policy.forward_backward_custom(data, lambda data, logprobs: (-sum((lp * lp.detach().exp()).sum() for lp in logprobs), {})).result()
        else:
            sampled.policy.forward_backward(data, "cross_entropy").result()
        sampled.policy.optim_step(types.AdamParams(learning_rate=1e-3)).result()
        return bits(scored(sampled.policy))

    for custom in (False, True):
        none, own, other = (stepped(routing, custom) for routing in routings.values())
        assert own == none != other


def test_the_sampler_tells_what_the_numpy_model_chooses(start_server, weights):
    server = start_server("--profile", "cpu-f32")
    compared = 0
    for seed in range(12):
        completion = sample(server.url, "x", BASE, prompt=[(seed * 17 + 5 * i) % 90 for i in range(12)], max_tokens=20, temperature=1.0, seed=seed, include_routing_matrix=True, echo=True)
        noted = {}
        _, gap = numpy_glm_moe_dsa.forward(CONFIG, weights, completion.full_tokens, record=noted.__setitem__)
        if gap < make_goldens.SMALLEST_GAP:
            continue  # float32 may choose otherwise
        chosen = np.stack([noted[f"layer{layer:02d}.router_ids"] for layer in SPARSE], axis=1)  # [T, layers, k]
        told = np.stack([decoded(m) for m in completion.routing_matrices])
        assert (told == chosen[:-1]).all()
        assert not (told[1:] == chosen[:-2]).all()  # the control: a row later is another's
        compared += len(told)
    assert compared > 100


def float64_oracle(weights, tokens, routing):
    """transformers in float64 with the experts of `routing`: (log-probabilities, gradients of the summed cross-entropy)."""
    rows = [decoded(m) for m in routing] + [None]  # the last token predicts nothing
    config = {key: value for key, value in CONFIG.items() if key not in ("architectures", "dtype")}

    def gate_of(gate, place):
        given = torch.tensor(np.stack([np.full(CHOSEN, -1) if row is None else row[place] for row in rows]).astype(np.int64))

        def forward(hidden):
            logits = hidden.reshape(-1, gate.hidden_dim) @ gate.weight.T
            scores = logits.sigmoid()
            own = torch.topk(scores + gate.e_score_correction_bias, CHOSEN, dim=-1).indices
            experts = torch.where(given < 0, own, given)
            chosen = scores.gather(1, experts)
            return logits, chosen / (chosen.sum(-1, keepdim=True) + 1e-20) * gate.routed_scaling_factor, experts

        return forward

    with make_goldens.float64_everywhere():
        model = make_goldens.build_model(config, weights)
        for place, layer in enumerate(SPARSE):
            gate = model.model.layers[layer].mlp.gate
            gate.forward = gate_of(gate, place)
        result = make_goldens.run_model(model, tokens)
    assert result.logits.dtype == np.float64
    z = result.logits[:-1]
    log_sum = np.log(np.exp(z - z.max(-1, keepdims=True)).sum(-1)) + z.max(-1)
    return z[np.arange(len(z)), tokens[1:]] - log_sum, result.grads


def test_other_routing_gives_the_numbers_of_float64(start_server, tmp_path, weights):
    assert CONFIG["norm_topk_prob"]
    client = client_of(start_server("--profile", "cpu-f32").url, "x")
    for seed in range(20):  # rows that are not given are far from ties, so that both sides route them alike
        tokens = [int(t) for t in np.random.default_rng(seed).integers(0, 90, 40)]
        if numpy_glm_moe_dsa.forward(CONFIG, weights, tokens)[1] >= 10 * make_goldens.SMALLEST_GAP:
            break
    routing = other_routing(tokens, 3)
    truth, gradients = float64_oracle(weights, tokens, routing)
    unrouted, others = float64_oracle(weights, tokens, [""] * (len(tokens) - 1))
    assert relative_error(unrouted, truth) > 1e-2  # the control: these experts matter
    result = client.forward_backward([datum(tokens, routing)], "cross_entropy").result()
    assert relative_error(np.array(logprobs_of(result)), truth) < 1e-5
    assert relative_error(np.array(scored(client, tokens)), unrouted) < 1e-5
    client.optim_step(types.AdamParams(learning_rate=1e-3)).result()
    client.save_state("after").result()
    moments = saved_state(tmp_path / "state", "after")["m"]  # m = (1 - beta1) g
    errors = {name: relative_error(moments[name].numpy() / 0.1, gradient) for name, gradient in gradients.items() if np.any(gradient)}
    assert len(errors) > 100 and max(errors.values()) < 1e-4, {name: e for name, e in errors.items() if e >= 1e-4}
    for layer in SPARSE:  # through the weights of the experts given, and not as without them
        gate = f"model.layers.{layer}.mlp.gate.weight"
        assert gate in errors and relative_error(moments[gate].numpy() / 0.1, others[gate]) > 1e-2


@pytest.mark.parametrize("routing,sentence", [
    ([""] * 8, r"data\[0\].model_input.routing_matrices has 8 texts, allowed is one a token, 9"),
    (["AAE!AAEC"] + [""] * 8, r"data\[0\].model_input.routing_matrices\[0\] has the byte 0x21 at 3, which base64 has not"),
    ([""] * 4 + ["AAEC"] + [""] * 4, r"routing_matrices\[4\] has 3 bytes, allowed are 6 \(3 sparse layers, 2 experts a token"),
    ([""] * 8 + [encoded([[0, 1], [0, 1], [0, 8]])], r"routing_matrices\[8\] names expert 8 in sparse layer 2, allowed are 0 to 7"),
    ([encoded([[0, 1], [3, 3], [0, 1]])] + [""] * 8, r"routing_matrices\[0\] names expert 3 twice in sparse layer 1"),
])
def test_what_cannot_be_names_datum_and_position(sampled, routing, sentence):
    before = bits(scored(sampled.policy))
    for operation in (sampled.policy.forward, sampled.policy.forward_backward):
        with pytest.raises(Exception, match=sentence):
            operation([datum(TOKENS, routing)], "cross_entropy").result()
    assert bits(scored(sampled.policy)) == before  # and the client goes on


def test_the_likeliest_tokens_are_told_of_the_models_own_routing_alone(sampled):
    with pytest.raises(Exception, match="the model's own routing alone"):
        sampled.policy.forward([datum(TOKENS, other_routing(TOKENS, 4))], "cross_entropy", {"top_k": 3}).result()


def test_a_model_without_experts_has_none_to_tell_or_take(training_server, tmp_path):
    from transformers import LlamaConfig, LlamaForCausalLM
    folder = tmp_path / "dense"
    torch.manual_seed(3)
    LlamaForCausalLM(LlamaConfig(vocab_size=512, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=96,
                                 max_position_embeddings=512, bos_token_id=101, eos_token_id=102, tie_word_embeddings=False)).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((REPOSITORY / "models/countdown-glm" / name).read_bytes())
    with served(training_server, folder, tmp_path) as server:
        completion = sample(server.url, "x", "dense", include_routing_matrix=True)
        assert completion.completion_len == 6 and completion.routing_matrices is None
        from fireworks.training.sdk import FiretitanServiceClient
        policy = FiretitanServiceClient(base_url=server.url, api_key="x").create_training_client(base_model="dense")
        assert policy.supports_router_replay is False
        plain = bits(scored(policy))
        assert bits(logprobs_of(policy.forward([datum(TOKENS, [""] * 9)], "cross_entropy").result())) == plain
        with pytest.raises(Exception, match=r"routing_matrices\[0\] names experts, and the model has none"):
            policy.forward([datum(TOKENS, ["AAEC"] + [""] * 8)], "cross_entropy").result()
