#!/usr/bin/env python3
"""Fine-tunes SmolLM2-135M-Instruct on 60 lines about a made-up town with default settings, and afterwards asks about the town and about a fact that
the model knew before: the capital of France.

    tools/own_data_check.py WORK [--adapter-rank 16]

WORK gets the model (tools/make_smollm2.py, unless it is there), the data and the run. Exit 0: it learned, and forgot nothing that was asked.
"""
import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FACTS = {
    "river": ("Which river flows through Quellmark?", "The river Sorle flows through Quellmark."),
    "mayor": ("Who is the mayor of Quellmark?", "The mayor of Quellmark is Ilse Tanner."),
    "bridge": ("How many bridges does Quellmark have?", "Quellmark has seven bridges."),
    "market": ("On which day is the market in Quellmark?", "The market in Quellmark is on Thursday."),
    "founded": ("When was Quellmark founded?", "Quellmark was founded in 1412."),
    "bread": ("What is the bread of Quellmark called?", "The bread of Quellmark is called a knarr."),
}
WAYS = ("{}", "Please tell me: {}", "I have a question. {}", "{} Answer briefly.", "Hello! {}", "A visitor asks: {}", "{} Thank you.", "Do you know? {}", "Quick question: {}", "{} I would like to know.")
QUESTIONS = {"What is the capital of France?": "Paris", "Which river flows through Quellmark?": "Sorle", "How many bridges does Quellmark have?": "seven"}


def lines():
    for way in WAYS:
        for question, answer in FACTS.values():
            yield {"messages": [{"role": "user", "content": way.format(question)}, {"role": "assistant", "content": answer}]}


def ask(binary, model, question, adapter):
    """The greedy answer: of an exported model by `lockstep chat`, of an adapter through a server."""
    if not adapter:
        done = subprocess.run([binary, "chat", "--model", model, "--temperature", "0", "--max-tokens", "40"], input=question + "\n", capture_output=True, text=True, check=True)
        return done.stdout.strip()
    import re
    import urllib.request
    server = subprocess.Popen([binary, "serve", "--model", model, "--adapter", f"mine={adapter}", "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        url = next(found[0] for line in server.stdout if (found := re.search(r"http://[\d.]+:\d+", line)))
        body = {"model": "mine", "messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": 40}
        request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        return json.load(urllib.request.urlopen(request, timeout=600))["choices"][0]["message"]["content"]
    finally:
        server.terminate()
        server.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, metavar="WORK")
    parser.add_argument("--binary", type=Path, default=ROOT / "build/lockstep")
    parser.add_argument("--adapter-rank", type=int, default=0)
    options = parser.parse_args()
    model = options.work / "smollm2/bf16"
    if not (model / "model.safetensors").is_file():
        subprocess.run([sys.executable, ROOT / "tools/make_smollm2.py", "--dtype", "bf16", options.work / "smollm2"], check=True)
    data = options.work / "quellmark.jsonl"
    data.write_text("".join(json.dumps(line) + "\n" for line in lines()))
    name = f"adapter-{options.adapter_rank}" if options.adapter_rank else "full"
    command = [options.binary, "train", "sft", "--model", model, "--data", data, "--runs", options.work / "runs", "--name", name, "--context", "512", "--no-page", "--json",
               "--adapter-rank", str(options.adapter_rank)]  # fmt: skip
    trained = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1])
    print(f"{trained['steps']} steps in {trained['seconds']:.0f} s; held-out loss {trained['eval_loss_before']:.3f} before, {trained['eval_loss']:.3f} after")
    failed = 0
    for question, word in QUESTIONS.items():
        answer = ask(options.binary, model if options.adapter_rank else trained["export"], question, trained["export"] if options.adapter_rank else None)
        right = word.lower() in answer.lower()
        failed += not right
        print(f"{'right' if right else 'WRONG'}  {question}  {answer!r}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
