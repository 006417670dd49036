"""The parts of ./check --night: checks that take too long for every run of .ci/run, which runs one of them each time (docs/ci.md).

Each part is a row of PARTS. A night runs them, notes which passed with this tree in build/night.json, and goes on there when it is started again;
some it runs only where time is left of its three hours. `next` is the part whose turn it is by the number in .ci/turn, `short` one of a minute. Every
part takes turns but those with a reason why not, which docs/ci.md lists.
"""
import fnmatch
import hashlib
import json
import os
import re
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import over_processes

ROOT = Path(__file__).resolve().parent.parent
MOST_MINUTES = 180  # of a whole night, on two processors
# As lockstep parity compares them (parity_layouts in src/parity/parity_run.cpp).
LAYOUTS = ("tp=2", "dp=2", "tp=3", "ep=2", "pp=2", "tp=2,dp=2,ep=2", "dp=3", "tp=8", "ep=3")
ARCHITECTURES = ("80", "90a", "100a")
KERNEL_PARTS = 4  # cmake/Night.cmake
SHORT_MINUTES = 1  # a part of at most so many takes the turns that leave no time for a long one


@dataclass(frozen=True)
class Sanitized:
    """Minutes for building a program of cmake/Night.cmake, those of each of the shards that its tests are cut into, and how many these are (docs/ci.md)."""

    build: int
    run: int
    shards: int = 1


SANITIZED = {
    "tsan-engine": Sanitized(2, 4, 4), "tsan-train": Sanitized(1, 4, 7),
    "asan-model": Sanitized(1, 1), "asan-engine": Sanitized(4, 3, 2), "asan-train": Sanitized(3, 4, 3), "asan-losses": Sanitized(1, 1), "asan-serving": Sanitized(4, 1),
    "asan-planning": Sanitized(2, 1), "asan-parity": Sanitized(3, 4), "asan-trained": Sanitized(1, 1), "asan-host": Sanitized(4, 2), "asan-runs": Sanitized(2, 1),
    "asan-api": Sanitized(3, 2), "asan-http": Sanitized(1, 2), "asan-jobs": Sanitized(3, 3),
    **{f"asan-kernels-{n}": Sanitized(4, 3) for n in range(KERNEL_PARTS)},
}  # fmt: skip
LACKING = 3  # the exit code of a part that may_lack what it needs
# Sanitizers' programs, and parts that not every machine can run, that passed whole by hand once: only such ones take turns in .ci/run, where a red one lets nothing land.
PROVED = ("tsan-engine", "asan-model", "asan-engine", "asan-train", "asan-losses", "asan-serving", "asan-planning", "asan-trained", "asan-host", "asan-runs", "asan-http")
UNPROVED = "no pass of the whole is recorded: a red one would let nothing land. It joins when it has passed (`PROVED` in `tools/night.py`)"
# Other parts that never take a turn, and why. Together with those that PROVED lacks they are the table of docs/ci.md.
WITHOUT_TURN = {
    "demo-ranks": "up to 17 minutes; its layout is among `ranks-...`, with the quick demo",
    "demo-drafts": "up to 15 minutes; its form of five steps is in every run (`script/demo`)",
    "recipe-agent": "up to half an hour; `recipe` makes the other model",
    "kills": "as long as it is given, here 13 minutes",
    "regions": "needs root and TUN",
    "give-way": "up to 15 minutes, which is long for a turn",
    "drafts-million": "as long as a million of each takes; fewer of them are in every run",
    **{f"clients-{suite}": "up to 40 minutes; some of their tests are in every run (`test_over_processes.py` of both)" for suite in ("openai", "training")},
    "slow-ranks": "up to 45 minutes; their shorter forms are in every run",
    "slurm": "needs root, network namespaces and Slurm's daemons",
    **{f"cuda-{a}": "`.ci/run` compiles GPU code for one architecture each time anyway, by turns of its own" for a in ARCHITECTURES},
}

# Of the test programs, whose tests are of bits and not of shares, times or numbers of pieces. Run with giving way at every boundary.
GIVE_WAY = ("unit/test_kernels/*", "unit/test_model/*", "unit/test_engine/*", "unit/test_train/*", "unit/test_trained/*", "unit/test_parity/*", "unit/test_system/*",
            "unit/test_host/GiveWay*", "unit/test_host/Resting*")
# Tests of guesses ahead that count tokens or draws, a million of them with LOCKSTEP_SLOW_TESTS=1.
MILLIONS = ("unit/test_engine/Drafts.AHundredThousandTokens*", "unit/test_engine/MtpDrafts.ManyTokens*", "unit/test_engine/Verify.*", "unit/test_engine/Rejection.*")


@dataclass(frozen=True)
class Part:
    name: str
    minutes: int  # after which it is ended and has failed
    kind: str  # which function below runs it
    argument: str
    what: str
    by_name: bool = False  # a night does not run it: whoever names it does
    spare: bool = False  # a night runs it last, where its limit fits into the time that is left
    build_minutes: int = 0  # more for the first part of a program, which builds it
    shard: tuple = (0, 1)  # which part of the program's tests, of how many
    why_no_turn: str = ""  # empty: .ci/run takes it by turns
    may_lack: bool = False  # status 3 says that the machine lacks what it needs: skipped


def parts_of(program, made):
    tool, _, over = program.partition("-")
    what = f"{'ThreadSanitizer' if tool == 'tsan' else 'AddressSanitizer'} over " + (f"every fourth kernel, from the {int(over[8:]) + 1}." if over.startswith("kernels-") else f"src/{over}")
    for shard in range(made.shards):
        rest, told = (f"-{shard}", f", the {shard + 1}. of {made.shards} shards of its tests") if made.shards > 1 else ("", "")
        yield Part(f"{program}{rest}", made.run, "program", program.replace("-", "_"), f"{what}{told}", build_minutes=made.build, shard=(shard, made.shards),
                   why_no_turn="" if program in PROVED else UNPROVED)  # fmt: skip


def plain(name, minutes, kind, argument, what, by_name=False, spare=False, may_lack=False):
    unproved = UNPROVED if may_lack and name not in PROVED else ""
    return Part(name, minutes, kind, argument, what, by_name, spare, why_no_turn=WITHOUT_TURN.get(name, unproved), may_lack=may_lack)


PARTS = [
    plain("demo", 6, "demo", "", "the full demo, whose weights have the published hash"),
    plain("demo-ranks", 17, "demo", "--ranks tp=2,dp=2,ep=2", "the same on eight ranks", spare=True),
    plain("demo-drafts", 15, "demo", "--arms lockstep --rollout-speculation siblings,mtp,ngram --mtp-depths 3", "150 steps whose rollouts are guessed ahead by a layer that learns on line", spare=True),
    plain("recipe", 12, "command", "/usr/bin/python3 -B tools/republish --check", "the shipped model from its recipe, byte for byte"),
    plain("recipe-agent", 30, "command", "/usr/bin/python3 -B tools/republish --check --model agent-glm", "the other shipped model from its recipe, byte for byte", spare=True),
    plain("soak", 6, "command", "/usr/bin/python3 -B bench/soak.py --minutes 5", "a server that everybody uses at once, for five minutes"),
    plain("kills", 15, "command", ".oracle/bin/python -B bench/weight_kills.py --minutes 13", "kills of publishers, mirrors and followers, a thousand where the time is enough", by_name=True),
    plain("regions", 4, "command", "/usr/bin/python3 -B bench/regions.py", "a fleet in three network namespaces on wires that lose packets (root and TUN)", by_name=True, may_lack=True),
    plain("regions-short", 2, "command", "/usr/bin/python3 -B bench/regions.py --short", "the same with fewer steps on faster wires", may_lack=True),
    *[plain(f"ranks-{layout.replace('=', '').replace(',', '-')}", 1, "demo", f"--quick --ranks {layout}", f"the quick demo under {layout}") for layout in LAYOUTS],
    plain("drafts-million", 90, "long", "", "answers with guesses ahead beside those without, and draws of rejection sampling, a million of each", by_name=True),
    plain("give-way", 15, "everywhere", "", "tests of bits, parity and the quick demo while work gives way at every boundary, in drawn turns", spare=True),
    plain("clients-openai", 25, "clients", "api", "the tests of tests/api against servers over two processes", spare=True),
    plain("clients-training", 40, "clients", "training", "those of tests/training against training servers over two processes", spare=True),
    plain("slow-ranks", 45, "slow", "script/rank_troubles script/mpi_serve unit/test_train/RankFamilies", "tests of ranks with LOCKSTEP_SLOW_TESTS=1: 200 troubles, more layouts", spare=True),
    plain("slurm", 15, "command", "/usr/bin/python3 -B tools/slurm_trial.py", "the batch scripts of recipes/slurm on Slurm's own daemons, preempted and queued again", by_name=True, may_lack=True),
    *[part for program, made in SANITIZED.items() for part in parts_of(program, made)],
    *[plain(f"cuda-{a}", 3, "cuda", a, f"GPU code for compute capability {a}, by nvcc", by_name=True) for a in ARCHITECTURES],
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
        self.built = set()  # programs of which a part ran before

    def minutes(self, part):
        return part.minutes + (0 if part.argument in self.built else part.build_minutes)

    def run(self, part, tally):
        """Seconds, when it passed."""
        minutes = self.minutes(part)
        self.checks.say(f"night: {part.name}, {part.what} (at most {minutes} minutes; ./check --night {part.name} repeats it)")
        begin, failures = time.monotonic(), len(tally.failures)
        getattr(self, part.kind)(part, tally, {**self.environment, **ENVIRONMENT.get(part.kind, {})}, begin + 60 * minutes)
        seconds = time.monotonic() - begin
        self.built.add(part.argument)
        return seconds if len(tally.failures) == failures else None

    def watched(self, part, tally, command, environment, end):
        status, output, seconds = self.checks.run_watched(f"night/{part.name}", command, environment, max(1, end - time.monotonic()))
        if status == LACKING and part.may_lack:
            tally.add_skip(f"night/{part.name}", output.strip().rpartition("\n")[2])
        elif status != 0:
            tally.show_tail(output)
            tally.add_failure(f"night/{part.name}", self.checks.how_it_ended(status, 60 * self.minutes(part)))
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

    def clients(self, part, tally, environment, end):
        """The tests of a folder whose servers can be run over processes, and how many cannot (tests/over_processes.txt)."""
        if lacking := over_processes.lacking(environment["LOCKSTEP_BINARY"]):
            return tally.add_skip(f"night/{part.name}", lacking)
        names = [name for name in self.checks.oracle_names() if name.startswith(f"{part.argument}/")]
        wanted, out = over_processes.run_over_processes(names, over_processes.left_out())
        self.checks.say(f"night: {len(wanted)} tests over two processes; {len(out)} are left out, with reasons in tests/over_processes.txt")
        over = {**environment, "LOCKSTEP_BINARY": str(over_processes.wrapped(environment["LOCKSTEP_BINARY"]))}
        self.checks.run_oracle(tally, [], over, max(1, end - time.monotonic()) / 2, f"night/{part.name}", wanted)  # it takes twice that as its limit

    def slow(self, part, tally, environment, end):
        """Scripts, and tests of programs by a part of their names, in their long forms."""
        environment = {**environment, "LOCKSTEP_SLOW_TESTS": "1"}
        for name in part.argument.split():
            group, own, *tests = name.split("/")
            left = max(1, end - time.monotonic())
            if group == "script":
                self.checks.run_script(ROOT / f"tests/check.d/{own}.sh", tally, environment, left)
            else:
                self.checks.run_unit(self.build / own, tally, tests, environment, left)

    def everywhere(self, part, tally, environment, end):
        """Runs tests with LOCKSTEP_GIVE_WAY (src/base/give_way_everywhere.h); its seed repeats the drawn boundaries, as far as threads do."""
        environment = {**environment, "LOCKSTEP_GIVE_WAY": os.environ.get("LOCKSTEP_GIVE_WAY") or str(int(time.time()))}
        self.checks.say(f"night: LOCKSTEP_GIVE_WAY={environment['LOCKSTEP_GIVE_WAY']} repeats it")
        for name in dict.fromkeys(pattern.split("/")[1] for pattern in GIVE_WAY):
            self.checks.run_unit(self.build / name, tally, list(GIVE_WAY), environment, max(1, end - time.monotonic()))
        program = str(Path(environment["LOCKSTEP_BINARY"]).with_name("lockstep_faults"))
        self.watched(part, tally, [program, "parity", "--model", "models/countdown-glm", "--fuzz", "20"], environment, end)
        self.demo(Part(part.name, part.minutes, part.kind, "--quick", part.what), tally, {**environment, "LOCKSTEP_BINARY": program}, end)

    def long(self, part, tally, environment, end):
        """Runs tests in their long form."""
        for name in dict.fromkeys(pattern.split("/")[1] for pattern in MILLIONS):
            self.checks.run_unit(self.build / name, tally, list(MILLIONS), {**environment, "LOCKSTEP_SLOW_TESTS": "1"}, max(1, end - time.monotonic()))

    def program(self, part, tally, environment, end):
        """Builds a program of cmake/Night.cmake, and runs its tests, or a shard of them, as checks of their own."""
        if self.watched(part, tally, ["./setup", f"--target={part.argument}"], environment, end)[0]:
            self.checks.run_unit(self.build / part.argument, tally, [], environment, max(1, end - time.monotonic()), part.shard)

    def cuda(self, part, tally, environment, end):
        if not any(os.access(Path(folder) / "nvcc", os.X_OK) for folder in [*os.environ.get("PATH", "").split(":"), "/usr/local/cuda/bin"]):
            return tally.add_skip(f"night/{part.name}", "no nvcc")
        if self.watched(part, tally, ["./setup", f"--cuda-objects={part.argument}"], environment, end)[0]:
            tally.add_pass()


def whose_turn(parts, number, short):
    """The part of that turn: of those that take turns a long one where the number is even, else, or where only a short one has the time, a short one."""
    short = short or number % 2 == 1
    turns = [part for part in parts if not part.why_no_turn and (part.minutes + part.build_minutes <= SHORT_MINUTES) == short]
    at = number // 2 % len(turns)
    return turns[at], f"night: turn {number}, so it is that of part {at + 1} of {len(turns)} {'short' if short else 'long'} ones"


def named(word, parts):
    """The parts that a word names: one, those that a pattern fits, or all shards of a program."""
    found = [part for part in parts if fnmatch.fnmatchcase(part.name, word) or part.shard[1] > 1 and part.name.rpartition("-")[0] == word]
    if not found:
        raise SystemExit(f"check: --night has no part '{word}'; it has next, short, list, {', '.join(part.name for part in parts)}")
    return found


def run(words, runner, tally, say, parts=PARTS, file=None, tree_name=None, number=None):
    """Runs the parts of `./check --night WORDS`: all that have not passed with this tree, `next`, `short`, or those named."""
    if words == ["list"]:
        for part in parts:
            say(f"{part.name:18} {part.minutes + part.build_minutes:3} min  {part.what}{' (no turn in .ci/run)' if part.why_no_turn else ''}{' (where time is left)' if part.spare else ''}")
        return
    if words in (["next"], ["short"]):
        if number is None and not was_raised(turn()):
            say("night: .ci/turn was not raised in the last commit; unless it was in one before, the last landing's parts run again")
        part, told = whose_turn(parts, turn() if number is None else number, short=words == ["short"])
        say(told)
        runner.run(part, tally)
        return
    if words:
        for part in dict.fromkeys(part for word in words for part in named(word, parts)):
            runner.run(part, tally)
        return
    a_night(parts, runner, tally, say, Progress(file or ROOT / "build/night.json", tree_name or tree()), turn() if number is None else number)


def a_night(parts, runner, tally, say, progress, number):
    """Its own parts, whose limits fit into it, and then those that it has time for, of which each is the first one in turn."""
    end = time.monotonic() + 60 * MOST_MINUTES
    own, spare = ([part for part in parts if not part.by_name and part.spare == s] for s in (False, True))
    at = number % max(1, len(spare))
    for part in own + spare[at:] + spare[:at]:
        left = (end - time.monotonic()) / 60
        if part.name in progress.passed:
            say(f"night: {part.name} passed before with this tree ({progress.passed[part.name]:.0f} s)")
            tally.add_pass()
        elif part.spare and runner.minutes(part) > left:
            say(f"night: no time for {part.name}: it may take {runner.minutes(part)} minutes, and {left:.0f} of {MOST_MINUTES} are left")
        elif (seconds := runner.run(part, tally)) is not None:
            progress.add(part.name, seconds)
    if all(part.name in progress.passed for part in own):
        say(f"night: all {len(own)} parts passed ({sum(progress.passed.values()) / 60:.0f} minutes); the next one begins anew")
        progress.forget()


def told(names, parts=PARTS):
    """Parts as docs/ci.md names them: those of one family that are all among them as `family-...`."""
    names, words = set(names), []
    for part in parts:
        family = next((f for f in ("ranks-", "cuda-", "asan-kernels-", f"{part.name.rpartition('-')[0]}-" if part.shard[1] > 1 else "") if f and part.name.startswith(f)), "")
        whole = family and all(p.name in names for p in parts if p.name.startswith(family))
        if part.name in names:
            words.append(f"`{family}...`" if whole else f"`{part.name}`")
    return ", ".join(dict.fromkeys(words))


def page():
    """What docs/ci.md says of the parts that take turns, and its table of those that do not, with the reason of each."""
    short, long = ([p.name for p in PARTS if not p.why_no_turn and (p.minutes + p.build_minutes <= SHORT_MINUTES) == s] for s in (True, False))
    reasons = dict.fromkeys(part.why_no_turn for part in PARTS if part.why_no_turn)
    rows = [(reason, [p for p in PARTS if p.why_no_turn == reason]) for reason in reasons]
    return "\n".join([
        f"By turns: {told(long)}; and of a minute at most {told(short)}.", "",
        "| parts without a turn | why | what runs them |", "|---|---|---|",
        *(f"| {told(p.name for p in own)} | {reason} | {'whoever names them' if own[0].by_name else 'a night with time left' if own[0].spare else 'a night'} |" for reason, own in rows),
    ])  # fmt: skip
