"""Walks what a stranger reads, in an empty folder: the commands of README.md, the examples of every --help, docs/coming-from.md, and the
commands that the pages of TOUR begin with.

Two ways: `wheel`, the package as pip installs it, from the program under test; and `checkout`, where models/ and recipes/ lie beside build/.
A command is run as it is written, but for what SHORTER adds to the long ones and what NOT_WALKED leaves out, with the reason, and ONCE. A command
that none of them names is walked as it is: a new example is walked from its first day. Words such as DIR are files of this folder (PLACEHOLDERS).
The scripts ./demo, ./check, ./setup and ./wheel of README are walked by script/demo, by CI itself and by tests/python.
"""
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

from harness import BINARY, ROOT, TMP, check

TOUR = ("own-data.md", "live-page.md", "training-shapes.md", "training-api.md")
SECONDS = 300  # of one command at most, beside others on a slow machine
# Behind the first word of `lockstep`: what makes a long command short. The first pattern that is found decides.
SHORTER = [
    (r"^train rl", "--set steps=1 --set warmup=0 --set problems=2 --no-page"),
    (r"^train sft --config", "--set steps=1 --set warmup=0 --no-page"),
    (r"^train sft .*--resume", "--no-page"),
    (r"^train sft", "--epochs 1 --no-page"),
    (r"^train preference --config", "--steps 1 --data pairs.jsonl --eval pairs.jsonl --no-page"),
    (r"^train preference", "--no-page"),
    (r"^train distill", "--steps 1 --prompts 2 --no-page"),
    (r"^eval countdown(?!.*--n)", "--n 20"),
    (r"^parity .*--fuzz", "--fuzz 2"),
    (r"^demo --quick", "--no-page"),
    (r"^demo --json", "--quick --no-page"),
    (r"^bench (prefill|decode|train|rl|prefix|counters|context)", "--seconds 0.1"),
    (r"^(serve|watch)(?!.*--port 0)", "--port 0"),
]
# The model that comes along has a context of 512 tokens, and adapters of it stand in for anybody's.
SMALLER = {"--tokens 512": "--tokens 128", "--length 4096": "--length 256", "--tokens 4096,65536,1048576": "--tokens 256", "--context 2048": "--context 256", "NAME=ADAPTER": "mine=runs/lora-run/export"}
NOT_WALKED = [
    (r"^fleet (status|watch)", "exit code 1 while no replica follows the channel, as here: tests/api/test_fleet.py walks them"),
    (r"^bench serve", "asks a server: tests/api/test_bench_serve.py walks it"),
    (r"^(deploy|rollback)", "asks a server that has an alias: tests/api/test_deployments.py walks them"),
    (r"^demo$", "two minutes: the same command with --quick is walked, and the whole one by ./check --night"),
    (r"^eval .*--n 500", "half a minute: eval is walked with fewer problems"),
    (r"^parity --case", "repeats a difference, of which no run here has one: tests/system/difference_case_test.cpp makes one, and script/cli walks it"),
    (r"^parity .*--fuzz 1000", "minutes: parity is walked with fewer cases"),
    (r"^bench gemm --shape 4096x4096", "seconds of all processors: bench gemm is walked in script/speed"),
    (r"^bench (gemm|attention|memory|score)", "they time the whole machine: script/speed walks them"),
    (r"^bench (train|rl|prefix|counters)", "they time the whole machine: script/speed walks them"),
    (r"^doctor", "a measurement of the whole machine: script/cli and the unit tests walk it"),
    (r"--host 0\.0\.0\.0", "opens this machine to others, and needs a certificate: tests/api walks TLS and keys"),
]
# Long ones that stand in several texts word for word: walked once for the wheel and once for the checkout, in README where they stand there; parity, half a
# minute of a processor that is the same program's in both, once for both.
ONCE = {r"^parity ": "", r"^demo --quick$": "of each way"}
walked_once = set()  # of (way, command)
PROBLEM = {"prompt": "16 19 14=17:", "completion": "19-16=3,14+3=17"}
TEMPLATE = "{% for message in messages %}{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] }}{% endgeneration %}{% else %}{{ message['content'] }}{% endif %}{% endfor %}"
# What stands for a word of an example: a path in the stranger's folder.
PLACEHOLDERS = {"DIR": "chatty", "OUT/bf16": "chatty", "MODEL": "chatty", "TEXT": "3 7 12=48:", "NAME": "mine", "FILE": "template.jinja", "SCHEMA": "schema.json", "model/config.json": "chatty/config.json", "KEY": "secret-of-a-stranger"}


def furnish(folder):
    """The files that the examples name: those a user would have."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("chatty", "step-1", "step-2"):
        shutil.copytree(ROOT / "models/countdown-glm", folder / name)
    (folder / "chatty/chat_template.jinja").write_text(TEMPLATE)
    shutil.copyfile(ROOT / "tests/fuzz/corpus/gguf_fuzz/bpe", folder / "model.gguf")
    (folder / "template.jinja").write_text(TEMPLATE)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    lines = lambda *objects: "".join(json.dumps(o) + "\n" for o in objects)  # noqa: E731
    for name in ("my.jsonl", "data.jsonl"):
        (folder / name).write_text(lines(*[PROBLEM] * 8))
    prompt, right = PROBLEM["prompt"], PROBLEM["completion"]
    (folder / "prompts.jsonl").write_text(lines(*[{"prompt": prompt}] * 4))
    (folder / "teachers.toml").write_text('[[teacher]]\nname = "itself"\nfolder = "chatty"\n')
    (folder / "pairs.jsonl").write_text(lines(*[{"prompt": prompt, "chosen": right, "rejected": right[::-1]}] * 8))
    (folder / "labels.jsonl").write_text(lines(*[{"prompt": prompt, "completion": right, "label": True}] * 8))
    (folder / "sequences.jsonl").write_text(lines({"tokens": [1, 5, 7, 9, 11]}, {"tokens": [1, 6, 3]}))
    (folder / "rollouts.jsonl").write_text(lines({"tokens": [1, 5, 7, 9], "weights": [0, 1, 1], "advantages": [0, 1, 1], "logprobs": [0, -1, -1]}))
    (folder / "chat.json").write_text(json.dumps([{"role": "user", "content": "3 7 12=48:"}]))
    (folder / "tools.json").write_text(json.dumps([{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}]))
    (folder / "questions.txt").write_text("3 7 12=48:\n")
    (folder / "other/demo").mkdir(parents=True)
    (folder / "other/demo/metrics-lockstep.jsonl").write_text(lines({"step": 1, "reward": 0.5}))
    (folder / "schema.json").write_text(json.dumps({"type": "integer"}))


class Place:
    """Where a stranger stands: a folder, and what `lockstep` and `build/lockstep` are there."""

    def __init__(self, name, folder, path):
        self.name, self.folder = name, folder
        self.environment = {"PATH": f"{path}:/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8"}
        furnish(folder)

    def run(self, words, redirect, more):
        """None, or what went wrong. A server is asked to end when it says where it listens."""
        environment = {**self.environment, **more}
        program = shutil.which("lockstep", path=environment["PATH"])
        source = open(self.folder / redirect) if redirect else subprocess.DEVNULL
        out, err = self.folder / ".out", self.folder / ".err"
        with open(out, "w") as o, open(err, "w") as e:
            process = subprocess.Popen([program, *words], cwd=self.folder, env=environment, stdin=source, stdout=o, stderr=e)
            server = words[0] in ("serve", "watch")
            asked, end = False, time.monotonic() + SECONDS
            while process.poll() is None:
                if server and not asked and re.search(r"listening on http|watch it live: http", out.read_text() + err.read_text(errors="replace")):
                    process.send_signal(signal.SIGTERM)
                    asked = True
                if time.monotonic() > end:
                    process.kill()
                    process.wait()
                    return f"no end after {SECONDS} s"
                time.sleep(0.02)
        said = err.read_text(errors="replace")
        if server and not asked:
            return f"ended with status {process.returncode} before it listened: {said[-400:]}"
        if process.returncode not in ((0, 143) if words[0] == "watch" else (0,)):
            return f"status {process.returncode}: {said[-400:]}"
        return None


def chat_with_a_server(place, words):
    """An example of `chat --url`: a server stands at the other end."""
    server = subprocess.Popen([shutil.which("lockstep", path=place.environment["PATH"]), "serve", "--model", "chatty", "--port", "0"], cwd=place.folder, env=place.environment,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        url = next(match[1] for line in server.stdout if (match := re.search(r"listening on (http\S+)", line)))
        return place.run([url if word.startswith("http://") else word for word in words], "questions.txt", {})
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=SECONDS)


def walk(place, command):
    """Runs one command as it is written in a text. None, or the fault; the word "left" for one that is not walked."""
    line, _, redirect = command.partition(" < ")
    for long, small in SMALLER.items():
        line = line.replace(long, small)
    words = shlex.split(line, comments=True)
    more = {}
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        more[name] = PLACEHOLDERS.get(value, value)
    words = words[1:]  # the program
    text = " ".join(words)
    if any(re.search(pattern, text) for pattern, _ in NOT_WALKED):
        return "left"
    for pattern, ways in ONCE.items():
        if re.search(pattern, text):
            if (ways and place.name, text) in walked_once:
                return "left"
            walked_once.add((ways and place.name, text))
    if redirect == "requests.jsonl":  # each command has requests of its own
        (place.folder / redirect).write_text(json.dumps({"text": "3 7"} if words[0] == "tokenize" else {"messages": [{"role": "user", "content": "3"}]}) + "\n")
    if redirect and not (place.folder / redirect).exists():
        return f"the file {redirect} is not furnished"
    words = [PLACEHOLDERS.get(word, word) for word in words]
    for pattern, added in SHORTER:
        if re.search(pattern, text):
            added = shlex.split(added)
            # An option that is given twice would be refused or meaningless: the shorter one stands.
            if added and added[0] == "--fuzz":
                words[words.index("--fuzz") + 1] = added[1]
            elif added and added[0] == "--port" and "--port" in words:
                words[words.index("--port") + 1] = added[1]
            else:
                words += added
            break
    if "--url" in words:
        return chat_with_a_server(place, words)
    if words[0] == "chat" and not redirect:
        redirect = "questions.txt"
    return place.run(words, redirect, more)


# --- what there is to read ---------------------------------------------------------------------------------------------
def help_examples(place):
    """{"train sft": [examples]}: of every command, kind and subcommand that the overview and usages name."""
    program = shutil.which("lockstep", path=place.environment["PATH"])
    said = lambda *words: subprocess.run([program, *words], cwd=place.folder, env=place.environment, capture_output=True, text=True, timeout=SECONDS, check=True).stdout  # noqa: E731
    examples = lambda text: [line.strip() for line in text.splitlines() if re.match(r"  lockstep (?!COMMAND)", line)]  # noqa: E731
    found = {}
    for name in re.findall(r"^  ([a-z][a-z-]*)  ", said("help"), re.M):
        if name == "help":
            continue
        text = said(name, "--help")
        kinds = {"train": ["sft", "rl", "preference", "distill"]}.get(name) or (re.findall(r"^  ([a-z]+)  ", text, re.M) if text.startswith("usage:") else [])
        found[name] = examples(text)
        for kind in kinds:
            found[f"{name} {kind}"] = examples(said(name, kind, "--help"))
    # Runs that others look at come first.
    return dict(sorted(found.items(), key=lambda item: (not item[0].startswith(("train", "demo")), item[0])))


def commands_of(page):
    """Lines that begin with the program, without what is said beside them; one that has [options] is a form, not a command."""
    lines = re.findall(r"^ *((?:build/)?lockstep [a-z].*)$", (ROOT / page).read_text(), re.M)
    found = [re.split(r"\s{2,}|\s+#", line)[0].strip() for line in lines if "[" not in line]
    assert found, f"{page} has no command"
    return found


def readme_commands():
    """Its first command is ./demo, which leaves the run that a later one serves: the quick demo stands for it."""
    return ["build/lockstep demo --quick", *(command for command in commands_of("README.md") if command.startswith("build/"))]


def coming_from_commands():
    """The commands of the right column, those that make runs before those that use them."""
    found = []
    for line in (ROOT / "docs/coming-from.md").read_text().splitlines():
        if line.startswith("| `") or line.startswith("| "):
            here = line.rsplit(" | ", 1)[-1]
            found += re.findall(r"`((?:[A-Z_]+=\S+ )?lockstep [^`]+)`", here)
    return sorted(dict.fromkeys(found), key=lambda c: (" train " not in c, "--resume" in c))


def walked(place, commands):
    """Runs them; AssertionError with every fault. Says how many, and what was left out."""
    faults, left, begin = [], [], time.monotonic()
    commands = list(dict.fromkeys(commands))
    for command in commands:
        fault = walk(place, command)
        if fault == "left":
            left.append(command)
        elif fault:
            faults.append(f"{command}\n    {fault}")
    print(f"  {place.name}: {len(commands) - len(left)} commands walked in {time.monotonic() - begin:.0f} s; left out: {'; '.join(left) or 'none'}", flush=True)
    assert not faults, f"{len(faults)} of {len(commands)} commands fail\n" + "\n".join(faults)
    assert len(left) < len(commands), "nothing was walked"


def installed(folder):
    """The wheel of the program under test, in a folder of its own; its bin/ has `lockstep`."""
    built = subprocess.run([sys.executable, "-B", ROOT / "python/backend.py", "--binary", BINARY, "--out", folder], capture_output=True, text=True)
    assert built.returncode == 0, f"the wheel is not built\n{built.stdout}{built.stderr}"
    [wheel] = folder.glob("*.whl")
    # As pip unpacks it; pip itself is tried by tests/python.
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
        for entry in archive.infolist():
            (folder / "site" / entry.filename).chmod(entry.external_attr >> 16 & 0o777)
    (folder / "bin").mkdir()
    command = folder / "bin/lockstep"
    command.write_text(f'#!/bin/sh\nPYTHONPATH={folder}/site exec {sys.executable} -B -m lockstep "$@"\n')
    command.chmod(0o755)
    return folder / "bin"


def checkout(folder):
    """A folder with build/lockstep, models/ and recipes/; what is written there is the stranger's."""
    (folder / "build").mkdir(parents=True)
    (folder / "build/lockstep").symlink_to(BINARY)
    for name in ("models", "recipes"):
        (folder / name).symlink_to(ROOT / name)
    return folder / "build"


os.environ.pop("LOCKSTEP_BINARY", None)
with check("wheel-is-built"):
    bin_of_wheel = installed(TMP / "package")
ways = {"wheel": lambda folder: bin_of_wheel, "checkout": checkout}
if "bin_of_wheel" not in globals():
    del ways["wheel"]
for way, program in ways.items():
    def place(name):  # an empty folder, where that program is found
        folder = TMP / way / name
        return Place(way, folder, program(folder))

    with check(f"{way}-readme"):
        walked(place("readme"), readme_commands())
    with check(f"{way}-help"):
        stranger = place("help")
        walked(stranger, [example for examples in help_examples(stranger).values() for example in examples])
    for page in TOUR:
        with check(f"{way}-{page.removesuffix('.md')}"):
            walked(place(page), commands_of(f"docs/{page}"))
if "wheel" in ways:
    with check("wheel-coming-from"):
        walked(Place("wheel", TMP / "coming-from", bin_of_wheel), coming_from_commands())
with check("control"):
    # An example that cannot work is told: neither is a command of ours run without being looked at.
    place = Place("control", TMP / "control", checkout(TMP / "control"))
    for false in ("lockstep generate --model no-such-model --prompt a", "lockstep serve --model no-such-model", "lockstep generate --model countdown-glm --no-such-option 1"):
        assert walk(place, false) not in (None, "left"), f"{false} is told to work"
