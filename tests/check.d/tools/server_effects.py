"""Every option of servers and of what asks them (serve, watch, deploy, rollback, fleet), of launch, doctor and demo has an effect, is refused, or stands in
LATER with the reason why no moment shows it and the test that does.

A row of `serve` gives the option a value and a question. Two servers that differ in this option alone are asked; their answers differ, or, of those that
change no result (HARMLESS), are equal. A server that does not start answers with its exit code. A row of another command gives the option a value; what
the command says and leaves behind differs from the same without it. An option without a row fails.
"""
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
import sys
import threading
import time
from pathlib import Path

from harness import BINARY, MODEL, ROOT, TMP, check, done, instruction_sets

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


# What a server is asked.
def answer(s):
    choice = s.complete(temperature=1, logprobs=0)[1]["choices"][0]
    return choice["text"], choice["logprobs"]["token_logprobs"]


def wild(s):
    return s.complete(temperature=2, max_tokens=60, ignore_eos=True)[1]["choices"][0]["text"]


def unsaid(s):
    return [s.complete(seed=seed, max_tokens=20)[1]["choices"][0]["text"] for seed in range(4)]


def longest(s):
    status, told, _ = s.complete(max_tokens=100, ignore_eos=True)
    return status, told.get("usage")


def models(s):
    return [one["id"] for one in s.ask("GET", "/v1/models")[1]["data"]]


def as_chat(s):
    s.name = "chat"
    return s.complete()[0]


def aliases(s):
    return s.ask("GET", "/v1/aliases")[1]


def deployed(s, **headers):
    return s.ask("POST", "/v1/deployments", {"name": "second", "source": "moved"}, headers)[0]


def kept(s):
    deployed(s)
    return names(s.folder)


def asleep(s):
    return bool(until(lambda: s.metric("lockstep_deployment_asleep"), patience(s, "scale-to-zero-minutes")))


def woken(s):
    asleep(s)
    s.name = "second"
    return s.complete()[0]


def chat(s, **fields):
    status, told, _ = s.ask("POST", "/v1/chat/completions", {"model": s.name, "messages": [{"role": "user", "content": "3 7"}], "max_tokens": 300, "seed": 3, "temperature": 1, **fields})
    return status, told.get("usage"), [choice["message"] for choice in told.get("choices", [])]


def tools(s, **fields):
    status, usage, messages = chat(s, tools=[{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}}], **fields)
    return status, usage


def forced(s):
    return tools(s, tool_choice="required")


def loaded(s):
    return s.ask("POST", "/v1/load_lora_adapter", {"lora_name": "second", "lora_path": "one"})[0]


def beside(s):
    """New names in the folders, once they are there; of a server that follows nothing nothing is waited for long."""
    return names(s.folder) if until(lambda: len(names(s.folder)) > s.files, patience(s, "follow", "deploy-follow")) else []


def spare(s):
    return s.metric("lockstep_memory_claimed_bytes", 'category="spare weights"')


def led_on(s):
    """The channel goes to the next snapshot while an answer is written: the snapshots that its first and last tokens are of."""
    have = lambda: s.complete(max_tokens=1)[1].get("snapshot")  # noqa: E731
    first = until(have, SURELY)
    told = []

    def listen():
        for number in range(3):
            told.append(s.complete(max_tokens=480, ignore_eos=True, n=24, temperature=1, prompt="3 7"))

    thread = threading.Thread(target=listen)
    thread.start()
    until(lambda: s.metric("lockstep_sequences_running"), SURELY)
    shutil.copytree(FILES / "later", s.folder / "store", dirs_exist_ok=True)
    until(lambda: have() not in (None, first), 20)
    thread.join()
    return s.metric("lockstep_engine_mixed_version_tokens_total") > 0


def ready(s):
    """What a hot load of the snapshot that is there says; it waits until enough replicas have it."""
    return hot_load(s, until(lambda: s.complete(max_tokens=1)[1].get("snapshot"), SURELY), 5)


def hot_load(s, identity="moved-further", seconds=SURELY, **headers):
    try:
        return s.ask("POST", "/hot_load/v1/models/hot_load", {"identity": identity}, headers, timeout=seconds)[0]
    except TimeoutError:
        return "waits"


def page(s):
    return s.ask("GET", "/api/runs")[1]


def stored(s):
    return s.ask("GET", "/store/channels/chat.json")[0]


def two(s):
    return s.complete(n=2)[0]


def limit(s):
    return s.metric("lockstep_memory_limit_bytes")


def pages(s):
    return s.metric("lockstep_cache_pages")


def cached(s):
    """What bob's prompt, which ann has asked before, finds in the cache."""
    told = [s.complete({"Authorization": f"Bearer {key}"}, prompt=PROMPT * 4)[1] for key in (ANN, BOB)]
    return (told[1]["usage"].get("prompt_tokens_details") or {}).get("cached_tokens")


def held_back(s):
    live = threading.Thread(target=lambda: s.complete(max_tokens=200, ignore_eos=True, temperature=1))
    rollouts = threading.Thread(target=lambda: s.complete(max_tokens=100, ignore_eos=True, temperature=1, n=16, service_tier="flex"))
    for thread in (live, rollouts):
        thread.start()
    live.join()
    rollouts.join()
    return s.metric("lockstep_engine_held_back_forwards_total") > 0


def place(s):
    return s.host


def door(s):
    return s.port


def unnamed(s):
    return s.complete()[0]


def said_scheme(s):
    return s.scheme


def friend(s):
    return s.ask("OPTIONS", "/v1/completions", headers={"Origin": "https://friend.example", "Access-Control-Request-Method": "POST"})[2].get("Access-Control-Allow-Origin")


def called(s):
    return s.ask("GET", "/v1/models", headers={"Host": "rebound.example"})[0]


def second_connection(s):
    with socket.create_connection(("127.0.0.1", s.port), 5):
        time.sleep(0.1)
        try:
            return s.ask("GET", "/healthz", timeout=1)[0]
        except (OSError, http.client.HTTPException):
            return "closed"


def large(s, bytes_of_body=2000):
    try:
        return s.complete(prompt=" " * bytes_of_body)[0]
    except OSError:  # it closed before it had read everything
        return "closed"


def megabytes(s):
    return large(s, 3 << 20)


def silent(s):
    """Whether one is dropped that asks for megabytes and reads none of them."""
    body = json.dumps({"model": s.name, "prompt": PROMPT, "n": 64, "logprobs": 5, "ignore_eos": True, "stream": True, "max_tokens": 200, "temperature": 1}).encode()
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", s.port))
        connection.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        return until(lambda: s.metric("lockstep_http_connections") == 1, patience(s, "max-held-bytes", "max-pending-bytes", "write-seconds"))  # that which asks


def closed(s, data=b""):
    """Whether the server ends a connection on which no more comes."""
    with socket.create_connection(("127.0.0.1", s.port), 5) as connection:
        connection.sendall(data)
        connection.settimeout(EVENTUALLY)
        try:
            return connection.recv(4096)[:12]
        except TimeoutError:
            return "open"


def half(s):
    return closed(s, b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")


def log(s):
    s.complete()
    time.sleep(0.1)
    return [re.sub(r"\d+(\.\d+)?", "N", line) for line in s.log.read_text().splitlines()]


def draining(s):
    s.process.send_signal(signal.SIGTERM)
    time.sleep(0.15)
    try:
        return s.ask("GET", "/readyz", timeout=1)[0]
    except (OSError, http.client.HTTPException):
        return "closed"


def cut(s):
    """How an answer ends that is written when the server stops."""
    told = []
    thread = threading.Thread(target=lambda: told.append(s.complete(max_tokens=480, ignore_eos=True, n=48, temperature=1)[0]))
    thread.start()
    until(lambda: s.metric("lockstep_sequences_running"), SURELY)
    s.process.send_signal(signal.SIGTERM)
    thread.join()
    return told


def ending(s):
    s.complete()
    s.stop()
    text = s.log.read_text()
    return "limit: 12345.0 GFLOP/s" in text, "attention" in text, names(s.folder)


def session(s):
    return s.ask("POST", "/api/v1/create_session", {"tags": [], "user_metadata": {"note": "x" * 3000}})[0]


def config(s):
    return s.call("client/config")


def capabilities(s):
    return s.ask("GET", "/api/v1/get_server_capabilities")[1]


def shape(s):
    return s.ask("GET", "/v1/accounts/local/trainingShapes/mine/versions/1")[0]


def rested(s):
    for number in range(2):
        s.made(number)
    return s.metric("lockstep_training_models_rested_total") > 0


def whole_gradient(s):
    return "error" in s.backward(s.made(rank=0))


def saved(s):
    return "error" in s.do(s.made(rank=0), "save_weights", path="mine")


def gap(s):
    model = s.made()
    s.numbers[model] = 1  # the first never comes
    answer = s.backward(model, wait=False)
    time.sleep(1.3)
    try:
        return s.ask("POST", "/api/v1/retrieve_future", {"request_id": answer["request_id"]}, timeout=EVENTUALLY)[0]
    except TimeoutError:
        return "waits"


def snapshots(s):
    model = s.made(rank=0)
    for _ in range(2):
        s.do(model, "save_weights_for_sampler")
    return until(lambda: names(s.folder / "state/samplers") if (s.folder / "state/samplers").exists() else [])


def unnamed_files(s):
    s.made()
    links = [str(one.readlink()) for one in Path(f"/proc/{s.process.pid}/fd").iterdir()]
    return any("/state/" in link and "(deleted)" in link for link in links)


def shared(s):
    all_of = [s.made(number) for number in range(3)]

    def together():
        asked = [s.backward(model, TOKENS * 20, wait=False) for model in all_of]
        for one in asked:
            s.result(one)
        return s.metric("lockstep_training_shared_passes_total")

    return until(together, 3) > 0


def reused(s):
    s.do(s.made(), "forward", forward_input={"data": [datum(TOKENS)], "loss_fn": "cross_entropy"})
    return s.metric("lockstep_training_forwards_kept_total")


def rows(s):
    model = s.made()
    sampler = s.do(model, "save_weights_for_sampler")["sampling_session_id"]
    told = s.result(s.call("asample", sampling_session_id=sampler, seq_id=0, num_samples=16, prompt={"chunks": [{"type": "encoded_text", "tokens": TOKENS * 12}]}, sampling_params={"max_tokens": 30, "seed": 3, "stop": []}))
    s.backward(model, TOKENS * 12)
    assert told
    return [s.metric(f"lockstep_training_rows_{what}_total") > 0 for what in ("kept", "read", "dropped", "compared")]


def published(s):
    """The channel's record once a sampler's checkpoint is deployed; empty: there is none."""
    s.do(s.made(), "save_weights_for_sampler", path="first")
    made = s.ask("POST", "/v1/accounts/local/deployments?deploymentId=one", {"baseModel": "countdown-glm"})
    until(lambda: hot_load(s, "first", EVENTUALLY, **{"X-API-Key": "tml-one", "fireworks-deployment": "accounts/local/deployments/one"}) == 200, SURELY)
    record = s.folder / "out/channels/chat.json"
    return json.loads(record.read_text()).get("transition") if until(record.exists) else (made[0], [])


def percent(s):
    return s.ask("GET", "/metrics")[1].split("lockstep_device_share_percent{")[1][:200]


def start(s):
    return True


SECOND = {"deploy": f"second={FILES}/moved"}
FOLLOWS = {"follow": "store/chat", "copy": {"store": FILES / "store"}}
KEYS = {"api-key-file": FILES / "keys.txt"}
TRAINING = {"training": True, "state": "state"}
# (option, value, the question, what both servers have beside it)
ROWS = [
    ("model", None, start), ("profile", "cpu-f32", answer), ("mla-norm-eps", 0.5, answer), ("context", 40, longest), ("acceptance", "rejection", wild, {"speculate": "ngram"}),
    ("deploy", SECOND["deploy"], models), ("deploy-follow", "second", beside, {"deploy": "second=store/chat", "copy": FOLLOWS["copy"]}), ("route", "chat=countdown-glm:1", as_chat),
    ("route-gate", f"chat={FILES}/gate.toml", aliases, {"route": "chat=second:1", "deploy": "second=store/chat", "deploy-follow": "second", "copy": FOLLOWS["copy"]}), ("deploy-folder", FILES, deployed), ("deploy-state", "kept", kept, {"deploy-folder": FILES}),
    ("scale-to-zero-minutes", 0.002, asleep, SECOND), ("cold-start-seconds", 30, woken, SECOND | {"scale-to-zero-minutes": 0.002}),
    ("admin", "ann", lambda s: deployed(s, Authorization=f"Bearer {ANN}"), KEYS | {"deploy-folder": FILES}), ("name", "other", models), ("chat-template", FILES / "plain.jinja", chat),
    ("message-format", "kimi", forced, {"chat-template": FILES / "tools.jinja"}), ("tool-format", "llama", tools, {"chat-template": FILES / "plain.jinja"}),
    ("generation-config", "none", unsaid, {"model": FILES / "cool"}), ("frozen-base", "int4", answer), ("frozen-layers", "experts", answer, {"frozen-base": "int4"}),
    ("adapter", f"mine={FILES}/adapters/one", models), ("adapter-folder", FILES / "adapters", loaded), ("max-adapters", 1, loaded, {"adapter-folder": FILES / "adapters", "adapter": f"mine={FILES}/adapters/one"}),
    ("follow", "store/chat", beside, {"copy": FOLLOWS["copy"]}), ("swap-memory", "single", spare, FOLLOWS), ("in-flight", "finish", led_on, FOLLOWS), ("quorum", 2, ready, FOLLOWS),
    ("replica", "other", beside, FOLLOWS), ("hot-load-folder", FILES, hot_load, FOLLOWS), ("runs", FILES / "runs", page), ("store", FILES / "store", stored), ("max-open", 1, two),
    ("memory-megabytes", 700, limit), ("cache-megabytes", 1, pages), ("share-prefixes", "all", cached, KEYS), ("live-token-ms", 0.01, held_back), ("host", "127.0.0.2", place),
    ("port", PORT, door), ("api-key-file", KEYS["api-key-file"], unnamed), ("insecure", True, start, {"host": "0.0.0.0"}),
    ("tls-certificate", FILES / "certificate.pem", said_scheme, {"tls-key": FILES / "key.pem"}), ("tls-key", FILES / "key.pem", said_scheme, {"tls-certificate": FILES / "certificate.pem"}),
    ("cors-origin", "https://friend.example", friend), ("allow-host", "rebound.example", called), ("max-connections", 1, second_connection), ("max-body-kilobytes", 1, large),
    ("body-megabytes", 1, megabytes), ("max-held-bytes", 1 << 20, silent), ("max-pending-bytes", 1024, silent), ("write-seconds", 0.1, silent), ("idle-seconds", 0.1, closed), ("body-seconds", 0.1, half),
    ("access-log", False, log), ("log-format", "json", log), ("drain-seconds", 2, draining), ("stop-seconds", 0, cut), ("profile-operations", True, ending),
    ("roofline", FILES / "roofline.json", ending, {"profile-operations": True}), ("trace", "trace.json", ending), ("overwrite", True, start, {"trace": "trace.json", "there": "trace.json"}),
    ("training", True, session), ("state", "elsewhere", lambda s: names(s.folder), {"training": True}), ("token-seconds", 60, config, TRAINING), ("alias", "another/name", capabilities, TRAINING),
    ("shapes", FILES / "shapes.toml", shape, TRAINING), ("max-models", 1, rested, TRAINING), ("gradient-megabytes", 1, whole_gradient, TRAINING),
    ("key-share", 1, whole_gradient, TRAINING | {"gradient-megabytes": 40}), ("metadata-kilobytes", 1, session, TRAINING), ("checkpoint-megabytes", 1, saved, TRAINING), ("gap-seconds", 1, gap, TRAINING),
    ("sampler-megabytes", 0, snapshots, TRAINING), ("offload-optimizer", True, unnamed_files, TRAINING), ("separate-passes", True, shared, TRAINING), ("reuse-megabytes", 0, reused, TRAINING),
    ("keep-forward", "inputs", rows, TRAINING), ("keep-forward-megabytes", 1, rows, TRAINING | {"keep-forward": "all"}), ("verify-kept", 1, rows, TRAINING | {"keep-forward": "inputs"}),
    ("custom-loss", "client", config, TRAINING), ("publish", "out/chat", published, TRAINING), ("publish-transition", "staged", published, TRAINING | {"publish": "out/chat"}),
    ("shares", "live=10,rollouts=20,training=70", percent, TRAINING),
]  # fmt: skip
# Another value gives the same answer.
HARMLESS = {"threads": 2, "device": "cpu", "backend": "deferred", "isa": instruction_sets()[-2:][0], "ranks": "tp=2", "transport": "threads", "speculate": "ngram", "draft-tokens": 2}
# What no moment shows, why, and the test that shows it.
LATER = {
    "session-days": ("the shortest is a day", "host/training_service_test.cpp: session_seconds"),
    "session-idle-minutes": ("the shortest is a minute", "host/resting_test.cpp: session_idle_seconds"),
    "sampler-hours": ("the shortest is an hour", "host/training_service_test.cpp: sampler_seconds"),
    "downloads": ("it is of a store behind a network", "tests/api/test_fleet.py: --downloads"),
    "rank-timeout": ("a process has to be silent, over Open MPI", "tests/check.d/tools/mpi_serve.py: rank_timeout"),
}


def seen(options, question):
    server = Server(options)
    try:
        if server.ended:
            return "ended", *server.ended
        server.files = len(names(server.folder))
        return question(server)
    except Exception as error:  # noqa: BLE001 it is what was seen, and is told with the row
        return f"raised {error!r}"
    finally:
        server.stop()


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


def plain(options, question):
    """What a server on these options answers; one that was asked the same before is not asked again."""
    return once(BEFORE, (question, repr(sorted(options.items(), key=str))), lambda: seen(options, question))


def fault(row):
    """None, or what is wrong with an option."""
    name, value, question, *more = row
    began = time.monotonic()
    base = more[0] if more else {}
    if value is None:
        having, without = seen(base, question), seen({**base, name: None}, question)
    else:
        having, without = seen({**base, name: value}, question), plain(base, question)
    TOOK[name] = time.monotonic() - began
    if str(having).startswith("raised") or (having and having[0] == "ended" if isinstance(having, tuple) else False):
        return f"--{name} {value}: {having}"
    if str(without).startswith("raised"):
        return f"without --{name}: {without}"
    if name in HARMLESS and question is answer:
        return None if having == without else f"--{name} {value} changes a result: {having} and not {without}"
    return f"--{name} {value} has no effect: {str(having)[:300]}" if having == without else None


TOOK = {}


# Of other commands: (option, value, what both runs have beside it). `server`: the options of a server that both ask, a new one each.
CHAT = {"deploy-folder": FILES, "route": "chat=countdown-glm:1"}
TO_CHAT = {"to": "chat"}
MUTE = socket.create_server(("127.0.0.1", 0))  # takes connections, and never says a word
SILENT = {"url": f"http://127.0.0.1:{MUTE.getsockname()[1]}"}
OF_SERVER = [("url", NO), ("api-key", ANN, {"server": CHAT | KEYS | {"admin": "ann"}}), ("seconds", 1, SILENT), ("json", True)]
# Of the demo, whose runs take seconds, in one run: what shows each is seen by itself.
TOGETHER = {"json": "told.json", "runs": "elsewhere", "page": True, "page-port": PAGE_PORT}
SHOWS = {"json": lambda told: "told.json" in told[2], "runs": lambda told: "elsewhere/demo" in told[2], "page": lambda told: "a page: True" in told[1], "page-port": lambda told: "at its port: True" in told[1]}
LAUNCHED = ["--", "train", "sft", f"--model={MODEL}", "--environment=countdown", "--name=r", "--runs", FILES / "runs"]
NEW_RUN = [*LAUNCHED[:-1], "runs"]
OTHERS = {
    "deploy": ({"WORDS": ["moved"], "name": "second", "server": CHAT}, [("name", NO), ("to", "chat"), ("percent", 10, TO_CHAT), ("gate", FILES / "gate.toml", TO_CHAT), ("force", True, TO_CHAT | {"gate": FILES / "failing.toml"}), *OF_SERVER]),
    "rollback": ({"WORDS": ["chat"], "server": CHAT, "moved": True}, OF_SERVER),
    "fleet status": ({"WORDS": ["store/chat"], "server": FOLLOWS}, [("quorum", 2), ("json", True)]),
    "fleet watch": ({"WORDS": ["store/chat"], "server": FOLLOWS, "seconds": 0.1}, [("quorum", 2), ("json", True), ("until-ready", True, {"seconds": NO}), ("seconds", 0.2, {"seconds": NO})]),
    "watch": ({"WORDS": [FILES / "runs"], "port": 0}, [("run", FILES / "runs/r"), ("parity", FILES / "parity.json"), ("port", WATCH_PORT)]),
    "doctor": ({}, [("quick", True), ("json", True, {"quick": True}), ("threads", 1)]),
    "launch": ({"hosts": "a:2,b", "dry-run": True, "device": "h200", "TAIL": NEW_RUN}, [
        ("hosts", "a"), ("hosts-file", FILES / "hosts", {"hosts": NO}), ("ranks", "dp=2", {"device": NO}), ("device", "b200"), ("length", 100), ("network-gigabits", 0.01), ("mpirun", "/bin/false"), ("mpirun-word", "--one"),
        ("agent", "rsh"), ("resume-if-there", True, {"TAIL": LAUNCHED}), ("dry-run", NO, {"mpirun": "/bin/false", "hosts": "localhost"}), ("quiet", True, {"mpirun": "/bin/false", "hosts": "localhost", "dry-run": NO}),
        ("log-file", "told.jsonl", {"mpirun": "/bin/false", "hosts": "localhost", "dry-run": NO}), ("overwrite", True, {"mpirun": "/bin/false", "hosts": "localhost", "dry-run": NO, "log-file": "told.jsonl", "there": "told.jsonl"})]),
    "demo": ({"quick": True, "model": MODEL, "threads": 1, "page": False}, [
        ("quick", NO), *((name, value) for name, value in TOGETHER.items()), ("overwrite", True, {"json": "told.json", "there": "told.json"}), ("arms", "lockstep,split"), ("importance-cap", 0.5, {"arms": "lockstep,split"}), ("model", FILES / "moved"), ("profile", "cpu-f32"),
        ("mla-norm-eps", 0.5), ("context", 20), ("mtp-depths", 2, {"rollout-speculation": "mtp"})]),
}  # fmt: skip
# All at once change nothing of what the demo learns.
HARMLESS_OF_DEMO = {"threads": 2, "device": "cpu", "backend": "deferred", "isa": instruction_sets()[-2:][0], "ranks": "tp=2", "transport": "threads", "micro-batch": 8, "rollout-speculation": "ngram", "draft-tokens": 2}
LATER_OF = {
    "launch": {name: ("it is of what is lost, in the middle of a run", f"tests/check.d/tools/launch.py: --{name}") for name in ("restarts", "back-off", "take-back", "save-seconds")},
    "demo": {"rank-timeout": LATER["rank-timeout"]},
}


def run(command, options):
    """What the command says and leaves behind."""
    options = dict(options)
    words, tail, there, copy, asked, moved = (options.pop(name, None) for name in ("WORDS", "TAIL", "there", "copy", "server", "moved"))
    server = Server(asked) if asked else None
    folder = server.folder if server else TMP / "others" / str(next(PLACE))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        if there:
            (folder / there).write_text("somebody's")
        if server and command in ("deploy", "rollback"):
            options = {"url": f"http://127.0.0.1:{server.port}", **options}
        if server and "follow" in asked:
            until(lambda: b"ready" in subprocess.run([BINARY, "fleet", "status", "store/chat"], cwd=folder, capture_output=True).stdout.split(b"\n")[1], 10)
        if moved:
            subprocess.run([BINARY, "deploy", "moved", "--name=second", "--to=chat", f"--url=http://127.0.0.1:{server.port}"], cwd=folder, env={"LOCKSTEP_API_KEY": ANN} if "admin" in asked else {}, capture_output=True)
        line = [BINARY, *command.split(), *(words or [])] + [f"--{n}" if v is True else f"--no-{n}" if v is False else f"--{n}={v}" for n, v in options.items() if v != NO] + (tail or [])
        with (folder / "said").open("w") as said:
            process = subprocess.Popen([str(word) for word in line], cwd=folder, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        try:
            if command == "watch":
                return watched(process, folder / "said")
            status = process.wait(4 if NO in (options.get("quick"), options.get("seconds")) or options.get("url") == SILENT["url"] else 60)
        except subprocess.TimeoutExpired:
            status = GOES_ON
        finally:
            process.kill()
            process.wait()
        text = re.sub(r"(in )?\d+(\.\d+)? s\b|127\.0\.0\.1:\d+|\"(seconds|created|silent_seconds)\":\S+|[\d.]+ (GB/s|available)", "T", (folder / "said").read_text().replace(str(folder), "HERE"))
        if command == "demo":
            whole = (folder / "said").read_text()
            text = re.sub(r"^.*(seconds|sampling|training|evaluation|tokens/s|serving|live:).*$", "", text, flags=re.M) + f"a page: {'watch it live' in whole}, at its port: {f'live: http://127.0.0.1:{PAGE_PORT}' in whole}"
        return status, text, [] if server else names(folder)
    finally:
        if server:
            server.stop()


def run_before(command, base):
    return once(BEFORE, (command, repr(sorted(base.items(), key=str))), lambda: run(command, base))


def watched(process, said):
    """The address of the page, and what it shows."""
    port = until(lambda: re.search(r"http://127\.0\.0\.1:(\d+)", said.read_text()), 10)[1]

    def page_of(path):
        connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=10)
        connection.request("GET", path)
        return json.loads(connection.getresponse().read())

    shown = page_of("/api/runs")
    return port == str(WATCH_PORT), shown, [page_of(f"/api/runs/{one['name']}").get("parity") for one in shown["runs"]]


def fault_of(command, row):
    """None, or what is wrong with an option of another command."""
    name, value, *more = row
    base = OTHERS[command][0] | (more[0] if more else {})
    if "url" in base and name == "url":
        base = {k: v for k, v in base.items() if k != "url"}
    try:
        together = TOGETHER if command == "demo" and name in TOGETHER else {name: value}
        having, without = run_before(command, base | together), run_before(command, base)
    except Exception as error:  # noqa: BLE001 it is what was seen
        return f"{command} --{name} {value}: {error!r}"
    if command == "demo" and name in TOGETHER:
        return None if SHOWS[name](having) and not SHOWS[name](without) else f"demo --{name} {value} has no effect: {having}"
    if name == "context":
        return None if "the longest context 20" in having[1] and not without[0] else f"demo --context {value} has no effect: {having}"
    if value != NO and (having[0] == 2 or (command == "demo" and "weights of" not in having[1]) or (command in ("doctor", "launch") and having[0] and not without[0])):
        return f"{command} --{name} {value} is refused: {having[1][-300:]}"
    return f"{command} --{name} {value} has no effect: {str(having)[:600]}" if having == without else None


def hash_of_demo(**more):
    return re.search(r"^weights of .*$", run_before("demo", OTHERS["demo"][0] | more)[1], re.M)[0]


def options_of(command):
    return {o["name"][2:] for o in json.loads(done(*command.split(), "--help=json").stdout)["options"] if o["name"].startswith("--")} - {"log-level"}


def wrong_list(command, rows, later):
    """Options without a row, and rows without an option."""
    known = options_of(command)
    return [f"{command} --{name} has no row" for name in sorted(known - set(rows) - set(later))] + [f"{command} --{name} is no option" for name in sorted((set(rows) | set(later)) - known)]


def main():
    furnish()
    rows = ROWS + [(name, value, answer) for name, value in HARMLESS.items()]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:  # some only wait
        others = [(command, row) for command, (_, rows_of) in OTHERS.items() for row in rows_of]
        of_servers = [pool.submit(fault, row) for row in rows]
        of_others = [(command, pool.submit(fault_of, command, row)) for command, row in others]
        demos = pool.submit(hash_of_demo), pool.submit(hash_of_demo, **HARMLESS_OF_DEMO)
    with check("serve"):
        faults = [f for f in (one.result() for one in of_servers) if f] + wrong_list("serve", [row[0] for row in rows], LATER)
        assert not faults, f"{len(faults)} of {len(rows)}\n" + "\n".join(faults)
    for command, (_, rows_of) in OTHERS.items():
        with check(command.replace(" ", "-")):
            faults = [f for which, one in of_others if which == command and (f := one.result())]
            faults += wrong_list(command, [row[0] for row in rows_of] + (list(HARMLESS_OF_DEMO) if command == "demo" else []), LATER_OF.get(command, {}))
            assert not faults, f"{len(faults)} of {len(rows_of)}\n" + "\n".join(faults)
    with check("demo-harmless"):
        assert demos[0].result() == demos[1].result()
    with check("shown-later"):
        for command, later in {"serve": LATER, **LATER_OF}.items():
            for name, (_, shown) in later.items():
                file, word = shown.split(": ")
                path = ROOT / file if file.startswith("tests/") else ROOT / "src" / file
                assert word in path.read_text(), f"{command} --{name}: {file} has not the word {word}"
    with check("control"):
        # An option without effect is told, and so is one of the harmless that has one.
        assert fault(("max-open", 1024, two)) == "--max-open 1024 has no effect: 200"
        HARMLESS["profile"] = "cpu-f32"
        assert "changes a result" in fault(("profile", "cpu-f32", answer))
        assert "has no effect" in fault_of("launch", ("length", 512))
        assert wrong_list("rollback", ["url", "seconds", "json", "planted"], {}) == ["rollback --api-key has no row", "rollback --planted is no option"]
    if "--times" in sys.argv:
        print(*sorted(((round(took, 1), name) for name, took in TOOK.items()), reverse=True)[:20])


main()
