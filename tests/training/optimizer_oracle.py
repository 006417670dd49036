"""What a server wrote down of a model, and the optimizers of torch in float64 to hold against it."""
from pathlib import Path

import torch
from safetensors.torch import load_file


def saved_state(state_folder, name):
    """{"master": {tensor: values}, "m": ..., "v": ...} of the training checkpoint of that name; float64."""
    [path] = [p for p in Path(state_folder).glob(f"checkpoints/*/weights/{name}/**/state.safetensors")]
    groups = {"master": {}, "m": {}, "v": {}}
    for key, value in load_file(path).items():
        group, tensor = key.split(".", 1)
        groups[group][tensor] = value.double()
    return groups


def muon_in_double(weights, gradients, **settings):
    """torch.optim.Muon on one matrix over several gradients, its Newton-Schulz steps in float64 too instead of bfloat16."""
    parameter = torch.nn.Parameter(weights.clone())
    optimizer = torch.optim.Muon([parameter], weight_decay=0.0, **settings)
    narrow = torch.Tensor.bfloat16
    torch.Tensor.bfloat16 = lambda tensor: tensor.clone()
    try:
        for gradient in gradients:
            parameter.grad = gradient.clone()
            optimizer.step()
    finally:
        torch.Tensor.bfloat16 = narrow
    return parameter.detach()
