"""Profiles and traces: what --profile-operations says adds up, --trace keeps the rules of the format, and no result changes with them."""
import collections
import decimal
import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import requests

REPOSITORY = Path(__file__).resolve().parents[2]
MODEL = REPOSITORY / "models/countdown-glm"
CONFIG = json.loads((MODEL / "config.json").read_text())
BINARY = Path(os.environ.get("LOCKSTEP_BINARY", REPOSITORY / "build" / "lockstep")).resolve()


def run(*arguments, status=0, cwd=None):
    result = subprocess.run([str(a) for a in (BINARY, *arguments)], cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    assert result.returncode == status, f"{arguments}: status {result.returncode}\n{result.stdout}\n{result.stderr}"
    return result


def bench(kind, *arguments):
    """The lines of a case with --profile-operations: (the case's own, the operations')."""
    lines = run("bench", kind, "--model", MODEL, "--threads", 1, "--seconds", 0.3, "--json", "--profile-operations", *arguments).stdout.splitlines()
    *cases, operations = map(json.loads, lines)
    assert operations["kind"] == "operations"
    return cases, operations


@pytest.fixture(scope="session")
def roofline(tmp_path_factory):
    path = tmp_path_factory.mktemp("roofline") / "roofline.json"
    run("bench", "roofline", "--threads", "1,2", "--seconds", 0.05, "--out", path)
    return path


def spans_of(path):
    """The spans of a trace, whose format is held to what Perfetto reads: complete events with whole process and thread numbers, a time and a length,
    and on each thread one inside the other or one after the other."""
    trace = json.loads(path.read_text(), parse_float=decimal.Decimal)
    spans, by_thread = [], collections.defaultdict(list)
    for event in trace["traceEvents"]:
        assert event["ph"] in ("X", "M") and type(event["pid"]) is int and type(event["tid"]) is int, event
        if event["ph"] == "M":
            assert event["name"] == "process_name" and event["args"]["name"], event
            continue
        assert event["name"] and event["cat"] and event["ts"] >= 0 and event["dur"] >= 0, event
        spans.append(event)
        by_thread[event["pid"], event["tid"]].append(event)
    assert spans and trace["otherData"]["dropped_events"] >= 0
    for events in by_thread.values():
        assert events == sorted(events, key=lambda e: (e["ts"], -e["dur"])), "a thread's spans do not stand in their order"
        open_until = []  # ends of the spans that the next one may be inside of
        for event in events:
            while open_until and open_until[-1] <= event["ts"]:
                open_until.pop()
            end = event["ts"] + event["dur"]
            assert not open_until or end <= open_until[-1], f"{event} begins inside a span and ends after it"
            open_until.append(end)
    return spans


def inside(spans, name, outer):
    """How many spans of a name lie inside one of another, on its thread."""
    outers = [(s["tid"], s["ts"], s["ts"] + s["dur"]) for s in spans if s["name"] == outer]
    return sum(any(t == s["tid"] and begin <= s["ts"] and s["ts"] + s["dur"] <= end for t, begin, end in outers) for s in spans if s["name"] == name)


def test_roofline_by_threads(tmp_path):
    report = json.loads(run("bench", "roofline", "--threads", "1,2", "--seconds", 0.05, "--json", "--out", tmp_path / "r.json").stdout)
    assert json.loads((tmp_path / "r.json").read_text()) == report
    assert report["kind"] == "roofline" and [p["threads"] for p in report["points"]] == [1, 2]
    assert all(p["gigaflops"] > 1 and p["gigabytes_per_second"] > 0.1 for p in report["points"]), report
    assert "FLOP a byte" in run("bench", "roofline", "--threads", "1", "--seconds", 0.05).stdout
    run("bench", "roofline", "--threads", "1", "--seconds", 0.05, "--out", tmp_path / "r.json", status=1)  # a file is there
    assert "--threads contains 0" in run("bench", "roofline", "--threads", "0", status=2).stderr


def test_operations_of_a_forward(roofline):
    (case,), report = bench("prefill", "--tokens", 40, "--roofline", roofline)
    rows = {row["operation"]: row for row in report["operations"]}
    limit = next(p for p in json.loads(roofline.read_text())["points"] if p["threads"] == 1)
    assert report["limit"] == limit
    # The logits of the last row alone, a product of its hidden state and the head: by hand.
    head = rows["head_logits"]
    assert head["flop"] == head["calls"] * 2 * CONFIG["vocab_size"] * CONFIG["hidden_size"], head
    # A forward has a norm before and after each layer's attention, and so on: as many calls a forward, all forwards alike.
    forwards = head["calls"]
    assert forwards == case["runs"] + 1 and all(row["calls"] % forwards == 0 for row in rows.values()), rows
    assert rows["attention_forward"]["calls"] == forwards * CONFIG["num_hidden_layers"]
    for row in rows.values():
        assert row["seconds"] > 0 and row["bytes"] > 0 and row["flop"] >= 0, row
        least = max(row["flop"] / limit["gigaflops"], row["bytes"] / limit["gigabytes_per_second"]) / 1e9
        assert row["limit_share"] == pytest.approx(least / row["seconds"]), row
    # Nothing else computes on one thread: their seconds are most of the forwards', and not more than all that passed.
    assert abs(report["seconds"] - sum(row["seconds"] for row in rows.values())) < 1e-6
    assert report["seconds"] <= report["elapsed"]
    assert case["runs"] * case["seconds"]["least"] / 5 < report["seconds"]


def test_a_prompt_before_decoding():
    # A prompt of 400 tokens before one stream's tokens: its time is told apart, and its operations where they are asked for.
    (short,), _ = bench("decode", "--streams", 1, "--prompt", 8, "--seconds", 0.01)
    (long,), report = bench("decode", "--streams", 1, "--prompt", 400, "--seconds", 0.01)
    (same,), with_prompt = bench("decode", "--streams", 1, "--prompt", 400, "--seconds", 0.01, "--profile-prompts")
    assert 0 < short["prompt_seconds"] < long["prompt_seconds"], (short, long)
    assert same["prompt_seconds"] < with_prompt["elapsed"], (same, with_prompt)
    flop = lambda one: sum(row["flop"] for row in one["operations"])
    logits = lambda one: next(row["calls"] for row in one["operations"] if row["operation"] == "head_logits")
    assert logits(report) == long["runs"] + 1, (report, long)  # a forward a token, and the one that is not timed; none of the prompt
    assert flop(with_prompt) > 100 * flop(report) / (long["runs"] + 1), (with_prompt, report)  # of a token
    assert long["prompt_seconds"] > 3 * long["seconds"]["median"], long


def test_operations_of_a_training_step():
    # Linear layers run in a step as often backward as forward: what the weights' gradients take is what the forward takes, but for what is frozen.
    (case,), report = bench("train", "--sequences", 2, "--length", 32)
    rows = {row["operation"]: row for row in report["operations"]}
    assert {"linear_forward", "linear_backward_input", "linear_backward_weight", "attention_forward", "attention_backward", "head_loss", "head_weight", "adamw"} <= set(rows)
    assert 0 < rows["linear_backward_weight"]["flop"] <= rows["linear_forward"]["flop"]
    # The head of 64 rows: forward and the gradient of its input; then the logits again and the weight's gradient.
    assert rows["head_loss"]["flop"] / rows["head_loss"]["calls"] == 2 * 2 * 64 * CONFIG["vocab_size"] * CONFIG["hidden_size"]
    assert rows["head_weight"]["flop"] == rows["head_loss"]["flop"]
    assert case["runs"] * case["seconds"]["least"] / 5 < report["seconds"] <= report["elapsed"]


def test_a_table_for_people(roofline):
    text = run("bench", "decode", "--model", MODEL, "--streams", 2, "--prompt", 8, "--threads", 2, "--seconds", 0.1, "--profile-operations", "--roofline", roofline).stdout
    assert re.search(r"^operations: [\d.]+ of [\d.]+ seconds; limit: [\d.]+ GFLOP/s and [\d.]+ GB/s with 2 threads$", text, re.M), text
    assert re.search(r"^operation +calls +seconds +of all +GFLOP +GB +GFLOP/s +GB/s +of limit$", text, re.M), text
    assert re.search(r"^linear_forward +\d+ +[\d.]+ +[\d.]+% .* +\d+%$", text, re.M), text


TRAINED = {"sft": ["--environment", "countdown", "--steps", 2, "--batch", 2], "rl": ["--environment", "countdown", "--steps", 1, "--problems", 2, "--rollouts", 4, "--max-tokens", 8]}


@pytest.mark.parametrize("kind", TRAINED)
def test_training_learns_the_same_with_a_trace(kind, tmp_path):
    line = ["train", kind, "--model", MODEL, "--name", "r", "--threads", 2, "--no-page", "--json", *TRAINED[kind]]
    plain, measured = (run(*line, "--runs", tmp_path / name, *more) for name, more in (("a", []), ("b", ["--profile-operations", "--trace", tmp_path / "trace.json"])))
    assert json.loads(plain.stdout)["weights_sha256"] == json.loads(measured.stdout)["weights_sha256"]
    assert "operations: " not in plain.stderr and re.search(r"^linear_backward_weight ", measured.stderr, re.M), measured.stderr
    spans = spans_of(tmp_path / "trace.json")
    names = collections.Counter(span["name"] for span in spans)
    steps = 1 if kind == "rl" else 2
    assert names["optimizer step"] == steps, names
    assert inside(spans, "adamw", "optimizer step") == names["adamw"] > 0
    assert 0 < inside(spans, "linear_backward_weight", "backward") == names["linear_backward_weight"]
    assert (names["engine step"] > 0) == (kind == "rl"), names


def test_ranks_exchange_and_wait_on_threads_of_their_own(tmp_path):
    line = ["train", "sft", "--model", MODEL, "--name", "r", "--threads", 2, "--no-page", "--json", *TRAINED["sft"], "--ranks", "tp=2"]
    plain, measured = (run(*line, "--runs", tmp_path / name, *more) for name, more in (("a", []), ("b", ["--trace", tmp_path / "trace.json"])))
    assert json.loads(plain.stdout)["weights_sha256"] == json.loads(measured.stdout)["weights_sha256"]
    spans = spans_of(tmp_path / "trace.json")
    threads = {span["tid"] for span in spans if span["name"] == "linear_forward"}
    assert len(threads) == 2 and threads == {span["tid"] for span in spans if span["name"] == "backward"}
    exchanges = collections.Counter(span["name"] for span in spans if span["cat"] == "exchange")
    assert exchanges["all_reduce"] > 0 and set(exchanges) <= {"exchange", "all_gather", "broadcast", "all_reduce", "reduce_scatter"}, exchanges
    assert any(span["name"] == "waiting for ranks" for span in spans)


def test_a_server_answers_the_same_and_leaves_a_trace(own_server, tmp_path):
    answers = []
    for more in ([], ["--profile-operations", "--trace", str(tmp_path / "trace.json")]):
        server = own_server("--threads", "2", *more)
        body = {"model": "countdown-glm", "prompt": "3 7 12=48:", "max_tokens": 12, "temperature": 1, "seed": 3, "logprobs": 1}
        answers.append(requests.post(server.url + "/v1/completions", json=body, timeout=60).json()["choices"][0])
        assert server.stop() == 0
        assert any(line.startswith("linear_forward ") for line in server.errors) == bool(more), server.errors
    assert answers[0] == answers[1]
    spans = spans_of(tmp_path / "trace.json")
    names = collections.Counter(span["name"] for span in spans)
    assert names["engine step"] >= 12 and names["waiting for work"] > 0, names
    assert inside(spans, "sample", "engine step") == names["sample"] > 0
    # An engine's steps are pieces of the device, whose thread waits between them.
    pieces = {span["tid"] for span in spans if span["cat"] == "device"}
    assert pieces == {span["tid"] for span in spans if span["name"] in ("engine step", "waiting for work")}, names


def test_what_cannot_be_measured_is_refused(tmp_path, roofline):
    line = ["bench", "prefill", "--model", MODEL, "--tokens", 4, "--seconds", 0.01]
    assert "allowed are cpu, and cpu or deferred" in run(*line, "--profile-operations", "--backend", "traced", status=2).stderr
    assert "--roofline does nothing without --profile-operations" in run(*line, "--roofline", roofline, status=2).stderr
    assert "measured with 1, 2 threads, not with 3" in run(*line, "--profile-operations", "--roofline", roofline, "--threads", 3, status=1).stderr
    (tmp_path / "notes.txt").write_text("somebody's")
    assert "no roofline of `lockstep bench roofline`" in run(*line, "--profile-operations", "--roofline", tmp_path / "notes.txt", status=1).stderr
    assert "nowhere" in run(*line, "--profile-operations", "--roofline", tmp_path / "nowhere", status=1).stderr
    assert "--trace" in run(*line, "--trace", tmp_path / "notes.txt", status=1).stderr
    assert (tmp_path / "notes.txt").read_text() == "somebody's"
    run(*line, "--threads", 1, "--trace", tmp_path / "notes.txt", "--overwrite")
    assert spans_of(tmp_path / "notes.txt")
    run(*line, "--threads", 1, "--backend", "deferred", "--trace", tmp_path / "deferred.json")
    assert spans_of(tmp_path / "deferred.json")
