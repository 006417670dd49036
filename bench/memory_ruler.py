"""The machine's memory speed, against which a program's reads are compared: the fastest of the reads that `lockstep bench memory` tries, measured
before and after the program.

    before = speed(threads); reached = measured(); after = speed(threads)
    fastest = lengthened(threads, reached, before, after)
    if reached > fastest: ...  # no share of a ruler that is too short

The memory of a virtual machine is faster at some moments than at others: if the program read faster than both readings, more readings are taken. What is
above all of them has no share: none is above 100%.
"""

import json
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def speed(threads):
    """GB/s of one reading."""
    command = [os.environ.get("LOCKSTEP_BINARY", str(ROOT / "build/lockstep")), "bench", "memory", "--json", "--threads", str(threads)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["gigabytes_per_second"]


def lengthened(threads, reached, *readings, more=6):
    """The fastest of the readings, and of up to `more` further ones as long as all of them are below what was reached."""
    fastest = max(readings)
    while reached > fastest and more > 0:
        fastest, more = max(fastest, speed(threads)), more - 1
    return fastest
