"""./check's own behaviour, with stand-in programs: seeds of fuzzing, and what it says of tests that were skipped."""
import contextlib
import io
import os
import re
import sys
import tempfile
import traceback
from pathlib import Path

ROOT = Path(os.environ["LOCKSTEP_ROOT"])
sys.path.insert(0, str(ROOT / "tools"))
import run_checks  # noqa: E402

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


CHECKS = [fuzzing_starts_from_a_new_seed_each_time, a_printed_seed_repeats_the_run, a_wrong_seed_is_refused, the_end_names_the_way_to_skipped_tests]


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
