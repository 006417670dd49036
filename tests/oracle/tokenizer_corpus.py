"""Texts that tokenizers disagree about, and random ones. Code points are those of Unicode 9 or older, because the
libraries compared here carry tables of different versions; tests of all code points of Unicode 14 stand in src/text."""

import random

SAMPLES = {
    "english": "The quick brown fox jumps over the lazy dog; it's 'twas THE'S I'M you'LL they'd  I've\n\n\tDone. ",
    "code": "def f(x: int) -> str:\n    return f\"{x ** 2:>10}\"  # square\n\n\nif __name__ == '__main__':\n\tprint(f(3))\r\n",
    "json": "{\"a\": [1, 2.0, null, true], \"b\": {\"c\": \"d\\u00e9\"}}",
    "scripts": "Привет, мир! Ελληνικά 日本語のテキスト。中文！カタカナー 한국어 텍스트 العربية שלום हिन्दी ไทย ქართული հայերեն አማርኛ",
    "marks": "cafe\u0301 A\u030angstro\u0308m \u1e69 s\u0323\u0307 s\u0307\u0323 e\u0301\u0302\u0303 \u0344 \u0958 \u1e9b\u0323 \u0301a \u0315\u0300",
    "jamo": "\u1100\u1161\u11a8 \uac00\u11a8 \uac01\u11a8 \u1100\u1161 \u1112\u1161\u11ab\u1100\u1173\u11af \u11a8\u1161 \uac00\u1161",
    "compatibility": "\ufb01\ufb03 \u2460\u2461 \u00bd \u2167 \u00b2 \uff21\uff42\uff13 \u33c0 \ufdfa \u212b \u2126 \u1e9e \u0130stanbul \u01c5 \u3300",
    "emoji": "🙂🙃 👩‍👩‍👧‍👦 🇫🇷🇩🇪 👍🏽 ❤️ 🏳️‍🌈 e\u200dx 1️⃣",
    "spaces": "a  b   c    d \u00a0x\u2003y\u3000z\u2028l\u2029p\u0085n\u180e \u200b| \x1c\x1d\x1e\x1f \v\f",
    "controls": "a\x00b\x01\x7f\x80\x9f\u00ad\u2060\ufeff\ufffd\uffff\U0010ffff\ue000",
    "special": "<s> <s>a</s>b <mask>  x  <mask> y<mask> <sep>  <sep> <end>x <end> . <end>  <|x|><|x|y|> <|x <s <é> <e\u0301> <É>",
    "words": "word words word,word-word wordé éword word_ tail   tail\n tailtail  head   head both  both  日本 日本語 a日本 Fox fox FOX",
    "forged": "<unk></s><0x41><0xE4><0xBD><0xA0> ▁a ▁▁ b▁ ▁ Ġ Ċ [UNK] <|im_start|><|begin_of_text|><|end_of_text|>",
    "numbers": "0 12 345 6789 1234567890123 3.14159 1,000,000 -5 1e10 ٣٤٥ १२३ Ⅷ ½ ² 0x1F",
    "punctuation": "!!!???... ?! (a)[b]{c}<d> «e» “f” ‘g’ — – … ¡¿ §¶ †‡ ‰ $€£ ^`|~+=<>",
    "url": "http://example.org/?q=1&r=%20#top user@example.com C:\\path\\to file_name-1.2.tar.gz",
}
LONG = {
    "spaces": " " * 700, "newlines": "\n" * 300, "mixed-spaces": " \n" * 200, "tabs": "\t" * 99 + "x", "digits": "1" * 500,
    "letters": "a" * 600, "the": "the" * 300, "punctuation": "!" * 400, "cjk": "日" * 300, "emoji": "🙂" * 200,
    "marks": "e" + "\u0301" * 120, "crlf": "\r\n" * 150, "hangul": "\u1112\u1161\u11ab" * 80, "specials": "<s>" * 60, "angle": "<" * 300,
}
EDGES = ["", " ", "  ", "a", " a", "a ", "\n", "é", "日", "🙂", "\u0301", "▁", "<s>", " <s> ", "\u1100", "\u11a8", "\ufb01", "İ", "\x00"]


def texts():
    return EDGES + list(SAMPLES.values()) + list(LONG.values()) + ["".join(SAMPLES.values())]


def byte_strings():
    """Broken UTF-8: surrogates, overlong forms, cut characters, random bytes. The text is what Python's "replace" makes
    of them: one U+FFFD for each maximal part that begins a character."""
    fixed = [b"\xff", b"\xed\xa0\x80", b"a\xed\xa0\x80\xed\xb0\x80b", b"\xc0\x80", b"\xe6\x97", b"\xf0\x9f\x99", b"\xf0\x9f\x99a",
             b"\xf4\x90\x80\x80", b"\xe6\xe6\x97\xa5\x97", b"\x80\x80", b"\xfe\xff", "\ud83d\ude42 \udc00x\ud800".encode("utf-8", "surrogatepass")]
    source = random.Random(7)
    return fixed + [source.randbytes(source.randrange(1, 60)) for _ in range(40)]


RANGES = [(0x20, 0x7E), (0x20, 0x7E), (0x61, 0x7A), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x52F), (0x5D0, 0x5EA), (0x621, 0x64A),
          (0x904, 0x939), (0xE01, 0xE2E), (0x1100, 0x1112), (0x1161, 0x1175), (0x11A8, 0x11C2), (0x1E00, 0x1EFF), (0x2000, 0x200F), (0x2010, 0x2027),
          (0x2100, 0x214F), (0x2460, 0x24FF), (0x3041, 0x3096), (0x30A1, 0x30FA), (0x4E00, 0x4FFF), (0xAC00, 0xACFF), (0xD7A3, 0xD7A3), (0xFB00, 0xFB06),
          (0xFF01, 0xFF5E), (0x1D400, 0x1D433), (0x1F600, 0x1F64F)]
PIECES = [" ", "  ", "   ", "\n", "\n\n", "\t", "\r\n", "'s", "'LL", "the", " the", "1", "12", "▁", "<s>", "</s>", "<mask>", "<sep>", "<end>", "word",
          "tail", "head", " both ", "日本", "<|x|>", "<|x|y|>", "<é>", "Fox", "<0x41>", "<0xE4>", "<unk>", "\u0301", "\u200d", "\ufeff", "_", "."]


def random_text(source):
    parts = []
    for _ in range(source.randrange(1, 14)):
        kind = source.randrange(10)
        if kind < 4:
            parts.append(source.choice(PIECES))
        elif kind < 9:
            low, high = source.choice(RANGES)
            parts.append("".join(chr(source.randint(low, high)) for _ in range(source.randrange(1, 7))))
        else:
            parts.append(source.choice(PIECES) * source.randrange(1, 40))
    return "".join(c for c in "".join(parts) if _assigned(c))


def _assigned(c):
    import unicodedata
    return unicodedata.category(c) != "Cn"
