"""What the checks of ranks as processes share: mpirun's command lines, and which of its processes is which.

    from processes import mpirun, needs_mpi, pids_of
"""
import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path

from harness import BUILD, ROOT, Outcome, Skip

OPERATIONS = BUILD / "mpi_operations"
# One host, whatever it has for others; as root, and more processes than processors.
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
               "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_MCA_plm": "isolated", "TMPDIR": "/tmp"}
# Nothing here takes a tenth of it on an idle machine: who waits for so long hangs.
LONG = 300


def needs_mpi():
    if not shutil.which("mpirun") or not OPERATIONS.exists() or not (BUILD / "lockstep_mpi.so").exists():
        raise Skip("no Open MPI")


def mpirun_line(processes, *words):
    return ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(processes), *map(str, words)]


def mpirun(processes, *words, timeout=LONG):
    line = mpirun_line(processes, *words)
    ended = subprocess.run(line, env=ENVIRONMENT, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)
    return Outcome(line, ended.returncode, ended.stdout, ended.stderr)


def pids_of(mpirun_pid):
    """The processes that this mpirun started, by their number."""
    pids = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            if int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1]) != mpirun_pid:
                continue
            for word in (entry / "environ").read_bytes().split(b"\0"):
                if word.startswith(b"OMPI_COMM_WORLD_RANK="):
                    pids[int(word.split(b"=")[1])] = int(entry.name)
    return pids


def end_all(running, pids):
    """Nothing of it is left."""
    if running.poll() is None:
        running.kill()
    running.wait()
    for pid in pids.values():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
