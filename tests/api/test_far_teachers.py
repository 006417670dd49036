"""Distillation from a teacher behind an address: `lockstep serve` says of the student's tokens what the same weights say in the student's process, bit for
bit, also where it is asked as vLLM is; another tokenizer's tokens are laid upon the student's; calls that fail or stay silent are tried again, and a completion
without an answer is left out and counted."""
import http.server
import json
import os
import subprocess
import threading
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
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


SILENCE = -1


class Between(http.server.ThreadingHTTPServer):
    """Passes requests on to a server, but for those that `refuses(body, number of times this body came before)` gives a status for, or SILENCE. `through(body, ask)`:
    the status and body that answer it, where ask(body) asks the server."""

    daemon_threads = True

    def __init__(self, port, refuses=lambda *_: 0, through=lambda body, ask: ask(body)):
        self.port, self.refuses, self.through, self.seen, self.lock = port, refuses, through, {}, threading.Lock()
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
        if status == SILENCE:
            self.close_connection = True
            return threading.Event().wait(60)
        if not status:
            status, answer = self.server.through(body, self.ask)
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def ask(self, body):
        request = urllib.request.Request(f"http://127.0.0.1:{self.server.port}{self.path}", body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request) as reply:
                return reply.status, reply.read()
        except urllib.error.HTTPError as e:
            return e.code, e.read()


def echoed(model, prompt):
    """The body that asks for the log-probabilities of a prompt's tokens."""
    return json.dumps({"model": model, "prompt": prompt, "temperature": 1.0, "max_tokens": 0, "echo": True, "logprobs": 0}).encode()


def said_of(url, model, prompt):
    request = urllib.request.Request(f"{url}/v1/completions", echoed(model, prompt), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as reply:
        return json.loads(reply.read())["choices"][0]["logprobs"]


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


def as_vllm(shift=0):
    """Answers as vLLM does a request with prompt_logprobs: by place an object by token id (here of the id `shift` further), the first place without."""

    def through(body, ask):
        asked = json.loads(body)
        status, answer = ask(echoed(asked["model"], asked["prompt"]))
        told = json.loads(answer)["choices"][0]["logprobs"]["token_logprobs"]
        rows = [{str(token + shift): {"logprob": told[i], "rank": 1, "decoded_token": ""}} if i else None for i, token in enumerate(asked["prompt"])]
        return status, json.dumps({"choices": [{"index": 0, "text": "", "finish_reason": "length", "prompt_logprobs": rows}]}).encode()

    return through


def test_a_teacher_that_is_asked_as_vllm_is_teaches_the_same_bits(teacher_server, adapter, distill):
    near, _ = distill({"adapter": str(adapter)})
    asked = {"model": "moved", "send": "ids", "logprobs": "prompt_logprobs"}
    vllm = Between(teacher_server.port, through=as_vllm())
    far, metrics = distill({**asked, "url": vllm.url})
    assert far["weights_sha256"] == near["weights_sha256"] and far["different_bits"] == 0
    assert all(row["unanswered"] == 0 and row["unjudged_tokens"] == 0 for row in metrics)
    for body in map(json.loads, vllm.seen):
        assert body["prompt_logprobs"] == 0 and body["max_tokens"] == 1 and body["temperature"] == 1 and not {"echo", "logprobs"} & set(body), body
    other = Between(teacher_server.port, through=as_vllm(shift=1))  # the control: another token's number is not taken for the student's
    assert "asking teacher 't'" in distill({**asked, "url": other.url}, fails=True)


SPELLS = REPOSITORY / "models/agent-glm"  # digit by digit, where the student has numbers of two digits as one token


def laid_upon(pieces, theirs, numbers):
    """By token of the student the sum of the teacher's numbers over the shortest run around it of which both sides have the ends, and how many of the student's
    tokens that run has; None where nothing says it."""
    own_ends, their_ends = np.cumsum([len(piece) for piece in pieces]).tolist(), np.cumsum([len(piece) for piece in theirs]).tolist()
    assert "".join(pieces) == "".join(theirs)
    judged = []
    for i, piece in enumerate(pieces):
        begin = max((end for end in [0, *own_ends[:i]] if end in {0, *their_ends}), default=0)
        end = min(end for end in own_ends[i:] if end in their_ends)
        run = [numbers[j] for j, own_end in enumerate(their_ends) if begin < own_end <= end]
        tokens = sum(begin < own_end <= end for own_end in own_ends)
        judged.append((float(np.float32(sum(float(np.float32(n)) for n in run))), tokens) if None not in run else None)
    return judged


def test_a_teacher_of_another_tokenizer_judges_runs_with_common_ends(teacher_server, own_server, distill):
    from tokenizers import Tokenizer

    speller = own_server(model=SPELLS)
    name = lambda server: json.loads(urllib.request.urlopen(server.url + "/v1/models").read())["data"][0]["id"]  # noqa: E731
    base = name(teacher_server)
    far, (row,) = distill({"url": speller.url, "model": name(speller)}, steps=1)
    assert far["different_bits"] == 0 and row["unanswered"] == 0
    tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    special = {i for i, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    colon = tokenizer.token_to_id(":")  # with which a prompt ends
    unjudged, above, wide = [], [], []

    def told(by_run):
        """Answers a text in the student's tokens with these numbers."""

        def through(body, ask):
            asked = json.loads(body)
            status, answer = ask(body)
            said = json.loads(answer)
            said["choices"][0]["logprobs"]["token_logprobs"] = by_run(asked["prompt"], said["choices"][0]["logprobs"]["token_logprobs"])
            return status, json.dumps(said).encode()

        return through

    def by_common_ends(ids, own, shift=0):
        pieces = ["" if i in special else tokenizer.decode([i]) for i in ids]
        said = said_of(speller.url, name(speller), "".join(pieces))
        of_letters = iter(laid_upon([piece for piece in pieces if piece], said["tokens"], said["token_logprobs"]))
        judged = [next(of_letters) if piece else None for piece in pieces]  # an end token has no letters
        first = ids.index(colon) + 1
        with lock:
            unjudged.append(sum(entry is None for entry in judged[first:]))
            above.append(sum(entry[0] - own[i] for i, entry in enumerate(judged) if i >= first and entry))
            wide.extend(entry[1] for entry in judged[first:] if entry)
        judged = judged[:first] + judged[first + shift :] + [None] * shift
        return [own[i] if i < first or entry is None else entry[0] for i, entry in enumerate(judged)]

    lock = threading.Lock()
    ids = {"model": base, "send": "ids", "at_once": 1}
    one_by_one = Between(teacher_server.port, through=told(by_common_ends))
    same, (other,) = distill({**ids, "url": one_by_one.url}, steps=1)
    # Equal completions are asked about each by itself. Every run is one token of the student's, so a number a token says the same as a run.
    assert len(unjudged) == row["completions"] == 12 and set(wide) == {1}, (len(unjudged), set(wide))
    assert any(len(tokenizer.decode([i])) > 1 for body in one_by_one.seen for i in json.loads(body)["prompt"] if i not in special)  # they are cut otherwise
    assert row["unjudged_tokens"] == sum(unjudged) > 0
    assert row["loss"] == pytest.approx(-sum(above) / row["tokens"], rel=1e-5)
    assert other["tokens"] == row["tokens"] and other["gradient_norm"] == pytest.approx(row["gradient_norm"], rel=1e-5)
    shifted = Between(teacher_server.port, through=told(lambda prompt, own: by_common_ends(prompt, own, shift=1)))  # the control: each token with its neighbour's
    _, (wrong,) = distill({**ids, "url": shifted.url}, steps=1)
    assert wrong["gradient_norm"] != pytest.approx(row["gradient_norm"], rel=1e-2)


def test_a_teacher_that_stays_silent_is_given_up_in_time_and_counted(teacher_server, distill):
    order, lock = {}, threading.Lock()

    def every_third(body, _):
        with lock:
            return SILENCE if order.setdefault(body, len(order)) % 3 == 0 else 0

    quiet = Between(teacher_server.port, every_third)
    said, (row,) = distill({"url": quiet.url, "model": "moved", "send": "ids", "timeout_seconds": 1.0, "tries": 2, "at_once": 12}, steps=1)
    silent = {body for body, place in order.items() if place % 3 == 0}
    assert row["unanswered"] >= len(silent) > 0 and row["unjudged_tokens"] > 0 and said["different_bits"] == 0
    assert {quiet.seen[body] % 2 for body in silent} == {0}  # two tries of each
    assert row["teacher_seconds"] < 12, row  # two tries of a second; unless told otherwise they were 4 of 120
