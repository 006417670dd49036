"""What is shipped is what was last published, with its reason: tools/republish writes the file, the hashes and the note together.

The rebuild itself takes minutes and is not done here: tools/republish --check.
"""
import hashlib
import json
import re

from harness import MODEL, ROOT, check, done

published = {}
with check("published-hashes"):
    published = json.loads((MODEL / "published.json").read_text())
    for name in ("demo", "demo_quick"):
        assert re.fullmatch("[0-9a-f]{64}", published[name]["weights_sha256"]) and published[name]["settings"], published[name]

with check("shipped-model"):
    found = hashlib.sha256((MODEL / "model.safetensors").read_bytes()).hexdigest()
    wanted = published["model"]["safetensors_sha256"]
    assert found == wanted, f"model.safetensors has the SHA-256 {found}, published.json says {wanted}: was it replaced without tools/republish?"

with check("recipe"):
    found = hashlib.sha256((ROOT / published["model"]["recipe"]).read_bytes()).hexdigest()
    assert found == published["model"]["recipe_sha256"], \
        f"{published['model']['recipe']} is not the file that made the model: tools/republish --check, then --why"

with check("note"):
    last = (ROOT / "docs/published.md").read_text().split("\n## ")[-1]
    for hash_ in (published["model"]["safetensors_sha256"], published["demo"]["weights_sha256"], published["demo_quick"]["weights_sha256"]):
        assert hash_ in last, f"the last entry of docs/published.md does not name {hash_}"

with check("limits"):
    # What the shipped model may be at most: 2.5 M parameters, 1 M of them used by a token, 5 MB.
    info = done("info", MODEL, "--json").json()
    assert (MODEL / "model.safetensors").stat().st_size <= 5_000_000, "model.safetensors has more than 5 MB"
    text = json.dumps(info)
    total, active = info["parameters"]["total"], info["parameters"]["active"]
    assert total <= 2_500_000 and active <= 1_000_000, text
    assert (MODEL / "LICENSE").exists() and (MODEL / "README.md").exists()
