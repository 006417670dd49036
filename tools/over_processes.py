"""Runs the program with its servers over two processes of Open MPI, for tests that start a server and know nothing of it.

    over_processes.py PROGRAM serve WORDS...     mpirun -n 2 PROGRAM serve WORDS... --ranks tp=2 --transport mpi; --ranks of its own stay

Signals are passed on to process 0, which heeds them, and the exit status is mpirun's. Who kills this process kills all of them. `wrapped` makes a
script of it that stands in for the program (LOCKSTEP_BINARY); what is no server, or names a transport, is the program itself there.
tests/over_processes.txt lists the tests that cannot be run so, each with the reason (`left_out`); ./check --night clients-openai and
clients-training run the others.
"""
import contextlib
import fnmatch
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests/over_processes.txt"
# As tests/check.d/tools/processes.py has it: one host, as root, and more processes than processors.
ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
               "OMPI_MCA_plm": "isolated", "TMPDIR": "/tmp"}  # fmt: skip
DIES_WITH_ITS_PARENT = ["setpriv", "--pdeathsig", "KILL"]
STARTS_WITHIN = 30  # seconds in which a signal waits for the process that it is for
SCRIPT = """#!/bin/sh
case "$1 $* " in "serve "*" --transport"*) ;; "serve "*) exec /usr/bin/python3 -B '{tool}' '{program}' "$@" ;; esac
exec '{program}' "$@"
"""


def lacking(program):
    """Why servers cannot be started so here, or nothing."""
    found = shutil.which("mpirun") and shutil.which("setpriv") and Path(program).with_name("lockstep_mpi.so").exists()
    return "" if found else "no Open MPI"


def wrapped(program):
    """A script beside the program, where tests look for its bridges, that stands in for it."""
    program = Path(program).resolve()
    script = program.with_name("lockstep_over_processes")
    partial = script.with_name(f"{script.name}.{os.getpid()}")
    partial.write_text(SCRIPT.format(tool=Path(__file__).resolve(), program=program))
    partial.chmod(0o755)
    os.replace(partial, script)
    return script


def left_out(file=LIST):
    """{pattern of names of tests: why they are not run over processes}"""
    reasons = {}
    for line in file.read_text().splitlines():
        name, colon, reason = line.partition(" : ")
        if not line.strip() or line.startswith("#"):
            continue
        if not colon or len(reason.strip()) < 15 or name.strip() in reasons:
            raise SystemExit(f"over_processes: {file.name}: '{line}' is not `NAME : REASON`, or is there twice")
        reasons[name.strip()] = reason.strip()
    return reasons


def run_over_processes(names, reasons):
    """Those of these tests that are run, and those that are left out."""
    out = [name for name in names if any(fnmatch.fnmatchcase(name, pattern) for pattern in reasons)]
    return [name for name in names if name not in out], out


def first_process(mpirun):
    """The process 0 that this mpirun has started; None before it has."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if parent == mpirun and b"OMPI_COMM_WORLD_RANK=0" in (entry / "environ").read_bytes().split(b"\0"):
                return int(entry.name)
    return None


def main():
    program, *words = sys.argv[1:]
    ranks = [] if any(word.partition("=")[0] == "--ranks" for word in words) else ["--ranks", "tp=2"]
    line = [*DIES_WITH_ITS_PARENT, "mpirun", "--oversubscribe", "--bind-to", "none", "-n", "2", *DIES_WITH_ITS_PARENT, program, *words, *ranks, "--transport", "mpi"]
    early, running = [], []  # signals that came before mpirun was started; its process

    def pass_on(number, _):
        if not running:
            return early.append(number)
        until = time.monotonic() + STARTS_WITHIN
        while time.monotonic() < until:
            if (pid := first_process(running[0].pid)) is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
                return None
            time.sleep(0.05)
        return None

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, pass_on)  # a handler is not inherited by what is started
    running.append(subprocess.Popen(line, env={**os.environ, **ENVIRONMENT}))
    for number in early:
        pass_on(number, None)
    status = running[0].wait()
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
