"""A server whose ranks are processes: `mpirun -n 2 lockstep serve --transport mpi --ranks tp=2` answers as one process with one rank, byte for byte
(of a stream, what its events say).

Completions, chat, streams, log-probabilities, seeds, penalties, embeddings, several at once, guesses ahead; a control; how it ends: by SIGTERM, and when a process is killed.
`lockstep demo --quick` meets the published hash over two processes, and over four with different instruction sets (with LOCKSTEP_SLOW_TESTS=1 in six layouts over up to eight). Where there is no Open MPI, all of it is skipped.
"""
import concurrent.futures
import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import tempfile
import time

from harness import BINARY, MODEL, ROOT, TMP, check, done, instruction_sets, rl_arguments
from processes import ENVIRONMENT, LONG, end_all, mpirun, mpirun_line, needs_mpi, pids_of

TEMPLATE = TMP / "chat.jinja"
TEMPLATE.write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
NAME = MODEL.name
PROMPT = "16 19 14=17:"


class Server:
    """A server of one process, or of several: then these are in pids."""

    def __init__(self, processes=1, ranks="", recover=False, model=MODEL, **options):
        line = [BINARY, "serve", "--model", model, "--port", "0", "--chat-template", TEMPLATE, "--threads", "2", "--no-access-log"]
        for name, value in {**options, **({"ranks": ranks} if ranks else {})}.items():
            line += [f"--{name.replace('_', '-')}", str(value)]
        if processes > 1:
            # mpirun gives process 0 a second to end well, which is short on a busy machine; twice what it gives it sleeps, whoever has ended by then.
            line = mpirun_line(processes, "--mca", "odls_base_sigkill_timeout", "6", *(["--enable-recovery"] if recover else []), *line, "--transport", "mpi")
        self.out, self.errors = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+", errors="replace")
        self.pids = {}
        self.process = subprocess.Popen(list(map(str, line)), env=ENVIRONMENT, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.errors, text=True)
        until = time.monotonic() + LONG
        while not (found := re.search(r"^listening on http://127\.0\.0\.1:(\d+)$", self.said(self.out), re.M)):
            if self.process.poll() is not None or time.monotonic() > until:
                self.close()
                raise AssertionError(f"the server did not begin\n{self.said(self.errors)}")
            time.sleep(0.1)
        self.port = int(found[1])
        if processes > 1:
            self.pids = pids_of(self.process.pid)
            assert set(self.pids) == set(range(processes)), self.pids

    @staticmethod
    def said(file):
        file.seek(0)
        return file.read()

    def ask(self, path, body):
        """(status, the bytes of the answer) without what is of one moment: ids and the time."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONG)
        try:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        return answer.status, re.sub(r'"created":\d+', '"created":0', re.sub(r'"id":"[^"]*"', '"id":""', text))

    def metrics(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONG)
        try:
            connection.request("GET", "/metrics")
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    def drafts(self):
        """Tokens guessed ahead, and those of them that were right, by source."""
        rows = re.findall(r'^lockstep_spec_decode_num_(draft|accepted)_tokens_total\{[^}]*source="(\w+)"[^}]*\} (\d+)$', self.metrics(), re.M)
        return {(source, what): int(count) for what, source, count in rows}

    def ended(self):
        """The exit status, and what was said on stderr, once it has ended by itself."""
        self.process.wait(timeout=LONG)
        return self.process.returncode, self.said(self.errors)

    def close(self):
        end_all(self.process, self.pids)


@contextlib.contextmanager
def server(*words, **options):
    running = Server(*words, **options)
    try:
        yield running
    finally:
        running.close()


COMPLETION = {"model": NAME, "prompt": PROMPT, "max_tokens": 12, "temperature": 0, "seed": 2}
CHAT = {"model": NAME, "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 12, "temperature": 1, "seed": 11}
REQUESTS = {
    "greedy": ("/v1/completions", COMPLETION | {"logprobs": 3}),
    "sampled": ("/v1/completions", COMPLETION | {"prompt": [PROMPT, "3 7 12=48:"], "n": 2, "temperature": 1, "top_p": 0.9, "seed": 7, "logprobs": 2}),
    "scored": ("/v1/completions", COMPLETION | {"prompt": "16 19 14=17: 16 + 19", "echo": True, "max_tokens": 1, "logprobs": 2}),
    "penalties": ("/v1/completions", COMPLETION | {"temperature": 0.8, "seed": 5, "presence_penalty": 0.5, "frequency_penalty": 0.25, "logit_bias": {"5": -3}}),
    "stream": ("/v1/completions", COMPLETION | {"stream": True, "temperature": 1, "seed": 3, "logprobs": 1, "stream_options": {"include_usage": True}}),
    "chat": ("/v1/chat/completions", CHAT | {"logprobs": True, "top_logprobs": 3}),
    "chat-stream": ("/v1/chat/completions", CHAT | {"stream": True, "logprobs": True, "top_logprobs": 2}),
    "adapter": ("/v1/completions", COMPLETION | {"model": "tuned", "temperature": 1, "seed": 4, "logprobs": 3}),
    "embedding": ("/v1/embeddings", {"model": NAME, "input": [PROMPT, "16"]}),
    "refused": ("/v1/completions", COMPLETION | {"temperature": -1}),
}
# Prompts in several chunks, decoded in one batch: what is computed together depends on when each arrives, and no bit on that.
COMPANY = [COMPLETION | {"model": (NAME, "tuned")[i % 2], "prompt": " ".join([PROMPT] * (1 + 9 * (i % 3))), "max_tokens": 6 + i, "temperature": 1, "seed": i, "logprobs": 2} for i in range(4)]


def joined(parts):
    """Values of the same key in a row of events: texts and lists one after another, of others the last one."""
    whole = {}
    for part in parts:
        for key, value in part.items():
            if isinstance(value, dict):
                whole[key] = joined([whole.get(key) or {}, value])
            elif isinstance(value, str) and key in ("text", "content") or isinstance(value, list):
                whole[key] = whole.get(key, type(value)()) + value
            elif value is not None or key not in whole:
                whole[key] = value
    return whole


def whole_stream(text):
    """A stream's events as one: which tokens come in one event depends on when they are sent."""
    assert text.endswith("data: [DONE]\n\n"), text
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    choices = [choice for event in events for choice in event.pop("choices")]
    return joined(events), joined(choices)


def answers(running, names):
    got = {name: running.ask(*REQUESTS[name]) for name in names}
    return {name: (answer[0], whole_stream(answer[1])) if "stream" in name else answer for name, answer in got.items()}


def in_company(running):
    """Without the usage, which tells what was found in the cache."""
    with concurrent.futures.ThreadPoolExecutor(len(COMPANY)) as pool:
        got = pool.map(lambda body: running.ask("/v1/completions", body), COMPANY)
        return [(status, json.loads(text).get("choices", text)) for status, text in got]


def differences(wanted, found):
    """Of each that differs, where the first difference is."""
    told = []
    for name in found:
        a, b = json.dumps(wanted[name], sort_keys=True), json.dumps(found[name], sort_keys=True)
        at = max(0, next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b))) - 100)
        if a != b:
            told.append(f"{name}:\n    ...{a[at:at + 300]}\n    ...{b[at:at + 300]}")
    return told


ADAPTER = {"adapter": f"tuned={TMP / 'runs' / 'tuned' / 'export'}"}
expected = {}
with check("one-process"):
    needs_mpi()
    done(*rl_arguments("tuned", TMP / "runs", steps=1, adapter_rank=4, learning_rate=0.1))
    with server(**ADAPTER) as running:
        expected.update(answers(running, REQUESTS))
        expected["company"] = in_company(running)
        base = running.ask("/v1/completions", REQUESTS["adapter"][1] | {"model": NAME})
    assert [expected[name][0] for name in REQUESTS] == [200] * 9 + [400], {name: expected[name] for name in REQUESTS}
    assert all(status == 200 for status, _ in expected["company"]), expected["company"]
    assert base[0] == 200 and json.loads(base[1])["choices"] != json.loads(expected["adapter"][1])["choices"], "the adapter changes nothing"

for processes, ranks in ((2, "tp=2"), (2, "ep=2"), (4, "tp=2,pp=2")):
    with check(f"{processes}-processes-{ranks.replace('=', '').replace(',', '-')}"):
        needs_mpi()
        with server(processes, ranks, rank_timeout=60, **ADAPTER) as running:
            found = answers(running, REQUESTS if ranks == "tp=2" else ("sampled", "scored", "chat-stream", "adapter"))
            found["company"] = in_company(running)
            other = running.ask("/v1/completions", REQUESTS["sampled"][1] | {"seed": 8})
            wrong = differences(expected, found)
            assert not wrong, f"{len(wrong)} of {len(found)} answers differ\n" + "\n".join(wrong)
            assert other[0] == 200 and other != expected["sampled"], f"another seed gave the same bytes: {other}"
            following = int(re.search(r"^lockstep_engine_following_forwards_total (\d+)$", running.metrics(), re.M)[1])
            assert (following > 0) == ("pp" in ranks), f"{following} forwards began while another was in a later stage"
            if ranks == "tp=2":  # as by mpirun's own end, and to process 0 alone below
                running.process.send_signal(signal.SIGTERM)
            else:
                os.kill(running.pids[0], signal.SIGTERM)
            status, said = running.ended()
            assert "stopped" in said and "error: " not in said, (status, said)
            assert ranks == "tp=2" or status == 0, (status, said)

with check("drafts"):
    # With a layer of multi-token prediction: the bytes of one process without guesses, and the guesses of one with them.
    needs_mpi()
    layered = TMP / "layered" / NAME
    done("train", "sft", "--model", MODEL, "--environment", "countdown", "--steps", "8", "--batch", "4", "--warmup", "0", "--learning-rate", "0", "--router-bias-rate", "0",
         "--no-train-indexer", "--mtp-depths", "2", "--mtp-learning-rate", "0.01", "--name", "layer", "--runs", TMP / "runs", "--export-to", layered)  # fmt: skip
    asked = ("greedy", "scored", "penalties", "chat")
    with server(model=layered, speculate="off") as running:
        plain = answers(running, asked)
    with server(model=layered, speculate="mtp") as running:
        assert not differences(plain, answers(running, asked))
        wanted = running.drafts()
    assert wanted["mtp", "accepted"] > 0, wanted
    for processes, ranks in ((2, "tp=2"), (3, "tp=2,ep=2")):
        with server(processes, ranks, model=layered, speculate="mtp") as running:
            wrong = differences(plain, answers(running, asked))
            assert not wrong, "\n".join(wrong)
            assert running.drafts() == wanted, (ranks, running.drafts(), wanted)

for process in (1, 0):
    with check(f"killed-process-{process}-ends-the-server"):
        needs_mpi()
        with server(2, "tp=2", recover=True) as running:
            assert running.ask("/v1/completions", COMPLETION)[0] == 200
            os.kill(running.pids[process], signal.SIGKILL)
            status, said = running.ended()
            told = [line for line in said.splitlines() if line.startswith("error: ")]
            assert len(told) == 1 and f"process {process} (host" in told[0] and f"pid {running.pids[process]}) ended without a word" in told[0], (status, said)

with check("killed-while-it-answers"):
    # Whoever waits for an answer gets an error or the connection's end, and the server ends with one error.
    needs_mpi()
    with server(2, "tp=2", recover=True) as running, concurrent.futures.ThreadPoolExecutor(1) as pool:
        endless = COMPLETION | {"max_tokens": 400, "temperature": 1, "seed": 1, "logit_bias": {}, "n": 16, "ignore_eos": True}
        waiting = pool.submit(running.ask, "/v1/completions", endless)
        time.sleep(1)
        os.kill(running.pids[1], signal.SIGKILL)
        status, said = running.ended()
        told = [line for line in said.splitlines() if line.startswith("error: ")]
        assert len(told) == 1 and f"pid {running.pids[1]}) ended without a word" in told[0], (status, said)
        with contextlib.suppress(ConnectionError, http.client.HTTPException):
            waiting.result(timeout=LONG)

with check("refused"):
    needs_mpi()
    for words, said in ((["--deploy", f"other={MODEL}"], "over processes a server has one model"), (["--ranks", "tp=1"], "there are 2 processes")):
        outcome = mpirun(2, BINARY, "serve", "--model", MODEL, "--port", "0", "--transport", "mpi", *words)
        assert outcome.returncode != 0 and said in outcome.stderr, (words, outcome)

def quick_demo(ranks, isa="auto"):
    return (BINARY, "demo", "--quick", "--transport", "mpi", "--ranks", ranks, "--threads", "2", "--isa", isa, "--runs", TMP / "demo-runs")


# The published hash over processes: two layouts in every run, six in all when there is time for them.
for processes, ranks in ((2, "tp=2"), *(((2, "dp=2,shard=weights"), (4, "dp=2,pp=2"), (8, "tp=2,dp=2,ep=2"), (8, "dp=4,ep=2,rows=dealt")) if os.environ.get("LOCKSTEP_SLOW_TESTS") else ())):
    with check(f"demo-quick-{processes}-processes-{ranks.replace('=', '').replace(',', '-')}"):
        needs_mpi()
        outcome = mpirun(processes, *quick_demo(ranks), timeout=(2 if processes == 2 else 12) * LONG)
        assert outcome.returncode == 0 and "identical to the published run" in outcome.stdout, outcome

with check("demo-quick-4-processes-of-all-instruction-sets"):
    # The first process, which samples, has the widest; of the others one has scalar kernels, and the rest what else this machine can run.
    needs_mpi()
    widest = instruction_sets()[-1]
    sets = [widest, "scalar", *(isa for isa in instruction_sets() if isa not in ("scalar", widest)), widest, widest][:4]
    first, *others = (list(map(str, quick_demo("tp=2,dp=2", isa))) for isa in sets)
    outcome = mpirun(1, *first, *(word for own in others for word in (":", "-n", "1", *own)), timeout=2 * LONG)
    assert outcome.returncode == 0 and "identical to the published run" in outcome.stdout, (sets, outcome)

with check("parity"):
    # One layout more, over the processes: forwards of training, ways of serving and steps there, no different bit, and the control at its operation.
    needs_mpi()
    short = TMP / "short"  # of sequences of 40 tokens, which are enough for this
    short.mkdir()
    for file in MODEL.iterdir():
        (short / file.name).symlink_to(file)
    (short / "config.json").unlink()
    (short / "config.json").write_text(json.dumps(json.loads((MODEL / "config.json").read_text()) | {"max_position_embeddings": 40}))
    words = [BINARY, "parity", "--model", short, "--fuzz", "0", "--transport", "mpi"]
    outcome = mpirun(2, *words, "--ranks", "tp=2", "--json", timeout=2 * LONG)
    told = outcome.json()
    assert outcome.returncode == 0 and told["passed"] and told["mismatches"] == 0, outcome
    over = [place for place in told["places"] if place["place"].endswith("over processes")]
    assert over and all(sum(place[what] for place in over) > 0 for what in ("training", "serving", "steps")), over
    control = told["control"]
    assert control["over_processes"] and control["processes_detected"] and control["operation"].startswith("linear model.layers.0."), control
    refused = mpirun(2, *words)
    assert refused.returncode != 0 and "ranks is empty" in refused.stderr, refused
    few = mpirun(3, *words, "--ranks", "tp=2")
    assert few.returncode != 0 and "there are 3 processes" in few.stderr, few
