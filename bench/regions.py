#!/usr/bin/env python3
"""A fleet in three regions: the trainer and its store (S3: rclone) in one network namespace, two replicas in a second, one in a third, on wires of ours
between them (build/wire: delay, jitter, loss, reordering and cuts by seed; `tc tbf` limits the rate). Steps of a training are pushed one after another, and
each replica says when it has one; then several at once; then many weights change, and the wire to the far region is cut for a while in the middle of the
download. What comes over that wire until the replica is ready must be at most the payload and 4 MB. At the end every replica answers with the bits of a server
that has the trainer's weights.

    python3 bench/regions.py [--model models/countdown-glm] [--steps 10] [--cut 30] [--json FILE] [--page docs/weight-sync.md]
    python3 bench/regions.py --model FOLDER/bf16 --name SmolLM2-135M --steps 5 --most 0.05 --cut-after 8 --json FILE       of tools/make_smollm2.py
    python3 bench/regions.py --page docs/weight-sync.md --page-of FILE FILE          what these FILEs tell, a model each; nothing is run
    python3 bench/regions.py --short                                                 half a minute on fast wires, which measures nothing

Needs root, TUN, network namespaces, tc, and rclone (`./setup --oracle` has it). --page: writes the figures between the marks there, once no check failed;
--beside says what else ran on the machine. The exit code is 1 if a check fails, and 3, with the reason, if the benchmark cannot run on this machine."""
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
from write_performance import binary, machine, version

ROOT = Path(__file__).resolve().parent.parent
WIRE, PROGRAM = ROOT / "build/wire", Path(binary()).resolve()
PLACE, PROFILE = "s3://weights/fleet/chat", "cpu-bf16w"
PROMPT = {"prompt": "3 7 12=48:", "max_tokens": 12, "temperature": 1, "seed": 5, "logprobs": 1, "ignore_eos": True}
# One way; the round trip is twice the delay. Rates in Mbit/s.
NEAR = {"delay_ms": 20, "jitter_ms": 2, "loss": 0.01, "reorder": 0.002, "rate": 20}
FAR = {"delay_ms": 60, "jitter_ms": 5, "loss": 0.03, "reorder": 0.002, "rate": 5}
FAST = {"near": {**NEAR, "delay_ms": 5, "rate": 100}, "far": {**FAR, "delay_ms": 20, "rate": 20}}  # of --short
READY_SECONDS = {"near": 10, "far": 10}  # a step: the aims
TWICE = 4 << 20  # bytes that may come over the far wire beside the payload's, headers and polls included


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
        process = subprocess.Popen([str(WIRE), f"/run/netns/{here}", f"/run/netns/{there}", device, "--seed", str(seed), *options], stdin=subprocess.PIPE,
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

    def received(self, name):
        """Bytes that came over the wire to this region, since it was laid."""
        device = f"wire{list(self.wires).index(name)}"
        text = ran("ip", "netns", "exec", self.spaces[name], "cat", "/proc/net/dev")
        return int(re.search(rf"^\s*{device}:\s*(\d+)", text, re.M)[1])

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
    done = subprocess.run(["ip", "netns", "exec", regions.spaces[region], str(PROGRAM), *map(str, words)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
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
            self.replicas[name] = Server(regions, region, [PROGRAM, "serve", "--model", options.model, "--profile", PROFILE, "--threads", "1", "--port", "0", "--no-access-log", "--log-level", "error",
                                                           "--follow", PLACE, "--replica", name, "--downloads", work / f"downloads-{name}"], self.environment[region])

    def push(self, folder, parent=None):
        place, _, channel = PLACE.rpartition("/")
        words = ["snapshot", "push", folder, place, "--channel", channel, "--json", "--profile", PROFILE]
        words += ["--parent", parent] if parent else ["--base", self.folder]
        told = lockstep(self.regions, "trainer", *words, **self.environment["trainer"])
        if self.folder != folder:
            shutil.rmtree(self.folder)
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


def some_came(downloads):
    """Whether bytes of an unfinished object stand there (sync/downloads.h: a count for each piece)."""
    try:
        return any(any(counts.read_bytes()) for counts in downloads.glob("*.have"))
    except FileNotFoundError:  # it is whole
        return False


def cut_in_the_download(options, fleet):
    """Cuts the far wire once bytes of an object have come; whether it was still on its way then."""
    downloads, ended = fleet.work / "downloads-far-1", time.monotonic() + 60
    while not some_came(downloads) and time.monotonic() < ended:
        time.sleep(0.005)
    time.sleep(options.cut_after)
    fleet.regions.cut("far", options.cut)
    return some_came(downloads)


def measured(options, regions, work, wires):
    fleet = Fleet(options, regions, work)
    try:
        found = {"model": options.name or Path(options.model).name, "version": version().split("\n")[0], "machine": machine(), "beside": options.beside, **wires, "steps": []}
        found["first"], _ = fleet.ready(1, time.monotonic())  # they have these weights: nothing is fetched
        before = json.loads(fleet.replicas["near-1"].ask("/v1/completions", PROMPT))["choices"]
        for _ in range(options.steps):
            folder = fleet.step(options.share)
            told = fleet.push(folder)
            seconds, _ = fleet.ready(told["sequence"], time.monotonic())
            found["steps"].append({"bytes": told["payload_bytes"], "full_bytes": told["full_bytes"], "seconds": seconds})
        began = time.monotonic()
        for _ in range(options.steps):  # as fast as they can be made and pushed: whoever is behind goes to the newest
            told = fleet.push(fleet.step(options.share))
        pushed = time.monotonic() - began
        seconds, _ = fleet.ready(told["sequence"], began)
        found["at once"] = {"steps": options.steps, "pushing": round(pushed, 2), "seconds": seconds}
        large, before_it = fleet.step(options.most), regions.received("far")
        told = fleet.push(large)
        began = time.monotonic()
        on_its_way = cut_in_the_download(options, fleet)
        before_the_cut = regions.received("far") - before_it
        seconds, said = fleet.ready(told["sequence"], began, 900)
        found["cut"] = {"seconds_of_cut": options.cut, "in_the_download": on_its_way, "share": options.most, "bytes": told["payload_bytes"], "before": before_the_cut,
                        "came": regions.received("far") - before_it, "seconds": seconds, "errors": said["far-1"]["lockstep_sync_errors_total"]}  # fmt: skip
        # What they answer is what a server answers that has the trainer's weights.
        alone = Server(regions, "trainer", [PROGRAM, "serve", "--model", fleet.folder, "--name", "m", "--profile", PROFILE, "--threads", "1", "--port", "0", "--no-access-log", "--log-level", "error"], {})
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
        behind = found["at once"]["seconds"][name] - found["at once"]["pushing"]
        if behind > 10 and name != "far-1":
            wrong.append(f"{name} had {found['at once']['steps']} steps {behind:.1f} s after the last was pushed")
    cut = found["cut"]
    if not cut["in_the_download"]:
        wrong.append("the far replica was in no download when the wire was cut")
    if cut["came"] < cut["bytes"]:
        wrong.append(f"{cut['came']} bytes came to the far replica, and the payload has {cut['bytes']}: they were not counted")
    if cut["came"] > cut["bytes"] + TWICE:
        wrong.append(f"{cut['came']} bytes came to the far replica for a payload of {cut['bytes']}, allowed are {TWICE} more")
    if not found["equal"]:
        wrong.append("a replica's answer is not the trainer's")
    if not found["fleet"]["ready"] or found["fleet"]["replicas"] != 3:
        wrong.append(f"the fleet is not ready: {found['fleet']}")
    return wrong


def rows_of(found):
    """A model's: how long each replica took."""
    def middle(name):
        values = sorted(s["seconds"][name] for s in found["steps"])
        return f"{values[len(values) // 2]:.2f} ({values[-1]:.2f})"

    for name in ("near-1", "near-2", "far-1"):
        wire = found[name.split("-")[0]]
        cut = f"{found['cut']['seconds'][name]:.1f}" + (f", {found['cut']['seconds_of_cut']:.0f} of them cut" if name == "far-1" else "")
        yield (f"| {found['model']} | {name} | {2 * wire['delay_ms']} ms, {100 * wire['loss']:.0f} % each way, {wire['rate']} | {middle(name)} | {found['at once']['steps']}: {found['at once']['seconds'][name]:.1f} "
               f"({found['at once']['pushing']:.1f} of them making and pushing) | {cut} |")  # fmt: skip


def told_of(found):
    sizes, cut, wires = [s["bytes"] for s in found["steps"]], found["cut"], found["wires"].values()
    return (f"`{found['model']}`, {found['version']}: a step is {sum(sizes) // len(sizes)} bytes of {found['steps'][0]['full_bytes']}; the large one, of {100 * cut['share']:.0f} % of the weights, {cut['bytes']}. "
            f"The far wire was cut when {cut['before']} bytes had come over it since the large step's push; when the replica was ready, {cut['came']}: its payload and at most {TWICE >> 20} MB. The wires lost "
            f"{sum(w['lost'] for w in wires)} of {sum(w['packets'] for w in wires)} packets and cut {sum(w['cut'] for w in wires)}. "
            f"The far replica reported {cut['errors']:.0f} errors on the way; every replica's answers had the trainer's bits.")  # fmt: skip


def page_text(runs):
    """Of several runs, one a model."""
    machines = dict.fromkeys(f"Machine: {one['machine']}" + (f" Beside it: {one['beside']}." if one["beside"] else "") for one in runs)
    return "\n\n".join(["By `bench/regions.py`. " + " ".join(machines), "\n".join([
        "| model | replica | round trip, loss, Mbit/s | a step: seconds until ready, median (most) | so many steps at once | a large step |", "|---|---|---|---|---|---|",
        *(row for one in runs for row in rows_of(one))]), *(told_of(one) for one in runs)])  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(ROOT / "models/countdown-glm"))
    parser.add_argument("--name", help="what the page calls the model; default: the folder's name")
    parser.add_argument("--rclone", default=str(ROOT / ".oracle/bin/rclone"))
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--share", type=float, default=0.004, help="of the weights that a step changes")
    parser.add_argument("--most", type=float, default=1.0, help="of the weights that change before the wire is cut")
    parser.add_argument("--cut", type=float, default=30, help="seconds")
    parser.add_argument("--cut-after", type=float, default=0, help="seconds after the first bytes of the far replica's download")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("--page", type=Path)
    parser.add_argument("--page-of", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--beside", default="", help="what else ran on the machine, for the page")
    options = parser.parse_args()
    if options.page_of:
        if not options.page:
            parser.error("--page-of without --page")
        write_between_marks(options.page, "bench/regions.py", page_text([json.loads(path.read_text()) for path in options.page_of]))
        return 0
    if options.short and options.page:
        parser.error("--short is refused with --page: its wires are not those of the page")
    wires = {"near": NEAR, "far": FAR}
    if options.short:
        options.steps, options.cut, wires = 3, 3, FAST
    if not WIRE.exists() or not PROGRAM.exists():
        print(f"regions: there is no {WIRE if not WIRE.exists() else PROGRAM}; ./setup --tests builds it")
        return 1
    try:
        if not Path(options.rclone).exists():
            raise CannotRun(f"there is no {options.rclone} (./setup --oracle fetches it)")
        regions = Regions(wires, options.seed)
    except CannotRun as why:
        print(f"regions: cannot be run here: {why}")
        return 3
    with tempfile.TemporaryDirectory(prefix="lockstep-regions-") as work:
        try:
            found = measured(options, regions, Path(work), wires)
        finally:
            carried = regions.close()
    found["wires"] = carried
    print(json.dumps(found, indent=1))
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1) + "\n")
    wrong = faults_of(found)
    if options.page and not wrong:
        write_between_marks(options.page, "bench/regions.py", page_text([found]))
    for one in wrong:
        print(f"regions: {one}")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
