"""The options of `lockstep serve`: a value of each, and the question that two servers are asked which differ in it (server_effects.py)."""
import http.client
import json
import re
import shutil
import signal
import socket
import threading
import time
from pathlib import Path

from harness import instruction_sets
from servers import ANN, BOB, EVENTUALLY, FILES, PORT, PROMPT, SURELY, TOKENS, datum, names, patience, until


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
    """Names in the folders, when new ones have come, be it before the first count; of a server that follows nothing nothing is waited for long."""
    until(lambda: len(names(s.folder)) > s.files, patience(s, "follow", "deploy-follow"))
    return names(s.folder)


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
    thread = threading.Thread(target=lambda: told.append(s.complete(max_tokens=480, ignore_eos=True, n=24, temperature=1)[0]))
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
    for one in Path(f"/proc/{s.process.pid}/fd").iterdir():
        try:
            link = str(one.readlink())
        except FileNotFoundError:  # closed since it was listed
            continue
        if "/state/" in link and "(deleted)" in link:
            return True
    return False


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
