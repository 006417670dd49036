#!/usr/bin/env python3
"""Writes models/countdown-glm/tokenizer.json and tokenizer_config.json: the shipped model's 512 tokens.

A GPT-2 style byte-level BPE. The ids, which never change:

    0 .. 100    the numbers: the token of id n is the text of n ("0".."9" are bytes, the others merges)
    101         <|bos|>     begins a text; nothing adds it by itself
    102         <|eos|>     ends a completion
    103         <|pad|>     fills, never trained on
    104 .. 349  the other 246 bytes, ascending
    350 .. 503  154 frequent pieces of plain English (merges learned below from a built-in text), for the playground
    504 .. 511  <|reserved_0|> .. <|reserved_7|>, special tokens without a use yet

The merges of digits rank before all others, in the order of the numbers, 10 + 0 last. So every number up to 100 that stands
alone is one token, and a longer run of digits splits always in the same way (123 -> 12, 3; 1000 -> 100, 0). The pattern
keeps digits, letters and signs in different pieces: 3+12 is the three tokens 3, +, 12.

    python3 tools/make_countdown_tokenizer.py            writes the two files (no package needed)
    python3 tools/make_countdown_tokenizer.py --check    exits 1 when the files differ from what it would write
    python3 tools/make_countdown_tokenizer.py --fixture  also writes what Hugging Face `tokenizers` makes of a corpus with
                                                         it (tests/text/fixtures/countdown.json; needs `tokenizers`)
"""
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "models" / "countdown-glm"
FIXTURE = ROOT / "tests" / "text" / "fixtures" / "countdown.json"
WORDS = 154
RESERVED = 8
SIZE = 512

# The text from which word pieces are learned: sentences that people type to a small model.
ENGLISH = """
The countdown game is about numbers. You get three numbers and one target. Use every number once, with plus, minus, times and
divide, and reach the target. The answer is an expression, and the result of each step is a whole number. Can you solve this
problem? What is the answer? There are many ways to reach the target from the numbers, and the model should find one of them.
Hello, how are you? I am a small language model that was trained to play with numbers. Please write a short story about the
little dog and the old man who lived in the house by the sea. Once upon a time there was a girl. She had a red ball, and she
liked to play with it in the garden. One day the ball was gone. "Where is my ball?" she said. "I will help you," said her
brother. They looked under the tree and behind the door, and then they found it. Thank you for your help. What do you think
about the weather today? It is a good day for a walk. I think that it would be better to wait until the rain is over. Let me
know when you are ready to start. This is how it works: first read the question, then think about it, then write down what you
found. When something is wrong, try again. That is not what I want. Which of these words would you use here? He was not sure
what to say. We have seen that before, but never like this. All people are free to come and go as they please. Some of the
time they were right, and some of the time they were wrong. If you could have only one thing in the world, what would it be?
Train the model, sample from the model, score the sample, and learn from the score. The same weights give the same numbers on
every machine. Solve the following: use the numbers to make the target. The first step, the second step, and the last step.
"""

# Texts for the fixture: the task in its formats, and everything that could go wrong around it.
CORPUS = [
    "3,7,12=36:", "3 7 12=36:", "12*3=36,36*7=252", "(12/3)*7", "3+12", "3 + 12", "12", "123", "1000", "2100", "923", "007", "100", "101",
    "99100", "0", "00", "1,2,3", "=:,+-*/()", "(3+4)*5=35", "7*5=35,35-3=32", "3+4=7,7*5=35", " 12", "12 ", "\n12\n", "x12y", "1.5", "3**2",
    "4//2", "-3", "\u00bd\u0663", "<|bos|>3,7,12=36:<|eos|>", "<|pad|><|pad|>", "<|eos|", "<|reserved_7|>x", "The answer is 42.",
    "Use every number once.", "what would it be?", "Hello, how are you?", "  two  spaces", "naïve 日本語 🙂", "", " ", "\n\n", "tab\there",
    "the the the", "There's don't we'll", "AbC", "2026-01-31T12:59:00Z", "a" * 40, "1" * 40, "10" * 20, "\u0000\u007f",
]


def byte_alphabet():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table, following = {}, 256
    for b in range(256):
        if b in printable:
            table[b] = chr(b)
        else:
            table[b] = chr(following)
            following += 1
    return table


def number_merges():
    return [[str(n)[0], str(n)[1]] for n in range(10, 100)] + [["10", "0"]]


def word_merges(table, count):
    """Plain BPE over the words of ENGLISH, letters only; the most frequent pair first, ties by the smaller pair of texts."""
    words = [[table[b] for b in w.encode()] for w in re.findall(r" ?[A-Za-z]+", ENGLISH.replace("\n", " "))]
    merges = []
    while len(merges) < count:
        counts = {}
        for word in words:
            for pair in zip(word, word[1:]):
                counts[pair] = counts.get(pair, 0) + 1
        pair = min(counts, key=lambda p: (-counts[p], p))
        merges.append(list(pair))
        for word in words:
            i = 0
            while i + 1 < len(word):
                if (word[i], word[i + 1]) == pair:
                    word[i:i + 2] = ["".join(pair)]
                i += 1
    return merges


def tokenizer():
    table = byte_alphabet()
    words = word_merges(table, WORDS)
    specials = ["<|bos|>", "<|eos|>", "<|pad|>"]
    reserved = [f"<|reserved_{i}|>" for i in range(RESERVED)]
    digits = {ord(str(d)) for d in range(10)}
    tokens = [str(n) for n in range(101)] + specials + [table[b] for b in range(256) if b not in digits]
    tokens += ["".join(pair) for pair in words] + reserved
    assert len(tokens) == len(set(tokens)) == SIZE, len(tokens)
    vocab = {token: id for id, token in enumerate(tokens)}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": vocab[t], "content": t, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True} for t in specials + reserved],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocab,
                  "merges": number_merges() + words},
    }


def config():
    return {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|bos|>", "eos_token": "<|eos|>", "pad_token": "<|pad|>",
            "add_bos_token": False, "clean_up_tokenization_spaces": False, "model_input_names": ["input_ids", "attention_mask"],
            "model_max_length": 1024}


def files():
    merges = "\"merges\": "
    text = json.dumps(tokenizer(), ensure_ascii=False, indent=1)
    # One merge a line.
    text = re.sub(r'\[\n\s+("(?:[^"\\]|\\.)*"),\n\s+("(?:[^"\\]|\\.)*")\n\s+\]', r"[\1, \2]", text)
    assert merges in text and json.loads(text) == tokenizer()
    return {MODEL / "tokenizer.json": text + "\n", MODEL / "tokenizer_config.json": json.dumps(config(), indent=2) + "\n"}


def write_fixture():
    from tokenizers import Tokenizer
    reference = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    assert reference.get_vocab_size() == SIZE
    corpus = CORPUS + [line for line in ENGLISH.splitlines() if line]
    cases = [{"text": t, "ids": (ids := reference.encode(t).ids), "decoded_skip": reference.decode(ids)} for t in corpus]
    FIXTURE.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    FIXTURE.write_text(f'{{"about":"made by tools/make_countdown_tokenizer.py --fixture","cases":[\n{lines}\n]}}\n')
    print(f"{FIXTURE.relative_to(ROOT)}: {len(cases)} texts")


def main():
    wanted = files()
    if "--check" in sys.argv[1:]:
        wrong = [str(p.relative_to(ROOT)) for p, text in wanted.items() if not p.exists() or p.read_text(encoding="utf-8") != text]
        if wrong:
            sys.exit("differs from what this script writes: " + ", ".join(wrong))
        print("both files are what this script writes")
        return
    MODEL.mkdir(parents=True, exist_ok=True)
    for path, text in wanted.items():
        path.write_text(text, encoding="utf-8")
        print(f"{path.relative_to(ROOT)}: {len(text.encode())} bytes")
    if "--fixture" in sys.argv[1:]:
        write_fixture()


if __name__ == "__main__":
    main()
