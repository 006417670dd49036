"""Weights through a store and back: what is pulled has the bits, and the log-probabilities, of what was pushed; damage is an error with what heals it.

The shipped model stands for three steps of a training: its file with some bytes of its weights changed.
"""
import json
import shutil
import struct

from harness import MODEL, TMP, check, done, lockstep, refused

STORE = TMP / "store"
LINES = TMP / "lines.jsonl"
LINES.write_text('{"tokens": [1, 5, 7, 9, 4, 6]}\n')


def data_of(folder):
    """Header and data of the one safetensors file of a folder."""
    content = (folder / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length]), bytearray(content[8 + length :]), content[: 8 + length]


def tensors(folder):
    header, data, _ = data_of(folder)
    return {n: (t["dtype"], t["shape"], bytes(data[slice(*t["data_offsets"])])) for n, t in header.items() if n != "__metadata__"}


def stepped(name, before, stride):
    """A copy of a model in which the lowest bit of one in `stride` elements is another."""
    folder = TMP / name
    shutil.copytree(before, folder)
    _, data, head = data_of(folder)
    for at in range(0, len(data) - 4, stride * 4):
        data[at] ^= 1
    (folder / "model.safetensors").write_bytes(head + data)
    return folder


def scores(folder):
    return done("score", "--model", folder, "--tokens", LINES).stdout


FIRST = stepped("first", MODEL, 10**9)
SECOND = stepped("second", FIRST, 200)
THIRD = stepped("third", SECOND, 350)
IDS = []

with check("push"):
    IDS.append(done("snapshot", "push", FIRST, STORE, "--channel", "chat", "--json").json()["id"])
    second = done("snapshot", "push", SECOND, STORE, "--channel", "chat", "--base", FIRST, "--json", "--transition", "staged").json()
    assert second["parent"] == IDS[0] and second["sequence"] == 2 and second["payload_bytes"] < 0.05 * second["full_bytes"], second
    IDS.append(second["id"])
    third = done("snapshot", "push", THIRD, STORE, "--parent", "chat", "--profile", "cpu-f32", "--json").json()  # the channel stays
    IDS.append(third["id"])
    assert third["parent"] == IDS[1] and third["changed_elements"] > 100 and third["channel"] is None, third
    assert done("snapshot", "push", THIRD, STORE, "--parent", IDS[1][:8], "--profile", "cpu-f32", "--threads", "1", "--quiet").stdout.split()[0] == IDS[2]
    shown = done("snapshot", "show", STORE, "--json").json()
    assert {s["id"] for s in shown["snapshots"]} == set(IDS) and shown["channels"] == [{"name": "chat", "sequence": 2, "target": IDS[1], "transition": "staged"}], shown
    rows = done("snapshot", "show", STORE, IDS[2], "--tensors", "--json").json()["tensors"]
    assert {r["codec"] for r in rows} >= {"sparse"} and len(rows) == len(tensors(THIRD)), rows

with check("pull"):
    for i, folder in enumerate((FIRST, SECOND, THIRD)):
        out = TMP / f"pulled-{i}"
        done("snapshot", "pull", STORE, IDS[i], out, "--quiet")
        assert tensors(out) == tensors(folder), IDS[i]
        assert scores(out) == scores(folder), IDS[i]
    assert scores(FIRST) != scores(THIRD)  # a control: the steps can be seen
    less = done("snapshot", "pull", STORE, IDS[2], TMP / "from-base", "--base", SECOND, "--json").json()
    assert tensors(TMP / "from-base") == tensors(THIRD) and less["read_bytes"] == third["payload_bytes"], less
    for name in ("config.json", "tokenizer.json"):
        assert (TMP / "pulled-0" / name).read_bytes() == (FIRST / name).read_bytes(), name

with check("diff-and-squash"):
    told = done("snapshot", "diff", STORE, IDS[1], IDS[2], "--json").json()["tensors"]
    assert sum(t["changed"] for t in told) == third["changed_elements"] and {t["largest_step"] for t in told} == {1}, told
    squashed = done("snapshot", "squash", STORE, IDS[0], IDS[2], "--json").json()
    assert squashed["content"] == third["content"] and squashed["parent"] == IDS[0], squashed
    direct = done("snapshot", "push", THIRD, STORE, "--parent", IDS[0], "--profile", "cpu-f32", "--json").json()
    assert direct["id"] == squashed["id"], (direct, squashed)
    done("snapshot", "verify", STORE, squashed["id"])

with check("damage-is-found"):
    objects = sorted((STORE / "objects").glob("*/*"), key=lambda p: p.stat().st_size)
    largest = objects[-1]
    right = largest.read_bytes()
    wrong = bytearray(right)
    wrong[len(wrong) // 2] ^= 4
    largest.write_bytes(wrong)
    failed = refused("snapshot", "pull", STORE, "chat", TMP / "never", status=1, words=["tensor", "has the digest", "expected", "push the snapshot again"])
    assert not (TMP / "never").exists()
    report = lockstep("snapshot", "verify", STORE, "chat", "--json")
    assert report.returncode == 1 and not report.json()["sound"] and len(report.json()["faults"]) == 2, report
    largest.write_bytes(right)
    assert done("snapshot", "verify", STORE, "chat", "--json").json()["sound"]
    # One manifest that cannot be read is named, and hides no other.
    manifest = STORE / "manifests" / f"{squashed['id']}.json"
    right = manifest.read_bytes()
    manifest.write_bytes(right[: len(right) // 2])
    report = lockstep("snapshot", "show", STORE, "--json")
    assert report.returncode == 1 and {s["id"] for s in report.json()["snapshots"]} == set(IDS), report
    assert [(d["kind"], d["name"]) for d in report.json()["damaged"]] == [("snapshot", squashed["id"])], report
    report = lockstep("snapshot", "show", STORE)
    assert report.returncode == 1 and all(i in report.stdout for i in IDS) and squashed["id"] in report.stderr, report
    manifest.write_bytes(right)

with check("prune"):
    done("snapshot", "prune", STORE, "--dry-run")
    assert len(done("snapshot", "show", STORE, "--json").json()["snapshots"]) == 4
    pruned = done("snapshot", "prune", STORE, "--keep", squashed["id"], "--json").json()
    assert pruned["snapshots"] == [IDS[2]] and pruned["kept"] == 3, pruned
    done("snapshot", "verify", STORE, squashed["id"])
    done("snapshot", "verify", STORE, "chat")

with check("errors"):
    refused("snapshot", "pull", STORE, "chut", TMP / "never", status=1, words=["'chut' is no snapshot and no channel", "did you mean 'chat'"])
    refused("snapshot", "pull", TMP / "nowhere", "chat", TMP / "never", status=1, words=["is no store of snapshots"])
    refused("snapshot", "push", TMP / "nowhere", STORE, status=1, words=["nowhere"])
    refused("snapshot", "push", FIRST, FIRST, status=1, words=["first"])  # a folder of somebody's is no store
    refused("snapshot", "push", FIRST, STORE, "--transition", "staged", status=2, words=["--transition"])
    refused("snapshot", "push", FIRST, STORE, "--base", FIRST, status=2, words=["--base", "--parent"])
    refused("snapshot", "pish", status=2, words=["did you mean 'push'"])
    refused("snapshot", "push", FIRST, "https://127.0.0.1:1/x", status=1, words=["is read alone", "s3://BUCKET/PREFIX"])
