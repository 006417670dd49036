"""Tests of the `openai` client against a server over two processes of Open MPI, as people begin it: `mpirun -n 2 lockstep serve`. All that can be run so are
in `./check --night clients-openai` (tools/over_processes.py); that the bytes are those of one process: script/mpi_serve."""
import contextlib
import os
import signal
import time
from pathlib import Path

import pytest
from conftest import REPOSITORY, Server

import over_processes
from test_completions import (client, test_a_seed_fixes_every_bit, test_company_changes_nothing, test_completion, test_echo_scores_a_text,  # noqa: F401
                              test_errors_name_the_field, test_logprobs, test_stream, test_top_logprobs)  # fmt: skip


@pytest.fixture(scope="module")
def start():
    """start(): a server over processes; its exit status is looked at by whoever stops it."""
    program = os.environ.get("LOCKSTEP_BINARY", str(REPOSITORY / "build" / "lockstep"))
    if lacking := over_processes.lacking(program):
        pytest.skip(lacking)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCKSTEP_BINARY", str(over_processes.wrapped(program)))
        yield Server


@pytest.fixture(scope="module")
def server(start):
    running = start()
    yield running
    assert running.stop() == 0, "".join(running.errors)


def ranks_of(pid):
    """The processes that the mpirun of this process has started."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            parents.setdefault(int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1]), []).append(int(entry.name))
    below = [one for child in parents.get(pid, []) for one in parents.get(child, [])]
    return [one for one in below if b"--transport" in Path(f"/proc/{one}/cmdline").read_bytes()]


def is_over(pid):
    """Also of one whose end nobody has asked about."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def test_it_is_two_processes_and_they_end_together(start):
    running = start()
    both = ranks_of(running.process.pid)
    assert len(both) == 2, both
    running.stop(signal.SIGKILL)
    until = time.monotonic() + 30
    while left := [pid for pid in both if not is_over(pid)]:
        assert time.monotonic() < until, left
        time.sleep(0.05)
