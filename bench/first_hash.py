#!/usr/bin/env python3
"""Times the way from `pip install` of the wheel to the published hash: a fresh environment, the wheel from a file, and `lockstep demo --quick` in an
empty folder, which compares its weights with the published hash. Building the wheel and making the environment are not timed.

    python3 bench/first_hash.py [--lockstep build/lockstep] [--most 90]

Prints the seconds of both; the exit code is 1 if the hash differs, or if both together take more than --most."""
import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SAME = "identical to the published run"


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, **options)
    if done.returncode:
        sys.exit(f"{command[0]} ended with {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", type=Path, default=ROOT / "build/lockstep")
    parser.add_argument("--most", type=float, default=90, help="seconds")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        run(sys.executable, "-B", ROOT / "python/backend.py", "--binary", options.lockstep.resolve(), "--out", place / "dist")
        [wheel] = (place / "dist").glob("*.whl")
        run(sys.executable, "-m", "venv", place / "env")
        (place / "empty").mkdir()
        began = time.monotonic()
        run(place / "env/bin/python", "-m", "pip", "install", "--no-index", "--no-deps", "--no-input", "--disable-pip-version-check", wheel)
        installed = time.monotonic()
        told = run(place / "env/bin/lockstep", "demo", "--quick", cwd=place / "empty", env={"PATH": "/usr/bin:/bin", "HOME": os.environ.get("HOME", "/")})
        ended = time.monotonic()
    same = told.splitlines()[-1] == SAME
    print(f"pip install {installed - began:.1f} s, lockstep demo --quick {ended - installed:.1f} s: {ended - began:.1f} s in all, {SAME if same else 'another hash than the published one'}")
    if not same or ended - began > options.most:
        sys.exit(1)


if __name__ == "__main__":
    main()
