"""The program as a user meets it: help, flags, config files, exit codes, JSON, and what it says of input that cannot be right.

Whatever it is given, it ends with 0, 1 (an error) or 2 (the command line or configuration is wrong), and an error is one line; tools/exit_codes.py
has the other exit codes.
"""
import hashlib
import json
import random
import re
import shutil
import struct

from harness import MODEL, RL_RECIPE, ROOT, TMP, check, done, lockstep, refused, sft_arguments, version_lines

PROMPT = "3 7 12=48:"


def commands():
    """Names in the overview, `help` and `--version` aside."""
    lines = done("help").stdout.splitlines()
    return [m[1] for line in lines if (m := re.match(r"  (\w[\w-]*) {2,}\S", line)) and m[1] != "help"]


def help_names():
    kinds = {"train": ["sft", "rl", "preference", "distill"], "snapshot": ["push", "pull", "show", "diff", "verify", "squash", "mirror", "prune"], "fleet": ["status", "watch"], "index-share": ["overlap", "search", "convert"], "shapes": ["list", "show", "resolve"], "bench": ["gemm", "serve", "prefill", "decode", "train", "score", "roofline", "context"]}
    return [[name, kind] for name in commands() if name in kinds for kind in kinds[name]] + [["eval", "drafts"]] + [[name] for name in commands() if name not in kinds]


def write(name, text):
    path = TMP / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def model_copy(name, **changes):
    """The shipped folder with files replaced; None removes one."""
    folder = TMP / name
    shutil.copytree(MODEL, folder)
    for file, content in changes.items():
        path = folder / {"config": "config.json", "weights": "model.safetensors", "tokenizer": "tokenizer.json"}[file]
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def ends_well(*arguments, **options):
    """Whatever the input: no crash, no other status, one error line when it fails."""
    outcome = lockstep(*arguments, timeout=120, **options)
    assert outcome.returncode in (0, 1, 2), f"status {outcome.returncode}\n{outcome}"
    assert len(outcome.errors) == (outcome.returncode != 0), f"{len(outcome.errors)} error lines\n{outcome}"
    return outcome


# --- help and version ------------------------------------------------------------------------------------------------
with check("overview"):
    assert {"train", "generate", "serve", "info", "score", "grad", "parity", "eval", "demo"} <= set(commands()), commands()
    assert done().stdout == done("--help").stdout == done("help").stdout

with check("help"):
    for names in help_names():
        text = done(*names, "--help").stdout
        assert f"{text.splitlines()[0]} ".startswith(f"  lockstep {' '.join(names)} "), f"{names}: the first line is no example: {text[:80]!r}"
        assert "default" in text and "--help" in text and "--log-level NAME" in text, text
    assert done("train", "--help").stdout.count("lockstep train") >= 2
    assert done("help", "generate").stdout == done("generate", "--help").stdout

with check("examples"):
    # The examples in the help must be accepted as they stand: each is run with a flag added that does not exist, so that only
    # that flag can be what is wrong.
    import shlex
    for names in help_names():
        for line in done(*names, "--help").stdout.split("\n\n")[0].splitlines():
            program, *words = shlex.split(line)
            assert program == "lockstep", line
            refused(*words, "--no-such-flag-here", status=2, words=["unknown option '--no-such-flag-here'"])

with check("version"):
    text = "\n".join(version_lines())
    for word in ("commit ", "instruction set ", "cpu-f32", "cpu-bf16w"):
        assert word in text, text

# --- what is refused -------------------------------------------------------------------------------------------------
with check("unknown-command"):
    refused("generat", status=2, words=["unknown command 'generat'", "did you mean", "generate"])
    refused("train", "stf", status=2, words=["'stf'", "did you mean", "sft"])
    assert "did you mean" not in refused("train", "ppo", status=2, words=["lockstep train rl --algorithm ppo"]).stderr

with check("unknown-flag"):
    for names in help_names():
        near = " --model " in done(*names, "--help").stdout
        refused(*names, "--modle", "x", status=2, words=["unknown option '--modle'"] + (["did you mean"] if near else []))
    refused("generate", "--model", MODEL, "--prompt", "x", "-x", status=2, words=["unknown option '-x'"])
    refused("generate", "--model", MODEL, "--prompt", "x", "surplus", status=2, words=["unexpected argument 'surplus'"])

with check("words-of-other-programs"):
    # src/cli/foreign_words.cpp: each is no word of ours, and what it names is; a stranger is told it.
    source = (ROOT / "src/cli/foreign_words.cpp").read_text()
    options = dict(re.findall(r'\{"([\w-]+)", "([\w-]+)"\}', source.split("kOptions[]")[1].split("kCommands[]")[0]))
    has = {" ".join(words): {o["name"] for o in json.loads(done(*words, "--help=json").stdout)["options"]} for words in help_names()}
    known = set().union(*has.values())
    assert len(options) > 30 and {"--" + ours for ours in options.values()} <= known, {"--" + ours for ours in options.values()} - known
    for words, names in has.items():
        both = [foreign for foreign, ours in options.items() if "--" + foreign in names and "--" + ours in names]
        assert both == (["dtype"] if words == "convert" else []), (words, both)  # convert writes files, whose numbers have a type
    for words, foreign, ours in ((["serve"], "--max-model-len", "--context"), (["serve"], "--tensor-parallel-size", "--ranks"), (["chat"], "--temp", "--temperature"),
                                 (["train", "sft"], "--lr", "--learning-rate"), (["train", "sft"], "--num_train_epochs", "--epochs"), (["train", "sft"], "--lora-rank", "--adapter-rank")):
        refused(*words, foreign, "1", status=2, words=[f"unknown option '{foreign}'", ours])
    refused("run", "x", status=2, words=["unknown command 'run'", "lockstep chat --model DIR"])
    refused("pull", "x", status=2, words=["hf download"])
    assert "did you mean" not in refused("list", status=2, words=["a model is a folder"]).stderr
    assert "did you mean" not in refused("generate", "--lr", "1", status=2, words=["unknown option '--lr'"]).stderr

with check("unknown-key"):
    refused("train", "sft", "--config", write("typo.toml", 'learning_rat = 1e-3\n'), status=2,
            words=["typo.toml", "unknown key 'learning_rat'", "did you mean", "learning_rate"])
    refused("train", "rl", "--config", RL_RECIPE, "--set", "rolouts=8", status=2, words=["unknown key 'rolouts'", "did you mean", "rollouts"])
    refused("train", "rl", "--config", RL_RECIPE, "--set", "rollouts", status=2, words=["KEY=VALUE"])
    refused("train", "sft", "--config", write("torn.toml", 'steps = [1,\n'), status=2, words=["torn.toml:"])
    refused("train", "sft", "--config", write("date.toml", 'steps = 2020-01-01\n'), status=2, words=["steps"])
    refused("train", "sft", "--config", write("list.toml", 'steps = [1, 2]\n'), status=2, words=["steps is a list"])
    refused("train", "sft", "--config", TMP / "nowhere.toml", status=1, words=["nowhere.toml"])

with check("values"):
    generate = ["generate", "--model", MODEL, "--prompt", PROMPT]
    refused(*generate, "--threads", "many", status=2, words=["--threads is 'many'", "0 to 4096"])
    refused(*generate, "--threads", "-1", status=2, words=["--threads is '-1'"])
    refused(*generate, "--threads", status=2, words=["--threads needs a value"])
    refused(*generate, "--temperature", "nan", status=2, words=["--temperature is 'nan'"])
    refused(*generate, "--profile", "cpu-bf16", status=2, words=["--profile is 'cpu-bf16'", "did you mean", "cpu-bf16w"])
    refused(*generate, "--isa", "avx51", status=2, words=["allowed are", "avx512"])
    refused(*generate, "--tokens", "1,2", status=2, words=["exactly one of --prompt and --tokens"])
    refused("generate", "--model", MODEL, "--tokens", "1,,2", status=2, words=["--tokens is '1,,2'"])
    refused("generate", "--model", MODEL, "--tokens", "1,99999", status=1, words=["99999"])
    refused("generate", "--prompt", PROMPT, status=2, words=["--model is missing"])
    refused(*sft_arguments("../out", TMP / "runs"), status=1, words=["../out"])
    refused("score", "--model", MODEL, "--tokens", "x", "--via", "trian", status=2, words=["--via", "did you mean", "train"])
    refused("eval", "countdwn", "--model", MODEL, status=1, words=["countdwn", "countdown"])
    refused("eval", "lockbx", "--model", MODEL, "--compact-at", "72", status=1, words=["lockbx", "did you mean 'lockbox'"])
    refused("train", "sft", "--model", MODEL, "--environment", "lockbx", "--compact-at", "72", "--steps", "2", status=1, words=["lockbx", "did you mean 'lockbox'"])

with check("missing-files"):
    refused("info", TMP / "nowhere", status=1, words=["nowhere"])
    refused("generate", "--model", TMP / "nowhere", "--prompt", PROMPT, status=1, words=["nowhere"])
    refused("generate", "--model", ROOT / "README.md", "--prompt", PROMPT, status=1, words=["README.md"])
    refused("score", "--model", MODEL, "--tokens", TMP / "nowhere.jsonl", status=1, words=["nowhere.jsonl"])
    refused("train", "sft", "--model", MODEL, "--data", TMP / "nowhere.jsonl", "--name", "a", "--runs", TMP / "runs", status=1,
            words=["nowhere.jsonl"])
    refused(*sft_arguments("never-begun", TMP / "runs"), "--resume", status=1, words=["never-begun", "no run"])
    assert not (TMP / "runs" / "never-begun").exists(), "a refused resume left a run behind"

# --- what it prints --------------------------------------------------------------------------------------------------
with check("json"):
    info = done("info", MODEL, "--json").json()
    assert info["tokenizer_vocabulary"] == 512, info
    answer = done("generate", "--model", MODEL, "--prompt", PROMPT, "--seed", "7", "--max-tokens", "12", "--json").json()
    assert len(answer["token_ids"]) == len(answer["logprobs"]) == len(answer["sampling_logprobs"]), answer
    assert answer["seed"] == 7 and answer["finish_reason"] in ("stop", "length"), answer
    again = done("generate", "--model", MODEL, "--tokens", ",".join(map(str, answer["prompt_token_ids"])), "--seed", "7",
                 "--max-tokens", "12", "--threads", "1", "--json").json()
    assert again == answer, f"the same prompt as token ids: {again}\nexpected {answer}"
with check("case-of-a-difference"):
    # Made here from what the program says of its own numbers, so the file's format stands in a second place.
    text, begin = answer["prompt_token_ids"] + answer["token_ids"], len(answer["prompt_token_ids"])
    scored = done("score", "--model", MODEL, "--profile", "cpu-bf16w", "--tokens", write("text.jsonl", json.dumps({"tokens": text})), "--via", "decode").json()["logprobs"]
    bits = [f"0x{struct.unpack('<I', struct.pack('<f', logprob))[0]:08x}" for logprob in scored[begin - 1:]]
    sha256 = hashlib.sha256()
    for file in sorted(path for path in MODEL.iterdir() if path.suffix == ".safetensors" or path.name == "config.json"):
        sha256.update(f"{file.name} {file.stat().st_size}\n".encode() + file.read_bytes())
    case = {"format": "lockstep difference case", "version": 1, "model": str(MODEL), "model_sha256": sha256.hexdigest(), "adapter": "", "adapter_sha256": "", "mla_norm_eps": 0,
            "profile": "cpu-bf16w", "profile_digest": next(line.split()[0] for line in version_lines() if line.split()[1:2] == ["cpu-bf16w"]),
            "backend": "cpu", "isa": "avx2", "threads": 1, "ranks": "", "keep_forward": "off", "step": 1, "weights_version": 0, "temperature": 1, "top_k": 0, "top_p": 1,
            "min_p": 0, "shared_prefix": 0, "first_different": None, "tokens": text, "positions": list(range(begin, len(text))), "sampler_bits": bits, "trainer_bits": bits, "kept": []}

    def repeated(**changes):
        return ("parity", "--case", write("case.json", json.dumps(case | changes)))

    said = done(*repeated(), "--json").json()
    assert not said["repeated"] and said["recorded"]["different"] == 0 and len(said["ways"]) >= 24, said
    assert all(way[side]["different"] == 0 for way in said["ways"] for side in ("from_sampler", "from_trainer")), said
    changed = bits[:3] + [f"0x{int(bits[3], 16) ^ 1:08x}"] + bits[4:]
    said = done(*repeated(trainer_bits=changed, first_different=begin + 3), "--json").json()
    assert not said["repeated"] and said["recorded"]["first"]["position"] == begin + 3, said
    assert all(way["from_sampler"]["different"] == 0 and way["from_trainer"]["first"] == {"position": begin + 3, "token": text[begin + 3], "expected": changed[3], "got": bits[3]} for way in said["ways"]), said
    assert "NOT REPEATED: all" in done(*repeated(trainer_bits=changed, first_different=begin + 3)).stdout
    for changes, words in (({"version": 2}, "version is 2, allowed is 1"), ({"model_sha256": "00"}, "allowed is 00"), ({"profile_digest": "00"}, "allowed is 00"),
                           ({"positions": [*range(begin + 1, len(text) + 1)]}, f"positions[{len(bits) - 1}] is {len(text)}"), ({"sampler_bits": bits[:-1] + ["0x7fc00000"]}, "the bits of a NaN"),
                           ({"tokens": [512, *text[1:]]}, "tokens[0] is 512, allowed are token ids from 0 to 511"), ({"format": "x"}, "format is"), ({"first_different": begin}, "first_different is")):
        refused(*repeated(**changes), status=1, words=["case.json", words] if "profile_digest" not in changes else [words])
    refused("parity", "--case", TMP / "nowhere.json", status=1, words=["nowhere.json"])
    refused("parity", "--case", write("empty.json", "{}"), status=1, words=["empty.json", "the field format is missing"])
    refused(*repeated(), "--model", MODEL, status=2, words=["--model does nothing with --case"])
    refused("parity", status=2, words=["--model DIR is missing, or --case FILE"])
with check("training-ranks-of-a-sampler"):
    told = done("generate", "--model", MODEL, "--prompt", PROMPT, "--seed", "7", "--max-tokens", "12", "--ranks", "dp=2,cp=2", "--json")
    assert told.json() == answer and told.stderr.count("nothing is trained here: they are left out") == 1, told
    streamed = done("generate", "--model", MODEL, "--prompt", PROMPT, "--seed", "7", "--max-tokens", "12").stdout
    assert streamed == answer["text"] + "\n", f"streamed {streamed!r}, --json {answer['text']!r}"

with check("shapes"):
    rows = [json.loads(line) for line in done("shapes", "list", "--json").stdout.splitlines()]
    published = {row["id"] for row in rows if row["source"] == "published" and row["mode"] != "reference"}
    assert len(published) == 13 and {row["id"] for row in rows} >= {f"{id}-reference" for id in published if "lora" not in id}, published
    assert [row["id"] for row in rows if row["model"] == "qwen3-8b"] == done("shapes", "list", "--model", "Qwen/Qwen3-8B").stdout.split()[5::8], rows
    assert len(done("shapes", "list", "--mode", "lora").stdout.splitlines()) == 1 + sum(row["mode"] == "lora" for row in rows)
    shown = done("shapes", "show", "qwen3-8b-128k", "--json").json()
    assert shown["layout"] == {"tp": 1, "pp": 1, "cp": 4, "ep": 1, "computed": False} and shown["memory"]["fits"], shown
    assert sum(shown["memory"]["bytes"].values()) == shown["memory"]["total_bytes"] and shown["parameters"] == 8190735360, shown
    assert "not published" in done("shapes", "show", "glm-5p2-lora").stdout
    answer = done("shapes", "resolve", "--model", "Qwen/Qwen3-8B", "--context", "100000", "--json").json()
    assert answer["shape"]["id"] == "qwen3-8b-128k" and answer["rejected"][0]["reasons"], answer
    resolve = ["shapes", "resolve", "--model", "qwen3p5-397b-a17b"]
    few = lockstep(*resolve, "--accelerator", "B200", "--count", "16")
    assert few.returncode == 1 and "needs 32 accelerators, 16 are given" in few.stdout, few
    assert "does not fit in memory by" in lockstep(*resolve, "--count", "8").stdout
    refused(*resolve, "--context", "300000", status=1, words=["no training shape of Qwen3.5 397B-A17B"])
    refused("shapes", "resolve", "--model", "qwen3-9b", status=1, words=["qwen3-9b", "did you mean 'qwen3-8b'"])
    refused("shapes", "show", "qwen3-8b-128", status=1, words=["did you mean 'qwen3-8b-128k'"])
    refused("shapes", "lst", status=2, words=["'lst'", "did you mean 'list'"])
    refused("shapes", "resolve", "--model", "qwen3-8b", "--lora-rank", "8", "--forward-only", status=2, words=["exclude each other"])
    mine = write("shapes.toml", '[[shape]]\nid = "mine"\nmodel = "qwen3-8b"\nmode = "lora"\ncontext = 4096\naccelerator = "H100"\naccelerators = 1\n')
    assert done("shapes", "resolve", "--shapes", mine, "--model", "qwen3-8b", "--lora-rank", "8", "--json").json()["shape"]["id"] == "mine"
    refused("shapes", "list", "--shapes", write("torn-shapes.toml", "[[shape]]\nid = 'a'\nmodl = 'x'\n"), status=1, words=["torn-shapes.toml", "line"])

with check("plan-of-real-sizes"):
    def weights(model, profile):
        words = ["plan", "--model", model, "--for", "serve", "--profile", profile, "--sequences", "1", "--length", "64", "--memory-megabytes", "4000000", "--json"]
        return done(*words).json()["bytes"]["weights"]

    packed, whole = weights("gpt-oss-20b", "cpu-mxfp4-experts"), weights(ROOT / "shapes/configs/gpt-oss-20b.json", "cpu-bf16w")
    assert 2 <= whole / 20914757184 < 2.01 and 0.32 < packed / whole < 0.34, (packed, whole)  # some rows are padded
    refused("plan", "--model", "gpt-oss-20", "--for", "serve", status=1, words=["'gpt-oss-20'", "did you mean 'gpt-oss-20b'"])

with check("simulate"):
    words = ["simulate", MODEL, "--tokens", "64", "--length", "16"]
    told = done(*words, "--ranks", "tp=2,dp=2", "--json").json()
    (step,) = told["layouts"]
    assert told["heading"] == "computed, not measured" and told["sequences"] == 4 and step["fits"] and len(step["reasons"]) >= 3, told
    assert 0 < step["seconds"]["fast"]["step"] < step["seconds"]["slow"]["step"] and sum(e["bytes"] for e in step["exchanges"]) > 0, step
    every = done(*words, "--devices", "4", "--json").json()["layouts"]
    assert len(every) == 6 + 3 + 3 + 1 and step["ranks"] in [other["ranks"] for other in every], every  # the last ones: under shard=weights
    assert done(*words, "--ranks", "tp=2,dp=2").stdout.startswith("computed, not measured\n")
    (near,), (far,) = (done(*words, "--ranks", "tp=2,dp=2", "--host-devices", n, "--network-gigabits", "0.1", "--json").json()["layouts"] for n in ("4", "2"))
    assert far["seconds"]["slow"]["exchanges"] > 2 * near["seconds"]["slow"]["exchanges"] and far["exchanges"] == near["exchanges"], (near, far)
    assert "; 0.1 Gbit/s a device between hosts of 2\n" in done(*words, "--ranks", "tp=2,dp=2", "--host-devices", "2", "--network-gigabits", "0.1").stdout
    refused(*words, "--ranks", "tp=2", "--network-gigabits", "1", status=2, words=["--network-gigabits does nothing without --host-devices"])
    refused(*words, "--ranks", "sp=2", status=1, words=["unknown key 'sp'", "allowed are tp, dp, ep, pp, cp, shard, rows"])
    refused(*words, "--ranks", "dp=2,shard=weight", status=1, words=["'shard' is 'weight', allowed are state and weights", "did you mean 'weights'"])
    (shared,) = done(*words, "--ranks", "dp=2,shard=weights", "--json").json()["layouts"]
    (whole,) = done(*words, "--ranks", "dp=2", "--json").json()["layouts"]
    gathered = [sum(e["calls"] for e in step["exchanges"] if e["operation"] == "all_gather") for step in (whole, shared)]
    assert shared["ranks"] == "tp=1,dp=2,ep=1,shard=weights" and gathered[1] > gathered[0] > 0, (shared, whole)
    plan = ["plan", "--model", "qwen3-8b", "--length", "64", "--memory-megabytes", "4000000", "--json"]
    planned = [done(*plan, "--ranks", ranks).json()["total_bytes"] for ranks in ("dp=4", "dp=4,shard=weights")]
    assert planned[1] < 0.7 * planned[0], planned
    (large,) = done("simulate", MODEL, "--tokens", "8192", "--length", "16", "--ranks", "dp=512,tp=2", "--json").json()["layouts"]
    assert large["fits"] and "of the 1024 ranks are planned" in large["reasons"][-1], large
    large = done("plan", "--model", MODEL, "--ranks", "dp=1024", "--sequences", "1024", "--length", "16", "--json").json()
    assert large["planned_ranks"] == [0, 1023] and len(large["rank_total_bytes"]) == 2 and large["verdict"]["available_bytes"] is None, large
    none = lockstep("plan", "--model", MODEL, "--ranks", "dp=1024", "--memory-megabytes", "1")
    assert none.returncode == 3 and "does not fit" in none.stdout and "of a rank's device" in none.stdout, none
    refused(*words, "--ranks", "dp=1025", status=1, words=["'dp' is '1025'", "1 to 1024"])
    refused("generate", "--model", MODEL, "--ranks", "tp=65", "--prompt", "x", status=1, words=["'tp' is '65', allowed is 1 to 64; plan and simulate take up to 1024"])
    refused(*words, "--ranks", "tp=2", "--devices", "2", status=2, words=["--devices does nothing without --ranks all"])
    refused("simulate", "glm-5p2", "--ranks", "tp=2", "--tokens", "64", status=1, words=["does not fit", "GB a rank are needed in tp=2,dp=1,ep=1", "h200"])

with check("what-to-try-next"):
    words = ["train", "rl", "--model", MODEL, "--environment", "countdown", "--steps", "1", "--warmup", "0", "--problems", "2", "--rollouts", "2", "--runs", TMP / "tried", "--no-page"]
    told = done(*words, "--name", "whole", "--max-tokens", "12").stdout
    (line,) = [line.split() for line in told.splitlines() if line.startswith("  lockstep eval ")]
    assert line[-2:] == ["--max-tokens", "12"], told
    done(*line[1:], "--n", "2", "--samples", "1")
    cut = done(*words, "--name", "cut", "--max-tokens", "2")
    assert "100% of the rollouts had no end token within --max-tokens 2" in cut.stdout + cut.stderr, cut

with check("score-ways"):
    lines = [{"tokens": again["prompt_token_ids"] + again["token_ids"]}, {"tokens": again["prompt_token_ids"]}]
    file = write("tokens.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    ways = {}
    for via in ("train", "prefill", "chunked", "decode"):
        rows = [json.loads(line) for line in done("score", "--model", MODEL, "--tokens", file, "--via", via).stdout.splitlines()]
        assert [len(row["logprobs"]) for row in rows] == [len(line["tokens"]) - 1 for line in lines], rows
        ways[via] = rows
    assert all(rows == ways["train"] for rows in ways.values()), "the ways to score do not agree"

# --- a model folder that lies ----------------------------------------------------------------------------------------
weights = (MODEL / "model.safetensors").read_bytes() if (MODEL / "model.safetensors").exists() else b""
config = json.loads((MODEL / "config.json").read_text())
header_bytes = struct.unpack("<Q", weights[:8])[0] if weights else 0


def with_header(change):
    header = json.loads(weights[8:8 + header_bytes])
    text = json.dumps(change(header) or header).encode()
    return struct.pack("<Q", len(text)) + text + weights[8 + header_bytes:]


def first_tensor(header):
    return next(name for name in header if name != "__metadata__")


def shape_lies(header):
    header[first_tensor(header)]["shape"][0] += 1


def offsets_lie(header):
    header[first_tensor(header)]["data_offsets"][1] = 1 << 62


def tensor_is_missing(header):
    header["surplus.weight"] = header.pop("model.norm.weight")


def type_is_unknown(header):
    header[first_tensor(header)]["dtype"] = "F4"


LYING_WEIGHTS = {
    "truncated": (lambda: weights[: len(weights) * 2 // 3], []),
    "empty": (lambda: b"", []),
    "header-cut": (lambda: weights[: 8 + header_bytes // 2], []),
    "header-length": (lambda: struct.pack("<Q", 1 << 62) + weights[8:], []),
    "header-garbage": (lambda: weights[:8] + b"\xff" * header_bytes + weights[8 + header_bytes:], []),
    "shape": (lambda: with_header(shape_lies), []),
    "offsets": (lambda: with_header(offsets_lie), []),
    "missing-tensor": (lambda: with_header(tensor_is_missing), []),
    "dtype": (lambda: with_header(type_is_unknown), ["F4"]),
}
for name, (make, words) in LYING_WEIGHTS.items():
    with check(f"weights-{name}"):
        folder = model_copy(f"weights-{name}", weights=make())
        for command in (["info", folder], ["generate", "--model", folder, "--prompt", PROMPT],
                        ["train", "sft", "--model", folder, "--environment", "countdown", "--name", "a", "--runs", TMP / "runs", "--steps", "1"]):
            refused(*command, status=1, words=["model.safetensors" if name not in ("missing-tensor", "shape") else "", *words])
        assert not (TMP / "runs" / "a").exists(), "a model that cannot be read left a run behind"

LYING_CONFIGS = {
    "no-weights": ({"weights": None}, []),
    "no-config": ({"config": None}, ["config.json"]),
    "config-torn": ({"config": json.dumps(config)[:-20]}, ["config.json"]),
    "config-list": ({"config": "[]"}, ["config.json"]),
    "config-family": ({"config": json.dumps({**config, "model_type": "glm_moe_das"})}, ["glm_moe_das", "glm_moe_dsa"]),
    "config-negative": ({"config": json.dumps({**config, "hidden_size": -1})}, ["hidden_size", "-1"]),
    "config-huge": ({"config": json.dumps({**config, "hidden_size": 1 << 40})}, ["hidden_size"]),
    "config-text": ({"config": json.dumps({**config, "num_hidden_layers": "five"})}, ["num_hidden_layers"]),
    "config-value": ({"config": json.dumps({**config, "hidden_act": "gelu"})}, ["hidden_act", "gelu"]),
    "config-vocabulary": ({"config": json.dumps({**config, "vocab_size": config["vocab_size"] // 2})}, []),
    "tokenizer-torn": ({"tokenizer": (MODEL / "tokenizer.json").read_text()[:-100]}, ["tokenizer.json"]),
}
for name, (changes, words) in LYING_CONFIGS.items():
    with check(name):
        folder = model_copy(name, **changes)
        refused("generate", "--model", folder, "--prompt", PROMPT, status=1, words=words)

with check("random-bytes"):
    # Bytes flipped anywhere in the folder's files: an error or an answer, never a crash.
    draws = random.Random(11)
    folder = model_copy("random-bytes")
    for file in ("config.json", "tokenizer.json", "model.safetensors"):
        good = (MODEL / file).read_bytes()
        reach = 8 + header_bytes if file == "model.safetensors" else len(good)
        for _ in range(12):
            bad = bytearray(good)
            for _ in range(draws.choice((1, 1, 3, 40))):
                bad[draws.randrange(reach)] = draws.randrange(256)
            (folder / file).write_bytes(bad)
            ends_well("generate", "--model", folder, "--prompt", PROMPT, "--max-tokens", "3", "--context", "64", "--threads", "1")
        (folder / file).write_bytes(good)

# --- data that lies --------------------------------------------------------------------------------------------------
BAD_SFT_LINES = {
    "torn": ('{"prompt": "1"', []),
    "number": ("5", []),
    "typo": ('{"prompt": "1", "completoin": "2"}', ["completoin", "did you mean", "completion"]),
    "half": ('{"prompt": "1"}', ["prompt"]),
    "type": ('{"prompt": 1, "completion": "2"}', ["prompt"]),
    "range": ('{"tokens": [1, 512]}', ["vocabulary"]),
    "range-first": ('{"tokens": [512, 1]}', ["vocabulary"]),
    "range-middle": ('{"tokens": [1, 700, 1]}', ["vocabulary"]),
    "negative": ('{"tokens": [1, -2]}', ["-2"]),
    "float": ('{"tokens": [1, 2.5]}', ["2.5"]),
    "short": ('{"tokens": [1]}', ["tokens"]),
    "weights": ('{"tokens": [1, 2, 3], "weights": [1]}', ["weights"]),
    "infinite": ('{"tokens": [1, 2, 3], "weights": [1, 1e999]}', ["line 2"]),
    "deep": ("[" * 100000, []),
    "bytes": (b'{"prompt": "\xff\xfe", "completion": "2"}', []),
}
for name, (line, words) in BAD_SFT_LINES.items():
    with check(f"data-{name}"):
        line = line if isinstance(line, bytes) else line.encode()
        file = write(f"data-{name}.jsonl", b'{"prompt": "1,2,3=6:", "completion": "1+2+3"}\n' + line + b"\n")
        refused("train", "sft", "--model", MODEL, "--data", file, "--name", "b", "--runs", TMP / "runs", "--steps", "1", "--quiet", status=1,
                words=["line 2", f"data-{name}.jsonl", *words])
        assert not (TMP / "runs" / "b").exists(), "bad data left a run behind"

with check("data-empty"):
    refused("train", "sft", "--model", MODEL, "--data", write("empty.jsonl", "\n \n"), "--name", "b", "--runs", TMP / "runs", status=1,
            words=["no sequences"])

with check("score-bad-lines"):
    for line in ('{"tokens": [1, 512]}', '{"tokens": "1"}', '{"token": [1]}', "{", "5", '{"tokens": [1, 99999999999]}'):
        for command in (["score"], ["grad", "--out", TMP / "grads.safetensors"]):
            refused(*command, "--model", MODEL, "--tokens", write("bad.jsonl", line + "\n"), status=1, words=["bad.jsonl"])
    assert not (TMP / "grads.safetensors").exists()

with check("closed-stdout"):
    outcome = lockstep("info", MODEL, preexec_fn=lambda: __import__("os").close(1))
    assert outcome.returncode in (0, 1), str(outcome)
