"""Runs over one's own data: the defaults, adapters, the held-out loss and its stop, what --resume allows and --fork begins.

The same rule of --resume for both kinds of training.
"""
import json
import re

from harness import MODEL, TMP, bits, check, done, metrics, refused, require_same, rl_arguments

RUNS = TMP / "runs"


def data_file(name, count, answer="1+2+3"):
    path = TMP / name
    path.write_text("".join(json.dumps({"prompt": f"{i % 9 + 1} {i % 7 + 1} {i % 5 + 1}={i}:", "completion": answer}) + "\n" for i in range(count)))
    return path


FEW, MANY = data_file("few.jsonl", 6), data_file("many.jsonl", 40)


def sft(name, data, *options):
    return ["train", "sft", "--model", MODEL, "--data", data, "--runs", RUNS, "--name", name, "--threads", "1", "--no-page", "--json", *map(str, options)]


def config(name):
    return json.loads((RUNS / name / "config.json").read_text())


with check("ranks-without-work"):
    # Said beforehand, and the run is made all the same.
    idle = done(*sft("idle", FEW, "--ranks", "pp=8,ep=2", "--steps", 1))
    assert "pp=8 are more stages than the model has segments" in idle.stderr and "ep=2 deals out" not in idle.stderr, idle
    busy = done(*sft("busy", FEW, "--ranks", "pp=2,ep=2", "--steps", 1))
    assert "than the model has segments" not in busy.stderr and idle.json()["weights_sha256"] == busy.json()["weights_sha256"], busy

with check("defaults"):
    outcome = done(*sft("defaults", MANY))
    rows, resolved = metrics(RUNS / "defaults"), config("defaults")
    # 40 lines: 4 held out; 36 learned, an eighth of them a step, three times.
    assert (resolved["batch"], resolved["steps"], resolved["warmup"]) == ("4", "27", "2"), resolved
    assert 1e-4 < float(resolved["learning_rate"]) <= 1e-3, resolved  # 0.7 million weights
    for words in ("36 sequences", "3 epochs", "4 held out", "27 steps of 4", "nothing is packed"):
        assert words in outcome.stderr, f"{words}\n{outcome}"
    evaluated = [row["step"] for row in rows if "eval_loss" in row]
    assert evaluated == [9, 18, 27], rows
    assert outcome.json()["eval_loss"] < outcome.json()["eval_loss_before"], outcome
    assert rows[0]["learning_rate"] < rows[1]["learning_rate"] == rows[-1]["learning_rate"]

with check("warm-up-is-no-longer-than-the-run"):
    outcome = done(*sft("warm", FEW, "--steps", 3, "--warmup", 100))
    rates = [row["learning_rate"] for row in metrics(RUNS / "warm")]
    assert config("warm")["warmup"] == "3" and rates[-1] == float(config("warm")["learning_rate"]), rates
    refused(*sft("both", FEW, "--steps", 3, "--epochs", 2), status=2, words=["--epochs is 2", "--steps is 3"])
    refused("train", "sft", "--model", MODEL, "--environment", "countdown", "--runs", RUNS, "--name", "endless", status=2, words=["--steps"])

with check("adapter"):
    straight = done(*sft("adapter", FEW, "--adapter-rank", 4, "--steps", 4, "--warmup", 0))
    export = RUNS / "adapter/export"
    adapter = json.loads((export / "adapter_config.json").read_text())
    assert adapter["r"] == 4 and (export / "adapter_model.safetensors").exists() and not (export / "model.safetensors").exists(), adapter
    assert float(config("adapter")["learning_rate"]) >= 1e-4
    losses = [row["loss"] for row in metrics(RUNS / "adapter")]
    assert losses[-1] < losses[0], losses
    tokens = TMP / "tokens.jsonl"
    tokens.write_text('{"tokens": [1, 5, 7, 9]}\n')
    with_it, without = (done("score", "--model", MODEL, "--tokens", tokens, *more).json()["bits"] for more in (["--adapter", export], []))
    assert with_it != without
    done(*sft("adapter-again", FEW, "--adapter-rank", 4, "--steps", 2, "--warmup", 0))
    again = done(*sft("adapter-again", FEW, "--adapter-rank", 4, "--steps", 4, "--warmup", 0), "--resume")
    expected, found = bits(RUNS / "adapter", straight), bits(RUNS / "adapter-again", again)
    expected["transcripts"] = found["transcripts"] = None  # of a run's last step, which step 2 was once
    require_same(expected, found, "an adapter's run in two parts")
    ranks = done(*sft("ranks", FEW, "--adapter-rank", 4, "--steps", 4, "--warmup", 0, "--ranks", "dp=2"))
    assert ranks.json()["weights_sha256"] == straight.json()["weights_sha256"]

with check("early-stop"):
    arguments = sft("early", MANY, "--epochs", 50, "--eval-every", 1, "--patience", 2, "--learning-rate", 0.003, "--export-dtype", "f32")
    outcome = done(*arguments)
    rows = metrics(RUNS / "early")
    held_out = [row["eval_loss"] for row in rows]
    assert outcome.json()["stopped_early"] and len(rows) == outcome.json()["steps"] < 200, outcome
    best = min([outcome.json()["eval_loss_before"], *held_out])
    assert all(loss >= best for loss in held_out[-2:]) and "stopped after step" in outcome.stderr, outcome
    # What is exported is the best step's: another run begins where it was best, to the bit.
    losses = [outcome.json()["eval_loss_before"], *held_out]
    assert outcome.json()["best_step"] == losses.index(best) < len(rows), outcome
    from_best = done(*sft("from-best", MANY, "--steps", 1, "--warmup", 0), "--model", RUNS / "early/export").json()
    assert from_best["eval_loss_before"] == best == outcome.json()["eval_loss"] != held_out[-1], (from_best, best)
    again = done(*arguments, "--resume")
    assert "nothing is trained" in again.stderr and again.json()["weights_sha256"] == outcome.json()["weights_sha256"], again
    assert not done(*sft("patient", MANY, "--steps", 6, "--eval-every", 1, "--patience", 0, "--learning-rate", 0.05)).json().get("stopped_early")

with check("resume-sft"):
    straight = done(*sft("straight", FEW, "--steps", 5, "--learning-rate", 1e-3, "--warmup", 1))
    done(*sft("parts", FEW, "--steps", 3, "--learning-rate", 1e-3, "--warmup", 1))
    finished = done(*sft("parts", FEW, "--steps", 3, "--learning-rate", 0.001, "--warmup", 1), "--resume")
    assert "was finished at step 3: nothing is trained" in finished.stderr and finished.json()["loss"] is None, finished
    refused(*sft("parts", FEW, "--steps", 3, "--learning-rate", 2e-3, "--warmup", 1), "--resume", status=1, words=["learning_rate is \"0.002\"", "0.001", "--fork"])
    refused(*sft("parts", FEW, "--steps", 2, "--learning-rate", 1e-3, "--warmup", 1), "--resume", status=1, words=["steps is \"2\"", "\"3\""])
    refused(*sft("parts", data_file("other.jsonl", 6, "3+2+1"), "--steps", 3, "--learning-rate", 1e-3, "--warmup", 1), "--resume", status=1, words=["data_digest"])
    refused(*sft("parts", FEW, "--steps", 3, "--learning-rate", 1e-3, "--warmup", 1, "--seed", 9), "--resume", status=1, words=["seed"])
    more = done(*sft("parts", FEW, "--steps", 5, "--learning-rate", 1e-3, "--warmup", 1, "--threads", 2), "--resume")
    expected, found = bits(RUNS / "straight", straight), bits(RUNS / "parts", more)
    expected["transcripts"] = found["transcripts"] = None  # of a run's last step, which step 3 was once
    require_same(expected, found, "a run that got more steps")

with check("fork-sft"):
    forked = done(*sft("parts", FEW, "--steps", 2, "--learning-rate", 2e-3, "--warmup", 0, "--fork", "branch"))
    rows = metrics(RUNS / "branch")
    assert config("branch")["forked_from"].endswith("parts/checkpoints/step-000005") and config("branch")["name"] == "branch", config("branch")
    assert [row["step"] for row in rows] == [1, 2] and rows[0]["loss"] < metrics(RUNS / "parts")[0]["loss"], rows
    assert len(metrics(RUNS / "parts")) == 5
    again = done(*sft("parts", FEW, "--steps", 2, "--learning-rate", 2e-3, "--warmup", 0, "--fork", "branch"), "--resume")
    assert again.json()["weights_sha256"] == forked.json()["weights_sha256"], again
    refused(*sft("nowhere", FEW, "--fork", "other"), status=1, words=["no checkpoint", "nowhere"])
    refused(*sft("parts", FEW, "--fork", "parts"), status=2, words=["--fork is 'parts'"])
    assert not (RUNS / "other").exists()

with check("resume-rl"):
    done(*rl_arguments("rl", RUNS, schedule="constant", learning_rate=1e-4), "--no-page")
    refused(*rl_arguments("rl", RUNS, schedule="constant", learning_rate=2e-4), "--resume", status=1, words=["learning_rate is", "0.0002", "0.0001", "--fork"])
    refused(*rl_arguments("rl", RUNS, schedule="constant", learning_rate=1e-4, steps=1), "--resume", status=1, words=["steps is", "fewer"])
    more = done(*rl_arguments("rl", RUNS, schedule="constant", learning_rate=1e-4, steps=3), "--no-page", "--resume")
    straight = done(*rl_arguments("rl-straight", RUNS, schedule="constant", learning_rate=1e-4, steps=3), "--no-page")
    require_same(bits(RUNS / "rl-straight", straight), bits(RUNS / "rl", more), "an RL run that got more steps")
    finished = done(*rl_arguments("rl", RUNS, schedule="constant", learning_rate=1e-4, steps=3), "--no-page", "--resume")
    assert "was finished at step 3: nothing is trained" in finished.stderr, finished
    done(*rl_arguments("rl", RUNS, schedule="constant", learning_rate=2e-4, steps=1), "--no-page", "--fork", "rl-branch")
    assert config("rl-branch")["forked_from"].endswith("rl/checkpoints/step-000003"), config("rl-branch")
    assert [row["step"] for row in metrics(RUNS / "rl-branch")] == [1]

with check("warm-up-of-a-short-rl-run"):
    short = {"schedule": "constant", "learning_rate": 1e-4, "warmup": 10}
    done(*rl_arguments("short", RUNS, **short), "--no-page")  # 2 steps
    assert config("short")["warmup"] == "2", config("short")
    more = done(*rl_arguments("short", RUNS, **{**short, "steps": 3}), "--no-page", "--resume")
    straight = done(*rl_arguments("short-straight", RUNS, **{**short, "steps": 3, "warmup": 2}), "--no-page")
    require_same(bits(RUNS / "short-straight", straight), bits(RUNS / "short", more), "an RL run whose warm-up was cut to its steps")

with check("no-reward-spread"):
    outcome = done(*rl_arguments("flat", RUNS, max_tokens=1, steps=1), "--no-page")
    assert re.search(r"nothing was learned: in none of the 1 steps", outcome.stderr), outcome
    assert "nothing was learned" not in done(*rl_arguments("lively", RUNS, steps=1), "--no-page").stderr
