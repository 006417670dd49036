"""What a client that is broken or hostile gets: raw sockets against the built server. Loopback only, everything bounded."""
import http.client
import json
import random
import socket
import time

import pytest

BODY = {"model": "countdown-glm", "prompt": "3 7 12=48:", "max_tokens": 8, "seed": 1}


def say(server, data, timeout=15):
    """All that the server answers until it closes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=timeout) as connection:
        try:
            connection.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it answered before it had read everything
        answer = b""
        while part := connection.recv(65536):
            answer += part
    return answer


def post(body, *headers, kind="application/json", length=None):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = ["POST /v1/completions HTTP/1.1", "Host: localhost", "Connection: close", f"Content-Type: {kind}",
             f"Content-Length: {len(data) if length is None else length}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def parsed(answer):
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


def health(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=15)
    connection.request("GET", "/healthz")
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return answer


def test_a_whole_request(server):
    status, answer = parsed(say(server, post(BODY)))
    assert status == 200 and answer["choices"][0]["text"]


@pytest.mark.parametrize("data,status,code", [
    (b"nonsense\r\n\r\n", 400, "invalid_argument"),
    (b"GET /healthz HTTP/1.1\r\n\r\n", 400, "invalid_argument"),
    (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 20000 + b"\r\n\r\n", 431, "headers_too_large"),
    (post(b"", length=4 * 2**20 + 1), 413, "body_too_large"),
    (post(b'"' + b"a" * (5 * 2**20)), 413, "body_too_large"),
    (post(BODY, kind="text/plain"), 415, "unsupported_media_type"),
    (b"GET /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 405, "method_not_allowed"),
    (b"GET /nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 404, "not_found"),
    (post(b"{"), 400, "invalid_argument"),
    (post(b"[" * 1000000), 400, "invalid_argument"),
    (post(b"\xff\xfe"), 400, "invalid_argument"),
    (post(b'{"model":"countdown-glm","prompt":"\xff"}'), 400, "invalid_argument"),
    (post({**BODY, "prompt": None}), 400, "invalid_argument"),
], ids=["nonsense", "no-host", "headers", "body-announced", "body-sent", "type", "method", "path", "torn", "deep", "bytes", "utf8", "null"])
def test_refusals(server, data, status, code):
    got, answer = parsed(say(server, data))
    assert (got, answer["error"]["code"]) == (status, code)
    assert set(answer["error"]) == {"message", "type", "param", "code"} and answer["error"]["message"]


def test_a_prompt_at_the_limit_of_a_body(server):
    """Tokenised whole, then refused for its length."""
    status, answer = parsed(say(server, post({**BODY, "prompt": "3 7 " * 10**6}), timeout=60))
    assert status == 400 and answer["error"]["param"] == "prompt"


def test_a_client_that_leaves_frees_its_place(server):
    for stream in (False, True):
        request = post({**BODY, "max_tokens": 490, "n": 64, "temperature": 100, "stream": stream})
        with socket.create_connection(("127.0.0.1", server.port), timeout=15) as connection:
            connection.sendall(request)
            time.sleep(0.05)
        deadline = time.monotonic() + 15
        while health(server)["open_requests"] and time.monotonic() < deadline:
            time.sleep(0.02)
        assert health(server)["open_requests"] == 0


def test_torn_requests_disturb_nobody(server):
    whole = post(BODY)
    draws = random.Random(7)
    for _ in range(100):
        with socket.create_connection(("127.0.0.1", server.port), timeout=15) as connection:
            connection.sendall(whole[:draws.randrange(len(whole))])
    assert parsed(say(server, whole))[0] == 200


def test_mutated_requests_get_an_answer_or_a_close(server):
    whole = post(BODY)
    draws = random.Random(11)
    for _ in range(200):
        data = bytearray(whole)
        for _ in range(draws.randrange(1, 8)):
            data[draws.randrange(len(data))] = draws.randrange(256)
        with socket.create_connection(("127.0.0.1", server.port), timeout=0.3) as connection:
            try:
                connection.sendall(data)
                answer = connection.recv(65536)
            except (TimeoutError, ConnectionError):
                continue  # it waits for a body that was announced longer
        assert not answer or answer.startswith(b"HTTP/1.1 "), answer
    assert parsed(say(server, whole))[0] == 200
