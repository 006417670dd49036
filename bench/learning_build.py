#!/usr/bin/env python3
"""What critics, preferences, distillation and the tasks of many turns add to a build: their own sources and tests, against the bar of 30 s. What their checks add to a run:
bench/ci_costs.py --of learning.

    bench/learning_build.py [--build build] [--page docs/ci.md]

From the build's .ninja_log, where each object's last time stands. Several files are compiled as one; a file has the part of that time that its lines are of all.
Divided by two: so many files are compiled at a time."""

import argparse
import re
from pathlib import Path

from families import version
from marked_page import write_between_marks
from write_performance import machine

ROOT = Path(__file__).resolve().parents[1]
MOST_BUILD, LANES = 30, 2
SOURCES = re.compile(r"src/(kernels/value/|kernels/head/(teacher|row_distribution)|losses/(preference|distillation)|train/teacher_|host/(batch_loss|labelled|taught)|runs/(preferences/|distillation/|local_critic)|"
                     r"rl/(gae|critic|lockbox|dozen|agent_environment|conversation_environment|many_turns|trajectory/|algorithms/|advantages/)|jobs/(critic|chat_job|lockbox|preference|distill|far_teacher|teacher_file|text_alignment)|"
                     r"cli/train_(preference|distill))|tests/tools/(advantage|preference|distillation)_bridge")  # fmt: skip


def compiled(build):
    """Seconds of the objects of these sources, by the build's log."""
    ends = {}
    for line in (build / ".ninja_log").read_text().splitlines():
        if len(parts := line.split("\t")) == 5 and parts[3].endswith(".o"):
            ends[parts[3]] = (int(parts[1]) - int(parts[0])) / 1e3
    return sum(seconds * share(build, name) for name, seconds in ends.items())


def share(build, name):
    """The part of an object that these sources are; of several files as one, by lines."""
    unit = build / name.removesuffix(".o")
    if "/Unity/" not in name:
        return 1.0 if SOURCES.search(name) else 0.0
    if not unit.is_file():  # of an earlier build
        return 0.0
    lines = {path: len(Path(path).read_text().splitlines()) for path in re.findall(r'^#include "(.*)"$', unit.read_text(), re.M) if Path(path).is_file()}
    return sum(count for path, count in lines.items() if SOURCES.search(path)) / max(1, sum(lines.values()))


def sentence(build):
    seconds = compiled(build)
    return f"Their sources and tests are compiled in {seconds:.0f} seconds, two at a time in {seconds / LANES:.0f}; at most {MOST_BUILD} are allowed: {'met' if seconds / LANES <= MOST_BUILD else 'missed'}."


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=lambda word: Path(word).resolve(), default=ROOT / "build")
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    text = f"By `bench/learning_build.py`, {version()}. Machine: {machine()} {sentence(options.build)}"
    if options.page:
        write_between_marks(options.page, "bench/learning_build.py", text)
    else:
        print(text)


if __name__ == "__main__":
    main()
