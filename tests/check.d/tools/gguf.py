"""A GGUF file is a model for every command, with the bits of the folder that `convert` writes; a broken one is one error.

The file is a llama of one layer, eight tokens and a context of 16: the fuzz corpus has it (tests/fuzz/corpus/gguf_fuzz).
"""
import json
import random
import shutil
import signal
import time
import urllib.request

from harness import ROOT, TMP, check, done, finish, lockstep, refused, start

FILE = TMP / "tiny.gguf"
shutil.copyfile(ROOT / "tests/fuzz/corpus/gguf_fuzz/bpe", FILE)
FOLDER = TMP / "folder"
LINES = TMP / "lines.jsonl"
LINES.write_text('{"tokens": [5, 0, 1, 4, 6]}\n{"tokens": [4, 4, 2]}\n')
TEXTS = TMP / "texts.jsonl"
TEXTS.write_text('{"prompt": "ab", "completion": "c"}\n')
TALK = TMP / "talk.json"
TALK.write_text('[{"role": "user", "content": "ab"}]')


def both(*words, model="--model"):
    """What a command says of the file, which must be what it says of the folder; both are one model."""
    named = lambda path: [model, path] if model else [path]  # noqa: E731
    texts = [done(*words, *named(path)).stdout.replace(str(path), "MODEL").replace(path.stem, "MODEL") for path in (FILE, FOLDER)]
    assert texts[0] == texts[1], f"of the file:\n{texts[0]}\nof the folder:\n{texts[1]}"
    return texts[0]


with check("convert"):
    assert done("convert", FILE, FOLDER).stdout == f"{FOLDER}\n"
    names = {path.name for path in FOLDER.iterdir()}
    assert names == {".lockstep", "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}, names
    refused("convert", FILE, TMP / "texts.jsonl", status=1, words=["OUT", "is a file"])
    refused("convert", TMP / "nowhere.gguf", TMP / "out", status=1, words=["nowhere.gguf"])
    assert not (TMP / "out").exists()

with check("same-bits-as-the-folder"):
    for via in ("train", "prefill", "chunked", "decode"):
        assert len(json.loads(both("score", "--tokens", LINES, "--via", via).splitlines()[0])["logprobs"]) == 4
    both("grad", "--tokens", LINES, "--out", TMP / "gradients.safetensors", "--overwrite", "--json")
    both("generate", "--prompt", "ab", "--temperature", "0", "--max-tokens", "5", "--seed", "1", "--json")
    both("plan", "--length", "8", "--json", "--memory-megabytes", "4000")
    done("parity", "--model", FILE, "--fuzz", "2")

with check("tokenizer-template-and-ends"):
    assert json.loads(both("tokenize", "--text", "abx c", "--json"))["ids"] == [5, 4, 7, 3, 2]
    assert "user" in json.loads(both("render", "--messages", TALK, "--json"))["text"]
    info = done("info", FILE, "--json").json()
    assert info["format"] == "GGUF version 3" and info["stored_as"] == [{"type": "F32", "bits_a_weight": 32.0, "tensors": 11, "weights": info["parameters"]["total"]}], info
    assert info["generation_config"] == {"end_tokens": [6]} and info["tokenizer_vocabulary"] == 8, info
    assert done("info", FOLDER, "--json").json()["weights_sha256"] == info["weights_sha256"]
    assert done("info", FOLDER, "--json").json()["format"] == "safetensors"

with check("training"):
    for name, model in (("file", FILE), ("folder", FOLDER)):
        done("train", "sft", "--model", model, "--data", TEXTS, "--runs", TMP / "runs", "--name", name, "--steps", "2", "--batch", "1", "--eval-share", "0",
             "--learning-rate", "0.01", "--warmup", "0", "--no-page", "--quiet", "--export-dtype", "f32")
    exports = [TMP / "runs" / name / "export" for name in ("file", "folder")]
    assert (exports[0] / "model.safetensors").read_bytes() == (exports[1] / "model.safetensors").read_bytes()
    assert (exports[0] / "tokenizer.json").read_bytes() == (FOLDER / "tokenizer.json").read_bytes()
    assert done("info", exports[0], "--json").json()["weights_sha256"] != done("info", FILE, "--json").json()["weights_sha256"]
    done("train", "sft", "--model", FILE, "--data", TEXTS, "--runs", TMP / "runs", "--name", "adapter", "--steps", "1", "--batch", "1", "--eval-share", "0",
         "--adapter-rank", "2", "--warmup", "0", "--no-page", "--quiet")
    done("score", "--model", FILE, "--adapter", TMP / "runs/adapter/export", "--tokens", LINES)

with check("serving"):
    server = start("serve", "--model", FILE, "--port", "0", "--training", "--state", TMP / "state")
    try:
        for _ in range(600):
            server.outputs[0].seek(0)
            server.outputs[1].seek(0)
            told = server.outputs[0].read() + server.outputs[1].read()
            if "http://127.0.0.1:" in told or server.poll() is not None:
                break
            time.sleep(0.1)
        url = "http://127.0.0.1:" + told.split("http://127.0.0.1:")[1].split()[0].split("/")[0].rstrip(",.;")
        body = json.dumps({"model": "tiny", "prompt": "ab", "max_tokens": 3, "temperature": 0}).encode()
        request = urllib.request.Request(url + "/v1/completions", body, {"Content-Type": "application/json"})
        for _ in range(100):
            try:
                answer = json.loads(urllib.request.urlopen(request, timeout=60).read())
                break
            except OSError:
                time.sleep(0.1)
        assert answer["model"] == "tiny" and answer["usage"]["completion_tokens"] >= 1, answer
    finally:
        server.send_signal(signal.SIGTERM)
        outcome = finish(server)
    assert outcome.returncode == 0, outcome

good = FILE.read_bytes()


def with_bytes(name, data):
    path = TMP / f"{name}.gguf"
    path.write_bytes(data)
    return path


BROKEN = {
    "truncated": (good[: len(good) * 2 // 3], ["truncated"]),
    "header-cut": (good[:600], ["bytes follow"]),
    "empty": (b"", ["does not begin with GGUF"]),
    "other": (b"PK\3\4" + good[4:], ["does not begin with GGUF"]),
    "version": (good[:4] + b"\1" + good[5:], ["version is 1, allowed are 2 and 3"]),
    "counts": (good[:8] + b"\xff" * 16 + good[24:], ["the header counts"]),
    "architecture": (good.replace(b"\5\0\0\0\0\0\0\0llama", b"\5\0\0\0\0\0\0\0lllma", 1), ["'general.architecture' is 'lllma'", "did you mean 'llama'"]),
    "pre": (good.replace(b"llama-bpe", b"llama-bqe"), ["'tokenizer.ggml.pre' is 'llama-bqe'", "did you mean 'llama-bpe'"]),
}
for name, (data, words) in BROKEN.items():
    with check(f"broken-{name}"):
        path = with_bytes(name, data)
        assert data != good
        for command in (["generate", "--model", path, "--prompt", "ab"], ["convert", path, TMP / "never"], ["serve", "--model", path, "--port", "0"]):
            refused(*command, status=1, words=[path.name, *words])
        assert not (TMP / "never").exists()

with check("random-bytes"):
    draws = random.Random(7)
    for _ in range(60):
        bad = bytearray(good)
        for _ in range(draws.choice((1, 1, 3, 40))):
            bad[draws.randrange(len(bad))] = draws.randrange(256)
        outcome = lockstep("generate", "--model", with_bytes("random", bytes(bad)), "--prompt", "ab", "--max-tokens", "2", "--threads", "1", timeout=60)
        assert outcome.returncode in (0, 1), outcome
        assert outcome.returncode == 0 or (len(outcome.errors) == 1 and "bug in lockstep" not in outcome.stderr), outcome

with check("a-name-without-the-ending"):
    # Its first bytes say what it is (ollama's blobs have no ending); a directory of such files is told to name one.
    shutil.copyfile(FILE, TMP / "sha256-0011")
    assert done("info", TMP / "sha256-0011", "--json").json()["format"] == "GGUF version 3"
    (TMP / "many").mkdir()
    shutil.copyfile(FILE, TMP / "many/one.gguf")
    refused("info", TMP / "many", status=1, words=["name the file", str(TMP / "many/one.gguf")])
