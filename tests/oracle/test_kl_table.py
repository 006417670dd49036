"""What bench/kl_table.py computes: its figures of two lists by hand, a merged folder by its definition, and the page's marks."""

import json
import math
import sys

import make_goldens
import numpy as np
import pytest
from comparison import assert_near, is_near
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


def test_rows_of_an_older_program_are_measured_again_and_programs_are_not_mixed(tmp_path):
    rows = [{"model": m, "row": r, "version": v} for m, r, v in (("a", "fp8", "1, commit old-dirty"), ("a", "int8", "1, commit new"), ("b", "fp8", "1, commit older"))]
    (tmp_path / "kl.json").write_text(json.dumps({"rows": rows}))
    assert kl_table.to_redo(["-dirty"], tmp_path) == {("a", "fp8")}
    assert kl_table.to_redo(["old-dirty", "older"], tmp_path) == {("a", "fp8"), ("b", "fp8")}
    folder = tmp_path / "work" / "a" / "rows"
    folder.mkdir(parents=True)
    (folder / "fp8.json").write_text(json.dumps(rows[1]))
    kl_table.refuse_other_programs(tmp_path / "work", "1, commit new")
    with pytest.raises(SystemExit, match="has rows of 1, commit new, this is 1, commit newer"):
        kl_table.refuse_other_programs(tmp_path / "work", "1, commit newer")


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


def test_experts_in_one_tensor_are_merged_expert_by_expert(tmp_path):
    random = np.random.default_rng(2)
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    base.mkdir(), adapter.mkdir()
    fused, down = random.standard_normal((2, 5, 6)).astype(np.float32), random.standard_normal((2, 3, 5)).astype(np.float32)  # 5 hidden, 3 inside
    name = "model.layers.0.mlp.experts."
    save_file({name + "gate_up_proj": fused, name + "down_proj": down}, base / "model.safetensors")
    (base / "config.json").write_text("{}")
    changes, want_fused, want_down = {}, fused.astype(np.float64), down.astype(np.float64)
    for e in range(2):
        for kind, outputs, inputs in (("gate_proj", 3, 5), ("up_proj", 3, 5), ("down_proj", 5, 3)):
            a, b = random.standard_normal((2, inputs)), random.standard_normal((outputs, 2))
            changes |= {f"base_model.model.{name}{e}.{kind}.lora_{k}.weight": v for k, v in (("A", a), ("B", b))}
            for output in range(outputs):
                delta = 0.5 * (b[output] @ a)
                if kind == "down_proj":
                    want_down[e, :, output] += delta
                else:
                    want_fused[e, :, 2 * output + (kind == "up_proj")] += delta
    save_file(changes, adapter / "adapter_model.safetensors")
    (adapter / "adapter_config.json").write_text(json.dumps({"r": 2, "lora_alpha": 1}))
    merged = load_file(kl_table.merge(base, adapter, tmp_path / "merged") / "model.safetensors")
    assert_near(merged[name + "gate_up_proj"], want_fused, rtol=1e-5, atol=1e-6)
    assert_near(merged[name + "down_proj"], want_down, rtol=1e-5, atol=1e-6)
    assert not is_near(merged[name + "gate_up_proj"], fused, rtol=1e-5, atol=1e-3)


def test_the_page_marks_what_is_above_the_line(tmp_path):
    figures = {"tokens": 20_000, "k1": 0.0, "k2": 0.0, "largest_log_ratio": 0.0, "different_bits": 0, "family": "llama", "note": "n", "what": "w", "model": "m", "version": "v1"}
    rows = [figures | {"row": "own-full", "k3": 0.0}, figures | {"row": "int4", "k3": 0.0123, "different_bits": 5}, figures | {"row": "fp8", "k3": 0.0099, "tokens": 400}]
    kl_page.write(rows, ["m", "other"], tmp_path)
    text = (tmp_path / "kl.md").read_text()
    assert "**0.0123**" in text and "**0.0099**" not in text and "1 of 1 rows have no token with other bits" in text
    assert "but those of m" in text and "Not measured yet: other" in text
    assert json.loads((tmp_path / "kl.json").read_text())["rows"][0]["row"] == "own-full"

    # Later a pair is measured anew and another model for the first time: the rest stays, and each row says with what it was measured.
    kl_page.write([figures | {"row": "int4", "k3": 0.0111, "version": "v2"}, figures | {"model": "other", "row": "own-full", "k3": 0.0, "version": "v2"}], ["m", "other"], tmp_path)
    stored = [(r["model"], r["row"], r["k3"], r["version"]) for r in json.loads((tmp_path / "kl.json").read_text())["rows"]]
    assert stored == [("m", "own-full", 0.0, "v1"), ("m", "fp8", 0.0099, "v1"), ("m", "int4", 0.0111, "v2"), ("other", "own-full", 0.0, "v2")]
    text = (tmp_path / "kl.md").read_text()
    assert "Measured with v1 (2 rows), v2 (2 rows)." in text and "0.0123" not in text and "Not measured yet" not in text


def test_the_page_says_which_families_had_a_shorter_lesson(tmp_path):
    figures = {"tokens": 20_000, "k1": 0.0, "k2": 0.0, "k3": 0.0, "largest_log_ratio": 0.0, "different_bits": 0, "family": "f", "what": "w", "row": "own-full", "version": "v"}
    notes = {"a": "taught Countdown, 300 steps", "b": "taught Countdown, 3,000 steps, then 60 of RL", "c": "taught Countdown, 300 steps", "d": "4 steps on texts"}
    kl_page.write([figures | {"model": m, "note": n} for m, n in notes.items()], list(notes), tmp_path)
    assert "Not every family had the whole lesson: a and c 300 steps, and no" in (tmp_path / "kl.md").read_text()
    kl_page.write([figures | {"model": m, "note": notes["b"]} for m in ("a", "c")], list(notes), tmp_path)  # taught to the end, later
    assert "Not every family" not in (tmp_path / "kl.md").read_text()
