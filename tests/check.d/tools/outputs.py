"""Every option behind which a command writes, with a folder of somebody else's files there: nothing of them is lost.

The options are those that `COMMAND --help=json` names as written to; one that has no row below fails. What commands write
without an option (chat's /save) stands at the end.
"""
import json
import os
import re
import shutil
import subprocess

from harness import BINARY, MODEL, TMP, check, done, lockstep, refused, sft_arguments, start

TOKENS = TMP / "tokens.jsonl"
TOKENS.write_text('{"tokens": [1, 5, 7]}\n')
# What an export may write; a file of somebody's by such a name goes with --overwrite, and no other.
EXPORTED = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
            "chat_template.jinja", ".lockstep"}


def sft(**settings):
    return sft_arguments("mine", **{"runs": TMP / "runs", "steps": 1, "batch": 1, "threads": 1, **settings}) + ["--no-page"]


def no_run():
    shutil.rmtree(TMP / "runs", ignore_errors=True)


def rl(path):
    return ["train", "rl", "--config", "recipes/countdown_rl.toml", "--runs", path, "--set", "name=mine", "--set", "steps=1", "--set", "problems=1", "--set", "warmup=0", "--no-page"]


def preference(*more, runs=TMP / "runs"):
    pairs = TMP / "pairs.jsonl"
    pairs.write_text(json.dumps({"prompt": "3 7 12=48:", "chosen": "7-3=4,4*12=48", "rejected": "12"}) + "\n")
    return ["train", "preference", "--model", MODEL, "--data", pairs, "--name", "mine", "--runs", runs, "--steps", "1", "--threads", "1", "--no-page", *more]


def distill(runs):
    prompts, teachers = TMP / "prompts.jsonl", TMP / "teachers.toml"
    prompts.write_text(json.dumps({"prompt": "3 7 12=48:"}) + "\n")
    teachers.write_text(f'[[teacher]]\nname = "base"\nfolder = "{MODEL}"\n')
    return ["train", "distill", "--model", MODEL, "--data", prompts, "--teachers", teachers, "--name", "mine", "--runs", runs, "--steps", "1", "--prompts", "1", "--threads", "1", "--no-page"]


# Kinds that run a model, each with a small case.
BENCHED = {"prefill": "--tokens 4", "decode": "--streams 1 --prompt 4", "train": "--sequences 1 --length 8", "rl": "--prompts 1 --samples 2 --prompt 4 --tokens 4",
           "prefix": "--prompts 1 --samples 2 --prompt 4 --tokens 4", "counters": "--streams 1 --tokens 2 --prompt 2"}  # fmt: skip


def bench_trace(kind):
    return lambda path: ["bench", kind, "--model", MODEL, "--threads", "1", "--seconds", "0.01", *BENCHED[kind].split(), "--trace", path]


GRAD = ["grad", "--model", MODEL, "--tokens", TOKENS]
STORE = TMP / "snapshots"
# (command, option): the arguments with a path there.
WRITERS = {
    ("train sft", "--export-to"): lambda path: (no_run(), sft() + ["--export-to", path])[1],
    ("train sft", "--runs"): lambda path: sft(runs=path),
    ("train rl", "--runs"): rl,
    ("train preference", "--export-to"): lambda path: (no_run(), preference("--export-to", path))[1],
    ("train preference", "--runs"): lambda path: preference(runs=path),
    ("train distill", "--runs"): distill,
    ("demo", "--runs"): lambda path: ["demo", "--quick", "--no-page", "--runs", path],
    ("demo", "--json"): lambda path: ["demo", "--quick", "--no-page", "--runs", TMP / "demo-runs", "--json", path],
    ("grad", "--out"): lambda path: GRAD + ["--out", path],
    ("grad", "--rows"): lambda path: GRAD + ["--out", TMP / "rows.safetensors", "--overwrite", "--rows", path],
    ("convert", "OUT"): lambda path: ["convert", MODEL, path],
    ("index-share convert", "OUT"): lambda path: ["index-share", "convert", MODEL, path, "--pattern", "FSSS"],
    ("snapshot pull", "OUT"): lambda path: (done("snapshot", "push", MODEL, STORE, "--channel", "here"), ["snapshot", "pull", STORE, "here", path])[1],
    ("report", "--out"): lambda path: ["report", TMP / "finished/mine", "--out", path],
    ("serve", "--state"): lambda path: ["serve", "--model", MODEL, "--training", "--port", "0", "--state", path],
    ("serve", "--deploy-state"): lambda path: ["serve", "--model", MODEL, "--port", "0", "--deploy-state", path],
    ("bench train", "--optimizer-folder"): None,  # a file without a name: there is nothing that it could write over
    ("train sft", "--trace"): lambda path: (no_run(), sft() + ["--trace", path])[1],
    ("train rl", "--trace"): lambda path: (no_run(), rl(TMP / "runs") + ["--trace", path])[1],
    ("train preference", "--trace"): lambda path: (no_run(), preference("--trace", path))[1],
    ("train distill", "--trace"): lambda path: (no_run(), distill(TMP / "runs") + ["--trace", path])[1],
    ("serve", "--trace"): None,  # written when the server ends (tests/api/test_profiling.py); the option is that of the others
    ("launch", "--log-file"): None,  # written while processes run (tests/check.d/tools/launch.py); the option is that of the others
    ("bench roofline", "--out"): lambda path: ["bench", "roofline", "--threads", "1", "--seconds", "0.01", "--out", path],
    **{("bench " + kind, "--trace"): bench_trace(kind) for kind in BENCHED},
}
KEPT_NAMES = {("train sft", "--runs"): "mine", ("train rl", "--runs"): "mine", ("train preference", "--runs"): "mine", ("train distill", "--runs"): "mine", ("demo", "--runs"): "demo", ("serve", "--state"): ".", ("serve", "--deploy-state"): "."}


def kinds_of(name):
    """Of a command that has kinds: `usage: lockstep train sft|rl [options]`, or KIND and a row for each."""
    text = done(name, "--help").stdout
    named = re.match(rf"usage: lockstep {name} ([a-z]+(?:\|[a-z]+)+)", text)
    return named[1].split("|") if named else re.findall(r"^  ([a-z]+)  ", text, re.M) if text.startswith("usage:") else []


def options():
    lines = done("help").stdout.splitlines()
    names = [line.split()[0] for line in lines if line.startswith("  ") and len(line.split()) > 1 and re.fullmatch("[a-z]+(-[a-z]+)*", line.split()[0]) and line.split()[0] not in ("help", "lockstep")]
    assert len(names) > 10, names
    for name in names:
        for words in [[name, kind] for kind in kinds_of(name)] or [[name]]:
            for option in json.loads(done(*words, "--help=json").stdout)["options"]:
                yield " ".join(words), option


def plant(folder):
    """A project as somebody may have it, with names that this program uses too."""
    for name in ("src/main.py", ".env", "lock", "config.json", "model.safetensors", "metrics.jsonl", "report.html", "result.json", "metrics-lockstep.jsonl",
                 "checkpoints/step-000001/state.json", "export/notes.txt", "optimizer/thesis.tex", "samplers/a", "numbers/1", "token-key", "config.json.partial"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"somebody's {name}\n")
    (folder / "link").symlink_to(".env")
    (folder / "linked").symlink_to("src")
    return folder


def seen(folder):
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        found[name] = f"-> {os.readlink(path)}" if path.is_symlink() else "/" if path.is_dir() else path.read_bytes()
    return found


def keeps(before, after, but=()):
    lost = [name for name in before if after.get(name) != before[name] and name not in but]
    assert not lost, f"lost or changed: {lost}"


def place(name):
    folder = TMP / "places" / name.replace(" ", "-")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


ROWS = list(options())

with check("every-path-has-a-kind"):
    for command, option in ROWS:
        if option["value"] in ("FILE", "DIR", "NAME=DIR"):
            assert option.get("path") in ("reads", "writes file", "writes folder", "keeps folder"), f"{command} {option['name']}: {option}"
    written = {(command, option["name"]) for command, option in ROWS if option.get("path", "reads") != "reads"}
    assert written == set(WRITERS), f"no row for {written - set(WRITERS)}, or a row too many: {set(WRITERS) - written}"

done(*sft(runs=TMP / "finished"))  # a run to report on

for (command, name), arguments in WRITERS.items():
    kind = next((option["path"] for c, option in ROWS if (c, option["name"]) == (command, name)), None)
    if arguments is None or kind is None:
        continue
    with check(f"{command.replace(' ', '-')}{name}"):
        root = place(command + name)
        theirs = plant(root / "theirs")
        (root / "to-theirs").symlink_to("theirs")
        (root / "file").write_text("somebody's")
        for partial in ("new.partial", "file.partial"):
            plant(root / partial)
        (root / "new.json.partial").write_text("somebody's")
        before = seen(root)
        if kind == "keeps folder":
            kept = KEPT_NAMES[command, name]
            if kept != ".":
                (root / kept).symlink_to("theirs")
                before = seen(root)
            refused(*arguments(root if kept != "." else theirs), status=1, words=[str(theirs) if kept == "." else kept])
            after = seen(root)
            keeps(before, after)
            assert after == before, f"left behind: {set(after) - set(before)}"
            continue
        flags = [] if command == "grad" and name == "--rows" else ["--overwrite"]
        wrong = [root / "theirs", root / "to-theirs"] + ([root / "file", root / "theirs/link"] if flags else [])
        for path in wrong:
            refused(*arguments(path), status=1, words=[name, str(path)])
            assert command != "train sft" or not (TMP / "runs/mine").exists(), "it was refused after the run had begun"
        refused(*arguments("/proc/nothing-here" if kind == "writes folder" else "/dev/null"), status=1, words=[name])
        if kind == "writes file":
            refused(*arguments(root / "theirs"), *flags, status=1, words=["is a folder"])
        else:
            refused(*arguments(root / "file"), *flags, status=1, words=["is a file"])
            refused(*arguments(root / "file/inner"), *flags, status=1, words=["file"])
        assert seen(root) == before, "a refusal changed something"
        if command == "demo":
            continue  # its checks are those of the others, and a demo takes long
        done(*arguments(root / ("new" if kind == "writes folder" else "new.json")))
        keeps(before, seen(root))
        if kind == "writes folder":
            done(*arguments(root / "theirs"), "--overwrite")
            keeps(before, seen(root), {f"theirs/{file}" for file in EXPORTED})
            assert (root / "theirs/model.safetensors").read_bytes() == (root / "new/model.safetensors").read_bytes()
            (root / "new/notes.txt").write_text("somebody's")
            (root / "new/stale").mkdir()
            done(*arguments(root / "new"))
            assert (root / "new/notes.txt").read_text() == "somebody's" and (root / "new/stale").is_dir()
            keeps(before, seen(root), {f"theirs/{file}" for file in EXPORTED})
        elif flags:
            done(*arguments(root / "file"), *flags)
            keeps(before, seen(root), {"file"})

with check("resume-of-somebody's-folder"):
    root = place("resume")
    plant(root / "mine")
    before = seen(root)
    refused(*sft(runs=root), "--resume", status=1, words=["mine"])
    assert seen(root) == before

with check("chat-save"):
    root = place("chat")
    theirs = plant(root / "theirs")
    (root / "nowhere").symlink_to("not-there")
    before = seen(root)
    template = TMP / "template.jinja"
    template.write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    say = lambda text: subprocess.run([BINARY, "chat", "--model", MODEL, "--chat-template", template], input=text, capture_output=True, text=True, timeout=120)  # noqa: E731
    for path in (theirs, theirs / ".env", theirs / "link", root / "nowhere"):
        outcome = say(f"/save {path}\n")
        assert outcome.returncode == 1 and str(path) in outcome.stderr and "exists" in outcome.stderr, outcome
        assert seen(root) == before
    assert say(f"/save {root / 'new.json'}\n").returncode == 0 and set(seen(root)) - set(before) == {"new.json"}

with check("tools"):
    import sys
    from harness import ROOT
    alone = subprocess.run([sys.executable, "-S", ROOT / "tools/make_smollm2.py", "--help"], capture_output=True, text=True)
    assert alone.returncode == 0 and "make_smollm2.py OUT" in alone.stdout, alone.stderr
    theirs = plant(place("tools") / "out")
    plant(theirs / "bf16")
    before = seen(theirs)
    ran = subprocess.run([sys.executable, ROOT / "tools/make_smollm2.py", "--from", TMP / "no-such.gguf", theirs], capture_output=True, text=True)
    assert ran.returncode != 0 and "bf16" in ran.stderr and "Traceback" not in ran.stderr, ran.stderr
    assert seen(theirs) == before
