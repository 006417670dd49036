"""What whoever runs the server sees: readiness, metrics, keys, names and origins, logs, TLS, the end. Against the built server."""
import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import openai
import pytest

from conftest import MODEL, REPOSITORY

KEY = "sk-0123456789abcdefghij"
BODY = {"model": "countdown-glm", "prompt": "3 7 12=48:", "max_tokens": 8, "seed": 1}


def binary():
    return str(Path(os.environ.get("LOCKSTEP_BINARY", REPOSITORY / "build" / "lockstep")).resolve())


def ask(server, method, path, body=None, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=15)
    data = None if body is None else json.dumps(body)
    connection.request(method, path, data, {**({"Content-Type": "application/json"} if data else {}), **(headers or {})})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer, text


def samples(text):
    """{name{labels}: value} of a scrape; every line is of the text format and every sample under its family."""
    values, family = {}, ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            family = line.split()[2]
        elif line.startswith("# TYPE "):
            assert line.split()[2] == family and line.split()[3] in ("counter", "gauge", "histogram"), line
        else:
            match = re.fullmatch(r'([a-zA-Z_:][\w:]*)(\{(?:[a-zA-Z_]\w*="(?:[^"\\]|\\["\\n])*",?)*\})? (\S+)', line)
            assert match and match[1].startswith(family), line
            values[match[1] + (match[2] or "")] = float(match[3])
    return values


def test_health_and_readiness(server):
    answer, text = ask(server, "GET", "/healthz")
    assert answer.status == 200 and json.loads(text)["status"] == "ok"
    answer, text = ask(server, "GET", "/readyz")
    assert answer.status == 200 and json.loads(text)["status"] == "ready"


def test_metrics_count_what_happens(server):
    before = samples(ask(server, "GET", "/metrics")[1])
    status, text = ask(server, "POST", "/v1/completions", {**BODY, "prompt": "3 7 12=48:" * 4, "n": 2})
    usage = json.loads(text)["usage"]
    assert ask(server, "GET", "/v1/nothing-of-that-name")[0].status == 404
    after = samples(ask(server, "GET", "/metrics")[1])

    def grown(name):
        return after[name] - before.get(name, 0)

    assert grown("lockstep_generated_tokens_total") == usage["completion_tokens"]
    assert grown("lockstep_sequences_total") == 2
    assert grown('lockstep_http_requests_total{route="/v1/completions",method="POST",status="200"}') == 1
    assert grown('lockstep_http_requests_total{route="other",method="GET",status="404"}') == 1
    assert grown("lockstep_time_to_first_token_seconds_count") == 2
    assert grown('lockstep_http_request_seconds_count{route="/v1/completions"}') == 1
    assert grown("lockstep_engine_forwards_total") > 0
    assert 0 < after["lockstep_cache_pages_used"] <= after["lockstep_cache_pages"]
    assert after["process_resident_memory_bytes"] > 1e6 and after["lockstep_open_sequences"] == 0
    assert any(name.startswith("lockstep_build_info{") for name in after)
    assert "nothing-of-that-name" not in text


def test_keys(own_server, tmp_path):
    keys = tmp_path / "keys.txt"
    keys.write_text(f"# ours\nann {KEY}\n")
    server = own_server("--api-key-file", str(keys), "--log-format", "json")
    for path in ("/healthz", "/readyz"):
        assert ask(server, "GET", path)[0].status == 200
    for path in ("/v1/models", "/metrics"):
        assert ask(server, "GET", path)[0].status == 401
        assert ask(server, "GET", path, headers={"Authorization": f"Bearer {KEY}x"})[0].status == 401
        assert ask(server, "GET", path, headers={"Authorization": f"Bearer {KEY}"})[0].status == 200
    good = openai.OpenAI(base_url=server.url + "/v1", api_key=KEY, max_retries=0)
    assert good.completions.create(**BODY).choices[0].text
    with pytest.raises(openai.AuthenticationError) as refused:
        openai.OpenAI(base_url=server.url + "/v1", api_key="sk-wrong-wrong-wrong-wrong", max_retries=0).models.list()
    assert refused.value.code == "invalid_api_key" and refused.value.request_id
    answer, _ = ask(server, "GET", "/v1/models", headers={"X-Request-Id": "mine-1"})
    assert answer.getheader("X-Request-Id") == "mine-1"
    server.stop()
    log = "".join(server.errors)
    lines = [json.loads(line) for line in log.splitlines()]
    requests = [line for line in lines if line["message"] == "request"]
    assert any(r["key"] == "ann" and r["route"] == "/v1/completions" and r["status"] == 200 and r["bytes"] > 0 for r in requests)
    assert any(r["id"] == "mine-1" and r["status"] == 401 for r in requests)
    assert KEY not in log and "wrong-wrong" not in log and "3 7 12" not in log


@pytest.mark.parametrize("arguments,environment,words", [
    (["--host", "0.0.0.0"], {}, "no API key"),
    (["--api-key-file", "none.txt"], {}, "none.txt"),
    ([], {"LOCKSTEP_API_KEY": "short"}, "LOCKSTEP_API_KEY"),
    (["--cors-origin", "example.com"], {}, "cors-origin"),
    (["--tls-key", "key.pem"], {}, "tls-certificate is missing"),
])
def test_starts_that_are_refused(arguments, environment, words):
    binary = os.environ.get("LOCKSTEP_BINARY", REPOSITORY / "build" / "lockstep")
    done = subprocess.run([str(binary), "serve", "--model", str(MODEL), "--port", "0", *arguments], capture_output=True, text=True, timeout=60,
                          stdin=subprocess.DEVNULL, env={**os.environ, **environment})
    assert done.returncode in (1, 2) and words in done.stderr and "short" not in done.stderr.replace("shorter", "")


def test_names_and_origins(server, own_server):
    assert ask(server, "GET", "/v1/models", headers={"Host": "rebound.example"})[0].status == 421
    assert ask(server, "POST", "/v1/completions", BODY, {"Origin": "https://evil.example"})[0].status == 403
    friend = own_server("--cors-origin", "https://friend.example")
    answer, _ = ask(friend, "OPTIONS", "/v1/completions", headers={
        "Origin": "https://friend.example", "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization, content-type"})
    assert answer.status == 204 and answer.getheader("Access-Control-Allow-Origin") == "https://friend.example"
    assert "POST" in answer.getheader("Access-Control-Allow-Methods")
    answer, _ = ask(friend, "POST", "/v1/completions", BODY, {"Origin": "https://friend.example"})
    assert answer.status == 200 and answer.getheader("Access-Control-Allow-Origin") == "https://friend.example"


def test_tls(own_server, tmp_path):
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate], check=True, capture_output=True)
    server = own_server("--tls-certificate", str(certificate), "--tls-key", str(key))
    context = ssl.create_default_context(cafile=str(certificate))
    connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=context, timeout=15)
    for _ in range(2):
        connection.request("POST", "/v1/completions", json.dumps({**BODY, "stream": True}), {"Content-Type": "application/json"})
        assert connection.getresponse().read().endswith(b"data: [DONE]\n\n")
    connection.close()


def test_a_stopping_server_finishes_what_runs(own_server):
    server = own_server("--stop-seconds", "60")
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
    stream = client.completions.create(**{**BODY, "max_tokens": 400, "temperature": 2}, stream=True)
    first = next(stream)
    assert samples(ask(server, "GET", "/metrics")[1])["lockstep_http_draining"] == 0
    # A request of which half is said keeps the server from its end until the other half comes, however long the questions below take.
    body = json.dumps(BODY).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as half:
        half.sendall(head.encode())
        assert half.recv(4096).startswith(b"HTTP/1.1 100 ")
        server.process.send_signal(signal.SIGTERM)
        seen = {}
        deadline = time.monotonic() + 30
        while seen.get("/readyz") != 503 and time.monotonic() < deadline:
            for path in ("/readyz", "/healthz", "/v1/models"):
                seen[path] = ask(server, "GET", path)[0].status
            time.sleep(0.02)
        assert seen == {"/readyz": 503, "/healthz": 200, "/v1/models": 503}
        assert samples(ask(server, "GET", "/metrics")[1])["lockstep_http_draining"] == 1
        assert server.process.poll() is None
        last = first
        for last in stream:
            pass
        assert last.choices[0].finish_reason in ("stop", "length")
        half.sendall(body)
        assert half.recv(4096).startswith(b"HTTP/1.1 503 ")  # its end came when no new work was taken
    assert server.process.wait(timeout=60) == 0


def test_a_second_signal_ends_it_at_once(own_server):
    server = own_server("--stop-seconds", "60", "--drain-seconds", "60")
    server.process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + 30
    while (status := ask(server, "GET", "/readyz")[0].status) != 503 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert status == 503
    time.sleep(1)  # a signal that is repeated at once counts as one
    assert server.process.poll() is None
    begin = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(timeout=10) == 143 and time.monotonic() - begin < 5


@pytest.mark.parametrize("arguments, warned", [(["--host", "0.0.0.0"], True), (["--host", "127.0.0.1"], False)])
def test_keys_in_clear_text_are_warned_of(arguments, warned, tmp_path):
    keys = tmp_path / "keys.txt"
    keys.write_text(f"ann {KEY}\n")
    process = subprocess.Popen([binary(), "serve", "--model", str(MODEL), "--port", "0", "--api-key-file", str(keys), *arguments],
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline().startswith("listening on ")
        process.send_signal(signal.SIGTERM)
        errors = process.communicate(timeout=30)[1]
    finally:
        process.kill()
    assert ("in clear text" in errors) == warned, errors


def test_what_is_written_holds_with_training_too(own_server, tmp_path):
    state = ["--training", "--state", str(tmp_path / "state")]
    server = own_server(*state, "--max-body-kilobytes", "2", "--max-connections", "2")
    for path in ("/v1/completions", "/api/v1/create_session"):
        assert ask(server, "POST", path, {"pad": "x" * 3000})[0].status == 413, path
    open_ones, deadline = [], time.monotonic() + 30
    while len(open_ones) < 2:  # both are served, once the server has seen that those above are gone
        one = socket.create_connection(("127.0.0.1", server.port), timeout=15)
        try:
            one.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            said = one.recv(4096)
        except ConnectionError:
            said = b""
        if said.startswith(b"HTTP/1.1 200"):
            open_ones.append(one)
        else:
            one.close()
            assert (not said or said.startswith(b"HTTP/1.1 503")) and time.monotonic() < deadline, said
            time.sleep(0.05)
    third = socket.create_connection(("127.0.0.1", server.port))
    third.settimeout(15)
    assert third.recv(4096).startswith(b"HTTP/1.1 503")  # unasked
    for one in (*open_ones, third):
        one.close()
    assert server.stop() == 0
    roomy = own_server("--training", "--state", str(tmp_path / "state"))  # nothing written: what training takes
    answer, text = ask(roomy, "POST", "/api/v1/create_session", {"display_name": "d", "pad": "x" * (3 << 20)})
    assert answer.status == 400 and "'pad'" in text, (answer.status, text[:300])  # read whole, and then refused by its field's name


def test_a_full_server_says_when_to_come_back(own_server):
    server = own_server("--max-open", "1")
    with ThreadPoolExecutor(16) as pool:
        answers = [one.result()[0] for one in [pool.submit(ask, server, "POST", "/v1/completions", {**BODY, "max_tokens": 200, "temperature": 0, "stop": ["never"]})
                                               for _ in range(100)]]
    refused = [answer for answer in answers if answer.status == 429]
    assert refused and {answer.status for answer in answers} == {200, 429}
    assert all(1 <= int(answer.getheader("Retry-After")) <= 60 for answer in refused)
    assert ask(server, "POST", "/v1/completions", BODY)[0].status == 200
