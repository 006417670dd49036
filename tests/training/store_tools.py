"""Small models, and servers of stores that behave and that do not, for the tests of snapshots over a network."""
import contextlib
import json
import os
import re
import socket
import subprocess
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

REPOSITORY = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("LOCKSTEP_BINARY", REPOSITORY / "build/lockstep")).resolve()
FAULTS = BINARY.with_name("lockstep_faults")


def run(*command, status=0, program=BINARY, timeout=240, **variables):
    """The last line of --json, or all that was said; a status of None: any."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": os.environ.get("HOME", "/"), "TMPDIR": os.environ.get("TMPDIR", "/tmp"), **variables}
    done = subprocess.run([str(c) for c in (program, *command)], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)
    assert status is None or done.returncode == status, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    if "--json" in command and done.returncode == 0:
        return json.loads(done.stdout.strip().splitlines()[-1])
    return done


def wait_for(port):
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError("the server does not listen")


def wait_until(what, seconds=60):
    """Until what() is true."""
    ended = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < ended, f"it did not come to pass in {seconds} seconds"
        time.sleep(0.02)


@contextlib.contextmanager
def nginx(folder, places, outside=""):
    """Debian's nginx with these places of a server on the loopback, and what stands outside of the server; its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    kept = " ".join(f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    settings = folder / "nginx.conf"
    settings.write_text(f"daemon off; pid {folder}/nginx.pid; error_log stderr; events {{}} http {{ access_log off; {kept} {outside} "
                        f"server {{ listen 127.0.0.1:{port}; {places} }} }}")
    user = "user root; " if os.getuid() == 0 else ""
    server = subprocess.Popen(["/usr/sbin/nginx", "-e", "stderr", "-c", str(settings), "-g", user], stderr=subprocess.DEVNULL)
    try:
        wait_for(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


class Model:
    """A folder with a few tensors, and steps of it."""

    def __init__(self, root, seed=5, elements=2_400_000):
        self.root, self.random = Path(root), np.random.default_rng(seed)
        self.now = {"embed.weight": self.random.standard_normal(elements).astype(np.float32).reshape(-1, 100), "norm.weight": np.ones(64, np.float16),
                    "proj.weight": self.random.standard_normal(6400).astype(np.float16).reshape(64, 100)}
        self.steps = 0

    def step(self, changes=300):
        """Changes a few elements by the lowest bit, and writes the folder."""
        for value in self.now.values():
            words = value.reshape(-1).view(f"u{value.itemsize}")
            words[self.random.integers(0, len(words), min(changes, len(words) // 4))] ^= 1
        return self.write()

    def write(self):
        folder = self.root / f"step-{self.steps}"
        folder.mkdir()
        (folder / "config.json").write_text('{"model_type": "llama"}\n')
        (folder / "tokenizer.json").write_text("{}\n")
        save_file(self.now, folder / "model.safetensors")
        self.steps += 1
        return folder


def same(folder, wanted):
    found = load_file(Path(folder) / "model.safetensors")
    return found.keys() == wanted.keys() and all(found[n].dtype == wanted[n].dtype and found[n].tobytes() == wanted[n].tobytes() for n in wanted)


class StoreServer:
    """Gives a folder out over HTTP, with ranges and ETags, and counts. `fault(path, number)`: what goes wrong with this answer, of a path's `number`-th
    GET (from 1); None: nothing."""

    def __init__(self, root, fault=None, key=None, ranges=True):
        server = self
        self.root, self.fault, self.key, self.ranges = Path(root), fault or (lambda path, number: None), key, ranges
        self.sent, self.asked, self.lock = Counter(), Counter(), threading.Lock()
        self.not_modified = 0

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self):
                import socket

                self.request.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
                super().setup()

            def log_message(self, *_):
                pass

            def refuse(self, status, text=b""):
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def do_HEAD(self):
                self.do_GET()

            def do_GET(self):
                try:
                    self.answer()
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

            def answer(self):
                path = self.path.lstrip("/")
                get = self.command == "GET"
                with server.lock:
                    if get:
                        server.asked[path] += 1
                    number = server.asked[path]
                fault = server.fault(path, number) if get else None
                if server.key and self.headers.get("Authorization") != f"Bearer {server.key}":
                    return self.refuse(401)
                file = server.root / path
                if isinstance(fault, int):
                    return self.refuse(fault, b"<html>go away</html>")
                if file.is_dir() and path.endswith("/"):
                    return self.refuse(200, "".join(f'<a href="{p.name}">{p.name}</a>\n' for p in file.iterdir()).encode())
                if not file.is_file() or fault == "missing":
                    return self.refuse(404)
                data = file.read_bytes()
                if fault == "lie":
                    data = data[:-1] + bytes([data[-1] ^ 1])
                if fault == "short":
                    data = data[: len(data) // 2]
                tag = f'"{hash(data) & 0xFFFFFFFF:x}"'
                if get and self.headers.get("If-None-Match") == tag:
                    server.not_modified += 1
                    self.send_response(304)
                    self.end_headers()
                    return None
                begin, end, status = 0, len(data), 200
                asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")) if server.ranges else None
                if asked:
                    begin, end, status = int(asked[1]), min(int(asked[2]) + 1, len(data)), 206
                    if begin >= len(data):
                        return self.refuse(416)
                self.send_response(status)
                self.send_header("Content-Length", str(end - begin + (1000 if fault == "endless" else 0)))
                self.send_header("ETag", tag)
                if server.ranges:
                    self.send_header("Accept-Ranges", "bytes")
                if asked:
                    shown = begin + 7 if fault == "other range" else begin
                    self.send_header("Content-Range", f"bytes {shown}-{end - 1}/{len(data)}")
                self.end_headers()
                if not get:
                    return None
                stop = begin + (end - begin) // 2 if fault in ("cut", "stall") else end
                for at in range(begin, stop, 1 << 15):
                    piece = data[at : min(at + (1 << 15), stop)]
                    self.wfile.write(piece)
                    with server.lock:
                        server.sent[path] += len(piece)
                    if fault == "late":
                        time.sleep(0.002 * (begin // (4 << 20) % 3))
                if fault == "endless":
                    self.wfile.write(b"x" * 1000)
                if fault == "stall":
                    time.sleep(4)
                if fault in ("cut", "stall"):
                    self.close_connection = True
                return None

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_):  # a client that was killed
                pass

        self.http = Server(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.http.shutdown()
        self.http.server_close()

    def objects_sent(self):
        return sum(n for path, n in self.sent.items() if path.startswith("objects/"))
