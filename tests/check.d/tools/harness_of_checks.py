"""./check's own behaviour, with stand-in programs: seeds of fuzzing, what it says of tests that were skipped, the parts of a night."""
import ast
import contextlib
import dataclasses
import fnmatch
import functools
import io
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

ROOT = Path(os.environ["LOCKSTEP_ROOT"])
sys.path.insert(0, str(ROOT / "tools"))
import night  # noqa: E402
import over_processes  # noqa: E402
import run_checks  # noqa: E402
import watched_programs  # noqa: E402

PROGRAM = "schema_fuzz"


def fuzzed(folder, exit_status=0, seed=None, seconds=None):
    """One run of a stand-in fuzz program: (the arguments it was given, what was printed, the tally)."""
    build = Path(folder)
    program = build / PROGRAM
    program.write_text(f'#!/bin/sh\necho "$@" >"{build}/arguments"\necho "stat::number_of_executed_units: 7"\nexit {exit_status}\n')
    program.chmod(0o755)
    for name, value in (("LOCKSTEP_FUZZ_SEED", seed), ("LOCKSTEP_FUZZ_SECONDS", seconds)):
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = str(value)
    tally, printed = run_checks.Tally(), io.StringIO()
    with contextlib.redirect_stdout(printed):
        run_checks.run_fuzzers(build, tally, [PROGRAM], dict(os.environ))
    return (build / "arguments").read_text().split(), printed.getvalue(), tally


def seed_of(arguments):
    return next(int(a.removeprefix("-seed=")) for a in arguments if a.startswith("-seed="))


def fuzzing_starts_from_a_new_seed_each_time(folder):
    seeds = []
    for _ in range(3):
        arguments, printed, tally = fuzzed(folder)
        assert tally.passed == 1 and not tally.failures, printed
        seeds.append(seed_of(arguments))
        assert f"seed {seeds[-1]} " in printed, printed
    assert len(set(seeds)) == 3, seeds
    searching, printed, _ = fuzzed(folder, seconds=1)
    assert "-max_total_time=1" in searching and f"seed {seed_of(searching)} " in printed


def a_printed_seed_repeats_the_run(folder):
    arguments, printed, tally = fuzzed(folder, exit_status=1)
    seed = seed_of(arguments)
    assert len(tally.failures) == 1 and f"LOCKSTEP_FUZZ_SEED={seed} ./check --fuzz {PROGRAM}" in tally.failures[0], tally.failures
    named = re.search(r"LOCKSTEP_FUZZ_SEED=(\d+) ", printed)[1]
    again, _, _ = fuzzed(folder, seed=named)
    assert again == arguments, (again, arguments)


def a_wrong_seed_is_refused(folder):
    for wrong in ("0", "4294967296", "x", "-1", ""):
        try:
            fuzzed(folder, seed=wrong)
        except SystemExit as stop:
            assert f"LOCKSTEP_FUZZ_SEED is '{wrong}'" in str(stop), stop
        else:
            raise AssertionError(f"seed '{wrong}' was taken")


def the_end_names_the_way_to_skipped_tests(folder):
    tally, printed = run_checks.Tally(), io.StringIO()
    with contextlib.redirect_stdout(printed):
        tally.add_pass()
        tally.add_skip("api/test_chat.py::test_x", run_checks.NO_ORACLE)
        tally.add_skip("oracle/test_y.py::test_y", run_checks.NO_ORACLE)
        tally.close()
    lines = printed.getvalue().splitlines()
    assert lines[-1] == "1 passed, 0 failed, 2 skipped" and lines[-2].startswith("2 tests in Python were skipped; for them: ./setup --oracle"), lines
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        tally = run_checks.Tally()
        tally.add_pass()
        tally.close()
    assert "--oracle" not in printed.getvalue()


def the_end_shows_again_what_failed(folder):
    script = Path(folder) / "stand_in.sh"
    script.write_text("echo of the first; echo PASS first; echo why it failed; echo FAIL second 'in one line'; echo of the third; echo PASS third\n")
    tally, printed = run_checks.Tally(), io.StringIO()
    with contextlib.redirect_stdout(printed):
        run_checks.run_script(script, tally, dict(os.environ), 60)
        middle = len(printed.getvalue())
        tally.close()
    end = [line.strip() for line in printed.getvalue()[middle:].splitlines()]
    assert end == ["failed:", "script/stand_in/second: in one line", "| why it failed", "2 passed, 1 failed, 0 skipped"], end


def the_readme_counts_what_is_skipped(folder):
    said, count = re.search(r"skips those in Python, more than (\d+)", (ROOT / "README.md").read_text()), len(run_checks.oracle_names())
    assert said and int(said[1]) <= count <= 1.25 * int(said[1]), f"README says {said and said[1]}, and {count} tests in Python are skipped on a bare machine"


def tests_of_a_file_are_those_that_pytest_finds(folder):
    source = """
from family_tests import check_scores, test_scores as test_all_scores, test_gradients
def helper(): pass
def test_one(): pass
class Helper:
    def test_not(self): pass
class TestClient:
    def test_chat(self): pass
    async def test_stream(self): pass
    def helper(self): pass
"""
    found = list(run_checks.tests_of(ast.parse(source).body))
    assert found == ["test_all_scores", "test_gradients", "test_one", "TestClient::test_chat", "TestClient::test_stream"], found
    names = run_checks.oracle_names()
    for name in ("oracle/test_deepseek.py::test_golden_scores", "api/test_clients.py::TestOpenai::test_chat"):
        assert names.count(name) == 1, name


def the_end_tells_what_groups_cost(folder):
    tally, printed = run_checks.Tally(), io.StringIO()
    with contextlib.redirect_stdout(printed):
        with tally.cost_of("script/quick"):
            pass
        with tally.cost_of("script/slow"):
            run_checks.run_watched("slow", ["sleep", "1.1"], dict(os.environ), 60)
        tally.add_pass()
        tally.close()
    costs = [line for line in printed.getvalue().splitlines() if line.startswith("cost ")]
    assert len(costs) == 1 and re.fullmatch(r"cost +[1-9][0-9.]* s  script/slow \(0\.\d s of a processor\)", costs[0]), costs


def the_end_tells_what_families_cost(folder):
    tally, other = run_checks.Tally(), run_checks.Tally()
    tally.add_test("Families/ParityFamily.HoldsToo/qwen3_moe", 1.5)
    tally.add_test("Families/ParityFamily.HoldsToo/qwen3", 0.5)  # not of qwen3_moe, and below a second
    other.add_test("test_scores[qwen3_moe-cpu-f32]", 2)
    other.add_test("test_scores[toy]", 9)
    tally.join(other)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        tally.close()
    costs = [line for line in printed.getvalue().splitlines() if line.startswith("cost ")]
    assert costs == ["cost     3.5 s  tests of the family qwen3_moe, in the rows above"], costs


def two_programs_run_at_once_and_are_told_in_order(folder):
    tally, printed, both = run_checks.Tally(), io.StringIO(), threading.Barrier(2)

    def call(number, own):
        if number < 2:
            both.wait(60)  # neither goes on without the other
        own.add_failure(f"fault {number}", "planted") if number != 1 else own.add_pass()

    with contextlib.redirect_stdout(printed):
        run_checks.side_by_side([[functools.partial(call, n) for n in (0, 1, 2)], []], tally)
    assert tally.passed == 1 and tally.failures == ["fault 0: planted", "fault 2: planted"], (tally.passed, tally.failures)


def what_is_timed_runs_alone_and_the_rest_two_at_a_time(folder):
    """By stand-ins that note when they begin and end. The first of the others waits for tests in Python, which are in the other lane, and for a check that
    is known to wait, which runs as a third; then as many as the processors are left, though the third is done."""
    spans, lock, both = {}, threading.Lock(), threading.Barrier(3)

    def noted(name, work=lambda: None):
        def call(tally):
            begin = time.monotonic()
            work()
            tally.add_pass()
            with lock:
                spans[name] = (begin, time.monotonic())
        return call

    def run(one_at_a_time):
        spans.clear()
        checks = run_checks.Checks([], {}, 60)
        meet = (lambda: None) if one_at_a_time else (lambda: both.wait(60))
        for name in ("script/none", "script/speed", "script/some", "script/mpi", "unit/test_jobs", "unit/test_system", "unit/test_benchmark"):
            checks.add(name, noted(name, meet if name in ("unit/test_system", "script/mpi") else lambda: time.sleep(0.05)))
        checks.python += [("tests in Python, api", noted("api", meet))]
        tally = run_checks.Tally()
        checks.run(tally, one_at_a_time)
        assert tally.passed == len(spans) == 8
        return sorted(spans, key=lambda name: spans[name][0])

    order = run(one_at_a_time=False)
    assert order[:2] == ["script/speed", "unit/test_benchmark"] and set(order[2:5]) == {"unit/test_system", "api", "script/mpi"}, order
    for name in order[5:]:  # never a third of those that compute
        assert sum(begin <= spans[name][0] < end for begin, end in spans.values()) <= 2, (name, spans)
    assert max(spans[name][1] for name in order[:2]) <= min(spans[name][0] for name in order[2:]), spans
    assert spans["script/speed"][1] <= spans["unit/test_benchmark"][0], spans
    assert run(one_at_a_time=True) == ["script/speed", "unit/test_benchmark", "unit/test_system", "unit/test_jobs", "script/none", "script/some", "api", "script/mpi"]
    ended = sorted(spans.values())
    assert all(before[1] <= after[0] for before, after in zip(ended, ended[1:])), spans


def a_fault_of_ours_ends_what_runs(folder):
    """And nothing is begun any more, not even by who runs its program again after a crash."""
    begun, tally = [], run_checks.Tally()

    def sleeps(own):
        for _ in range(3):
            begun.append(1)
            run_checks.run_watched("sleeps", ["sleep", "20"], dict(os.environ), 90)

    def fails(own):
        while not watched_programs.running:
            time.sleep(0.01)
        raise ZeroDivisionError

    began = time.monotonic()
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            run_checks.side_by_side([[sleeps, sleeps], [fails, fails]], tally)
        except ZeroDivisionError:
            pass
        else:
            raise AssertionError("the fault was swallowed")
        assert time.monotonic() - began < 15 and len(begun) <= 2 and not watched_programs.running
        assert run_checks.run_watched("true", ["true"], dict(os.environ), 60)[0] == 0  # the next run is not stopped


def checks_that_are_named_are_in_the_tree(folder):
    tests = {run_checks.file_of(name) for name in run_checks.oracle_names()}
    programs = {f"unit/{program.name}" for program in run_checks.unit_programs(ROOT)}
    scripts = {f"script/{script.stem}" for script in (ROOT / "tests/check.d").glob("*.sh")}
    assert set(run_checks.TIMED) <= tests | programs | scripts, set(run_checks.TIMED) - tests - programs - scripts
    assert set(run_checks.LONGEST) <= programs | scripts, set(run_checks.LONGEST) - programs - scripts
    parts = {f"tests in Python, {folder}" for folder in run_checks.PYTEST_FOLDERS}
    assert set(run_checks.WAITING) <= programs | scripts | parts and not set(run_checks.WAITING) & set(run_checks.LONGEST), run_checks.WAITING
    # Every test in Python is in one part.
    checks = run_checks.Checks([], {}, 60)
    checks.add_python()
    seen, run_oracle = [], run_checks.run_oracle
    run_checks.run_oracle = lambda tally, patterns, environment, timeout, group, names: seen.extend(names)
    try:
        checks.run(run_checks.Tally())
    finally:
        run_checks.run_oracle = run_oracle
    assert sorted(seen) == sorted(run_checks.oracle_names())


PARTS = [night.Part(name, minutes, "command", f"{{folder}}/{name}", "a stand-in", why_no_turn="planted" if name == "long" else "")
         for name, minutes in (("one", 2), ("two", 2), ("long", 2), ("three", 2), ("quick", 1), ("brief", 1))]
NAMES = [part.name for part in PARTS]


def nights(folder, *words, broken=(), tree="a", number=None, parts=PARTS):
    """What one `./check --night WORDS` ran, which parts failed, and what it printed. Parts are scripts that note that they ran."""
    folder = Path(folder)
    ran, parts = folder / "ran", [dataclasses.replace(part, argument=part.argument.format(folder=folder)) for part in parts]
    for part in parts:
        script = Path(part.argument)
        script.write_text(f"#!/bin/sh\necho {part.name} >>{ran}\nexit {int(part.name in broken)}\n")
        script.chmod(0o755)
    ran.write_text("")
    tally, printed = run_checks.Tally(), io.StringIO()
    with contextlib.redirect_stdout(printed):
        runner = night.Runner(run_checks, folder, dict(os.environ))
        night.run(list(words), runner, tally, run_checks.say, parts, folder / "night.json", tree, number)
    return ran.read_text().split(), [f.split(":")[0].removeprefix("night/") for f in tally.failures], printed.getvalue()


def a_night_goes_on_where_it_was(folder):
    assert nights(folder, broken=["two"])[:2] == (NAMES, ["two"])
    ran, failed, printed = nights(folder)  # what passed is not run again, what failed is
    assert (ran, failed) == (["two"], []) and "all 6 parts passed" in printed, printed
    assert nights(folder)[0] == NAMES  # a whole night is over: the next one is a new one
    nights(folder, broken=["two"])
    assert nights(folder, tree="b")[0] == NAMES  # another tree has passed nothing
    for text in ("", "{", "[]", '{"tree": "b"}', '{"tree": "b", "passed": 7}', '{"tree": "b", "passed": {"one": "x"}}'):
        (Path(folder) / "night.json").write_text(text)
        assert nights(folder, tree="b")[0] == NAMES, text


def a_night_with_time_left_runs_more(folder):
    """The parts whose limits fit into what is left, each the first one in turn. A whole night is one without them too."""
    parts = PARTS[:2] + [night.Part(name, minutes, "command", f"{{folder}}/{name}", "a stand-in", spare=True) for name, minutes in (("dawn", 100), ("dusk", 100), ("never", 300))]
    ran, failed, printed = nights(folder, number=3, parts=parts)
    assert (ran, failed) == (["one", "two", "dawn", "dusk"], []) and "no time for never: it may take 300 minutes, and 180 of 180 are left" in printed, printed
    assert "all 2 parts passed" in printed, printed
    ran, failed, printed = nights(folder, number=4, parts=parts, broken=["dawn"])
    assert (ran, failed) == (["one", "two", "dusk", "dawn"], ["dawn"]) and "all 2 parts passed" in printed, printed
    most, night.MOST_MINUTES = night.MOST_MINUTES, 99
    try:
        assert nights(folder, number=3, parts=parts)[:2] == (["one", "two"], [])
    finally:
        night.MOST_MINUTES = most
    assert nights(folder, "dawn", parts=parts)[0] == ["dawn"]  # whoever names it


def each_part_has_its_turn(folder):
    turns = [nights(folder, "next", number=number)[0] for number in (40, 42, 44)]
    assert sorted(turns) == [["one"], ["three"], ["two"]], turns
    turns = [nights(folder, word, number=number)[0] for word, number in (("next", 41), ("next", 43), ("short", 40), ("short", 42))]
    assert sorted(turns[:2]) == sorted(turns[2:]) == [["brief"], ["quick"]], turns  # where a long one has no turn or no time
    ran, failed, printed = nights(folder, "next", number=40, broken=["one", "two", "three"])
    assert failed == ran and f"./check --night {ran[0]} repeats it" in printed, printed
    assert nights(folder, "long", "one")[0] == ["long", "one"]
    try:
        nights(folder, "four")
    except SystemExit as stop:
        assert "no part 'four'; it has next, short, list, one" in str(stop), stop
    else:
        raise AssertionError("a part that is none was taken")


def turns_are_of_landings(folder):
    """Whatever the number of their commits: a file has the number, and .ci/run and the night read the same one."""
    file = Path(folder) / "turn"
    for text, number in (("7\n", 7), ("566", 566), ("", None), ("0\n", None), ("08\n", None), ("7\n8\n", None), ("-1\n", None), ("1e3\n", None)):
        file.write_text(text)
        try:
            found = night.turn(file)
        except SystemExit as stop:
            assert "allowed is one line with a number from 1" in str(stop), stop
            found = None
        assert found == number, (text, found)
    number, script = night.turn(), (ROOT / ".ci/run").read_text()
    begin, end = script.index("turn=$(cat"), script.index("export architecture")
    for count in range(number, number + 6):  # of the lines themselves
        (Path(folder) / ".ci").mkdir(exist_ok=True)
        (Path(folder) / ".ci/turn").write_text(f"{count}\n")
        told = subprocess.run(["/bin/bash", "-euc", f'stop() {{ echo "$1"; exit 1; }}\n{script[begin:end]}\necho "$kind $builds $architecture"'], cwd=folder, capture_output=True, text=True)
        kind = ("tsan", "fuzz", "asan-quick")[count // 2 % 3] if count % 2 else ""
        assert told.stdout.strip() == f"{kind} {kind}{' tsan-training' if kind == 'tsan' else ''} {night.ARCHITECTURES[count % 3]}".strip(), told


def a_late_run_takes_a_part_of_a_minute(folder):
    """The lines of .ci/run with a stand-in for ./check: what runs by turns after so many minutes, and how many skips are counted."""
    folder, script = Path(folder), (ROOT / ".ci/run").read_text()
    (folder / "check").write_text('#!/bin/sh\necho "$*" >>ran\necho "1 passed, 0 failed, 0 skipped"\n')
    (folder / "check").chmod(0o755)
    adds, turns = (re.search(pattern, script, re.S)[1] for pattern in (r"\n(add\(\) \{.*?\n\}\n)", r"\n(late\(\) \{.*?)\nstep \"GPU code"))
    for number, minutes, expected, skips in ((8, 10, ["--night next"], 0), (9, 10, ["--tsan", "--night next"], 0), (8, 76, ["--night short"], 1), (9, 76, ["--night next"], 1),
                                             (8, 86, [], 2), (9, 86, [], 2)):
        (folder / "ran").write_text("")
        given = f"turn={number} kind={'tsan' if number % 2 else ''} builds= logs=. status=0 passed=0 failed=0 skipped=0 begin=0 SECONDS={60 * minutes}"
        done = subprocess.run(["/bin/bash", "-euo", "pipefail", "-c", f"{given}\nstep() {{ :; }}\nstop() {{ exit 3; }}\n{adds}{turns}\necho $passed $skipped"], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done
        assert (folder / "ran").read_text().splitlines() == expected, (number, minutes, done)
        assert done.stdout.splitlines()[-1] == f"{len(expected)} {skips}", (number, minutes, done.stdout)
    assert all(part.kind != "program" for part in night.PARTS if not part.why_no_turn and part.minutes + part.build_minutes <= night.SHORT_MINUTES), "a part of a minute builds nothing"


def shards_are_the_whole(folder):
    """Of a stand-in for a test program: each test in one shard, also where one crashes; a shard without any is told."""
    program, tests = Path(folder) / "tsan_stand_in", [f"Suite.test{n}" for n in range(7)]
    program.write_text(f"""#!/usr/bin/python3
import json, os, sys
tests = {tests}
if "--gtest_list_tests" in sys.argv:
    print("Suite.", *(f"  {{t[6:]}}" for t in tests), sep="\\n")
    sys.exit()
options = dict(word.split("=", 1) for word in sys.argv[1:])
chosen = options.get("--gtest_filter", ":".join(tests)).split(":")
for test in chosen:
    open("{folder}/ran", "a").write(test + "\\n")
    print("[ RUN      ] " + test, flush=True)
    if test == os.environ.get("PLANTED"):
        os.abort()
    print("[       OK ] " + test, flush=True)
report = [{{"name": "Suite", "testsuite": [{{"name": t[6:], "time": "0s", "status": "RUN", "result": "COMPLETED"}} for t in chosen]}}]
json.dump({{"testsuites": report}}, open(options["--gtest_output"][5:], "w"))
""")
    program.chmod(0o755)

    def shard(index, count, planted=""):
        (Path(folder) / "ran").write_text("")
        tally = run_checks.Tally()
        with contextlib.redirect_stdout(io.StringIO()):
            run_checks.run_unit(program, tally, [], {**os.environ, "PLANTED": planted}, 60, (index, count))
        return (Path(folder) / "ran").read_text().split(), tally

    ran = [shard(index, 3) for index in range(3)]
    assert sorted(sum((tests for tests, _ in ran), [])) == tests and all(tally.passed == len(own) and not tally.failures for own, tally in ran), ran
    own, tally = shard(1, 3, planted="Suite.test1")
    assert own == ["Suite.test1", "Suite.test4"] and tally.passed == 1 and len(tally.failures) == 1 and "Suite.test1" in tally.failures[0], (own, tally.failures)
    own, tally = shard(7, 8)
    assert own == [] and "shard 7 of 8 has no test" in tally.failures[0], tally.failures


def a_program_is_built_once_in_a_night(folder):
    """So the minutes for building it count once."""
    runner = night.Runner(run_checks, Path(folder), dict(os.environ))
    first, second = (night.Part(f"of-{n}", 2, "command", "true", "a stand-in", build_minutes=3, shard=(n, 2)) for n in range(2))
    assert runner.minutes(first) == runner.minutes(second) == 5
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        night.run(["of"], runner, run_checks.Tally(), run_checks.say, [first, second])  # all shards of a program, by its name
        night.run(["*-1"], night.Runner(run_checks, Path(folder), dict(os.environ)), run_checks.Tally(), run_checks.say, [first, second])
    assert re.findall(r"night: (of-\d), .*?at most (\d+) minutes", printed.getvalue()) == [("of-0", "5"), ("of-1", "2"), ("of-1", "5")], printed.getvalue()


def a_part_ends_in_its_time(folder):
    slow = Path(folder) / "slow"
    slow.write_text("#!/bin/sh\nsleep 60\n")
    slow.chmod(0o755)
    seconds, watched_programs.SIGN_OF_LIFE_SECONDS = watched_programs.SIGN_OF_LIFE_SECONDS, 0.2
    tally = run_checks.Tally()
    with contextlib.redirect_stdout(io.StringIO()):
        night.Runner(run_checks, Path(folder), dict(os.environ)).run(night.Part("slow", 0, "command", str(slow), "a stand-in"), tally)
    watched_programs.SIGN_OF_LIFE_SECONDS = seconds
    assert len(tally.failures) == 1 and "night/slow: ran past" in tally.failures[0], tally.failures


def a_part_that_lacks_what_it_needs_is_skipped(folder):
    lacking = Path(folder) / "lacking"
    lacking.write_text("#!/bin/sh\necho begun\necho 'regions: cannot be run here: no TUN'\nexit 3\n")
    lacking.chmod(0o755)
    found = []
    for name, may_lack in (("regions-short", True), ("regions-short", False), ("other", True)):
        tally = run_checks.Tally()
        with contextlib.redirect_stdout(io.StringIO()):
            night.Runner(run_checks, Path(folder), dict(os.environ)).run(night.Part(name, 1, "command", str(lacking), "a stand-in", may_lack=may_lack), tally)
        found.append((tally.passed, tally.skips, [failure.partition(":")[0] for failure in tally.failures]))
    assert found == [(0, ["night/regions-short: regions: cannot be run here: no TUN"], []), (0, [], ["night/regions-short"]), (0, [], ["night/other"])], found


def the_parts_are_those_of_the_tree(folder):
    names, programs = [part.name for part in night.PARTS], {}
    for part in night.PARTS:
        if part.kind == "program":
            programs.setdefault(part.argument, []).append(part)
    of_a_night = sum(part.minutes for part in night.PARTS if not part.by_name and not part.spare) + sum(parts[0].build_minutes for parts in programs.values())
    assert len(set(names)) == len(names) and of_a_night <= night.MOST_MINUTES, of_a_night
    parity = (ROOT / "src/parity/parity_run.cpp").read_text()
    assert ", ".join(f'"{layout}"' for layout in night.LAYOUTS) in parity, "parity compares other layouts"
    made = (ROOT / "cmake/Night.cmake").read_text()
    folders = [name[5:] for name in night.SANITIZED if name.startswith("asan-") and not name.startswith("asan-kernels-")]
    assert sorted(re.search(r"foreach\(folder (model .*?)\)", made)[1].split()) == sorted(folders) and f"LOCKSTEP_KERNEL_PARTS {night.KERNEL_PARTS})" in made
    assert f"foreach(folder {' '.join(name[5:] for name in night.SANITIZED if name.startswith('tsan-'))})" in made
    assert f"LOCKSTEP_CUDA_ARCHITECTURES {' '.join(night.ARCHITECTURES)} CACHE" in (ROOT / "cmake/Cuda.cmake").read_text()
    assert all(hasattr(night.Runner, part.kind) for part in night.PARTS)
    for name in (name for part in night.PARTS if part.kind == "slow" for name in part.argument.split()):
        group, own, *tests = name.split("/")
        files = [ROOT / f"tests/check.d/{own}.sh"] if group == "script" else sorted((ROOT / "src" / own[5:]).glob("*_test.cpp"))
        assert files and files[0].exists() and all(any(one in file.read_text() for file in files) for one in tests), name
    # Every sanitizer's program is in a night, all its tests, and in parts of some minutes.
    assert set(programs) == {name.replace("-", "_") for name in night.SANITIZED}
    for parts in programs.values():
        assert [part.shard for part in parts] == [(n, len(parts)) for n in range(len(parts))] and not any(part.by_name or part.spare for part in parts), parts
        assert all(part.minutes + part.build_minutes <= 8 for part in parts), parts
    # Every part takes turns, or has a reason why not. One of sanitizers, or that not every machine can run, takes them when it has passed, and every one that has.
    to_prove = {*night.SANITIZED, *(part.name for part in night.PARTS if part.may_lack and part.name not in night.WITHOUT_TURN)}
    assert set(night.PROVED) <= to_prove and set(night.WITHOUT_TURN) <= set(names), (night.PROVED, night.WITHOUT_TURN)
    for part in night.PARTS:
        name = part.argument.replace("_", "-") if part.kind == "program" else part.name
        expected = name in night.PROVED if name in to_prove else name not in night.WITHOUT_TURN
        assert (not part.why_no_turn) == expected and (expected or len(part.why_no_turn) > 15), part
    for short in (False, True):
        turns = [part.name for part in night.PARTS if not part.why_no_turn and (part.minutes + part.build_minutes <= night.SHORT_MINUTES) == short]
        assert [night.whose_turn(night.PARTS, 2 * n + short, False)[0].name for n in range(len(turns))] == turns
    # What counts to a million there is a test that can.
    engine = [file.read_text() for file in (ROOT / "src/engine").rglob("*_test.cpp")]
    can = {f"{suite}.{name}" for text in engine if "LOCKSTEP_SLOW_TESTS" in text for suite, name in re.findall(r"^TEST\((\w+), (\w+)\)", text, re.MULTILINE)}
    assert all(fnmatch.filter(can, pattern.removeprefix("unit/test_engine/")) for pattern in night.MILLIONS), night.MILLIONS
    # docs/ci.md says which parts there are, which take turns, and why the others do not.
    text = (ROOT / "docs/ci.md").read_text()
    table = re.search(r"\| parts \| what \|\n\|[-|]+\n((?:\|.*\n)+)", text)[1]
    rows = re.findall(r"`([^`]+)`", " ".join(row.split("|")[1] for row in table.splitlines()))
    assert set(rows) == set(re.findall(r"`([^`]+)`", night.told(names))), f"the table of docs/ci.md has {sorted(rows)}, and the parts are {night.told(names)}"
    assert night.page() in text, f"docs/ci.md says otherwise than tools/night.py:\n{night.page()}"


def what_is_left_out_over_processes_is_in_the_tree(folder):
    names = [name for name in run_checks.oracle_names() if name.startswith(("api/", "training/"))]
    for pattern in over_processes.left_out():
        assert over_processes.run_over_processes(names, [pattern])[1], f"tests/over_processes.txt: '{pattern}' stands for no test"
    for suite in ("api", "training"):
        wanted, out = over_processes.run_over_processes([name for name in names if name.startswith(suite)], over_processes.left_out())
        assert len(wanted) > len(out) > 0, (suite, len(wanted), len(out))
    (Path(folder) / "list").write_text("api/test_chat.py::* : short\n")
    try:
        over_processes.left_out(Path(folder) / "list")
        raise AssertionError("a row without a reason was taken")
    except SystemExit as error:
        assert "is not `NAME : REASON`" in str(error)


def the_program_over_processes_is_itself_but_for_servers(folder):
    """With stand-ins for the program, mpirun and setpriv: what is started, that a signal comes to process 0, and its exit status."""
    program, starter = Path(folder) / "lockstep", Path(folder) / "mpirun"
    program.write_text("""#!/bin/sh
echo "program $*"
[ "$1 $OMPI_COMM_WORLD_RANK" = "serve 0" ] || exit 3
trap 'exit 7' TERM
echo listening
while :; do sleep 0.05; done
""")
    starter.write_text("""#!/usr/bin/python3
import os, subprocess, sys
at = sys.argv.index("setpriv")
print("mpirun", *sys.argv[1:at], flush=True)
sys.exit(subprocess.run(sys.argv[at + 3:], env={**os.environ, "OMPI_COMM_WORLD_RANK": "0"}).returncode)
""")
    for one in (program, starter):
        one.chmod(0o755)
    script = over_processes.wrapped(program)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    for words in (["plan", "serve"], ["serve", "--model", "m", "--transport", "mpi"]):
        told = subprocess.run([script, *words], capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL)
        assert (told.returncode, told.stdout) == (3, f"program {' '.join(words)}\n"), told
    for own in ([], ["--ranks", "pp=2"]):
        server = subprocess.Popen([script, "serve", "--model", "m", *own], stdout=subprocess.PIPE, text=True, env=environment, stdin=subprocess.DEVNULL)
        said = [server.stdout.readline() for _ in range(3)]
        assert said == ["mpirun --oversubscribe --bind-to none -n 2\n", f"program serve --model m {' '.join(own or ['--ranks', 'tp=2'])} --transport mpi\n", "listening\n"], said
        server.terminate()
        assert server.wait(timeout=30) == 7
        server.stdout.close()


CHECKS = [fuzzing_starts_from_a_new_seed_each_time, a_printed_seed_repeats_the_run, a_wrong_seed_is_refused, the_end_names_the_way_to_skipped_tests,
          the_end_shows_again_what_failed, the_readme_counts_what_is_skipped, tests_of_a_file_are_those_that_pytest_finds,
          the_end_tells_what_groups_cost, the_end_tells_what_families_cost, two_programs_run_at_once_and_are_told_in_order,
          what_is_timed_runs_alone_and_the_rest_two_at_a_time, a_fault_of_ours_ends_what_runs, checks_that_are_named_are_in_the_tree,
          a_night_goes_on_where_it_was, a_night_with_time_left_runs_more, each_part_has_its_turn, turns_are_of_landings, a_late_run_takes_a_part_of_a_minute,
          shards_are_the_whole, a_program_is_built_once_in_a_night, a_part_ends_in_its_time, a_part_that_lacks_what_it_needs_is_skipped, the_parts_are_those_of_the_tree,
          what_is_left_out_over_processes_is_in_the_tree, the_program_over_processes_is_itself_but_for_servers]


def main():
    for check in CHECKS:
        with tempfile.TemporaryDirectory() as folder:
            try:
                check(folder)
                print(f"PASS {check.__name__}", flush=True)
            except Exception as error:
                traceback.print_exc(file=sys.stdout)
                print(f"FAIL {check.__name__} {type(error).__name__}", flush=True)


if __name__ == "__main__":
    main()
