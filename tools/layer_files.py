"""A model folder with and without its layer of multi-token prediction: the tensors of a safetensors file, and a copy that has all but the layer's. Needs no package.

    without_layer(Path("models/countdown-glm"), Path("runs/bare"))    # a copy, whether it has one or not
    changed_tensors(before, after)                                    # names, of two files' bytes
"""
import json
import shutil
import struct

LAYER_KEYS = ("num_nextn_predict_layers", "index_share_for_mtp_iteration", "normed_state_for_mtp_iteration")  # of config.json


def tensors(data):
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], data[8 + length + t["data_offsets"][0] : 8 + length + t["data_offsets"][1]])
            for name, t in header.items()}


def changed_tensors(before, after):
    """Those of the first file that are not, with type, shape and bytes, in the second."""
    now = tensors(after)
    return [name for name, tensor in tensors(before).items() if now.get(name) != tensor]


def without_layer(model, target):
    """A copy of the folder without its layer of multi-token prediction, if it has one."""
    shutil.copytree(model, target)
    config = json.loads((target / "config.json").read_text())
    prefix = f"model.layers.{config['num_hidden_layers']}."
    kept = {name: tensor for name, tensor in tensors((model / "model.safetensors").read_bytes()).items() if not name.startswith(prefix)}
    header, begin = {}, 0
    for name, (dtype, shape, data) in kept.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, begin + len(data)]}
        begin += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    (target / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in kept.values()))
    bare = {key: value for key, value in config.items() if key not in LAYER_KEYS}
    (target / "config.json").write_text(json.dumps(bare, indent=2) + "\n")
    return target
