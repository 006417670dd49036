"""Every figure of /metrics: listed (metric_list.py), and held against what a client counted of a server that nobody else asks. Figures of whole SDK sessions
stand in test_measured.py and tests/api/test_metrics.py."""
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

import pytest
import requests
from conftest import MODEL, Server

import metric_list
from fireworks_tools import BASE
from test_wire import OTHER, TOKENS, Client

ANN, SLOW = "tml-ann-0123456789abcdef", "tml-slow-0123456789abcdef"
MEGABYTE = 1 << 20
MAX_OPEN = 250
CONFIG = json.loads((MODEL / "config.json").read_text())
PAGE = 16  # tokens of a page of the cache


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A server with nearly everything: all metrics but those of a channel that is followed."""
    folder = tmp_path_factory.mktemp("wide")
    (folder / "keys").write_text(f"ann {ANN}\nslow {SLOW} requests_per_minute=30 tokens_per_minute=6000\n")
    began = time.monotonic()
    running = Server("--training", "--state", str(folder / "state"), "--api-key-file", str(folder / "keys"), "--cache-megabytes", "4", "--memory-megabytes", "700",
                     "--max-open", str(MAX_OPEN), "--keep-forward", "all", "--keep-forward-megabytes", "32", "--shares", "live=50,rollouts=30,training=20")  # fmt: skip
    running.began = began
    yield running
    assert running.stop() == 0, "".join(running.errors)


def text_of(server, key=ANN):
    return requests.get(server.url + "/metrics", headers={"X-API-Key": key}, timeout=60).text


def figures(text):
    """{name{labels}: value}"""
    return {match[1]: float(match[2]) for match in re.finditer(r"^([^#\s]\S*(?:\{.*\})?) (\S+)$", text, re.MULTILINE)}


class Growth:
    """By how much figures have grown since it was made; what a figure is now."""

    def __init__(self, server):
        self.server, self.before = server, figures(text_of(server))
        self.now = self.before

    def again(self):
        self.now = figures(text_of(self.server))
        return self

    def __call__(self, name):
        return self.now.get(name, 0) - self.before.get(name, 0)

    def until(self, what, seconds=60):
        """Scrapes until `what` (of this) holds, in one scrape."""
        end = time.monotonic() + seconds
        while not what(self.again()):
            assert time.monotonic() < end, {name: value for name, value in self.now.items() if value != self.before.get(name)}
            time.sleep(0.02)
        return self


def complete(server, prompt, key=ANN, **fields):
    """The answer to a completion without guesses; a stream is left open."""
    body = {"model": BASE, "prompt": prompt, "max_tokens": 9, "temperature": 0, "ignore_eos": True, "speculative": {"mode": "off"}, **fields}
    return requests.post(server.url + "/v1/completions", json=body, headers={"X-API-Key": key}, timeout=120, stream=body.get("stream", False))


def events(answer):
    """The parts of a stream, as they come."""
    for line in answer.iter_lines():
        if line.startswith(b"data: {"):
            yield json.loads(line[6:])


def prompt_of(length, start):
    """Ids that no other test's prompts begin with."""
    return [1 + (start + 7 * i) % 60 for i in range(length)]


def test_the_list_has_every_metric(wide):
    registered, scraped = metric_list.names_in_source(), metric_list.exported(text_of(wide))
    assert len(registered) > 100 and not (found := metric_list.faults(registered, scraped)), "\n".join(found)
    # The controls: one that nobody listed, one that is gone, one that this server no longer exports, and a test that does not hold what it should.
    planted = "lockstep_planted_total"
    assert metric_list.faults(registered | {planted}, scraped) == metric_list.faults(registered, scraped | {planted}) != []
    for name in ("lockstep_http_connections", "lockstep_engine_preemptions_total"):
        assert metric_list.faults(registered - {name}, scraped) == [f"{name} is listed and nothing registers it"]
        assert metric_list.faults(registered, scraped - {name}) == [f"{name} is listed and not exported"]
    was = metric_list.COUNTED["lockstep_http_connections"]
    for test, said in ((f"{was}s", f"there is no test {was}s"), (was.replace("test_bytes_connections_and_requests", "test_guesses"), "does not name it")):
        metric_list.COUNTED["lockstep_http_connections"] = test
        [fault] = metric_list.faults(registered, scraped)
        metric_list.COUNTED["lockstep_http_connections"] = was
        assert said in fault, fault


def test_the_engine_alone_with_one_answer(wide):  # before all others that have live answers
    """Forwards, rows, pairs and pages of one request after the other, by their arithmetic."""
    length, most = 200, 9
    # Whole prompt, then what its pages still hold of it, as a rollout and live. A chunk of a prompt is 128 rows, and the last token said is no row. The rollout comes
    # first: for 50 steps after a live answer its prompt is cut by time (docs/tenants.md).
    for tier, work in (("flex", "rollouts"), ("default", "live")):
        prompt = prompt_of(length, start={"live": 3, "rollouts": 11}[work])
        for cached_before in (False, True):
            began, grown = time.monotonic(), Growth(wide)
            answer = complete(wide, prompt, service_tier=tier, max_tokens=most).json()
            grown.again()
            took = time.monotonic() - began  # with the scrapes, which are this key's too
            assert answer["usage"]["completion_tokens"] == most
            cached = (answer["usage"].get("prompt_tokens_details") or {}).get("cached_tokens", 0)
            assert (cached > 0) == cached_before
            rows, computed = length - cached + most - 1, length - cached
            slices = 2 if computed > 128 else 1
            expected = {
                "lockstep_engine_forwards_total": slices + most - 1, "lockstep_engine_chunks_total": 2 if slices == 2 else 0, "lockstep_engine_rows_total": rows,
                "lockstep_engine_prefill_tokens_total": computed, "lockstep_engine_decode_tokens_total": most - 1, "lockstep_engine_cache_hit_tokens_total": cached,
                "lockstep_engine_live_rows_total": rows if work == "live" else 0, "lockstep_engine_rollout_rows_total": rows if work == "rollouts" else 0,
            }  # fmt: skip
            assert {name: grown(name) for name in expected} == expected, (tier, cached)
            assert grown.now["lockstep_engine_largest_batch"] == max(grown.before["lockstep_engine_largest_batch"], min(computed, 128))
            # A row at position p sees p + 1 keys, of which each head of each layer reads index_topk.
            heads = CONFIG["num_attention_heads"] * CONFIG["num_hidden_layers"]
            seen = [p + 1 for p in range(cached, length + most - 1)]
            assert grown("lockstep_engine_pairs_visible_total") == heads * sum(seen)
            assert grown("lockstep_engine_pairs_skipped_total") == heads * sum(n - min(n, CONFIG["index_topk"]) for n in seen)
            experts = CONFIG["num_experts_per_tok"] * CONFIG["mlp_layer_types"].count("sparse")
            assert grown("lockstep_engine_expert_rows_total") == 3 * experts * rows  # gate, up and down each
            for label in ("live", "rollouts"):
                own = label == work
                assert grown(f'lockstep_class_sequences_total{{class="{label}"}}') == own and grown(f'lockstep_class_tokens_total{{class="{label}"}}') == own * most
                assert grown(f'lockstep_class_first_token_seconds_count{{class="{label}"}}') == own
                assert grown(f'lockstep_class_first_token_seconds_sum{{class="{label}"}}') <= own * took
                assert grown(f'lockstep_class_token_gap_seconds_count{{class="{label}"}}') == own * (most - 1)
                assert grown(f'lockstep_class_token_gap_seconds_sum{{class="{label}"}}') <= own * took
            assert grown('lockstep_device_pieces_total{kind="forward"}') == grown("lockstep_engine_forwards_total")
            assert 0 < grown(f'lockstep_device_seconds_total{{class="{work}",key="ann"}}') <= took
            longest, stretch = (grown.now[f'lockstep_device_longest_{what}_seconds{{kind="forward"}}'] for what in ("piece", "stretch"))
            assert 0 < stretch <= longest <= time.monotonic() - wide.began, ("lockstep_device_longest_piece_seconds", "lockstep_device_longest_stretch_seconds")
            # Whole pages stay for the next one with this beginning, the first time.
            assert grown("lockstep_cache_pages_used") == (0 if cached_before else (length + most - 1) // PAGE), cached


def test_many_answers_at_a_time(wide):
    """Who is open runs or waits, and prompts share forwards with what is said already: all prompts together are more rows than one forward has. A client that is
    not scheduled for as long as the answers take misses the moment, and asks again."""
    many, seen, end, grown = MAX_OPEN - 10, False, time.monotonic() + 120, Growth(wide)

    def all_open():
        now = grown.again().now
        waits = sum(value for name, value in now.items() if name.startswith("lockstep_key_sequences_waiting{"))
        assert waits == now.get('lockstep_key_sequences_waiting{class="live",key="ann"}', 0) == now["lockstep_sequences_waiting"]
        assert now["lockstep_sequences_running"] <= now["lockstep_cache_pages"]
        return waits and now["lockstep_open_sequences"] == many == now["lockstep_sequences_running"] + now["lockstep_sequences_waiting"]

    while not seen:
        assert time.monotonic() < end, grown.now
        with complete(wide, prompt_of(12, start=17), n=many, max_tokens=60, temperature=1, stream=True) as answer:
            parts = events(answer)
            next(parts)
            seen = all_open()
            for _ in parts:
                pass
    grown.until(lambda g: g.now["lockstep_open_sequences"] == 0)
    assert 0 < grown("lockstep_engine_mixed_batches_total") <= grown("lockstep_engine_forwards_total")
    assert grown.now["lockstep_sequences_running"] == grown.now["lockstep_sequences_waiting"] == 0


def test_guesses(wide):
    """What became of a prediction, as usage tells it."""
    plain = complete(wide, prompt_of(20, start=31), max_tokens=40, temperature=1.2, seed=5).json()["choices"][0]["token_ids"]
    for draft in (plain, plain[:20] + [plain[20] + 1] + plain[21:], [i + 1 for i in plain]):
        grown = Growth(wide)
        told = complete(wide, prompt_of(20, start=31), max_tokens=40, temperature=1.2, seed=5, speculative={"mode": "prediction", "draft": draft, "tokens": 7}).json()
        grown.again()
        assert told["choices"][0]["token_ids"] == plain
        usage = told["usage"]["completion_tokens_details"]
        accepted, rejected = usage["accepted_prediction_tokens"], usage["rejected_prediction_tokens"]
        guessed = grown('lockstep_spec_decode_num_draft_tokens_total{source="prediction"}')
        assert grown('lockstep_spec_decode_num_accepted_tokens_total{source="prediction"}') == accepted
        assert accepted + rejected == guessed == grown("lockstep_engine_draft_rows_total")
        assert sum(grown(f'lockstep_spec_decode_num_accepted_tokens_per_pos_total{{position="{i}"}}') for i in range(8)) == accepted
        assert guessed / 7 <= grown("lockstep_spec_decode_num_drafts_total") <= grown("lockstep_engine_forwards_total")
        for other in ("siblings", "ngram", "grammar"):
            assert grown(f'lockstep_spec_decode_num_draft_tokens_total{{source="{other}"}}') == 0


def test_a_held_answer(wide):
    """Of one that is held it is said that it is open and not in the engine; holds, rollbacks and put-in tokens are those that its client made."""
    grown, holds, put_in = Growth(wide), 0, 0
    with complete(wide, prompt_of(20, start=37), stream=True, max_tokens=24, temperature=1.5, seed=9, stream_options={"include_usage": True}, hold={"every": 6}) as answer:
        for part in events(answer):
            if (told := part.get("hold")) and told["state"] == "held":
                holds += 1
                if holds == 1:
                    now = grown.again().now
                    assert now["lockstep_held_streams"] == 1 and now["lockstep_open_sequences"] == 1 and now[f'lockstep_deployment_open_sequences{{deployment="{BASE}"}}'] == 1
                    assert now["lockstep_sequences_running"] == 0 and now["lockstep_sequences_waiting"] == 0
                    assert now["lockstep_http_open_requests"] == 2  # the stream, and who asks
                    # It has its place: as many as there may be have none beside it.
                    refused = complete(wide, prompt_of(5, start=47), n=MAX_OPEN, max_tokens=1)
                    assert refused.status_code == 429, refused.text
                    assert grown.again()("lockstep_sequences_refused_total") == MAX_OPEN and grown("lockstep_sequences_total") == 1
                action = {"action": "rollback", "position": 3, "text": "12-"} if holds == 1 else {"action": "continue"}
                requests.post(f"{wide.url}/v1/streams/{part['id']}", json=action, headers={"X-API-Key": ANN}, timeout=60).raise_for_status()
            if part.get("usage"):
                put_in = part["usage"]["completion_tokens_details"]["put_in_tokens"]
    grown.until(lambda g: g.now["lockstep_open_sequences"] == 0)
    assert holds > 1 and grown("lockstep_stream_holds_total") == holds and grown("lockstep_stream_rollbacks_total") == 1
    assert grown("lockstep_stream_put_in_tokens_total") == put_in > 0
    assert grown.now["lockstep_held_streams"] == 0 and grown.now[f'lockstep_deployment_open_sequences{{deployment="{BASE}"}}'] == 0


class Wire:
    """One connection, whose bytes are counted."""

    def __init__(self, server):
        self.socket, self.sent, self.received, self.text = socket.create_connection(("127.0.0.1", server.port), timeout=60), 0, 0, b""

    def ask(self, method, path, body=None):
        """The answer's body, whole."""
        content = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {ANN}\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        self.socket.sendall(head.encode() + content)
        self.sent += len(head) + len(content)
        head = self.until(lambda: (b"\r\n\r\n" in self.text) and self.text.index(b"\r\n\r\n") + 4).decode().lower()
        if "transfer-encoding: chunked" in head:
            return self.until(lambda: self.text.endswith(b"0\r\n\r\n") and len(self.text)).decode()
        length = int(re.search(r"content-length: (\d+)", head)[1])
        return self.until(lambda: len(self.text) >= length and length).decode() if length else ""

    def until(self, whole):
        while not (end := whole()):
            more = self.socket.recv(65536)
            assert more
            self.text, self.received = self.text + more, self.received + len(more)
        taken, self.text = self.text[:end], self.text[end:]
        return taken


def test_bytes_connections_and_requests(wide):
    """Over one connection, so that each byte is somebody's: what the server had received and sent when it wrote the second scrape."""
    wire = Wire(wide)
    before, sent = figures(wire.ask("GET", "/metrics")), wire.sent
    body = {"model": BASE, "prompt": prompt_of(8, start=41), "max_tokens": 5, "ignore_eos": True}
    began = time.monotonic()
    for _ in range(3):
        wire.ask("POST", "/v1/completions", body)
    for _ in range(2):
        wire.ask("POST", "/v1/completions", {**body, "stream": True})
    wire.ask("POST", "/v1/completions", {**body, "model": "nobody"})
    wire.ask("GET", "/nothing")
    took, said = time.monotonic() - began, wire.received
    after = figures(wire.ask("GET", "/metrics"))

    def grown(name):
        return after[name] - before.get(name, 0)

    assert grown("lockstep_http_sent_bytes_total") == said  # the first scrape's own answer, and all behind it
    assert grown("lockstep_http_received_bytes_total") == wire.sent - sent
    route = 'route="/v1/completions",method="POST"'
    assert grown(f'lockstep_http_requests_total{{{route},status="200"}}') == 5 and grown(f'lockstep_http_requests_total{{{route},status="404"}}') == 1
    assert grown('lockstep_http_requests_total{route="other",method="GET",status="404"}') == 1
    assert grown('lockstep_http_requests_total{route="/metrics",method="GET",status="200"}') == 1  # the first of the two
    assert grown('lockstep_http_request_seconds_count{route="/v1/completions"}') == 6 and 0 < grown('lockstep_http_request_seconds_sum{route="/v1/completions"}') <= took
    assert grown('lockstep_http_first_byte_seconds_count{route="/v1/completions"}') == 2 and 0 < grown('lockstep_http_first_byte_seconds_sum{route="/v1/completions"}') <= took
    more = [Wire(wide) for _ in range(5)]
    for one in more:
        one.ask("GET", "/healthz")
    now = figures(wire.ask("GET", "/metrics"))
    assert now["lockstep_http_connections"] - after["lockstep_http_connections"] == 5 == now["lockstep_http_connections_total"] - after["lockstep_http_connections_total"]
    for one in more:
        one.socket.close()
    end = time.monotonic() + 60
    while (now := figures(wire.ask("GET", "/metrics")))["lockstep_http_connections"] > after["lockstep_http_connections"] and time.monotonic() < end:
        time.sleep(0.02)
    assert now["lockstep_http_connections"] == after["lockstep_http_connections"] and now["lockstep_http_connections_total"] == after["lockstep_http_connections_total"] + 5
    wire.socket.close()


@pytest.fixture
def plain():
    """plain(*arguments, model=DIR): a server without training, of the test's own."""
    started = []
    yield lambda *arguments, **model: started.append(Server(*arguments, **model)) or started[-1]
    for one in started:
        one.stop()


def test_who_leaves_and_who_does_not_read(plain):
    server = plain("--max-pending-bytes", "4096")
    grown = Growth(server)
    left = 'lockstep_http_clients_left_total{route="/v1/completions"}'
    long = {"stream": True, "max_tokens": 400, "temperature": 1}
    with complete(server, prompt_of(8, start=43), **long) as answer:
        next(events(answer))
    grown.until(lambda g: g(left) == 1 and g.now["lockstep_open_sequences"] == 0)
    assert grown("lockstep_http_streams_dropped_total") == 0
    # One that asks for megabytes and reads none of them.
    body = json.dumps({"model": BASE, "prompt": prompt_of(8, start=43), "n": 64, "logprobs": 5, "ignore_eos": True, **long}).encode()
    silent = socket.socket()
    silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    silent.connect(("127.0.0.1", server.port))
    silent.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    grown.until(lambda g: g("lockstep_http_streams_dropped_total") == 1 and g.now["lockstep_open_sequences"] == 0)
    silent.close()


def test_an_answer_that_fails(plain, tmp_path):
    """A model whose last norm makes all numbers overflow: its requests fail, and are counted."""
    folder = tmp_path / "broken"
    shutil.copytree(MODEL, folder)
    content = bytearray((folder / "model.safetensors").read_bytes())
    (length,) = struct.unpack("<Q", content[:8])
    begin, end = json.loads(content[8 : 8 + length])["model.norm.weight"]["data_offsets"]
    content[8 + length + begin : 8 + length + end] = b"\x7f\x7f" * ((end - begin) // 2)  # the largest bf16
    (folder / "model.safetensors").write_bytes(content)
    broken = plain(model=folder)
    grown = Growth(broken)
    for prompt in (TOKENS, "3 7"):
        answer = requests.post(broken.url + "/v1/completions", json={"model": "broken", "prompt": prompt, "max_tokens": 4}, timeout=60)
        assert answer.status_code == 500, answer.text
    grown.again()
    assert grown("lockstep_engine_failed_requests_total") == 2 == grown('lockstep_sequences_finished_total{reason="error"}')


def test_what_the_command_line_and_the_system_say(wide):
    now = figures(text_of(wide))
    binary = os.environ.get("LOCKSTEP_BINARY", str(metric_list.TESTS.parent / "build/lockstep"))
    version = subprocess.run([binary, "--version"], capture_output=True, text=True).stdout.splitlines()[0]
    [built] = [name for name in now if name.startswith("lockstep_build_info{")]
    assert now[built] == 1 and f'model="{BASE}"' in built and re.search(r'version="([^"]+)"', built)[1] in version, (built, version)
    health = requests.get(wide.url + "/healthz", timeout=60).json()
    assert now["lockstep_weights_version"] == health["weights_version"] and f'profile="{health["profile"]}"' in built
    assert now["lockstep_open_sequences_limit"] == MAX_OPEN
    assert [now[f'lockstep_device_share_percent{{class="{work}"}}'] for work in ("live", "rollouts", "training")] == [50, 30, 20]
    # As many pages as 4 MB hold.
    cache, pages = now['lockstep_memory_bytes{category="cache"}'], now["lockstep_cache_pages"]
    assert 4 * MEGABYTE - cache / pages < cache <= 4 * MEGABYTE
    stored = (MODEL / "model.safetensors").stat().st_size
    assert 0.9 * stored < now['lockstep_memory_bytes{category="weights"}'] < 1.5 * stored and now['lockstep_memory_bytes{category="workspace"}'] >= 0
    claimed = {name: value for name, value in now.items() if name.startswith("lockstep_memory_claimed_bytes{")}
    assert now["lockstep_memory_limit_bytes"] == 700 * MEGABYTE and cache <= sum(claimed.values()) <= 700 * MEGABYTE, claimed
    # The system's own, before and after the scrape.
    process = Path(f"/proc/{wide.process.pid}")
    ticks = lambda: sum(map(int, (process / "stat").read_text().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")  # noqa: E731
    status = lambda name: int(re.search(name + r":\s+(\d+) kB", (process / "status").read_text())[1]) * 1024  # noqa: E731
    before = ticks()
    now = figures(text_of(wide))
    assert before - 0.02 <= now["process_cpu_seconds_total"] <= ticks() + 0.02
    assert abs(now["process_virtual_memory_bytes"] - status("VmSize")) < 64 * MEGABYTE and abs(now["process_resident_memory_bytes"] - status("VmRSS")) < 64 * MEGABYTE
    assert abs(now["process_open_fds"] - len(list((process / "fd").iterdir()))) <= 1  # whose answer was being sent
    assert now["process_max_fds"] == int(re.search(r"Max open files\s+(\d+)", (process / "limits").read_text())[1])


def test_limits_of_a_key(wide):
    """What a key may still use is what its client has not, and what came back by the clock."""
    began, tokens = time.monotonic(), 0
    for i in range(3):
        usage = complete(wide, prompt_of(10, start=47), key=SLOW, max_tokens=5 + i).json()["usage"]
        tokens += usage["total_tokens"]
    now, elapsed = figures(text_of(wide)), time.monotonic() - began
    for limit, most, used in (("requests", 30, 3), ("tokens", 6000, tokens)):
        left = now[f'lockstep_rate_left{{key="slow",limit="{limit}"}}']
        assert most - used <= left + 1e-6 and left <= min(most, most - used + elapsed * most / 60) + 1e-6, (limit, left, used)


def test_numbers_that_come_out_of_order(wide):
    """A batch that comes before its number is computed early, and again when one in front of it changes the model."""
    client = Client(wide.url, ANN)
    datum = {"model_input": {"chunks": [{"type": "encoded_text", "tokens": TOKENS[:-1]}]}, "loss_fn_inputs": {"target_tokens": {"dtype": "int64", "data": TOKENS[1:]}}}
    grown, began = Growth(wide), time.monotonic()
    for changes in (False, True):
        model = client.model(int(changes))
        assert isinstance(client.result(client.backward(model, 1)), bytes)  # a call that comes alone
        later = client.post("forward", model_id=model, seq_id=3, forward_input={"data": [datum], "loss_fn": "cross_entropy"})["request_id"]
        grown.until(lambda g: g("lockstep_training_early_total") == 1 + changes)  # noqa: B023
        between = client.step(model, 2) if changes else client.backward(model, 2, OTHER)
        for request in (between, later):
            assert "error" not in str(client.result(request))[:200]
        grown.again()
        assert grown("lockstep_training_undone_total") == changes and grown("lockstep_training_early_total") == 1 + changes
    took = time.monotonic() - began
    assert grown("lockstep_training_first_result_seconds_count") == 4 and 0 < grown("lockstep_training_first_result_seconds_sum") <= took


def test_batches_of_several_models_in_one_pass(wide):
    """Adapters whose batches are there at the same time share passes: of one piece each, and of no more pieces than were sent."""
    client = Client(wide.url, ANN)
    models = []
    for number in range(3):
        made = client.post("create_model", session_id=client.session, model_seq_id=number, base_model=BASE, lora_config={"rank": 2, "seed": number})
        models.append(client.result(made["request_id"])["model_id"])
    grown, sent, end = Growth(wide), 0, time.monotonic() + 60
    while not grown.again()("lockstep_training_shared_passes_total"):
        assert time.monotonic() < end
        # The first is a whole step: while it runs, the others come.
        asked = [threading.Thread(target=lambda m, n: client.result(client.backward(m, n, TOKENS * 20)), args=(model, sent + 1)) for model in models]
        for thread in asked:
            thread.start()
        for thread in asked:
            thread.join()
        sent += 1
    assert 2 * grown("lockstep_training_shared_passes_total") <= grown("lockstep_training_shared_pieces_total") <= sent * len(models)
