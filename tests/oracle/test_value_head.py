"""Value heads against transformers' ForSequenceClassification classes in float64: values of every row, the loss `value` and the gradient of every
weight by autograd of verl's own compute_value_loss, folders read and written, and the rewards of a reward model that `lockstep train reward` exported."""

import json

import golden_weights
import make_goldens
import numpy as np
import pytest
import torch
from comparison import largest_difference, relative_error
from safetensors.numpy import load_file, save_file
from test_advantages import verl  # noqa: F401  (a fixture)
from transformers import AutoModelForSequenceClassification

VALUE_TOLERANCE = 1e-5
LOSS_TOLERANCE = 1e-6
GRADIENT_TOLERANCE = 1e-4
COMMON = dict(
    hidden_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=12, intermediate_size=60, rms_norm_eps=1e-5, vocab_size=160,
    max_position_embeddings=512, bos_token_id=None, eos_token_id=1, pad_token_id=0, rope_parameters={"rope_theta": 10000.0, "rope_type": "default"},
)  # fmt: skip
FAMILIES = {"llama": dict(tie_word_embeddings=False), "qwen3": dict(tie_word_embeddings=True)}


def value_model(family, seed):
    """transformers' own class, with random weights that have real spread."""
    from transformers import AutoConfig

    config = AutoConfig.for_model(family, **COMMON, **FAMILIES[family], num_labels=1)
    torch.manual_seed(seed)
    model = AutoModelForSequenceClassification.from_config(config, attn_implementation="eager").float().eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(1 + 0.3 * torch.randn_like(p) if p.dim() == 1 else torch.randn_like(p) * 1.2 / p.shape[-1] ** 0.5)
    return model


def values_of(model, tokens):
    """The value of every row, not of the last one alone."""
    return model.score(model.model(input_ids=torch.tensor(tokens)[None], use_cache=False).last_hidden_state)[0, :, 0]


def make_data(seed):
    rng = np.random.default_rng(seed)
    data = []
    for n in (29, 7, 1):
        # not 0, the padding token: torch gives its row of the table no gradient
        d = dict(tokens=rng.integers(1, COMMON["vocab_size"], n).tolist(), weights=np.float32(rng.uniform(0.2, 1, n)).tolist(),
                 returns=np.float32(rng.normal(size=n)).tolist(), values=np.float32(rng.normal(size=n)).tolist())  # fmt: skip
        d["targets"] = [-1 if i % 5 == 3 else t for i, t in enumerate(d["tokens"])]
        data.append(d)
    data[0]["weights"][1] = 0.0
    return data


def loss_of(v, d, clip):
    """Half the larger of the plain and the clipped square, a row."""
    returns, old = (torch.tensor(d[key], dtype=v.dtype) for key in ("returns", "values"))
    square = (v - returns) ** 2
    if clip:
        square = torch.maximum(square, (torch.clamp(v, old - clip, old + clip) - returns) ** 2)
    weights = torch.tensor(d["weights"], dtype=v.dtype) * (torch.tensor(d["targets"]) >= 0)
    return 0.5 * square * weights


def by_verl(verl, v, d, clip):  # noqa: F811
    """The sum of the rows' losses; verl's clip is never off, so without one it is infinite."""
    returns, old, weights = (torch.tensor(d[key], dtype=v.dtype)[None] for key in ("returns", "values", "weights"))
    mask = weights * (torch.tensor(d["targets"]) >= 0)
    return verl.compute_value_loss(v[None], returns, old, mask, clip or float("inf"), "token-sum")[0]


@pytest.mark.parametrize("clip", [0, 0.5])
@pytest.mark.parametrize("family", FAMILIES)
def test_values_loss_and_gradients_are_transformers(lockstep, verl, family, clip):  # noqa: F811
    model = value_model(family, 3)
    folder = lockstep.folder / "model"
    model.save_pretrained(folder)
    data = make_data(5)
    tokens, out, rows_file = (lockstep.folder / name for name in ("data.jsonl", "gradients.safetensors", "rows.jsonl"))
    tokens.write_text("".join(json.dumps(d) + "\n" for d in data))
    config = ["--loss-config", f"value_clip={clip}"] if clip else []
    said = json.loads(lockstep.run("grad", "--model", folder, "--tokens", tokens, "--out", out, "--loss", "value", *config, "--rows", rows_file, "--json"))
    rows = [json.loads(line) for line in rows_file.read_text().splitlines()]
    with make_goldens.float64_everywhere():
        truth = AutoModelForSequenceClassification.from_config(model.config, attn_implementation="eager").double().eval()
        truth.load_state_dict({name: value.double() for name, value in model.state_dict().items()})
        total = 0
        for row, d in zip(rows, data, strict=True):
            v = values_of(truth, d["tokens"])
            scored = np.array(d["targets"]) >= 0
            assert relative_error(np.array(row["logprobs"]), v.detach().numpy() * scored) <= VALUE_TOLERANCE
            want = loss_of(torch.tensor(row["logprobs"], dtype=torch.float64), d, clip).numpy()
            assert largest_difference(np.array(row["losses"]), want) <= LOSS_TOLERANCE * np.abs(want).max()
            told = torch.tensor(row["logprobs"], dtype=torch.float64)
            assert largest_difference(np.array(row["losses"]).sum(), by_verl(verl, told, d, clip)) <= LOSS_TOLERANCE * want.sum()
            total = total + by_verl(verl, v, d, clip)
        total.backward()
        gradients = {name: p.grad.numpy() for name, p in truth.named_parameters()}
    assert abs(said["loss"] - total.item()) <= 1e-5 * abs(total.item())
    ours = load_file(out)
    assert set(ours) == set(gradients) and ours["score.weight"].shape == (1, COMMON["hidden_size"])
    for name, value in ours.items():
        assert relative_error(value, gradients[name]) <= GRADIENT_TOLERANCE, name


def test_the_clip_makes_a_difference(lockstep):
    """The control: clipped and unclipped gradients are told apart."""
    model = value_model("llama", 3)
    folder = lockstep.folder / "model"
    model.save_pretrained(folder)
    tokens = lockstep.folder / "data.jsonl"
    tokens.write_text("".join(json.dumps(d) + "\n" for d in make_data(5)))
    found = []
    for clip in ("0", "0.5"):
        out = lockstep.folder / f"g{clip}.safetensors"
        lockstep.run("grad", "--model", folder, "--tokens", tokens, "--out", out, "--loss", "value", "--loss-config", f"value_clip={clip}")
        found.append(load_file(out)["score.weight"])
    assert relative_error(found[1], found[0]) > 1e-2


def test_a_bias_is_read_and_written(lockstep):
    """TRL and others save a head with a bias: transformers' classes have none, so the oracle adds it."""
    model = value_model("llama", 4)
    folder, plain = lockstep.folder / "model", lockstep.folder / "plain"
    model.save_pretrained(plain)
    model.save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | {"score.bias": np.array([0.75], np.float32)}, folder / "model.safetensors")
    tokens = lockstep.folder / "data.jsonl"
    tokens.write_text("".join(json.dumps(d) + "\n" for d in make_data(6)))
    rows = {}
    for name in (folder, plain):
        out, rows_file = lockstep.folder / f"{name.name}.safetensors", lockstep.folder / f"{name.name}.jsonl"
        lockstep.run("grad", "--model", name, "--tokens", tokens, "--out", out, "--loss", "value", "--rows", rows_file)
        rows[name.name] = [np.array(json.loads(line)["logprobs"]) for line in rows_file.read_text().splitlines()]
    for d, biased, unbiased in zip(make_data(6), rows["model"], rows["plain"]):
        assert largest_difference(biased, (unbiased + 0.75) * (np.array(d["targets"]) >= 0)) <= 1e-6
    slopes = sum(
        ((row - np.array(d["returns"])) * np.array(d["weights"]) * (np.array(d["targets"]) >= 0)).sum() for row, d in zip(rows["model"], make_data(6))
    )
    assert abs(load_file(lockstep.folder / "model.safetensors")["score.bias"][0] - slopes) <= 1e-4 * abs(slopes)


@pytest.mark.parametrize("dtype, rank", [("f32", 0), ("bf16", 0), ("f32", 4)])
def test_a_reward_model_scores_in_transformers_as_here(lockstep, dtype, rank):
    """train reward over the shipped model's family of one's own, exported, and scored by AutoModelForSequenceClassification: the same rewards. An adapter
    is merged into what is exported."""
    pairs = lockstep.folder / "pairs.jsonl"
    rng = np.random.default_rng(7)
    prompts = [f"{a} {b} {a + b}=" for a, b in rng.integers(1, 30, (40, 2))]
    pairs.write_text("".join(json.dumps({"prompt": p, "chosen": p[:2] + "+1", "rejected": p[:2] + "-1"}) + "\n" for p in prompts))
    base = small_language_model(lockstep.folder / "base")
    out = lockstep.run("train", "reward", "--model", base, "--data", pairs, "--name", "r", "--runs", lockstep.folder / "runs", "--steps", "8", "--batch", "8",
                       "--learning-rate", "1e-2" if rank else "1e-3", "--warmup", "0", "--export-dtype", dtype, "--no-page", "--quiet", "--json",
                       *(["--adapter-rank", rank] if rank else []))  # fmt: skip
    said = json.loads(out)
    assert said["eval"]["accuracy"] > said["eval_before"]["accuracy"] == 0.5
    exported = said["export"]
    config = json.loads((lockstep.folder / "runs" / "r" / "export" / "config.json").read_text())
    assert config["architectures"] == ["LlamaForSequenceClassification"] and len(config["id2label"]) == 1
    oracle, info = AutoModelForSequenceClassification.from_pretrained(exported, dtype=torch.float64, output_loading_info=True, attn_implementation="eager")
    assert not any(info.values()), info
    texts = [rng.integers(3, COMMON["vocab_size"], n).tolist() for n in (3, 11, 24)]
    tokens, rows_file = lockstep.folder / "texts.jsonl", lockstep.folder / "rows.jsonl"
    tokens.write_text("".join(json.dumps({"tokens": t, "targets": t, "returns": [0.0] * len(t)}) + "\n" for t in texts))
    lockstep.run("grad", "--model", exported, "--tokens", tokens, "--out", lockstep.folder / "g.safetensors", "--loss", "value", "--rows", rows_file)
    for text, line in zip(texts, rows_file.read_text().splitlines(), strict=True):
        with make_goldens.float64_everywhere(), torch.no_grad():
            truth = float(oracle(input_ids=torch.tensor(text)[None]).logits[0, 0])  # transformers pools the last token
        assert abs(json.loads(line)["logprobs"][-1] - truth) <= 1e-5 * max(1, abs(truth)) and abs(truth) > 1e-3


def small_language_model(folder):
    """A llama of few weights with the tokenizer of the shipped model."""
    from pathlib import Path

    shipped = Path(__file__).resolve().parents[2] / "models" / "countdown-glm"
    vocabulary = json.loads((shipped / "config.json").read_text())["vocab_size"]
    arguments = {**COMMON, "vocab_size": vocabulary, "model_type": "llama", "tie_word_embeddings": False, "eos_token_id": 102}
    config = make_goldens.save_checkpoint(arguments, golden_weights.weights(make_goldens.resolve(arguments), 11), folder)
    assert config["model_type"] == "llama"
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if (shipped / name).exists():
            (folder / name).write_bytes((shipped / name).read_bytes())
    return folder
