"""`lockstep launch`: a run that loses a process, a host or is told to stop goes on by itself, and ends with the bits of one that nobody disturbed.

Hosts are this machine, and two network namespaces with names of their own, which a remote shell of this file enters; one loses its link in the middle of a step.
What is waited for is one line of the launcher's record, in which that stands which is then asserted. The batch scripts of recipes/slurm are read by a shell,
and the commands in them by the program's own options.
"""
import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time

from harness import BINARY, BUILD, ROOT, TMP, check, done, finish, refused, sft_arguments, start, Skip
from processes import ENVIRONMENT, LONG, needs_mpi, pids_of

sys.path.insert(0, str(ROOT / "tools"))
from two_hosts import NoHosts, mpirun_between  # noqa: E402
from two_hosts import two_hosts as namespaces  # noqa: E402

RUNS = TMP / "runs"
RECIPES = ROOT / "recipes/slurm"
MPI = {k: v for k, v in ENVIRONMENT.items() if k.startswith("OMPI_") and k != "OMPI_MCA_plm"}  # hosts are started here
SETTINGS = {"steps": 24, "checkpoint_every": 3, "threads": 2}


def run_words(name, **settings):
    return sft_arguments(name, RUNS, **{**SETTINGS, **settings})


def launched(name, *options, run=(), **settings):
    """A launch in the background, and its record."""
    return start("launch", *options, "--", *run_words(name, **settings), *run, env=MPI, start_new_session=True), RUNS / name / "launch.jsonl"


def events(record):
    return [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []


def wait_for(launch, record, event, **fields):
    """The first event of that name with these fields: it is there, or the launch has ended without it."""
    until = time.monotonic() + LONG
    while True:
        over = launch.poll() is not None
        for one in events(record):
            if one["event"] == event and all(one[k] == v for k, v in fields.items()):
                return one
        assert not over and time.monotonic() < until, f"no event {event} {fields}: {events(record)}\n{finish(launch)}"
        time.sleep(0.02)


def processes_of(launch):
    """Those of its mpirun, by number. On other hosts they are children of that host's daemon."""
    children = subprocess.run(["pgrep", "-P", str(launch.pid), "-x", "mpirun"], capture_output=True, text=True).stdout.split()
    return pids_of(int(children[0])) if children else {}


def disturbed(name, *options, disturb, **more):
    """A launch that lost something by disturb(launch), called when it has a checkpoint, and its record. One that was over before that is begun again."""
    for number in range(5):
        launch, record = launched(f"{name}-{number}", *options, **more)
        wait_for(launch, record, "step")
        while launch.poll() is None and not (record.parent / "checkpoints/latest").exists():
            time.sleep(0.02)
        with contextlib.suppress(ProcessLookupError):
            disturb(launch)
        while launch.poll() is None and not any(one["event"] == "loss" for one in events(record)):
            time.sleep(0.02)
        if any(one["event"] == "loss" for one in events(record)):
            return launch, record
        ended_well(launch, name)
    raise AssertionError(f"{name}: five runs were over before they were disturbed")


def kill(process, killed):
    """Of a launch: kills its process of that number, and notes which and when."""

    def disturb(launch):
        pids = processes_of(launch)
        if process not in pids:
            raise ProcessLookupError
        os.kill(pids[process], signal.SIGKILL)
        killed.update(pid=pids[process], at=time.time())

    return disturb


def ended_well(launch, name):
    outcome = finish(launch)
    assert outcome.returncode == 0, f"status {outcome.returncode}\n{outcome}"
    assert outcome.json()["weights_sha256"] == expected(), f"{name} has other weights\n{outcome}"
    return outcome


undisturbed = []


def expected():
    if not undisturbed:
        undisturbed.append(done(*run_words("undisturbed")).json()["weights_sha256"])
    return undisturbed[0]


with check("dry-run"):
    outcome = done("launch", "--hosts", "a:2,b:2", "--device", "h200", "--dry-run", "--", *run_words("dry"))
    assert "hosts    a:2,b:2\n" in outcome.stdout and "4 processes: the shortest step of" in outcome.stdout, outcome
    for rest in ("without a: ", "without b: ", "--host a:2,b:2 -n 4 ", "--host b:2 -n 2 ", "--transport mpi --ranks "):
        assert rest in outcome.stdout, (rest, outcome)
    held = done("launch", "--hosts", "a:2,b:2", "--ranks", "tp=2", "--dry-run", "--", *run_words("dry"))
    assert "layout   tp=2,dp=1,ep=1, 2 processes\n" in held.stdout and "unused   2 of 4 slots" in held.stdout and held.stdout.count("--ranks tp=2,dp=1,ep=1") == 3, held
    long = done("launch", "--hosts", "a:2,b:2", "--device", "h200", "--length", 64, "--dry-run", "--", *run_words("dry")).stdout
    assert "8 sequences of 64 tokens" in long and "8 sequences of 512 tokens" in outcome.stdout, (long, outcome)
    net = lambda gigabits: done("launch", "--hosts", "a,b", "--device", "h200", "--network-gigabits", gigabits, "--length", 64, "--dry-run", "--", *run_words("dry")).stdout  # noqa: E731
    fast, slow = (float(re.search(r" to (\S+) s computed", net(gigabits))[1]) for gigabits in (1000, 0.001))
    assert slow > 10 * fast, (slow, fast)
    hosts = TMP / "hosts"
    hosts.write_text("a slots=2\nb:2  # new\n")
    assert done("launch", "--hosts-file", hosts, "--device", "h200", "--dry-run", "--", *run_words("dry")).stdout == outcome.stdout
    assert not (RUNS / "dry").exists(), "a dry run began one"

with check("refused"):
    run = run_words("none")
    refused("launch", "--", *run, status=2, words=["exactly one of --hosts and --hosts-file"])
    refused("launch", "--hosts", "a", status=2, words=["-- train KIND"])
    refused("launch", "--hosts", "a", "--", "serve", "--model", "x", status=2, words=["'serve --model'", "allowed is train KIND"])
    refused("launch", "--hosts", "a", "--", "train", "sft", "--modle", "x", status=2, words=["--modle", "--model"])
    refused("launch", "--hosts", "a:0", "--", *run, status=1, words=["'a'", "'0' slots", "1 to 64"])
    refused("launch", "--hosts", "-x", "--", *run, status=1, words=["'-x' is no host"])
    refused("launch", "--hosts", "a", "--ranks", "tp=2", "--", *run, "--ranks", "dp=2", status=2, words=["tp=2", "dp=2", "one of them"])
    refused("launch", "--hosts", "localhost", "--ranks", "tp=2", "--mpirun", TMP / "nowhere", "--", *run, status=1, words=["nowhere"])
    refused("launch", "--hosts", "localhost", "--ranks", "tp=2", "--", *run, "--resume", status=1, words=["no run", "--resume-if-there"])

with check("hosts-that-do-not-answer"):
    told = TMP / "told.jsonl"
    outcome = refused("launch", "--quiet", "--log-file", told, "--hosts", "far:2", "--agent", "false", "--ranks", "tp=2", "--restarts", 2, "--back-off", 0, "--", *run_words("far"), status=1,
            words=["3 losses in a row", "allowed are 2", "host far was lost", "no host answers"])  # fmt: skip
    assert len(outcome.stderr.splitlines()) == 1, outcome
    assert [(one["event"], one.get("host")) for one in events(told)] == [("silent", "far"), ("wait", None), ("wait", None), ("end", None)], events(told)
    assert events(told)[-1]["error"] in outcome.stderr, events(told)

for lost in (1, 0):
    with check(f"killed-process-{lost}"):
        needs_mpi()
        name, killed = f"killed-{lost}", {}
        planned = done("launch", "--hosts", "localhost:2", "--device", "h200", "--dry-run", "--", *run_words(name)).stdout
        launch, record = disturbed(name, "--hosts", "localhost:2", "--device", "h200", "--take-back", "3600", disturb=kill(lost, killed))
        ended_well(launch, name)
        assert [one["event"] for one in events(record)] == ["start", "step", "loss", "wait", "start", "step", "end"], events(record)
        first, _, loss, _, again, step, end = events(record)
        assert (first["processes"], first["resume"]) == (2, False) and first["ranks"] in planned, (first, planned)
        assert loss["saved_step"] >= SETTINGS["checkpoint_every"] and (loss["process"], loss["host"]) == (lost, "localhost") and f"pid {killed['pid']}) ended without a word" in loss["words"], loss
        assert (again["processes"], again["ranks"], again["resume"], again["step"]) == (1, "tp=1,dp=1,ep=1", True, loss["saved_step"]), again
        assert again["hosts"] == [{"name": "localhost", "slots": 1}] and (end["starts"], end["losses"], end["status"]) == (2, 1, 0), (again, end)
        lines = [json.loads(line) for line in (record.parent / "metrics.jsonl").read_text().splitlines()]
        assert all(line["launch_start"] == (1 if line["step"] <= loss["saved_step"] else 2) for line in lines), lines
        assert all(line.get("ranks_layout") == (first["ranks"] if line["launch_start"] == 1 else None) for line in lines), lines  # of one rank nothing
        named, seconds = loss["time"] - killed["at"], step["time"] - killed["at"]
        print(f"  from SIGKILL to the next optimizer step: {seconds:.2f} s, named after {named:.2f} s", flush=True)
        assert named < 2 and seconds < 10, events(record)

with check("taken-back-at-a-checkpoint"):
    needs_mpi()
    launch, record = disturbed("back", "--hosts", "localhost:2", "--ranks", "tp=2", "--take-back", "0", "--mpirun-word=--tag-output", disturb=kill(1, {}), steps=100000)
    third = wait_for(launch, record, "start", start=3)
    back = next(one for one in events(record) if one["event"] == "take_back")
    assert back["hosts"] == ["localhost"] and third["processes"] == 2 and third["step"] == back["step"] > 0 and third["ranks"] == "tp=2,dp=1,ep=1", events(record)
    launch.send_signal(signal.SIGTERM)
    outcome = finish(launch)
    assert outcome.returncode == 143 and "--resume-if-there" in outcome.stderr and "[1,0]<stderr>:" in outcome.stderr, outcome

with check("stopped-and-gone-on-with"):
    needs_mpi()
    options = ("--hosts", "localhost:2", "--ranks", "dp=2", "--resume-if-there", "--save-seconds", "100")
    for number in range(5):  # one that is over before it is stopped is begun again
        name = f"stopped-{number}"
        launch, record = launched(name, *options)
        wait_for(launch, record, "step")
        launch.send_signal(signal.SIGTERM)
        outcome = finish(launch)
        end = events(record)[-1]
        if end["saved_step"] < SETTINGS["steps"]:
            break
    assert outcome.returncode == 143 and end["event"] == "end" and end["stopped"] and 0 < end["saved_step"] < SETTINGS["steps"], (outcome, end)
    refused("launch", "--hosts", "localhost:2", "--ranks", "dp=2", "--", *run_words(name), status=1, words=["exists", "--resume-if-there"])
    launch, record = launched(name, "--hosts", "localhost:1", "--ranks", "tp=2", "--resume-if-there")  # elsewhere, and laid out otherwise
    ended_well(launch, name)
    again = [one for one in events(record) if one["event"] == "start"][-1]
    assert again["resume"] and again["step"] == end["saved_step"], events(record)

with check("an-error-of-the-runs-own-ends-it"):
    needs_mpi()
    launch, record = launched("wrong", "--hosts", "localhost:2", "--ranks", "dp=2", environment="nothing")
    outcome = finish(launch)
    assert outcome.returncode == 1 and len(outcome.errors) == 1 and "nothing" in outcome.errors[0] and "start 2" not in outcome.stderr and "start 1" in outcome.stderr, outcome


# --- hosts -----------------------------------------------------------------------------------------------------------
@contextlib.contextmanager
def two_hosts():
    """Namespaces with links to this machine, for the time of the check."""
    try:
        with namespaces(TMP) as hosts:
            yield hosts
    except NoHosts as none:
        raise Skip(str(none)) from None


def doctor_between(hosts, *words):
    """`doctor --ranks` with a process on each of the two hosts."""
    line = mpirun_between(hosts, [BINARY, "doctor", "--ranks", "--transport", "mpi", "--threads", "1", *words])
    ended = subprocess.run(line, cwd=ROOT, env={**os.environ, **MPI}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LONG)
    return ended.returncode, ended.stdout, ended.stderr


with check("doctor-between-two-hosts"):
    # What it says of a link is what the link has: a rate that is set on it is measured, each way apart.
    needs_mpi()
    with two_hosts() as hosts:
        status, said, errors = doctor_between(hosts, "--json")
        assert status == 0, (status, said, errors)
        told = json.loads(said.splitlines()[-1])
        assert told["fit"] and [one["host"] for one in told["ranks"]] == ["na", "nb"] and len(told["links"]) == 1, told
        limit = 25e6  # bytes a second, of what na sends
        try:
            hosts.limit("200mbit", ["na"])
        except NoHosts as none:
            print(f"  {none}", flush=True)
        else:
            status, said, errors = doctor_between(hosts, "--json")
            [link] = json.loads(said.splitlines()[-1])["links"]
            print(f"  at 25 MB/s there: {link['bytes_per_second'] / 1e6:.1f} MB/s, back {link['bytes_per_second_back'] / 1e6:.1f} MB/s", flush=True)
            assert 0.6 * limit < link["bytes_per_second"] < 1.1 * limit and link["bytes_per_second_back"] > 2 * limit, link
            status, said, errors = doctor_between(hosts)
            assert status == 0 and "warning  links      between rank 0 (process 0, host na) and rank 1 (process 1, host nb): large messages " in said, (said, errors)

with check("steps-over-a-link-that-loses-packets"):
    # What ranks exchange goes by a wire with delay, jitter, loss and packets that overtake others: the bits of one rank.
    needs_mpi()
    with two_hosts() as hosts:
        alone = done(*run_words("lossless", steps=4)).json()["weights_sha256"]
        for ranks in ("dp=2", "tp=2"):
            try:
                with hosts.wire(BUILD / "wire", delay_ms=1, jitter_ms=0.5, loss=0.01, reorder=0.005) as (device, told):
                    name = f"lossy-{ranks[:2]}"
                    line = mpirun_between(hosts, ["--mca", "btl_tcp_if_include", device, BINARY, *run_words(name, steps=4, transport="mpi", ranks=ranks)])
                    ended = subprocess.run(line, cwd=ROOT, env={**os.environ, **MPI}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LONG)
            except NoHosts as none:
                raise Skip(str(none)) from None
            assert ended.returncode == 0, (ranks, ended)
            assert json.loads(ended.stdout.splitlines()[-1])["weights_sha256"] == alone, (ranks, ended.stdout)
            assert told["lost"] > 0 and told["bytes"] > 1 << 18, (ranks, told)
            print(f"  {ranks}: {told['lost']} of {told['packets']} packets were lost, {told['reordered']} came before others", flush=True)

with check("a-host-whose-link-is-cut"):
    needs_mpi()
    with two_hosts() as hosts:
        launch, record = launched("cut", "--hosts", "na,nb", "--agent", hosts.agent, "--ranks", "tp=2", run=("--rank-timeout", "2"))
        wait_for(launch, record, "step")
        hosts.cut("nb")
        at = time.time()
        loss = wait_for(launch, record, "loss")
        assert (loss["process"], loss["host"], loss["silent_hosts"]) == (1, "nb", ["nb"]) and "is silent for 2 s" in loss["words"], loss
        again = wait_for(launch, record, "start", start=2)
        assert again["hosts"] == [{"name": "na", "slots": 1}] and again["ranks"] == "tp=2,dp=1,ep=1", again
        ended_well(launch, "cut")
        print(f"  from the cut to the next optimizer step: {[one for one in events(record) if one['event'] == 'step'][-1]['time'] - at:.1f} s", flush=True)


# --- batch scripts ---------------------------------------------------------------------------------------------------
def commands_in(script):
    """The program's commands of a batch script, each as words: continued lines joined, shell variables as their names."""
    text = re.sub(r"\\\n", " ", script.read_text())
    for line in text.splitlines():
        line = line.strip().removeprefix("exec ")
        if line.startswith('"$LOCKSTEP" '):
            line = line.removesuffix("&")
            yield [re.sub(r"\$\{?(\w+)\}?", r"\1", word) for word in shlex.split(line)][1:]


with check("batch-scripts"):
    scripts = sorted(RECIPES.glob("*.sbatch"))
    assert len(scripts) >= 2, scripts
    for script in [*scripts, RECIPES / "srun_agent.sh"]:
        syntax = subprocess.run(["bash", "-n", script], capture_output=True, text=True)
        assert syntax.returncode == 0 and not syntax.stderr, (script.name, syntax.stderr)
        if script not in scripts:
            continue
        commands = list(commands_in(script))
        assert commands, f"{script.name} starts nothing of ours"
        for words in commands:
            assert words[0] == "launch" and "--resume-if-there" in words, (script.name, words)
            words = [TMP / "hosts" if words[i - 1] == "--hosts-file" else word for i, word in enumerate(words)]
            rates = [] if "--ranks" in words else ["--device", "h200"]  # this machine's would be measured
            outcome = done(words[0], "--dry-run", *rates, *words[1:], "--runs", RUNS)
            assert "\ncommand  mpirun " in outcome.stdout, (script.name, outcome)
