"""`lockstep index-share overlap` against NumPy, over the queries, keys and selections that transformers' own modules make of the same folder; `search` against
the losses of transformers' model with indexers in the same layers, and `convert` against that model."""

import json
import subprocess

import numpy as np
import pytest
import torch
from oracle_cases import check_transformers_agrees, golden_case, load
from transformers.models.glm_moe_dsa import modeling_glm_moe_dsa

TOLERANCE = 1e-5


def seen_by_transformers(folder, tokens, monkeypatch):
    """Of each layer: whether it has an indexer, its selection [T, T] of booleans, and the scores of its attention over all keys [H, T, T], float64."""
    layers = {}
    plain = modeling_glm_moe_dsa.eager_attention_forward

    def watched(module, query, key, value, attention_mask, scaling, **more):
        scores = (query[0].double() @ key[0].double().transpose(1, 2)).numpy() * scaling
        layers[module.layer_idx] = (module.indexer is not None, (attention_mask[0, 0] == 0).numpy(), scores)
        return plain(module, query, key, value, attention_mask, scaling, **more)

    monkeypatch.setattr(modeling_glm_moe_dsa, "eager_attention_forward", watched)
    model, info = load(folder)
    assert not any(info.values()), info
    with torch.no_grad():
        model(input_ids=torch.from_numpy(np.asarray(tokens, np.int64))[None], use_cache=False)
    return [layers[layer] for layer in sorted(layers)]


def expected(layers, top_k):
    """What is to be told, in NumPy: {layer: (mass, that of the head with least)}, {(a, b): share of common keys}."""
    length = len(layers[0][1])
    rows = np.arange(top_k, length)
    causal = np.tril(np.ones((length, length), bool))
    mass, owned = {}, {}
    for layer, (owns, selected, scores) in enumerate(layers):
        assert (selected[rows].sum(axis=-1) == top_k).all() and not (selected & ~causal).any()
        weights = np.where(causal, np.exp(scores - np.where(causal, scores, -np.inf).max(axis=-1, keepdims=True)), 0)
        inside = (weights * selected).sum(axis=-1) / weights.sum(axis=-1)
        by_head = inside[:, rows].mean(axis=-1)
        mass[layer] = (by_head.mean(), by_head.min())
        if owns:
            owned[layer] = selected
    common = {(a, b): (owned[a] & owned[b])[rows].sum() / (len(rows) * top_k) for a in owned for b in owned if a < b}
    return mass, common


def overlap(lockstep, folder, tokens, profile="cpu-f32"):
    path = lockstep.tokens_file([tokens])
    return json.loads(lockstep.run("index-share", "overlap", "--model", folder, "--data", path, "--profile", profile, "--json"))


def test_overlap_and_mass(lockstep, tmp_path, monkeypatch):
    case = golden_case("glm_moe_dsa/sharing", tmp_path / "model")
    top_k = case.config["index_topk"]
    layers = seen_by_transformers(case.folder, case.tokens, monkeypatch)
    mass, common = expected(layers, top_k)
    told = overlap(lockstep, case.folder, case.tokens)
    assert told["index_topk"] == top_k and told["rows"] == len(case.tokens) - top_k and told["tokens"] == len(case.tokens)

    owners = [layer for layer, kind in enumerate(case.config["indexer_types"]) if kind == "full"]
    assert [row["layer"] for row in told["layers"]] == list(range(case.config["num_hidden_layers"]))
    assert [row["selected_by"] for row in told["layers"]] == [max(o for o in owners if o <= layer) for layer in range(len(layers))]
    for row in told["layers"]:
        assert abs(row["mass"] - mass[row["layer"]][0]) <= TOLERANCE, row
        assert abs(row["least_head_mass"] - mass[row["layer"]][1]) <= TOLERANCE, row
    # Layers differ by more than the tolerance, so that one in another's place would be seen.
    masses = sorted(row["mass"] for row in told["layers"])
    assert min(b - a for a, b in zip(masses, masses[1:])) > 2 * TOLERANCE

    assert {tuple(row["layers"]) for row in told["pairs"]} == set(common)
    for row in told["pairs"]:
        assert row["common"] == pytest.approx(common[tuple(row["layers"])], abs=1e-12), row
    assert len({row["common"] for row in told["pairs"]}) > 2
    for row in told["distances"]:
        of_pairs = [value for (a, b), value in common.items() if b - a == row["distance"]]
        assert row["pairs"] == len(of_pairs) and row["common"] == pytest.approx(np.mean(of_pairs), abs=1e-12), row
    assert sum(row["pairs"] for row in told["distances"]) == len(common)


def test_what_is_told_of_several_texts(lockstep, tmp_path):
    case = golden_case("glm_moe_dsa/sharing", tmp_path / "model")
    parts = [overlap(lockstep, case.folder, tokens) for tokens in (case.tokens, case.tokens[::-1])]
    path = lockstep.tokens_file([case.tokens, case.tokens[:3], case.tokens[::-1]])
    both = json.loads(lockstep.run("index-share", "overlap", "--model", case.folder, "--data", path, "--profile", "cpu-f32", "--json"))
    assert both["sequences"] == 3 and both["rows"] == sum(part["rows"] for part in parts)
    for row, *of_parts in zip(both["layers"], *(part["layers"] for part in parts)):
        assert row["mass"] == pytest.approx(np.mean([part["mass"] for part in of_parts]), abs=1e-9)
    for row, *of_parts in zip(both["pairs"], *(part["pairs"] for part in parts)):
        assert row["common"] == pytest.approx(np.mean([part["common"] for part in of_parts]), abs=1e-12)
    text = lockstep.run("index-share", "overlap", "--model", case.folder, "--data", path, "--profile", "cpu-f32")
    assert f"{both['layers'][4]['mass']:.4f}" in text and f"{both['distances'][0]['common']:.4f}" in text


def loss_by_transformers(folder, tokens, owners):
    """Mean -log p of tokens[1:], with indexers in these layers alone."""
    path = folder / "config.json"
    text = path.read_text()
    config = json.loads(text)
    config["indexer_types"] = ["full" if layer in owners else "shared" for layer in range(config["num_hidden_layers"])]
    path.write_text(json.dumps(config))
    try:
        model, info = load(folder)
    finally:
        path.write_text(text)
    assert not info["missing_keys"] and all("indexer" in name for name in info["unexpected_keys"]), info
    with torch.no_grad():
        logits = model(input_ids=torch.from_numpy(np.asarray(tokens, np.int64))[None], use_cache=False).logits[0].double()
    return -torch.log_softmax(logits[:-1], -1)[range(len(tokens) - 1), torch.tensor(tokens[1:])].mean().item()


def test_search(lockstep, tmp_path):
    case = golden_case("glm_moe_dsa/sharing", tmp_path / "model")
    tokens = [int(t) for t in case.tokens]
    path = lockstep.tokens_file([tokens])
    told = json.loads(lockstep.run("index-share", "search", "--model", case.folder, "--data", path, "--profile", "cpu-f32", "--indexers", "2", "--json"))
    assert told["tokens"] == len(tokens) - 1 and [step["indexers"] for step in told["steps"]] == [5, 4, 3, 2]
    for step in told["steps"]:
        assert abs(step["loss"] - loss_by_transformers(case.folder, tokens, step["layers"])) <= TOLERANCE, step
        assert [layer for layer, letter in enumerate(step["pattern"]) if letter == "F"] == step["layers"]
    for before, after in zip(told["steps"], told["steps"][1:]):
        choices = [[layer for layer in before["layers"] if layer != gone] for gone in before["layers"][1:]]
        losses = {tuple(choice): loss_by_transformers(case.folder, tokens, choice) for choice in choices}
        assert losses[tuple(after["layers"])] <= min(losses.values()) + TOLERANCE, (after, losses)
        assert max(losses.values()) - min(losses.values()) > 2 * TOLERANCE  # the choices differ


def test_convert(lockstep, tmp_path):
    """The folder is transformers' model with indexers in those layers, of the weights that were there; so is the old folder under the new config.json."""
    case = golden_case("glm_moe_dsa/sharing", tmp_path / "model")
    tokens, pattern = [int(t) for t in case.tokens], "F" + "S" * 5 + "F" + "S" * 4
    lockstep.run("index-share", "convert", case.folder, tmp_path / "fewer", "--pattern", pattern)
    check_transformers_agrees(lockstep, tmp_path / "fewer", tokens)
    config = json.loads((tmp_path / "fewer" / "config.json").read_text())
    assert [kind[0] for kind in config["indexer_types"]] == ["f" if letter == "F" else "s" for letter in pattern]
    before = lockstep.score(case.folder, [tokens], "train")[0]["bits"]
    (case.folder / "config.json").write_text(json.dumps(config))
    same = lockstep.score(case.folder, [tokens], "train")[0]["bits"]
    assert same == lockstep.score(tmp_path / "fewer", [tokens], "train")[0]["bits"] != before


@pytest.mark.parametrize("pattern, words", [("FSF", "allowed are 11 letters"), ("S" * 11, "whose first layer shares"), ("FFFFSSSSSSS", "F for layer 3, which has no indexer"), ("F" * 11, "layer 3")])
def test_patterns_that_are_refused(lockstep, tmp_path, pattern, words):
    case = golden_case("glm_moe_dsa/sharing", tmp_path / "model")
    command = [lockstep.binary, "index-share", "convert", case.folder, tmp_path / "fewer", "--pattern", pattern]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1 and words in done.stderr, done
    assert not (tmp_path / "fewer").exists()


@pytest.mark.parametrize(
    "model, tokens, words",
    [
        ("glm_moe_dsa/sharing", [1, 2, 3, 4, 5], ["longest sequence has 5 tokens", "at least 6"]),
        ("llama/scaled", list(range(20)), ["'llama'", "has no indexer", "index_topk"]),
    ],
)
def test_errors(lockstep, tmp_path, model, tokens, words):
    case = golden_case(model, tmp_path / "model")
    command = [lockstep.binary, "index-share", "overlap", "--model", case.folder, "--data", lockstep.tokens_file([tokens])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done
    assert all(word in done.stderr for word in words), done.stderr
