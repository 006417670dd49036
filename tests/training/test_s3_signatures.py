"""Every request to S3 has the signature that botocore computes for it, with a session token too; the secret and the token stand in no message. Who loses a
race for a channel or for the lock changes nothing."""
import hashlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from store_tools import Model, run, same

VARIABLES = {"AWS_ACCESS_KEY_ID": "key-of-tests", "AWS_SECRET_ACCESS_KEY": "secret-of-tests", "AWS_SESSION_TOKEN": "token/of+tests==", "AWS_DEFAULT_REGION": "eu-central-1"}


def signature_of(method, url, headers, secret):
    """Botocore's, of a request with these signed headers."""
    auth = S3SigV4Auth(Credentials(VARIABLES["AWS_ACCESS_KEY_ID"], secret, VARIABLES["AWS_SESSION_TOKEN"]), "s3", VARIABLES["AWS_DEFAULT_REGION"])
    request = AWSRequest(method, url, headers=headers)
    request.context["timestamp"] = headers["x-amz-date"]
    return auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)


class Bucket:
    """Objects in memory, and what was wrong with requests for them. `others`: {path: bytes} that another writer puts there at the moment before the next PUT of that path."""

    def __init__(self):
        bucket = self
        self.objects, self.asked, self.wrong, self.others = {}, [], [], {}

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def check(self, body):
                parts = dict(p.strip().split("=", 1) for p in self.headers["Authorization"].removeprefix("AWS4-HMAC-SHA256 ").split(","))
                headers = {name: self.headers[name] for name in parts["SignedHeaders"].split(";")}
                bucket.asked.append((self.command, self.path, sorted(headers)))
                wanted = signature_of(self.command, f"http://{self.headers['Host']}{self.path}", headers, VARIABLES["AWS_SECRET_ACCESS_KEY"])
                digest = self.headers["x-amz-content-sha256"]
                if parts["Signature"] != wanted or self.headers["x-amz-security-token"] != VARIABLES["AWS_SESSION_TOKEN"]:
                    bucket.wrong.append(bucket.asked[-1])
                    return False
                return digest == "UNSIGNED-PAYLOAD" or digest == hashlib.sha256(body).hexdigest()

            def answer(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                path, _, query = self.path.partition("?")
                if self.command == "PUT" and path in bucket.others:
                    bucket.objects[path] = bucket.others.pop(path)
                known = bucket.objects.get(path)
                if not self.check(body):
                    return self.say(403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>")
                if query.startswith("list-type"):
                    prefix = query.rsplit("prefix=", 1)[1].replace("%2F", "/")
                    keys = sorted(k.removeprefix("/weights/") for k in bucket.objects)
                    return self.say(200, "".join(f"<Key>{k}</Key>" for k in keys if k.startswith(prefix)).encode())
                if self.command == "PUT":
                    if (self.headers["If-None-Match"] and known is not None) or (self.headers["If-Match"] and self.headers["If-Match"] != self.tag(known)):
                        return self.say(412)
                    bucket.objects[path] = body
                    return self.say(200)
                if self.command == "DELETE":
                    bucket.objects.pop(path, None)
                    return self.say(204)
                if known is None:
                    return self.say(404)
                asked = self.headers["Range"]
                if asked:
                    begin, last = asked.removeprefix("bytes=").split("-")
                    return self.say(206, known[int(begin) : int(last) + 1], ("Content-Range", f"bytes {begin}-{last}/{len(known)}"))
                return self.say(200, known)

            do_GET = do_HEAD = do_PUT = do_DELETE = do_POST = answer

            def tag(self, data):
                return f'"{hashlib.md5(data or b"").hexdigest()}"'

            def say(self, status, data=b"", *more):
                self.send_response(status)
                for name, value in (("Content-Length", str(len(data))), ("ETag", self.tag(data)), *more):
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.http.shutdown()
        self.http.server_close()


def test_every_request_has_botocores_signature(tmp_path):
    model, place = Model(tmp_path, seed=21, elements=4_000), "s3://weights/models/chat"
    with Bucket() as bucket:
        variables = {**VARIABLES, "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{bucket.http.server_port}", "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
        for _ in range(2):
            run("snapshot", "push", model.step(9), place, "--channel", "chat", "--json", **variables)
        run("snapshot", "pull", place, "chat", tmp_path / "out", "--json", **variables)
        assert same(tmp_path / "out", model.now)
        assert len(run("snapshot", "show", place, "--json", **variables)["snapshots"]) == 2
        assert not bucket.wrong, bucket.wrong
        assert {method for method, _, _ in bucket.asked} == {"GET", "HEAD", "PUT", "DELETE"} and len(bucket.asked) > 30
        signed = {name for _, _, names in bucket.asked for name in names}
        assert signed >= {"host", "x-amz-content-sha256", "x-amz-date", "x-amz-security-token", "if-match", "if-none-match", "range"}, signed
        # A control: another secret, and another token, are seen.
        for name, value in (("AWS_SECRET_ACCESS_KEY", "another-secret"), ("AWS_SESSION_TOKEN", "another-token")):
            refused = run("snapshot", "show", place, status=1, **{**variables, name: value})
            assert "status 403 (SignatureDoesNotMatch)" in refused.stderr and value not in refused.stderr and bucket.wrong, refused.stderr
            bucket.wrong.clear()


def test_who_loses_a_race_changes_nothing(tmp_path):
    model, place, root = Model(tmp_path, seed=22, elements=4_000), "s3://weights/models/chat", "/weights/models/chat"
    channel, lock = f"{root}/channels/chat.json", f"{root}/lock"
    record = lambda sequence: json.dumps({"sequence": sequence, "target": 32 * "ab", "transition": "immediate"}, separators=(",", ":")).encode()  # noqa: E731
    with Bucket() as bucket:
        variables = {**VARIABLES, "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{bucket.http.server_port}"}
        # Of a channel that is not there yet (If-None-Match), and of one that is (If-Match): somebody moves it between our look and our write.
        for sequence in (1, 2):
            folder = model.step(9)
            bucket.others[channel] = record(sequence)
            refused = run("snapshot", "push", folder, place, "--channel", "chat", "--quiet", status=1, **variables)
            assert "somebody moved it" in refused.stderr and "abababababab" in refused.stderr, refused.stderr
            assert bucket.objects[channel] == record(sequence) and not bucket.others and lock not in bucket.objects
            del bucket.objects[channel]
            run("snapshot", "push", folder, place, "--channel", "chat", "--json", **variables)
            assert json.loads(bucket.objects[channel])["sequence"] == 1
        # Of the lock: the other has it, and nothing is written.
        theirs = json.dumps({"owner": 16 * "f", "until": int(time.time()) + 600}, separators=(",", ":")).encode()
        bucket.others[lock], before = theirs, dict(bucket.objects)
        refused = run("snapshot", "push", model.step(9), place, "--channel", "chat", "--quiet", status=1, **variables)
        assert "another process writes" in refused.stderr, refused.stderr
        assert bucket.objects == before | {lock: theirs} and not bucket.others
        assert not bucket.wrong, bucket.wrong
