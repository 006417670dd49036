#!/usr/bin/env python3
"""The batch scripts of recipes/slurm as Slurm runs them: munged, slurmctld and two slurmd in network namespaces, all of this script's own.

    python3 tools/slurm_trial.py [--only sft|rl] [--keep]

Each script is submitted as it stands. When its run has a checkpoint, a job of a partition of higher priority preempts it: the run saves, the job is queued
again, and goes on behind the other. The end has the bits of `lockstep train` with the same settings, which nobody disturbed: in one process, without
Slurm. One line a case. As the program (LOCKSTEP, which the scripts read) stands a script that makes the recipes shorter (SETTINGS) and changes nothing else.

As root, with Debian's slurmctld, slurmd, slurm-client, munge, openmpi-bin, iproute2. Exit status 3 where that is not to be had. Nothing of a Slurm that is
installed is touched: configuration, keys, ports and folders are of this run. --keep leaves the folder, with all logs; of a case that fails their ends are told.
"""
import argparse
import contextlib
import json
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from two_hosts import NAMES, NoHosts, two_hosts

ROOT = Path(__file__).resolve().parent.parent
BINARY = Path(os.environ.get("LOCKSTEP_BINARY", ROOT / "build/lockstep")).resolve()
CANNOT = 3
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scancel", "scontrol", "srun", "mpirun")
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
LONG = 300  # seconds for what takes a tenth of it
# Shorter than the recipes, long enough to be preempted in the middle (some tens of seconds of one process), with checkpoints that are there soon.
SETTINGS = {"sft": {"steps": 1500, "warmup": 45, "index_from": 375, "sparse_from": 600, "threads": 2}, "rl": {"steps": 100, "problems": 16, "threads": 2}}
CHECKPOINT_EVERY = {"sft": 50, "rl": 5}
GRACE = 60
# The scripts ask for 16 processors of a node, whatever this machine has (config_overrides). A preempted job may begin again when its credentials are over (cred_expire).
CONFIGURATION = """ClusterName=trial
SlurmctldHost={name}({net}.77.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=10
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
SlurmctldDebug=verbose
SlurmdDebug=verbose
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SlurmctldParameters=preempt_send_user_signal
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=3,sched_interval=3,batch_sched_delay=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
KillWait=30
InactiveLimit=0
MinJobAge=3600
MailProg=/bin/true
NodeName=na NodeHostname=na NodeAddr={net}.77.2 Port={ports[1]} CPUs=16 Boards=1 SocketsPerBoard=1 CoresPerSocket=16 ThreadsPerCore=1 State=UNKNOWN
NodeName=nb NodeHostname=nb NodeAddr={net}.77.3 Port={ports[2]} CPUs=16 Boards=1 SocketsPerBoard=1 CoresPerSocket=16 ThreadsPerCore=1 State=UNKNOWN
PartitionName=low Nodes=na,nb Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime={grace} MaxTime=INFINITE State=UP
PartitionName=high Nodes=na,nb PriorityTier=10 PreemptMode=OFF MaxTime=INFINITE State=UP
"""
# In the program's place: the launch that a script begins, with a shorter run behind `--`.
SHORTER = """#!/usr/bin/python3
import os, sys
words = sys.argv[1:]
settings, every = {settings!r}, {every!r}
kind = next((kind for kind in settings if words[:1] == ["launch"] and kind in words), None)
if kind:
    for at in range(1, len(words)):
        if words[at - 1] == "--checkpoint-every":
            words[at] = str(every[kind])
    if "--ranks" not in words:
        words[1:1] = ["--device", "h200"]  # --ranks auto reckons with it, and measures nothing
    for key, value in settings[kind].items():
        words += ["--set", f"{{key}}={{value}}"]
    words += ["--json"]
os.execv({program!r}, [{program!r}, *words])
"""


class Failed(Exception):
    """A case that did not go as it should."""


def until(what, test, seconds=LONG):
    end = time.monotonic() + seconds
    while not (found := test()):
        if time.monotonic() > end:
            raise Failed(f"after {seconds} s there is not yet: {what}")
        time.sleep(0.1)
    return found


def free_ports(count):
    sockets = [socket.create_server(("", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Cluster:
    """The daemons, and what is asked of them."""

    def __init__(self, folder):
        self.folder, self.running = folder, []
        self.environment = {**os.environ, **MPI, "PATH": PATH, "SLURM_CONF": str(folder / "slurm.conf")}

    def begin(self, hosts):
        folder = self.folder
        name = platform.node().split(".")[0]
        (folder / "slurm.conf").write_text(CONFIGURATION.format(name=name, net=hosts.net, folder=folder, ports=free_ports(3), grace=GRACE))
        for made in ("state", *(f"spool.{host}" for host in NAMES)):
            (folder / made).mkdir()
        key = folder / "munge.key"
        key.touch(0o400)
        with key.open("wb") as file:
            file.write(os.urandom(1024))
        files = [f"--{what}-file={folder}/munge.{what}" for what in ("key", "pid", "log", "seed")]
        self.start("munged", "--foreground", "--force", f"--socket={folder}/munge.socket", *files)
        until("munged's socket", (folder / "munge.socket").exists, 30)
        self.start("slurmctld", "-D", "-c", "-f", folder / "slurm.conf")
        for host in NAMES:
            self.start(hosts.agent, host, f"exec slurmd -D -N {host} -f {folder}/slurm.conf", log=f"start.{host}")
        until("both nodes, idle", self.nodes_are_idle, 60)

    def nodes_are_idle(self):
        for name, process in self.running:
            if process.poll() is not None:
                raise Failed(f"{name} ended with {process.returncode}")
        return len(re.findall(r" State=IDLE[ +]", self.said("scontrol", "show", "nodes", "-o"))) == len(NAMES)

    def start(self, *command, log=None):
        name = log or command[0]
        with open(self.folder / f"{name}.said", "w") as out:
            process = subprocess.Popen(list(map(str, command)), env=self.environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
        self.running.append((name, process))

    def asked(self, *command, env=None, cwd=None):
        line = list(map(str, command))
        try:
            return subprocess.run(line, env=self.environment | (env or {}), cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(line, 124, "", "no answer within 60 s")

    def said(self, *command):
        return self.asked(*command).stdout

    def submit(self, *words, **more):
        done = self.asked("sbatch", "--parsable", *words, **more)
        if done.returncode:
            raise Failed(f"{' '.join(done.args)} ended with {done.returncode}: {done.stderr.strip()}")
        return re.match(r"\d+", done.stdout)[0]

    def job(self, number):
        """What Slurm says of it: {field: value}."""
        return dict(re.findall(r"(\w+)=(\S*)", self.said("scontrol", "show", "job", "-o", number)))

    def close(self):
        """Jobs first, then the daemons; what is in the namespaces ends with them."""
        if len(self.running) > 2 and all(process.poll() is None for _, process in self.running):
            self.said("scancel", "--user", "root")
        for _, process in reversed(self.running):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def logs(self):
        for path in sorted([*self.folder.glob("*.log"), *self.folder.glob("*.said"), *(self.folder / "work").glob("slurm-*.out"), *(self.folder / "work").glob("runs/*/launch.jsonl")]):
            if path.is_file() and (text := path.read_text(errors="replace").strip()):
                print(f"--- {path}\n" + "\n".join(text.splitlines()[-25:]), flush=True)
        for command in (("scontrol", "show", "jobs"), ("scontrol", "show", "nodes")):
            print(f"--- {' '.join(command)}\n{self.said(*command)}", flush=True)


def undisturbed(kind, folder):
    """The hash of the weights that one process has with the same settings."""
    line = [BINARY, "train", kind, "--config", f"recipes/countdown_{kind}.toml", "--json", "--no-page", "--name", "alone", "--runs", folder / "alone" / kind, "--checkpoint-every", "0"]
    for key, value in SETTINGS[kind].items():
        line += ["--set", f"{key}={value}"]
    done = subprocess.run(list(map(str, line)), cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"the run that nobody disturbs ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout.splitlines()[-1])["weights_sha256"]


def events(run):
    record = run / "launch.jsonl"
    return [json.loads(line) for line in record.read_text().splitlines() if line.endswith("}")] if record.exists() else []


def expect(what, true, seen):
    if not true:
        raise Failed(f"{what}: {seen}")


def preempted(cluster, kind, work):
    """Submits the script, preempts it, and waits for its end: what is told of it."""
    wanted = undisturbed(kind, cluster.folder)
    run, steps = work / "runs" / f"slurm-{kind}", SETTINGS[kind]["steps"]
    job = cluster.submit(work / f"recipes/slurm/train_{kind}.sbatch", cwd=work, env={"LOCKSTEP": str(cluster.folder / "lockstep")})
    over = lambda number: cluster.job(number).get("JobState") in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")  # noqa: E731
    until("a checkpoint of the run", lambda: (run / "checkpoints/latest").exists() or over(job))
    expect("the job was over before it was preempted", not over(job), cluster.job(job))
    began, urgent = time.monotonic(), cluster.submit("--partition=high", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap", "sleep 2", cwd=work)
    until("the end of the job that preempts", lambda: over(urgent))
    given_way = time.monotonic() - began
    until("the end of the preempted job", lambda: over(job), 2 * LONG)
    last, told = cluster.job(job), events(run)
    expect("the job's state", last.get("JobState") == "COMPLETED" and int(last.get("Restarts", 0)) >= 1, last)
    ends, starts = [[one for one in told if one["event"] == event] for event in ("end", "start")]
    expect("the record has the end of the preempted launch, and that of the last one", len(ends) >= 2 and ends[0]["stopped"] and 0 < ends[0]["saved_step"] < steps, told)
    expect("the second launch goes on where the first one saved, on both nodes",
           any(one["resume"] and one["step"] == ends[0]["saved_step"] and {host["name"] for host in one["hosts"]} == set(NAMES) for one in starts[1:]), told)  # fmt: skip
    expect("no process was lost", not any(one["event"] == "loss" for one in told), told)
    hashes = re.findall(r'"weights_sha256": ?"([0-9a-f]{64})"', (work / f"slurm-{job}.out").read_text(errors="replace"))
    expect("the weights", hashes[-1:] == [wanted], f"{hashes} instead of {wanted}")
    return f"after {last['Restarts']} restart, saved at step {ends[0]['saved_step']} of {steps}, gave way within {given_way:.0f} s, queued again, same weights {wanted[:12]}"


def prepared(folder):
    """Where jobs are submitted: the recipes and models of this checkout."""
    work = folder / "work"
    work.mkdir()
    for name in ("recipes", "models"):
        (work / name).symlink_to(ROOT / name)
    program = folder / "lockstep"
    program.write_text(SHORTER.format(settings=SETTINGS, every=CHECKPOINT_EVERY, program=str(BINARY)))
    program.chmod(0o755)
    return work


def main():
    parser = argparse.ArgumentParser(description="The batch scripts of recipes/slurm on Slurm's daemons.")
    parser.add_argument("--only", choices=SETTINGS, help="one of the scripts")
    parser.add_argument("--keep", action="store_true", help="leave the folder")
    options = parser.parse_args()
    lacking = [name for name in PROGRAMS if not shutil.which(name, path=PATH)]
    why = f"no {', '.join(lacking)}" if lacking else "not root" if os.geteuid() else "" if BINARY.with_name("lockstep_mpi.so").exists() else "no lockstep_mpi.so"
    if why:
        print(f"slurm: cannot be run here: {why}")
        return CANNOT
    folder, failed = Path(tempfile.mkdtemp(prefix="lockstep-slurm-")), 0
    folder.chmod(0o755)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with two_hosts(folder) as hosts, contextlib.ExitStack() as stack:
            work, cluster = prepared(folder), Cluster(folder)
            stack.callback(cluster.close)
            cases = {"daemons": lambda: cluster.begin(hosts)}
            cases |= {kind: lambda kind=kind: preempted(cluster, kind, work) for kind in ([options.only] if options.only else SETTINGS)}
            for name, case in cases.items():
                try:
                    print(f"PASS {name}{': ' + told if (told := case()) else ''}", flush=True)
                except Failed as error:
                    failed = 1
                    print(f"FAIL {name}: {error}", flush=True)
                    cluster.logs()
                    if name == "daemons":
                        break
                    cluster.said("scancel", "--user", "root")
    except NoHosts as none:
        print(f"slurm: cannot be run here: {none}")
        return CANNOT
    finally:
        if options.keep:
            print(f"slurm: its files are in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
