"""Training runs that take turns, a step each: one process computes while the others are stopped, so that what a machine does to clocks in an hour is done
to all of them alike.

    in_turns([Run("control", command, folder, options.work / "control.steps"), Run("published", ...)], until)
    measured_steps(options.work / "control.steps")    # {2: {"seconds": 4.1, "processor_seconds": 7.9}, ...}

A step's seconds are those from the metrics line of the step before to its own in which the process was not stopped; those of the first step behind a
start, which has the loading in it, are not told. A run may end before others do. `until` is a time of time.monotonic()."""
import json
import os
import signal
import subprocess
import time

POLL = 0.005  # seconds


class TimeIsUp(Exception):
    pass


def processor_seconds(process):
    fields = open(f"/proc/{process.pid}/stat").read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Run:
    """`folder` is the run's, of which metrics.jsonl is read; `steps`, a file beside it, keeps what was measured when the run is stopped and goes on."""

    def __init__(self, name, command, folder, steps):
        self.name, self.command, self.metrics, self.steps = name, [str(word) for word in command], folder / "metrics.jsonl", steps
        self.process, self.seen, self.counted = None, 0, False

    def lines(self):
        return self.metrics.read_bytes().count(b"\n") if self.metrics.is_file() else 0

    def start(self):
        self.seen = self.lines()
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def turn(self, until):
        """Goes on until its next step is whole, or it ends: then False."""
        if self.process.poll() is not None:
            return False
        begun, used = time.monotonic(), processor_seconds(self.process)
        self.process.send_signal(signal.SIGCONT)
        while self.lines() <= self.seen:
            if self.process.poll() is not None:
                return False
            if time.monotonic() > until:
                raise TimeIsUp
            time.sleep(POLL)
        # Before the signal: what sends it notices an end, behind which nothing tells of the process.
        taken = {"seconds": time.monotonic() - begun, "processor_seconds": processor_seconds(self.process) - used}
        self.process.send_signal(signal.SIGSTOP)
        self.seen += 1
        if self.counted and self.lines() == self.seen:  # else two steps ended in one turn
            step = json.loads(self.metrics.read_bytes().splitlines()[self.seen - 1])["step"]
            with self.steps.open("a") as file:
                file.write(json.dumps({"step": step, **taken}) + "\n")
        self.seen, self.counted = self.lines(), True
        return True


def measured_steps(file):
    """What a run's file has: {step: {"seconds", "processor_seconds"}}."""
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []
    return {row.pop("step"): row for row in rows}


def in_turns(runs, until):
    """Runs them to their ends. Errors: TimeIsUp, once every run has saved what it has; SystemExit where one fails."""
    going = list(runs)
    for run in runs:
        run.start()
        run.process.send_signal(signal.SIGSTOP)
    try:
        while going:
            for run in list(going):
                if run.turn(until):
                    continue
                going.remove(run)
                if run.process.returncode != 0:
                    raise SystemExit(f"{run.name} ended with status {run.process.returncode}")
    except KeyboardInterrupt:
        raise TimeIsUp from None
    finally:
        for run in going:  # there are some only where it ends early
            run.process.send_signal(signal.SIGCONT)
            run.process.send_signal(signal.SIGTERM)  # it saves
        for run in going:
            run.process.wait()
