"""Every option of servers and of what asks them (serve, watch, deploy, rollback, fleet, and of chat what asks one), of launch, doctor and demo has an effect, is refused, or stands in
LATER with the reason why no moment shows it and the test that does.

A row of `serve` gives the option a value and a question. Two servers that differ in this option alone are asked; their answers differ, or, of those that
change no result (HARMLESS), are equal. A server that does not start answers with its exit code. A row of another command gives the option a value; what
the command says and leaves behind differs from the same without it. An option without a row fails.
"""
import concurrent.futures
import http.client
import json
import re
import socket
import subprocess
import sys
import time

from harness import BINARY, MODEL, ROOT, TMP, check, done
from server_rows import FOLLOWS, HARMLESS, KEYS, LATER, ROWS, answer, two
from servers import ANN, BEFORE, FILES, GOES_ON, NO, PAGE_PORT, PLACE, Server, WATCH_PORT, furnish, names, once, until


def seen(options, question):
    server = Server(options)
    try:
        if server.ended:
            return "ended", *server.ended
        server.files = len(names(server.folder))
        return question(server)
    except Exception as error:  # noqa: BLE001 it is what was seen, and is told with the row
        return f"raised {error!r}"
    finally:
        server.stop()


def plain(options, question):
    """What a server on these options answers; one that was asked the same before is not asked again."""
    return once(BEFORE, (question, repr(sorted(options.items(), key=str))), lambda: seen(options, question))


def fault(row):
    """None, or what is wrong with an option."""
    name, value, question, *more = row
    began = time.monotonic()
    base = more[0] if more else {}
    if value is None:
        having, without = seen(base, question), seen({**base, name: None}, question)
    else:
        having, without = seen({**base, name: value}, question), plain(base, question)
    TOOK[name] = time.monotonic() - began
    if str(having).startswith("raised") or (having and having[0] == "ended" if isinstance(having, tuple) else False):
        return f"--{name} {value}: {having}"
    if str(without).startswith("raised"):
        return f"without --{name}: {without}"
    if name in HARMLESS and question is answer:
        return None if having == without else f"--{name} {value} changes a result: {having} and not {without}"
    return f"--{name} {value} has no effect: {str(having)[:300]}" if having == without else None


TOOK = {}


# Of other commands: (option, value, what both runs have beside it). `server`: the options of a server that both ask, a new one each.
CHAT = {"deploy-folder": FILES, "route": "chat=countdown-glm:1"}
TO_CHAT = {"to": "chat"}
TALKS = {"chat-template": FILES / "plain.jinja"}
PARTLY = {"chat"}  # the others of its options are rows of option_effects.py
MUTE = socket.create_server(("127.0.0.1", 0))  # takes connections, and never says a word
SILENT = {"url": f"http://127.0.0.1:{MUTE.getsockname()[1]}"}
OF_SERVER = [("url", NO), ("api-key", ANN, {"server": CHAT | KEYS | {"admin": "ann"}}), ("seconds", 1, SILENT), ("json", True)]
# Of the demo, whose runs take seconds, in one run: what shows each is seen by itself.
TOGETHER = {"json": "told.json", "runs": "elsewhere", "page": True, "page-port": PAGE_PORT}
SHOWS = {"json": lambda told: "told.json" in told[2], "runs": lambda told: "elsewhere/demo" in told[2], "page": lambda told: "a page: True" in told[1], "page-port": lambda told: "at its port: True" in told[1]}
LAUNCHED = ["--", "train", "sft", f"--model={MODEL}", "--environment=countdown", "--name=r", "--runs", FILES / "runs"]
NEW_RUN = [*LAUNCHED[:-1], "runs"]
OTHERS = {
    "deploy": ({"WORDS": ["moved"], "name": "second", "server": CHAT}, [("name", NO), ("to", "chat"), ("percent", 10, TO_CHAT), ("gate", FILES / "gate.toml", TO_CHAT), ("force", True, TO_CHAT | {"gate": FILES / "failing.toml"}), *OF_SERVER]),
    "chat": ({"server": TALKS, "stdin": "3 7\n", "seed": 3, "max-tokens": 12}, [("url", NO), ("api-key", ANN, {"server": TALKS | KEYS})]),
    "rollback": ({"WORDS": ["chat"], "server": CHAT, "moved": True}, OF_SERVER),
    "fleet status": ({"WORDS": ["store/chat"], "server": FOLLOWS}, [("quorum", 2), ("json", True)]),
    "fleet watch": ({"WORDS": ["store/chat"], "server": FOLLOWS, "seconds": 0.1}, [("quorum", 2), ("json", True), ("until-ready", True, {"seconds": NO}), ("seconds", 0.2, {"seconds": NO})]),
    "watch": ({"WORDS": [FILES / "runs"], "port": 0}, [("run", FILES / "runs/r"), ("parity", FILES / "parity.json"), ("port", WATCH_PORT)]),
    "doctor": ({}, [("quick", True), ("json", True, {"quick": True}), ("threads", 1), ("ranks", "tp=2", {"quick": True}), ("isa", "scalar", {"ranks": "tp=2", "quick": True}), ("model", MODEL, {"ranks": "tp=2", "quick": True})]),
    "launch": ({"hosts": "a:2,b", "dry-run": True, "device": "h200", "TAIL": NEW_RUN}, [
        ("hosts", "a"), ("hosts-file", FILES / "hosts", {"hosts": NO}), ("ranks", "dp=2", {"device": NO}), ("device", "b200"), ("length", 100), ("network-gigabits", 0.01), ("mpirun", "/bin/false"), ("mpirun-word", "--one"),
        ("agent", "rsh"), ("resume-if-there", True, {"TAIL": LAUNCHED}), ("dry-run", NO, {"mpirun": "/bin/false", "hosts": "localhost"}), ("quiet", True, {"mpirun": "/bin/false", "hosts": "localhost", "dry-run": NO}),
        ("log-file", "told.jsonl", {"mpirun": "/bin/false", "hosts": "localhost", "dry-run": NO}), ("overwrite", True, {"mpirun": "/bin/false", "hosts": "localhost", "dry-run": NO, "log-file": "told.jsonl", "there": "told.jsonl"})]),
    "demo": ({"quick": True, "model": MODEL, "threads": 1, "page": False}, [
        ("quick", NO), *((name, value) for name, value in TOGETHER.items()), ("overwrite", True, {"json": "told.json", "there": "told.json"}), ("arms", "lockstep,split"), ("importance-cap", 0.5, {"arms": "lockstep,split"}), ("model", FILES / "moved"), ("profile", "cpu-f32"),
        ("mla-norm-eps", 0.5), ("context", 20), ("mtp-depths", 2, {"rollout-speculation": "mtp"})]),
}  # fmt: skip
# All at once change nothing of what the demo learns.
HARMLESS_OF_DEMO = {"threads": 2, "device": "cpu", "backend": "deferred", "isa": "avx2", "ranks": "tp=2", "transport": "threads", "micro-batch": 8, "rollout-speculation": "ngram", "draft-tokens": 2}
LATER_OF = {
    "launch": {name: ("it is of what is lost, in the middle of a run", f"tests/check.d/tools/launch.py: --{name}") for name in ("restarts", "back-off", "take-back", "save-seconds")},
    "demo": {"rank-timeout": LATER["rank-timeout"]},
    "doctor": {"transport": ("it takes processes of Open MPI", 'tests/check.d/tools/mpi.py: "--transport", "mpi"'), "rank-timeout": ("a link has to give nothing", "parallel/link_speed_test.cpp: patience")},
}


def run(command, options):
    """What the command says and leaves behind."""
    options = dict(options)
    words, tail, there, copy, asked, moved, stdin = (options.pop(name, None) for name in ("WORDS", "TAIL", "there", "copy", "server", "moved", "stdin"))
    server = Server(asked) if asked else None
    folder = server.folder if server else TMP / "others" / str(next(PLACE))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        if there:
            (folder / there).write_text("somebody's")
        if server and command in ("deploy", "rollback", "chat"):
            options = {"url": f"http://127.0.0.1:{server.port}", **options}
        if server and "follow" in asked:
            until(lambda: b"ready" in subprocess.run([BINARY, "fleet", "status", "store/chat"], cwd=folder, capture_output=True).stdout.split(b"\n")[1], 10)
        if moved:
            subprocess.run([BINARY, "deploy", "moved", "--name=second", "--to=chat", f"--url=http://127.0.0.1:{server.port}"], cwd=folder, env={"LOCKSTEP_API_KEY": ANN} if "admin" in asked else {}, capture_output=True)
        line = [BINARY, *command.split(), *(words or [])] + [f"--{n}" if v is True else f"--no-{n}" if v is False else f"--{n}={v}" for n, v in options.items() if v != NO] + (tail or [])
        asking = TMP / f"asking-{next(PLACE)}"
        asking.write_text(stdin or "")
        with (folder / "said").open("w") as said, asking.open() as lines:
            process = subprocess.Popen([str(word) for word in line], cwd=folder, stdin=lines, stdout=said, stderr=said)
        try:
            if command == "watch":
                return watched(process, folder / "said")
            status = process.wait(4 if NO in (options.get("quick"), options.get("seconds")) or options.get("url") == SILENT["url"] else 60)
        except subprocess.TimeoutExpired:
            status = GOES_ON
        finally:
            process.kill()
            process.wait()
        text = re.sub(r"(in )?\d+(\.\d+)? s\b|127\.0\.0\.1:\d+|\"(seconds|created|silent_seconds)\":\S+|[\d.]+ (GB/s|available)", "T", (folder / "said").read_text().replace(str(folder), "HERE"))
        if command == "demo":
            whole = (folder / "said").read_text()
            text = re.sub(r"^.*(seconds|sampling|training|evaluation|tokens/s|serving|live:).*$", "", text, flags=re.M) + f"a page: {'watch it live' in whole}, at its port: {f'live: http://127.0.0.1:{PAGE_PORT}' in whole}"
        return status, text, [] if server else names(folder)
    finally:
        if server:
            server.stop()


def run_before(command, base):
    return once(BEFORE, (command, repr(sorted(base.items(), key=str))), lambda: run(command, base))


def watched(process, said):
    """The address of the page, and what it shows."""
    port = until(lambda: re.search(r"http://127\.0\.0\.1:(\d+)", said.read_text()), 10)[1]

    def page_of(path):
        connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=10)
        connection.request("GET", path)
        return json.loads(connection.getresponse().read())

    shown = page_of("/api/runs")
    return port == str(WATCH_PORT), shown, [page_of(f"/api/runs/{one['name']}").get("parity") for one in shown["runs"]]


def fault_of(command, row):
    """None, or what is wrong with an option of another command."""
    name, value, *more = row
    base = OTHERS[command][0] | (more[0] if more else {})
    if "url" in base and name == "url":
        base = {k: v for k, v in base.items() if k != "url"}
    try:
        together = TOGETHER if command == "demo" and name in TOGETHER else {name: value}
        having, without = run_before(command, base | together), run_before(command, base)
    except Exception as error:  # noqa: BLE001 it is what was seen
        return f"{command} --{name} {value}: {error!r}"
    if command == "demo" and name in TOGETHER:
        return None if SHOWS[name](having) and not SHOWS[name](without) else f"demo --{name} {value} has no effect: {having}"
    if name == "context":
        return None if "the longest context 20" in having[1] and not without[0] else f"demo --context {value} has no effect: {having}"
    if value != NO and (having[0] == 2 or (command == "demo" and "weights of" not in having[1]) or (command in ("doctor", "launch") and having[0] and not without[0])):
        return f"{command} --{name} {value} is refused: {having[1][-300:]}"
    return f"{command} --{name} {value} has no effect: {str(having)[:600]}" if having == without else None


def hash_of_demo(**more):
    return re.search(r"^weights of .*$", run_before("demo", OTHERS["demo"][0] | more)[1], re.M)[0]


def options_of(command):
    return {o["name"][2:] for o in json.loads(done(*command.split(), "--help=json").stdout)["options"] if o["name"].startswith("--")} - {"log-level"}


def wrong_list(command, rows, later):
    """Options without a row, and rows without an option."""
    known = options_of(command)
    return [f"{command} --{name} has no row" for name in sorted(known - set(rows) - set(later))] + [f"{command} --{name} is no option" for name in sorted((set(rows) | set(later)) - known)]


def main():
    furnish()
    rows = ROWS + [(name, value, answer) for name, value in HARMLESS.items()]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:  # some only wait
        others = [(command, row) for command, (_, rows_of) in OTHERS.items() for row in rows_of]
        of_servers = [pool.submit(fault, row) for row in rows]
        of_others = [(command, pool.submit(fault_of, command, row)) for command, row in others]
        demos = pool.submit(hash_of_demo), pool.submit(hash_of_demo, **HARMLESS_OF_DEMO)
    with check("serve"):
        faults = [f for f in (one.result() for one in of_servers) if f] + wrong_list("serve", [row[0] for row in rows], LATER)
        assert not faults, f"{len(faults)} of {len(rows)}\n" + "\n".join(faults)
    for command, (_, rows_of) in OTHERS.items():
        with check(command.replace(" ", "-")):
            faults = [f for which, one in of_others if which == command and (f := one.result())]
            wrong = wrong_list(command, [row[0] for row in rows_of] + (list(HARMLESS_OF_DEMO) if command == "demo" else []), LATER_OF.get(command, {}))
            faults += [one for one in wrong if command not in PARTLY or "has no row" not in one]
            assert not faults, f"{len(faults)} of {len(rows_of)}\n" + "\n".join(faults)
    with check("demo-harmless"):
        assert demos[0].result() == demos[1].result()
    with check("shown-later"):
        for command, later in {"serve": LATER, **LATER_OF}.items():
            for name, (_, shown) in later.items():
                file, word = shown.split(": ")
                path = ROOT / file if file.startswith("tests/") else ROOT / "src" / file
                assert word in path.read_text(), f"{command} --{name}: {file} has not the word {word}"
    with check("control"):
        # An option without effect is told, and so is one of the harmless that has one.
        assert fault(("max-open", 1024, two)) == "--max-open 1024 has no effect: 200"
        HARMLESS["profile"] = "cpu-f32"
        assert "changes a result" in fault(("profile", "cpu-f32", answer))
        assert "has no effect" in fault_of("launch", ("length", 512))
        assert wrong_list("rollback", ["url", "seconds", "json", "planted"], {}) == ["rollback --api-key has no row", "rollback --planted is no option"]
    if "--times" in sys.argv:
        print(*sorted(((round(took, 1), name) for name, took in TOOK.items()), reverse=True)[:20])


main()
