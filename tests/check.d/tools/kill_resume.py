"""Runs that are killed, interrupted, refused the disk: what is on disk stays whole, and the end is the same to the bit.

Both kinds of training, on one rank and on several, and rollouts of many turns. kill -9 at random times (the seed is printed; LOCKSTEP_KILL_SEED repeats it)
and at the places between write, fsync and rename (src/base/file.h), then --resume until done: weights, moments and metrics equal
those of a run that nothing disturbed, and at no time is there a checkpoint older than what an earlier start had saved.
LOCKSTEP_KILLS=n: that many kills under ranks and nothing else (./check --kill n). SIGTERM saves and prints the line that goes on. A run that exists is refused without --resume, one in use
is refused with it. A full disk is one clear error, the last checkpoint stays, and the run goes on once there is room.
"""
import contextlib
import itertools
import os
import random
import resource
import shlex
import shutil
import signal
import subprocess
import time

from harness import (MODEL, TMP, bits, check, done, finish, last_checkpoint, lockstep, refused, require_same, rl_arguments,
                     sft_arguments, start)

RUNS = TMP / "runs"
RANDOM_KILLS, KILLS_UNDER_RANKS = 5, 10
LONG = int(os.environ.get("LOCKSTEP_KILLS") or 0)
# How a start under ranks is laid out: what one layout wrote, another reads. The optimizer's state is in memory or in a file.
LAYOUTS = [{"ranks": ranks, "optimizer_state": state}
           for ranks, state in [("dp=2", "memory"), ("tp=2", "file"), ("tp=2,dp=2", "memory"), ("dp=2", "file"), ("tp=2", "memory"),
                                ("ep=2", "memory"), ("dp=3", "file"), ("tp=3", "memory"), ("pp=2", "file"), ("dp=2,pp=2", "memory"), ("dp=2,shard=weights", "file")]]
STEPS = 5
# (place, which pass): with a checkpoint after every step, passes beyond the first are in the middle of the run. A checkpoint is a
# folder with two files, then the file `latest`; the mark of the run is the first file of all (base/output_path.h), config.json the next; the
# second mark is the export's.
PLACES = [("mark.opened", 1), ("mark.opened", 2), ("file.written", 1), ("file.renamed", 1), ("checkpoint:write", 1), ("checkpoint:write", 3),
          ("checkpoint:fsync", 2), ("file.written", 6), ("file.synced", 7), ("file.renamed", 7), ("folder.written", 2), ("folder.synced", 2),
          ("folder.renamed", 2), ("checkpoint:rename", 2)]
PLACES_OF_RL = [("checkpoint:write", 2), ("file.synced", 7), ("folder.synced", 2), ("checkpoint:rename", 2)]


def sft(name, **settings):
    return sft_arguments(name, **{"runs": RUNS, "steps": STEPS, "checkpoint_every": 1, "batch": 4, "threads": 2, **settings})


def rl(name, **settings):
    return rl_arguments(name, **{"runs": RUNS, "steps": STEPS, "checkpoint_every": 1, "problems": 2, "rollouts": 4, "threads": 2, **settings})


TAUGHT = RUNS / "taught" / "export"  # made below


def many_turns(name, **settings):
    """Rollouts of several context windows, of a model that opens some doors: all rewards are 0, and what is learned is to be less sure."""
    return rl(name, **{"model": TAUGHT, "environment": "lockbox", "compact_at": 29, "problems": 6, "loss_config": "entropy_coefficient=0.05", **settings})


def go_on(words, name):
    """What a user would do: --resume once the run has begun, the same command before."""
    return [*words, "--resume"] if (RUNS / name / "config.json").exists() else words


def wait_for(condition, process, what, timeout=120):
    end = time.monotonic() + timeout
    while not condition():
        assert process.poll() is None, f"the run ended before {what}\n{finish(process)}"
        assert time.monotonic() < end, f"{what} did not happen within {timeout} s"
        time.sleep(0.005)


def steps_logged(name):
    path = RUNS / name / "metrics.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


def requires_end_of(kind, words, name, expected):
    outcome = done(*go_on(words, name))
    require_same(expected, bits(RUNS / name, outcome), f"{kind} after it was disturbed")
    leftovers = [p.name for p in (RUNS / name / "checkpoints").iterdir() if p.name.endswith((".partial", ".removed"))]
    assert not leftovers, f"left behind: {leftovers}"
    shutil.rmtree(RUNS / name)


def require_newest(name, saved):
    """What a kill leaves behind: the checkpoint that `latest` names is whole, of no earlier step than the one before the kill, and
    at most one step behind the metrics. Returns its step."""
    latest = RUNS / name / "checkpoints" / "latest"
    if not latest.exists():
        assert saved == 0, f"the checkpoint of step {saved} is gone"
        return 0
    step = last_checkpoint(RUNS / name)["step"]
    assert step >= saved, f"the newest checkpoint is of step {step}, an earlier start had saved step {saved}"
    assert step >= steps_logged(name) - 1, f"{steps_logged(name)} steps are logged, the newest checkpoint is of step {step}"
    return step


def random_kills(kind, make, expected, seconds, wanted=RANDOM_KILLS):
    seed = int(os.environ.get("LOCKSTEP_KILL_SEED") or random.SystemRandom().randrange(1 << 30))
    print(f"{kind}: LOCKSTEP_KILL_SEED={seed}, {seconds:.2f} s undisturbed", flush=True)
    draws, kills, runs, attempts, saved = random.Random(seed), 0, 0, 0, 0
    name = f"{kind}-random-0"
    while kills < wanted:
        attempts += 1
        assert attempts < 12 * wanted, f"only {kills} kills in {attempts} attempts"
        words = make(name)
        process = start(*go_on(words, name))
        delay = draws.uniform(0.02, 0.9) * seconds
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(delay)
        if process.poll() is None:
            process.kill()
        outcome = finish(process)
        if outcome.returncode == -signal.SIGKILL:
            kills += 1
            saved = require_newest(name, saved)
            print(f"{kind}: killed after {delay:.3f} s, {steps_logged(name)} steps logged, step {saved} saved", flush=True)
        else:  # it was done before: that must be right too, and the rest of the kills go to another run
            assert outcome.returncode == 0, f"status {outcome.returncode}\n{outcome}"
            require_same(expected, bits(RUNS / name, outcome), f"{kind} after {kills} kills")
            shutil.rmtree(RUNS / name)
            runs += 1
            saved = 0
            name = f"{kind}-random-{runs}"
    requires_end_of(kind, make(name), name, expected)


def place_kill(kind, make, expected, place, number):
    name = f"{kind}-{place.replace(':', '-')}-{number}"
    words = make(name)
    outcome = lockstep(*words, env={"LOCKSTEP_KILL_AT": f"{place}:{number}"})
    assert outcome.returncode == -signal.SIGKILL, f"it was not killed at {place}:{number}\n{outcome}"
    requires_end_of(kind, words, name, expected)


def interrupt(kind, make, expected):
    name = f"{kind}-interrupted"
    words = make(name)
    for _ in range(10):  # on a busy machine a run may be done before the signal comes
        process = start(*words)
        while steps_logged(name) < 1 and process.poll() is None:
            time.sleep(0.005)
        process.send_signal(signal.SIGTERM)
        outcome = finish(process)
        if outcome.returncode != 0:
            break
        shutil.rmtree(RUNS / name)
    assert outcome.returncode == 128 + signal.SIGTERM, f"status {outcome.returncode}, not {128 + signal.SIGTERM}\n{outcome}"
    lines = [line.strip() for line in outcome.stderr.splitlines() if line.strip().endswith("--resume")]
    assert lines, f"no line that resumes\n{outcome}"
    assert last_checkpoint(RUNS / name)["step"] == steps_logged(name), "the checkpoint is not of the last step"
    program, *rest = shlex.split(lines[-1])
    assert program == "lockstep", lines[-1]
    outcome = done(*rest)
    require_same(expected, bits(RUNS / name, outcome), f"{kind} after SIGTERM")

    refused(*words, status=1, words=["exists", name, "--resume"])
    require_same(expected, bits(RUNS / name, outcome), f"{kind} after a start that was refused")
    shutil.rmtree(RUNS / name)


def in_use(kind, make):
    name = f"{kind}-in-use"
    process = start(*make(name, steps=10000, warmup=0))
    try:
        wait_for(lambda: steps_logged(name) >= 1, process, "the first step")
        refused(*make(name, steps=10000, warmup=0), "--resume", status=1, words=["in use by process", str(process.pid)])
    finally:
        process.kill()
        finish(process)
        shutil.rmtree(RUNS / name, ignore_errors=True)


def full_disk(kind, make, expected, run, room, free):
    """`run` is a run whose first checkpoint stands; `room` refuses the second one its bytes, `free` takes that back."""
    words = make(run.name, runs=run.parent)
    before = last_checkpoint(run)
    outcome = refused(*words, "--resume", status=1, words=["saving the checkpoint", "earlier ones are intact"], **room)
    assert any(word in outcome.errors[0] for word in ("No space left on device", "File too large")), str(outcome)
    assert last_checkpoint(run) == before, "the last checkpoint is not what it was"
    assert not list((run / "checkpoints").glob("*.partial")), "half a checkpoint was left"
    free()
    outcome = done(*words, "--resume")
    require_same(expected, bits(run, outcome), f"{kind} after a full disk")


def first_checkpoint(make, name, runs):
    """A run killed as soon as its first checkpoint stands; returns the bytes of that checkpoint."""
    outcome = lockstep(*make(name, runs=runs), env={"LOCKSTEP_KILL_AT": "checkpoint:write:2"})
    assert outcome.returncode == -signal.SIGKILL, str(outcome)
    checkpoints = runs / name / "checkpoints"
    for partial in checkpoints.glob("*.partial"):
        shutil.rmtree(partial)
    assert last_checkpoint(runs / name)["step"] == 1
    return sum(p.stat().st_size for p in checkpoints.rglob("*") if p.is_file())


def limited_disk(kind, make, expected):
    name = f"{kind}-limit"
    size = first_checkpoint(make, name, RUNS)

    def limit():  # in the child; a write past the limit must be an error (EFBIG), not a signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, size // 2))

    full_disk(kind, make, expected, RUNS / name, {"preexec_fn": limit, "restore_signals": False}, lambda: None)
    shutil.rmtree(RUNS / name)


def small_disk(kind, make, expected):
    """A file system of one and a half checkpoints, where this machine lets us mount one."""
    place = TMP / f"{kind}-disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256m", "lockstep-check", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        print(f"{kind}: no file system may be mounted here; the limit on file sizes stands for it", flush=True)
        return
    try:
        size = first_checkpoint(make, f"{kind}-full", place)
        resize = lambda n: subprocess.run(["mount", "-o", f"remount,size={n}", str(place)], check=True)
        resize(size + size // 2)
        full_disk(kind, make, expected, place / f"{kind}-full", {}, lambda: resize("256m"))
    finally:
        subprocess.run(["umount", str(place)], check=False)


for kind, make, places in (("sft", sft, PLACES), ("rl", rl, PLACES_OF_RL)):
    expected, seconds = None, 0
    with check(f"{kind}-undisturbed"):
        begin = time.monotonic()
        expected = bits(RUNS / f"{kind}-whole", done(*make(f"{kind}-whole")))
        seconds = time.monotonic() - begin
        assert len(expected["metrics"]) == STEPS
        assert len(list((RUNS / f"{kind}-whole" / "checkpoints").glob("step-*"))) == 2, "keep_last = 2 was not kept"
    if expected is None:
        continue
    if not LONG:
        with check(f"{kind}-kill-at-random-times"):
            random_kills(kind, make, expected, seconds)
    with check(f"{kind}-kill-and-resume-on-other-ranks"):
        layouts = itertools.cycle(LAYOUTS)
        random_kills(f"{kind}-ranks", lambda name: make(name, **next(layouts)), expected, 2 * seconds, LONG // 2 or KILLS_UNDER_RANKS)
    if LONG:
        continue
    for place, number in places:
        with check(f"{kind}-kill-at-{place.replace(':', '-')}-{number}"):
            place_kill(kind, make, expected, place, number)
    with check(f"{kind}-interrupt"):
        interrupt(kind, make, expected)
    with check(f"{kind}-in-use"):
        in_use(kind, make)
    with check(f"{kind}-limited-disk"):
        limited_disk(kind, make, expected)
    with check(f"{kind}-small-disk"):
        small_disk(kind, make, expected)

if not LONG:
    with check("many-turns-killed"):
        done("train", "sft", "--model", MODEL, "--environment", "lockbox", "--compact-at", "29", "--steps", "60", "--batch", "2", "--learning-rate", "2e-3", "--warmup", "5",
             "--runs", RUNS, "--name", "taught", "--no-page", "--quiet")
        begin = time.monotonic()
        expected = bits(RUNS / "turns-whole", done(*many_turns("turns-whole")))
        seconds = time.monotonic() - begin
        assert all(step["chains"] > 1 for step in expected["metrics"]), f"no rollout has a second window: {expected['metrics']}"
        for place, number in PLACES_OF_RL:
            place_kill("turns", many_turns, expected, place, number)
        random_kills("turns", many_turns, expected, seconds, 3)
