"""What a server wrote down of a model, in float64, to hold torch's optimizers against it."""
from pathlib import Path

from safetensors.torch import load_file


def saved_state(state_folder, name):
    """{"master": {tensor: values}, "m": ..., "v": ...} of the training checkpoint of that name; float64."""
    [path] = [p for p in Path(state_folder).glob(f"checkpoints/*/weights/{name}/**/state.safetensors")]
    groups = {"master": {}, "m": {}, "v": {}}
    for key, value in load_file(path).items():
        group, tensor = key.split(".", 1)
        groups[group][tensor] = value.double()
    return groups
