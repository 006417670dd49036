"""What bench/kl_table.py computes: its figures of two lists by hand, a merged folder by its definition, and the page's marks."""

import json
import math
import sys

import make_goldens
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

sys.path.insert(0, str(make_goldens.FOLDER.parents[1] / "bench"))
import kl_page  # noqa: E402
import kl_table  # noqa: E402


def test_figures_by_hand():
    up = float(np.nextafter(np.float32(-0.25), np.float32(0)))
    drawn = [{"logprobs": [-1.0, -2.0]}, {"logprobs": [-0.25]}]
    row = kl_table.compare(drawn, [[-1.0, -1.5], [up]])
    assert (row["tokens"], row["different_bits"]) == (3, 2)
    tiny = up + 0.25
    assert row["k1"] == pytest.approx(-(0.5 + tiny) / 3, rel=1e-12)
    assert row["k2"] == pytest.approx(0.125 / 3, rel=1e-6)
    assert row["k3"] == pytest.approx((math.exp(0.5) - 1.5) / 3, rel=1e-6)
    assert row["largest_log_ratio"] == 0.5
    same = kl_table.compare(drawn, [d["logprobs"] for d in drawn])
    assert [same[key] for key in ("different_bits", "k1", "k2", "k3", "largest_log_ratio")] == [0, 0, 0, 0, 0]


def test_merged_is_the_definition(tmp_path):
    draw = np.random.default_rng(5)
    w, a, b = (draw.standard_normal(shape).astype(np.float32) for shape in ((6, 4), (2, 4), (6, 2)))
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    for folder in (base, adapter):
        folder.mkdir()
    (base / "config.json").write_text("{}")
    save_file({"model.x.weight": w, "model.norm.weight": w[0]}, base / "model.safetensors")
    save_file({"base_model.model.model.x.lora_A.weight": a, "base_model.model.model.x.lora_B.weight": b}, adapter / "adapter_model.safetensors")
    (adapter / "adapter_config.json").write_text(json.dumps({"r": 2, "lora_alpha": 32}))
    merged = load_file(kl_table.merge(base, adapter, tmp_path / "merged") / "model.safetensors")
    want = (w.astype(np.float64) + 16 * (b.astype(np.float64) @ a.astype(np.float64))).astype(np.float32)
    assert np.array_equal(merged["model.x.weight"], want) and np.array_equal(merged["model.norm.weight"], w[0])


def test_the_page_marks_what_is_above_the_line(tmp_path):
    figures = {"tokens": 20_000, "k1": 0.0, "k2": 0.0, "largest_log_ratio": 0.0, "different_bits": 0, "family": "llama", "note": "n", "what": "w", "model": "m"}
    rows = [figures | {"row": "own-full", "k3": 0.0}, figures | {"row": "int4", "k3": 0.0123, "different_bits": 5}, figures | {"row": "fp8", "k3": 0.0099, "tokens": 400}]
    kl_page.write(rows, "v", ["m", "other"], tmp_path)
    text = (tmp_path / "kl.md").read_text()
    assert "**0.0123**" in text and "**0.0099**" not in text and "1 of 1 rows have no token with other bits" in text
    assert "but those of m" in text and "Not measured yet: other" in text
    assert json.loads((tmp_path / "kl.json").read_text())["rows"][0]["row"] == "own-full"
