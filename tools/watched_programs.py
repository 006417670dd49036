"""Runs programs for tools/run_checks.py, several at a time: with time limits, signs of life, and an end of all processes that they started."""
import collections
import concurrent.futures
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SIGN_OF_LIFE_SECONDS = 15


def say(text):
    sys.stdout.write(text + "\n")  # at once: lanes say their lines beside each other
    sys.stdout.flush()


running = set()  # processes, each the leader of its group
stopping = threading.Event()  # nothing is begun any more


class OfThread(threading.local):
    processor = 0.0  # seconds that the programs used which it ran


of_this_thread = OfThread()


class Stopped(Exception):
    pass


def end_group(pid):
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def side_by_side(lanes, tally, beside=()):
    """Runs lists of calls, each of which gets a tally of its own. Each list has a thread that runs it in order; a thread whose list is done takes the
    first call of another. `beside` is one more list, of calls that mostly wait: its thread takes no calls of the others, so that never more of those
    run at the same time than there are lists. The tallies are joined in the order of the lists."""
    left = [collections.deque((call, type(tally)()) for call in lane) for lane in (*lanes, beside)]
    tallies = [own for lane in left for _, own in lane]

    def run(mine):
        for lane in (mine,) if mine is left[-1] else (mine, *left):
            while not stopping.is_set():
                try:
                    call, own = lane.popleft()
                except IndexError:
                    break
                call(own)

    try:
        with concurrent.futures.ThreadPoolExecutor(len(left)) as pool:
            waiting = [pool.submit(run, lane) for lane in left]
            try:
                for one in concurrent.futures.as_completed(waiting):
                    one.result()
            except BaseException:  # a fault of ours, or Ctrl-C: nothing is left to run
                stopping.set()
                for pid in list(running):
                    end_group(pid)
                raise
    finally:
        stopping.clear()
    for own in tallies:
        tally.join(own)


def run_watched(name, command, environment, timeout, on_line=None, cwd=ROOT):
    """Runs a command, passes each line of its output to on_line, and prints a sign of life every SIGN_OF_LIFE_SECONDS.
    Returns (status, all output, seconds); a status below 0 is a signal, "timeout" a time limit passed."""
    if stopping.is_set():
        raise Stopped
    begin = time.monotonic()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               env=environment, cwd=cwd, text=True, errors="replace", start_new_session=True)
    running.add(process.pid)
    lines, done, timed_out = [], threading.Event(), threading.Event()

    def watch():
        while not done.wait(SIGN_OF_LIFE_SECONDS):
            seconds = time.monotonic() - begin
            last = lines[-1].strip()[:90] if lines else ""
            say(f"     {name} ... {seconds:.0f} s{'  ' + last if last else ''}")
            if seconds > timeout:
                timed_out.set()
                end_group(process.pid)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        for line in process.stdout:
            lines.append(line)
            if on_line:
                on_line(line.rstrip("\n"))
        _, ended, used = os.wait4(process.pid, 0)
        status = process.returncode = os.waitstatus_to_exitcode(ended)
        of_this_thread.processor += used.ru_utime + used.ru_stime
    finally:
        done.set()
        end_group(process.pid)  # whatever it left behind
        running.discard(process.pid)
    return ("timeout" if timed_out.is_set() else status), "".join(lines), time.monotonic() - begin


def how_it_ended(status, timeout):
    if status == "timeout":
        return f"ran past {timeout} s"
    if status < 0:
        return f"crashed ({signal.Signals(-status).name})"
    return f"exited with status {status}"
