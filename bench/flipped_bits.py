#!/usr/bin/env python3
"""One bit, wrong in each tensor of a model in turn: in the weights that a replica has, in what the store sends for it, and in the manifest. Each must be found,
named where it cannot be healed, and change nothing (docs/weight-sync.md).

    .oracle/bin/python bench/flipped_bits.py [--model FOLDER] [--seed 1] [--minutes 60] [--json FILE [--resume]]

The model and a step from it (0.4 % of each tensor's weights) stand in a store; the model's folder is what a replica has. For each tensor one bit is flipped,
by seed, and the step is pulled over that folder: with a wrong base the tensor must come from the store, and the folder have the step's bits; with a wrong
payload or manifest there must be an error that names the tensor or the manifest, and no folder. A minute for the shipped model, a quarter of an hour for
SmolLM2-135M in bf16 (tools/make_smollm2.py). FILE is written anew after every tensor; with --resume the tensors that it has are counted, and the others
follow. It has the number of tensors of each version of the program. `--page docs/weight-sync.md --page-of FILE FILE`: writes what these FILEs tell between the
marks there, and does nothing else. The exit code is 1 where a bit was not found, 3 where the time was too short."""
import argparse
import json
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
from counted_versions import earlier_versions, said, with_this_run  # noqa: E402
from marked_page import write_between_marks  # noqa: E402
from regions import stepped  # noqa: E402
from write_performance import binary, version  # noqa: E402


def lockstep(*words):
    return subprocess.run([binary(), *map(str, words)], stdin=subprocess.DEVNULL, capture_output=True, text=True)


def need(done):
    if done.returncode != 0:
        sys.exit(f"flipped_bits: {done.args[1:3]}: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def places(folder):
    """Where each tensor's bytes stand: {name: (file, first, bytes)}"""
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            for name, tensor in json.loads(file.read(length)).items():
                if name != "__metadata__":
                    begin, end = tensor["data_offsets"]
                    found[name] = (path, 8 + length + begin, end - begin)
    return found


def contents(folder):
    """{name: its bytes}, each file read once."""
    files = {path: memoryview(path.read_bytes()) for path in folder.glob("*.safetensors")}
    return {name: files[path][first : first + count] for name, (path, first, count) in places(folder).items()}


class Flipped:
    """A bit of a file that is another while this lasts."""

    def __init__(self, path, first, count, draw):
        self.path, self.at, self.mask = path, first + draw.randrange(count), 1 << draw.randrange(8)

    def flip(self):
        with self.path.open("r+b") as file:
            file.seek(self.at)
            byte = file.read(1)[0] ^ self.mask
            file.seek(self.at)
            file.write(bytes([byte]))

    def __enter__(self):
        self.flip()

    def __exit__(self, *_):
        self.flip()


def page_text(found):
    """Of several runs, one a model."""
    lines = ["By `bench/flipped_bits.py`:", "", "| model | tensors | of a base | of a payload | of a manifest | not found | version |", "|---|---|---|---|---|---|---|"]
    for one in found:
        versions = said(earlier_versions(one, one["tensors"]), "tensors")
        lines.append("| `{}` | {} of {} | {base} | {payload} | {manifest} | {} | {} |".format(one["model"], one["tensors"], one["of"], len(one["faults"]), versions, **one["tried"]))
    return "\n".join(lines)


def write(path, told):
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(told, indent=1) + "\n")
    fresh.rename(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=ROOT / "models/countdown-glm")
    parser.add_argument("--name", help="what the page calls it; default: the folder's name")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--resume", action="store_true", help="go on with what --json has")
    parser.add_argument("--page", type=Path)
    parser.add_argument("--page-of", type=Path, nargs="+", metavar="FILE")
    options = parser.parse_args()
    if (options.page is None) != (options.page_of is None):
        parser.error("--page goes with --page-of")
    if options.page:
        write_between_marks(options.page, "bench/flipped_bits.py", page_text([json.loads(path.read_text()) for path in options.page_of]))
        return 0
    if options.resume and not options.json:
        parser.error("--resume without --json")
    until = time.monotonic() + 60 * options.minutes
    this_version, versions_before = version().split("\n")[0], []
    told = {"model": options.name or options.model.name, "versions": [], "seed": options.seed, "tensors": 0, "tried": {"base": 0, "payload": 0, "manifest": 0}, "faults": []}
    if options.resume and options.json.is_file():
        before = json.loads(options.json.read_text())
        if (before["model"], before["seed"]) != (told["model"], told["seed"]):
            parser.error(f"{options.json} is of --name {before['model']} --seed {before['seed']}")
        told, versions_before = before, earlier_versions(before, before["tensors"])
        told.pop("version", None)  # of results that named one for all
    faults, tried = told["faults"], told["tried"]
    with tempfile.TemporaryDirectory(prefix="lockstep-flipped-") as text:
        work = Path(text)
        base, store, out = work / "base", work / "store", work / "out"
        shutil.copytree(options.model, base)
        step = stepped(options.model, work / "step", 0.004, 1)
        need(lockstep("snapshot", "push", base, store, "--channel", "chat", "--json", "--quiet"))
        newest = need(lockstep("snapshot", "push", step, store, "--channel", "chat", "--base", base, "--json", "--quiet"))["id"]
        manifest = store / "manifests" / f"{newest}.json"
        tensors = json.loads(manifest.read_text())["tensors"]
        told["of"] = len(tensors)
        wanted = contents(step)
        where = places(base)

        def pull(kind, tensor, names):
            """names: what an error must have in it; None: it is healed"""
            tried[kind] += 1
            done = lockstep("snapshot", "pull", store, newest, out, "--base", base, "--json", "--quiet")
            if names is None:
                right = done.returncode == 0 and contents(out) == wanted
            else:
                right = done.returncode == 1 and not out.exists() and names in done.stderr
            if not right:
                faults.append({"kind": kind, "tensor": tensor, "exit": done.returncode, "error": done.stderr.strip()[-300:]})
            shutil.rmtree(out, ignore_errors=True)

        for tensor in tensors[told["tensors"] :]:
            if time.monotonic() > until:
                break
            name = tensor["name"]
            draw = random.Random(f"{options.seed} {name}")
            path, first, count = where[name]
            with Flipped(path, first, count, draw):
                pull("base", name, None)
            if tensor["bytes"]:
                object_ = store / "objects" / tensor["object"][:2] / tensor["object"]
                with Flipped(object_, tensor["offset"], tensor["bytes"], draw):
                    pull("payload", name, f"tensor '{name}'")
            written = manifest.read_bytes()
            begin = written.index(json.dumps(name).encode())
            with Flipped(manifest, begin, min(200, len(written) - begin), draw):
                pull("manifest", name, "SHA-256")
            told["tensors"] += 1
            told["versions"] = with_this_run(versions_before, this_version, told["tensors"])
            if options.json:
                write(options.json, told)
        told["versions"] = with_this_run(versions_before, this_version, told["tensors"])
        sound = dict(tried)
        pull("base", "none", None)  # nothing is left flipped
        tried.update(sound)
    print(f"{told['tensors']} of {len(tensors)} tensors of {told['model']}: " + ", ".join(f"{n} bits of a {kind}" for kind, n in tried.items()) + f"; {len(faults)} not found")
    for fault in faults[:10]:
        print(f"  {fault}")
    if options.json:
        write(options.json, told)
    if told["tensors"] < len(tensors):
        print("flipped_bits: the time is up" + ("; with --resume it goes on" if options.json else ""))
    return 1 if faults else 3 if told["tensors"] < len(tensors) else 0


if __name__ == "__main__":
    sys.exit(main())
