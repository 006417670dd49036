#!/usr/bin/env python3
"""Goldens of every family: small random checkpoints, run by transformers with every float widened to float64.

Writes tests/golden/FAMILY/NAME/config.json (as transformers writes it) and golden.safetensors: `tokens` int32 [T],
`logits` fp32 [T, V], and `grad.TENSOR` fp32 for every tensor that gets a gradient of the summed next-token cross-entropy
over the T-1 targets, under the names of the files (experts split). GLM's indexer's tensors get none, and the correction
bias is no parameter: they are absent. Metadata: seed, loss (float64, repr), smallest_gap. Weights are not stored:
golden_weights.py and C++ make the same ones from the seed.

Asserted here: the NumPy forward agrees to 1e-9; no selection is nearer to a tie than SMALLEST_GAP; each wrong variant
that a golden is meant to catch moves its logits by more than 1e-3; all goldens together stay below 6 MB.

    make_goldens.py [FAMILY/NAME...]            write them, searching the seed
    make_goldens.py --check [FAMILY/NAME...]    recompute and compare with the files; exit status 1 if they differ
    make_goldens.py --checkpoints FOLDER [FAMILY/NAME...]    write each one's model folder there, as transformers saves it (tools/gpu_checks.py)
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
from golden_configs import GOLDENS, ORACLE_TYPES

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "golden"
SMALLEST_GAP = 1e-5  # below it a golden is worthless
SEARCHED_GAP = 1e-4  # and a new one keeps this distance, since float32 loses up to 1e-5 on large scores
LARGEST_TOTAL = 6_000_000
NUMPY_TOLERANCE = 1e-9
SENSITIVITY = 1e-3
RECOMPUTE_TOLERANCE = 1e-12


def wrong_variants(config):
    """Name -> knobs of the NumPy forward."""
    if config["model_type"] in golden_weights.LATENT:
        right, halves = numpy_glm_moe_dsa.Knobs(), not config.get("rope_interleave", True)
        return {
            "eps_a": replace(right, mla_norm_eps=config["rms_norm_eps"]),
            "no_relu": replace(right, indexer_relu=False),
            "indexer_other_rope": replace(right, indexer_rope_pairs=config["model_type"] != "glm_moe_dsa"),
            "mla_other_rope": replace(right, mla_rope_pairs=halves),
            "bias_in_weights": replace(right, bias_in_router_weights=True),
            "no_scaling": replace(right, rope_scaling=False),
            "no_softmax_factor": replace(right, softmax_factor=False),
            "no_groups": replace(right, groups=False),
            "groups_left_at_zero": replace(right, left_out=0.0),
        }
    right = numpy_dense.Knobs()
    return {
        "rope_pairs": replace(right, rope_pairs=True),
        "no_scaling": replace(right, rope_scaling=False),
        "no_attention_factor": replace(right, attention_factor=False),
        "whole_heads_turn": replace(right, whole_heads_turn=True),
        "heads_interleaved": replace(right, heads_interleaved=True),
        "no_head_norms": replace(right, head_norms=False),
        "norm_after_rope": replace(right, norm_after_rope=True),
        "norm_by_head": replace(right, norm_by_head=True),
        "no_biases": replace(right, biases=False),
        "no_window": replace(right, window_change=None),
        "window_longer": replace(right, window_change=1),
        "window_shorter": replace(right, window_change=-1),
        "other_renormalisation": replace(right, renormalise=False),
        "other_scores": replace(right, softmax_router=False),
        "bias_in_weights": replace(right, bias_in_router_weights=True),
        "no_sinks": replace(right, sinks=False),
        "no_router_bias": replace(right, router_bias=False),
        "no_expert_biases": replace(right, expert_biases=False),
        "no_clamp": replace(right, clamp=False),
        "no_gain": replace(right, gain=False),
        "halves_of_experts": replace(right, interleaved=False),
        "windows_swapped": replace(right, windows_swapped=True),
    }


def numpy_forward(config, weights, tokens, *knobs):
    """(logits, smallest gap between a chosen and a rejected score; infinity where nothing is chosen)"""
    family = numpy_glm_moe_dsa if config["model_type"] in golden_weights.LATENT else numpy_dense
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


def file_tensors(name, value, model_type):
    """A parameter of the module as (file name, tensor) pairs: fused experts are split, all else is itself."""
    if model_type == "gpt_oss":  # whose files hold them fused
        return [(name, value)]
    minimax = model_type == "minimax_m2"
    gate, up, down = ("w1", "w3", "w2") if minimax else ("gate_proj", "up_proj", "down_proj")
    if minimax:
        name = name.replace(".mlp.", ".block_sparse_moe.")
    if name.endswith("experts.gate_up_proj"):
        parts = ((gate, value.chunk(2, dim=1)[0]), (up, value.chunk(2, dim=1)[1]))
    elif name.endswith("experts.down_proj"):
        parts = ((down, value),)
    else:
        return [(name, value)]
    prefix = name.rsplit(".", 1)[0]
    return [(f"{prefix}.{e}.{part}.weight", fused[e]) for part, fused in parts for e in range(len(fused))]


def eager(model_type):
    """Arguments that make transformers add in a plain order; families without experts know no choice of them."""
    with_experts = model_type in golden_weights.LATENT + ("qwen3_moe", "minimax_m2", "gpt_oss")
    return dict(attn_implementation="eager") | (dict(experts_implementation="eager") if with_experts else {})


def oracle_config(config):
    return AutoConfig.for_model(**config | dict(model_type=ORACLE_TYPES.get(config["model_type"], config["model_type"])))


def written_config(folder, model_type):
    """The config.json in a folder that transformers wrote, under the family's own name."""
    path = Path(folder) / "config.json"
    config = json.loads(path.read_text())
    if model_type in ORACLE_TYPES:
        config["model_type"] = model_type
        path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    return config


def build_model(config, weights):
    """The oracle's model with these weights (file names), in torch's default dtype, eager attention and experts."""
    model = AutoModelForCausalLM.from_config(oracle_config(config), **eager(config["model_type"])).eval()
    unused = set(weights)
    with torch.no_grad():
        for name, module_tensor in model.state_dict(keep_vars=True).items():
            if name == "lm_head.weight" and name not in weights:  # tied
                continue
            for file_name, part in file_tensors(name, module_tensor.data, config["model_type"]):
                part.copy_(torch.from_numpy(weights[file_name]))
                unused.remove(file_name)
    if unused:
        raise AssertionError(f"the oracle has no place for {sorted(unused)}")
    return model


def save_checkpoint(config, weights, folder):
    """A Hugging Face folder in float32, written by transformers itself; returns its parsed config.json."""
    model = build_model(config, weights)
    model.save_pretrained(folder)
    return written_config(folder, config["model_type"])


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
            grads.update((n, g.contiguous().numpy()) for n, g in file_tensors(name, parameter.grad, model.config.model_type))
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
        oracle_config(config).save_pretrained(folder)
        return written_config(folder, config["model_type"])


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


def write_checkpoint(name, into):
    """The model folder of a golden, FAMILY-NAME in `into`."""
    with safe_open(FOLDER / name / "golden.safetensors", "np") as file:
        seed = int(file.metadata()["seed"])
    folder = into / name.replace("/", "-")
    folder.mkdir(parents=True, exist_ok=True)
    save_checkpoint(GOLDENS[name].config, golden_weights.weights(json.loads((FOLDER / name / "config.json").read_text()), seed), folder)


def total_size():
    return sum(file.stat().st_size for file in FOLDER.rglob("*") if file.is_file())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(GOLDENS)}; default all")
    parser.add_argument("--check", action="store_true", help="compare with the files instead of writing them")
    parser.add_argument("--checkpoints", type=Path, metavar="FOLDER", help="write their model folders there")
    args = parser.parse_args()
    if unknown := set(args.names) - set(GOLDENS):
        parser.error(f"no golden named {', '.join(sorted(unknown))}; there are {', '.join(GOLDENS)}")
    torch.set_num_threads(1)
    disable_progress_bar()
    golden_weights.check_known_answers()
    found = []
    for name in args.names or GOLDENS:
        if args.checkpoints:
            write_checkpoint(name, args.checkpoints)
        elif args.check:
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
