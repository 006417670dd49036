"""What is shipped is what was last published, with its reason: tools/republish writes the files, the hashes and the note together.

The rebuild itself takes minutes and is not done here: tools/republish --check.
"""
import hashlib
import json
import re

from harness import AGENT, MODEL, ROOT, check, done

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
        for part in (told["model"], *told["model"].get("parts", [])):
            found = hashlib.sha256((ROOT / part["recipe"]).read_bytes()).hexdigest()
            assert found == part["recipe_sha256"], f"{part['recipe']} is not the file that made the model: tools/republish --check --model {name}, then --why"

with check("notes"):
    entries = (ROOT / "docs/published.md").read_text().split("\n## ")[1:]
    for name, told in MODELS.items():
        # An entry's heading is its date, and the model's name where that is not the demo's.
        last = [entry for entry in entries if entry.splitlines()[0].endswith(f", {name}") or (name == MODEL.name and "," not in entry.splitlines()[0])][-1]
        for hash_ in (told["model"]["safetensors_sha256"], *(told[demo]["weights_sha256"] for demo in ("demo", "demo_quick") if demo in told)):
            assert hash_ in last, f"the last entry of docs/published.md on {name} does not name {hash_}"

with check("limits"):
    # What the shipped model may be at most: 2.5 M parameters, 1 M of them used by a token, 5 MB.
    info = done("info", MODEL, "--json").json()
    assert (MODEL / "model.safetensors").stat().st_size <= 5_000_000, "model.safetensors has more than 5 MB"
    text = json.dumps(info)
    total, active = info["parameters"]["total"], info["parameters"]["active"]
    assert total <= 2_500_000 and active <= 1_000_000, text
    for name in MODELS:
        assert (ROOT / "models" / name / "LICENSE").exists() and (ROOT / "models" / name / "README.md").exists()
