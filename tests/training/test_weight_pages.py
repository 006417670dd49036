"""What the benchmarks of weights that travel make of their figures: the arithmetic and the words, nothing is measured here."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
import counted_versions  # noqa: E402
import flipped_bits  # noqa: E402
import weight_kills  # noqa: E402

OLD, NEW = "lockstep 0.1.0, commit aaaaaaa1", "lockstep 0.1.0, commit bbbbbbb2"


def test_each_version_has_its_own_count():
    alone = counted_versions.with_this_run(counted_versions.earlier_versions(None, 0), OLD, 0)
    assert alone == [{"version": OLD, "count": 0}]
    first = counted_versions.earlier_versions({"version": OLD}, 627)  # results that name one for all
    assert counted_versions.with_this_run(first, NEW, 627) == first == [{"version": OLD, "count": 627}]
    both = counted_versions.with_this_run(first, NEW, 1000)
    assert both == [{"version": OLD, "count": 627}, {"version": NEW, "count": 373}] and first == [{"version": OLD, "count": 627}]
    assert counted_versions.earlier_versions({"versions": both, "version": "not read"}, 1000) == both
    assert counted_versions.with_this_run(both, OLD, 1001) == [{"version": OLD, "count": 628}, {"version": NEW, "count": 373}]


def test_the_pages_name_every_version_that_counted():
    found = {"kills": 1000, "tried": 1050, "seconds": 6000, "seed": 1, "only": "push,serve", "by_kind": {"push": 400, "serve": 600}, "by_point": {"push by chance": 1, "serve-folder store.record": 2},
             "points_without_kill": [], "versions": [{"version": OLD, "count": 627}, {"version": NEW, "count": 373}]}  # fmt: skip
    text = weight_kills.page_text(found)
    assert text.startswith(f"`bench/weight_kills.py`, {OLD} (627 kills), {NEW} (373 kills): 1000 kills of 1050 tries in 100 minutes"), text
    assert "| `serve` | 600 | 1 |" in text, text
    row = {"model": "m", "tensors": 272, "of": 272, "faults": [], "tried": {"base": 272, "payload": 271, "manifest": 272}}
    text = flipped_bits.page_text([row | {"versions": [{"version": OLD, "count": 76}, {"version": NEW, "count": 196}]}, row | {"model": "n", "version": OLD}])
    assert f"| `m` | 272 of 272 | 272 | 271 | 272 | 0 | {OLD} (76 tensors), {NEW} (196 tensors) |" in text, text
    assert f"| `n` | 272 of 272 | 272 | 271 | 272 | 0 | {OLD} |" in text, text
