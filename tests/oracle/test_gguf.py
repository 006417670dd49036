"""GGUF files against the `gguf` package, which decodes their blocks, and against transformers, which reads them by `gguf_file=`."""

import json
import random
import subprocess
import unicodedata

import gguf
import gguf_files as files
import numpy as np
import pytest
import tokenizer_corpus as corpus
import tokenizer_zoo as zoo
import torch
from comparison import relative_error
from gguf_files import Kind
from oracle_cases import VIAS, fresh_seeds, target_logprobs
from safetensors.numpy import load_file
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

TOLERANCE = 1e-5
COMMON = dict(num_hidden_layers=2, max_position_embeddings=128, rms_norm_eps=1e-5, vocab_size=70)
# transformers reads no size of a head for qwen3, and takes 128.
CONFIGS = {
    "llama": dict(hidden_size=64, intermediate_size=96, num_attention_heads=4, num_key_value_heads=2, rope_theta=50000.0, tie_word_embeddings=True),
    "llama-untied": dict(hidden_size=64, intermediate_size=96, num_attention_heads=4, num_key_value_heads=4, tie_word_embeddings=False),
    "qwen2": dict(hidden_size=64, intermediate_size=96, num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True),
    "qwen3": dict(hidden_size=64, intermediate_size=96, num_attention_heads=2, num_key_value_heads=1, head_dim=128, tie_word_embeddings=False),
    "qwen3_moe": dict(hidden_size=64, intermediate_size=96, moe_intermediate_size=32, num_attention_heads=2, num_key_value_heads=1, head_dim=32, num_experts=4,
                      num_experts_per_tok=2, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[], tie_word_embeddings=False),
}  # fmt: skip
K_QUANTS = dict(hidden_size=256, intermediate_size=512, num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False)


def config_of(name, **more):
    return {"model_type": name.split("-")[0], **COMMON, **CONFIGS.get(name, {}), **more}


def random_model(config, seed):
    """transformers' model of this config, drawn at random, and its tensors by the names of files."""
    torch.manual_seed(seed)
    arguments = {key: value for key, value in config.items() if key not in ("model_type", "rope_theta")}
    theta = config.get("rope_theta", 10000.0)
    model = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(config["model_type"], rope_parameters={"rope_type": "default", "rope_theta": theta}, **arguments)).float().eval()
    for parameter in model.parameters():
        parameter.data.normal_(1.0 if parameter.ndim == 1 else 0.0, 0.1)
    weights = {}
    for name, value in model.state_dict().items():
        if name.endswith("experts.gate_up_proj"):
            for e, both in enumerate(value.numpy()):
                half = len(both) // 2
                weights[name.replace("gate_up_proj", f"{e}.gate_proj.weight")], weights[name.replace("gate_up_proj", f"{e}.up_proj.weight")] = both[:half], both[half:]
        elif name.endswith("experts.down_proj"):
            for e, one in enumerate(value.numpy()):
                weights[name.replace("down_proj", f"{e}.down_proj.weight")] = one
        elif name != "lm_head.weight" or not config["tie_word_embeddings"]:
            weights[name] = value.numpy()
    return model, weights


def logprobs_of(model, tokens):
    model.set_experts_implementation("eager")  # the faster ones know no float64
    with torch.no_grad():
        logits = model.double()(torch.tensor([tokens])).logits[0]
    return target_logprobs(logits.numpy(), tokens)


def check_scores(lockstep, path, expected, tokens):
    rows = [lockstep.score(path, [tokens], via)[0] for via in VIAS]
    assert len({row["bits"] for row in rows}) == 1
    error = relative_error(np.array(rows[0]["logprobs"]), expected)
    assert error <= TOLERANCE, f"{path.name}: log-probabilities are off by {error:.3g}"


def tokens_of(config, seed):
    return np.random.default_rng(seed).integers(0, config["vocab_size"], 40).tolist()


@pytest.mark.parametrize("kind", files.QUANTISED, ids=lambda kind: kind.name)
@pytest.mark.parametrize("seed", fresh_seeds())
def test_random_blocks_decode_to_the_packages_bits(lockstep, tmp_path, kind, seed):
    source = np.random.default_rng(seed)
    rows = {"token_embd": 70, "output": 70, "blk.0.attn_q": 256, "blk.0.attn_k": 128, "blk.0.attn_v": 128, "blk.0.attn_output": 256, "blk.0.ffn_gate": 512, "blk.0.ffn_up": 512}
    config = config_of("llama", **K_QUANTS, num_hidden_layers=1)
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    files.metadata(writer, config, 70)
    held = {}
    for name, shape in [*((name, (count, 256)) for name, count in rows.items()), ("blk.0.ffn_down", (256, 512))]:
        data = files.random_blocks(source, kind, shape)
        writer.add_tensor(f"{name}.weight", data, raw_dtype=kind)
        held[name] = gguf.quants.dequantize(data, kind)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(256, np.float32))
    writer.write_header_to_file(), writer.write_kv_data_to_file(), writer.write_tensors_to_file(), writer.close()
    lockstep.run("convert", tmp_path / "m.gguf", tmp_path / "out")
    got = load_file(tmp_path / "out" / "model.safetensors")
    names = gguf.get_tensor_name_map(files.ENUM["llama"], 1)
    ours = {names.get_name(name.removesuffix(".weight")): value for name, value in got.items()}
    for name, value in held.items():
        found = files.paired(ours[name], {"blk.0.attn_q": 4, "blk.0.attn_k": 2}[name]) if name in ("blk.0.attn_q", "blk.0.attn_k") else ours[name]
        assert np.array_equal(np.ascontiguousarray(found).view(np.uint32), value.view(np.uint32)), name
    info = json.loads(lockstep.run("info", tmp_path / "m.gguf", "--json"))
    values, size = gguf.GGML_QUANT_SIZES[kind]
    assert {"type": kind.name, "bits_a_weight": 8 * size / values, "tensors": 9, "weights": sum(v.size for v in held.values())} in info["stored_as"]
    assert info["format"] == "GGUF version 3"


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("seed", fresh_seeds())
def test_scores_are_those_of_transformers(lockstep, tmp_path, name, seed):
    config = config_of(name)
    model, weights = random_model(config, seed)
    source = random.Random(seed)
    kinds = [Kind.F32, Kind.F16, Kind.BF16, Kind.Q8_0, Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1]
    held = files.write_model(tmp_path / "m.gguf", config, weights, lambda _: source.choice(kinds))
    tokens = tokens_of(config, seed)
    if name == "qwen3_moe":  # transformers reads no width of an expert, and takes 768: its own model gets the values that the file holds
        for layer in range(config["num_hidden_layers"]):
            for e in range(config["num_experts"]):
                prefix = f"model.layers.{layer}.mlp.experts."
                held.setdefault(prefix + "gate_up_proj", []).append(np.concatenate([held.pop(f"{prefix}{e}.gate_proj.weight"), held.pop(f"{prefix}{e}.up_proj.weight")]))
                held.setdefault(prefix + "down_proj", []).append(held.pop(f"{prefix}{e}.down_proj.weight"))
        model.load_state_dict({key: torch.tensor(np.array(value)) for key, value in held.items()})
        expected = model
    else:
        expected = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="m.gguf", dtype=torch.float32).eval()
    check_scores(lockstep, tmp_path / "m.gguf", logprobs_of(expected, tokens), tokens)
    # What is written loads in transformers, and has the same bits here.
    lockstep.run("convert", tmp_path / "m.gguf", tmp_path / "out")
    loaded, told = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32, output_loading_info=True)
    assert not told["missing_keys"] and not told["unexpected_keys"] and not told["mismatched_keys"], told
    assert relative_error(logprobs_of(loaded, tokens), logprobs_of(expected, tokens)) < 1e-6
    assert lockstep.score(tmp_path / "out", [tokens], "train")[0]["bits"] == lockstep.score(tmp_path / "m.gguf", [tokens], "train")[0]["bits"]


def test_k_quants_score_as_transformers(lockstep, tmp_path):
    config, source = config_of("llama", **K_QUANTS), random.Random(7)
    _, weights = random_model(config, 7)
    files.write_model(tmp_path / "m.gguf", config, weights, lambda _: source.choice([Kind.Q4_K, Kind.Q5_K, Kind.Q6_K]), np.random.default_rng(7))
    tokens = tokens_of(config, 7)
    expected = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="m.gguf", dtype=torch.float32).eval()
    check_scores(lockstep, tmp_path / "m.gguf", logprobs_of(expected, tokens), tokens)


def told_of(lockstep, path, architecture, kind=None):
    """What `info` says of a file of this architecture with one tensor of this type."""
    writer = gguf.GGUFWriter(path, architecture)
    values, size = gguf.GGML_QUANT_SIZES[kind] if kind is not None else (1, 1)
    writer.add_tensor("token_embd.weight", np.zeros((4, 256 // values * size), np.uint8), raw_dtype=kind)
    writer.write_header_to_file(), writer.write_kv_data_to_file(), writer.write_tensors_to_file(), writer.close()
    done = subprocess.run([lockstep.binary, "info", path], capture_output=True, text=True)
    assert done.returncode == 1 and len(done.stderr.strip().splitlines()) == 1, done
    return done.stderr


def test_every_other_type_and_architecture_of_the_package_is_refused_by_its_name(lockstep, tmp_path):
    others = [kind for kind in Kind if kind not in (*files.QUANTISED, Kind.F32, Kind.F16, Kind.BF16)]
    assert len(others) > 20 and any(kind.name.startswith("IQ") for kind in others)
    for kind in others:
        told = told_of(lockstep, tmp_path / "m.gguf", "llama", kind)
        assert f"has the type {kind.name}, which is not read" in told and "read are F32, F16, Q4_0" in told, told
    architectures = [name for name in gguf.MODEL_ARCH_NAMES.values() if name not in files.ARCHITECTURES.values()]
    assert len(architectures) > 60
    for name in architectures:
        told = told_of(lockstep, tmp_path / "m.gguf", name, Kind.F32)
        assert f"'general.architecture' is '{name}', " in told and "llama, qwen2, qwen3, qwen3moe" in told, told


def test_unpermuted_rows_would_be_seen(lockstep, tmp_path):
    """Negative control: the same file without pairing has other scores."""
    config = config_of("llama")
    model, weights = random_model(config, 3)
    tokens = tokens_of(config, 3)
    files.write_model(tmp_path / "right.gguf", config, weights)
    check_scores(lockstep, tmp_path / "right.gguf", logprobs_of(model.float(), tokens), tokens)
    q = "model.layers.0.self_attn.q_proj.weight"
    files.write_model(tmp_path / "wrong.gguf", config, {**weights, q: files.paired(weights[q], 4)})
    with pytest.raises(AssertionError, match="are off by"):
        check_scores(lockstep, tmp_path / "wrong.gguf", logprobs_of(model, tokens), tokens)


def test_llama_3_scaled_rope(lockstep, tmp_path):
    """llama.cpp keeps it as a tensor of divisors."""
    config = config_of("llama", rope_theta=500000.0, hidden_size=64, num_attention_heads=1, num_key_value_heads=1)
    scaling = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    _, weights = random_model(config, 5)
    arguments = {key: value for key, value in config.items() if key not in ("model_type", "rope_theta")}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", rope_parameters=scaling, **arguments)).float().eval()
    plain = (500000.0 ** (-np.arange(0, 64, 2) / 64)).astype(np.float32)
    divisors = plain / model.model.rotary_emb.inv_freq.numpy()
    assert divisors.max() == pytest.approx(8) and divisors.min() == pytest.approx(1) and len(set(divisors.round(3))) > 3
    model.load_state_dict({key: torch.tensor(value) for key, value in weights.items()}, strict=False)
    model.tie_weights()
    files.write_model(tmp_path / "m.gguf", config, weights, more=lambda writer: writer.add_tensor("rope_freqs.weight", divisors.astype(np.float32)))
    tokens = tokens_of(config, 5) * 3
    check_scores(lockstep, tmp_path / "m.gguf", logprobs_of(model, tokens), tokens)


# --- tokenizers


def ask(lockstep, model, requests):
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    done = subprocess.run([lockstep.binary, "tokenize", "--model", model, "--jsonl"], input=lines, capture_output=True, text=True, encoding="utf-8", timeout=600)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.split("\n") if line]


def write_tokenizer(path, architecture, *arguments, **more):
    """A model of no use with a tokenizer that is."""
    config = config_of("llama", num_hidden_layers=1)
    vocabulary = len(arguments[1])
    _, weights = random_model({**config, "vocab_size": vocabulary}, 1)
    files.write_model(path, {**config, "model_type": architecture}, weights, more=lambda writer: files.add_tokenizer(writer, *arguments, **more))


def texts():
    source = random.Random(1)
    return corpus.texts() + [corpus.random_text(source) for _ in range(200)]


def compare(lockstep, path, encode, decode, of_text=lambda text: text):
    given = texts()
    answers = ask(lockstep, path, [{"text": text, "offsets": False} for text in given])
    for text, answer in zip(given, answers):
        assert answer["ids"] == encode(of_text(text)), repr(text[:80])
    ids = [answer["ids"] for answer in answers]
    for one, answer in zip(ids, ask(lockstep, path, [{"ids": one} for one in ids])):
        assert answer["text"] == decode(one), one[:20]
    return len(given)


ADDED = [zoo.special("<s>"), zoo.special("</s>"), AddedToken("<think>", normalized=False)]


@pytest.mark.parametrize("pre", ["gpt-2", "llama-bpe", "qwen2", "deepseek-r1-qwen", "tekken", "gpt-4o", "falcon3"])
def test_byte_level_ids_are_those_of_transformers(lockstep, tmp_path, pre):
    tokens, kinds, merges = files.tokens_and_kinds(zoo.build(zoo.byte_model(), tokens=ADDED))
    begin = len(tokens) - 3
    # An <|endoftext|> of its own keeps transformers from adding one.
    tokens, kinds = [*tokens, "<|endoftext|>"], [*kinds, files.CONTROL]
    write_tokenizer(tmp_path / "m.gguf", "llama", "gpt2", tokens, kinds, pre=pre, merges=merges, bos_token_id=begin, eos_token_id=begin + 1, add_bos_token=True)
    oracle = AutoTokenizer.from_pretrained(tmp_path, gguf_file="m.gguf")
    # Qwen's own tokenizer composes its text first; llama.cpp and transformers' reading of GGUF leave that to the caller.
    of_text = (lambda text: unicodedata.normalize("NFC", text)) if pre == "qwen2" else (lambda text: text)
    encode = lambda text: oracle.backend_tokenizer.encode(text).ids  # noqa: E731
    assert compare(lockstep, tmp_path / "m.gguf", encode, lambda ids: oracle.backend_tokenizer.decode(ids, skip_special_tokens=False), of_text) > 200


@pytest.mark.parametrize("pre, name", [("gpt-2", "gpt2"), ("smollm", "digits"), ("llama-bpe", "llama3"), ("qwen2", "qwen2-nfc"), ("llama4", "llama4"), ("deepseek-v3", "deepseek")])
def test_byte_level_ids_are_those_of_the_models_own_tokenizer(lockstep, tmp_path, pre, name):
    """The tokenizer.json that a model was published with, as llama.cpp's converter keeps it."""
    document = json.loads(zoo.byte_zoo()[name])
    document["added_tokens"] = []
    document["post_processor"] = None
    own = Tokenizer.from_str(json.dumps(document))
    own.add_special_tokens(ADDED[:2])
    own.add_tokens(ADDED[2:])
    tokens, kinds, merges = files.tokens_and_kinds(own.to_str())
    write_tokenizer(tmp_path / "m.gguf", "llama", "gpt2", tokens, kinds, pre=pre, merges=merges, add_bos_token=False)
    assert compare(lockstep, tmp_path / "m.gguf", lambda text: own.encode(text).ids, lambda ids: own.decode(ids, skip_special_tokens=False)) > 200


@pytest.mark.parametrize("prefix", [True, False])
def test_scored_ids_are_those_of_transformers(lockstep, tmp_path, prefix):
    vocabulary = json.loads(zoo.mark_model())["vocab"]
    tokens = sorted(vocabulary, key=vocabulary.get)
    kinds = [{"<unk>": files.UNKNOWN, "<s>": files.CONTROL, "</s>": files.CONTROL}.get(t, files.BYTE if t.startswith("<0x") else files.NORMAL) for t in tokens]
    tokens, kinds = [*tokens, "<think>"], [*kinds, files.USER_DEFINED]
    scores = [0.0 if kind != files.NORMAL else -float(i // 2) for i, kind in enumerate(kinds)]  # with ties
    write_tokenizer(tmp_path / "m.gguf", "llama", "llama", tokens, kinds, scores=scores, bos_token_id=1, eos_token_id=2, unk_token_id=0, add_bos_token=True, add_space_prefix=prefix)
    oracle = AutoTokenizer.from_pretrained(tmp_path, gguf_file="m.gguf").backend_tokenizer
    if not prefix:  # which transformers does not read, and llama.cpp does
        oracle.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
        oracle.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    assert compare(lockstep, tmp_path / "m.gguf", lambda text: oracle.encode(text).ids, lambda ids: oracle.decode(ids, skip_special_tokens=False)) > 200


def test_another_order_of_merges_would_be_seen(lockstep, tmp_path):
    """Negative control."""
    tokens, kinds, merges = files.tokens_and_kinds(zoo.build(zoo.byte_model()))
    write_tokenizer(tmp_path / "m.gguf", "llama", "gpt2", tokens, kinds, pre="gpt-2", merges=merges[1:])
    own = Tokenizer.from_str(zoo.byte_zoo()["gpt2"])
    with pytest.raises(AssertionError):
        compare(lockstep, tmp_path / "m.gguf", lambda text: own.encode(text).ids, own.decode)


def test_template_ends_and_the_folder_that_is_written(lockstep, tmp_path):
    tokens, kinds, merges = files.tokens_and_kinds(zoo.build(zoo.byte_model(), tokens=ADDED))
    begin = len(tokens) - 3
    template = "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}"
    write_tokenizer(tmp_path / "m.gguf", "llama", "gpt2", tokens, kinds, pre="llama-bpe", merges=merges, bos_token_id=begin, eos_token_id=begin + 1,
                    eot_token_id=begin + 2, add_bos_token=True, chat_template=template)  # fmt: skip
    messages = tmp_path / "messages.json"
    messages.write_text('[{"role": "user", "content": "hi"}]')
    lockstep.run("convert", tmp_path / "m.gguf", tmp_path / "out")
    for model in (tmp_path / "m.gguf", tmp_path / "out"):
        assert json.loads(lockstep.run("render", "--model", model, "--messages", messages, "--json"))["text"] == "<s>user: hi</s>"
        info = json.loads(lockstep.run("info", model, "--json"))
        assert info["tokenizer_vocabulary"] == len(tokens) and info["generation_config"] == {"end_tokens": [begin + 1, begin + 2]}
        drawn = json.loads(lockstep.run("generate", "--model", model, "--prompt", "hi", "--max-tokens", 4, "--temperature", 0, "--json"))
        assert drawn["token_ids"]
    theirs = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert theirs("hi  there").input_ids == ask(lockstep, tmp_path / "m.gguf", [{"text": "hi  there"}])[0]["ids"]
    assert theirs.apply_chat_template(json.loads(messages.read_text()), tokenize=False) == "<s>user: hi</s>"
