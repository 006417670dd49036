#!/usr/bin/env python3
"""The corpus of the libFuzzer programs: tests/fuzz/corpus/NAME/ is written by hand, tests/fuzz/corpus/NAME.tar.xz has the inputs that long
searches found, reduced to as few as cover the same code (libFuzzer's set cover).

    LOCKSTEP_FUZZ_SECONDS=600 ./check --fuzz     searches; finds stay in build-fuzz/corpus/NAME/
    tools/fuzz_corpus.py keep [NAME...]          joins them to NAME.tar.xz (default: of every program)

Large inputs stay out: the gate runs all of them each time.
"""

import argparse
import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CORPUS = ROOT / "tests/fuzz/corpus"
BUILD = ROOT / "build-fuzz"
LARGEST = 16384  # bytes of an input that is kept


def folders(name, build):
    """The folders of a program's corpus, unpacked into the build folder."""
    by_hand, packed, unpacked = CORPUS / name, CORPUS / f"{name}.tar.xz", build / "corpus" / f"{name}-kept"
    shutil.rmtree(unpacked, ignore_errors=True)
    if packed.is_file():
        unpacked.mkdir(parents=True)
        with tarfile.open(packed) as archive:
            for entry in archive:
                (unpacked / Path(entry.name).name).write_bytes(archive.extractfile(entry).read())
    return [folder for folder in (by_hand, unpacked) if folder.is_dir()]


def keep(name):
    program = BUILD / name
    if not program.is_file():
        sys.exit(f"{program} is missing: ./setup --fuzz makes it")
    kept = folders(name, BUILD)
    by_hand = {path.read_bytes() for path in (CORPUS / name).glob("*")}
    found = BUILD / "corpus" / name
    with tempfile.TemporaryDirectory() as least:
        command = [str(program), "-set_cover_merge=1", f"-max_len={LARGEST}", "-timeout=10", "-rss_limit_mb=2048", least,
                   *map(str, kept), *([str(found)] if found.is_dir() else [])]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", cwd=BUILD)
        if done.returncode:
            sys.exit(f"{name}: {done.stderr[-2000:]}")
        inputs = {path.read_bytes() for path in Path(least).iterdir()} - by_hand
    packed = CORPUS / f"{name}.tar.xz"
    with tarfile.open(packed, "w:xz") as archive:  # equal inputs are an equal file: no names, no dates
        for i, value in enumerate(sorted(inputs)):
            entry = tarfile.TarInfo(f"{i:05d}")
            entry.size = len(value)
            archive.addfile(entry, io.BytesIO(value))
    print(f"{name}: {len(inputs)} inputs, {packed.stat().st_size} bytes", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("keep",))
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    known = sorted(path.stem for path in (ROOT / "tests/fuzz").glob("*_fuzz.cpp"))
    for name in options.names:
        if name not in known:
            sys.exit(f"no fuzz program '{name}', known are {', '.join(known)}")
    for name in options.names or known:
        keep(name)


if __name__ == "__main__":
    main()
