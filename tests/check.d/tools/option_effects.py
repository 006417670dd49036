"""Every option of the commands in ROWS has an effect, is refused, or stands in docs/cli.md among those that change no result.

The options are those of `COMMAND --help=json`, which are the keys of --config files too; one that has no row here fails. A row gives the
option a value and holds what the command then prints and writes against the same without it: they differ, or, of those that change no
result, are equal to the byte. That options are refused where their mechanism is off is walked by src/cli/option_tables_test.cpp.

Servers, who asks them, launch, doctor and demo have a check of their own (server_effects.py). LATER has what a run of a moment cannot show, with the
reason and the test that does. Of those only this is held: that test has the word given there. That it fails without the effect is its own to show.
"""
import concurrent.futures
import contextlib
import functools
import hashlib
import http.server
import itertools
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time

from harness import BINARY, MODEL, ROOT, TMP, check, done, instruction_sets

PLACE = itertools.count()
PLAIN, PLAIN_LOCK = {}, threading.Lock()  # runs without the option of a row: futures, by command and base
SNAPSHOTS = []  # ids in the store of FILES, oldest first
LINES = [{"prompt": f"{a} {b} {c}={a + b + c}:", "completion": f"{a}+{b}={a + b},{a + b}+{c}={a + b + c}"} for a, b, c in ((3, 7, 12), (5, 9, 14), (2, 8, 31), (16, 4, 9), (6, 1, 40), (11, 13, 2))]


def furnish():
    """The files that rows name, in a folder of their own."""
    folder = TMP / "files"
    folder.mkdir()
    lines = lambda *objects: "".join(json.dumps(o) + "\n" for o in objects)  # noqa: E731
    (folder / "my.jsonl").write_text(lines(*LINES))
    (folder / "fewer.jsonl").write_text(lines(*LINES[:3]))
    (folder / "long.jsonl").write_text(lines(*({"prompt": line["prompt"], "completion": ",".join([line["completion"]] * 8)} for line in LINES * 11)))
    (folder / "held.jsonl").write_text(lines(*LINES[4:]))
    talk = lambda line: {"messages": [{"role": "user", "content": line["prompt"]}, {"role": "assistant", "content": line["completion"]}]}  # noqa: E731
    (folder / "talks.jsonl").write_text(lines(*map(talk, LINES)))
    (folder / "packs.jsonl").write_text(lines(*({**line, "prompt": LINES[0]["prompt"]} for line in LINES)))
    pair = lambda line: {"prompt": line["prompt"], "chosen": line["completion"], "rejected": line["completion"][::-1]}  # noqa: E731
    (folder / "pairs.jsonl").write_text(lines(*map(pair, LINES)))
    (folder / "fewer-pairs.jsonl").write_text(lines(*map(pair, LINES[:3])))
    (folder / "held-pairs.jsonl").write_text(lines(*map(pair, LINES[4:])))
    (folder / "talk-pairs.jsonl").write_text(lines(*({"messages": [{"role": "user", "content": line["prompt"]}], "chosen": line["completion"], "rejected": "1"} for line in LINES)))
    (folder / "prompts.jsonl").write_text(lines(*({"prompt": line["prompt"]} for line in LINES)))
    (folder / "fewer-prompts.jsonl").write_text(lines(*({"prompt": line["prompt"]} for line in LINES[:2])))
    # A teacher that is another than the student: the same model under another rounding of its norms would not do, an adapter made below does.
    (folder / "teachers.toml").write_text(f'[[teacher]]\nname = "t"\nadapter = "{TMP / "adapter/runs/r/export"}"\n')
    (folder / "same-teachers.toml").write_text(f'[[teacher]]\nname = "t"\nfolder = "{MODEL}"\n')
    (folder / "talk.json").write_text(json.dumps(talk(LINES[0])["messages"]))
    (folder / "other-talk.json").write_text(json.dumps(talk(LINES[1])["messages"]))
    (folder / "tools.json").write_text(json.dumps([{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}]))
    turn = "{% for m in messages %}BEGIN{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}{{ more }}{% if tools %}{{ tools[0].function.name }}{% endif %}{% if add_generation_prompt %}={% endif %}"
    (folder / "a.jinja").write_text(turn.replace("BEGIN", ""))
    (folder / "b.jinja").write_text(turn.replace("BEGIN", "7"))
    (folder / "sequences.jsonl").write_text(lines({"tokens": [1, 5, 7, 9, 11]}, {"tokens": [1, 6, 3]}))
    (folder / "other.jsonl").write_text(lines({"tokens": [1, 5, 7, 9, 12]}))
    (folder / "rollouts.jsonl").write_text(lines({"tokens": [1, 5, 7, 9], "weights": [0, 1, 1], "advantages": [0, 1, 1], "logprobs": [0, -1, -1]}))
    (folder / "shapes.toml").write_text('[[shape]]\nid = "mine"\nmodel = "qwen3-8b"\nmode = "policy"\ncontext = 1024\naccelerator = "NVIDIA_B200_180GB"\naccelerators = 1\nsource = "measured"\n')
    (folder / "schema.json").write_text(json.dumps({"enum": [1, 22]}))
    (folder / "roofline.json").write_text(json.dumps({"kind": "roofline", "points": [{"threads": 1, "gigaflops": 12345, "gigabytes_per_second": 123}]}))
    # The shipped model with defaults of sampling, with a template, and with a token that every text begins with.
    tokenizer = json.loads((MODEL / "tokenizer.json").read_text())
    first, rest = {"SpecialToken": {"id": "<|bos|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
    tokenizer["post_processor"] = {"type": "TemplateProcessing", "single": [first, rest], "pair": [first, rest], "special_tokens": {"<|bos|>": {"id": "<|bos|>", "ids": [101], "tokens": ["<|bos|>"]}}}
    # The same with a hundred other numbers in one matrix, and a store of snapshots: of both, which a channel points at, and of a third that nobody needs.
    for name, first_byte in (("moved", 1000), ("moved-further", 2000)):
        shutil.copytree(MODEL, folder / name)
        file = next((folder / name).glob("*.safetensors"))
        values = bytearray(file.read_bytes())
        at = 8 + int.from_bytes(values[:8], "little") + first_byte
        for i in range(at, at + 400, 4):
            values[i] ^= 1
        file.write_bytes(values)
    for model, *channel in ((MODEL, "--channel=chat"), (folder / "moved", "--channel=chat"), (folder / "moved-further",)):
        SNAPSHOTS.append(json.loads(done("snapshot", "push", str(model), str(folder / "store"), *channel, "--json", "--quiet").stdout)["id"])
    # The same store without the weights of any snapshot.
    shutil.copytree(folder / "store", folder / "hollow")
    for stored in (folder / "hollow/objects").glob("*/*"):
        if stored.stat().st_size > 50_000:
            stored.unlink()
    for name, file, text in (("cool", "generation_config.json", json.dumps({"temperature": 0.1, "eos_token_id": 102})), ("talks", "chat_template.jinja", turn.replace("BEGIN", "")), ("begins", "tokenizer.json", json.dumps(tokenizer))):
        shutil.copytree(MODEL, folder / name)
        (folder / name / file).write_text(text)
    shutil.copyfile(ROOT / "tests/fuzz/corpus/gguf_fuzz/bpe", folder / "tiny.gguf")  # a llama of one layer, with a context of 16
    shutil.copytree(MODEL, folder / "latent", ignore=shutil.ignore_patterns("*.safetensors*"))
    (folder / "latent/config.json").write_text(json.dumps({"model_type": "deepseek_v3", "vocab_size": 512, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "q_lora_rank": 8,
        "kv_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 4, "v_head_dim": 4, "intermediate_size": 16, "first_k_dense_replace": 1, "n_routed_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 8,
        "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "rope_theta": 10000.0, "eos_token_id": 102}))  # fmt: skip
    return folder


class Files(http.server.SimpleHTTPRequestHandler):
    """The files of FILES at /, and at /slow-N/ too, where the first request is never answered."""

    begun, lock = set(), threading.Lock()

    def do_GET(self):
        slow, _, rest = self.path[1:].partition("/")
        if slow.startswith("slow-"):
            with Files.lock:
                first = slow not in Files.begun
                Files.begun.add(slow)
            if first:
                time.sleep(20)
                return
            self.path = "/" + rest
        with contextlib.suppress(ConnectionError):
            super().do_GET()

    def log_message(self, *_):
        pass


def served(folder):
    """The address of a server of these files, and one like it whose first request is never answered, another each time that it is asked for."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Files, directory=str(folder)))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    numbers = itertools.count()
    return address, lambda: f"{address}/slow-{next(numbers)}/store"


FILES = furnish()
FAR, slow = served(FILES)
TAKEN = socket.create_server(("127.0.0.1", 0))  # a port that is not free
ADAPTER = TMP / "adapter/runs/r/export"  # made below
CRITIC_MODEL = TMP / "critic/runs/r/export"  # too
LATENT = TMP / "latent/runs/r/export"  # too: one layer of latent attention
TAUGHT = TMP / "taught/runs/r/export"  # too: the shipped model, after reference rollouts of lockbox
SPECIAL, SPECIAL_ID = "<|eos|>", "102"  # of the shipped model
NO = "NO"  # the option is left out of the base
STORED = {"copy": ("store", FILES / "store")}
HOLLOW = {"copy": ("hollow", FILES / "hollow")}
MORE = {"generate": {"prompt": "16 19 14=17:", "max-tokens": 12, "seed": 3, "json": True}, "eval": {"n": 6, "samples": 2, "json": True}, "eval drafts": {"data": FILES / "prompts.jsonl", "speculate": "ngram", "max-tokens": 40, "seed": 3, "json": True}, "score": {"tokens": FILES / "sequences.jsonl"}, "index-share overlap": {"data": FILES / "sequences.jsonl", "json": True}, "index-share search": {"data": FILES / "sequences.jsonl", "json": True}, "index-share convert": {"pattern": "FSSS", "data": FILES / "my.jsonl", "steps": 2, "batch": 4, "learning-rate": 1e-2, "quiet": True},
        "grad": {"tokens": FILES / "sequences.jsonl", "out": "gradients.safetensors", "json": True}, "plan": {"json": True}, "tokenize": {"text": "3 7 12=48:"}, "render": {"messages": FILES / "talk.json", "model": FILES / "talks"},
        "chat": {"model": FILES / "talks", "stdin": "16 19 14=17:\n", "temperature": 1, "max-tokens": 12, "seed": 3}, "report": {"copy": ("run", TMP / "adapter/runs/r")},
        **{f"snapshot {kind}": STORED | {"quiet": True} for kind in ("pull", "diff", "verify", "squash")}, "snapshot push": STORED | {"quiet": True, "json": True}, "snapshot show": STORED, "snapshot prune": STORED, "snapshot mirror": STORED | {"channel": "chat", "quiet": True},
        "shapes resolve": {"model": "qwen3-8b"}, "simulate": {"ranks": "tp=2,dp=2", "tokens": 128, "length": 16},
        "parity": {"model": FILES / "tiny.gguf", "fuzz": 1, "json": True}}  # fmt: skip
WORDS = {"simulate": [MODEL], "eval": ["countdown"], "info": [MODEL], "convert": [MODEL, "out"], "index-share convert": [MODEL, "out"], "shapes show": ["qwen3-32b-65k"], "report": ["run"],
         "snapshot push": [FILES / "moved-further", "store"], "snapshot pull": [f"{FAR}/store", "chat", "out"], "snapshot show": ["store", "chat"], "snapshot diff": ["store", SNAPSHOTS[0], "chat"], "snapshot verify": ["store", "chat"],
         "snapshot squash": ["store", "none", "chat"], "snapshot mirror": [f"{FAR}/store", "copy"], "snapshot prune": ["store"]}  # fmt: skip
SFT = {"data": FILES / "my.jsonl", "name": "r", "steps": 2, "batch": 4, "warmup": 0, "eval-share": 0, "page": False, "quiet": True, "json": True}
RL = {"environment": "countdown", "name": "r", "steps": 2, "problems": 4, "rollouts": 4, "max-tokens": 12, "warmup": 0, "learning-rate": 1e-3, "page": False, "quiet": True, "json": True}
PREFERENCE = {"data": FILES / "pairs.jsonl", "name": "r", "loss": "dpo", "steps": 2, "batch": 3, "warmup": 0, "learning-rate": 1e-3, "eval-share": 0, "page": False, "quiet": True, "json": True}
DISTILL = {"teachers": FILES / "teachers.toml", "data": FILES / "prompts.jsonl", "name": "r", "steps": 2, "prompts": 4, "max-tokens": 12, "warmup": 0, "learning-rate": 1e-3, "page": False, "quiet": True, "json": True}
BASE = {**MORE, "train sft": SFT, "train rl": RL, "train preference": PREFERENCE, "train distill": DISTILL}

# What changes no result, of every command that has it: docs/cli.md has the same list, with reasons. Another value gives the same bytes.
HARMLESS = {"threads": 2, "device": "cpu", "backend": "deferred", "isa": instruction_sets()[-2:][0], "ranks": "tp=2", "transport": "threads", "micro-batch": 1, "checkpoint-activations": True, "optimizer-state": "file", "at-once": 1, "speculate": "ngram", "draft-tokens": 2, "teacher-megabytes": 4, "parallel": 1}
NEEDED = "NEEDED"  # without it the command does not run

# (option, value, what both runs have beside the base): the run with the value and the one without it differ.
RUNTIME = [("model", NEEDED), ("profile", "cpu-f32"), ("mla-norm-eps", 0.5), ("context", 4)]
CRITIC = {"algorithm": "ppo"}  # with a critic of the policy's weights
LOCKBOX = {"model": TAUGHT, "environment": "lockbox", "problems": 12, "loss-config": "entropy_coefficient=0.05"}  # opens some doors, never all
WINDOWS = {"compact-at": 29}  # which two of them fill
PACKS = {"data": FILES / "packs.jsonl", "adapter-rank": 4, "batch": 6, "learning-rate": 0.01}  # an indexer would learn from whole sequences
# More than half a megabyte of transcripts.
LONG_TRANSCRIPTS = {"data": FILES / "long.jsonl", "steps": 4, "batch": 64, "transcripts": 64, "transcripts-every": 1}
LONG_ROLLOUTS = {"steps": 3, "problems": 1, "rollouts": 256, "max-tokens": 60, "temperature": 3, "transcripts": 256, "transcripts-every": 1}
MIXED = {"rollout-profile": "study-bf16-activations", "allow-profile-mix": True}
SHAPES = [("shapes", FILES / "shapes.toml"), ("json", True)]
PROFILED = [("profile-operations", True), ("roofline", FILES / "roofline.json", {"profile-operations": True}), ("trace", "trace.json")]  # no result: tests/api/test_profiling.py
ROWS = {
    "generate": RUNTIME + [("prompt", "3 7 12=48:"), ("tokens", "1,5,7", {"prompt": NO}), ("max-tokens", 3), ("temperature", 3), ("top-p", 0.2), ("top-k", 1), ("generation-config", "none", {"model": FILES / "cool"}), ("seed", 4), ("acceptance", "rejection", {"speculate": "ngram", "max-tokens": 60, "temperature": 2}),
                           ("schema", FILES / "schema.json"), ("json-object", True), ("stop", "="), ("json", NO)],
    "eval": RUNTIME + [("adapter", ADAPTER), ("n", 4), ("samples", 3), ("temperature", 3), ("max-tokens", 3), ("compact-at", 29, {"model": TAUGHT, "WORDS": ["lockbox"], "n": 20}), ("chat", True, {"model": FILES / "talks"}), ("seed", 5), ("json", NO)],
    "eval drafts": RUNTIME + [("data", FILES / "fewer-prompts.jsonl"), ("environment", "countdown", {"data": NO, "n": 2}), ("n", 1), ("max-tokens", 3), ("temperature", 0), ("seed", 4), ("at-once", 2), ("speculate", "siblings"), ("draft-tokens", 2), ("acceptance", "rejection"), ("json", NO)],
    "tokenize": [("model", NEEDED), ("text", "3"), ("ids", "5 6", {"text": NO}), ("jsonl", True, {"text": NO, "stdin": '{"text":"3"}\n'}), ("json", True), ("add-special", False, {"model": FILES / "begins"}), ("parse-special", False, {"text": SPECIAL}),
                 ("skip-special", True, {"text": NO, "ids": SPECIAL_ID})],
    "render": [("model", NEEDED), ("template", FILES / "b.jinja"), ("messages", FILES / "other-talk.json"), ("tools", FILES / "tools.json"), ("train", FILES / "talks.jsonl", {"messages": NO, "stdin": "[]"}),
               ("end-token", "7", {"messages": NO, "train": FILES / "my.jsonl"}), ("generation-prompt", False), ("continue", True), ("set", "more=42"), ("ids", True), ("jsonl", True, {"messages": NO, "stdin": '{"messages":[]}\n'}), ("json", True)],
    "score": [("profile", "cpu-bf16w"), *RUNTIME[:1], *RUNTIME[2:], ("tokens", FILES / "other.jsonl"), ("via", "unknown"), ("adapter", ADAPTER)],
    "index-share overlap": RUNTIME + [("data", FILES / "other.jsonl"), ("json", NO)],
    "index-share search": RUNTIME + [("data", FILES / "other.jsonl"), ("indexers", 2), ("exhaustive", True), ("json", NO), ("quiet", True, {"json": NO})],
    "index-share convert": [("pattern", "FSFS"), ("dtype", "bf16"), ("data", FILES / "fewer.jsonl"), ("steps", 1), ("batch", 2), ("learning-rate", 0.1), ("dense-steps", 1), ("seed", 9), ("quiet", NO), ("overwrite", True, {"there": "out/notes.txt"})],
    "grad": [("profile", "cpu-bf16w"), *RUNTIME[:1], *RUNTIME[2:], ("tokens", FILES / "other.jsonl"), ("out", "elsewhere.safetensors"), ("overwrite", True, {"there": "gradients.safetensors"}), ("rows", "rows.jsonl"), ("loss", "ppo", {"tokens": FILES / "rollouts.jsonl"}),
                       ("loss-config", "averaging=token_mean"), ("json", NO)],
    "plan": [*RUNTIME[:2], ("context", 40, {"length": 64}), ("for", "serve"), ("sequences", 9), ("length", 40), ("memory-megabytes", 1), ("batch-rows", 9, {"for": "serve"}), ("cache-bytes", 10**6, {"for": "serve"}), ("json", NO),
             ("micro-batch", 1), ("checkpoint-activations", True), ("train-indexer", True), ("optimizer-state", "file"), ("ranks", "tp=2"), ("critic", "full"), ("critic-rank", 64, {"critic": "adapter"}), ("mtp-depths", 2), ("rollouts", 8),
             ("keep-forward", "all"), ("keep-forward-megabytes", 1, {"keep-forward": "all"}), ("teacher", "qwen3-8b", {"model": "qwen3-8b", "length": 16, "memory-megabytes": 4000000}), ("flops", True, {"threads": NO})],
    "simulate": [("ranks", "tp=4"), ("devices", 2, {"ranks": NO}), ("device", "b200"), ("host-devices", 2), ("network-gigabits", 1, {"host-devices": 2}), ("tokens", 64), ("length", 32), ("micro-batch", 1), ("checkpoint-activations", True), ("adapter-rank", 4), ("profile", "cpu-f32"), ("json", True)],
    "info": [("json", True), ("families", True, {"WORDS": []})],
    "convert": [("dtype", "bf16"), ("profile", "cpu-int4-base"), ("overwrite", True, {"there": "out/notes.txt"})],
    "shapes list": [("model", "qwen3-8b"), ("mode", "lora"), *SHAPES],
    "shapes show": [("lora-rank", 64, {"WORDS": ["kimi-k2p5-lora-256k"]}), ("shapes", FILES / "shapes.toml", {"WORDS": ["mine"]}), ("json", True)],
    "shapes resolve": [("model", "qwen3-32b"), ("context", 10**6), ("lora-rank", 8), ("forward-only", True), ("accelerator", "CPU"), ("count", 1), *SHAPES],
    "chat": [*RUNTIME[:1], ("profile", "cpu-int4w"), *RUNTIME[2:], ("system", "3 7"), ("temperature", 3), ("top-p", 0.2, {"temperature": 3}), ("top-k", 1, {"temperature": 3}), ("min-p", 0.9, {"temperature": 3}), ("repetition-penalty", 5), ("max-tokens", 3), ("seed", 4, {"temperature": 3}), ("chat-template", FILES / "b.jinja"),
                       ("generation-config", "none", {"model": FILES / "cool", "chat-template": FILES / "a.jinja", "temperature": NO, "max-tokens": 60}), ("acceptance", "rejection", {"speculate": "ngram", "max-tokens": 60, "temperature": 2})],
    "report": [("out", "elsewhere.html"), ("overwrite", True, {"out": "mine.html", "there": "mine.html"})],
    "snapshot push": [("parent", "chat"), ("base", FILES / "moved", {"parent": SNAPSHOTS[1], "WORDS": [FILES / "moved-further", "hollow"]} | HOLLOW), ("channel", "chat"), ("transition", "staged", {"channel": "chat"}), ("profile", "cpu-f32"), ("quiet", NO, {"json": NO}), ("json", NO)],
    "snapshot pull": [("base", MODEL), ("downloads", "kept", {"WORDS": [f"{FAR}/hollow", "chat", "out"]}), ("stall-seconds", 1, {"WORDS": [slow, "chat", "out"], "PATIENCE": 5}), ("overwrite", True, {"there": "out/notes.txt"}), ("quiet", NO), ("json", True)],
    "snapshot show": [("tensors", True), ("json", True)],
    "snapshot diff": [("quiet", NO), ("json", True)],
    "snapshot verify": [("quiet", NO), ("json", True)],
    "snapshot squash": [("quiet", NO), ("json", True)],
    "snapshot mirror": [("channel", NEEDED), ("full-every", 1), ("follow", True, {"PATIENCE": 1.5}), ("poll-seconds", 0.05, {"follow": True, "WORDS": ["hollow", "copy"], "PATIENCE": 1.9} | HOLLOW), ("downloads", "kept", {"WORDS": [f"{FAR}/hollow", "copy"]}), ("stall-seconds", 1, {"WORDS": [slow, "copy"], "PATIENCE": 5}), ("quiet", NO), ("json", True)],
    "snapshot prune": [("keep", SNAPSHOTS[2]), ("dry-run", True), ("json", True)],
    "train sft": RUNTIME + [
        ("name", "other"), ("runs", "elsewhere"), ("fork", "anew", {"before": True}), ("resume", True, {"before": True}), ("data", FILES / "fewer.jsonl"), ("environment", "countdown", {"data": NO, "eval-share": NO}), ("compact-at", 72, {"environment": "lockbox", "data": NO, "eval-share": NO}), ("hold-rate", 0.00001, {"environment": "countdown", "data": NO, "eval-share": NO}), ("chat-share", 0.5, {"model": FILES / "talks", "chat-template": FILES / "b.jinja", "environment": "countdown", "data": NO, "eval-share": NO}), ("from-scratch", True),
        ("init-seed", 9, {"from-scratch": True}), ("init-deviation", 0.5, {"from-scratch": True}), ("seed", 9), ("epochs", 2, {"steps": NO}), ("steps", 1), ("batch", 2), ("adapter-rank", 4), ("adapter-alpha", 1, {"adapter-rank": 4}), ("optimizer", "dimuon"),
        ("chat-template", FILES / "b.jinja", {"data": FILES / "talks.jsonl", "model": FILES / "talks"}), ("end-token", "7"), ("eval", FILES / "held.jsonl"), ("eval-share", 0.5), ("eval-every", 3, {"eval": FILES / "held.jsonl", "steps": 4}),
        ("patience", 1, {"eval": FILES / "held.jsonl", "eval-every": 1, "learning-rate": 0, "steps": 6}), ("learning-rate", 0.01), ("schedule", "linear"), ("final-fraction", 0.5, {"schedule": "linear", "steps": 3}), ("warmup", 2), ("beta1", 0.1),
        ("beta2", 0.1), ("eps", 1), ("weight-decay", 9, {"learning-rate": 0.01}), ("max-norm", 1e-3), ("router-bias-rate", 0.9), ("train-indexer", False), ("share-prompts", "backward", PACKS), ("share-prompts-from", 4, PACKS), ("index-from", 2), ("sparse-from", 2), ("mtp-depths", 2), ("mtp-loss", "tv", {"mtp-depths": 2}), ("mtp-keys", "own", {"mtp-depths": 2}), ("mtp-state", "unnormed", {"mtp-depths": 2}), ("mtp-joint", True, {"mtp-depths": 1}), ("mtp-learning-rate", 0.1, {"mtp-depths": 1}), ("mtp-max-norm", 1e-3, {"mtp-depths": 1}), ("mtp-router-bias-rate", 0.9, {"mtp-depths": 1}), ("checkpoint-every", 1),
        ("keep-last", 1, {"checkpoint-every": 1, "steps": 4}), ("transcripts", 3), ("transcripts-every", 1, {"transcripts": 1, "steps": 3}), ("transcript-megabytes", 1, LONG_TRANSCRIPTS), ("export-dtype", "f32"), ("export-to", "out"), ("overwrite", True, {"export-to": "out", "there": "out/notes.txt"}),
        ("quiet", NO), ("page", True), ("page-port", TAKEN.getsockname()[1], {"page": True}), *PROFILED, ("json", NO)],
    "train rl": RUNTIME + [
        ("name", "other"), ("runs", "elsewhere"), ("fork", "anew", {"before": True}), ("resume", True, {"before": True}), ("environment", "unknown"), ("steps", 1), ("problems", 3), ("rollouts", 5), ("max-tokens", 8), ("temperature", 0.5), ("top-k", 2), ("top-p", 0.3), ("min-p", 0.5),
        ("algorithm", "grpo"), ("advantages", "group-normalised"), ("loss", "reinforce", {"averaging": "sum"}), ("loss-config", "entropy_coefficient=0.1"), ("correction", "tis", MIXED), ("averaging", "sum"), ("kl-coefficient", 0.5), ("kl", "k1", {"kl-coefficient": 0.5}), ("kl-in", "reward", {"kl-coefficient": 0.5}), ("redraws", 1), ("overlong-tokens", 8, {"max-tokens": 16, "temperature": 3}),
        ("overlong-penalty", 3, {"max-tokens": 16, "temperature": 3, "overlong-tokens": 8}), ("critic", "adapter", {"advantages": "gae"} | CRITIC), ("critic-model", CRITIC_MODEL, CRITIC), ("critic-rank", 2, CRITIC | {"critic": "adapter"}), ("critic-warmup", 1, CRITIC), ("critic-epochs", 3, CRITIC), ("critic-learning-rate", 0.1, CRITIC), ("value-clip", 1e-3, CRITIC | {"critic-epochs": 3}), ("gamma", 0.3, CRITIC), ("lambda", 0.3, CRITIC), ("critic-lambda", 0.3, CRITIC | {"steps": 3}), ("lambda-length", 0.5, CRITIC), ("bootstrap", True, CRITIC | {"critic-model": CRITIC_MODEL, "max-tokens": 4}), ("whiten", "off", CRITIC), ("compact-at", 29, LOCKBOX), ("chat", True, {"model": FILES / "talks"}), ("train-summaries", False, LOCKBOX | WINDOWS), ("chain-value", "terminal", LOCKBOX | WINDOWS | CRITIC | {"critic-model": CRITIC_MODEL, "lambda": 0.3}), ("epochs", 2), ("mini-batches", 2), ("stop-kl", 1e-9, {"epochs": 2}), ("clip-low", 0, MIXED), ("clip-high", 0, MIXED), ("importance-cap", 0.5), ("share-prompts", "backward"), ("share-prompts-from", 4), ("adapter-rank", 4), ("adapter-alpha", 1, {"adapter-rank": 4}), ("init-seed", 9, {"adapter-rank": 4}), ("optimizer", "dimuon"), ("learning-rate", 0.01), ("schedule", "constant", {"steps": 3}), ("warmup", 2), ("beta1", 0.1), ("beta2", 0.1),
        ("eps", 1), ("weight-decay", 9), ("max-norm", 1e-4), ("seed", 9), ("rollout-profile", MIXED["rollout-profile"], {"allow-profile-mix": True}), ("allow-profile-mix", True, {"rollout-profile": MIXED["rollout-profile"]}), ("rollout-speculation", "siblings,ngram"), ("draft-tokens", 2, {"rollout-speculation": "siblings,ngram"}), ("acceptance", "rejection", {"rollout-speculation": "ngram"}), ("mtp-depths", 2), ("mtp-loss", "tv", {"mtp-depths": 2}), ("mtp-keys", "own", {"mtp-depths": 2}), ("mtp-state", "unnormed", {"mtp-depths": 2}), ("mtp-learning-rate", 0.1, {"mtp-depths": 1}), ("mtp-max-norm", 1e-3, {"mtp-depths": 1}), ("mtp-router-bias-rate", 0.9, {"mtp-depths": 1}), ("checkpoint-every", 1),
        ("keep-last", 1, {"checkpoint-every": 1, "steps": 4}), ("export-dtype", "f32"), ("transcripts", 3), ("transcripts-every", 2), ("transcript-megabytes", 1, LONG_ROLLOUTS), ("publish", "store/chat"), ("publish-transition", "staged", {"publish": "store/chat"}), ("keep-forward", "inputs"), ("keep-forward-megabytes", 1, {"keep-forward": "all"}), ("verify-kept", 3, {"keep-forward": "inputs"}), ("quiet", NO, {"json": NO}), ("page", True), ("page-port", TAKEN.getsockname()[1], {"page": True}), *PROFILED, ("overwrite", True, {"trace": "trace.json", "there": "trace.json"}), ("json", NO)],
    "train preference": RUNTIME[:2] + [("mla-norm-eps", 0.5), ("context", 4),
        ("name", "other"), ("runs", "elsewhere"), ("fork", "anew", {"before": True}), ("resume", True, {"before": True}), ("data", FILES / "fewer-pairs.jsonl"), ("loss", "ipo"), ("beta", 2), ("label-smoothing", 0.3, {"loss": "cdpo"}),
        ("gamma", 3, {"loss": "simpo"}), ("alpha", 0, {"loss": "cpo"}), ("desirable-weight", 3, {"loss": "kto"}), ("undesirable-weight", 3, {"loss": "kto"}), ("end-token", "7"), ("chat-template", FILES / "b.jinja", {"data": FILES / "talk-pairs.jsonl", "model": FILES / "talks"}),
        ("seed", 9), ("epochs", 2, {"steps": NO}), ("steps", 1), ("batch", 2), ("share-prompts", "backward"), ("eval", FILES / "held-pairs.jsonl"), ("eval-share", 0.5), ("eval-every", 1, {"eval": FILES / "held-pairs.jsonl"}), ("learning-rate", 0.01), ("schedule", "linear"), ("final-fraction", 0.5, {"schedule": "linear", "steps": 3}),
        ("warmup", 2), ("beta1", 0.1, {"steps": 3}), ("beta2", 0.1, {"steps": 3}), ("eps", 1), ("weight-decay", 9), ("max-norm", 1e-3), ("adapter-rank", 4), ("adapter-alpha", 1, {"adapter-rank": 4, "steps": 3}), ("optimizer", "dimuon"), ("init-seed", 9, {"adapter-rank": 4}), ("checkpoint-every", 1),
        ("keep-last", 1, {"checkpoint-every": 1, "steps": 4}), ("export-dtype", "f32"), ("export-to", "out"), ("overwrite", True, {"export-to": "out", "there": "out/notes.txt"}), ("quiet", NO, {"json": NO}), ("page", True), ("page-port", TAKEN.getsockname()[1], {"page": True}), *PROFILED, ("json", NO)],
    "train distill": RUNTIME[:2] + [("mla-norm-eps", 0.5), ("context", 4),
        ("name", "other"), ("runs", "elsewhere"), ("fork", "anew", {"before": True}), ("resume", True, {"before": True}), ("teachers", FILES / "same-teachers.toml"), ("data", FILES / "fewer-prompts.jsonl"), ("environment", "countdown", {"data": NO}),
        ("steps", 1), ("prompts", 3), ("rollouts", 2), ("max-tokens", 6), ("temperature", 3), ("over", "sampled"), ("divergence", "forward"), ("teacher-top-k", 3, {"over": "top"}), ("learning-rate", 0.01), ("schedule", "linear", {"steps": 3}), ("warmup", 2),
        ("beta1", 0.1, {"steps": 3}), ("beta2", 0.1, {"steps": 3}), ("eps", 1), ("weight-decay", 9), ("max-norm", 1e-3), ("adapter-rank", 4), ("adapter-alpha", 1, {"adapter-rank": 4, "steps": 3}), ("optimizer", "dimuon"), ("seed", 9), ("init-seed", 9, {"adapter-rank": 4}),
        ("checkpoint-every", 1), ("keep-last", 1, {"checkpoint-every": 1, "steps": 4}), ("export-dtype", "f32"), ("quiet", NO, {"json": NO}), ("page", True), ("page-port", TAKEN.getsockname()[1], {"page": True}), *PROFILED, ("overwrite", True, {"trace": "trace.json", "there": "trace.json"}), ("json", NO)],
    # Of models so small that a run takes a second of a processor. Both runs must pass, so what differs is what was compared, and how often.
    "parity": [("model", NEEDED), ("fuzz", 2), ("seed", 9), ("profile", "cpu-f32"), ("ranks", "tp=4"), ("device", "emulated"), ("mla-norm-eps", 0.5, {"model": LATENT}), ("json", NO)],
}  # fmt: skip

# What no moment shows, why, and the test that shows it.
SILENT = {"rank-timeout": ("a process has to be silent, over Open MPI", "tests/check.d/tools/mpi.py: rank_timeout")}
OF_A_SERVER = ("a server answers", "tests/check.d/tools/server_effects.py: \"chat\": (")
LATER = {
    "chat": {"url": OF_A_SERVER, "api-key": OF_A_SERVER}, **{command: SILENT for command in ("train sft", "train preference", "train distill", "score")},
    "parity": SILENT | {"case": ("a run has to find a difference", "tests/system/difference_case_test.cpp: parity_command")},
    "train rl": SILENT | {"on-difference": ("no token's log-probabilities differ", "src/rl/policy_training_test.cpp: stop_at_difference")},
}  # fmt: skip
# No size or figure that these print depends on it; `score` prints its lines either way.
NO_EFFECT = {("plan", "mla-norm-eps"), ("info", "mla-norm-eps"), ("score", "json")}
ELSEWHERE = {"serve", "deploy", "rollback", "fleet status", "fleet watch", "watch", "doctor", "launch", "demo"}  # server_effects.py
MEASURES = {"bench"}  # what it prints is the machine's time; each case names the options that it was measured with


def seen(folder, result):
    """What a run printed and wrote, without times, places and what config.json and reports say of the options themselves."""
    text = re.sub(r'"(seconds|tokens_per_second|[a-z_]*_seconds|time)":\s*[-+.\deE]+', r'"\1":0', result.stdout + result.stderr)
    text = re.sub(r"\d+(\.\d+)? s\b|127\.0\.0\.1:\d+", "T", text.replace(str(folder), "HERE"))
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "T", text)  # of a line of the log
    text = re.sub(r'("available_bytes":\s*)\d+', r"\1A", text)  # memory that is free at that moment
    text = re.sub(r"parity +\d+/\d+.*\n?", "", text)  # parity's progress
    text = re.sub(r'"profile":"[^"]*","seed":\d+,', "", text)  # and the options that its report repeats
    files = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = str(path.relative_to(folder))
        if path.name in ("metrics.jsonl", "transcripts.jsonl"):
            lines = re.sub(r',"ranks_[a-z_]+":([-+.\deE]+|"[^"]*"|\[[^]]*\])', "", path.read_text())  # what the ranks of a layout exchanged
            files[name] = re.sub(r'"(seconds|tokens_per_second|[a-z_]*_seconds|time)":\s*[-+.\deE]+', "", lines)
        elif path.suffix == ".safetensors":
            files[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        elif path.parent.name == "channels" and path.suffix == ".json":
            files[name] = path.read_text()
        else:
            files[name] = ""
    return result.returncode, text, files


def run(command, options, earlier):
    """The command with these options, in an empty folder; `earlier`: a run that was finished before, for what goes on with one."""
    folder = TMP / "runs" / str(next(PLACE))
    folder.mkdir(parents=True)
    options = dict(options)
    words, stdin, there, copy = options.pop("WORDS", WORDS.get(command, [])), options.pop("stdin", ""), options.pop("there", None), options.pop("copy", None)
    patience = options.pop("PATIENCE", None)  # seconds after which it is believed that the command goes on
    if copy:
        shutil.copytree(copy[1], folder / copy[0])
    if there:
        (folder / there).parent.mkdir(parents=True, exist_ok=True)
        (folder / there).write_text("somebody's")
    if options.pop("before", False):
        shutil.copytree(earlier, folder / "runs")
    line = [BINARY, *command.split(), *(word() if callable(word) else word for word in words)]
    for name, value in options.items():
        if value is not NO:
            line += [f"--{name}"] if value is True else [f"--no-{name}"] if value is False else [f"--{name}={value}"]
    line = [str(word) for word in line]
    try:
        return seen(folder, subprocess.run(line, cwd=folder, input=stdin, capture_output=True, text=True, timeout=patience or 120))
    except subprocess.TimeoutExpired as late:
        if not patience:
            raise
        return seen(folder, subprocess.CompletedProcess(line, "goes on", *((said or b"").decode() for said in (late.stdout, late.stderr))))


def commands_of(text):
    for name in re.findall(r"^  ([a-z][a-z-]*)  ", text, re.M):
        if name in ("help", *MEASURES):
            continue
        own = done(name, "--help").stdout
        kinds = re.search(rf"usage: lockstep {name} ([a-z]+(?:\|[a-z]+)+)", own)
        for kind in kinds[1].split("|") if kinds else re.findall(r"^  ([a-z]+)  ", own, re.M) if own.startswith("usage:") else [""]:
            yield f"{name} {kind}".strip()
        if name == "eval":
            yield "eval drafts"


NAMES = {name: [o["name"][2:] for o in json.loads(done(*name.split(), "--help=json").stdout)["options"] if o["name"].startswith("--")] for name in commands_of(done("help").stdout)}


def base_of(command):
    base = {name: value for name, value in {"model": MODEL, "threads": 1}.items() if name in NAMES[command] and not command.startswith("shapes")}
    return {**base, **BASE.get(command, {})}


def run_once(command, base, earlier):
    """What a run with a base gives: several options are held against the same one, which runs for the first of them."""
    key = (command, repr(sorted(base.items())))
    with PLAIN_LOCK:
        first = key not in PLAIN
        made = PLAIN.setdefault(key, concurrent.futures.Future())
    if first:
        try:
            made.set_result(run(command, base, earlier))
        except BaseException as e:
            made.set_exception(e)
    return made.result()


def in_any_layout(result):
    """Without the files of checkpoints, which ranks write a share each of: what stands in them is compared by tests of their own (src/trained/share_files_test.cpp)."""
    status, text, files = result
    return status, text, {name: content for name, content in files.items() if "/checkpoints/step-" not in name}


def fault(command, row, plain, earlier):
    """None, or what is wrong with an option."""
    name, value, *more = row
    if value is NEEDED:
        status, text, _ = run(command, {**base_of(command), name: NO}, earlier)
        return None if status == 2 and f"--{name}" in text else f"--{name} may be left out: {text[-300:]}"
    base = {**base_of(command), **(more[0] if more else {})}
    without = run_once(command, base, earlier) if more else plain
    having = run(command, {**base, name: value}, earlier)
    if row == (name, HARMLESS.get(name)) and row not in ROWS.get(command, []):
        if name == "ranks":
            without, having = in_any_layout(without), in_any_layout(having)
        return None if having == without else f"--{name} {value} changes a result: {having} and not {without}"
    if having[0] == 2 and value != "unknown":
        return f"--{name} {value} is refused: {having[1][-300:]}"
    return f"--{name} {value} has no effect" if having == without else None


def finished(command, folder, **more):
    """A run that is finished, in a folder of its own: its runs/."""
    folder.mkdir(parents=True)
    line = [BINARY, *command.split(), *(f"--{n}" if v is True else f"--no-{n}" if v is False else f"--{n}={v}" for n, v in {**base_of(command), **more}.items() if v is not NO)]
    subprocess.run([str(word) for word in line], cwd=folder, check=True, capture_output=True, timeout=120)
    return folder / "runs"


finished("train sft", TMP / "adapter", **{"adapter-rank": 4})
finished("train preference", TMP / "critic", loss="reward")
finished("train sft", TMP / "latent", model=FILES / "latent", **{"from-scratch": True})
finished("train sft", TMP / "taught", **{"data": NO, "eval-share": NO, "environment": "lockbox", "steps": 60, "batch": 2, "learning-rate": 2e-3, **WINDOWS})
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    for command, rows in ROWS.items():
        with check(command.replace(" ", "-")):
            earlier = finished(command, TMP / "earlier" / command[6:]) if command.startswith("train") else None
            plain = run(command, base_of(command), earlier)
            assert plain[0] == 0, f"status {plain[0]}\n{plain[1]}"
            rows = rows + [(name, value) for name, value in HARMLESS.items() if name in NAMES[command] and name not in [row[0] for row in rows]]
            faults = [f for f in pool.map(lambda row: fault(command, row, plain, earlier), rows) if f]
            left = set(NAMES[command]) - {row[0] for row in rows} - {"log-level"} - {n for c, n in NO_EFFECT if c == command} - set(LATER.get(command, {}))
            faults += [f"--{name} has no row" for name in sorted(left)] + [f"--{row[0]} is no option" for row in rows if row[0] not in NAMES[command]]
            assert not faults, f"{len(faults)} of {len(rows)}\n" + "\n".join(faults)
with check("shown-later"):
    for command, later in LATER.items():
        for name, (_, shown) in later.items():
            file, word = shown.split(": ", 1)
            assert name in NAMES[command] and word in (ROOT / file).read_text(), f"{command} --{name}: {file} has not the word {word}"
    assert set(NAMES) == set(ROWS) | ELSEWHERE, set(NAMES) ^ (set(ROWS) | ELSEWHERE)
with check("harmless-list"):
    listed = dict(re.findall(r"^\| `--([a-z-]+)`(?: of .+)? \| (.+) \|$", (ROOT / "docs/cli.md").read_text().split("## Options that change no result")[1].split("\n## ")[0], re.M))
    assert set(listed) == set(HARMLESS) | {name for _, name in NO_EFFECT} | {"log-level"}, set(listed) ^ set(HARMLESS)
with check("control"):
    # An option without effect is told, and so is one of the harmless that has one.
    plain = run("tokenize", base_of("tokenize"), None)
    assert fault("tokenize", ("text", BASE["tokenize"]["text"]), plain, None) == f"--text {BASE['tokenize']['text']} has no effect"
    HARMLESS["text"] = "4"
    assert "changes a result" in fault("tokenize", ("text", "4"), plain, None)
