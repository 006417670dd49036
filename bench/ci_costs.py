#!/usr/bin/env python3
"""What a run of .ci/run costs, from the log of one: its steps, groups of checks, and the dearest of them.

    .ci/run 2>&1 | tee LOG; bench/ci_costs.py LOG [--of weights|learning|drafts|kept|ranks] [--beside "what else the machine did"] [--page docs/ci.md]

Reads the lines `cost SECONDS s  NAME (SECONDS s of a processor)` that .ci/run and ./check print at their ends, and writes them between the marks of this script
in the page, or to the screen. A group's processor time is the sum over its checks that are long enough to be listed (a second). --of: only what checks of one
subject (SUBJECTS) took, between marks of their own: how much a run is longer for them.
"""

import argparse
import collections
import fnmatch
import re
import sys
from pathlib import Path

from marked_page import write_between_marks
from write_performance import machine, version

DEAREST = 15
COST = re.compile(r"cost +([0-9.]+) s  (.*?)(?: \(([0-9.]+) s of a processor\))?$")
LONGER = re.compile(r"a run is ([\d.]+) minutes longer")
# Names of checks, and how many minutes they may add to a run. Tests of a subject that stand in programs or files of others are not among them.
SUBJECTS = {
    "weights": ("snapshots, fleets, deployments and held streams", 7, (
        "unit/test_sync", "unit/test_fleet", "script/snapshot", "training/test_snapshot_*.py", "training/test_fleet_*.py", "training/test_follow_*.py", "training/test_store_*.py", "training/test_publish.py",
        "training/test_arc_folders.py", "training/test_s3_signatures.py", "training/test_weight_pages.py", "api/test_fleet.py", "api/test_deployments*.py", "api/test_held_streams.py", "api/test_service_tier.py",
        "api/test_bench_serve.py")),
    "drafts": ("guesses ahead, shared indices and long contexts", 5, (
        "script/recall", "script/bench_context", "script/long_gradients", "script/million_tokens", "api/test_speculation.py", "api/test_context.py", "training/test_fireworks_speculation.py",
        "oracle/test_mtp.py", "oracle/test_index_share.py", "oracle/test_long_benches.py")),
    "kept": ("kept forwards and profiles", 2, ("training/test_kept_forwards.py", "api/test_profiling.py", "unit/test_benchmark")),
    "learning": ("critics, preferences, distillation and tasks of many turns", 8, (
        "script/agent_model", "script/lessons", "script/merged_teachers", "oracle/test_advantages.py", "oracle/test_distillation.py", "oracle/test_gae.py", "oracle/test_preferences.py",
        "oracle/test_studies.py", "oracle/test_value_head.py", "training/test_batch_losses.py", "training/test_critic.py", "training/test_fireworks_learning.py", "training/test_sampling_support.py",
        "api/test_far_teachers.py")),
    "ranks": ("ranks as processes, launches, long contexts and training in few bits", 9, (
        "unit/test_parallel", "unit/test_launch", "script/mpi", "script/mpi_serve", "script/rank_troubles", "script/launch", "script/long_gradients", "training/test_ranks.py",
        "training/test_over_processes.py", "training/test_first_piece.py", "api/test_over_processes.py",
        "oracle/test_eight_bits.py", "oracle/test_eight_bit_peers.py", "oracle/test_int4_qat.py")),
}  # fmt: skip
GROUPS = {"unit/": "programs of unit tests", "script/": "scripts", "tests in Python": "tests in Python"}


def costs_of(text):
    """Steps of .ci/run, and checks with processor seconds: lists of (name, seconds, processor seconds or None), as the log has them."""
    found = [(m[2], float(m[1]), float(m[3]) if m[3] else None) for line in text.splitlines() if (m := COST.match(line))]
    names = [m[1] for m in re.finditer(r"^=== (.*) \(at \d+ s\)$", text, re.M)]
    steps = [cost for cost in found if cost[0] in names]
    return steps, [cost for cost in found if cost[2] is not None]


def of_subject(text, subject, told, beside):
    """What the checks of one subject took. A file of tests in Python has no processor time of its own, so its seconds are counted, in which others ran beside it."""
    what, minutes, patterns = SUBJECTS[subject]
    found = {}
    for line in text.splitlines():
        if (m := COST.match(line)) and any(fnmatch.fnmatchcase(m[2], pattern) for pattern in patterns):
            found[m[2]] = float(m[3] or m[1])
    missing = [pattern for pattern in patterns if not fnmatch.filter(found, pattern)]
    if not found:
        sys.exit(f"ci_costs: the log has no `cost` lines of {what}")
    total = sum(found.values())
    return "\n".join([
        f"{told}{f' Beside it: {beside}.' if beside else ''} Checks of {what}, in seconds of a processor, or of the clock for files in Python: {total:,.0f}, of which two run at a time, so a run is "
        f"{total / 120:.1f} minutes longer for them; {minutes} are allowed: {'met' if total / 120 <= minutes else 'missed'}. Building them is not counted, nor their tests among those of other subjects.", "",
        "| checks | seconds |", "|---|---|", *(f"| `{name}` | {seconds:,.0f} |" for name, seconds in sorted(found.items(), key=lambda one: -one[1])),
        *(["", f"Not in the log, or less than a second: {', '.join(f'`{pattern}`' for pattern in missing)}."] if missing else []),
    ])  # fmt: skip


def minutes_longer(root, subject):
    """Of what of_subject() wrote into docs/ci.md: by how many minutes a run is longer, how many are allowed, and the commit; None where nothing is written yet."""
    mark = f"bench/ci_costs.py --of {subject}"
    block = re.search(rf"<!-- {mark}: begin -->\n(.*?)\n<!-- {mark}: end -->", (root / "docs/ci.md").read_text(), re.S)
    found = LONGER.search(block[1]) if block else None
    commit = re.search(r"\bcommit ([0-9a-f]{7,40})", block[1]) if found else None
    return (found[1], SUBJECTS[subject][1], commit[1] if commit else "not named") if found else None


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
    parser.add_argument("--of", choices=SUBJECTS, help="only checks of this subject")
    options = parser.parse_args()
    log, told = options.log.read_text(errors="replace"), f"By `bench/ci_costs.py`, {version().splitlines()[0]}. Machine: {machine()}"
    text = of_subject(log, options.of, told, options.beside) if options.of else page_of(log, told, options.beside)
    if options.page:
        write_between_marks(options.page, "bench/ci_costs.py" + (f" --of {options.of}" if options.of else ""), text)
    else:
        print(text)


if __name__ == "__main__":
    main()
