"""glm_moe_dsa against transformers: files written by one side are read by the other, and the numbers agree.

The truth is the float64 oracle, for goldens as committed (fp32 of float64) and for fresh configs computed here.
LOCKSTEP_ORACLE_SEEDS="1,2,3" replays the fresh configs of a failed run; their seeds are the test ids.
"""

import json
import os
import secrets

import golden_weights
import make_goldens
import numpy as np
import numpy_glm_moe_dsa
import pytest
import torch
from conftest import REPOSITORY
from make_goldens import GLM_MOE_DSA, GOLDENS, SHARED_BY_ALL, relative_error
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

VIAS = ["train", "prefill", "chunked", "decode"]
LOGPROB_TOLERANCE = 1e-5
GRADIENT_TOLERANCE = 1e-4
EXPORT_TOLERANCE = 1e-4
EXPORTED_MODEL = REPOSITORY / "models" / "countdown-glm"

torch.set_num_threads(1)


class Case:
    """A checkpoint in a folder, a sequence, and what the float64 oracle says about it."""

    def __init__(self, folder, config, weights, tokens, logits):
        self.folder, self.config, self.weights, self.tokens = folder, config, weights, tokens
        self.logprobs = target_logprobs(logits, tokens)


def target_logprobs(logits, tokens):
    """log p(token t+1 | tokens up to t), in float64: [T-1]."""
    z = np.asarray(logits, np.float64)[:-1]
    largest = z.max(axis=-1)
    log_sum = largest + np.log(np.exp(z - largest[:, None]).sum(axis=-1))
    return z[np.arange(len(z)), np.asarray(tokens)[1:]] - log_sum


@pytest.fixture(scope="module", params=list(GLM_MOE_DSA))
def golden(request, tmp_path_factory):
    """A golden's checkpoint, saved by transformers from the seed, and its committed gradients."""
    with safe_open(GOLDENS / request.param / "golden.safetensors", "np") as file:
        seed, tensors = int(file.metadata()["seed"]), {key: file.get_tensor(key) for key in file.keys()}
    committed_config = json.loads((GOLDENS / request.param / "config.json").read_text())
    weights = golden_weights.glm_moe_dsa_weights(committed_config, seed)
    folder = tmp_path_factory.mktemp(request.param)
    config = make_goldens.save_checkpoint(SHARED_BY_ALL | GLM_MOE_DSA[request.param].config, weights, folder)
    assert config == committed_config
    case = Case(folder, config, weights, tensors["tokens"], tensors["logits"])
    case.grads = {key.removeprefix("grad."): value for key, value in tensors.items() if key.startswith("grad.")}
    return case


def random_config(seed):
    """Arguments of a random 2-layer config of odd sizes, and a sequence length.

    At least two experts a token: a single renormalised one has weight 1, so that the router gets no gradient but noise.
    """
    rng = np.random.default_rng(seed)

    def between(low, high):
        return int(rng.integers(low, high + 1))

    heads, rope, experts = between(1, 8), 2 * between(2, 5), between(3, 13)
    config = SHARED_BY_ALL | dict(
        hidden_size=between(24, 100), num_hidden_layers=2, num_attention_heads=heads, num_key_value_heads=heads,
        q_lora_rank=between(12, 48), kv_lora_rank=between(12, 48), qk_nope_head_dim=between(5, 16),
        qk_rope_head_dim=rope, v_head_dim=between(5, 20), index_head_dim=rope + between(2, 10),
        index_n_heads=between(16, 24), index_topk=between(3, 20), indexer_types=["full", ["full", "shared"][between(0, 1)]],
        first_k_dense_replace=between(0, 1), intermediate_size=between(20, 80), moe_intermediate_size=between(8, 24),
        n_routed_experts=experts, num_experts_per_tok=between(2, min(4, experts - 1)), n_shared_experts=between(1, 2),
        norm_topk_prob=bool(between(0, 1)), routed_scaling_factor=float(rng.uniform(0.5, 2.5)),
        rms_norm_eps=float(10 ** rng.uniform(-6, -1.5)), vocab_size=between(50, 300),
        rope_parameters={"rope_type": "default", "rope_theta": float(10 ** rng.uniform(4, 7))},
    )  # fmt: skip
    return config, between(24, 90)


def fresh_case(seed, folder):
    """A checkpoint that has never existed before. Its weights' seed is the first from `seed` on that is far from ties."""
    arguments, count = random_config(seed)
    resolved = make_goldens.resolve(arguments)
    _, weights, tokens, _ = make_goldens.find_seed(resolved, count, range(seed, seed + 1000))
    config = make_goldens.save_checkpoint(arguments, weights, folder)
    result = make_goldens.run_oracle(arguments, weights, tokens)
    case = Case(folder, config, weights, tokens, result.logits)
    case.arguments, case.grads = arguments, result.grads
    return case


def fresh_seeds():
    replayed = os.environ.get("LOCKSTEP_ORACLE_SEEDS")
    return [int(seed) for seed in replayed.split(",")] if replayed else [secrets.randbits(32) for _ in range(3)]


@pytest.fixture(scope="module", params=fresh_seeds(), ids=lambda seed: f"seed{seed}")
def fresh(request, tmp_path_factory):
    return fresh_case(request.param, tmp_path_factory.mktemp("fresh"))


def check_scores(lockstep, case):
    """All four paths: near the oracle, and one another's equal on bits, for a sequence and for prefixes beside it."""
    lengths = [len(case.tokens), 2, len(case.tokens) // 2]
    sequences = [case.tokens[:length] for length in lengths]
    rows = {via: lockstep.score(case.folder, sequences, via) for via in VIAS}
    for via in VIAS:
        for length, row in zip(lengths, rows[via]):
            error = relative_error(np.array(row["logprobs"]), case.logprobs[: length - 1])
            assert error <= LOGPROB_TOLERANCE, f"--via {via}, {length} tokens: log-probabilities are off by {error:.3g}"
            prefix = rows[via][0]["logprobs"][: length - 1]
            assert row["logprobs"] == prefix, f"--via {via}: a prefix of {length} tokens scores differently on its own"
    for length, of_vias in zip(lengths, zip(*rows.values())):
        bits = dict(zip(VIAS, (row["bits"] for row in of_vias)))
        assert len(set(bits.values())) == 1, f"{length} tokens: the paths differ in bits: {bits}"
    # Equal bits of unequal rows would mean that `bits` says nothing.
    assert len({row["bits"] for row in rows["train"]}) == len(lengths)


def check_gradients(computed, case, expected):
    """computed, expected: name -> gradient. The frozen indexer has zeros; the correction bias is no parameter."""
    bias = {name for name in case.weights if name.endswith("e_score_correction_bias")}
    assert set(computed) - bias == set(case.weights) - bias
    errors = {}
    for name, value in computed.items():
        assert value.dtype == np.float32 and value.shape == case.weights[name].shape, name
        if name not in expected or not np.any(expected[name]):  # also experts that no token was sent to
            assert not np.any(value), f"{name} must have no gradient"
        else:
            errors[name] = relative_error(value, expected[name])
    wrong = {name: error for name, error in errors.items() if not error <= GRADIENT_TOLERANCE}
    assert not wrong, f"gradients off by more than {GRADIENT_TOLERANCE}: {wrong}"
    return max(errors.values())


# The oracle by itself: the folder transformers saved loads again, and float32 meets the tolerances asked of lockstep.


def check_float32_oracle(case):
    model, info = load(case.folder)
    assert not any(info.values()), info
    result = make_goldens.run_model(model, case.tokens)
    error = relative_error(target_logprobs(result.logits, case.tokens), case.logprobs)
    assert error <= LOGPROB_TOLERANCE
    zeros = {name: np.zeros_like(value) for name, value in case.weights.items()}
    return error, check_gradients(zeros | result.grads, case, case.grads)


def load(folder):
    model, info = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager", output_loading_info=True
    )
    return model.eval(), info


def test_oracle_in_float32_meets_the_tolerances_on_goldens(golden):
    check_float32_oracle(golden)


def test_oracle_in_float32_meets_the_tolerances_on_fresh_configs(fresh):
    check_float32_oracle(fresh)


# Their checkpoint, our numbers.


def test_golden_scores(lockstep, golden):
    check_scores(lockstep, golden)


def test_golden_gradients(lockstep, golden):
    check_gradients(lockstep.grad(golden.folder, [golden.tokens]), golden, golden.grads)


def test_fresh_scores(lockstep, fresh):
    check_scores(lockstep, fresh)


def test_fresh_gradients_of_two_sequences(lockstep, fresh):
    prefix = fresh.tokens[: len(fresh.tokens) // 2]
    of_prefix = make_goldens.run_oracle(fresh.arguments, fresh.weights, prefix).grads
    expected = {name: value + of_prefix[name] for name, value in fresh.grads.items()}
    check_gradients(lockstep.grad(fresh.folder, [fresh.tokens, prefix]), fresh, expected)


# Our checkpoint, their numbers.


def test_exported_model_loads_in_transformers_and_scores_alike(lockstep):
    if not (EXPORTED_MODEL / "config.json").exists() and not list(EXPORTED_MODEL.glob("*.safetensors")):
        pytest.skip(f"{EXPORTED_MODEL} holds no model yet (neither config.json nor weights); nothing to load")
    model, info = load(EXPORTED_MODEL)
    assert not any(info.values()), f"transformers finds missing, unexpected or mismatched tensors: {info}"
    config = json.loads((EXPORTED_MODEL / "config.json").read_text())
    stored = {k: t for file in EXPORTED_MODEL.glob("*.safetensors") for k, t in load_file(file).items()}
    for name, value in stored.items():
        expected = torch.float32 if name.endswith("e_score_correction_bias") else torch.bfloat16
        assert value.dtype == expected, f"{name} is {value.dtype} in the file"
    weights = {name: value.float().numpy() for name, value in stored.items()}

    tokens = tokens_far_from_ties(config, weights, min(96, config["max_position_embeddings"]))
    with torch.no_grad():
        logits = model(input_ids=torch.from_numpy(tokens.astype(np.int64))[None], use_cache=False).logits[0].numpy()
    row = lockstep.score(EXPORTED_MODEL, [tokens], "train")[0]
    error = relative_error(np.array(row["logprobs"]), target_logprobs(logits, tokens))
    assert error <= EXPORT_TOLERANCE, f"log-probabilities of the exported model are off by {error:.3g}"


def tokens_far_from_ties(config, weights, count):
    for seed in range(100):
        tokens = golden_weights.tokens(seed, count, config["vocab_size"])
        if numpy_glm_moe_dsa.forward(config, weights, tokens)[1] >= make_goldens.SMALLEST_GAP:
            return tokens
    pytest.fail(f"no random sequence of {count} tokens keeps its selections {make_goldens.SMALLEST_GAP} from a tie")
