"""A relay between a client and our server: it hands every request on and every answer back, notes what was asked, and may change one answer
on its way, as another server would give it. So a package is tested as it is, with nothing in it replaced."""
import contextlib
import http.client
import http.server
import json
import threading
from urllib.parse import urlsplit

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}


class Relay:
    """`url` for clients; `paths` of all requests so far; `waits`: what each poll (408) was told. `answers`: {end of a path: fields that its JSON answer then has}."""

    def __init__(self, target, answers=None):
        self.paths, self.waits, self.changed = [], [], 0
        relay, place = self, urlsplit(target)

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def relayed(self):
                relay.paths.append(self.path)
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP_BY_HOP}
                with contextlib.closing(http.client.HTTPConnection(place.hostname, place.port, timeout=120)) as onward:
                    onward.request(self.command, self.path, body or None, headers)
                    answer = onward.getresponse()
                    content = answer.read()
                for end, fields in (answers or {}).items():
                    if self.path.split("?")[0].endswith(end) and answer.status == 200:
                        content = json.dumps({**json.loads(content), **fields}).encode()
                        relay.changed += 1
                if answer.status == 408:
                    relay.waits.append(json.loads(content))
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in HOP_BY_HOP:
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = relayed

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):  # a client that left
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
