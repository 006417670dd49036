#!/usr/bin/env python3
"""Names and shapes of the tensors of large models, as transformers' own classes have them: tests/system/real_sizes.json.

    tools/make_real_sizes.py            write it
    tools/make_real_sizes.py --check    exit status 1 if it is not what would be written

Every file of shapes/configs is built on the meta device: no weight is allocated. Experts of a layer are one tensor there ([experts, gate and up,
hidden]), as in files that hold them fused. A row is a name with * for the layer's number, its shape, and the layers that have it. `parameters` and
`active` are models.md's published counts: trained weights, and those used a token, the input embedding not counted.
"""

import argparse
import json
import re
import sys
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils.logging import set_verbosity_error

from golden_configs import ORACLE_TYPES

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "tests/system/real_sizes.json"
FILE_NAMES = {"minimax_m2": [(".mlp.", ".block_sparse_moe."), (".gate.e_score_correction_bias", ".e_score_correction_bias")]}


def ranges(layers):
    text, begin = [], None
    for i in sorted(layers):
        begin = i if begin is None else begin
        if i + 1 not in layers:
            text.append(f"{begin}-{i}" if begin < i else str(i))
            begin = None
    return ",".join(text)


def sizes_of(path):
    config = json.loads(path.read_text())
    family = config["model_type"]
    oracle = AutoConfig.for_model(**config | dict(model_type=ORACLE_TYPES.get(family, family)))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(oracle)
    trained = {name for name, _ in model.named_parameters() if "e_score_correction_bias" not in name}
    rows, parameters, idle = {}, 0, 0
    for name, tensor in model.state_dict().items():
        if oracle.tie_word_embeddings and name == "lm_head.weight":
            continue
        if name in trained:
            parameters += tensor.numel()
            experts = tensor.shape[0] if ".experts." in name else 0
            idle += tensor.numel() // experts * (experts - oracle.num_experts_per_tok) if experts else 0
            idle += tensor.numel() if name == "model.embed_tokens.weight" and not oracle.tie_word_embeddings else 0
        for old, new in FILE_NAMES.get(family, []):
            name = name.replace(old, new)
        layer = re.search(r"(?<=\.layers\.)\d+(?=\.)", name)
        key = re.sub(r"(?<=\.layers\.)\d+(?=\.)", "*", name)
        shape, layers = rows.setdefault(key, (list(tensor.shape), set()))
        assert shape == list(tensor.shape), name
        if layer:
            layers.add(int(layer[0]))
    return {"parameters": parameters, "active": parameters - idle,
            "tensors": {key: {"shape": shape} | ({"layers": ranges(layers)} if layers else {}) for key, (shape, layers) in rows.items()}}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    set_verbosity_error()
    lines = [f'"{path.stem}": {json.dumps(sizes_of(path))}' for path in sorted((ROOT / "shapes/configs").glob("*.json"))]
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    if not check:
        OUT.write_text(text)
    elif OUT.read_text() != text:
        sys.exit(f"{OUT.name} is not what transformers says; tools/make_real_sizes.py writes it")


if __name__ == "__main__":
    main()
