#!/usr/bin/env python3
"""What a run of .ci/run costs, from the log of one: its steps, groups of checks, and the dearest of them.

    .ci/run 2>&1 | tee LOG; bench/ci_costs.py LOG [--beside "what else the machine did"] [--page docs/ci.md]

Reads the lines `cost SECONDS s  NAME (SECONDS s of a processor)` that .ci/run and ./check print at their ends, and writes them between the marks of this script
in the page, or to the screen. A group's processor time is the sum over its checks that are long enough to be listed (the 40 longest of each ./check).
"""

import argparse
import collections
import re
import sys
from pathlib import Path

from marked_page import write_between_marks
from write_performance import machine, version

DEAREST = 15
COST = re.compile(r"cost +([0-9.]+) s  (.*?)(?: \(([0-9.]+) s of a processor\))?$")
GROUPS = {"unit/": "programs of unit tests", "script/": "scripts", "tests in Python": "tests in Python"}


def costs_of(text):
    """Steps of .ci/run, and checks with processor seconds: lists of (name, seconds, processor seconds or None), as the log has them."""
    found = [(m[2], float(m[1]), float(m[3]) if m[3] else None) for line in text.splitlines() if (m := COST.match(line))]
    names = [m[1] for m in re.finditer(r"^=== (.*) \(at \d+ s\)$", text, re.M)]
    steps = [cost for cost in found if cost[0] in names]
    return steps, [cost for cost in found if cost[2] is not None]


def page_of(text, told, beside):
    steps, checks = costs_of(text)
    counts = re.findall(r"^(\d+) passed, (\d+) failed, (\d+) skipped$", text, re.M)
    if not steps or not checks or not counts:
        sys.exit("ci_costs: the log has no `cost` lines of a whole run, or no counts")
    passed, failed, skipped = (int(n) for n in counts[-1])
    groups = collections.Counter()
    for name, _, processor in checks:
        groups[next((group for start, group in GROUPS.items() if name.startswith(start)), "sanitizers, fuzzers, a night's part")] += processor
    dearest = sorted(checks, key=lambda cost: -cost[2])[:DEAREST]
    return "\n".join([
        f"{told}{f' Beside it: {beside}.' if beside else ''} {passed:,} passed, {failed} failed, {skipped} skipped, in {sum(s for _, s, _ in steps):,.0f} seconds.", "",
        "| step | seconds |", "|---|---|", *(f"| {name} | {seconds:,.0f} |" for name, seconds, _ in steps), "",
        "| checks | seconds of a processor |", "|---|---|", *(f"| {group} | {seconds:,.0f} |" for group, seconds in groups.most_common()), "",
        f"The dearest {len(dearest)}, in seconds of a processor: {', '.join(f'`{name}` {processor:,.0f}' for name, _, processor in dearest)}.",
    ])  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path)
    parser.add_argument("--beside", default="", help="what else ran on the machine")
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    text = page_of(options.log.read_text(errors="replace"), f"By `bench/ci_costs.py`, {version().splitlines()[0]}. Machine: {machine()}", options.beside)
    if options.page:
        write_between_marks(options.page, "bench/ci_costs.py", text)
    else:
        print(text)


if __name__ == "__main__":
    main()
