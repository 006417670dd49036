#!/usr/bin/env python3
"""What critics, preferences, distillation and the tasks of many turns add to CI: their own checks and their own sources, against the bars of 8 minutes and 30 s.

    ./check $(bench/learning_ci.py checks) 2>&1 | tee LOG; bench/learning_ci.py page LOG [--build build]

checks: the patterns of those checks. What else a script does is counted with it (script/lessons has a lesson of a family too), so the sum is at most what they add.
page: writes docs/ci.md, from the lines `cost` of that log and from the build's .ninja_log, where each object's last time stands. Several files are compiled as one;
a file has the part of that time that its lines are of all. Divided by two: so many checks run, and so many files are compiled, at a time."""

import argparse
import re
from pathlib import Path

from ci_costs import costs_of
from families import version
from marked_page import write_between_marks
from write_performance import machine

ROOT = Path(__file__).resolve().parents[1]
MOST_CHECKS, MOST_BUILD, LANES = 8 * 60, 30, 2
SUITES = {"test_jobs": ("CriticJobs", "DistillJobs", "FarAnswers", "TextAlignment", "LockboxJobs", "PreferenceJobs"), "test_kernels": ("ValueLoss", "HeadTeachers", "RowDistribution"),
          "test_losses": ("Distillation",), "test_rl": ("Advantages", "AgentEnvironment", "Algorithms", "CriticTest", "CriticWindowsTest", "Dozen", "Gae", "Lockbox", "ManyTurnsTest", "PlayTest", "PolicyDatum"),
          "test_runs": ("LocalCritic", "PreferenceLosses", "PreferenceStep"), "test_system": ("SamplingDistribution",)}  # fmt: skip
FILES = ("oracle/test_advantages.py", "oracle/test_distillation.py", "oracle/test_gae.py", "oracle/test_preferences.py", "oracle/test_studies.py", "oracle/test_value_head.py", "training/test_batch_losses.py",
         "training/test_critic.py", "training/test_fireworks_learning.py", "training/test_sampling_support.py", "api/test_far_teachers.py")  # fmt: skip
SCRIPTS = ("script/agent_model", "script/lessons", "script/merged_teachers")
SOURCES = re.compile(r"src/(kernels/value/|kernels/head/(teacher|row_distribution)|losses/(preference|distillation)|train/teacher_head|runs/(preferences/|distillation/|local_critic)|"
                     r"rl/(gae|critic|lockbox|dozen|agent_environment|many_turns|trajectory/|algorithms/|advantages/)|jobs/(critic|lockbox|preference|distill|far_teacher|teacher_file|text_alignment)|"
                     r"cli/train_(preference|distill))|tests/tools/(advantage|preference|distillation)_bridge")  # fmt: skip


def patterns():
    return [*(f"unit/{program}/{suite}.*" for program, suites in SUITES.items() for suite in suites), *SCRIPTS, *FILES]


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


def rows(log, build):
    spent, built = sum(processor for *_, processor in costs_of(log)[1]), compiled(build)
    said = lambda seconds, most: "met" if seconds <= most else "missed"  # noqa: E731
    line = lambda what, seconds, most: f"| {what} | {seconds:.0f} | {seconds / LANES:.0f} | at most {most} | {said(seconds / LANES, most)} |"  # noqa: E731
    return ["| of critics, preferences, distillation, kept sets, tasks of many turns | seconds | two at a time | bar | |", "|---|---|---|---|---|",
            line("their checks, of a processor", spent, MOST_CHECKS), line("their sources and tests, compiled", built, MOST_BUILD)]  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("checks", "page"))
    parser.add_argument("log", type=Path, nargs="?")
    parser.add_argument("--build", type=lambda word: Path(word).resolve(), default=ROOT / "build")
    options = parser.parse_args()
    if options.what == "checks":
        return print(*patterns())
    if not options.log:
        parser.error("page needs a LOG")
    found = rows(options.log.read_text(errors="replace"), options.build)
    write_between_marks(ROOT / "docs/ci.md", "bench/learning_ci.py", "\n".join([f"By `bench/learning_ci.py`, {version()}. Machine: {machine()}", "", *found]))


if __name__ == "__main__":
    main()
