#!/usr/bin/env python3
"""A fleet in three regions: the trainer and its store (S3: rclone) in one network namespace, two replicas in a second, one in a third, on wires of ours
between them (build/wire: delay, jitter, loss, reordering and cuts by seed; `tc tbf` limits the rate). Steps of a training are pushed one after another, and
each replica says when it has one; then several at once; then all weights change, and the wire to the far region is cut for a while in the middle of the
download. At the end every replica answers with the bits of a server that has the trainer's weights.

    python3 bench/regions.py [--model models/countdown-glm] [--steps 10] [--cut 30] [--short] [--json FILE] [--page docs/weight-sync.md]

Needs root, TUN, network namespaces, tc, and rclone (`./setup --oracle` has it). --short: three steps, a cut of three seconds, faster wires. --page:
writes the figures between the lines regions: begin and regions: end. The exit code is 1 if a check fails, and 3, with the reason, if the benchmark
cannot run on this machine."""
import argparse
import contextlib
import ctypes
import json
import os
import random
import re
import shutil
import struct
import subprocess
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

from marked_page import write_between_marks

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
PLACE = "s3://weights/fleet/chat"
PROMPT = {"prompt": "3 7 12=48:", "max_tokens": 12, "temperature": 1, "seed": 5, "logprobs": 1, "ignore_eos": True}
# One way; the round trip is twice the delay. Rates in Mbit/s.
NEAR = {"delay_ms": 20, "jitter_ms": 2, "loss": 0.01, "reorder": 0.002, "rate": 20}
FAR = {"delay_ms": 60, "jitter_ms": 5, "loss": 0.03, "reorder": 0.002, "rate": 5}
READY_SECONDS = {"near": 10, "far": 10}  # a step, the bars


class CannotRun(Exception):
    pass


def ran(*words, **more):
    done = subprocess.run([str(w) for w in words], stdin=subprocess.DEVNULL, capture_output=True, text=True, **more)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, words))}: {done.returncode}\n{done.stderr}")
    return done.stdout


class Regions:
    """Namespaces trainer, near and far, the last two on a wire to the first."""

    def __init__(self, wires, seed):
        self.spaces = {name: f"lockstep-{os.getpid()}-{name}" for name in ("trainer", "near", "far")}
        self.wires, self.address = {}, {}
        try:
            for space in self.spaces.values():
                ran("ip", "netns", "add", space)
                ran("ip", "-n", space, "link", "set", "lo", "up")
            for n, (name, wire) in enumerate(wires.items()):
                self.lay(name, wire, n, seed + n)
        except (OSError, RuntimeError) as why:
            self.close()
            raise CannotRun(f"network namespaces, TUN or tc are not to be had here (root is needed): {why}") from why

    def lay(self, name, wire, n, seed):
        device, here, there = f"wire{n}", self.spaces["trainer"], self.spaces[name]
        options = [w for key in ("delay_ms", "jitter_ms", "loss", "reorder") for w in (f"--{key.replace('_', '-')}", str(wire[key]))]
        process = subprocess.Popen([str(BUILD / "wire"), f"/run/netns/{here}", f"/run/netns/{there}", device, "--seed", str(seed), *options], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.wires[name] = process
        if process.stdout.readline().strip() != "ready":
            raise RuntimeError(process.stderr.read())
        for space, last in ((here, 1), (there, 2)):
            ran("ip", "-n", space, "addr", "add", f"10.77.{n}.{last}/30", "dev", device)
            ran("ip", "-n", space, "link", "set", device, "mtu", 1400, "up")
            ran("ip", "netns", "exec", space, "tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", f"{wire['rate']}mbit", "burst", "16kb", "latency", "300ms")
        self.address[name] = f"10.77.{n}.1"  # of the trainer, as this region sees it

    def cut(self, name, seconds):
        self.wires[name].stdin.write(f"cut {seconds}\n")
        self.wires[name].stdin.flush()

    def start(self, name, *words, **environment):
        return subprocess.Popen(["ip", "netns", "exec", self.spaces[name], *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                text=True, env={**os.environ, **environment})

    @contextlib.contextmanager
    def inside(self, name):
        """Runs the calling thread in the namespace."""
        libc = ctypes.CDLL(None, use_errno=True)
        with open("/proc/thread-self/ns/net") as before, open(f"/run/netns/{self.spaces[name]}") as there:
            def enter(which):
                if libc.setns(which.fileno(), 0x40000000) != 0:
                    raise OSError(ctypes.get_errno(), "setns")

            enter(there)
            try:
                yield
            finally:
                enter(before)

    def close(self):
        told = {}
        for name, process in self.wires.items():
            out, _ = process.communicate(timeout=30)
            told[name] = json.loads(out.strip().splitlines()[-1]) if process.returncode == 0 and out.strip() else None
        for space in self.spaces.values():
            subprocess.run(["ip", "netns", "del", space], capture_output=True)
        return told


class Server:
    """A server in a region, and the figures that it reports."""

    def __init__(self, regions, region, words, environment):
        self.regions, self.region = regions, region
        self.process = regions.start(region, *words, **environment)
        found = re.search(r"http://\S+", self.process.stdout.readline())
        if not found:
            raise RuntimeError(f"{words} did not start")
        self.url = found[0]

    def ask(self, path, body=None):
        with self.regions.inside(self.region):
            request = urllib.request.Request(self.url + path, None if body is None else json.dumps(body).encode(), {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.read().decode()

    def has(self, sequence):
        figures = {m[1]: float(m[2]) for m in re.finditer(r"^(lockstep_sync_\w+) (\S+)$", self.ask("/metrics"), re.M)}
        return figures if figures["lockstep_sync_current_sequence"] >= sequence else None

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


def stepped(before, after, share, seed):
    """A copy of the model in which the lowest bits of some weights differ, as after a training step."""
    shutil.copytree(before, after)
    file = after / "model.safetensors"
    content = bytearray(file.read_bytes())
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    draw = random.Random(seed)
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        size = {"BF16": 2, "F32": 4}[tensor["dtype"]]
        begin, end = (8 + length + offset for offset in tensor["data_offsets"])
        count = (end - begin) // size
        if share == 1:
            every = slice(begin + size - 2, end, size)
            content[every] = content[every].translate(bytes(b ^ 1 for b in range(256)))
            continue
        for at in draw.sample(range(count), max(1, int(count * share))):
            place = begin + at * size + size - 2  # the lowest bit that bf16 has
            content[place] ^= 1
    file.write_bytes(content)
    return after


def lockstep(regions, region, *words, statuses=(0,), **environment):
    done = subprocess.run(["ip", "netns", "exec", regions.spaces[region], str(BUILD / "lockstep"), *map(str, words)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          env={**os.environ, **environment}, timeout=600)
    if done.returncode not in statuses:
        raise RuntimeError(f"lockstep {words[:3]}: {done.stderr}")
    return json.loads(done.stdout.strip().splitlines()[-1])


class Fleet:
    def __init__(self, options, regions, work):
        self.options, self.regions, self.work = options, regions, work
        keys = {"AWS_ACCESS_KEY_ID": "key-of-bench", "AWS_SECRET_ACCESS_KEY": "secret-of-bench", "AWS_REGION": "eu-central-1"}
        self.environment = {name: {**keys, "AWS_ENDPOINT_URL": f"http://{address}:9000"} for name, address in {**regions.address, "trainer": "127.0.0.1"}.items()}
        (work / "s3/weights").mkdir(parents=True)
        self.store = regions.start("trainer", options.rclone, "serve", "s3", "--auth-key", "key-of-bench,secret-of-bench", "--addr", ":9000", work / "s3")
        time.sleep(2)
        self.folder = work / "step-0"
        shutil.copytree(options.model, self.folder)
        self.steps = 0
        self.push(self.folder, "none")
        self.replicas = {}
        for name, region in (("near-1", "near"), ("near-2", "near"), ("far-1", "far")):
            self.replicas[name] = Server(regions, region, [BUILD / "lockstep", "serve", "--model", options.model, "--threads", "1", "--port", "0", "--no-access-log", "--log-level", "error",
                                                           "--follow", PLACE, "--replica", name, "--downloads", work / f"downloads-{name}"], self.environment[region])

    def push(self, folder, parent=None):
        place, _, channel = PLACE.rpartition("/")
        words = ["snapshot", "push", folder, place, "--channel", channel, "--json", "--profile", "cpu-bf16w"]
        words += ["--parent", parent] if parent else ["--base", self.folder]
        told = lockstep(self.regions, "trainer", *words, **self.environment["trainer"])
        self.folder = folder
        return told

    def step(self, share):
        self.steps += 1
        return stepped(self.folder, self.work / f"step-{self.steps}", share, self.steps)

    def ready(self, sequence, since, limit=300):
        """Seconds until each replica has the snapshot, and the figures that each reports of it."""
        seconds, said, wrong = {}, {}, []

        def wait(name, server):
            try:
                while not (figures := server.has(sequence)):
                    if time.monotonic() - since > limit:
                        raise TimeoutError(f"{name} has not taken step {sequence} in {limit} s")
                    time.sleep(0.05)
                seconds[name], said[name] = round(time.monotonic() - since, 2), figures
            except Exception as why:  # told below
                wrong.append(f"{name}: {why}")

        threads = [threading.Thread(target=wait, args=one) for one in self.replicas.items()]
        [t.start() for t in threads]
        [t.join() for t in threads]
        if wrong:
            raise RuntimeError("; ".join(wrong))
        return seconds, said

    def stop(self):
        for server in self.replicas.values():
            server.stop()
        self.store.kill()
        self.store.wait()


def measured(options, regions, work):
    fleet = Fleet(options, regions, work)
    try:
        found = {"model": Path(options.model).name, "near": NEAR, "far": FAR, "steps": []}
        found["first"], _ = fleet.ready(1, time.monotonic())  # they have these weights: nothing is fetched
        before = json.loads(fleet.replicas["near-1"].ask("/v1/completions", PROMPT))["choices"]
        for _ in range(options.steps):
            folder = fleet.step(options.share)
            told = fleet.push(folder)
            seconds, _ = fleet.ready(told["sequence"], time.monotonic())
            found["steps"].append({"bytes": told["payload_bytes"], "full_bytes": told["full_bytes"], "seconds": seconds})
        began = time.monotonic()
        for _ in range(options.steps):  # as fast as they can be pushed: whoever is behind goes to the newest
            told = fleet.push(fleet.step(options.share))
        pushed = time.monotonic() - began
        seconds, _ = fleet.ready(told["sequence"], began)
        found["at once"] = {"steps": options.steps, "pushing": round(pushed, 2), "seconds": seconds}
        told = fleet.push(fleet.step(options.most))  # there is something to download
        began = time.monotonic()
        time.sleep(options.cut_after)
        behind = fleet.replicas["far-1"].has(told["sequence"]) is None
        regions.cut("far", options.cut)
        seconds, said = fleet.ready(told["sequence"], began)
        found["cut"] = {"seconds_of_cut": options.cut, "after": options.cut_after, "in_the_download": behind, "bytes": told["payload_bytes"], "seconds": seconds,
                        "errors": said["far-1"]["lockstep_sync_errors_total"]}
        # What they answer is what a server answers that has the trainer's weights.
        alone = Server(regions, "trainer", [BUILD / "lockstep", "serve", "--model", fleet.folder, "--name", "m", "--threads", "1", "--port", "0", "--no-access-log", "--log-level", "error"], {})
        wanted = json.loads(alone.ask("/v1/completions", PROMPT))["choices"]
        alone.stop()
        if wanted == before:
            raise RuntimeError("the steps changed no bit of the answer: nothing is compared")
        found["equal"] = all(json.loads(s.ask("/v1/completions", PROMPT))["choices"] == wanted for s in fleet.replicas.values())
        for _ in range(15):  # records come once a second
            status = lockstep(regions, "trainer", "fleet", "status", PLACE, "--json", statuses=(0, 1), **fleet.environment["trainer"])
            if status["ready"]:
                break
            time.sleep(1)
        found["fleet"] = {"ready": status["ready"], "replicas": len(status["replicas"])}
    finally:
        fleet.stop()
    return found


def faults_of(found):
    """The checks that fail, as sentences."""
    wrong = []
    for name in ("near-1", "near-2", "far-1"):
        slow = [s["seconds"][name] for s in found["steps"] if s["seconds"][name] > READY_SECONDS[name.split("-")[0]]]
        if slow:
            wrong.append(f"{name} was ready after more than {READY_SECONDS[name.split('-')[0]]} s: {slow}")
        if found["at once"]["seconds"][name] > 10 and name != "far-1":
            wrong.append(f"{name} took {found['at once']['seconds'][name]} s for {found['at once']['steps']} steps")
    if not found["cut"]["in_the_download"]:
        wrong.append("the far replica had the weights before the wire was cut")
    if not found["equal"]:
        wrong.append("a replica's answer is not the trainer's")
    if not found["fleet"]["ready"] or found["fleet"]["replicas"] != 3:
        wrong.append(f"the fleet is not ready: {found['fleet']}")
    return wrong


def page_text(found):
    def middle(name):
        values = sorted(s["seconds"][name] for s in found["steps"])
        return f"{values[len(values) // 2]:.2f} ({values[-1]:.2f})"

    rows = ["| replica | round trip, loss, Mbit/s | a step: seconds until ready, median (most) | %d steps at once | all weights |" % found["at once"]["steps"], "|---|---|---|---|---|"]
    for name in ("near-1", "near-2", "far-1"):
        wire = found[name.split("-")[0]]
        cut = f"{found['cut']['seconds'][name]:.1f}" + (f", {found['cut']['seconds_of_cut']:.0f} of them cut" if name == "far-1" else "")
        rows.append(f"| {name} | {2 * wire['delay_ms']} ms, {100 * wire['loss']:.0f} % each way, {wire['rate']} | {middle(name)} | {found['at once']['seconds'][name]:.1f} | {cut} |")
    sizes = [s["bytes"] for s in found["steps"]]
    lines = ["", f"`{found['model']}`: a step is {sum(sizes) // len(sizes)} bytes of {found['steps'][0]['full_bytes']}; all weights, {found['cut']['bytes']}. The wires lost "
             f"{sum(w['lost'] for w in found['wires'].values())} of {sum(w['packets'] for w in found['wires'].values())} packets and cut {sum(w['cut'] for w in found['wires'].values())}. "
             f"The far replica reported {found['cut']['errors']:.0f} errors on the way; every replica's answers had the trainer's bits."]
    return "\n".join(rows + lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(ROOT / "models/countdown-glm"))
    parser.add_argument("--rclone", default=str(ROOT / ".oracle/bin/rclone"))
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--share", type=float, default=0.004, help="of the weights that a step changes")
    parser.add_argument("--most", type=float, default=1.0, help="of the weights that change before the wire is cut")
    parser.add_argument("--cut", type=float, default=30, help="seconds")
    parser.add_argument("--cut-after", type=float, default=1.0, help="seconds after the push")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("--page")
    options = parser.parse_args()
    if options.short:
        options.steps, options.cut = 3, 3
    try:
        if not Path(options.rclone).exists():
            raise CannotRun(f"there is no {options.rclone} (./setup --oracle fetches it)")
        regions = Regions({"near": NEAR, "far": FAR}, options.seed)
    except CannotRun as why:
        print(f"regions: cannot be run here: {why}")
        return 3
    with tempfile.TemporaryDirectory(prefix="lockstep-regions-") as work:
        try:
            found = measured(options, regions, Path(work))
        finally:
            wires = regions.close()
    found["wires"] = wires
    print(json.dumps(found, indent=1))
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1) + "\n")
    wrong = faults_of(found)
    if options.page and not wrong:
        write_between_marks(Path(options.page), "bench/regions.py", page_text(found))
    for one in wrong:
        print(f"regions: {one}")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
