#!/usr/bin/env python3
"""Goldens of multi-token prediction: the logits of one layer at depths 1 to 5, by numpy_mtp.py in float64.

Writes tests/golden/mtp/NAME/config.json and golden.safetensors: `tokens` int32 [T], `depthK` fp32 [T - K, V], the logits of depth K in the rows of
positions 1 .. T - K, and `grad.TENSOR` fp32 of every tensor of the layer that gets a gradient of its training over all depths, by torch's autograd
(torch_mtp.py) in float64. Metadata: seed, smallest_gap, loss. Weights are not stored: golden_weights.py and C++ make the same ones from the seed.
Beside it tv.safetensors: `grad.TENSOR` and, as metadata, loss of the total-variation loss.

Asserted here: where all visible keys are selected, depth 1 agrees to 1e-9 with transformers' own layer of DeepSeek-V3 in float64, which is given the
same weights; torch's logits of all depths are NumPy's to 1e-9; no selection is nearer to a tie than SMALLEST_GAP; each wrong variant moves the logits
of some depth by more than 1e-3.

    make_mtp_goldens.py            write them, searching the seed
    make_mtp_goldens.py --check    recompute and compare with the files; exit status 1 if they differ
"""

import argparse
import json
import sys
from dataclasses import fields

import numpy as np
import torch
from safetensors import safe_open
from transformers import DeepseekV3Config

import golden_weights
import make_goldens
import numpy_mtp
import torch_mtp
from comparison import largest_difference, relative_error
from golden_configs import DEEPSEEK_SHARED, GLM_MOE_DSA_SHARED

FOLDER = make_goldens.FOLDER / "mtp"
DEPTHS = 5
GUESSED_FROM = 9  # the position of the row from which depths that share nothing draft

GLM = GLM_MOE_DSA_SHARED | dict(
    hidden_size=36, num_hidden_layers=3, num_attention_heads=3, num_key_value_heads=3, q_lora_rank=20, kv_lora_rank=18, qk_nope_head_dim=12,
    qk_rope_head_dim=8, v_head_dim=20, index_head_dim=16, indexer_types=["full", "shared", "full"], first_k_dense_replace=1, intermediate_size=30,
    moe_intermediate_size=7, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=2, norm_topk_prob=True, routed_scaling_factor=1.7,
    rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
)  # fmt: skip

# Name: tokens, arguments of the configuration class, wrong variants that the golden must tell apart.
GOLDENS = {
    # A selection of five keys; an epsilon so large that a wrong one shows.
    "sparse": (23, GLM | dict(index_topk=5, vocab_size=61, rms_norm_eps=0.03), [f.name for f in fields(numpy_mtp.Knobs)]),
    # The same, with depths that share nothing.
    "own-keys": (23, GLM | dict(index_topk=5, vocab_size=61, rms_norm_eps=0.03, index_share_for_mtp_iteration=False),
                 ["hidden_first", "other_keys", "zero_seen", "other_state", "own_token_again"]),  # an equal rotation of all rows changes nothing
    # The same as the first, with depths that are given the output of the one before without its norm.
    "unnormed": (23, GLM | dict(index_topk=5, vocab_size=61, rms_norm_eps=0.03, normed_state_for_mtp_iteration=False), [f.name for f in fields(numpy_mtp.Knobs)]),
    # All visible keys selected, over two blocks of 64 keys.
    "dense-range": (81, GLM | dict(index_topk=96, vocab_size=35, rms_norm_eps=1e-6), ["hidden_first", "other_keys", "rope_stays", "zero_seen", "own_token_again"]),
    # No indexer: groups of experts, YaRN beyond its original context.
    "groups": (66, DEEPSEEK_SHARED | dict(
        hidden_size=40, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4, q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=10,
        qk_rope_head_dim=8, v_head_dim=10, first_k_dense_replace=1, intermediate_size=30, moe_intermediate_size=5, n_routed_experts=12,
        num_experts_per_tok=4, n_group=4, topk_group=2, n_shared_experts=1, norm_topk_prob=True, routed_scaling_factor=2.5, vocab_size=35,
        rms_norm_eps=1e-6, rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 40.0, "original_max_position_embeddings": 64,
                                            "mscale": 1.0, "mscale_all_dim": 1.0, "beta_fast": 32, "beta_slow": 1},
    ), ["hidden_first", "other_keys", "rope_stays", "zero_seen", "own_token_again"]),
}  # fmt: skip


def resolved(arguments):
    """The config.json that transformers writes, with the number of such layers."""
    return make_goldens.resolve(arguments) | {"num_nextn_predict_layers": 1}


def all_weights(config, seed):
    return golden_weights.weights(config, seed) | golden_weights.mtp_weights(config, seed)


def as_deepseek(config):
    """A DeepSeek-V3 config with the same arithmetic, valid where all visible keys are selected. A dense first layer is the trunk's alone."""
    kept = (
        "hidden_size", "num_attention_heads", "num_key_value_heads", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
        "moe_intermediate_size", "intermediate_size", "n_routed_experts", "num_experts_per_tok", "n_shared_experts", "norm_topk_prob", "routed_scaling_factor",
        "n_group", "topk_group", "vocab_size", "rms_norm_eps", "rope_parameters", "max_position_embeddings", "rope_interleave",
    )  # fmt: skip
    return dict({key: config[key] for key in kept if key in config}, num_hidden_layers=1, first_k_dense_replace=0, bos_token_id=None, eos_token_id=None)


def oracle_depth_1(config, weights, tokens, hidden):
    """Logits [T - 1, V] of transformers' layer, in float64."""
    from transformers.modeling_layers import MtpModel

    with make_goldens.float64_everywhere():
        trunk = make_goldens.AutoModelForCausalLM.from_config(
            DeepseekV3Config(**as_deepseek(config)), attn_implementation="eager", experts_implementation="eager").eval()  # fmt: skip
        model = MtpModel(trunk, 1).eval()
        model.config._attn_implementation = model.config._experts_implementation = "eager"
        prefix, layer = f"model.layers.{config['num_hidden_layers']}.", model.layers[0]
        own = {"enorm.weight": layer.enorm, "hnorm.weight": layer.hnorm, "eh_proj.weight": layer.eh_proj, "shared_head.norm.weight": layer.post_norm}
        used = set()

        def copy(parameter, name):
            parameter.copy_(torch.from_numpy(np.asarray(weights[name], np.float64)))
            used.add(name)

        with torch.no_grad():
            for name, module in own.items():
                copy(module.weight, prefix + name)
            for name, tensor in layer.mtp_block.state_dict(keep_vars=True).items():
                for file_name, part in make_goldens.file_tensors(name, tensor.data, "deepseek_v3"):
                    copy(part, prefix + file_name)
            copy(trunk.get_input_embeddings().weight, "model.embed_tokens.weight")
            copy(trunk.lm_head.weight, "lm_head.weight")
            unused = {name for name in weights if name.startswith(prefix)} - used
            assert all(".indexer." in name for name in unused), f"transformers has no place for {sorted(unused)}"
            positions = torch.arange(1, len(tokens))[None]
            ids = torch.from_numpy(np.asarray(tokens, np.int64))[None, 1:]
            n = model.forward_layer(0, torch.from_numpy(hidden[:-1])[None], positions, None, input_ids=ids)
            return trunk.lm_head(n)[0].numpy()


def compute(name, seeds, smallest_gap):
    count, arguments, variants = GOLDENS[name]
    config = resolved(arguments)
    for seed in seeds:
        weights, tokens = all_weights(config, seed), golden_weights.tokens(seed, count, config["vocab_size"])
        logits, _, gap = numpy_mtp.depths(config, weights, tokens, DEPTHS)
        if gap >= smallest_gap:
            break
        print(f"{name}: seed {seed}: smallest gap {gap:.3g}, next", file=sys.stderr)
    else:
        raise AssertionError(f"{name}: no seed of {seeds} keeps all selections {smallest_gap} from a tie")
    if config.get("index_topk", count) >= count:
        seen = {}
        numpy_mtp.trunk_of.forward(config, weights, tokens, record=seen.__setitem__)
        error = relative_error(logits[0], oracle_depth_1(config, weights, tokens, seen["final_norm"]))
        print(f"{name}: depth 1 differs from transformers' by {error:.2g}")
        if error > make_goldens.NUMPY_TOLERANCE:
            raise AssertionError(f"{name}: depth 1 is off by {error}, allowed {make_goldens.NUMPY_TOLERANCE}")
    for variant in variants:
        wrong, _, _ = numpy_mtp.depths(config, weights, tokens, DEPTHS, numpy_mtp.Knobs(**{variant: True}))
        moved = max(largest_difference(a, b) for a, b in zip(wrong, logits, strict=True))
        print(f"  variant {variant}: logits move by {moved:.3g}")
        if moved <= make_goldens.SENSITIVITY:
            raise AssertionError(f"{name} cannot tell {variant}: it moves the logits by {moved}")
    loss, gradients, again = torch_mtp.training_gradients(config, weights, tokens, DEPTHS, "ce")
    variation = torch_mtp.training_gradients(config, weights, tokens, DEPTHS, "tv")[:2]
    for k, (mine, theirs) in enumerate(zip(logits, again, strict=True), 1):
        if (error := relative_error(theirs, mine)) > make_goldens.NUMPY_TOLERANCE:
            raise AssertionError(f"{name}: torch's depth {k} is off by {error}, allowed {make_goldens.NUMPY_TOLERANCE}")
    print(f"{name}: seed {seed}, smallest gap {gap:.3g}, losses {loss!r}, {variation[0]!r}, {len(gradients)} gradients")
    return config, seed, tokens, logits, gap, loss, gradients, variation


def said(config, seed, tokens, logits):
    """{tensor: logits} of a golden."""
    found = {f"depth{k}": of_depth for k, of_depth in enumerate(logits, 1)}
    if numpy_mtp.shares_keys(config):
        return found
    of_guess = numpy_mtp.guessed(config, all_weights(config, seed), tokens, GUESSED_FROM, DEPTHS)
    return found | {f"guess{k}": of_depth for k, of_depth in enumerate(of_guess, 1)}


def write(name):
    config, seed, tokens, logits, gap, loss, gradients, variation = compute(name, range(1, 1000), make_goldens.SEARCHED_GAP)
    folder = FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    tensors = {"tokens": tokens} | {key: value.astype(np.float32) for key, value in said(config, seed, tokens, logits).items()}
    tensors |= {f"grad.{key}": value.astype(np.float32) for key, value in gradients.items()}
    metadata = {"seed": str(seed), "loss": repr(loss)} | ({"smallest_gap": repr(float(gap))} if gap < float("inf") else {})
    make_goldens.write_safetensors(folder / "golden.safetensors", tensors, metadata)
    write_variation(name, variation)


def write_variation(name, variation):
    loss, gradients = variation
    tensors = {f"grad.{key}": value.astype(np.float32) for key, value in gradients.items()}
    make_goldens.write_safetensors(FOLDER / name / "tv.safetensors", tensors, {"loss": repr(loss)})


def stored_differences(file, loss, fresh):
    """The differences of a stored file of a loss and tensors from fresh ones, as sentences."""
    with safe_open(file, "np") as opened:
        metadata, stored = opened.metadata(), {key: opened.get_tensor(key) for key in opened.keys()}
    found = [] if abs(float(metadata["loss"]) - loss) <= make_goldens.RECOMPUTE_TOLERANCE * max(1, abs(loss)) else [f"{file}: loss differs"]
    found += [] if fresh.keys() <= stored.keys() else [f"{file}: tensors are {sorted(stored)}, wanted {sorted(fresh)}"]
    return found + [f"{file}: {key} differs" for key in fresh.keys() & stored.keys() if not make_goldens.rounds_to(stored[key], fresh[key])]


def differences(name):
    folder = FOLDER / name
    with safe_open(folder / "golden.safetensors", "np") as file:
        metadata, stored = file.metadata(), {key: file.get_tensor(key) for key in file.keys()}
    config, seed, tokens, logits, _, loss, gradients, variation = compute(name, [int(metadata["seed"])], make_goldens.SMALLEST_GAP)
    found = [] if json.loads((folder / "config.json").read_text()) == config else [f"{name}: config.json differs"]
    found += [] if np.array_equal(stored.pop("tokens"), tokens) else [f"{name}: tokens differ"]
    found += [] if abs(float(metadata["loss"]) - loss) <= make_goldens.RECOMPUTE_TOLERANCE * max(1, abs(loss)) else [f"{name}: loss differs"]
    fresh = said(config, seed, tokens, logits) | {f"grad.{key}": value for key, value in gradients.items()}
    found += [] if fresh.keys() == stored.keys() else [f"{name}: tensors are {sorted(stored)}, wanted {sorted(fresh)}"]
    found += stored_differences(folder / "tv.safetensors", variation[0], {f"grad.{key}": value for key, value in variation[1].items()})
    return found + [f"{name}: {key} differs" for key in fresh.keys() & stored.keys() if not make_goldens.rounds_to(stored[key], fresh[key])]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(GOLDENS)}; default all")
    parser.add_argument("--check", action="store_true", help="compare with the files instead of writing them")
    args = parser.parse_args()
    if unknown := set(args.names) - set(GOLDENS):
        parser.error(f"no golden named {', '.join(sorted(unknown))}; there are {', '.join(GOLDENS)}")
    torch.set_num_threads(1)
    found = []
    for name in args.names or GOLDENS:
        if args.check:
            found += differences(name)
        else:
            write(name)
    for sentence in found:
        print(sentence, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
