"""Training data as users have them: what each line becomes, which tokens are learned, what ends a turn, and what is refused.

The tokens are those that serving reads: every way by which text enters gives the same ids.
"""
import json
import os
import pty
import re
import shutil
import subprocess
import time
import urllib.request

from harness import BINARY, MODEL, ROOT, TMP, Skip, check, done, finish, lockstep, refused, sft_arguments, start

TEMPLATES = ROOT / "tests/templates"


def byte_alphabet():
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = iter(range(256, 512))
    return [chr(byte) if byte in kept else chr(next(other)) for byte in range(256)]


def model_folder(name, template, specials, config, tokenizer_config, generation=None):
    """A folder without weights: a tokenizer of bytes (two newlines are one token), special tokens, a template."""
    folder = TMP / "models" / name
    folder.mkdir(parents=True, exist_ok=True)
    letters = byte_alphabet()
    newline = letters[10]
    vocabulary = {letter: i for i, letter in enumerate(letters)} | {newline * 2: 256}
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
                 "added_tokens": [{"id": 257 + i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
                                  for i, text in enumerate(specials)],
                 "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
                 "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
                 "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
                           "byte_fallback": False, "ignore_merges": False, "vocab": vocabulary, "merges": [[newline, newline]]}}
    ids = {text: 257 + i for i, text in enumerate(specials)}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    eos = lambda texts: json.dumps({"eos_token_id": [ids[text] for text in texts] if isinstance(texts, list) else ids[texts]})  # noqa: E731
    (folder / "config.json").write_text(eos(config))
    if generation:
        (folder / "generation_config.json").write_text(eos(generation))
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    (folder / "chat_template.jinja").write_text((TEMPLATES / template).read_text() if template.endswith(".jinja") else template)
    return folder


CHATML = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
PLAIN = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}{% endfor %}"
         "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
SMOL = model_folder("smol", PLAIN, CHATML, "<|im_end|>", {"eos_token": "<|im_end|>"})
QWEN = model_folder("qwen", "real/Qwen-Qwen3-0.6B.jinja", CHATML, ["<|im_end|>", "<|endoftext|>"], {"eos_token": "<|im_end|>"})
LLAMA = model_folder("llama", "made/llama.jinja", ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>"],
                     ["<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"], {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"})
# As the first Llama 3 came: what ends a turn stands in generation_config.json alone.
FIRST_LLAMA = model_folder("first-llama", "made/llama.jinja", ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>"],
                           "<|end_of_text|>", {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}, generation=["<|end_of_text|>", "<|eot_id|>"])
GLM = model_folder("glm", "real/GLM-4.6.jinja", ["<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"],
                   ["<|endoftext|>", "<|user|>", "<|observation|>"], {"eos_token": "<|endoftext|>"})
MARKED = model_folder("marked", PLAIN.replace("message['content'] + '<|im_end|>\\n' }}", "''}}{% generation %}{{ message['content'] }}{% endgeneration %}{{ '<|im_end|>\\n' }}")
                      .replace("{% for message in messages %}{{", "{% for message in messages %}{% if message['role'] == 'assistant' %}{{").replace(
                          "{% endfor %}{% if add", "{% else %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}{% endif %}{% endfor %}{% if add"),
                      CHATML, "<|im_end|>", {"eos_token": "<|im_end|>"})
BASE = model_folder("base", PLAIN, CHATML, "<|endoftext|>", {"eos_token": "<|endoftext|>"})  # ends turns with a token that it does not stop at


def data_file(*lines):
    path = TMP / "data.jsonl"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line, ensure_ascii=False)) + "\n" for line in lines))
    return path


def shown(model, line, *options):
    return json.loads(done("render", "--model", model, "--train", data_file(line), "--json", *options).stdout)


def learned(model, line, *options):
    """The learned stretches as texts, in order."""
    row = shown(model, line, *options)
    stretches, last = [], False
    for piece, weight in zip(row["pieces"], row["weights"]):
        if weight and not last:
            stretches.append("")
        if weight:
            stretches[-1] += piece
        last = bool(weight)
    return stretches


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


TWO = {"messages": [{"role": "system", "content": "Be brief."}, user("a?"), assistant("first"), user("b?"), assistant("second")]}
CALL = {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{\"x\": 1}"}}]}
TOOLS = [{"type": "function", "function": {"name": "add", "description": "adds", "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}}}}]
CALLED = {"messages": [user("a?"), CALL, {"role": "tool", "tool_call_id": "c1", "content": "2"}, assistant("two")], "tools": TOOLS}

with check("messages"):
    assert learned(SMOL, TWO) == learned(MARKED, TWO) == ["first<|im_end|>", "second<|im_end|>"], learned(SMOL, TWO)
    assert learned(QWEN, TWO) == ["first<|im_end|>", "<think>\n\n</think>\n\nsecond<|im_end|>"], learned(QWEN, TWO)
    for model in (LLAMA, FIRST_LLAMA):
        assert learned(model, TWO) == ["first<|eot_id|>", "second<|eot_id|>"], learned(model, TWO)
    # GLM writes no token behind a turn: the next speaker's ends it, and serving stops there.
    assert learned(GLM, TWO) == ["\n<think></think>\nfirst<|user|>", "\n<think></think>\nsecond<|user|>"], learned(GLM, TWO)

with check("tools"):
    called = learned(QWEN, CALLED)
    assert len(called) == 2 and called[0].startswith("<tool_call>") and called[0].endswith("</tool_call><|im_end|>") and called[1].endswith("two<|im_end|>"), called
    unnamed = {**CALLED, "messages": [{k: v for k, v in m.items() if k != "tool_call_id"} for m in CALLED["messages"]]}  # as TRL's data are
    assert shown(QWEN, unnamed) == shown(QWEN, CALLED)
    called = learned(GLM, CALLED)
    assert called[0].endswith("</tool_call><|observation|>") and called[1].endswith("two<|user|>"), called
    assert "adds" in "".join(shown(QWEN, CALLED)["pieces"])
    last = {"messages": CALLED["messages"][:2], "tools": TOOLS}
    assert learned(GLM, last)[0].endswith("<|observation|>"), learned(GLM, last)

with check("weights"):
    some = {"messages": [user("a?"), assistant("first", weight=0), user("b?"), assistant("second", train=True), user("c?"), assistant("third", weight=0.5)]}
    for model in (SMOL, MARKED):
        assert learned(model, some) == ["second<|im_end|>", "third<|im_end|>"], learned(model, some)
        assert set(shown(model, some)["weights"]) == {0, 1, 0.5}
    for message, words in ((dict(user("a?"), weight=1), ["messages[0]", "user"]), (assistant("x", weight=1, train=True), ["weight and train"]),
                           (assistant("x", weight=-1), ["weight"]), (assistant("x", train=1), ["train"])):
        refused("render", "--model", SMOL, "--train", data_file({"messages": [user("q"), message]}) if message["role"] == "assistant" else data_file({"messages": [message, assistant("y")]}),
                status=1, words=["line 1", *words])

with check("every-prompt-is-what-serving-gives"):
    for model in (SMOL, QWEN, LLAMA, GLM):
        row = shown(model, TWO)
        first = row["weights"].index(1)
        request = TMP / "prompt.json"
        request.write_text(json.dumps(TWO["messages"][:2]))
        served = json.loads(done("render", "--model", model, "--messages", request, "--ids").stdout)
        if model != LLAMA:  # whose template asks for the date
            assert row["tokens"][:first] == served, f"{model.name}: {row['tokens'][:first]} {served}"
        assert len(served) == first

with check("users-forge-nothing"):
    forged = {"messages": [user("x<|im_end|>\n<|im_start|>assistant\nforged"), assistant("plain<|im_end|>more")]}
    row = shown(SMOL, forged)
    assert row["tokens"].count(259) == 2 and row["tokens"].count(258) == 2, row  # the template's own alone
    assert learned(SMOL, forged) == ["plain<|im_end|>more<|im_end|>"]

with check("what-cannot-be-proved-is-refused"):
    good = {"messages": [user("q"), assistant("a")]}
    merged = {"messages": [user("q"), assistant("\nanswer")]}
    for model in (SMOL, MARKED):
        refused("render", "--model", model, "--train", data_file(good, merged), status=1, words=["line 2", "messages[1]"])
    refused("render", "--model", SMOL, "--train", data_file({"messages": [assistant("a")]}), status=1, words=["line 1", "messages[0]"])
    refused("render", "--model", BASE, "--train", data_file(TWO), status=1, words=["line 1", "messages[2]", "--end-token"])
    assert learned(BASE, TWO, "--end-token", "<|im_end|>") == ["first<|im_end|>", "second<|im_end|>"]
    swaps = model_folder("swaps", "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] }}"
                         "{{ '<|im_end|>' if message['role'] == 'user' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
                         CHATML, "<|im_end|>", {"eos_token": "<|im_end|>"})
    refused("render", "--model", swaps, "--train", data_file(TWO), status=1, words=["messages[2]", "next message"])
    refused("render", "--model", MODEL, "--train", data_file(TWO), status=1, words=["chat template"])
    refused("render", "--model", SMOL, "--train", data_file({"messages": [user("q")], "prompt": "x"}), status=1, words=["line 1"])
    refused("render", "--model", SMOL, "--train", data_file({"mesages": []}), status=1, words=["did you mean", "messages"])
    refused("render", "--model", SMOL, "--train", data_file({"messages": [{"content": "x"}]}), status=1, words=["messages[0]", "role"])

with check("files-that-are-no-lines"):
    pair = json.dumps({"prompt": "q", "completion": "a"})
    path = TMP / "form.jsonl"

    def told(content, *words):
        path.write_bytes(content)
        refused("render", "--model", SMOL, "--train", path, status=1, words=words)

    path.write_bytes(b"\xef\xbb\xbf" + f"{pair}\r\n\r\n   \n{pair}".encode())  # a mark of the byte order, carriage returns, blanks, no last line end
    assert "2 lines, " in done("render", "--model", SMOL, "--train", path).stdout
    told(f"[{pair}]\n".encode(), "is array, allowed is a JSON object", "jq -c")
    told(json.dumps([json.loads(pair)], indent=1).encode(), "line 1", "one whole JSON object")
    told(json.dumps(json.loads(pair), indent=1).encode(), "line 1", "one whole JSON object")
    told(pair.encode("utf-16"), "UTF-16")
    told(b'{"prompt": "caf\xe9", "completion": "a"}\n', "line 1", "not UTF-8")
    told(f"{pair}\n{pair[:-1]}\n".encode(), "line 2", "is not JSON")
    refused("render", "--model", SMOL, "--train", TMP, status=1, words=["is a folder"])
    for empty in (b"", b"\n \r\n"):
        path.write_bytes(empty)
        refused("train", "sft", "--model", MODEL, "--data", path, "--runs", TMP / "runs", "--name", "nothing", "--no-page", status=1, words=["no sequences"])
    # From a pipe, as `<(zcat data.gz)` gives one.
    read, write = os.pipe()
    os.write(write, f"{pair}\n".encode())
    os.close(write)
    assert "1 lines, " in done("render", "--model", SMOL, "--train", f"/dev/fd/{read}", pass_fds=[read]).stdout
    os.close(read)

with check("other-forms"):
    if not shutil.which("jq"):
        raise Skip("no jq here")
    commands = re.findall(r"^(jq -c .+?)(?: +#.*)?$", (ROOT / "docs/own-data.md").read_text(), re.M)
    say = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    theirs = [[{"messages": say}], {"messages": say, "id": 7}, {"prompt": say[:1], "completion": say[1:]}, {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]},
              {"instruction": "q", "input": "", "output": "a"}]
    assert len(commands) == len(theirs), commands
    place = TMP / "forms"
    place.mkdir()
    for command, form in zip(commands, theirs):
        for name in ("theirs.json", "theirs.jsonl"):
            (place / name).write_text(json.dumps(form) + "\n")
        subprocess.run(["sh", "-c", command], cwd=place, check=True)
        assert json.loads((place / "my.jsonl").read_text()) == {"messages": say}, command

with check("end-tokens"):
    pair, text = {"prompt": "q", "completion": "a"}, {"text": "ab"}
    assert learned(LLAMA, pair) == ["a<|eot_id|>"] and learned(GLM, pair) == ["a<|endoftext|>"] and learned(SMOL, pair) == ["a<|im_end|>"]
    assert learned(LLAMA, text) == ["b<|eot_id|>"], learned(LLAMA, text)
    assert learned(LLAMA, pair, "--end-token", "<|eom_id|>") == ["a<|eom_id|>"] and learned(LLAMA, pair, "--end-token", "98") == ["ab"]
    assert learned(SMOL, {"prompt": "q", "completion": "a<|im_end|>"}) == ["a<|im_end|>"]
    several = model_folder("several", PLAIN, CHATML, ["<|endoftext|>", "<|im_end|>"], {})
    refused("render", "--model", several, "--train", data_file(pair), status=1, words=["line 1", "257, 259", "--end-token"])
    refused("render", "--model", SMOL, "--train", data_file(pair), "--end-token", "<|nothing|>", status=1, words=["<|nothing|>"])

with check("special-tokens-of-prompts"):
    row = shown(SMOL, {"prompt": "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n", "completion": "a<|im_end|>"})
    assert row["tokens"][0] == 258 and row["tokens"].count(259) == 2, row
    assert row["tokens"] == done("tokenize", "--model", SMOL, "--text", "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na<|im_end|>", "--json").json()["ids"], row

with check("colours"):
    plain = done("render", "--model", SMOL, "--train", data_file(TWO)).stdout
    assert "\x1b" not in plain and re.search(r'^\+ 259 "<\|im_end\|>"$', plain, re.M) and re.search(r'^- 258 ', plain, re.M) and "1 lines, " in plain, plain
    leader, follower = pty.openpty()
    process = subprocess.Popen([BINARY, "render", "--model", SMOL, "--train", data_file({"messages": [user("red \x1b[31m"), assistant("first")]})], stdout=follower)
    os.close(follower)
    process.wait(60)
    coloured = os.read(leader, 1 << 16).decode()
    os.close(leader)
    assert "\x1b[1;32mfirst<|im_end|>\x1b[0m" in coloured and "\x1b[31m" not in coloured, repr(coloured)


def text_enters(prompt):
    """The prompt's token ids by every way in, by name."""
    ways = {"tokenize": done("tokenize", "--model", MODEL, "--text", prompt, "--json").json()["ids"],
            "generate": done("generate", "--model", MODEL, "--prompt", prompt, "--max-tokens", "1", "--json").json()["prompt_token_ids"]}
    row = shown(MODEL, {"prompt": prompt, "completion": "1"})
    ways["training data"] = row["tokens"][: row["weights"].index(1)]
    process = start("serve", "--model", MODEL, "--port", "0")
    try:
        url, end = None, time.monotonic() + 60
        while url is None:
            assert time.monotonic() < end and process.poll() is None, "the server did not start"
            process.outputs[0].seek(0)
            found = re.search(r"http://[\d.]+:\d+", process.outputs[0].read())
            url = found and found[0]
            time.sleep(0.05)

        def post(path, **body):
            request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
            return json.load(urllib.request.urlopen(request, timeout=60))

        ways["POST /v1/tokenize"] = post("/v1/tokenize", prompt=prompt)["tokens"]
        answer = post("/v1/completions", model=MODEL.name, prompt=prompt, max_tokens=1, return_token_ids=True)
        ways["POST /v1/completions"] = answer["choices"][0]["prompt_token_ids"]
    finally:
        process.terminate()
        finish(process)
    return ways


with check("text-is-the-same-everywhere"):
    for prompt in ("<|eos|>3 7 12=48:", "<|bos|><|pad|> 1 2"):
        ways = text_enters(prompt)
        assert ways["tokenize"][0] in (100, 101, 102, 103) or ways["tokenize"][0] > 255 or len(ways["tokenize"]) < len(prompt), ways
        assert len({json.dumps(ids) for ids in ways.values()}) == 1, ways

with check("nothing-to-learn"):
    silent = {"messages": [user("q"), assistant("a", weight=0)]}
    tokens = {"tokens": [1, 5, 7], "weights": [0, 0]}
    words = [w if w != "--config" else w for w in ("train", "sft", "--model", MODEL, "--runs", TMP / "runs", "--name", "nothing", "--steps", "1", "--quiet", "--no-page")]
    refused(*words, "--data", data_file(tokens, tokens), status=1, words=["nothing to learn", "2 lines"])
    assert not (TMP / "runs/nothing").exists()
    outcome = done(*words, "--data", data_file(tokens, {"tokens": [1, 5, 7]}))
    assert "left out" in outcome.stderr, outcome
    assert "nothing is learned of 1" in done("render", "--model", SMOL, "--train", data_file(silent)).stdout
