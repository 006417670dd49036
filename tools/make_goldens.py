#!/usr/bin/env python3
"""Goldens of every family: small random checkpoints, run by transformers with every float widened to float64.

Writes tests/golden/FAMILY/NAME/config.json (as transformers writes it) and golden.safetensors: `tokens` int32 [T],
`logits` fp32 [T, V], and `grad.TENSOR` fp32 for every tensor that gets a gradient of the summed next-token cross-entropy
over the T-1 targets, under the names of the files (experts split). GLM's indexer's tensors get none, and the correction
bias is no parameter: they are absent. Metadata: seed, loss (float64, repr), smallest_gap. Weights are not stored:
golden_weights.py and C++ make the same ones from the seed.

Asserted here: the NumPy forward agrees to 1e-9; no selection is nearer to a tie than SMALLEST_GAP; each wrong variant
that a golden is meant to catch moves its logits by more than 1e-3; all goldens together stay below 4 MB.

    make_goldens.py [FAMILY/NAME...]            write them, searching the seed
    make_goldens.py --check [FAMILY/NAME...]    recompute and compare with the files; exit status 1 if they differ
"""

import argparse
import contextlib
import json
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar

import golden_weights
import numpy_dense
import numpy_glm_moe_dsa
from comparison import largest_difference, relative_error

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "golden"
SMALLEST_GAP = 1e-5  # below it a golden is worthless
SEARCHED_GAP = 1e-4  # and a new one keeps this distance, since float32 loses up to 1e-5 on large scores
LARGEST_TOTAL = 4_000_000
NUMPY_TOLERANCE = 1e-9
SENSITIVITY = 1e-3
RECOMPUTE_TOLERANCE = 1e-12


@dataclass(frozen=True)
class Golden:
    tokens: int
    config: dict  # arguments of the family's configuration class, with model_type
    variants: tuple = ()  # names in the family's wrong variants that must move the logits
    no_effect: tuple = ()  # and those that must not


GLM_MOE_DSA_SHARED = dict(
    model_type="glm_moe_dsa", n_group=1, topk_group=1, max_position_embeddings=512, bos_token_id=None, eos_token_id=None, index_n_heads=16
)

GOLDENS = {
    # Index sharing, sparse selection, dense and MoE layers; an epsilon so large that a wrong one shows.
    "glm_moe_dsa/sharing": Golden(
        tokens=23,
        config=GLM_MOE_DSA_SHARED | dict(
            hidden_size=48, num_hidden_layers=11, num_attention_heads=3, num_key_value_heads=3, q_lora_rank=40,
            kv_lora_rank=24, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=20, index_head_dim=16, index_topk=5,
            index_topk_freq=4, index_skip_topk_offset=3, first_k_dense_replace=3, intermediate_size=50,
            moe_intermediate_size=7, n_routed_experts=12, num_experts_per_tok=3, n_shared_experts=2,
            norm_topk_prob=True, routed_scaling_factor=1.7, rms_norm_eps=0.03, vocab_size=101,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        ),
        variants=("eps_a", "no_relu", "indexer_rope_half", "mla_rope_half", "bias_in_weights"),
    ),
    # Sums long enough for eight leaves (288 = 8 * 36), more than one block of 64 keys visible, heads 6 = 2 * 3,
    # weights of the experts not renormalised.
    "glm_moe_dsa/wide": Golden(
        tokens=71,
        config=GLM_MOE_DSA_SHARED | dict(
            hidden_size=288, num_hidden_layers=4, num_attention_heads=6, num_key_value_heads=6, q_lora_rank=20,
            kv_lora_rank=18, qk_nope_head_dim=7, qk_rope_head_dim=6, v_head_dim=7, index_head_dim=10, index_topk=7,
            indexer_types=["full", "full", "shared", "shared"], first_k_dense_replace=1, intermediate_size=11,
            moe_intermediate_size=3, n_routed_experts=9, num_experts_per_tok=3, n_shared_experts=1,
            norm_topk_prob=False, routed_scaling_factor=2.5, rms_norm_eps=1e-5, vocab_size=67,
            rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
        ),
        variants=("no_relu", "indexer_rope_half", "mla_rope_half", "bias_in_weights"),
    ),
    # Every visible key selected, over two blocks of 64; experts that do not divide eight; two and four leaves.
    "glm_moe_dsa/dense-range": Golden(
        tokens=81,
        config=GLM_MOE_DSA_SHARED | dict(
            hidden_size=40, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=4, q_lora_rank=28,
            kv_lora_rank=20, qk_nope_head_dim=10, qk_rope_head_dim=8, v_head_dim=16, index_head_dim=12, index_topk=96,
            indexer_types=["full", "shared", "full", "shared"], first_k_dense_replace=1, intermediate_size=128,
            moe_intermediate_size=13, n_routed_experts=5, num_experts_per_tok=2, n_shared_experts=1,
            norm_topk_prob=True, routed_scaling_factor=2.5, rms_norm_eps=1e-6, vocab_size=515,
            rope_parameters={"rope_type": "default", "rope_theta": 8000000.0},
        ),
        variants=("mla_rope_half", "bias_in_weights"),
        no_effect=("no_relu", "indexer_rope_half"),
    ),
    # All three bands of llama3 scaling, positions beyond the original context; groups of three heads; H * D is not h; tied.
    "llama/scaled": Golden(
        tokens=150,
        config=dict(
            model_type="llama", hidden_size=48, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2, head_dim=16,
            intermediate_size=20, vocab_size=61, rms_norm_eps=1e-5, max_position_embeddings=512, tie_word_embeddings=True,
            bos_token_id=None, eos_token_id=None,
            rope_parameters={"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
                             "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
        ),
        variants=("rope_pairs", "no_scaling", "heads_interleaved"),
    ),
    # Sums of eight leaves (288), one key for four heads, untied.
    "llama/wide": Golden(
        tokens=70,
        config=dict(
            model_type="llama", hidden_size=288, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=1, head_dim=10,
            intermediate_size=11, vocab_size=35, rms_norm_eps=1e-6, max_position_embeddings=256, tie_word_embeddings=False,
            bos_token_id=None, eos_token_id=[3, 7], rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
        ),
        variants=("rope_pairs",),
        no_effect=("no_scaling", "heads_interleaved"),
    ),
    # Norms of heads, YaRN with its factor on cosines and sines, groups of three, untied.
    "qwen3/yarn": Golden(
        tokens=81,
        config=dict(
            model_type="qwen3", hidden_size=40, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2, head_dim=16,
            intermediate_size=30, vocab_size=67, rms_norm_eps=1e-6, max_position_embeddings=128, tie_word_embeddings=False,
            bos_token_id=None, eos_token_id=None,
            rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "beta_fast": 8.0,
                             "original_max_position_embeddings": 32},
        ),
        variants=("rope_pairs", "no_scaling", "no_attention_factor", "heads_interleaved", "no_head_norms", "norm_after_rope"),
    ),
    # Every head its own key, linear scaling, an epsilon so large that a wrong one shows, tied.
    "qwen3/tied": Golden(
        tokens=71,
        config=dict(
            model_type="qwen3", hidden_size=35, num_hidden_layers=2, num_attention_heads=5, num_key_value_heads=5, head_dim=12,
            intermediate_size=24, vocab_size=101, rms_norm_eps=0.03, max_position_embeddings=128, tie_word_embeddings=True,
            bos_token_id=None, eos_token_id=5,
            rope_parameters={"rope_type": "linear", "rope_theta": 1000000.0, "factor": 2.0},
        ),
        variants=("rope_pairs", "no_scaling", "no_head_norms"),
        no_effect=("heads_interleaved",),
    ),
}  # fmt: skip


def wrong_variants(config):
    """Name -> knobs of the NumPy forward."""
    if config["model_type"] == "glm_moe_dsa":
        right = numpy_glm_moe_dsa.Knobs()
        return {
            "eps_a": replace(right, mla_norm_eps=config["rms_norm_eps"]),
            "no_relu": replace(right, indexer_relu=False),
            "indexer_rope_half": replace(right, indexer_rope_pairs=False),
            "mla_rope_half": replace(right, mla_rope_pairs=False),
            "bias_in_weights": replace(right, bias_in_router_weights=True),
        }
    right = numpy_dense.Knobs()
    return {
        "rope_pairs": replace(right, rope_pairs=True),
        "no_scaling": replace(right, rope_scaling=False),
        "no_attention_factor": replace(right, attention_factor=False),
        "heads_interleaved": replace(right, heads_interleaved=True),
        "no_head_norms": replace(right, head_norms=False),
        "norm_after_rope": replace(right, norm_after_rope=True),
    }


def numpy_forward(config, weights, tokens, *knobs):
    """(logits, smallest gap between a chosen and a rejected score; infinity where nothing is chosen)"""
    family = numpy_glm_moe_dsa if config["model_type"] == "glm_moe_dsa" else numpy_dense
    return family.forward(config, weights, tokens, *knobs)


def has_no_gradient(name):
    return ".indexer." in name or name.endswith("e_score_correction_bias")


# The oracle.


@contextlib.contextmanager
def float64_everywhere():
    """Makes torch.float32 mean float64, so that the casts written into transformers' modules lose nothing."""
    saved = torch.float32, torch.float, torch.Tensor.float, torch.get_default_dtype()
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.float32, torch.float, torch.Tensor.float, default = saved
        torch.set_default_dtype(default)


def file_tensors(name, value):
    """A parameter of the module as (file name, tensor) pairs: fused experts are split, all else is itself."""
    if name.endswith("experts.gate_up_proj"):
        parts = (("gate_proj", value.chunk(2, dim=1)[0]), ("up_proj", value.chunk(2, dim=1)[1]))
    elif name.endswith("experts.down_proj"):
        parts = (("down_proj", value),)
    else:
        return [(name, value)]
    prefix = name.rsplit(".", 1)[0]
    return [(f"{prefix}.{e}.{part}.weight", fused[e]) for part, fused in parts for e in range(len(fused))]


def build_model(config, weights):
    """The oracle's model with these weights (file names), in torch's default dtype, eager attention and experts."""
    eager = dict(attn_implementation="eager")
    if config["model_type"] == "glm_moe_dsa":
        eager["experts_implementation"] = "eager"
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config), **eager).eval()
    unused = set(weights)
    with torch.no_grad():
        for name, module_tensor in model.state_dict(keep_vars=True).items():
            if name == "lm_head.weight" and name not in weights:  # tied
                continue
            for file_name, part in file_tensors(name, module_tensor.data):
                part.copy_(torch.from_numpy(weights[file_name]))
                unused.remove(file_name)
    if unused:
        raise AssertionError(f"the oracle has no place for {sorted(unused)}")
    return model


def save_checkpoint(config, weights, folder):
    """A Hugging Face folder in float32, written by transformers itself; returns its parsed config.json."""
    model = build_model(config, weights)
    model.save_pretrained(folder)
    return json.loads((Path(folder) / "config.json").read_text())


@dataclass
class Result:
    logits: np.ndarray  # [T, V]
    loss: float  # summed cross-entropy of the T-1 targets
    grads: dict  # file name -> gradient; tensors without one are absent


def run_model(model, tokens):
    """Logits, summed loss and gradients of one sequence, in the dtype of the model."""
    ids = torch.from_numpy(np.asarray(tokens, np.int64))[None]
    model.zero_grad(set_to_none=True)
    logits = model(input_ids=ids, use_cache=False).logits[0]
    loss = torch.nn.functional.cross_entropy(logits[:-1], ids[0, 1:], reduction="sum")
    loss.backward()
    grads = {}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            grads.update((n, g.contiguous().numpy()) for n, g in file_tensors(name, parameter.grad))
    return Result(logits.detach().numpy(), float(loss.detach()), grads)


def run_oracle(config, weights, tokens):
    """The float64 truth."""
    with float64_everywhere():
        result = run_model(build_model(config, weights), tokens)
    if result.logits.dtype != np.float64 or any(g.dtype != np.float64 for g in result.grads.values()):
        raise AssertionError("the oracle did not run in float64 throughout")
    return result


def resolve(config):
    """The config.json that transformers writes for these arguments, indexer_types and layer kinds resolved."""
    with tempfile.TemporaryDirectory() as folder:
        AutoConfig.for_model(**config).save_pretrained(folder)
        return json.loads((Path(folder) / "config.json").read_text())


def find_seed(config, count, seeds, smallest_gap=SEARCHED_GAP):
    """The first seed whose selections all stay smallest_gap away from a tie: (seed, weights, tokens, gap)."""
    for seed in seeds:
        weights = golden_weights.weights(config, seed)
        tokens = golden_weights.tokens(seed, count, config["vocab_size"])
        gap = numpy_forward(config, weights, tokens)[1]
        if gap >= smallest_gap:
            return seed, weights, tokens, gap
        print(f"seed {seed}: smallest gap {gap:.3g}, next", file=sys.stderr)
    raise AssertionError(f"no seed of {seeds} keeps all selections {smallest_gap} from a tie")


# Goldens.


def compute(name, seeds, smallest_gap):
    """One golden, with all its assertions: (config.json, seed, tokens, Result, gap)."""
    golden = GOLDENS[name]
    arguments = golden.config
    resolved = resolve(arguments)
    seed, weights, tokens, gap = find_seed(resolved, golden.tokens, seeds, smallest_gap)
    with tempfile.TemporaryDirectory() as folder:
        config = save_checkpoint(arguments, weights, folder)
        with safe_open(Path(folder) / "model.safetensors", "np") as file:
            shapes = {key: tuple(file.get_slice(key).get_shape()) for key in file.keys()}
    if shapes != golden_weights.manifest(config):
        raise AssertionError(f"{name}: transformers saves other tensors than the manifest lists")

    result = run_oracle(arguments, weights, tokens)
    without = {key for key in weights if key not in result.grads}
    expected = {key for key in weights if has_no_gradient(key)}
    if without != expected:
        raise AssertionError(f"{name}: tensors without a gradient: {sorted(without ^ expected)} unexpected")
    error = relative_error(numpy_forward(config, weights, tokens)[0], result.logits)
    print(f"{name}: seed {seed}, smallest gap {gap:.3g}, loss {result.loss!r}, NumPy forward off by {error:.2g}")
    if error > NUMPY_TOLERANCE:
        raise AssertionError(f"{name}: the NumPy forward is off by {error}, allowed {NUMPY_TOLERANCE}")
    for variant, knobs in wrong_variants(config).items():
        moved = largest_difference(numpy_forward(config, weights, tokens, knobs)[0], result.logits)
        print(f"  wrong variant {variant}: logits move by {moved:.3g}")
        if variant in golden.variants and moved <= SENSITIVITY:
            raise AssertionError(f"{name} cannot tell {variant}: it moves the logits by {moved}")
        if variant in golden.no_effect and moved > NUMPY_TOLERANCE * np.max(np.abs(result.logits)):
            raise AssertionError(f"{name}: {variant} must have no effect, but moves the logits by {moved}")
    return config, seed, tokens, result, gap


def write_safetensors(path, tensors, metadata):
    """As the safetensors package, but equal tensors and metadata always make equal bytes (it shuffles metadata)."""
    dtypes = {"float32": "F32", "int32": "I32"}
    header, end = {"__metadata__": metadata}, 0
    for name, value in sorted(tensors.items()):
        begin, end = end, end + value.nbytes
        header[name] = {"dtype": dtypes[value.dtype.name], "shape": value.shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)
    data = b"".join(np.ascontiguousarray(value).tobytes() for _, value in sorted(tensors.items()))
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def write(name):
    config, seed, tokens, result, gap = compute(name, range(1, 1000), SEARCHED_GAP)
    folder = FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    tensors = {"tokens": tokens, "logits": result.logits.astype(np.float32)}
    tensors |= {f"grad.{key}": value.astype(np.float32) for key, value in result.grads.items()}
    metadata = {"seed": str(seed), "loss": repr(result.loss)}
    if gap < float("inf"):
        metadata["smallest_gap"] = repr(float(gap))
    write_safetensors(folder / "golden.safetensors", tensors, metadata)


def rounds_to(stored, fresh):
    """Is `stored` the fp32 rounding of `fresh`, but for RECOMPUTE_TOLERANCE of the largest value?"""
    allowed = 2.0**-24 * np.abs(fresh) + RECOMPUTE_TOLERANCE * np.max(np.abs(fresh), initial=0)
    return stored.shape == fresh.shape and bool(np.all(np.abs(stored - fresh) <= allowed))


def differences(name):
    """What a fresh computation finds different in the committed files, as sentences."""
    folder = FOLDER / name
    if not (folder / "config.json").exists() or not (folder / "golden.safetensors").exists():
        return [f"{folder}: config.json or golden.safetensors is missing"]
    with safe_open(folder / "golden.safetensors", "np") as file:
        metadata, stored = file.metadata(), {key: file.get_tensor(key) for key in file.keys()}
    config, _, tokens, result, gap = compute(name, [int(metadata["seed"])], SMALLEST_GAP)
    found = []
    if json.loads((folder / "config.json").read_text()) != config:
        found.append(f"{name}: config.json differs from what transformers writes now")
    for key, fresh in (("loss", result.loss), ("smallest_gap", gap)) if "smallest_gap" in metadata else (("loss", result.loss),):
        # A gap is a difference of scores of order 1, so that its error is theirs.
        if not abs(float(metadata[key]) - fresh) <= RECOMPUTE_TOLERANCE * max(1, abs(fresh)):
            found.append(f"{name}: {key} is {metadata[key]} in the file and {fresh!r} now")
    fresh = {"logits": result.logits} | {f"grad.{key}": value for key, value in result.grads.items()}
    if set(stored) != {"tokens", *fresh}:
        found.append(f"{name}: tensors in only one of file and computation: {sorted(set(stored) ^ {'tokens', *fresh})}")
    if stored["tokens"].dtype != np.int32 or not np.array_equal(stored["tokens"], tokens):
        found.append(f"{name}: tokens differ")
    for key in fresh.keys() & stored.keys():
        if stored[key].dtype != np.float32 or not rounds_to(stored[key], fresh[key]):
            found.append(f"{name}: {key} differs")
    return found


def total_size():
    return sum(file.stat().st_size for file in FOLDER.rglob("*") if file.is_file())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(GOLDENS)}; default all")
    parser.add_argument("--check", action="store_true", help="compare with the files instead of writing them")
    args = parser.parse_args()
    if unknown := set(args.names) - set(GOLDENS):
        parser.error(f"no golden named {', '.join(sorted(unknown))}; there are {', '.join(GOLDENS)}")
    torch.set_num_threads(1)
    disable_progress_bar()
    golden_weights.check_known_answers()
    found = []
    for name in args.names or GOLDENS:
        if args.check:
            found += differences(name)
        else:
            write(name)
    if total_size() > LARGEST_TOTAL:
        found.append(f"the goldens take {total_size()} bytes, allowed {LARGEST_TOTAL}")
    for sentence in found:
        print(sentence, file=sys.stderr)
    print(f"{total_size()} bytes in {FOLDER}" + (", as computed now" if args.check and not found else ""))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
