"""A store written from what docs/weight-sync.md says, with nothing of this project: the program reads it, follows it, and keeps its locks when it pushes to it."""
import contextlib
import fcntl
import hashlib
import json
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import xxhash
from store_tools import REPOSITORY, run, wait_until

MODEL = REPOSITORY / "models/countdown-glm"
FILES = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")
PROMPT = {"prompt": "3 7 12=48:", "max_tokens": 12, "temperature": 1, "seed": 5, "logprobs": 1, "ignore_eos": True}
STAGES = {"waiting", "downloading", "verifying", "applying", "staged", "swapping", "ready", "error"}
REPLICA = {"name": str, "url": str, "model": str, "stage": str, "current": str, "target": str, "error": str, "current_sequence": int, "sequence": int, "full_bytes": int, "downloaded_bytes": int,
           "changed_tensors": int, "seconds": dict, "beat": int, "unix_milliseconds": int}  # fmt: skip


def canonical(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def varint(value):
    text = b""
    while value >= 0x80:
        text += bytes([value & 0x7F | 0x80])
        value >>= 7
    return text + bytes([value])


def changes(old, new, width):
    gaps, words, count, gap = b"", b"", 0, 0
    for at in range(0, len(old), width):
        if old[at : at + width] == new[at : at + width]:
            gap += 1
            continue
        gaps, words, count, gap = gaps + varint(gap), words + new[at : at + width], count + 1, 0
    return varint(count) + varint(len(gaps)) + gaps + words


def tensors_of(folder):
    """{name: (type, shape, bytes)}"""
    data = (folder / "model.safetensors").read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    header.pop("__metadata__", None)
    return {name: (one["dtype"], one["shape"], data[begin + one["data_offsets"][0] : begin + one["data_offsets"][1]]) for name, one in header.items()}


def stepped(tensors):
    """The lowest bit of every fiftieth bf16 weight is another; what is fp32 stays."""

    def moved(data):
        data = bytearray(data)
        for at in range(0, len(data), 100):
            data[at] ^= 1
        return bytes(data)

    return {name: (kind, shape, moved(data) if kind == "BF16" else data) for name, (kind, shape, data) in tensors.items()}


def whole(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".mine")
    beside.write_bytes(data)
    os.replace(beside, path)


@contextlib.contextmanager
def locked(folder):
    with (folder / "lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


class Store:
    def __init__(self, root):
        self.root = root
        for inner in ("objects", "manifests", "channels"):
            (root / inner).mkdir(parents=True)
        (root / ".lockstep").write_text("lockstep store\n")

    def put(self, data):
        name = sha256(data)
        whole(self.root / "objects" / name[:2] / name, data)
        return name

    def snapshot(self, tensors, parent=None, before=None):
        """All of the tensors, or what changed since the parent's."""
        rows, payloads = [], b""
        for name in sorted(tensors, key=str.encode):
            kind, shape, data = tensors[name]
            old, codec, payload = before[name][2] if before else None, "full", data
            if old == data:
                codec, payload = "same", b""
            elif old is not None and len(changed := changes(old, data, {"BF16": 2, "F32": 4}[kind])) < len(data):
                codec, payload = "changes", changed
            rows.append({"name": name, "dtype": kind, "shape": shape, "base": None if codec == "full" else xxhash.xxh3_128_hexdigest(old), "result": xxhash.xxh3_128_hexdigest(data), "codec": codec,
                         "object": None, "offset": len(payloads) if payload else 0, "bytes": len(payload)})  # fmt: skip
            payloads += payload
        held = self.put(payloads)
        for row in rows:
            row["object"] = held if row["bytes"] else None
        files = [{"name": name, "bytes": len(data), "sha256": self.put(data)} for name in FILES for data in [(MODEL / name).read_bytes()]]
        of = {one["name"]: one["sha256"] for one in files}
        plain = [{key: row[key] for key in ("dtype", "name", "result", "shape")} for row in rows]
        text = canonical({"format": "lockstep-snapshot", "version": 1, "parent": parent, "profile": None, "config": of["config.json"], "tokenizer": of["tokenizer.json"], "files": files, "tensors": rows,
                          "content": sha256(canonical({"files": files, "profile": None, "tensors": plain}))})  # fmt: skip
        whole(self.root / f"manifests/{sha256(text)}.json", text)
        return sha256(text)

    def channel(self):
        path = self.root / "channels/chat.json"
        return json.loads(path.read_bytes()) if path.exists() else {"sequence": 0}

    def move(self, target):
        with locked(self.root / "channels"):
            whole(self.root / "channels/chat.json", canonical({"sequence": self.channel()["sequence"] + 1, "target": target, "transition": "immediate"}))


def test_a_store_by_hand_is_read_followed_and_pushed_to(tmp_path, start_sampler):
    store = Store(tmp_path / "store")
    old = tensors_of(MODEL)
    new = stepped(old)
    with locked(store.root):
        first = store.snapshot(old)
        store.move(first)
    server = start_sampler("--follow", f"{store.root}/chat", "--replica", "r", "--threads", "1")
    answer = lambda: httpx.post(f"{server.url}/v1/completions", json=PROMPT, timeout=60).json()  # noqa: E731
    has = lambda number: float(re.search(r"^lockstep_sync_current_sequence (\S+)$", httpx.get(f"{server.url}/metrics").text, re.M)[1]) == number  # noqa: E731
    wait_until(lambda: has(1))
    before = answer()
    with locked(store.root):
        second = store.snapshot(new, first, old)
        store.move(second)
    wait_until(lambda: has(2))
    after = answer()
    assert after["snapshot"] == second and after["choices"] != before["choices"]
    run("snapshot", "pull", store.root, "chat", tmp_path / "out", "--json")
    assert tensors_of(tmp_path / "out") == new
    assert all((tmp_path / "out" / name).read_bytes() == (MODEL / name).read_bytes() for name in FILES)
    assert run("snapshot", "verify", store.root, "chat", "--json")["sound"]

    # The record of a replica has the keys that the page lists.
    record = lambda: json.loads((store.root / "replicas/chat~r.json").read_bytes())  # noqa: E731
    wait_until(lambda: record()["stage"] == "ready")
    row = record()
    assert {key: type(value) for key, value in row.items()} == REPLICA and row["seconds"].keys() == STAGES, row
    assert (row["name"], row["current"], row["target"], row["current_sequence"], row["error"]) == ("r", second, second, 2, ""), row

    # Who holds `lock` keeps other writers out; who holds `channels/lock` keeps the record as it is.
    with locked(store.root):
        refused = run("snapshot", "push", MODEL, store.root, "--channel", "chat", status=1).stderr
        assert f"is in use by process {os.getpid()}" in refused, refused
    with ThreadPoolExecutor(1) as pool:
        with locked(store.root / "channels"):
            pushing = pool.submit(run, "snapshot", "push", MODEL, store.root, "--channel", "chat", "--json")
            wait_until(lambda: pushing.done() or len(list((store.root / "manifests").glob("*.json"))) == 3)
            time.sleep(0.3)
            assert not pushing.done() and store.channel() == {"sequence": 2, "target": second, "transition": "immediate"}
        third = pushing.result()
    assert third["parent"] == second and (store.root / "channels/chat.json").read_bytes() == canonical({"sequence": 3, "target": third["id"], "transition": "immediate"})
    wait_until(lambda: has(3))
    assert answer()["choices"] == before["choices"]


def test_a_folder_without_the_mark_is_read_and_not_written(tmp_path):
    store = Store(tmp_path / "store")
    store.move(store.snapshot(tensors_of(MODEL)))
    (store.root / ".lockstep").unlink()
    run("snapshot", "pull", store.root, "chat", tmp_path / "out", "--json")
    refused = run("snapshot", "push", MODEL, store.root, "--channel", "chat", status=1).stderr
    assert "holds files that are not of a store" in refused, refused
    (store.root / ".lockstep").write_text("lockstep store\n")
    assert run("snapshot", "push", MODEL, store.root, "--channel", "chat", "--json")["sequence"] == 2
