"""A server that a measurement starts, asks and stops, and what the system says of its process.

    with StartedServer([binary(), "serve", "--model", model, "--port", 0]) as server:
        ask(server.url)
        most = server.memory("VmHWM")
"""
import os
import re
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

STOPS_WITHIN = 300  # seconds: a trainer saves what it has


class StartedServer:
    """`url` is http://HOST:PORT, `address` HOST:PORT; `more` is Popen's: env, stderr. RuntimeError where it does not come to listen."""

    def __init__(self, command, **more):
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, **more)
        said = self.process.stdout.readline()
        found = re.fullmatch(r"listening on (http://\S+)\n", said)
        if not found:
            self.process.kill()
            self.process.wait()
            raise RuntimeError(f"the server did not start: it said {said!r}")
        self.url = found[1].rstrip("/")
        self.address = urlsplit(self.url).netloc

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        """Its exit status."""
        self.process.terminate()
        try:
            return self.process.wait(timeout=STOPS_WITHIN)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def memory(self, field):
        """VmHWM, VmRSS, RssFile, ... in bytes."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024

    def processor_seconds(self):
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
