"""Puts weights into a folder store of snapshots, for any trainer in Python (docs/weight-sync.md has the format):

    import lockstep
    lockstep.publish(model.state_dict(), "STORE", "chat", files="base-model")   # all weights, with config.json and so on of that folder
    lockstep.publish(model.state_dict(), "STORE", "chat")                       # stores the changes since then

Servers that follow the channel, and `lockstep snapshot pull STORE chat OUT`, then get these weights bit for bit. Needs numpy. The weights published
last stay in memory, so that the next call can compare with them.
"""
import contextlib
import fcntl
import hashlib
import json
import os
import re
import sys
import time
from pathlib import Path

import numpy as np

from ._digest import digest
from .server import LockstepError

FILES = ("adapter_config.json", "added_tokens.json", "chat_template.jinja", "chat_template.json", "config.json", "generation_config.json", "merges.txt", "tiktoken.model",
         "special_tokens_map.json", "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json")
OBJECT_BYTES = 1 << 30  # an object (a file of payloads) ends with the payload that brings it to this size
_TYPES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "int64": "I64",
          "int32": "I32", "int16": "I16", "int8": "I8", "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL"}
_WIDTHS = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2}  # others: 1
_last = {}  # (store, channel) -> (id, {name: _Tensor}): the snapshot that this process published last


class _Tensor:
    """Type, shape and bytes of a tensor of torch, numpy or ml_dtypes; the bytes are a copy."""

    def __init__(self, name, value):
        self.name = name
        if isinstance(value, _Tensor):
            self.__dict__.update(value.__dict__)
            return
        kind = str(value.dtype).split(".")[-1]
        if kind not in _TYPES:
            raise LockstepError(f"tensor {name!r} is {kind}, allowed are {', '.join(_TYPES)}")
        self.type, self.shape = _TYPES[kind], [int(n) for n in value.shape]
        if hasattr(value, "detach"):
            torch = sys.modules["torch"]
            value = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        self.bytes = np.array(np.ascontiguousarray(value).reshape(-1).view(np.uint8))
        self.digest = digest(self.bytes)

    def alike(self, other):
        return other is not None and (self.type, self.shape) == (other.type, other.shape)


def _canonical(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _varints(values):
    """Numbers below 2^42 as varints (7 bits a byte, low first), one after another."""
    values = np.asarray(values, np.uint64)
    lengths = np.ones(len(values), np.int64)
    for size in range(1, 6):
        lengths += values >= np.uint64(1) << np.uint64(7 * size)
    out = np.zeros(int(lengths.sum()), np.uint8)
    starts = np.cumsum(lengths) - lengths
    for at in range(int(lengths.max(initial=0))):
        more = lengths > at
        piece = values[more] >> np.uint64(7 * at) & np.uint64(0x7F)
        out[starts[more] + at] = piece | (lengths[more] > at + 1).astype(np.uint64) << np.uint64(7)
    return out.tobytes()


def _read_varints(data):
    data = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(data < 0x80)
    starts = np.concatenate(([0], ends[:-1] + 1)) if len(ends) else ends
    values = np.zeros(len(ends), np.uint64)
    for at in range(int((ends - starts).max(initial=-1)) + 1):
        more = starts + at <= ends
        values[more] |= (data[starts[more] + at] & 0x7F).astype(np.uint64) << np.uint64(7 * at)
    return values


def _one_varint(data):
    end = next(i for i, byte in enumerate(data) if byte < 0x80) + 1
    return int(_read_varints(data[:end])[0]), data[end:]


def _encode(old, new):
    """(codec, payload): "same" with no bytes, "changes" with the changed elements, or "full" with all of them if that is smaller."""
    whole = "full", new.bytes.tobytes()
    width = _WIDTHS.get(new.type, 1)
    if not new.alike(old) or width == 8:
        return ("same", b"") if new.alike(old) and old.digest == new.digest else whole
    before, after = (t.bytes.view(f"u{width}") for t in (old, new))
    at = np.flatnonzero(before != after)
    if not len(at):
        return "same", b""
    gaps = _varints(np.diff(at, prepend=-1) - 1)
    payload = _varints([len(at)]) + _varints([len(gaps)]) + gaps + after[at].tobytes()
    return ("changes", payload) if len(payload) < len(new.bytes) else whole


def _decode(payload, old, width):
    count, rest = _one_varint(payload)
    length, rest = _one_varint(rest)
    words = old.view(f"u{width}").copy()
    words[np.cumsum(_read_varints(rest[:length]).astype(np.int64) + 1) - 1] = np.frombuffer(rest[length:], words.dtype, count)
    return words.view(np.uint8)


def _replace(path, data):
    """Writes a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".lockstep.partial")
    with open(partial, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def _lock(folder, seconds):
    deadline = time.monotonic() + seconds
    with open(folder / "lock", "a+") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise LockstepError(f"another process writes {str(folder)!r}; publish when it is done") from None
                time.sleep(0.01)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


class _Store:
    def __init__(self, folder):
        self.root = Path(folder)
        if "://" in str(folder):
            raise LockstepError("lockstep.publish writes folders; `lockstep snapshot mirror FOLDER s3://BUCKET/PREFIX` brings them elsewhere")
        mark = self.root / ".lockstep"
        if not (self.root / "manifests").is_dir():
            if self.root.exists() and any(p.name != ".lockstep" for p in self.root.iterdir()) and not mark.exists():
                raise LockstepError(f"{str(folder)!r} holds other files; name a new or empty folder")
            self.root.mkdir(parents=True, exist_ok=True)
            mark.write_text("lockstep store\n")
        for inner in ("objects", "manifests", "channels"):
            (self.root / inner).mkdir(exist_ok=True)

    def object_path(self, name):
        return self.root / "objects" / name[:2] / name

    def put(self, data):
        name = hashlib.sha256(data).hexdigest()
        if not self.object_path(name).exists() or self.object_path(name).read_bytes() != data:
            _replace(self.object_path(name), data)
        return name

    def channel(self, name):
        path = self.root / "channels" / f"{name}.json"
        return path, json.loads(path.read_bytes()) if path.exists() else None

    def manifest(self, id):
        data = (self.root / "manifests" / f"{id}.json").read_bytes()
        if hashlib.sha256(data).hexdigest() != id:
            raise LockstepError(f"the manifest of snapshot {id} in {str(self.root)!r} has another SHA-256; push the snapshot again")
        return json.loads(data)

    def tensors(self, id):
        """{name: _Tensor} of a snapshot; None when its chain has a codec that only the program reads, or is not whole."""
        chain = []
        while id is not None:
            if not (self.root / "manifests" / f"{id}.json").exists():
                return None
            chain.append(self.manifest(id))
            id = chain[-1]["parent"]
        if any(t["codec"] not in ("same", "full", "changes") for m in chain for t in m["tensors"]):
            return None
        values = {}
        for manifest in reversed(chain):
            before, values = values, {}
            for t in manifest["tensors"]:
                payload = b""
                if t["bytes"]:
                    with open(self.object_path(t["object"]), "rb") as file:
                        file.seek(t["offset"])
                        payload = file.read(t["bytes"])
                one = object.__new__(_Tensor)
                one.name, one.type, one.shape = t["name"], t["dtype"], t["shape"]
                if t["codec"] == "full":
                    one.bytes = np.frombuffer(payload, np.uint8)
                elif t["codec"] == "same":
                    one.bytes = before[t["name"]].bytes
                else:
                    one.bytes = _decode(payload, before[t["name"]].bytes, _WIDTHS.get(one.type, 1))
                one.digest = digest(one.bytes)
                if one.digest != t["result"]:
                    raise LockstepError(f"tensor {one.name!r} of {str(self.root)!r} has the digest {one.digest}, expected {t['result']}; push it again")
                values[one.name] = one
        return values


def publish(tensors, store, channel, *, files=None, transition="immediate", lock_seconds=60.0):
    """Publishes weights as a snapshot and points the channel at it; returns the snapshot's id.

    tensors: {name: tensor of torch, numpy or ml_dtypes}, with the names and types that they have in the model's safetensors files.
    store: a folder; channel: a name in it. Both are made if they do not exist.
    files: a folder whose config.json, tokenizer.json and so on (FILES) become part of the snapshot; None: those of the channel's last snapshot.
    transition: "immediate" or "staged": how replicas change over (docs/weight-sync.md). lock_seconds: how long to wait for another writer.
    Raises LockstepError; the channel is then unchanged, or as another writer has set it meanwhile.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", channel) or re.fullmatch(r"[0-9a-f]{64}", channel):
        raise LockstepError(f"the channel's name is {channel!r}, allowed are 1 to 64 letters, digits, '-', '_' and '.', a letter or digit first")
    if transition not in ("immediate", "staged"):
        raise LockstepError(f"transition is {transition!r}, allowed are immediate and staged")
    place, key = _Store(store), (os.path.realpath(store), channel)
    now = {name: _Tensor(name, tensors[name]) for name in sorted(tensors, key=str.encode)}
    with _lock(place.root, lock_seconds):
        path, record = place.channel(channel)
        parent, before = record["target"] if record else None, None
        if parent:
            known = _last.get(key)
            before = known[1] if known and known[0] == parent else place.tensors(parent)
        manifest_before = place.manifest(parent) if parent else None
        if files is not None:
            found = [(name, (Path(files) / name).read_bytes()) for name in FILES if (Path(files) / name).is_file()]
            listed = sorted(({"bytes": len(data), "name": name, "sha256": place.put(data)} for name, data in found), key=lambda f: f["name"])
        else:
            listed = manifest_before["files"] if manifest_before else []
        if not any(f["name"] in ("config.json", "adapter_config.json") for f in listed):
            raise LockstepError("there is no config.json: give files=FOLDER with the model's small files to the first publication")
        parent = parent if before is not None else None
        rows, waiting, held = {}, [], bytearray()

        def end_object():
            name = place.put(bytes(held)) if waiting else None
            for row in waiting:
                row["object"] = name
            waiting.clear()
            held.clear()

        for tensor in sorted(now.values(), key=lambda t: -len(t.bytes)):
            old = before.get(tensor.name) if before else None
            codec, payload = _encode(old, tensor)
            rows[tensor.name] = row = {"base": None if codec == "full" else old.digest, "bytes": len(payload), "codec": codec, "dtype": tensor.type,
                                       "name": tensor.name, "object": None, "offset": len(held) if payload else 0, "result": tensor.digest,
                                       "shape": tensor.shape}
            if payload:
                waiting.append(row)
                held += payload
            if len(held) >= OBJECT_BYTES:
                end_object()
        end_object()
        listing = [rows[name] for name in now]
        if before is not None and before.keys() == now.keys() and listed == manifest_before["files"] and all(row["codec"] == "same" for row in listing):
            return parent  # nothing has changed
        sha = {f["name"]: f["sha256"] for f in listed}
        plain = [{k: row[k] for k in ("dtype", "name", "result", "shape")} for row in listing]
        text = _canonical({"config": sha.get("config.json"), "content": hashlib.sha256(_canonical({"files": listed, "profile": None, "tensors": plain})).hexdigest(),
                           "files": listed, "format": "lockstep-snapshot", "parent": parent, "profile": None, "tensors": listing,
                           "tokenizer": sha.get("tokenizer.json"), "version": 1})
        id = hashlib.sha256(text).hexdigest()
        _replace(place.root / "manifests" / f"{id}.json", text)
        with _lock(place.root / "channels", 5.0):
            if place.channel(channel)[1] != record:
                raise LockstepError(f"channel {channel!r} of {str(store)!r} was moved by another meanwhile; snapshot {id} stands beside")
            if record is None or (record["target"], record["transition"]) != (id, transition):
                _replace(path, _canonical({"sequence": record["sequence"] + 1 if record else 1, "target": id, "transition": transition}))
        _last[key] = (id, now)
    return id
