"""The table of exit codes in docs/cli.md: each row is brought about, and what an error then says is enough to go on from it."""
import json
import os
import re
import shutil
import signal
import time
from pathlib import Path

from harness import MODEL, ROOT, TMP, check, done, finish, refused, rl_arguments, sft_arguments, start

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
seen = {0: done("--version").returncode}


def provoked(code, outcome):
    seen[code] = outcome.returncode
    assert outcome.returncode == code, f"status {outcome.returncode}, not {code}\n{outcome}"
    assert "internal:" not in outcome.stderr, str(outcome)
    return outcome


def stopped(words, how, ready):
    """The program, sent a signal once `ready` says that its work has begun."""
    process = start(*words)
    end = time.monotonic() + 120
    while not ready():
        assert process.poll() is None and time.monotonic() < end, f"it did not begin\n{finish(process)}"
        time.sleep(0.02)
    process.send_signal(how)
    return finish(process)


with check("documented-exit-codes"):
    table = (ROOT / "docs/cli.md").read_text().split("## Exit codes")[1].split("\n## ")[0]
    documented = {int(code) for row in re.findall(r"^\| ([\d, ]+) \|", table, re.M) for code in row.split(",")}
    assert documented == {0, 1, 2, 3, 4, 129, 130, 138, 143}, documented

with check("an-error-is-1"):
    provoked(1, refused("info", TMP / "nowhere", status=1, words=["nowhere"]))

with check("a-wrong-command-line-is-2"):
    provoked(2, refused("generate", "--modle", "x", status=2, words=["modle", "did you mean"]))

with check("a-plan-that-does-not-fit-is-3"):
    small = ["plan", "--model", MODEL, "--memory-megabytes", "95"]
    text = provoked(3, finish(start(*small))).stdout
    assert "does not fit" in text and " MB are missing" in text, text
    ways = re.findall(r"fits with (.+): ", text)
    assert ways, text
    for way in ways:  # what is named does fit
        assert "\nfits: " in done(*small, *way.split()).stdout
    verdict = json.loads(finish(start(*small, "--json")).stdout)["verdict"]
    assert verdict["fits"] is False and verdict["missing_bytes"] == verdict["needed_bytes"] - verdict["available_bytes"] > 0, verdict
    assert [remedy["options"] for remedy in verdict["remedies"]] == ways, verdict
    enough = -(-verdict["needed_bytes"] // (1 << 20))
    assert done(*small[:-1], enough, "--json").json()["verdict"]["fits"] is True
    for purpose in ("train", "serve"):
        assert done("plan", "--model", MODEL, "--for", purpose, "--json").json()["verdict"]["fits"] is True

with check("a-run-that-diverges-is-4"):
    wild = sft_arguments("wild", TMP / "runs", steps=50, batch=2, max_norm=0, learning_rate=10, init_deviation=1, beta2=0, eps=0, checkpoint_every=1)
    outcome = provoked(4, refused(*wild, status=4, words=["the run diverged at step ", "a lower --learning-rate (it was ", "--max-norm 1 (gradients are not clipped)"]))
    step = int(re.search(r"diverged at step (\d+)", outcome.stderr)[1])
    rows = (TMP / "runs/wild/metrics.jsonl").read_text().splitlines() if step > 1 else []
    assert len(rows) == step - 1, (step, len(rows))
    if step > 1:
        assert f"step-{step - 1:06d}" in outcome.stderr, str(outcome)

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # these checks themselves may run under nohup

with check("signals-save-and-stop"):
    for how, code in ((signal.SIGHUP, 129), (signal.SIGINT, 130), (signal.SIGUSR1, 138), (signal.SIGTERM, 143)):
        for kind, words in (("sft", sft_arguments), ("rl", rl_arguments)):
            name = f"{kind}-{code}"
            run = TMP / "runs" / name
            settings = {"steps": 100000, "warmup": 0}
            metrics = run / "metrics.jsonl"
            outcome = provoked(code, stopped(words(name, TMP / "runs", **settings), how, lambda: metrics.exists() and metrics.read_text().count("\n") > 0))
            assert "--resume" in outcome.stderr, str(outcome)
            assert (run / "checkpoints/latest").exists(), f"{name} was not saved"
    demo = TMP / "demos"
    provoked(129, stopped(["demo", "--quick", "--runs", demo], signal.SIGHUP, lambda: (demo / "demo/metrics-lockstep.jsonl").exists()))

with check("nohup-keeps-its-word"):
    run = TMP / "runs/nohup"
    words = sft_arguments("nohup", TMP / "runs", steps=3)
    process = start(*words, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    while process.poll() is None:
        process.send_signal(signal.SIGHUP)
        time.sleep(0.05)
    assert finish(process).returncode == 0

with check("every-documented-code-was-seen"):
    assert documented == set(seen) and all(code == status for code, status in seen.items()), seen

with check("a-name-of-a-hub"):
    for words in (["generate", "--prompt", "x"], ["info"], ["plan"], ["serve", "--port", "0"], ["tokenize", "--text", "x"], ["eval", "countdown"], ["parity"], ["train", "sft", "--data", "x"], ["demo"]):
        model = ["some-org/Some-Model-1B"] if words == ["info"] else ["--model", "some-org/Some-Model-1B"]
        runs = ["--runs", TMP / "hub"] if words[0] in ("demo", "train") else []
        refused(*words, *model, *runs, status=1, words=["'some-org/Some-Model-1B'", "a model is a folder on this machine", "hf download some-org/Some-Model-1B --local-dir"])
    outcome = refused("info", f"{MODEL.parent.name}/no-such-model", status=1, words=["no-such-model"])
    assert "hf download" not in outcome.stderr, "a misspelt folder is no name of a hub"

with check("what-is-a-model-elsewhere"):
    gguf, adapter, pickled = TMP / "gguf", TMP / "an-adapter", TMP / "pickled"
    for folder in (gguf, adapter):
        folder.mkdir()
    (gguf / "model-Q4_0.gguf").write_bytes(b"GGUF")
    (adapter / "adapter_config.json").write_text("{}")
    shutil.copytree(MODEL, pickled)
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    for words in (["generate", "--prompt", "x"], ["info"], ["plan"], ["serve", "--port", "0"], ["chat"], ["train", "sft", "--data", "x", "--runs", TMP / "elsewhere"]):
        named = lambda model: [*words, model] if words == ["info"] else [*words, "--model", model]  # noqa: B023, E731
        refused(*named(gguf / "model-Q4_0.gguf"), status=1, words=["model-Q4_0.gguf' is truncated"])
        refused(*named(gguf), status=1, words=["holds GGUF files", "name the file", str(gguf / "model-Q4_0.gguf")])
        refused(*named(MODEL / "model.safetensors"), status=1, words=["is a file", "a model is a folder"])
        refused(*named(adapter), status=1, words=["is an adapter, no model", f"--adapter NAME={adapter}"])
        if words != ["plan"]:  # which reads no weights
            refused(*named(pickled), status=1, words=["pytorch_model.bin is not read", "save_pretrained"])
    done("plan", "--model", MODEL / "config.json")

with check("a-pointer-of-git-lfs"):
    for file in ("config.json", "tokenizer.json", "model.safetensors"):
        folder = TMP / f"lfs-{file}"
        shutil.copytree(MODEL, folder)
        (folder / file).write_text(POINTER)
        refused("generate", "--model", folder, "--prompt", "x", status=1, words=[str(folder / file), "Git LFS pointer", "git lfs pull"])

with check("no-error-is-internal"):
    below = TMP / "a-file"
    below.write_text("x")
    old = TMP / "old"
    assert finish(start("demo", "--quick", "--runs", old, "--model", TMP / "nowhere")).returncode == 1  # makes its folder
    (old / "demo/metrics-x.jsonl").mkdir(parents=True)
    (old / "demo/metrics-x.jsonl/kept").write_text("x")
    long = "x" * 300
    for words in (["demo", "--quick", "--runs", below / "runs"], ["demo", "--quick", "--runs", "/proc/runs"], ["demo", "--quick", "--runs", old], ["demo", "--quick", "--runs", TMP / long],
                  ["plan", "--model", TMP / long], ["plan", "--model", f"{below}/x"], ["info", TMP / long], ["generate", "--model", TMP / long, "--prompt", "x"],
                  ["tokenize", "--model", TMP / long, "--text", "x"], ["render", "--model", TMP / long, "--messages", below], ["report", below], ["report", TMP / long],
                  ["watch", TMP / long, "--port", "0"], ["serve", "--model", TMP / long, "--port", "0"], ["serve", "--model", MODEL, "--port", "0", "--training", "--state", below / "state"],
                  ["serve", "--model", MODEL, "--port", "0", "--training", "--state", "/proc/state"], ["serve", "--model", MODEL, "--port", "0", "--adapter-folder", TMP / long],
                  ["serve", "--model", MODEL, "--port", "0", "--host", "no.such.host.invalid", "--insecure"], ["chat", "--model", TMP / long],
                  sft_arguments("a", below / "runs"), sft_arguments("a", "/proc/runs"), rl_arguments("a", "/proc/runs"), sft_arguments("a", TMP / "more", export_to="/proc/x")):
        if words[0] in ("watch",) or "--adapter-folder" in words:  # these may run
            process = start(*words)
            time.sleep(2)
            process.terminate()
            outcome = finish(process)
        else:
            outcome = finish(start(*words), timeout=120)
            assert outcome.returncode in (1, 2) and len(outcome.errors) == 1, str(outcome)
        assert not re.search(r"internal|bug in lockstep|filesystem error|\[json\.exception", outcome.stderr), str(outcome)
