"""`lockstep chat`: from a pipe, and in a terminal of its own (a pty), where Ctrl-C stops an answer and not the program."""
import json
import os
import pty
import select
import signal
import subprocess
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


def test_reset_and_system(chat_folder, tmp_path):
    saved = tmp_path / "talk.json"
    ran = piped(chat_folder, f"a\n/reset\n/system be kind\nb\n/save {saved}", "--max-tokens", "4")
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
    def __init__(self, folder, *options):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execv(BINARY, [str(BINARY), "chat", "--model", str(folder), *options])
        self.seen = ""

    def wait_for(self, words, seconds=60):
        """What came up to and with these words."""
        end = time.monotonic() + seconds
        while words not in self.seen:
            assert time.monotonic() < end, self.seen
            if select.select([self.fd], [], [], 0.2)[0]:
                try:
                    self.seen += os.read(self.fd, 4096).decode("utf-8", "replace")
                except OSError:  # it ended
                    assert words in self.seen, self.seen
        before, _, self.seen = self.seen.partition(words)
        return before

    def type(self, text):
        os.write(self.fd, text.encode())

    def status(self):
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_a_terminal(chat_folder):
    terminal = Terminal(chat_folder, "--temperature", "0")
    terminal.wait_for("> ")
    terminal.type("/help\n")
    terminal.wait_for("/save FILE")
    terminal.wait_for("> ")
    terminal.type("/bad\n")  # an error is told, and the talk goes on
    terminal.wait_for("unknown command '/bad'")
    terminal.wait_for("> ")
    terminal.type("\x03")  # no answer runs: a word, and a new line
    terminal.wait_for("Ctrl-D ends")
    terminal.wait_for("> ")
    terminal.type("3 7 12=48:\n")
    terminal.wait_for("> ")
    terminal.type("\x04")
    assert terminal.status() == 0


def test_ctrl_c_stops_the_answer_alone(chat_folder):
    # On one slow thread of scalar code a full context takes long enough to be stopped.
    terminal = Terminal(chat_folder, "--temperature", "100", "--isa", "scalar", "--threads", "1")
    terminal.wait_for("> ")
    stopped = False
    for _ in range(20):  # an answer may end by itself first
        terminal.type("3 7 12=48:\n")
        terminal.wait_for("48:\r\n")
        time.sleep(0.02)
        terminal.type("\x03")
        stopped = "(stopped)" in terminal.wait_for("> ")
        terminal.type("/reset\n")
        terminal.wait_for("> ")
        if stopped:
            break
    assert stopped
    terminal.type("1 2 3=6:\n")
    terminal.wait_for("> ")
    terminal.type("\x04")
    assert terminal.status() == 0


def test_sigterm_ends_it(chat_folder):
    terminal = Terminal(chat_folder)
    terminal.wait_for("> ")
    os.kill(terminal.pid, signal.SIGTERM)
    assert terminal.status() == 143
