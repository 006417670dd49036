"""`lockstep chat`: from a pipe, and in a terminal of its own (a pty), where Ctrl-C stops an answer and not the program."""
import http.server
import json
import os
import pty
import select
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
from conftest import MODEL, REPOSITORY

BINARY = Path(os.environ.get("LOCKSTEP_BINARY", REPOSITORY / "build" / "lockstep")).resolve()


def piped(folder, text, *options):
    return subprocess.run([BINARY, "chat", "--model", folder, "--seed", "1", *options], input=text, capture_output=True, text=True, timeout=120)


def test_a_pipe(chat_folder, tmp_path):
    saved = tmp_path / "talk.json"
    text = f"3 7 12=48:\n\n/set temperature 0\n/set\n1 2 3=6:\n/save {saved}\n"
    ran = piped(chat_folder, text, "--max-tokens", "12", "--system", "s")
    assert ran.returncode == 0, ran.stderr
    assert "temperature 0," in ran.stderr and "saved 5 messages" in ran.stderr
    talk = json.loads(saved.read_text())
    assert [m["role"] for m in talk["messages"]] == ["system", "user", "assistant", "user", "assistant"]
    answers = [m["content"] for m in talk["messages"] if m["role"] == "assistant"]
    assert ran.stdout == "".join(answer + "\n" for answer in answers)
    assert piped(chat_folder, text, "--max-tokens", "12", "--system", "s").stdout == ran.stdout


@pytest.mark.parametrize("word", ["/reset", "/clear"])
def test_reset_and_system(chat_folder, tmp_path, word):
    saved = tmp_path / "talk.json"
    ran = piped(chat_folder, f"a\n{word}\n/system be kind\nb\n/save {saved}", "--max-tokens", "4")
    assert ran.returncode == 0, ran.stderr
    messages = json.loads(saved.read_text())["messages"]
    assert [m["role"] for m in messages] == ["system", "user", "assistant"] and messages[0]["content"] == "be kind" and messages[1]["content"] == "b"


@pytest.mark.parametrize("line,words", [("/sett x", "did you mean '/set'?"), ("/set temprature 1", "did you mean"), ("/set temperature hot", "temperature"),
                                        ("/save", "/save needs"), ("/save /nowhere/at/all", "nowhere"), ("x" * 600, "/reset begins anew")])
def test_errors_end_a_script(chat_folder, line, words):
    ran = piped(chat_folder, line + "\n")
    assert ran.returncode != 0 and words in ran.stderr and ran.stderr.count("error:") == 1


def test_a_model_without_a_template(chat_folder):
    ran = piped(MODEL, "hi\n")
    assert ran.returncode == 1 and ran.stdout == ""
    assert "no chat template" in ran.stderr and "lockstep generate" in ran.stderr and ran.stderr.count("\n") == 1
    assert piped(MODEL, "hi\n", "--chat-template", chat_folder / "chat_template.jinja", "--max-tokens", "3").returncode == 0


class Terminal:
    def __init__(self, folder, *options, url=None):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execv(BINARY, [str(BINARY), "chat", *(["--url", url] if url else ["--model", str(folder)]), *options])
        self.seen = ""

    def wait_for(self, *choices, seconds=60):
        """Which of these words came first; what came up to and with them is gone."""
        end = time.monotonic() + seconds
        while not any(words in self.seen for words in choices):
            assert time.monotonic() < end, self.seen
            if select.select([self.fd], [], [], 0.2)[0]:
                try:
                    self.seen += os.read(self.fd, 4096).decode("utf-8", "replace")
                except OSError:  # it ended
                    assert any(words in self.seen for words in choices), self.seen
        first = min((words for words in choices if words in self.seen), key=self.seen.index)
        self.seen = self.seen.partition(first)[2]
        return first

    def type(self, text):
        os.write(self.fd, text.encode())

    def status(self, seconds=60):
        """How it ended. What does not end is killed, and told."""
        end = time.monotonic() + seconds
        while (ended := os.waitpid(self.pid, os.WNOHANG))[0] == 0 and time.monotonic() < end:
            if select.select([self.fd], [], [], 0.02)[0]:
                try:
                    self.seen += os.read(self.fd, 4096).decode("utf-8", "replace")
                except OSError:
                    time.sleep(0.02)
        if ended[0] == 0:
            self.kill()
            pytest.fail(f"it did not end in {seconds} s; the terminal showed {self.seen!r}")
        self.pid = 0
        return os.waitstatus_to_exitcode(ended[1])

    def kill(self):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0


@pytest.fixture
def terminal():
    """Starts the command in a terminal; a test that fails leaves no process behind."""
    started = []

    def start(*arguments, **named):
        started.append(Terminal(*arguments, **named))
        return started[-1]
    yield start
    for one in started:
        one.kill()
        os.close(one.fd)


def test_a_terminal(terminal, chat_folder):
    shell = terminal(chat_folder, "--temperature", "0")
    shell.wait_for(f"loading {chat_folder} ...")  # told before the model is there, and over it when it is
    shell.wait_for(f"\rloaded {chat_folder} in ")
    shell.wait_for("> ")
    shell.type("/help\n")
    shell.wait_for("/save FILE")
    shell.wait_for("> ")
    shell.type("/bad\n")  # an error is told, and the talk goes on
    shell.wait_for("unknown command '/bad'")
    shell.wait_for("> ")
    shell.type("\x03")  # no answer runs: a word, and a new line
    shell.wait_for("Ctrl-D ends")
    shell.wait_for("> ")
    shell.type("3 7 12=48:\n")
    shell.wait_for("> ")
    shell.type("\x04")
    assert shell.status() == 0


def test_lines_are_edited_and_come_back(terminal, chat_folder, tmp_path):
    saved = tmp_path / "talk.json"
    shell = terminal(chat_folder, "--temperature", "0", "--max-tokens", "2")
    for typed in ("hy\x7fi\n", "\x1b[A there\n", "\u00e9\u00e8\x7f\n", f"/save {saved}\n"):  # a letter taken back; the line before, and more; characters beyond ASCII
        shell.wait_for("> ")
        shell.type(typed)
    shell.wait_for("saved 6 messages")
    shell.wait_for("> ")
    shell.type("/exit\n")
    assert shell.status() == 0
    assert [m["content"] for m in json.loads(saved.read_text())["messages"] if m["role"] == "user"] == ["hi", "hi there", "\u00e9"]


@pytest.mark.parametrize("word", ["/exit", "/quit", "/bye"])
def test_words_that_end_it(chat_folder, word):
    ran = piped(chat_folder, f"a\n{word}\nb\n", "--max-tokens", "2")
    assert ran.returncode == 0 and ran.stdout.count("\n") == 1, ran


def test_ctrl_c_stops_the_answer_alone(terminal, chat_folder):
    # On one slow thread of scalar code a full context takes long enough to be stopped.
    shell = terminal(chat_folder, "--temperature", "100", "--isa", "scalar", "--threads", "1")
    shell.wait_for("> ")
    stopped = False
    for _ in range(20):  # an answer may end by itself first
        shell.type("3 7 12=48:\n")
        shell.wait_for("48:\r\n")
        time.sleep(0.02)
        shell.type("\x03")
        # One of both is said, always. A prompt alone would not tell: random words may look like one, and a second Ctrl-C ends the program.
        stopped = shell.wait_for("(stopped)", "Ctrl-D ends") == "(stopped)"
        shell.wait_for("> ")
        shell.type("/reset\n")
        shell.wait_for("> ")
        if stopped:
            break
    assert stopped
    shell.type("1 2 3=6:\n")
    shell.wait_for("> ")
    shell.type("\x04")
    assert shell.status() == 0


def test_sigterm_ends_it(terminal, chat_folder):
    shell = terminal(chat_folder)
    shell.wait_for("> ")
    os.kill(shell.pid, signal.SIGTERM)
    assert shell.status() == 143


# With a server.

def remote(url, text, *options, environment=None):
    return subprocess.run([BINARY, "chat", "--url", url, *options], input=text, capture_output=True, text=True, timeout=120,
                          env={**os.environ, **(environment or {})})


def test_a_server_answers_as_the_model_does(chat_folder, chat_server, tmp_path):
    """The same weights, the same seed: the same words, here and there."""
    text = f"3 7 12=48:\n1 2 3=6:\n/save {tmp_path / 'talk.json'}\n"
    options = ["--seed", "1", "--max-tokens", "12", "--system", "s", "--top-k", "40", "--min-p", "0.01"]  # temperature and top-p are a talk's own on both sides
    there = remote(chat_server.url, text, *options)
    assert there.returncode == 0, there.stderr
    talk = json.loads((tmp_path / "talk.json").read_text())
    here = subprocess.run([BINARY, "chat", "--model", chat_folder, *options], input=text, capture_output=True, text=True, timeout=120)
    assert there.stdout == here.stdout and there.stdout.count("\n") >= 2
    assert talk["model"] == "countdown-chat" and talk["url"] == chat_server.url + "/v1"
    assert remote(chat_server.url + "/v1/", text, *options, "--model", "countdown-chat").stdout == here.stdout


def test_a_server_with_a_key_and_tls(chat_folder, own_server, tmp_path):
    certificate, key, keys = tmp_path / "c.pem", tmp_path / "k.pem", tmp_path / "keys.txt"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", certificate], check=True, capture_output=True)
    keys.write_text("me a-very-secret-key-of-mine\n")
    server = own_server("--tls-certificate", certificate, "--tls-key", key, "--api-key-file", keys, model=chat_folder)
    trusted = {"SSL_CERT_FILE": str(certificate), "LOCKSTEP_API_KEY": ""}
    for host in ("localhost", "127.0.0.1"):
        url = f"https://{host}:{server.port}"
        good = remote(url, "3 7 12=48:\n", "--api-key", "a-very-secret-key-of-mine", "--max-tokens", "4", "--seed", "1", environment=trusted)
        assert good.returncode == 0 and good.stdout.endswith("\n"), good.stderr
        by_environment = remote(url, "3 7 12=48:\n", "--max-tokens", "4", "--seed", "1", environment={**trusted, "LOCKSTEP_API_KEY": "a-very-secret-key-of-mine"})
        assert by_environment.stdout == good.stdout
        without = remote(url, "a\n", environment=trusted)
        assert without.returncode == 1 and "401" in without.stderr and "--api-key" in without.stderr and without.stderr.count("\n") == 1
        stranger = remote(url, "a\n", environment={"LOCKSTEP_API_KEY": "a-very-secret-key-of-mine"})
        assert stranger.returncode == 1 and "certificate" in stranger.stderr and "SSL_CERT_FILE" in stranger.stderr
        assert "a-very-secret-key" not in without.stderr + stranger.stderr
    assert "not HTTP" in remote(f"http://127.0.0.1:{server.port}", "a\n", "--model", "m").stderr or "https" in remote(f"http://127.0.0.1:{server.port}", "a\n", "--model", "m").stderr


@pytest.mark.parametrize("url,words", [("127.0.0.1:80", "which is no http address"), ("http://", "names no host"), ("http://a b", "does not belong"),
                                       ("http://[::1", "bracket"), ("http://h:0", "port"), ("http://h:99999", "port"), ("http://u:p@h", "does not belong"),
                                       ("http://127.0.0.1:1", "cannot connect to 127.0.0.1:1"), ("http://no.such.host.invalid", "cannot find no.such.host.invalid:80")])
def test_bad_addresses(url, words):
    ran = remote(url, "a\n")
    assert ran.returncode in (1, 2) and words in ran.stderr and ran.stderr.count("\n") == 1


def test_options_that_do_not_go_together(chat_folder):
    for options, words in [(["chat"], "--model DIR is missing"), (["chat", "--model", "x", "--api-key", "k"], "--api-key is for --url"),
                           (["chat", "--url", "http://x", "--chat-template", "t"], "a server has its own")]:
        ran = subprocess.run([BINARY, *options], input="", capture_output=True, text=True, timeout=60)
        assert ran.returncode == 2 and words in ran.stderr


class Foreign(http.server.BaseHTTPRequestHandler):
    """Another's server: odd cuts, comments, carriage returns, errors."""
    protocol_version = "HTTP/1.1"
    said = []  # bodies
    script = b""
    pause = 0.0
    status = 200
    done = True

    def do_GET(self):
        body = b'{"object": "list", "data": [{"id": "theirs"}, {"id": "other"}]}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        kind = type(self)
        kind.said.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(kind.status)
        if kind.status != 200:
            self.send_header("Content-Length", str(len(kind.script)))
            self.end_headers()
            self.wfile.write(kind.script)
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for at in range(0, len(kind.script), 7):
                part = kind.script[at:at + 7]
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                time.sleep(kind.pause)
            if kind.done:
                self.wfile.write(b"0\r\n\r\n")
        except OSError:
            pass
        self.close_connection = True

    def log_message(self, *arguments):
        pass


@pytest.fixture
def foreign():
    kind = type("OneForeign", (Foreign,), {"said": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    kind.url = f"http://127.0.0.1:{server.server_port}/v1"
    yield kind
    server.shutdown()
    server.server_close()


def event(**delta):
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}, ensure_ascii=False).encode()


def test_another_server(foreign):
    foreign.script = (b": hello\r\n\r\nevent: x\r\n" + event(role="assistant", content=None) + b"\r\n\r\n" + event(reasoning="h\u00e9") + b"\n\n"
                      + event(content="na\u00efve \U0001f600") + b"\r\r" + b'data:{"choices": []}\n\n' + b"id: 7\ndata: [DONE]\n\ndata: more\n\n")
    ran = remote(foreign.url, "hi\nagain\n", "--temperature", "0.5", "--system", "s")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "h\u00e9\nna\u00efve \U0001f600\n" * 2
    assert [m["role"] for m in foreign.said[1]["messages"]] == ["system", "user", "assistant", "user"]
    assert foreign.said[0] == {"model": "theirs", "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}], "stream": True, "temperature": 0.5}


@pytest.mark.parametrize("status,script,words", [
    (429, b'{"error": {"message": "slow\\n down"}}', "answers 429: slow  down"), (500, b"<html>broken</html>", "answers 500: <html>broken"),
    (404, b'{"detail": "x"}', 'answers 404: {"detail": "x"}'), (200, b'data: {"error": {"message": "out of memory"}}\n\n', "the answer failed: out of memory"),
    (200, b"data: nonsense\n\n", "none of OpenAI's"), (200, b'data: {"choices": {}}\n\n', "none of OpenAI's"), (200, b'data: {"choices": [5]}\n\n', "was cut off"),
    (200, b"", "was cut off"), (200, b'{"choices": []}', "was cut off"), (302, b"", "answers 302")])
def test_what_another_server_may_get_wrong(foreign, status, script, words):
    foreign.status, foreign.script = status, script
    ran = remote(foreign.url, "hi\n")
    assert ran.returncode == 1 and words in ran.stderr and ran.stderr.count("\n") == 1, ran.stderr


def test_another_server_that_breaks_off(foreign):
    foreign.script, foreign.done = event(content="half") + b"\n\n", False
    ran = remote(foreign.url, "hi\n")
    assert ran.returncode == 1 and ran.stdout == "half\n" and "cut off" in ran.stderr


def test_ctrl_c_stops_the_answer_of_a_server(terminal, foreign):
    foreign.script = b"".join(event(content=f"word{i} ") + b"\n\n" for i in range(200))
    foreign.pause = 0.01
    shell = terminal(None, url=foreign.url)
    shell.wait_for("> ")
    shell.type("hi\n")
    shell.wait_for("word1 ")
    began = time.monotonic()
    shell.type("\x03")
    shell.wait_for("(stopped)")
    assert time.monotonic() - began < 10  # the whole answer takes more than twice that
    shell.wait_for("> ")
    foreign.script, foreign.pause = event(content="good") + b"\n\ndata: [DONE]\n\n", 0
    shell.type("again\n")
    shell.wait_for("good")
    shell.wait_for("> ")
    assert foreign.said[1]["messages"][1]["content"].startswith("word0 word1 ")  # what was said stays in the talk
    shell.type("\x04")
    assert shell.status() == 0
