#!/usr/bin/env python3
"""Runs the tests of this checkout: the second half of ./check, which builds them first.

Groups of checks, each with a name that --list prints and patterns select:
  unit/PROGRAM/Suite.Test     build/test_*, GoogleTest; a crash is one failure with the name of the test it hit
  script/FILE/NAME            tests/check.d/*.sh: each prints `PASS name`, `FAIL name` or `SKIP name reason` a check
  layers, layers/self-test    tools/check_layers.py
  oracle/FILE::TEST           tests/oracle, pytest against transformers, where that environment exists
  api/FILE::TEST              tests/api, pytest with the openai client against the server, likewise
  training/FILE::TEST         tests/training, pytest with the tinker and fireworks-ai clients, likewise
  page/FILE::TEST             tests/page, pytest with a headless browser against the live page, likewise
  python/FILE::TEST           tests/python, pytest that builds the wheel of python/, installs it and uses it, likewise
Checks that compare times run alone and first, then two checks run at a time (class Checks; --one-at-a-time: never two).
The last line is `N passed, N failed, N skipped`. A skip that tests/skips.txt does not allow counts as failed.
"""
import argparse
import ast
import collections
import contextlib
import fnmatch
import functools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree
from pathlib import Path

import fuzz_corpus
import night
from watched_programs import how_it_ended, of_this_thread, run_watched, say, side_by_side

ROOT = Path(__file__).resolve().parent.parent
FAMILIES = {recipe.stem for recipe in (ROOT / "recipes/families").glob("*.toml")}
NO_ORACLE = "no oracle environment (./setup --oracle makes it in .oracle; or set LOCKSTEP_ORACLE_PYTHON)"


class Tally:
    """Counts results, and keeps the failures and skips that the end of the report lists."""

    def __init__(self):
        self.passed, self.failures, self.skips = 0, [], []
        self.evidence = {}  # failure -> what was shown of its output, repeated where the report ends
        self.costs = []  # (group, seconds, of a processor: none where that is not known)
        self.of_families = collections.Counter()  # seconds of the tests that have a model family in their names, by family
        self.shown = []
        self.allowed = []
        for line in (ROOT / "tests/skips.txt").read_text().splitlines():
            if line.strip() and not line.startswith("#"):
                name, _, reason = line.partition(" : ")
                if not reason.strip():
                    raise SystemExit(f"check: tests/skips.txt: '{line}' is not `NAME : REASON`")
                self.allowed.append((name.strip(), reason.strip().lower()))

    def add_pass(self):
        self.passed += 1

    def show_tail(self, output, lines=40):
        self.shown = [f"     | {line}" for line in output.splitlines()[-lines:]]
        if self.shown:
            say("\n".join(self.shown))

    def add_failure(self, name, why=""):
        failure = f"{name}{': ' + why if why else ''}"
        self.failures.append(failure)
        self.evidence[failure], self.shown = self.shown, []
        say(f"FAIL {failure}")

    def add_skip(self, name, reason):
        reason = " ".join(reason.split())
        if any(fnmatch.fnmatchcase(name, n) and r in reason.lower() for n, r in self.allowed):
            self.skips.append(f"{name}: {reason}")
        else:
            self.add_failure(name, f"skipped, and tests/skips.txt does not allow it: {reason or 'no reason given'}")

    @contextlib.contextmanager
    def cost_of(self, group):
        """Counts the time of checks that this thread runs inside under a name, for the costs at the end."""
        began, used = time.monotonic(), of_this_thread.processor
        yield
        seconds = time.monotonic() - began
        if seconds >= 1:
            self.costs.append((group, seconds, of_this_thread.processor - used))

    def add_test(self, name, seconds):
        """Adds a test's time to the family that its name has: `Families/Parity.HoldsToo/qwen3_moe` to qwen3_moe, not to qwen3."""
        for family in set(re.findall(r"[a-z0-9]+(?:_[a-z0-9]+)*", name)) & FAMILIES:
            self.of_families[family] += seconds

    def join(self, other):
        self.passed += other.passed
        self.failures += other.failures
        self.skips += other.skips
        self.evidence |= other.evidence
        self.costs += other.costs
        self.of_families += other.of_families

    def close(self):
        for group, seconds, of_a_processor in sorted(self.costs, key=lambda cost: -cost[1]):
            say(f"cost {seconds:7.1f} s  {group}" + (f" ({of_a_processor:.1f} s of a processor)" if of_a_processor is not None else ""))
        for family, seconds in self.of_families.most_common():
            if seconds >= 1:
                say(f"cost {seconds:7.1f} s  tests of the family {family}, in the rows above")
        for skip in self.skips[:20]:
            say(f"SKIP {skip}")
        if len(self.skips) > 20:
            say(f"SKIP ... and {len(self.skips) - 20} more")
        if self.failures:
            say("failed:")
            for failure in self.failures:
                say(f"  {failure}")
                for line in self.evidence.get(failure, [])[-20:]:
                    say(f"  {line}")
        if not self.passed and not self.failures and not self.skips:
            self.failures.append("no check ran")
            say("no check ran")
        if missing := sum("no oracle environment" in skip for skip in self.skips):
            say(f"{missing} tests in Python were skipped; for them: ./setup --oracle (1.7 GB from PyPI, and a browser), then ./check again")
        say(f"{self.passed} passed, {len(self.failures)} failed, {len(self.skips)} skipped")
        return 1 if self.failures else 0


def chosen(name, patterns):
    return not patterns or any(p in name or fnmatch.fnmatchcase(name, p) for p in patterns)


# --- unit tests ------------------------------------------------------------------------------------------------------
def unit_programs(build):
    """The test programs: one for each folder of src that has tests, and that of tests/system; also those that are not built."""
    folders = sorted({p.relative_to(ROOT / "src").parts[0] for p in (ROOT / "src").rglob("*_test.cpp")})
    return [build / f"test_{folder}" for folder in [*folders, "system"]]


def unit_names(program):
    listing = subprocess.run([program, "--gtest_list_tests"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if listing.returncode != 0:
        return None
    names, suite = [], ""
    for line in listing.stdout.splitlines():
        text = line.split("#")[0].rstrip()
        if text.startswith("  "):
            names.append(suite + text.strip())
        elif text.endswith("."):
            suite = text
    return names


def run_unit(program, tally, patterns, environment, timeout, shard=(0, 1)):
    """Runs the tests that the patterns choose, or of those a shard: the same tests as GTEST_SHARD_INDEX of GTEST_TOTAL_SHARDS, but by name, since
    those two would cut what is left after a crash once more."""
    group = f"unit/{program.name}"
    if not program.exists():
        return tally.add_failure(group, f"{program.name} was not built")
    names = unit_names(program)
    if names is None:
        return tally.add_failure(group, "cannot list its tests")
    left = [n for n in names if chosen(f"{group}/{n}", patterns)][shard[0] :: shard[1]]
    if not left and shard[1] > 1:
        return tally.add_failure(group, f"shard {shard[0]} of {shard[1]} has no test: the program has {len(names)}")
    everything = left == names
    total, seconds, failures_before = len(left), 0.0, len(tally.failures)
    while left:
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.json"
            filter_file = [] if everything else [f"--gtest_filter={':'.join(left)}"]
            status, output, took = run_watched(
                group, [str(program), "--gtest_color=no", f"--gtest_output=json:{report}", *filter_file],
                environment, timeout)
            seconds += took
            finished, blocks = set(), test_outputs(output)
            if report.exists() and status in (0, 1):
                for suite in json.loads(report.read_text())["testsuites"]:
                    for test in suite["testsuite"]:
                        name = f"{suite['name']}.{test['name']}"
                        if name not in left:
                            continue
                        finished.add(name)
                        tally.add_test(name, float(test.get("time", "0").rstrip("s")))
                        if test.get("failures"):
                            tally.show_tail(blocks.get(name, "\n".join(f["failure"] for f in test["failures"])))
                            tally.add_failure(f"{group}/{name}")
                        elif test.get("status") == "NOTRUN":
                            tally.add_skip(f"{group}/{name}", "disabled")
                        elif test.get("result") == "SKIPPED":
                            text = [l for l in blocks.get(name, "").splitlines()[1:] if not l.startswith("[ ")]
                            tally.add_skip(f"{group}/{name}", " ".join(text))
                        else:
                            tally.add_pass()
                if status == 1 and len(tally.failures) == failures_before:
                    tally.show_tail(output)
                    tally.add_failure(group, "exited with status 1 though every test passed")
                for name in left:
                    if name not in finished:
                        tally.add_failure(f"{group}/{name}", "did not report")
                break
            # The program crashed: tests that ended before count, the one that ran has failed, the others run again.
            running = None
            for line in output.splitlines():
                if match := re.search(r"\[ RUN      \] (\S+)", line):
                    running = match[1]
                elif match := re.search(r"\[       OK \] (\S+)", line):
                    tally.add_pass()
                    finished.add(match[1])
                    running = None
                elif match := re.search(r"\[  (FAILED|SKIPPED) +\] (\S+?),? ", line):
                    if running == match[2]:
                        tally.show_tail(blocks.get(running, ""))
                        why = "" if match[1] == "FAILED" else "skipped in a run that crashed"
                        tally.add_failure(f"{group}/{running}", why)
                        finished.add(running)
                        running = None
            tally.show_tail(blocks.get(running, "") if running else output)
            if running is None or status == "timeout":
                tally.add_failure(f"{group}{'/' + running if running else ''}", how_it_ended(status, timeout))
                for name in left:
                    if name not in finished and name != running:
                        tally.add_failure(f"{group}/{name}", "did not run")
                break
            tally.add_failure(f"{group}/{running}", how_it_ended(status, timeout))
            left = [n for n in left if n not in finished and n != running]
            everything = False
    if total:
        failed = len(tally.failures) - failures_before
        word, count = ("FAIL", f", {failed} failed") if failed else ("PASS", "")
        say(f"{word} {group}  {total} tests{count} ({seconds:.1f} s)")


def test_outputs(output):
    """The output of each test, from its RUN line to its end."""
    blocks, name = {}, None
    for line in output.splitlines():
        if match := re.search(r"\[ RUN      \] (\S+)", line):
            name = match[1]
            blocks[name] = ""
        if name:
            blocks[name] += line + "\n"
            if re.search(r"\[(       OK|  FAILED  |  SKIPPED ) \]", line):
                name = None
    return blocks


# --- scripts ---------------------------------------------------------------------------------------------------------
def run_script(script, tally, environment, timeout):
    group = f"script/{script.stem}"
    seen, said = [], []  # words of its checks; what it said since the last one

    def on_line(line):
        word, _, rest = line.partition(" ")
        name, _, reason = rest.partition(" ")
        if word not in ("PASS", "FAIL", "SKIP") or not name:
            return said.append(line)
        seen.append(word)
        if word == "PASS":
            say(f"PASS {group}/{name}")
            tally.add_pass()
        elif word == "FAIL":
            tally.show_tail("\n".join(said))
            tally.add_failure(f"{group}/{name}", reason)
        else:
            tally.add_skip(f"{group}/{name}", reason)
        said.clear()

    with tempfile.TemporaryDirectory(prefix="lockstep-check-") as folder:
        status, output, _ = run_watched(group, ["/bin/sh", str(script)], {**environment, "LOCKSTEP_TMP": folder},
                                        timeout, on_line)
    if status != 0 and "FAIL" not in seen:
        tally.show_tail(output)
        tally.add_failure(group, how_it_ended(status, timeout))
    elif not seen:
        tally.show_tail(output)
        tally.add_failure(group, "reported no check")


# --- layers and oracle -----------------------------------------------------------------------------------------------
def run_layers(name, arguments, tally):
    command = [sys.executable, str(ROOT / "tools/check_layers.py"), *arguments]
    status, output, _ = run_watched(name, command, os.environ, 900)
    if status == 0:
        tally.add_pass()
        say(f"PASS {name}")
    else:
        tally.show_tail(output)
        tally.add_failure(name)


# The folders whose tests link no kernel: a sanitizer build of them takes a minute, of all of them half an hour.
ASAN_QUICK = ("base", "observe", "numerics", "tensor", "text")
# --- fuzzing ---------------------------------------------------------------------------------------------------------
FUZZ_MUTATIONS = 8000


def fuzz_seed():
    """A seed for libFuzzer: 1 to 2^32 - 1, since 0 means none there."""
    named = os.environ.get("LOCKSTEP_FUZZ_SEED")
    if named is None:
        return random.SystemRandom().randrange(1, 2**32)
    if not named.isascii() or not named.isdigit() or not 0 < int(named) < 2**32:
        raise SystemExit(f"check: LOCKSTEP_FUZZ_SEED is '{named}', allowed are 1 to {2**32 - 1}")
    return int(named)


def run_fuzzers(build, tally, patterns, environment):
    """Each program over its corpus (tests/fuzz/corpus: NAME/, written by hand, and NAME.tar.xz, what long searches found;
    tools/fuzz_corpus.py keep) and some thousand mutations of that, from a new seed each time: what a run found stands in its report,
    and LOCKSTEP_FUZZ_SEED=n takes the same way again.
    LOCKSTEP_FUZZ_SECONDS=n searches on for n seconds; finds stay in the build folder."""
    seconds = int(os.environ.get("LOCKSTEP_FUZZ_SECONDS", "0"))
    seed = fuzz_seed()
    say(f"fuzz: seed {seed} (LOCKSTEP_FUZZ_SEED={seed} ./check --fuzz repeats it)")
    sources = [s for s in sorted((ROOT / "tests/fuzz").glob("*_fuzz.cpp")) if chosen(f"fuzz/{s.stem}", patterns)]
    with tally.cost_of("fuzz"):
        side_by_side([[functools.partial(run_fuzzer, build, source, seconds, seed, environment) for source in sources], []], tally)


def run_fuzzer(build, source, seconds, seed, environment, tally):
    name = f"fuzz/{source.stem}"
    found = build / "corpus" / (source.stem if seconds else f"{source.stem}-again")  # libFuzzer writes its finds to the first folder that it is given
    if not seconds:
        shutil.rmtree(found, ignore_errors=True)
    found.mkdir(parents=True, exist_ok=True)
    seeds = fuzz_corpus.folders(source.stem, build)
    extent = [f"-max_total_time={seconds}"] if seconds else [f"-runs={sum(len(list(s.iterdir())) for s in seeds) + FUZZ_MUTATIONS}"]
    extent += [f"-seed={seed}", str(found), *map(str, seeds)]
    status, output, took = run_watched(
        name, [str(build / source.stem), "-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1",
               f"-artifact_prefix={build}/{source.stem}-", *extent], environment, seconds + 600)
    runs = re.search(r"stat::number_of_executed_units:\s*(\d+)", output)
    if status == 0 and runs:
        tally.add_pass()
        say(f"PASS {name}  {runs[1]} inputs ({took:.1f} s)")
    else:
        tally.show_tail(output)
        tally.add_failure(name, f"{how_it_ended(status, seconds + 600)}; LOCKSTEP_FUZZ_SEED={seed} ./check --fuzz {source.stem} repeats it")


# Tests by pytest that need the oracle environment: against transformers, with the real openai client, in a browser.
PYTEST_FOLDERS = ("oracle", "api", "training", "page", "python")
ONE_TEST_SECONDS = 600  # one that hangs fails by its name, and the others still run


def tests_of(body):
    """The tests of a file in Python, or of a class in one, in its order, as pytest finds them: defined there, in classes, or imported by name."""
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield from (f"{node.name}::{name}" for name in tests_of(node.body))
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ImportFrom)):
            names = [alias.asname or alias.name for alias in node.names] if isinstance(node, ast.ImportFrom) else [node.name]
            yield from (name for name in names if name.startswith("test_"))


def oracle_names():
    paths = [path for folder in PYTEST_FOLDERS for path in sorted((ROOT / "tests" / folder).glob("test_*.py"))]
    return [f"{path.parent.name}/{path.name}::{name}" for path in paths for name in tests_of(ast.parse(path.read_text()).body)]


def file_of(name):
    return name.partition("::")[0]


def run_oracle(tally, patterns, environment, timeout, group="oracle", names=None):
    """The tests whose names the patterns choose, or those names, by one pytest."""
    names = [n for n in oracle_names() if chosen(n, patterns)] if names is None else names
    if not names:
        return
    python = os.environ.get("LOCKSTEP_ORACLE_PYTHON") or str(ROOT / ".oracle/bin/python")
    if not os.path.exists(python):
        if os.environ.get("LOCKSTEP_ORACLE_PYTHON"):
            return tally.add_failure("oracle", f"LOCKSTEP_ORACLE_PYTHON is {python}, which does not exist")
        for name in names:
            tally.add_skip(name, NO_ORACLE)
        return
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        wanted = [f"tests/{n}" for n in names]
        status, output, seconds = run_watched(
            group, [python, "-m", "pytest", "-v", "-p", "no:cacheprovider", f"--timeout={ONE_TEST_SECONDS}", f"--junitxml={report}", *wanted],
            environment, 2 * timeout)
        if not report.exists():
            tally.show_tail(output)
            return tally.add_failure(group, how_it_ended(status, 2 * timeout))
        failures_before, count, by_file = len(tally.failures), 0, collections.defaultdict(float)
        for case in xml.etree.ElementTree.parse(report).getroot().iter("testcase"):
            # A file that could not be read has no class: its name says which one it is.
            parts = ["oracle", *(case.get("classname") or case.get("name")).split(".")]
            at = next((i for i, part in enumerate(parts) if part.startswith("test_")), len(parts) - 1)
            name = "::".join([f"{parts[at - 1]}/{parts[at]}.py", *parts[at + 1 :], case.get("name")])
            count += 1
            tally.add_test(case.get("name"), float(case.get("time") or 0))
            by_file[f"{parts[at - 1]}/{parts[at]}.py"] += float(case.get("time") or 0)
            if (skip := case.find("skipped")) is not None:
                tally.add_skip(name, skip.get("message") or "")
            elif (bad := case.find("failure")) is not None or (bad := case.find("error")) is not None:
                tally.show_tail(bad.text or bad.get("message") or "")
                tally.add_failure(name)
            else:
                tally.add_pass()
        tally.costs += [(file, spent, None) for file, spent in by_file.items() if spent >= 1]
        if status != 0 and len(tally.failures) == failures_before:
            tally.show_tail(output)
            tally.add_failure(group, how_it_ended(status, 2 * timeout))
        say(f"{'FAIL' if len(tally.failures) > failures_before else 'PASS'} {group}  {count} tests ({seconds:.1f} s)")


# Checks that compare times, of two moments or against a wait: nothing runs beside them.
TIMED = ("unit/test_benchmark", "script/speed", "api/test_many_sockets.py", "api/test_hostile.py", "training/test_hostile_senders.py", "training/test_measured.py")
# What takes longest of the others that are no tests in Python, and is therefore begun first: a long one at the end would leave a processor idle.
LONGEST = ("unit/test_system", "script/first_day", "unit/test_train", "unit/test_jobs", "script/option_effects", "script/server_effects", "unit/test_parity", "unit/test_kernels",
           "unit/test_http", "unit/test_text", "unit/test_engine", "script/merged_teachers")  # fmt: skip
# What waits (for a browser, for silence to pass, for the disk) more than it computes runs as a third beside the two, so that a processor is not idle meanwhile.
WAITING = ("tests in Python, page", "script/mpi_serve", "script/mpi", "script/rank_troubles", "script/kill_resume", "unit/test_api", "unit/test_host",
           "script/launch", "unit/test_parallel", "script/sft_runs", "script/exit_codes", "unit/test_serving", "unit/test_fleet", "script/snapshot", "script/own_data")  # fmt: skip


class Checks:
    """The checks of a run of ./check in their order: first those that compare times, alone; then two at a time, tests in Python beside the others,
    and as a third those that mostly wait. One pytest for each folder, since fixtures of a session belong to a folder."""

    def __init__(self, patterns, environment, timeout):
        self.patterns, self.environment, self.timeout = patterns, environment, timeout
        self.timed, self.programs, self.python, self.waiting = [], [], [], []

    def add(self, group, call):
        def counted(tally):
            with tally.cost_of(group):
                call(tally=tally)

        (self.timed if group in TIMED else self.waiting if group in WAITING else self.programs).append((group, counted))

    def add_python(self):
        names = [name for name in oracle_names() if chosen(name, self.patterns)]
        parts = [("timed", [name for name in names if file_of(name) in TIMED])]
        parts += [(folder, [n for n in names if n.startswith(folder + "/") and file_of(n) not in TIMED]) for folder in PYTEST_FOLDERS]
        for part, own in parts:
            if own:
                group = f"tests in Python, {part}"

                def counted(tally, group=group, own=own):
                    with tally.cost_of(group):
                        run_oracle(tally, [], self.environment, self.timeout, group, own)

                (self.timed if part == "timed" else self.waiting if group in WAITING else self.python).append((group, counted))

    def run(self, tally, one_at_a_time=False):
        place = {name: at for at, name in enumerate((*LONGEST, *WAITING))}
        for checks in (self.programs, self.waiting):
            checks.sort(key=lambda check: place.get(check[0], len(place)))  # the rest in its order
        lanes = [[call for _, call in checks] for checks in (self.programs, self.python, self.waiting)]
        side_by_side([[call for _, call in self.timed]], tally)
        if one_at_a_time:
            side_by_side([sum(lanes, [])], tally)
        else:
            side_by_side(lanes[:2], tally, beside=lanes[2])


def main():
    parser = argparse.ArgumentParser(prog="./check", description="Runs the tests (see tools/run_checks.py).")
    parser.add_argument("patterns", nargs="*", metavar="PATTERN", help="a part of a name, or a name with * and ?")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    parser.add_argument("--asan", action="store_true", help="the unit tests of build-asan/")
    parser.add_argument("--asan-quick", action="store_true", help="those of them that need no kernels")
    parser.add_argument("--tsan", action="store_true", help="the tests of threads, of build-tsan/ and, of the training API, of build/")
    parser.add_argument("--tsan-serve", action="store_true", help="tests/api/test_concurrency.py against the server of build-tsan/")
    parser.add_argument("--fuzz", action="store_true", help="the libFuzzer programs of build-fuzz/, some seconds each")
    parser.add_argument("--kill", type=int, nargs="?", const=100, metavar="N", help="N kills of training runs under ranks (default 100)")
    parser.add_argument("--night", action="store_true", help="the parts of tools/night.py: all, those named, `next`, `short`, or `list`")
    parser.add_argument("--soak", type=float, nargs="?", const=60, metavar="MINUTES", help="bench/soak.py: everybody at once, for so long (default 60); and 1,000 sessions")
    parser.add_argument("--one-at-a-time", action="store_true", help="no check beside another (their costs are then those of a quiet machine)")
    parser.add_argument("--timeout", type=int, default=1200, help="seconds for one program (default 1200)")
    options = parser.parse_args()
    options.asan = options.asan or options.asan_quick

    build = ROOT / ("build-asan" if options.asan else "build-tsan" if options.tsan or options.tsan_serve else "build")
    environment = dict(os.environ)
    for variable in ("LOCKSTEP_KILL_AT", "LOCKSTEP_FAIL_AT", "LOCKSTEP_GIVE_WAY"):
        environment.pop(variable, None)
    environment.update(LOCKSTEP_BINARY=str(build / "lockstep"), LOCKSTEP_ROOT=str(ROOT), LOCKSTEP_BUILD=str(build))
    # What Python compiles of torch, transformers and others is kept: each of the many processes that import them would compile it again, for seconds.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment["PYTHONPYCACHEPREFIX"] = str(ROOT / "build/pycache")
    if options.asan:
        environment.setdefault("ASAN_OPTIONS", "detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1")
        environment.setdefault("UBSAN_OPTIONS", "print_stacktrace=1")
    if options.tsan or options.tsan_serve:
        environment.setdefault("TSAN_OPTIONS", "halt_on_error=1:second_deadlock_stack=1")
    patterns, programs = options.patterns, unit_programs(build)
    if options.asan_quick:
        programs = [p for p in programs if p.name.removeprefix("test_") in ASAN_QUICK]
    if options.tsan:
        programs = [build / "test_concurrency", ROOT / "build/test_training_concurrency"]
    options.asan = options.asan or options.tsan  # the unit tests alone
    scripts = [] if options.asan else sorted((ROOT / "tests/check.d").glob("*.sh"))
    layers = [] if options.asan else [("layers", []), ("layers/self-test", ["--self-test"])]

    if options.list:
        for program in programs:
            for name in unit_names(program) or ["(not built)"] if program.exists() else ["(not built)"]:
                say(f"unit/{program.name}/{name}")
        for name in [f"script/{s.stem}" for s in scripts] + [n for n, _ in layers]:
            say(name)
        for name in [] if options.asan else oracle_names():
            say(name)
        return 0

    tally = Tally()
    if options.tsan_serve:
        run_oracle(tally, patterns or ["api/test_concurrency.py"], environment, options.timeout)
        return tally.close()
    if options.kill:
        run_script(ROOT / "tests/check.d/kill_resume.sh", tally, {**environment, "LOCKSTEP_KILLS": str(options.kill)}, 60 + 30 * options.kill)
        return tally.close()
    if options.soak:
        command = ["/usr/bin/python3", "-B", "bench/soak.py", "--minutes", str(options.soak), "--json", str(build / "soak.json"), "--svg", str(build / "soak.svg")]
        status, output, seconds = run_watched("soak", command, environment, 60 * options.soak + 300)
        tally.show_tail(output)
        tally.add_pass() if status == 0 else tally.add_failure("soak", how_it_ended(status, 60 * options.soak + 300))
        run_oracle(tally, ["training/test_many_sessions.py"], {**environment, "LOCKSTEP_SESSIONS": "1000"}, options.timeout)
        return tally.close()
    if options.night:
        night.run(patterns, night.Runner(sys.modules[__name__], build, environment), tally, say)
        return 0 if patterns == ["list"] else tally.close()
    if options.fuzz:
        run_fuzzers(ROOT / "build-fuzz", tally, patterns, environment)
        return tally.close()
    checks = Checks(patterns, environment, options.timeout)
    for program in programs:
        checks.add(f"unit/{program.name}", functools.partial(run_unit, program, patterns=patterns, environment=environment, timeout=options.timeout))
    for script in scripts:
        if chosen(f"script/{script.stem}", patterns):
            checks.add(f"script/{script.stem}", functools.partial(run_script, script, environment=environment, timeout=options.timeout))
    for name, arguments in layers:
        if chosen(name, patterns):
            checks.add(name, functools.partial(run_layers, name, arguments))
    if not options.asan:
        checks.add_python()
    checks.run(tally, one_at_a_time=options.one_at_a_time)
    return tally.close()


def stop_as_by_ctrl_c(*_):
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # ./check --list | head
    signal.signal(signal.SIGTERM, stop_as_by_ctrl_c)  # so that what runs is ended with us
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        say("check: interrupted")
        sys.exit(130)
