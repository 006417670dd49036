#!/usr/bin/env python3
"""Kills publisher, mirror and follower many times: each is one process of `lockstep_faults` that is killed at a named point (a write, a rename, a
received byte) or at a random moment. A reader must then find the old snapshot or the new one, complete; the killed process, started again, must go
on with at most 4 MB downloaded twice, and end with the right bits.

    .oracle/bin/python bench/weight_kills.py [--kills 1000] [--minutes 60] [--seed 1] [--only push,publish,mirror,pull,serve] [--json FILE [--resume]] [--page docs/weight-sync.md]

    push      `snapshot push` into a folder
    publish   `lockstep.publish` of Python into a folder (killed by chance)
    mirror    `snapshot mirror` from a server of files
    pull      `snapshot pull` from one
    serve     `serve --follow` of one, or of a folder, on its way to a snapshot

FILE is written anew every minute and at the end; with --resume the kills that it tells of are counted, and the tries go on behind them. It has the number of
kills of each version of the program. --page: writes the counts between the marks there, once no check failed. The exit code is 1 at the first check that
fails, with the number that repeats it (--seed S --from N). Needs numpy and safetensors (./setup --oracle)."""
import argparse
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/training"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
from counted_versions import earlier_versions, said, with_this_run  # noqa: E402
from marked_page import write_between_marks  # noqa: E402
from regions import PROMPT, stepped  # noqa: E402
from started_server import StartedServer  # noqa: E402
from store_tools import BINARY, FAULTS, Model, StoreServer, run, same  # noqa: E402
from write_performance import version  # noqa: E402

WRITES = {"file.opened": 4, "file.written": 4, "file.synced": 4, "file.renamed": 4}
POINTS = {  # and how often each is passed at most
    "push": {"store.object": 4, "store.manifest": 1, "store.channel": 1, **WRITES},
    "mirror": {"download.bytes": 60, "download.whole": 6, "mirror.object": 6, "store.object": 6, "mirror.manifest": 2, "mirror.skip": 1, "mirror.ways": 2, "mirror.channel": 1,
               "store.channel": 1, "store.manifest": 2, **WRITES},
    "pull": {"download.bytes": 250, "download.whole": 4, "pull.tensor": 3, "folder.written": 1, "folder.synced": 1, "folder.renamed": 1, **WRITES},
    "serve": {"download.bytes": 12, "download.whole": 3},  # of files; it writes no other
    "serve-folder": {"store.record": 7, "file.written": 4, "file.renamed": 4},
}
CHANCE = {"push": 0.25, "publish": 0.6, "mirror": 0.5, "pull": 0.4, "serve": 2, "serve-folder": 2}  # seconds within which one is killed by chance
TWICE = 4 << 20
TELL_SECONDS = 60  # between two writings of --json
PASSED = 120  # seconds within which a server has its channel's snapshot, and has passed its points


def objects(folder):
    return sum(p.stat().st_size for p in Path(folder, "objects").glob("*/*"))


class Kills:
    def __init__(self, root):
        self.root, self.point, self.done, self.now = root, Counter(), Counter(), threading.local()
        model = Model(root, seed=13, elements=1_300_000)
        self.folders = [model.step()]
        self.tensors = [{n: v.copy() for n, v in model.now.items()}]
        for value in model.now.values():  # all of it changes: there is something to fetch
            value += 1
        self.folders.append(model.write())
        self.folders.append(model.step())
        self.tensors.append({n: v.copy() for n, v in model.now.items()})
        self.old, self.store, self.mirror = root / "old", root / "store", root / "mirror"
        self.first = run("snapshot", "push", self.folders[0], self.old, "--channel", "chat", "--json")["id"]
        shutil.copytree(self.old, self.store)
        for folder in self.folders[1:]:
            self.newest = run("snapshot", "push", folder, self.store, "--channel", "chat", "--json")["id"]
        run("snapshot", "mirror", self.old, self.mirror, "--channel", "chat", "--json")
        self.served = root / "served"  # a model that can be served, and a step of it
        run("snapshot", "push", ROOT / "models/countdown-glm", self.served, "--channel", "chat", "--json")
        run("snapshot", "push", stepped(ROOT / "models/countdown-glm", root / "stepped", 1, 1), self.served, "--channel", "chat", "--json")
        self.answer = self.answers("--model", root / "stepped", name="alone")[0]
        if self.answer == self.answers("--model", ROOT / "models/countdown-glm", name="control")[0]:
            raise AssertionError("the step changed no bit of the answer: nothing is compared")

    def environment(self, **more):
        return {"PATH": "/usr/bin:/bin", "HOME": os.environ.get("HOME", "/"), "TMPDIR": str(self.root), **more}

    def answers(self, *words, name, sequence=0):
        """What a server answers, once it has that number of its channel; and its figures."""
        command = [BINARY, "serve", "--port", "0", "--threads", "1", "--no-access-log", "--log-level", "error", "--name", "m", *words]
        with StartedServer(command, env=self.environment(), stderr=subprocess.DEVNULL) as server:
            url, ended = server.url, time.monotonic() + 120
            while sequence:
                with urllib.request.urlopen(url + "/metrics", timeout=60) as text:
                    if float(re.search(r"^lockstep_sync_current_sequence (\S+)$", text.read().decode(), re.M)[1]) >= sequence:
                        break
                assert time.monotonic() < ended, f"{name} did not come to number {sequence}"
                time.sleep(0.02)
            request = urllib.request.Request(url + "/v1/completions", json.dumps(PROMPT).encode(), {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read())["choices"], url

    def until_it_has(self, process, sequence):
        """Waits until a server has that number of its channel, or was killed on the way."""
        found, ended = re.search(r"http://\S+", process.stdout.readline().decode()), time.monotonic() + PASSED
        while found and process.poll() is None and time.monotonic() < ended:
            try:
                with urllib.request.urlopen(found[0] + "/metrics", timeout=60) as text:
                    if float(re.search(r"^lockstep_sync_current_sequence (\S+)$", text.read().decode(), re.M)[1]) >= sequence:
                        return
            except OSError:  # it was killed meanwhile
                pass
            time.sleep(0.02)

    def killed(self, kind, draw, *words, program=FAULTS):
        """Runs the process until it is killed; false if it ended before."""
        points = POINTS.get(kind, {})
        point = draw.choice([*points, None, None] if points else [None])
        variables = {"LOCKSTEP_KILL_AT": f"{point}:{draw.randint(1, points[point])}"} if point else {}
        self.now.point = variables.get("LOCKSTEP_KILL_AT", "by chance")
        passes = kind.startswith("serve") and point is not None  # it does not end by itself
        process = subprocess.Popen([str(w) for w in (program, *words)], env=self.environment(**variables), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE if passes else subprocess.DEVNULL,
                                   stderr=subprocess.PIPE)  # fmt: skip
        seconds = draw.uniform(0, CHANCE[kind])
        try:
            if passes:
                self.until_it_has(process, 2)
            process.wait(None if point and not passes else 0.2 if passes else seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            point = None  # a server that passed it more seldom
        _, said = process.communicate()
        if process.returncode == -signal.SIGKILL:
            self.point[f"{kind} {point or 'by chance'}"] += 1
            return True
        assert process.returncode == 0, f"status {process.returncode}: {said.decode()[-2000:]}"
        return False

    def reads_old_or_new(self, store, out):
        target = run("snapshot", "pull", store, "chat", out, "--json", "--overwrite")["id"]
        assert target in (self.first, self.newest), target
        assert same(out, self.tensors[target == self.newest]), target
        return target

    def whole(self, store, out, newest):
        assert run("snapshot", "pull", store, "chat", out, "--json", "--overwrite")["id"] == newest
        assert same(out, self.tensors[1])
        assert run("snapshot", "verify", store, "chat", "--json")["sound"]

    def push(self, draw, place):
        shutil.copytree(self.old, place / "store")
        words = ["snapshot", "push", self.folders[2], place / "store", "--channel", "chat"]
        killed = self.killed("push", draw, *words, "--quiet")
        target = run("snapshot", "pull", place / "store", "chat", place / "out", "--json", "--overwrite")["id"]
        assert same(place / "out", self.tensors[target != self.first]), target
        newest = target if target != self.first else run(*words, "--json")["id"]
        self.whole(place / "store", place / "out", newest)
        return killed

    def publish(self, draw, place):
        shutil.copytree(self.old, place / "store")
        text = ("import sys; sys.path.insert(0, sys.argv[1]); import lockstep; from safetensors.numpy import load_file;"
                "lockstep.publish(load_file(sys.argv[2] + '/model.safetensors'), sys.argv[3], 'chat', files=sys.argv[2])")
        words = ["-B", "-c", text, ROOT / "python", self.folders[2], place / "store"]
        killed = self.killed("publish", draw, *words, program=sys.executable)
        target = run("snapshot", "pull", place / "store", "chat", place / "out", "--json", "--overwrite")["id"]
        assert same(place / "out", self.tensors[target != self.first]), target
        subprocess.run([str(w) for w in (sys.executable, *words)], check=True, env=self.environment())
        self.whole(place / "store", place / "out", run("snapshot", "show", place / "store", "chat", "--json")["id"])
        return killed

    def from_mirror(self, draw, place):
        shutil.copytree(self.mirror, place / "mirror")
        with StoreServer(self.store) as server:
            words = ["snapshot", "mirror", server.url, place / "mirror", "--channel", "chat"]
            killed = self.killed("mirror", draw, *words, "--quiet")
            self.reads_old_or_new(place / "mirror", place / "out")
            run(*words, "--json")
            self.whole(place / "mirror", place / "out", self.newest)
            twice = server.objects_sent() - (objects(self.store) - objects(self.mirror))
            assert twice <= TWICE, f"{twice} bytes came twice"
        return killed

    def pull(self, draw, place):
        with StoreServer(self.store) as server:
            words = ["snapshot", "pull", server.url, "chat", place / "out"]
            killed = self.killed("pull", draw, *words, "--quiet")
            if (place / "out").exists():
                assert same(place / "out", self.tensors[1])
            else:
                run(*words, "--json")
            assert same(place / "out", self.tensors[1])
            twice = server.objects_sent() - objects(self.store)
            assert twice <= TWICE, f"{twice} bytes came twice"
        return killed

    def serve(self, draw, place):
        with StoreServer(self.served) as server:
            by_folder = draw.random() < 0.5
            if by_folder:
                shutil.copytree(self.served, place / "store")
            words = ["--model", ROOT / "models/countdown-glm", "--follow", f"{place / 'store' if by_folder else server.url}/chat", "--replica", "r", "--downloads", place / "downloads"]
            killed = self.killed("serve-folder" if by_folder else "serve", draw, "serve", "--port", "0", "--threads", "1", "--no-access-log", "--log-level", "error", *words)
            answer, _ = self.answers(*words, name="the replica", sequence=2)
            assert answer == self.answer, "the replica's answer is not that of its snapshot"
            twice = server.objects_sent() - objects(self.served)
            assert twice <= TWICE, f"{twice} bytes came twice"
            if by_folder:
                run("snapshot", "verify", place / "store", "chat", "--json")
                run("fleet", "status", place / "store/chat", "--json", status=None)
        return killed


def page_text(found):
    rows = [(kind, found["by_kind"].get(kind, 0), [point for point in found["by_point"] if point.split(" ")[0].partition("-")[0] == kind]) for kind in found["only"].split(",")]
    never = ", ".join(f"`{point}`" for point in found["points_without_kill"]) or "none"
    return "\n".join([
        f"`bench/weight_kills.py`, {said(found['versions'], 'kills')}: {found['kills']} kills of {found['tried']} tries in {found['seconds'] / 60:.0f} minutes, with the seed {found['seed']}; "
        "each left the old snapshot or the new one, whole, and went on with at most 4 MB that came twice.", "",
        "| killed | kills | at so many points (chance is one) |", "|---|---|---|",
        *(f"| `{kind}` | {kills} | {len(points)} |" for kind, kills, points in rows), "",
        f"Points at which none was killed: {never}."])  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--from", type=int, default=0, dest="begin")
    parser.add_argument("--only", default="push,publish,mirror,pull,serve")
    parser.add_argument("--jobs", type=int, default=2, help="at a time")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--resume", action="store_true", help="go on with what --json has")
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    if options.resume and not options.json:
        parser.error("--resume without --json")
    began, kinds, wrong, lock = time.monotonic(), options.only.split(","), [], threading.Lock()
    before = json.loads(options.json.read_text()) if options.resume and options.json.is_file() else None
    if before and (before["seed"], before["only"]) != (options.seed, options.only):
        parser.error(f"{options.json} is of --seed {before['seed']} --only {before['only']}")
    seconds_before = before["seconds"] if before else 0
    versions_before, this_version = earlier_versions(before, before["kills"] if before else 0), version().split("\n")[0]
    first = before["next"] if before else options.begin
    numbers, reached, tried = itertools.count(first), first, before["tried"] if before else 0
    with tempfile.TemporaryDirectory(prefix="lockstep-kills-") as work:
        kills = Kills(Path(work))
        if before:
            kills.done.update(before["by_kind"])
            kills.point.update(before["by_point"])
        ways = {"push": kills.push, "publish": kills.publish, "mirror": kills.from_mirror, "pull": kills.pull, "serve": kills.serve}

        def tell():
            """With the lock. Tries that are not over count as none, and their numbers do not come again."""
            never = [f"{kind} {point}" for kind, points in POINTS.items() if kind.partition("-")[0] in kinds for point in points if not kills.point[f"{kind} {point}"]]
            count = sum(kills.done.values())
            found = {"kills": count, "tried": tried, "next": reached, "seconds": round(seconds_before + time.monotonic() - began), "seed": options.seed, "only": options.only,
                     "versions": with_this_run(versions_before, this_version, count), "by_kind": dict(kills.done),
                     "by_point": dict(sorted(kills.point.items())), "points_without_kill": never}  # fmt: skip
            if options.json:
                fresh = options.json.with_suffix(".new")
                fresh.write_text(json.dumps(found, indent=1) + "\n")
                fresh.rename(options.json)
            return found

        def one_after_another():
            nonlocal reached, tried, told
            while not wrong and sum(kills.done.values()) < options.kills and time.monotonic() - began < 60 * options.minutes:
                with lock:
                    number = next(numbers)
                    reached = number + 1
                kind, place = kinds[number % len(kinds)], Path(work) / f"kill-{number}"
                place.mkdir()
                try:
                    killed = ways[kind](random.Random(options.seed * 1_000_003 + number), place)
                    with lock:
                        kills.done[kind] += killed
                        tried += 1
                        if time.monotonic() - told > TELL_SECONDS:
                            told = time.monotonic()
                            tell()
                except Exception as why:
                    wrong.append(f"weight_kills: {kind}, killed at {kills.now.point}: {why}\n(--seed {options.seed} --from {number} --only {options.only})")
                shutil.rmtree(place)

        told = began
        threads = [threading.Thread(target=one_after_another) for _ in range(options.jobs)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        found = tell()
    print(json.dumps(found, indent=1))
    for one in wrong:
        print(one)
    if wrong:
        return 1
    if options.page:
        write_between_marks(options.page, "bench/weight_kills.py", page_text(found))
    if found["kills"] < options.kills:
        print(f"weight_kills: {found['kills']} kills in {found['seconds'] / 60:.0f} minutes" + (f"; with --resume it goes on to {options.kills}" if options.json else ""))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
