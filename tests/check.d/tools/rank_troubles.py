"""Runs over processes that are disturbed at random moments and go on with other processes, in other layouts, to the bits of a run that nobody disturbed.

One of the processes is killed, or stopped until the others give it up, or its disk is full while it writes its share. Whatever it is, all of them
end, nobody hangs, the newest checkpoint is whole and at most one step behind, and the next start has fewer ranks or more. The seed is printed; LOCKSTEP_TROUBLE_SEED repeats
it. Ten troubles, 200 with LOCKSTEP_SLOW_TESTS=1, as many as LOCKSTEP_TROUBLES says. A link that is cut: launch.py, between namespaces. Without Open MPI it is skipped.
"""
import contextlib
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from harness import BINARY, ROOT, TMP, Outcome, bits, check, done, last_checkpoint, require_same, sft_arguments
from processes import ENVIRONMENT, LONG, end_all, mpirun_line, needs_mpi, pids_of

RUNS = TMP / "runs"
TROUBLES = int(os.environ.get("LOCKSTEP_TROUBLES") or (200 if os.environ.get("LOCKSTEP_SLOW_TESTS") else 10))
SETTINGS = {"steps": 6, "batch": 4, "checkpoint_every": 1, "threads": 2}
LAYOUTS = [(2, "dp=2"), (3, "dp=3,shard=weights"), (2, "tp=2"), (2, "tp=2,dp=2"), (2, "dp=2,pp=2"), (3, "ep=3,rows=dealt")]
KINDS = ("kill", "stop", "disk")
SILENCE = 3  # seconds, of those that are stopped
POINTS = ("checkpoint:write", "checkpoint:fsync", "file.written")


def kill(pid):
    os.kill(pid, signal.SIGKILL)


def stop(pid):
    os.kill(pid, signal.SIGSTOP)


DISTURB = {"kill": kill, "stop": stop}


def steps_logged(name):
    path = RUNS / name / "metrics.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


def command(name, kind, processes, ranks, draws):
    """mpirun's line. Where a disk is full, one process is the program that heeds faults, and is told at which pass of which place."""
    settings = {**SETTINGS, "transport": "mpi", "ranks": ranks, **({"rank_timeout": SILENCE} if kind == "stop" else {})}
    words = [*sft_arguments(name, RUNS, **settings), *(["--resume"] if (RUNS / name / "config.json").exists() else [])]
    if kind != "disk":
        return mpirun_line(processes, "--enable-recovery", BINARY, *words)
    program, victim = BINARY.with_name("lockstep_faults"), draws.randrange(processes)
    full = ["env", f"LOCKSTEP_FAIL_AT={draws.choice(POINTS)}:{draws.randint(1, 3)}", program, *words]
    first, *others = [full if process == victim else [program, *words] for process in range(processes)]
    line = mpirun_line(1, "--enable-recovery", *first)
    for own in others:
        line += [":", "-n", "1", *map(str, own)]
    return line


def ended(pids):
    until = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in pids.values()):
        assert time.monotonic() < until, f"processes are left: {pids}"
        time.sleep(0.02)


def disturbed(name, kind, processes, ranks, delay, draws):
    """A start of the run with this trouble, at its end."""
    line, pids, before = command(name, kind, processes, ranks, draws), {}, steps_logged(name)
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+", errors="replace") as errors:
        running = subprocess.Popen(line, env=ENVIRONMENT, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=errors, text=True)
        until = time.monotonic() + LONG
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.wait(delay)
            while kind != "disk" and running.poll() is None and len(pids) < processes:
                assert time.monotonic() < until, f"{kind}: {len(pids)} of {processes} processes began"
                time.sleep(0.02)
                pids = pids_of(running.pid)
            while kind in DISTURB and running.poll() is None and steps_logged(name) == before:  # Open MPI's own start waits without end for who is lost in it
                assert time.monotonic() < until, f"{kind}: no step is made"
                time.sleep(0.02)
            if running.poll() is None and kind in DISTURB:
                with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # it has just ended
                    DISTURB[kind](pids[draws.randrange(processes)])
            try:
                running.wait(LONG)
            except subprocess.TimeoutExpired:
                raise AssertionError(f"{kind}: somebody hangs for {LONG} s over {processes} processes, {ranks}") from None
        finally:
            end_all(running, pids)
        ended(pids)
        out.seek(0), errors.seek(0)
        return Outcome(line, running.returncode, out.read(), errors.read())


def saved_step(name, before, outcome):
    """Of the newest checkpoint, which is whole: no older than the one before the trouble, and at most a step behind what was logged."""
    if not (RUNS / name / "checkpoints/latest").exists():
        assert before == 0, f"the checkpoint of step {before} is gone\n{outcome}"
        return 0
    step = last_checkpoint(RUNS / name)["step"]
    assert step >= max(before, steps_logged(name) - 1), f"step {step} is saved, {before} was before and {steps_logged(name)} are logged\n{outcome}"
    return step


with check("random-troubles"):
    needs_mpi()
    seed = int(os.environ.get("LOCKSTEP_TROUBLE_SEED") or random.SystemRandom().randrange(1 << 30))
    draws = random.Random(seed)
    expected = bits(RUNS / "whole", done(*sft_arguments("whole", RUNS, **{**SETTINGS, "threads": 1})))
    begun = time.monotonic()
    outcome = disturbed("undisturbed", "none", 2, "dp=2", 0.1, draws)
    seconds = time.monotonic() - begun
    assert outcome.returncode == 0, outcome
    require_same(expected, bits(RUNS / "undisturbed", outcome), "over processes that nobody disturbed")
    print(f"LOCKSTEP_TROUBLE_SEED={seed}, {seconds:.1f} s undisturbed", flush=True)
    troubles, attempts, runs, saved = {kind: 0 for kind in KINDS}, 0, 0, 0
    while sum(troubles.values()) < TROUBLES or not all(troubles.values()):
        attempts += 1
        assert attempts < 6 * TROUBLES + 20, f"only {troubles} in {attempts} attempts"
        name, kind, (processes, ranks) = f"disturbed-{runs}", KINDS[attempts % len(KINDS)], draws.choice(LAYOUTS)
        outcome = disturbed(name, kind, processes, ranks, draws.uniform(0.1, 0.9) * seconds, draws)
        # It was done before: the rest of the troubles go to another run. (Where a process was killed mpirun may end with 0 too.)
        if outcome.returncode == 0 and outcome.stdout.strip():
            require_same(expected, bits(RUNS / name, outcome), f"after {troubles}, over {processes} processes, {ranks}")
            shutil.rmtree(RUNS / name)
            runs, saved = runs + 1, 0
            continue
        troubles[kind] += 1
        assert kind != "disk" or "No space left on device" in outcome.stderr, outcome
        saved = saved_step(name, saved, outcome)
        print(f"  {kind}, {processes} processes, {ranks}: {steps_logged(name)} steps logged, step {saved} saved", flush=True)
    name = f"disturbed-{runs}"
    words = [*sft_arguments(name, RUNS, **{**SETTINGS, "threads": 1}), *(["--resume"] if (RUNS / name / "config.json").exists() else [])]
    require_same(expected, bits(RUNS / name, done(*words)), f"after {troubles}, by one rank at the end")
    left = [p.name for p in (RUNS / name / "checkpoints").iterdir() if p.name.endswith((".partial", ".removed"))]
    assert not left, f"left behind: {left}"
