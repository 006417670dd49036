"""Distillation from a teacher behind an address: `lockstep serve` says of the student's tokens what the same weights say in the student's process, bit for
bit; calls that fail are tried again, and a completion without an answer is left out and counted."""
import http.server
import json
import os
import subprocess
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from conftest import MODEL, REPOSITORY

BINARY = Path(os.environ.get("LOCKSTEP_BINARY", REPOSITORY / "build" / "lockstep")).resolve()


def lockstep(*arguments, fails=False, **environment):
    done = subprocess.run([str(BINARY), *map(str, arguments)], capture_output=True, text=True, timeout=300, env={**os.environ, **environment})
    assert (done.returncode != 0) == fails, done.stderr
    return done.stderr if fails else done.stdout


@pytest.fixture(scope="module")
def adapter(tmp_path_factory):
    """A teacher that is not the student: the shipped model with an adapter of four steps."""
    runs = tmp_path_factory.mktemp("runs")
    lockstep("train", "sft", "--model", MODEL, "--environment", "countdown", "--adapter-rank", 4, "--steps", 4, "--batch", 4, "--learning-rate", 3e-3, "--name",
             "teacher", "--runs", runs, "--no-page", "--quiet")  # fmt: skip
    return runs / "teacher" / "export"


class Between(http.server.ThreadingHTTPServer):
    """Passes requests on to a server, but for those that `refuses(body, number of times this body came before)` gives a status for."""

    def __init__(self, port, refuses):
        self.port, self.refuses, self.seen, self.lock = port, refuses, {}, threading.Lock()
        super().__init__(("127.0.0.1", 0), Passer)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class Passer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.lock:
            before = self.server.seen.get(body, 0)
            self.server.seen[body] = before + 1
        status, answer = self.server.refuses(body, before), b"{}"
        if not status:
            request = urllib.request.Request(f"http://127.0.0.1:{self.server.port}{self.path}", body, {"Content-Type": "application/json"})
            try:
                with urllib.request.urlopen(request) as reply:
                    status, answer = reply.status, reply.read()
            except urllib.error.HTTPError as e:
                status, answer = e.code, e.read()
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


class Distillation:
    def __init__(self, folder):
        self.folder, self.count = folder, 0

    def __call__(self, teacher, fails=False, steps=2, **environment):
        """What `train distill --json` said, and its metrics; or the error."""
        self.count += 1
        file = self.folder / f"teachers-{self.count}.toml"
        file.write_text("[[teacher]]\nname = \"t\"\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in teacher.items()))
        arguments = ["train", "distill", "--model", MODEL, "--teachers", file, "--environment", "countdown", "--over", "sampled", "--steps", steps, "--prompts", 6,
                     "--rollouts", 2, "--max-tokens", 24, "--learning-rate", 1e-3, "--name", f"run-{self.count}", "--runs", self.folder, "--no-page", "--quiet",
                     "--json"]  # fmt: skip
        said = lockstep(*arguments, fails=fails, **environment)
        if fails:
            return said
        lines = (self.folder / f"run-{self.count}" / "metrics.jsonl").read_text().splitlines()
        return json.loads(said), [json.loads(line) for line in lines]


@pytest.fixture
def distill(tmp_path):
    return Distillation(tmp_path)


@pytest.fixture(scope="module")
def teacher_server(adapter):
    from conftest import Server

    running = Server("--adapter", f"moved={adapter}")
    yield running
    assert running.stop() == 0, "".join(running.errors)


def test_near_and_far_teachers_of_one_model_teach_the_same_bits(teacher_server, adapter, distill):
    near, _ = distill({"adapter": str(adapter)})
    far, metrics = distill({"url": teacher_server.url, "model": "moved", "send": "ids"})
    assert far["weights_sha256"] == near["weights_sha256"] and far["different_bits"] == 0
    assert all(row["unanswered"] == 0 and row["unjudged_tokens"] == 0 for row in metrics)
    base = json.loads(urllib.request.urlopen(teacher_server.url + "/v1/models").read())["data"][0]["id"]
    other, _ = distill({"url": teacher_server.url, "model": base, "send": "ids"})  # the control: the student itself, from which there is nothing to learn
    assert other["weights_sha256"] != near["weights_sha256"]
    again, metrics = distill({"url": teacher_server.url + "/", "model": "moved"})  # as text: an end token has no letters, so nobody judges it
    assert again["different_bits"] == 0 and all(row["unjudged_tokens"] <= row["completions"] for row in metrics)
    assert (again["weights_sha256"] == near["weights_sha256"]) == (sum(row["unjudged_tokens"] for row in metrics) == 0)


def test_what_fails_is_tried_again_or_left_out_and_counted(teacher_server, distill):
    far = {"model": "moved", "send": "ids", "tries": 3}
    well, _ = distill({**far, "url": teacher_server.url})
    flaky = Between(teacher_server.port, lambda body, before: 503 if before < 2 else 0)
    through, metrics = distill({**far, "url": flaky.url})
    assert through["weights_sha256"] == well["weights_sha256"] and all(row["unanswered"] == 0 for row in metrics)
    assert min(flaky.seen.values()) == 3  # two completions may be one text
    waits = Between(teacher_server.port, lambda body, before: 503 if before < 2 else 0)
    patient, metrics = distill({**far, "tries": 1, "failed": "wait", "url": waits.url}, steps=1)
    assert all(row["unanswered"] == 0 for row in metrics) and min(waits.seen.values()) == 3

    order, lock = {}, threading.Lock()

    def every_third(body, _):
        with lock:
            return 500 if order.setdefault(body, len(order)) % 3 == 0 else 0

    partly = Between(teacher_server.port, every_third)
    less, metrics = distill({**far, "tries": 2, "url": partly.url})
    assert 0 < metrics[0]["unanswered"] < 12 and metrics[0]["unjudged_tokens"] > 0 and less["different_bits"] == 0
    never = Between(teacher_server.port, lambda *_: 500)
    assert "answered for none of 12 completions" in distill({**far, "tries": 1, "url": never.url}, fails=True)


def test_what_no_other_try_would_mend_ends_the_run_and_names_the_teacher(teacher_server, distill):
    said = distill({"url": teacher_server.url, "model": "nobody", "send": "ids"}, fails=True)
    assert "asking teacher 't'" in said and "404" in said
    closed = Between(teacher_server.port, lambda *_: 401)
    said = distill({"url": closed.url, "model": "moved", "key": "A_TEACHERS_KEY"}, fails=True, A_TEACHERS_KEY="sk-secret-7")
    assert "401" in said and "sk-secret-7" not in said
    assert "no variable of that name is set" in distill({"url": closed.url, "model": "moved", "key": "NO_SUCH_KEY"}, fails=True)
    assert "'send' without 'url'" in distill({"folder": str(MODEL), "send": "ids"}, fails=True)
    assert "allowed are text, ids; did you mean 'ids'" in distill({"url": closed.url, "model": "moved", "send": "id"}, fails=True)
