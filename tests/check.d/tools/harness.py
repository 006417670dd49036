"""What the checks of this folder share: the program under test, its scratch folder, and lines that tools/run_checks.py reads.

    from harness import check, lockstep
    with check("version"): assert lockstep("--version").returncode == 0
"""
import atexit
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

ROOT = Path(os.environ.get("LOCKSTEP_ROOT") or Path(__file__).resolve().parents[3])
BUILD = Path(os.environ.get("LOCKSTEP_BUILD") or ROOT / "build")
BINARY = Path(os.environ.get("LOCKSTEP_BINARY") or BUILD / "lockstep")
FAULTS = ("LOCKSTEP_KILL_AT", "LOCKSTEP_FAIL_AT", "LOCKSTEP_GIVE_WAY")  # variables that build/lockstep_faults heeds, which is otherwise the same program
MODEL = ROOT / "models/countdown-glm"
AGENT = ROOT / "models/agent-glm"
RL_RECIPE = "recipes/countdown_rl.toml"

if "LOCKSTEP_TMP" in os.environ:
    TMP = Path(os.environ["LOCKSTEP_TMP"])
else:  # run by hand
    TMP = Path(tempfile.mkdtemp(prefix="lockstep-check-"))
    atexit.register(shutil.rmtree, TMP, ignore_errors=True)


class Skip(Exception):
    """Raised in a check that this machine cannot run; tests/skips.txt says which reasons are allowed."""


@contextlib.contextmanager
def check(name):
    """One check: a PASS, FAIL or SKIP line. What went wrong stands above it; the next check runs all the same."""
    try:
        yield
    except Skip as reason:
        print(f"SKIP {name} {reason}", flush=True)
    except Exception as error:  # noqa: BLE001 whatever it is, it is this check's failure
        if not isinstance(error, AssertionError):
            traceback.print_exc(file=sys.stdout)
        first, *rest = str(error).splitlines() or [type(error).__name__]
        for line in rest:
            print(f"  {line}")
        if told := [line.strip() for line in rest if "error: " in line]:  # what the program itself said
            first += f" ({told[-1]})"
        print(f"FAIL {name} {first}", flush=True)
    else:
        print(f"PASS {name}", flush=True)


class Outcome:
    """How a run of the program ended."""

    def __init__(self, arguments, returncode, stdout, stderr):
        self.arguments, self.returncode, self.stdout, self.stderr = arguments, returncode, stdout, stderr

    @property
    def errors(self):
        return [line for line in self.stderr.splitlines() if line.startswith("error: ")]

    def json(self):
        return json.loads(self.stdout.splitlines()[-1])

    def __str__(self):
        return (f"lockstep {' '.join(map(str, self.arguments))}: status {self.returncode}\n"
                f"stdout: {self.stdout[-2000:]}\nstderr: {self.stderr[-2000:]}")


def _environment(extra):
    environment = {k: v for k, v in os.environ.items() if k not in FAULTS}
    environment["ASAN_OPTIONS"] = "detect_leaks=0"
    environment.update(extra or {})
    return environment


def start(*arguments, env=None, program=None, **options):
    """The program in the background (with faults in env, the one that heeds them; or the one named): a Popen whose outputs are files' contents, to be ended by finish()."""
    out, err = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+", errors="replace")
    program = BINARY.with_name("lockstep_faults") if program is None and any(name in FAULTS for name in env or ()) else program or BINARY
    process = subprocess.Popen([program, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                               cwd=ROOT, env=_environment(env), **options)
    process.outputs, process.words = (out, err), arguments
    return process


def finish(process, timeout=300):
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise AssertionError(f"lockstep {' '.join(map(str, process.words))}: no end after {timeout} s") from None
    texts = []
    for file in process.outputs:
        file.seek(0)
        texts.append(file.read())
        file.close()
    return Outcome(process.words, process.returncode, *texts)


def lockstep(*arguments, env=None, timeout=300, **options):
    return finish(start(*arguments, env=env, **options), timeout)


def done(*arguments, **options):
    """The same, and it must succeed."""
    outcome = lockstep(*arguments, **options)
    assert outcome.returncode == 0, f"status {outcome.returncode}\n{outcome}"
    return outcome


def refused(*arguments, status, words, **options):
    """The same, and it must end with that status and one line on stderr that holds all of the words."""
    outcome = lockstep(*arguments, **options)
    assert outcome.returncode == status, f"status {outcome.returncode}, not {status}\n{outcome}"
    assert len(outcome.errors) == 1, f"{len(outcome.errors)} error lines, not 1\n{outcome}"
    for word in words:
        assert word in outcome.errors[0], f"the error does not name '{word}'\n{outcome}"
    return outcome


def version_lines():
    return done("--version").stdout.splitlines()


def instruction_sets():
    """What this machine can run, narrowest first; the program says which is the widest."""
    widest = next(line for line in version_lines() if line.startswith("instruction set ")).split()[2].rstrip(",")
    known = ["scalar", "avx2", "avx512"]
    return known[: known.index(widest) + 1]


def sft_arguments(name, runs, **settings):
    """A run of a few small steps from random weights: dense attention first, then the indexer learns, then sparse."""
    values = {"batch": 8, "steps": 3, "warmup": 0, "index_from": 1, "sparse_from": 2, "checkpoint_every": 0,
              "init_deviation": 0.1, "seed": 5, "name": name, "runs": runs, **settings}
    words = ["train", "sft", "--config", "recipes/countdown_sft.toml", "--quiet", "--json"]
    for key, value in values.items():
        words += ["--set", f"{key}={value}"]
    return words


def rl_arguments(name, runs, **settings):
    """A run of a few steps of 32 rollouts from the shipped model."""
    values = {"steps": 2, "problems": 4, "rollouts": 8, "warmup": 0, "checkpoint_every": 0, "name": name, "runs": runs,
              **settings}
    words = ["train", "rl", "--config", RL_RECIPE, "--json"]
    for key, value in values.items():
        words += ["--set", f"{key}={value}"]
    return words


def metrics(run):
    """metrics.jsonl without what time decides, and what the ranks of a layout exchanged."""
    rows = [json.loads(line) for line in (Path(run) / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if not k.endswith("seconds") and k != "tokens_per_second" and not k.startswith("ranks_")} for row in rows]


def transcripts(run):
    """What people read of the rollouts: nothing in it is decided by time. None in a run without."""
    path = Path(run) / "transcripts.jsonl"
    return path.read_text().splitlines() if path.exists() else None


def last_checkpoint(run):
    """Its state.json: step, and the hash of masters and moments; of one that ranks wrote in shares, the sum that is the same in every layout."""
    checkpoints = Path(run) / "checkpoints"
    return json.loads((checkpoints / (checkpoints / "latest").read_text().strip() / "state.json").read_text())


def state(run):
    last = last_checkpoint(run)
    return {"state": last.get("state_sha256"), "state_sum": last.get("state_sum")}


def bits(run, outcome):
    """Everything of a finished run that must be the same wherever and however it ran."""
    return {"weights": outcome.json()["weights_sha256"], **state(run), "metrics": metrics(run), "transcripts": transcripts(run)}


def require_same(expected, found, what):
    """What one rank and what several write has no hash in common: the first ones in shares are those that later ones are compared with."""
    for key in ("state", "state_sum"):
        expected[key] = expected[key] or found[key]
    if expected == found:
        return
    for key in ("weights", "state", "state_sum"):
        assert expected[key] == found[key] or (key != "weights" and not found[key]), f"{what}: {key} hash {found[key]}, expected {expected[key]}"
    assert expected["transcripts"] == found["transcripts"], f"{what}: transcripts.jsonl differs"
    for a, b in zip(expected["metrics"], found["metrics"]):
        for key in a:
            assert a[key] == b.get(key), f"{what}: step {a['step']}: {key} is {b.get(key)!r}, expected {a[key]!r}"
    assert expected["metrics"] == found["metrics"], f"{what}: {len(found['metrics'])} steps in metrics.jsonl, expected {len(expected['metrics'])}"


signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that atexit runs
