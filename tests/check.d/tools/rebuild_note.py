"""What is shipped is what was last published, with its reason: tools/republish writes the files, the hashes and the note together.

The rebuild itself takes minutes and is not done here: tools/republish --check.
"""
import hashlib
import importlib.machinery
import importlib.util
import json
import re
import sys
import types

from harness import AGENT, MODEL, ROOT, TMP, check, done

sys.path.insert(0, str(ROOT / "tools"))
import layer_files  # noqa: E402

published = json.loads((MODEL / "published.json").read_text())
MODELS = {MODEL.name: published, "agent-glm": json.loads((AGENT / "published.json").read_text())}
with check("published-hashes"):
    for name in ("demo", "demo_quick"):
        assert re.fullmatch("[0-9a-f]{64}", published[name]["weights_sha256"]) and published[name]["settings"], published[name]

with check("shipped-models"):
    for name, told in MODELS.items():
        found = hashlib.sha256((ROOT / "models" / name / "model.safetensors").read_bytes()).hexdigest()
        wanted = told["model"]["safetensors_sha256"]
        assert found == wanted, f"{name}/model.safetensors has the SHA-256 {found}, published.json says {wanted}: was it replaced without tools/republish?"

with check("recipes"):
    for name, told in MODELS.items():
        for part in (told["model"], *told["model"].get("parts", []), *([told["layer"]] if "layer" in told else [])):
            found = hashlib.sha256((ROOT / part["recipe"]).read_bytes()).hexdigest()
            assert found == part["recipe_sha256"], f"{part['recipe']} is not the file that made the model: tools/republish --check --model {name}, then --why"

with check("notes"):
    entries = (ROOT / "docs/published.md").read_text().split("\n## ")[1:]
    for name, told in MODELS.items():
        # An entry's heading is its date, and the model's name where that is not the demo's.
        last = [entry for entry in entries if entry.splitlines()[0].endswith(f", {name}") or (name == MODEL.name and "," not in entry.splitlines()[0])][-1]
        for hash_ in (told["model"]["safetensors_sha256"], *(told[demo]["weights_sha256"] for demo in ("demo", "demo_quick") if demo in told),
                      *([told["layer"]["draft_sha256"]] if "layer" in told else [])):  # fmt: skip
            assert hash_ in last, f"the last entry of docs/published.md on {name} does not name {hash_}"

with check("layer"):
    # A layer of multi-token prediction is in the files, in published.json and in the README, or in none of them.
    for name, told in MODELS.items():
        said = done("info", ROOT / "models" / name, "--json").json().get("multi_token_prediction", {}).get("draft_sha256")
        wanted = told.get("layer", {}).get("draft_sha256")
        assert said == wanted, f"the layer of {name} has the hash {said}, published.json says {wanted}: was it replaced without tools/republish --layer?"
        assert wanted is None or wanted in (ROOT / "models" / name / "README.md").read_text(), f"the README of {name} does not name its layer, {wanted}"

with check("without-a-layer"):
    # What a layer is trained beside is the model with each tensor as it was and nothing else, and a tensor that moved is seen.
    bare = layer_files.without_layer(MODEL, TMP / "bare")
    shipped, stripped = (MODEL / "model.safetensors").read_bytes(), (bare / "model.safetensors").read_bytes()
    assert layer_files.changed_tensors(stripped, shipped) == []
    told = done("info", bare, "--json").json()
    assert "multi_token_prediction" not in told and told["notes"] == [] and told["weights_sha256"] == done("info", MODEL, "--json").json()["weights_sha256"], told
    assert not any(key in json.loads((bare / "config.json").read_text()) for key in layer_files.LAYER_KEYS)
    # With two more tensors it is what it was again, as if they were a layer's.
    with_layer = TMP / "with-layer"
    layer_files.without_layer(MODEL, with_layer)
    place = 8 + int.from_bytes(stripped[:8], "little")
    header, data = json.loads(stripped[8:place]), stripped[place:]
    for name in ("eh_proj.weight", "enorm.weight"):
        header[f"model.layers.4.{name}"] = {"dtype": "BF16", "shape": [2], "data_offsets": [len(data), len(data) + 4]}
        data += b"\1\2\3\4"
    text = json.dumps(header).encode()
    (with_layer / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    (with_layer / "config.json").write_text(json.dumps(json.loads((bare / "config.json").read_text()) | {"num_nextn_predict_layers": 1}))
    again = layer_files.without_layer(with_layer, TMP / "again")
    assert (again / "model.safetensors").read_bytes() == stripped and (again / "config.json").read_bytes() == (bare / "config.json").read_bytes()
    moved = bytearray(stripped)
    moved[-1] ^= 1
    assert len(layer_files.changed_tensors(stripped, bytes(moved))) == 1 and len(layer_files.changed_tensors((with_layer / "model.safetensors").read_bytes(), stripped)) == 2

with check("a-model-that-moved"):
    # A recipe that moves the model beside its layer ships nothing. A stand-in for the program leaves an export with the layer.
    loader = importlib.machinery.SourceFileLoader("republish", str(ROOT / "tools/republish"))
    tool = importlib.util.module_from_spec(importlib.util.spec_from_loader("republish", loader))
    loader.exec_module(tool)
    tool.lockstep = lambda *words, **options: types.SimpleNamespace(stdout=json.dumps({"export": str(with_layer)}))
    assert tool.build_layer(MODEL.name, bare, TMP / "runs", 1) == with_layer.resolve()
    whole = (with_layer / "model.safetensors").read_bytes()
    (with_layer / "model.safetensors").write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])  # the last byte of the model's, before the layer's two tensors
    try:
        tool.build_layer(MODEL.name, bare, TMP / "runs", 1)
        raise AssertionError("a model that moved beside its layer was taken")
    except SystemExit as end:
        assert end.code == 1

with check("limits"):
    # What the shipped model may be at most: 2.5 M parameters, 1 M of them used by a token, 5 MB.
    info = done("info", MODEL, "--json").json()
    assert (MODEL / "model.safetensors").stat().st_size <= 5_000_000, "model.safetensors has more than 5 MB"
    text = json.dumps(info)
    total, active = info["parameters"]["total"], info["parameters"]["active"]
    assert total <= 2_500_000 and active <= 1_000_000, text
    for name in MODELS:
        assert (ROOT / "models" / name / "LICENSE").exists() and (ROOT / "models" / name / "README.md").exists()
