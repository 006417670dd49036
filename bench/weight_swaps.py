#!/usr/bin/env python3
"""What a new snapshot costs a replica that answers meanwhile (docs/weight-sync.md): the pause of a swap, with `--swap-memory double` and `single`, and the
memory that it takes; ten versions that are pushed one after another, until two replicas have the last; and the time from the end of `optim_step` in a
trainer's process to the first token of the new weights in a replica's.

    .oracle/bin/python bench/weight_swaps.py [--models FOLDER] [--swaps 5] [--json FILE] [--page docs/weight-sync.md [--beside TEXT]]

Measures the shipped model and, with --models, SmolLM2-135M in FOLDER/bf16 (tools/make_smollm2.py makes it there on first use). About four minutes. A step
changes 0.4 % of each tensor's weights, as one at a learning rate of 1e-6 does. Pauses are what the replica says of itself (lockstep_sync_swap_seconds) and
the longest gap between two tokens of a stream while snapshots come; memory is the process's, its peak reset before each swap (root; else 0 is said).
--page: writes the figures between the marks there. The exit code is 1 where an answer has other bits than the weights that it names."""
import argparse
import http.client
import json
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/training"))
from marked_page import write_between_marks  # noqa: E402
from regions import stepped  # noqa: E402
from started_server import StartedServer  # noqa: E402
from write_performance import binary, machine, version  # noqa: E402

VERSIONS = 10
PROMPT = {"prompt": [1, 5, 7, 9], "max_tokens": 8, "temperature": 1, "seed": 5, "logprobs": 0, "ignore_eos": True}
STREAMED = 300  # tokens of a stream, which another follows
NAME = "policy"
TOLD_BYTES = 50e6  # of weights; of fewer the process's other memory is most of what changes


def lockstep(*words):
    done = subprocess.run([binary(), *map(str, words)], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"weight_swaps: {words[:2]}: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


class Server(StartedServer):
    def __init__(self, *words):
        command = [binary(), "serve", "--port", "0", "--no-access-log", "--log-level", "error", "--name", NAME, *map(str, words)]
        super().__init__(command, stderr=subprocess.DEVNULL)

    def open(self, path, body=None):
        connection = http.client.HTTPConnection(self.address, timeout=120)
        connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status} {answer.read().decode()[:500]}")
        return answer

    def ask(self, path, body=None):
        return self.open(path, body).read().decode()

    def figures(self):
        return {m[1]: float(m[2]) for m in re.finditer(r"^(lockstep_sync_\w+) (\S+)$", self.ask("/metrics"), re.M)}

    def load(self, identity):
        """A hot load; the seconds until the replica is ready."""
        began = time.perf_counter()
        told = json.loads(self.ask("/hot_load/v1/models/hot_load", {"identity": identity}))
        if not told["ready"]:
            raise RuntimeError(f"the replica did not take {identity}: {told}")
        return time.perf_counter() - began

    def told(self):
        answer = json.loads(self.ask("/v1/completions", PROMPT))
        choice = answer["choices"][0]
        return choice["token_ids"], choice["logprobs"]["token_logprobs"]

    def reset_peak(self):
        try:
            Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")
            return True
        except OSError:
            return False


class Stream(threading.Thread):
    """Streams one after another from a server; when each token came."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.over, self.gaps, self.failed = server, threading.Event(), [], None  # gaps: (when it ended, seconds)

    def run(self):
        try:
            seed = 0
            while not self.over.is_set():
                seed += 1
                last = None
                for line in self.server.open("/v1/completions", {**PROMPT, "max_tokens": STREAMED, "seed": seed, "stream": True}):
                    if not line.startswith(b"data: {"):
                        continue
                    now = time.perf_counter()
                    if last is not None:
                        self.gaps.append((now, now - last))
                    last = now
                    if self.over.is_set():
                        break
        except Exception as why:  # told by whoever waits for it
            self.failed = why

    def between(self, begin, end):
        return [gap for at, gap in self.gaps if begin <= at <= end]


def bytes_of(folder):
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def ten_versions(model, work, store):
    """Pushes ten steps while two replicas follow. What was pushed, and the seconds until both have the last."""
    folders = [stepped(model, work / "step-1", 0.004, 1)]
    for number in range(2, VERSIONS + 1):
        folders.append(stepped(folders[-1], work / f"step-{number}", 0.004, number))

    def push(folder, *more):
        return lockstep("snapshot", "push", folder, store, "--channel", "ten", "--profile", "cpu-bf16w", "--json", *more)

    ids = [push(model, "--parent", "none")["id"]]
    with Server("--model", model, "--follow", f"{store}/ten", "--replica", "a") as a, Server("--model", model, "--follow", f"{store}/ten", "--replica", "b") as b:
        def wait(sequence):
            while any(one.figures()["lockstep_sync_current_sequence"] < sequence for one in (a, b)):
                time.sleep(0.01)

        wait(1)
        began, before, told = time.perf_counter(), model, []
        for folder in folders:
            told.append(push(folder, "--base", before))
            ids.append(told[-1]["id"])
            before = folder
        pushed = time.perf_counter() - began
        wait(1 + VERSIONS)
        seconds = time.perf_counter() - began
        answers = a.told(), b.told()
    with Server("--model", folders[-1]) as alone:
        if any(answer != alone.told() for answer in answers):
            sys.exit("weight_swaps: a replica's answer is not that of its weights")
    return ids, {"versions": VERSIONS, "seconds": seconds, "pushing": pushed, "bytes": statistics.mean(one["payload_bytes"] for one in told)}


def swaps_of(model, store, ids, memory, count):
    with Server("--model", model, "--follow", f"{store}/{memory}", "--replica", memory, "--swap-memory", memory) as server:
        server.load(ids[0])  # its own weights
        alone = server.told()
        stream = Stream(server)
        stream.start()
        begin = time.perf_counter()
        time.sleep(4)
        quiet = stream.between(begin + 1, time.perf_counter())
        before = server.memory("VmRSS")
        resets = server.reset_peak()
        found, peak = {"ready": [], "swap": [], "gap": []}, before
        for identity in ids[1 : count + 1]:
            began = time.perf_counter()
            found["ready"].append(server.load(identity))
            found["swap"].append(server.figures()["lockstep_sync_swap_seconds"])
            time.sleep(0.5)
            found["gap"].append(max(stream.between(began, time.perf_counter()), default=0.0))
            peak = max(peak, server.memory("VmHWM"))
            server.reset_peak()
        stream.over.set()
        stream.join(60)
        if stream.failed:
            sys.exit(f"weight_swaps: the stream broke: {stream.failed}")
        if server.told() == alone:
            sys.exit("weight_swaps: the swaps changed no bit of an answer: nothing is measured")
    size = bytes_of(model)
    return {"step_seconds": statistics.median(quiet), "longest_quiet_gap": max(quiet), "memory_ratio": 1 + (peak - before) / size if resets else 0.0, "process_bytes": peak,
            **{f"{name}_seconds": values for name, values in found.items()}}  # fmt: skip


def first_token(model, work, count):
    """A trainer with the unmodified client, and a replica: from the end of optim_step on, until the save is answered, the replica is ready, and a first token came."""
    from fireworks_tools import TOKENS, datum
    from fireworks.training.sdk import FiretitanServiceClient
    from fireworks.training.sdk import types

    rows = []
    with Server("--model", model, "--training", "--state", work / "state", "--publish", f"{work}/published/chat") as trainer:
        client = FiretitanServiceClient(base_url=trainer.url, api_key="bench").create_training_client(base_model=NAME)
        with Server("--model", model, "--follow", f"{work}/published/chat", "--replica", "r") as replica:
            for step in range(count + 1):
                client.forward_backward([datum(TOKENS)], "cross_entropy").result()
                client.optim_step(types.AdamParams(learning_rate=1e-6)).result()
                began = time.perf_counter()
                identity = client.save_weights_for_sampler_ext(f"step-{step}").snapshot_name
                saved = time.perf_counter() - began
                replica.load(identity)
                ready = time.perf_counter() - began
                answer = json.loads(replica.ask("/inference/v1/completions", {"model": NAME, "prompt": TOKENS[:4], "max_tokens": 1}))
                if not answer["model"].endswith("@" + identity):
                    sys.exit(f"weight_swaps: the replica answers as {answer['model']}, expected {identity}")
                rows.append({"saved": saved, "ready": ready, "token": time.perf_counter() - began})
    return rows[1:]  # the first snapshot is a whole one


def measured(model, options):
    with tempfile.TemporaryDirectory(prefix="lockstep-swaps-") as folder:
        work = Path(folder)
        store = work / "store"
        ids, ten = ten_versions(model, work, store)
        for step in work.glob("step-*"):
            subprocess.run(["rm", "-r", str(step)], check=True)
        found = {"bytes": bytes_of(model), "ten": ten, **{memory: swaps_of(model, store, ids, memory, options.swaps) for memory in ("double", "single")}}
        found["first_token"] = first_token(model, work, options.swaps)
        return found


def page_text(found):
    def middle(values, unit="s"):
        scale, digits = (1000, 1) if unit == "ms" else (1, 2)
        return f"{scale * statistics.median(values):.{digits}f} ({scale * max(values):.{digits}f}) {unit}"

    models = found["models"]
    sizes = ", ".join("{:.2f} % of the bytes of {} ({:.1f} MB)".format(100 * m["ten"]["bytes"] / m["bytes"], name, m["bytes"] / 1e6) for name, m in models.items())
    lines = [f"Measured by `bench/weight_swaps.py`, {found['version']}; median (most) of {found['swaps']} swaps, which come while one stream is answered. A step changes {sizes}.", "",
             f"Machine: {found['machine']}" + (f" Beside it: {found['beside']}." if found["beside"] else ""), "", "| | " + " | ".join(models) + " | aim |", "|---" * (len(models) + 2) + "|"]  # fmt: skip
    rows = [("a token of that stream without swaps", lambda m: "{:.1f} ms".format(1000 * m["double"]["step_seconds"]), "")]
    for memory, aim in (("double", "a step of the engine"), ("single", "1 s a GB")):
        rows += [(f"`{memory}`: the swap, its wait for the running step included", lambda m, k=memory: middle(m[k]["swap_seconds"], "ms"), aim),
                 (f"`{memory}`: a GB of weights", lambda m, k=memory: f"{statistics.median(m[k]['swap_seconds']) / (m['bytes'] / 1e9):.2f} s" if m["bytes"] > TOLD_BYTES else "", ""),
                 (f"`{memory}`: longest gap between tokens while a snapshot is read, applied and swapped", lambda m, k=memory: middle(m[k]["gap_seconds"], "ms"), ""),
                 (f"`{memory}`: signal until ready", lambda m, k=memory: middle(m[k]["ready_seconds"]), ""),
                 (f"`{memory}`: most memory, of the weights", lambda m, k=memory: f"{m[k]['memory_ratio']:.2f}" if m["bytes"] > TOLD_BYTES else "", {"double": "2.1", "single": "1.1"}[memory])]  # fmt: skip
    rows += [("ten versions pushed, until two replicas have the last", lambda m: "{seconds:.2f} s ({pushing:.2f} of them pushing)".format(**m["ten"]), "10 s"),
             ("end of `optim_step` until its save is answered", lambda m: middle([r["saved"] for r in m["first_token"]]), ""),
             ("until the replica is ready", lambda m: middle([r["ready"] for r in m["first_token"]]), ""),
             ("until a first token of another process's replica", lambda m: middle([r["token"] for r in m["first_token"]]), "1 s")]  # fmt: skip
    return "\n".join([*lines, *(f"| {name} | " + " | ".join(of(m) for m in models.values()) + f" | {aim} |" for name, of, aim in rows)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, help="where SmolLM2's folder is, or is made")
    parser.add_argument("--swaps", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--beside", default="", help="what else ran on the machine, for the page")
    options = parser.parse_args()
    if not 1 <= options.swaps <= VERSIONS:
        parser.error(f"--swaps is {options.swaps}, allowed are 1 to {VERSIONS}")
    models = {"countdown-glm": ROOT / "models/countdown-glm"}
    if options.models:
        models["SmolLM2-135M"] = options.models.resolve() / "bf16"
        if not models["SmolLM2-135M"].is_dir():
            subprocess.run([sys.executable, str(ROOT / "tools/make_smollm2.py"), str(options.models), "--dtype", "bf16"], check=True)
    found = {"machine": machine(), "version": version().split("\n")[0], "swaps": options.swaps, "beside": options.beside, "models": {name: measured(folder, options) for name, folder in models.items()}}
    print(json.dumps(found, indent=1))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    if options.page:
        write_between_marks(options.page, "bench/weight_swaps.py", page_text(found))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
