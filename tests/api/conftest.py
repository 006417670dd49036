"""Starts the built `lockstep serve` on the shipped model, once a session, on a free port of the loopback.

LOCKSTEP_BINARY names the binary (default build/lockstep under the repository). Without one these tests fail; they are
never skipped. They need the packages openai and pytest.
"""
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tools"))
MODEL = REPOSITORY / "models/countdown-glm"
START_SECONDS = 60


class Server:
    """A running `lockstep serve`."""

    def __init__(self, *arguments, model=MODEL):
        binary = Path(os.environ.get("LOCKSTEP_BINARY", REPOSITORY / "build" / "lockstep")).resolve()
        if any(os.environ.get(name) for name in ("LOCKSTEP_KILL_AT", "LOCKSTEP_FAIL_AT", "LOCKSTEP_GIVE_WAY")):
            binary = binary.with_name("lockstep_faults")  # the same program, which heeds them
        if not os.access(binary, os.X_OK) or binary.is_dir():
            pytest.fail(f"there is no lockstep binary at {binary}; build it or set LOCKSTEP_BINARY")
        command = [str(binary), "serve", *(["--model", str(model)] if model else []), "--port", "0", *arguments]
        # Under nohup the tests ignore hang-ups, and a server would inherit that.
        hears_hang_ups = lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL)  # noqa: E731
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=hears_hang_ups)
        timer = threading.Timer(START_SECONDS, self.process.kill)
        timer.start()
        line = self.process.stdout.readline()
        timer.cancel()
        found = re.fullmatch(r"listening on https?://127\.0\.0\.1:(\d+)\n", line)
        if not found:
            self.process.kill()
            pytest.fail(f"the server said {line!r}:\n{self.process.stderr.read()}")
        self.port = int(found[1])
        self.errors = []
        self.reader = threading.Thread(target=lambda: self.errors.extend(self.process.stderr), daemon=True)
        self.reader.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def threads(self):
        """Of each thread: its name, whether it runs or waits, where in the kernel, and its seconds of a processor."""
        lines = []
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            name, (state, *fields) = (task / "comm").read_text().strip(), (task / "stat").read_text().rpartition(") ")[2].split()
            lines.append(f"{name} {state} {(task / 'wchan').read_text()} {(int(fields[10]) + int(fields[11])) / 100}")
        return "\n".join(lines)

    def stop(self, how=signal.SIGTERM):
        """The exit status."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            status = self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            threads = self.threads()
            self.process.kill()
            pytest.fail(f"the server did not stop within 60 seconds; its threads:\n{threads}")
        self.reader.join(timeout=5)
        return status


@pytest.fixture(scope="session")
def server():
    running = Server()
    yield running
    assert running.stop() == 0, "".join(running.errors)


# GLM's way of writing, small enough for a context of 512 tokens and a vocabulary that spells letters.
CHAT_TEMPLATE = """[gMASK]{% if tools %}tools{% for tool in tools %} {{ tool.function.name }}{% endfor %}
<tool_call><arg_key><arg_value>{% endif %}{% for m in messages %}<|{{ m.role }}|>
{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}
{% endfor %}{% if add_generation_prompt %}<|assistant|>
{% if enable_thinking %}<think>{% endif %}{% endif %}"""


@pytest.fixture(scope="session")
def chat_folder(tmp_path_factory):
    """The shipped model with a chat template."""
    folder = tmp_path_factory.mktemp("chat") / "countdown-chat"
    shutil.copytree(MODEL, folder)
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    return folder


@pytest.fixture(scope="session")
def chat_server(chat_folder):
    running = Server(model=chat_folder)
    yield running
    assert running.stop() == 0, "".join(running.errors)


@pytest.fixture
def own_server():
    """A function that starts servers of the test's own."""
    started = []

    def start(*arguments, **keywords):
        started.append(Server(*arguments, **keywords))
        return started[-1]

    yield start
    for one in started:
        one.stop(signal.SIGKILL)
