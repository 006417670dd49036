"""The parts of ./check --night: checks that take too long for every run of .ci/run, which runs one of them every second time (docs/ci.md).

Each part is a row of PARTS. A night runs all of them, notes which passed with this tree in build/night.json, and goes on there when it is
started again. `next` is the part whose turn it is by the number in .ci/turn.
"""
import hashlib
import json
import os
import re
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOST_MINUTES = 180  # of a whole night, on two processors
# As lockstep parity compares them (parity_layouts in src/parity/parity_run.cpp).
LAYOUTS = ("tp=2", "dp=2", "tp=3", "ep=2", "pp=2", "tp=2,dp=2,ep=2", "dp=3", "tp=8", "ep=3")
ASAN_FOLDERS = {"model": 3, "engine": 11, "train": 11, "losses": 2, "serving": 6, "planning": 3, "parity": 7, "trained": 2, "host": 7, "runs": 3, "api": 5, "http": 3, "jobs": 6}  # and its minutes (docs/ci.md)
KERNEL_PARTS = 4  # cmake/Night.cmake
ARCHITECTURES = ("80", "90a", "100a")
LACKING = 3  # the exit code of a part that may_lack what it needs
# Sanitizers' parts, and those that not every machine can run, that passed whole by hand once, in 8 minutes at most: only such a part joins the turns of .ci/run, where a red one
# lets nothing land.
PROVED = ("asan-model", "asan-engine", "asan-losses", "asan-serving", "asan-planning", "asan-trained", "asan-host", "asan-runs", "asan-http")


# Of the test programs, whose tests are of bits and not of shares, times or numbers of pieces. Run with giving way at every boundary.
GIVE_WAY = ("unit/test_kernels/*", "unit/test_model/*", "unit/test_engine/*", "unit/test_train/*", "unit/test_trained/*", "unit/test_parity/*", "unit/test_system/*",
            "unit/test_host/GiveWay*", "unit/test_host/Resting*")


@dataclass(frozen=True)
class Part:
    name: str
    minutes: int  # after which it is ended and has failed
    kind: str  # which function below runs it
    argument: str
    what: str
    in_turn: bool = True  # .ci/run takes a few minutes for one; GPU code has a turn of its own there
    by_name: bool = False  # a night does not run it: whoever names it does
    may_lack: bool = False  # status 3 says that the machine lacks what it needs: skipped


PARTS = [
    Part("demo", 9, "demo", "", "the full demo, whose weights have the published hash"),
    Part("demo-ranks", 17, "demo", "--ranks tp=2,dp=2,ep=2", "the same on eight ranks", in_turn=False),
    Part("demo-drafts", 15, "demo", "--arms lockstep --rollout-speculation siblings,mtp,ngram --mtp-depths 3", "150 steps whose rollouts are guessed ahead by a layer that learns on line", in_turn=False, by_name=True),
    Part("recipe", 15, "command", "/usr/bin/python3 -B tools/republish --check", "the shipped model from its recipe, byte for byte"),
    Part("recipe-agent", 60, "command", "/usr/bin/python3 -B tools/republish --check --model agent-glm", "the other shipped model from its recipe, byte for byte", in_turn=False, by_name=True),
    Part("soak", 6, "command", "/usr/bin/python3 -B bench/soak.py --minutes 5", "a server that everybody uses at once, for five minutes"),
    Part("kills", 15, "command", ".oracle/bin/python -B bench/weight_kills.py --minutes 13", "kills of publishers, mirrors and followers, a thousand where the time is enough", in_turn=False, by_name=True),
    Part("regions", 4, "command", "/usr/bin/python3 -B bench/regions.py", "a fleet in three network namespaces on wires that lose packets (root and TUN)", in_turn=False, by_name=True, may_lack=True),
    Part("regions-short", 2, "command", "/usr/bin/python3 -B bench/regions.py --short", "the same with fewer steps on faster wires", in_turn="regions-short" in PROVED, may_lack=True),
    *[Part(f"ranks-{layout.replace('=', '').replace(',', '-')}", 1, "demo", f"--quick --ranks {layout}", f"the quick demo under {layout}") for layout in LAYOUTS],
    Part("give-way", 15, "everywhere", "", "tests of bits, parity and the quick demo while work gives way at every boundary, in drawn turns", in_turn=False, by_name=True),
    Part("tsan-engine", 16, "program", "tsan_engine", "ThreadSanitizer over the engine", in_turn=False),
    Part("tsan-train", 40, "program", "tsan_train", "ThreadSanitizer over the trainer", in_turn=False, by_name=True),
    *[Part(f"asan-{folder}", minutes, "program", f"asan_{folder}", f"AddressSanitizer over src/{folder}", in_turn=f"asan-{folder}" in PROVED) for folder, minutes in ASAN_FOLDERS.items()],
    *[Part(f"asan-kernels-{n}", 7, "program", f"asan_kernels_{n}", f"AddressSanitizer over every fourth kernel, from the {n + 1}.", in_turn=f"asan-kernels-{n}" in PROVED) for n in range(KERNEL_PARTS)],
    *[Part(f"cuda-{a}", 3, "cuda", a, f"GPU code for compute capability {a}, by nvcc", in_turn=False) for a in ARCHITECTURES],
]
ENVIRONMENT = {
    # The libraries below are not instrumented: what they did to a vector cannot be told.
    "program": {"ASAN_OPTIONS": "detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1:detect_container_overflow=0",
                "UBSAN_OPTIONS": "print_stacktrace=1", "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1"},
}


def git(*words):
    done = subprocess.run(["git", "-C", str(ROOT), *words], stdin=subprocess.DEVNULL, capture_output=True)
    return done.stdout if done.returncode == 0 else b""


def turn(file=ROOT / ".ci/turn"):
    """The number of this landing (a merge to the main branch), which its last commit raises by one. The count of commits would not do: a landing of
    several commits would skip turns."""
    text = file.read_text() if file.is_file() else "absent"
    if not re.fullmatch(r"[1-9][0-9]{0,8}\n?", text):
        raise SystemExit(f"check: .ci/turn is '{text.strip()[:40]}', allowed is one line with a number from 1")
    return int(text)


def was_raised(number):
    """Whether the number is higher than in the commit before; also true where that has none, or git cannot tell."""
    before = git("show", "HEAD^:.ci/turn").strip()
    return not before.isdigit() or int(before) != number


def tree():
    """An identity of the tree that a part passed with: the commit, and the changes since."""
    changed = hashlib.sha256(git("diff", "HEAD")).hexdigest()[:12] if git("status", "--porcelain").strip() else "as committed"
    return f"{git('rev-parse', 'HEAD').decode().strip() or 'no git'} {changed}"


class Progress:
    """Which parts passed with this tree."""

    def __init__(self, file, tree_name):
        self.file, self.tree, self.passed = file, tree_name, {}
        try:
            stored = json.loads(file.read_text())
            if stored["tree"] == tree_name:
                self.passed = {str(name): float(seconds) for name, seconds in stored["passed"].items()}
        except (OSError, ValueError, KeyError, AttributeError, TypeError):
            pass  # none, or of another time: a night from the start

    def add(self, name, seconds):
        self.passed[name] = round(seconds, 1)
        partial = self.file.with_name(self.file.name + ".partial")
        partial.write_text(json.dumps({"tree": self.tree, "passed": self.passed}, indent=2) + "\n")
        os.replace(partial, self.file)

    def forget(self):
        self.file.unlink(missing_ok=True)


class Runner:
    """Runs parts, by functions that run_checks.py passes in."""

    def __init__(self, checks, build, environment):
        self.checks, self.build, self.environment = checks, build, environment

    def run(self, part, tally):
        """Seconds, when it passed."""
        self.checks.say(f"night: {part.name}, {part.what} (at most {part.minutes} minutes; ./check --night {part.name} repeats it)")
        begin, failures = time.monotonic(), len(tally.failures)
        getattr(self, part.kind)(part, tally, {**self.environment, **ENVIRONMENT.get(part.kind, {})}, begin + 60 * part.minutes)
        seconds = time.monotonic() - begin
        return seconds if len(tally.failures) == failures else None

    def watched(self, part, tally, command, environment, end):
        status, output, seconds = self.checks.run_watched(f"night/{part.name}", command, environment, max(1, end - time.monotonic()))
        if status == LACKING and part.may_lack:
            tally.add_skip(f"night/{part.name}", output.strip().rpartition("\n")[2])
        elif status != 0:
            tally.show_tail(output)
            tally.add_failure(f"night/{part.name}", self.checks.how_it_ended(status, 60 * part.minutes))
        return status == 0, output, seconds

    def command(self, part, tally, environment, end):
        good, _, seconds = self.watched(part, tally, part.argument.split(), environment, end)
        if good:
            tally.add_pass()
            self.checks.say(f"PASS night/{part.name} ({seconds:.0f} s)")

    def demo(self, part, tally, environment, end):
        with tempfile.TemporaryDirectory(prefix="lockstep-night-") as runs:
            good, output, seconds = self.watched(part, tally, [environment["LOCKSTEP_BINARY"], "demo", "--runs", runs, *part.argument.split()], environment, end)
        if good and output.rstrip().splitlines()[-1:] != ["identical to the published run"]:
            tally.show_tail(output)
            tally.add_failure(f"night/{part.name}", "its last line is not 'identical to the published run'")
        elif good:
            tally.add_pass()
            self.checks.say(f"PASS night/{part.name} ({seconds:.0f} s)")

    def everywhere(self, part, tally, environment, end):
        """Runs tests with LOCKSTEP_GIVE_WAY (src/base/give_way_everywhere.h); its seed repeats the drawn boundaries, as far as threads do."""
        environment = {**environment, "LOCKSTEP_GIVE_WAY": os.environ.get("LOCKSTEP_GIVE_WAY") or str(int(time.time()))}
        self.checks.say(f"night: LOCKSTEP_GIVE_WAY={environment['LOCKSTEP_GIVE_WAY']} repeats it")
        for name in dict.fromkeys(pattern.split("/")[1] for pattern in GIVE_WAY):
            self.checks.run_unit(self.build / name, tally, list(GIVE_WAY), environment, max(1, end - time.monotonic()))
        program = str(Path(environment["LOCKSTEP_BINARY"]).with_name("lockstep_faults"))
        self.watched(part, tally, [program, "parity", "--model", "models/countdown-glm", "--fuzz", "20"], environment, end)
        self.demo(Part(part.name, part.minutes, part.kind, "--quick", part.what), tally, {**environment, "LOCKSTEP_BINARY": program}, end)

    def program(self, part, tally, environment, end):
        """Builds a program of cmake/Night.cmake, and runs its tests as checks of their own."""
        if self.watched(part, tally, ["./setup", f"--target={part.argument}"], environment, end)[0]:
            self.checks.run_unit(self.build / part.argument, tally, [], environment, max(1, end - time.monotonic()))

    def cuda(self, part, tally, environment, end):
        if not any(os.access(Path(folder) / "nvcc", os.X_OK) for folder in [*os.environ.get("PATH", "").split(":"), "/usr/local/cuda/bin"]):
            return tally.add_skip(f"night/{part.name}", "no nvcc")
        if self.watched(part, tally, ["./setup", f"--cuda-objects={part.argument}"], environment, end)[0]:
            tally.add_pass()


def run(words, runner, tally, say, parts=PARTS, file=None, tree_name=None, number=None):
    """Runs the parts of `./check --night WORDS`: all that have not passed with this tree, `next`, or those named."""
    if words == ["list"]:
        for part in parts:
            say(f"{part.name:18} {part.minutes:3} min  {part.what}")
        return
    if words == ["next"]:
        if number is None and not was_raised(turn()):
            say("night: .ci/turn was not raised in the last commit; unless it was in one before, the last landing's parts run again")
        number = turn() if number is None else number
        turns = [part for part in parts if part.in_turn]
        at = number // 2 % len(turns)  # .ci/run asks for one when the number is even
        say(f"night: turn {number}, so it is that of part {at + 1} of {len(turns)}")
        runner.run(turns[at], tally)
        return
    known = {part.name: part for part in parts}
    if wrong := [word for word in words if word not in known]:
        raise SystemExit(f"check: --night has no part '{wrong[0]}'; it has next, list, {', '.join(known)}")
    if words:
        for word in words:
            runner.run(known[word], tally)
        return
    parts = [part for part in parts if not part.by_name]
    progress = Progress(file or ROOT / "build/night.json", tree_name or tree())
    for part in parts:
        if part.name in progress.passed:
            say(f"night: {part.name} passed before with this tree ({progress.passed[part.name]:.0f} s)")
            tally.add_pass()
        elif (seconds := runner.run(part, tally)) is not None:
            progress.add(part.name, seconds)
    if all(part.name in progress.passed for part in parts):
        say(f"night: all {len(parts)} parts passed ({sum(progress.passed.values()) / 60:.0f} minutes); the next one begins anew")
        progress.forget()
