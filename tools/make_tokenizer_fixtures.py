#!/usr/bin/env python3
"""Writes tests/text/fixtures/byte_level_bpe.json: what Hugging Face `tokenizers` makes of tricky texts.

One small byte-level BPE model, trained here on a few built-in sentences, under many pipelines (the pre-tokenizers,
normalisers, added tokens and post-processors of real model families). For every pipeline the ids of every text with and
without special tokens and the decoded text both ways; for those of the model families also the SHA-256 of the ids of every
assigned code point of Unicode 14 in a fixed context, which holds all classes of their patterns against ours. Needs
`tokenizers` (tools/oracle-requirements.txt) under Python 3.11:

    python3 tools/make_tokenizer_fixtures.py
"""
import hashlib
import json
import struct
import sys
from pathlib import Path

from tokenizers import Tokenizer

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "tests" / "text" / "fixtures" / "byte_level_bpe.json"

SENTENCES = """
The quick brown fox jumps over the lazy dog, and the dog doesn't mind: it's asleep. They'll see what they've done;
I'm sure we'd better count 1, 2, 3, 10, 20, 100, 1000 and 31415926535. In the beginning there was a number, and the
number was 42. def main(argc, argv):    return argc + argv[0] * 2 // 3   # a comment  with   spaces
naïve café Ångström façade über straße Zürich. Привет, мир! как дела? 日本語のテキスト 中文文本 한국어 العربية हिन्दी ไทย
"""

TEXTS = [
    "", " ", "  ", "   a", "a   ", "a  b   c    d", "\n", "\n\n", "a\nb", "a \n b", "a\r\nb\r\n\r\nc", "\t\ttab", " \n ", "\u00a0x\u2003y\u3000z",
    "hello", "Hello, world!", " the the  the", "THE'S the'S it's IT'S don't we'll we'LL they've I'm I'd you're '", "''s'ss 'tis",
    "123", "1234567890", " 12 345", "3+12", "3,7,12=36:", "(3+4)*5", "12.5e-3", "x1y22z333", "\u0661\u0662\u0663 \u00bd \u2167 \u00b2",
    "naïve café Ångström", "cafe\u0301 A\u030angstro\u0308m \u1e69 s\u0323\u0307", "\u212b \u2126 \ufb01 \uac00 \u1100\u1161\u11a8",
    "straße ſtraſſe 'ſ 'S 'ſx \u212a'\u212b", "Привет, мир!", "日本語のテキスト。中文！カタカナー", "한국어 텍스트", "العربية", "हिन्दी",
    "ไทย", "🙂🙃 👩‍👩‍👧 🇫🇷 e\u200dx", "\ufffd\ufeff\u200b", "a\u0000b\u0001\u007f\u0085c\u2028d", "\U0001d7d8\U00010400\U0010ffff",
    "def f(x):\n    return x**2  # square\n\n\nprint(f(3))\n", "{\"a\": [1, 2.0, null]}", "http://example.org/?q=1&r=%20", "a_b-c__d", "____",
    "!!!???...", "?! ?!", "`~@#$%^&*()", "<s>", "a<s>b</s>", "<s> <s>  </s>", " <mask> x", "x <mask>", "x  <mask>  y", "a<mask>b", "<mask><mask>",
    "word words word", "word,word.word", "wordé éword", "w-word_", "tail   tail\n tail", "tailtail", "<s", "<<s>>", "<sep><sepx><se", "é<é>e\u0301<é>",
    "<|x|><|x|y|>", "a" * 50, "ab" * 40, " " * 33, "\n" * 17, "the" * 30, "1" * 41, "日" * 20, "e" + "\u0301" * 9, "\u180e \u180ea", "a\u2060b\u00adc",
]

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN3 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
            r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""")

SWEPT = ("gpt2", "llama3", "qwen3.5", "deepseek", "smollm", "contiguous", "scripts")


def byte_alphabet():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table, nxt = {}, 256
    for b in range(256):
        if b in printable:
            table[b] = chr(b)
        else:
            table[b] = chr(nxt)
            nxt += 1
    return table


def train(merge_count):
    """Plain BPE training: the most frequent pair, ties by the smaller pair of texts."""
    table = byte_alphabet()
    words = [[table[b] for b in (" " + w).encode()] for w in SENTENCES.split()] + [[table[b] for b in b"    "]] * 3
    merges = []
    for _ in range(merge_count):
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
    vocab = {table[b]: b for b in range(256)}
    for left, right in merges:
        vocab.setdefault(left + right, len(vocab))
    return vocab, merges


def byte_level(prefix=False, regex=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def token(id, content, **flags):
    entry = {"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    return {**entry, **flags}


def template(before, after):
    item = lambda name: {"SpecialToken": {"id": name, "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    names = {name for name, _ in before + after}
    return {"type": "TemplateProcessing", "single": [*(item(n) for n, _ in before), text, *(item(n) for n, _ in after)],
            "pair": [text, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {n: {"id": n, "ids": [i], "tokens": [n]} for n, i in before + after if n in names}}


def pipelines(n):
    """name -> parts of tokenizer.json other than the model's vocabulary; n is the first free id."""
    specials = [token(n, "<s>", special=True), token(n + 1, "</s>", special=True)]
    flags = specials + [
        token(n + 2, "<mask>", special=True, lstrip=True), token(n + 3, "word", single_word=True, normalized=True),
        token(n + 4, "tail", rstrip=True, normalized=True), token(n + 5, "<sep>", special=True, lstrip=True, rstrip=True),
        token(n + 6, "<é>", normalized=True), token(n + 7, "<|x|>", special=True), token(n + 8, "<|x|y|>"),
    ]
    bos = template([("<s>", n)], [])
    both = template([("<s>", n)], [("</s>", n + 1)])
    return {
        "gpt2": {"pre_tokenizer": byte_level(regex=True)},
        "gpt2-prefix-space": {"pre_tokenizer": byte_level(True, True), "added_tokens": specials, "post_processor": byte_level()},
        "no-regex": {"pre_tokenizer": byte_level()},
        "no-regex-prefix": {"pre_tokenizer": byte_level(True), "added_tokens": flags},
        "llama3": {"pre_tokenizer": sequence(split(LLAMA3), byte_level()), "added_tokens": specials, "ignore_merges": True,
                   "post_processor": {"type": "Sequence", "processors": [byte_level(), bos]}},
        "qwen3": {"pre_tokenizer": sequence(split(QWEN3), byte_level()), "added_tokens": flags, "normalizer": {"type": "NFC"}},
        "qwen3.5": {"pre_tokenizer": sequence(split(QWEN35), byte_level()), "added_tokens": specials,
                    "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}]}},
        "deepseek": {"pre_tokenizer": sequence(split(r"\p{N}{1,3}"), split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"),
                                               split(DEEPSEEK), byte_level()), "added_tokens": flags, "post_processor": both,
                     "decoder": {"type": "Sequence", "decoders": [byte_level(), {"type": "Fuse"}]}},
        "smollm": {"pre_tokenizer": sequence({"type": "Digits", "individual_digits": True}, byte_level(regex=True)), "strings": True},
        "digits-together": {"pre_tokenizer": sequence({"type": "Digits", "individual_digits": False}, byte_level())},
        "removed": {"pre_tokenizer": sequence(split(r"\s+", "Removed"), byte_level(True))},
        "removed-inverted": {"pre_tokenizer": sequence(split(r"\w+|[^\w\s]", "Removed", True), byte_level())},
        "merged-with-previous": {"pre_tokenizer": sequence(split("[,. ]", "MergedWithPrevious"), byte_level())},
        "merged-with-next": {"pre_tokenizer": sequence(split(" ", "MergedWithNext", kind="String"), byte_level())},
        "contiguous": {"pre_tokenizer": sequence(split(r"[^\w]|\d|[\d\s]\W", "Contiguous"), byte_level())},
        "string": {"pre_tokenizer": sequence(split("th", "Isolated", kind="String"), byte_level())},
        "empty-matches": {"pre_tokenizer": sequence(split(r"x*|(?<=a)", "Contiguous"), split(r"\d*", "MergedWithPrevious"), byte_level())},
        "lines": {"pre_tokenizer": sequence(split(r"^.*$"), byte_level())},
        "scripts": {"pre_tokenizer": sequence(split(r"\p{Han}+|\p{^Lu}\p{Latin}|[^\S\n]\u0061?"), byte_level())},
    }


def build(name, parts, vocab, merges):
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": False, "byte_fallback": False, "ignore_merges": parts.get("ignore_merges", False)}
    frame = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": parts.get("added_tokens", []),
             "normalizer": parts.get("normalizer"), "pre_tokenizer": parts["pre_tokenizer"],
             "post_processor": parts.get("post_processor"), "decoder": parts.get("decoder", byte_level(True, True)), "model": model}
    written = [" ".join(m) for m in merges] if parts.get("strings") else merges
    full = {**frame, "model": {**model, "vocab": vocab, "merges": written}}
    return frame, bool(parts.get("strings")), Tokenizer.from_str(json.dumps(full))


def sweep_ranges():
    """Code points assigned in Unicode 14, as [first, last]; Python's own tables must know them (3.11: Unicode 14)."""
    import unicodedata
    if unicodedata.unidata_version != "14.0.0":
        sys.exit(f"this Python knows Unicode {unicodedata.unidata_version}; the sweep needs 14.0.0 (Python 3.11)")
    ranges = []
    for c in range(0x110000):
        if unicodedata.category(chr(c)) in ("Cs", "Cn", "Co"):
            continue
        if ranges and ranges[-1][1] == c - 1:
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
    return ranges


def sweep(tokenizer, ranges):
    digest = hashlib.sha256()
    block = []
    points = [c for first, last in ranges for c in range(first, last + 1)]
    for start in range(0, len(points), 64):
        text = "".join(f"a{chr(c)}1{chr(c)} {chr(c)}'{chr(c)}\n" for c in points[start:start + 64])
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        digest.update(struct.pack(f"<{len(ids)}i", *ids))
    return digest.hexdigest()


def main():
    vocab, merges = train(300)
    n = len(vocab)
    ranges = sweep_ranges()
    fixture = {"about": "made by tools/make_tokenizer_fixtures.py", "vocab": vocab, "merges": merges, "texts": TEXTS,
               "sweep_ranges": ranges, "pipelines": []}
    for name, parts in pipelines(n).items():
        frame, strings, tokenizer = build(name, parts, vocab, merges)
        cases = []
        for text in TEXTS:
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            special = tokenizer.encode(text, add_special_tokens=True).ids
            case = {"ids": ids}
            if special != ids:
                case["special"] = special
            for key, ids_in, skip in (("decoded", special, False), ("decoded_skip", special, True)):
                got = tokenizer.decode(ids_in, skip_special_tokens=skip)
                if got != text:
                    case[key] = got
            cases.append(case)
        entry = {"name": name, "tokenizer": frame, "merges_as_strings": strings, "cases": cases}
        if name in SWEPT:
            entry["sweep_sha256"] = sweep(tokenizer, ranges)
        fixture["pipelines"].append(entry)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(fixture, ensure_ascii=True, separators=(",", ":")).replace('{"name"', '\n{"name"') + "\n")
    print(f"{OUT.relative_to(ROOT)}: {len(fixture['pipelines'])} pipelines, {len(TEXTS)} texts, {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
