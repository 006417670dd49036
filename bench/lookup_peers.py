#!/usr/bin/env python3
"""N-grams of the prompt as guesses, beside llama.cpp's (`LlamaPromptLookupDecoding` of llama-cpp-python) and transformers' (`prompt_lookup_num_tokens`): 32 prompts that ask for a text
to be copied or edited, SmolLM2-135M in bf16, greedy, one stream, each engine with guesses and without, in turns.

    bench/lookup_peers.py --models FOLDER [--peers PYTHON] [--torch PYTHON] [--tokens 96] [--threads N] [--rounds 3] [--json FILE] [--page docs/speculation.md]

FOLDER is that of bench/llama_peers.py, made where it is not there. --peers is a Python with llama-cpp-python and gguf, --torch one with torch and transformers; an engine whose Python is not
given is left out. All engines are given the same token ids, and at most 7 tokens are guessed. An answer changes where its ids with guesses are not those without, of the same engine.
"""

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "bench")]

from started_server import StartedServer  # noqa: E402

GUESSES = 7
TEXTS = [
    "The harbour lies at the mouth of the river. In winter the boats stay in, and the nets are mended in the long shed behind the church.",
    "def area(width, height):\n    if width < 0 or height < 0:\n        raise ValueError('a side is negative')\n    return width * height",
    '{"name": "Ada", "age": 36, "city": "London", "languages": ["English", "French"], "member": true}',
    "Milk 1.20, bread 2.35, eggs 3.10, butter 2.80, apples 1.95, coffee 5.40, sugar 1.05, flour 0.99.",
    "Dear Mr Brown, thank you for your letter of the third of May. The chairs will be sent on Monday and should reach you by the end of the week.",
    "Take the second road on the left, pass the school, and stop at the red gate. The key is under the third stone beside the door.",
    "for item in items:\n    total = total + item.price * item.count\n    print(item.name, item.price, item.count)\nprint('total', total)",
    "Water boils at one hundred degrees. Iron melts at one thousand five hundred and thirty eight. Lead melts at three hundred and twenty seven.",
]
TASKS = ["Repeat this text, word for word:", "Write this text again and change nothing but the first word:", "Correct the mistakes in this text and write all of it again:",
         "Copy this text twice:"]  # fmt: skip


def prompts():
    return [f"<|im_start|>user\n{task}\n\n{text}<|im_end|>\n<|im_start|>assistant\n" for task in TASKS for text in TEXTS]


def both_ways(answer, ids, tokens, ways=("without", "with")):
    """Of each way: seconds from the first token to the last, of all prompts, and the answers; ways take turns prompt by prompt. Some engines keep a prompt and others read it anew, so
    what an answer of one token takes is taken off."""
    seconds, said = dict.fromkeys(ways, 0.0), {way: [] for way in ways}
    for prompt in ids:
        for way in ways:
            times = []
            for count in (1, tokens):
                began = time.perf_counter()
                answered = answer(prompt, way, count)
                times.append(time.perf_counter() - began)
                if len(answered) != count:
                    raise SystemExit(f"lookup_peers: {len(answered)} tokens came, {count} were asked for")
            seconds[way] += times[1] - times[0]
            said[way].append(answered)
    return {"seconds": seconds, "said": said}


# --- peers, each in a process of its own ----------------------------------------------------------------------------
def llama_worker(o, ids):
    import itertools

    import llama_cpp
    from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

    common = {"model_path": str(o.models / "bf16.gguf"), "n_ctx": 1024, "n_threads": o.threads, "n_threads_batch": o.threads, "verbose": False}
    models = {"without": llama_cpp.Llama(**common), "with": llama_cpp.Llama(**common, draft_model=LlamaPromptLookupDecoding(num_pred_tokens=GUESSES))}

    def answer(prompt, way, count):
        models[way].reset()
        return [int(t) for t in itertools.islice(models[way].generate(prompt, temp=0.0, repeat_penalty=1.0), count)]

    return {"version": f"llama-cpp-python {llama_cpp.__version__}", **both_ways(answer, ids, o.tokens)}


def torch_worker(o, ids):
    import torch
    import transformers

    torch.set_num_threads(o.threads)
    model = transformers.AutoModelForCausalLM.from_pretrained(o.models / "bf16", dtype=torch.bfloat16).eval()
    model.generation_config.eos_token_id = None

    def answer(prompt, way, count):
        rows = torch.tensor([prompt])
        more = {"prompt_lookup_num_tokens": GUESSES} if way == "with" else {}
        with torch.no_grad():
            out = model.generate(rows, attention_mask=torch.ones_like(rows), do_sample=False, max_new_tokens=count, pad_token_id=0, **more)
        return out[0, len(prompt) :].tolist()

    return {"version": f"transformers {transformers.__version__}, torch {torch.__version__}", **both_ways(answer, ids, o.tokens)}


WORKERS = {"llama.cpp": ("peers", llama_worker), "transformers": ("torch", torch_worker)}


def of_worker(o, name, ids):
    python = getattr(o, WORKERS[name][0])
    command = [python, __file__, "--models", o.models, "--worker", name, "--tokens", o.tokens, "--threads", o.threads]
    done = subprocess.run([str(word) for word in command], input=json.dumps(ids), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"lookup_peers: {name} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


# --- lockstep --------------------------------------------------------------------------------------------------------
class Server(StartedServer):
    def __init__(self, o, program):
        command = [program, "serve", "--model", o.models / "bf16", "--name", "m", "--profile", "cpu-bf16w", "--port", 0, "--threads", o.threads, "--speculate", "off", "--no-access-log",
                   "--log-level", "error"]  # fmt: skip
        super().__init__(command)

    def answer(self, prompt, way, tokens):
        speculative = {"mode": "ngram", "tokens": GUESSES} if way == "with" else {"mode": "off"}
        body = {"model": "m", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "return_token_ids": True, "speculative": speculative}
        connection = http.client.HTTPConnection(self.address, timeout=600)
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        told = answer.read()
        connection.close()
        if answer.status != 200:
            raise SystemExit(f"lookup_peers: {answer.status} {told[:300]}")
        return json.loads(told)["choices"][0]["token_ids"]


def of_lockstep(o, program, ids):
    server = Server(o, program)
    try:
        for prompt in ids:
            server.answer(prompt, "without", 1)  # it is in the cache from here on, for both ways alike
        return both_ways(server.answer, ids, o.tokens)
    finally:
        server.stop()


def token_ids(o, program):
    found = []
    for text in prompts():
        told = subprocess.run([program, "tokenize", "--model", str(o.models / "bf16"), "--text", text, "--json"], check=True, stdout=subprocess.PIPE, text=True).stdout
        found.append(json.loads(told)["ids"])
    return found


# --- the table -------------------------------------------------------------------------------------------------------
def row_of(name, version, runs, tokens):
    """Of rounds: speeds, the gain of guesses and how many answers they change, at the most."""
    count = (tokens - 1) * len(runs[0]["said"]["with"])
    speed = {way: [count / run["seconds"][way] for run in runs] for way in ("without", "with")}
    gains = [b / a for a, b in zip(speed["without"], speed["with"])]
    return {"engine": name, "version": version, "without": statistics.median(speed["without"]), "with": statistics.median(speed["with"]), "speeds": speed["with"], "ratio": statistics.median(gains),
            "ratio_range": [min(gains), max(gains)], "answers": len(runs[0]["said"]["with"]), "changed": max(sum(a != b for a, b in zip(run["said"]["without"], run["said"]["with"])) for run in runs)}  # fmt: skip


def table(rows):
    from performance_tables import judged, number, span

    lines = ["| engine | without, tok/s | with, tok/s | ratio (range over rounds) | answers that change |", "|---|---|---|---|---|"]
    lines += [f"| {r['engine']} ({r['version']}) | {number(r['without'])} | {number(r['with'])} | {span(r)} | {r['changed']} of {r['answers']} |" for r in rows]
    ours = rows[0]
    lines += ["", f"With guesses over without, ours: {judged(ours['ratio'], least=1.5)} (aim 1.5)."]
    for r in rows[1:]:
        against = statistics.median(a / b for a, b in zip(ours["speeds"], r["speeds"]))
        lines[-1] += f" Ours with guesses over those of {r['engine']}: {judged(against, least=1.3) + ' (aim 1.3)' if r['engine'] == 'llama.cpp' else f'{against:.2f}'}."
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--peers", help="a Python with llama-cpp-python and gguf")
    parser.add_argument("--torch", help="a Python with torch and transformers")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.worker:
        print(json.dumps(WORKERS[o.worker][1](o, json.load(sys.stdin))))
        return
    from marked_page import write_between_marks
    from write_performance import binary, machine, version

    if not (o.models / "bf16").is_dir():
        subprocess.run([o.torch or sys.executable, str(ROOT / "tools/make_smollm2.py"), str(o.models)], check=True)
    if o.peers and not (o.models / "bf16.gguf").is_file():
        subprocess.run([o.peers, "-c", "import sys, pathlib; sys.path.insert(0, sys.argv[1]); import llama_peers; llama_peers.make_models(pathlib.Path(sys.argv[2]), ['bf16'])",
                        str(ROOT / "bench"), str(o.models)], check=True)  # fmt: skip
    ids, runs = token_ids(o, binary()), {}
    peers = [name for name, (python, _) in WORKERS.items() if getattr(o, python)]
    for _ in range(o.rounds):
        runs.setdefault("lockstep", []).append(of_lockstep(o, binary(), ids))
        for name in peers:
            runs.setdefault(name, []).append(of_worker(o, name, ids))
    rows = [row_of(name, found[0].get("version", version().splitlines()[0]), found, o.tokens) for name, found in runs.items()]
    print("\n".join(table(rows)))
    if rows[0]["changed"]:
        raise SystemExit(f"lookup_peers: {rows[0]['changed']} of our answers change when guesses are made")
    if o.json:
        o.json.write_text(json.dumps({"threads": o.threads, "rounds": o.rounds, "tokens": o.tokens, "machine": machine(), "rows": rows}, indent=1) + "\n")
    if o.page:
        head = (f"Measured by `bench/lookup_peers.py`: {len(ids)} prompts that ask for a text to be copied or edited, {o.tokens} tokens of each, timed behind the first, SmolLM2-135M in bf16, greedy, one stream, at most {GUESSES} guesses; "
                f"{o.threads} threads; medians of {o.rounds} rounds in turns.")  # fmt: skip
        write_between_marks(o.page, "lookup_peers", "\n".join([head, "", f"Machine: {machine()}", "", *table(rows)]))


if __name__ == "__main__":
    main()
