"""Servers on given options for server_effects.py, and the files that rows of options name."""
import concurrent.futures
import contextlib
import http.client
import itertools
import json
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

from harness import BINARY, MODEL, TMP, done

PLACE = itertools.count()
FILES = TMP / "files"
ANN, BOB = "key-of-ann-0123456789", "key-of-bob-0123456789"
TOKENS = [1, 5, 7, 9, 11, 13, 8, 6, 3, 2]
PROMPT = "3 7 12=48:"
EVENTUALLY = 1.5  # seconds after which an effect's absence is believed
SURELY = 20  # seconds within which what must come has come, on a machine with other work too


NO = "NO"  # the option is left out
# How a command ends that was stopped because it had not ended itself.
GOES_ON = "goes on"


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


PORT, PAGE_PORT, WATCH_PORT = free_port(), free_port(), free_port()


def furnish():
    """The files that rows name: the shipped model in other forms, a store whose channel has two snapshots, keys, templates, an adapter."""
    FILES.mkdir()
    turn = "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}={% endif %}"
    (FILES / "plain.jinja").write_text(turn)
    (FILES / "tools.jinja").write_text("{% if tools %}{{ tools[0].function.name }}{% endif %}" + turn)
    (FILES / "keys.txt").write_text(f"ann {ANN}\nbob {BOB}\n")
    (FILES / "gate.toml").write_text('texts = "gate.jsonl"\n')
    (FILES / "failing.toml").write_text('texts = "gate.jsonl"\ndigests = true\n')  # a folder is of no snapshot
    (FILES / "hosts").write_text("a slots=2\nb\nc\n")
    (FILES / "parity.json").write_text('{"passed": true}')
    (FILES / "gate.jsonl").write_text('{"text": "3 7 12=48:"}\n')
    (FILES / "shapes.toml").write_text('[[shape]]\nid = "mine"\nmodel = "qwen3-8b"\nmode = "policy"\ncontext = 1024\naccelerator = "NVIDIA_B200_180GB"\naccelerators = 1\nsource = "measured"\n')
    (FILES / "roofline.json").write_text(json.dumps({"kind": "roofline", "points": [{"threads": 1, "gigaflops": 12345, "gigabytes_per_second": 123}]}))
    for name, first_byte in (("moved", 1000), ("moved-further", 2000)):
        shutil.copytree(MODEL, FILES / name)
        file = next((FILES / name).glob("*.safetensors"))
        values = bytearray(file.read_bytes())
        at = 8 + int.from_bytes(values[:8], "little") + first_byte
        for i in range(at, at + 400, 4):
            values[i] ^= 1
        file.write_bytes(values)
    shutil.copytree(MODEL, FILES / "cool")
    (FILES / "cool/generation_config.json").write_text(json.dumps({"temperature": 0.1, "eos_token_id": 102}))
    # The channel as it was with the first snapshot, and with both: who follows a copy of the first is led to the second by its channels' files.
    done("snapshot", "push", str(FILES / "moved"), str(FILES / "store"), "--channel=chat", "--profile=cpu-bf16w", "--quiet")
    shutil.copytree(FILES / "store", FILES / "later")
    done("snapshot", "push", str(FILES / "moved-further"), str(FILES / "later"), "--channel=chat", "--parent=chat", "--profile=cpu-bf16w", "--quiet")
    words = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    subprocess.run(["openssl", *words, "-keyout", FILES / "key.pem", "-out", FILES / "certificate.pem"], check=True, capture_output=True)
    (FILES / "my.jsonl").write_text('{"prompt": "3 7 12=22:", "completion": "3+7=10,10+12=22"}\n' * 4)
    subprocess.run([BINARY, "train", "sft", f"--model={MODEL}", f"--data={FILES}/my.jsonl", "--name=r", "--steps=1", "--batch=2", "--adapter-rank=2", "--eval-share=0", "--no-page", "--quiet"], cwd=FILES, check=True, capture_output=True)
    shutil.copytree(FILES / "runs/r/export", FILES / "adapters/one")


class Server:
    """A server on these options, in a folder of its own; `ended` is its exit code and words where it did not start."""

    def __init__(self, options):
        self.folder = TMP / "servers" / str(next(PLACE))
        self.folder.mkdir(parents=True)
        options = {"model": MODEL, "threads": 1, "port": 0, **options}
        for name, source in options.pop("copy", {}).items():
            shutil.copytree(source, self.folder / name)
        if there := options.pop("there", None):
            (self.folder / there).write_text("somebody's")
        line = [str(BINARY), "serve"]
        for name, value in options.items():
            for one in value if isinstance(value, list) else [value]:
                line += [f"--{name}"] if one is True else [f"--no-{name}"] if one is False else [f"--{name}={one}"] if one is not None else []
        self.options = set(options)
        self.log = self.folder / "log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(line, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True)
        self.first = self.process.stdout.readline()
        self.ended = None
        if not (found := re.fullmatch(r"listening on (https?)://(\S+):(\d+)\n", self.first)):
            self.ended = (self.process.wait(60), self.log.read_text()[-300:])
            return
        self.scheme, self.host, self.port = found[1], found[2], int(found[3])
        self.sentence = self.process.stdout.readline()
        self.name = Path(options["model"]).name
        self.numbers = {}

    def ask(self, method, path, body=None, headers=None, timeout=30):
        """Status, answer (JSON where it is), headers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
            connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {"X-API-Key": "tml-one"})})
            reply = connection.getresponse()
            text = reply.read().decode(errors="replace")
            with contextlib.suppress(ValueError):
                text = json.loads(text)
            return reply.status, text, reply.headers
        finally:
            connection.close()

    def complete(self, headers=None, **fields):
        return self.ask("POST", "/v1/completions", {"model": self.name, "prompt": PROMPT, "max_tokens": 12, "seed": 3, **fields}, headers)

    def metric(self, name, label=""):
        """The sum of the metric over its labels, or over those with this one."""
        text = self.ask("GET", "/metrics")[1]
        return sum(float(value) for labels, value in re.findall(rf"^{name}(\{{.*\}})? (\S+)$", text, re.M) if label in labels)

    # The training API.
    def call(self, route, **fields):
        return self.ask("POST", "/api/v1/" + route, fields)[1]

    def result(self, answer):
        if "request_id" not in answer:
            return answer
        while True:
            status, told, _ = self.ask("POST", "/api/v1/retrieve_future", {"request_id": answer["request_id"]}, timeout=60)
            if status != 408:
                return told

    def made(self, number=0, rank=2):
        if not hasattr(self, "session"):
            self.session = self.call("create_session", tags=[], user_metadata={})["session_id"]
        told = self.result(self.call("create_model", session_id=self.session, model_seq_id=number, base_model="countdown-glm", lora_config={"rank": rank, "seed": 5}))
        return told.get("model_id", told)

    def do(self, model, route, wait=True, **fields):
        number = self.numbers[model] = self.numbers.get(model, 0) + 1
        answer = self.call(route, model_id=model, seq_id=number, **fields)
        return self.result(answer) if wait else answer

    def backward(self, model, tokens=TOKENS, wait=True):
        return self.do(model, "forward_backward", wait, forward_backward_input={"data": [datum(tokens)], "loss_fn": "cross_entropy"})

    def stop(self):
        if self.ended is None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise
        return self.process.wait()


def datum(tokens):
    return {"model_input": {"chunks": [{"type": "encoded_text", "tokens": tokens[:-1]}]}, "loss_fn_inputs": {"target_tokens": {"dtype": "int64", "data": tokens[1:]}}}


def patience(s, *names):
    """How long an effect of one of these options is waited for: where none is given, until its absence is believed."""
    return SURELY if s.options & set(names) else EVENTUALLY


def until(look, seconds=EVENTUALLY):
    """The first true value of look(), or its last one."""
    end = time.monotonic() + seconds
    while not (seen := look()) and time.monotonic() < end:
        time.sleep(0.03)
    return seen


def names(folder):
    return sorted(re.sub(r"[0-9a-f]{8,}|\d+", "N", str(path.relative_to(folder))) for path in folder.rglob("*"))


BEFORE, LOCK = {}, threading.Lock()


def once(before, key, make):
    """What make() returned, the first time that it was asked for."""
    with LOCK:
        future = before.get(key)
        mine = future is None
        if mine:
            future = before[key] = concurrent.futures.Future()
    if mine:
        try:
            future.set_result(make())
        except Exception as error:  # noqa: BLE001 it is of all who ask
            future.set_exception(error)
    return future.result()
