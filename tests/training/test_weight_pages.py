"""What the benchmarks of weights that travel make of their figures: the arithmetic and the words, nothing is measured here."""
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
import ci_costs  # noqa: E402
import counted_versions  # noqa: E402
import delta_codec  # noqa: E402
import flipped_bits  # noqa: E402
import marked_page  # noqa: E402
import published_run  # noqa: E402
import regions  # noqa: E402
import runs_in_turns  # noqa: E402
import weight_bars  # noqa: E402
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


def rl_row(**more):
    return {"reward": 0.0, "tokens": 9, "loss": 0.5, "gradient_norm": 2.0, **more}


def taken(*seconds):
    return {step: {"seconds": one, "processor_seconds": 2 * one} for step, one in enumerate(seconds, 2)}


def test_publishing_costs_what_the_same_steps_took_longer():
    control, published = [rl_row()] * 6, [rl_row()] * 9
    # Each step a tenth longer, but for one; a step that the control was not measured in is not looked at.
    cost = published_run.cost_of_publishing(published, control, taken(8.8, 11, 13.2, 90, 5.5, 500), taken(8, 10, 12, 30, 5))
    assert cost["control_steps"] == 5 and cost["control_seconds"] == 10 and cost["published_seconds"] == 11 and cost["publishing_percent"] == pytest.approx(10)
    assert cost["control_processor_seconds"] == 20 and cost["more_processor_seconds_percent"][1] == pytest.approx(10)
    with pytest.raises(SystemExit, match="3 steps were measured with publishing and without"):
        published_run.cost_of_publishing(published, control, taken(8.8, 11, 13.2), taken(8, 10, 12, 30))
    for key in ("reward", "tokens", "loss", "gradient_norm"):  # arms that did not do the same are compared by nobody
        with pytest.raises(SystemExit, match=f"step 2 has another {key}"):
            published_run.cost_of_publishing([published[0], published[1] | {key: 1.5}, *published[2:]], control, taken(8, 8, 8, 8), taken(8, 8, 8, 8))


STEPS_OF_A_RUN = """import json, sys, time
name, steps, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
for step in range(1, steps + 1):
    begun = time.process_time()
    while time.process_time() - begun < 0.3:
        pass
    with open(folder + "/work", "a") as file:
        file.write(name)
    with open(f"{folder}/{name}/metrics.jsonl", "a") as file:
        file.write(json.dumps({"step": step}) + "\\n")
"""


def test_runs_take_turns_and_are_measured_while_they_run(tmp_path):
    runs = []
    for name, steps in (("a", 4), ("b", 8)):
        (tmp_path / name).mkdir()
        runs.append(runs_in_turns.Run(name, [sys.executable, "-c", STEPS_OF_A_RUN, name, steps, tmp_path], tmp_path / name, tmp_path / f"{name}.steps"))
    runs_in_turns.in_turns(runs, time.monotonic() + 60)
    work = (tmp_path / "work").read_text()
    assert sorted(work) == list("aaaabbbbbbbb") and work.startswith(("abab", "abba", "baab")), work
    steps = runs_in_turns.measured_steps(tmp_path / "b.steps")
    assert steps and set(steps) <= set(range(2, 9)), steps  # the first has the start in it
    assert all(0.15 <= row["processor_seconds"] <= 0.9 for row in steps.values()), steps
    with pytest.raises(SystemExit, match="fails ended with status 3"):
        runs_in_turns.in_turns([runs_in_turns.Run("fails", [sys.executable, "-c", "raise SystemExit(3)"], tmp_path, tmp_path / "steps")], time.monotonic() + 60)
    with pytest.raises(runs_in_turns.TimeIsUp):
        runs_in_turns.in_turns([runs_in_turns.Run("sleeps", [sys.executable, "-c", "import time; time.sleep(60)"], tmp_path, tmp_path / "steps")], time.monotonic() + 0.5)


def real_run(**more):
    step = {"percent": 99.5, "bytes": 4e5, "publish_seconds": 0.1, "reward": 0.0}
    return {"steps": [step] * 50, "least_equal_percent": 99.4, "mean_equal_percent": 99.8, "uplink_percent": 2.1, "uplink_bytes": 3e8, "first_bytes": 2.8e8, "version": OLD, "machine": "M.", "threads": 2, "beside": "",
            "rollouts": 8, "taught_steps": 40, "control_steps": 20, "control_seconds": 24.0, "published_seconds": 24.6, "publishing_percent": 2.5,
            "more_seconds_percent": [1.0, more.get("publishing_percent", 2.5), 3.5], "control_processor_seconds": 47.0, "published_processor_seconds": 47.5, "more_processor_seconds_percent": [0.5, 1.1, 1.5], "rewarded_steps": 0, **more}  # fmt: skip


def test_a_real_run_says_when_no_answer_was_right_and_when_publishing_cost_too_much():
    text = published_run.page_text(real_run(), "run.svg")
    assert "of 20 steps | 2.5 % (1.0 to 3.5 %; 24.60 s over 24.00 s) | at most 3 % |" in text and "processors | 1.1 % (0.5 to 1.5 %; 47.50 s over 47.00 s) | |" in text and "No answer of the 50 steps was right" in text and "aim is missed" not in text, text
    text = published_run.page_text(real_run(rewarded_steps=1, publishing_percent=3.1), "run.svg")
    assert "No answer" not in text and "The third aim is missed." in text, text


def test_a_run_whose_program_nobody_knows_is_refused(tmp_path):
    options = SimpleNamespace(work=tmp_path)
    (tmp_path / "control.versions").write_text(f"{OLD}\n")
    with pytest.raises(SystemExit, match=r"has no published\.versions"):
        published_run.versions_of(options, "control", "published")
    (tmp_path / "published.versions").write_text(f"{OLD}\n{NEW}\n{NEW}\n")
    assert published_run.versions_of(options, "control", "published") == f"{OLD} and {NEW}"


def fleet_run(**cut):
    """What bench/regions.py finds where all is well."""
    seconds = {"near-1": 0.6, "near-2": 0.7, "far-1": 1.7}
    return {"model": "m", "version": OLD, "machine": "M.", "beside": "", "near": regions.NEAR, "far": regions.FAR, "steps": [{"bytes": 8000, "full_bytes": 1_000_000, "seconds": seconds}] * 3,
            "at once": {"steps": 3, "pushing": 2.0, "seconds": {"near-1": 11.9, "near-2": 5.0, "far-1": 99.0}}, "wires": {"near": {"lost": 1, "packets": 100, "cut": 0}, "far": {"lost": 3, "packets": 50, "cut": 9}},
            "cut": {"seconds_of_cut": 30, "in_the_download": True, "share": 0.05, "bytes": 7_000_000, "before": 2_000_000, "came": 11_000_000, "seconds": seconds, "errors": 1.0, **cut}, "equal": True,
            "fleet": {"ready": True, "replicas": 3}}  # fmt: skip


def test_bytes_that_come_again_over_the_cut_are_counted():
    assert regions.faults_of(fleet_run()) == []
    for cut, word in (({"came": 11_194_305}, "allowed are 4194304 more"), ({"came": 6_999_999}, "they were not counted"), ({"in_the_download": False}, "in no download")):
        (wrong,) = regions.faults_of(fleet_run(**cut))
        assert word in wrong, wrong
    late = fleet_run()
    late["at once"]["pushing"] = 1.8
    (wrong,) = regions.faults_of(late)
    assert wrong == "near-1 had 3 steps 10.1 s after the last was pushed"


def test_the_page_of_regions_has_a_model_a_run_with_its_version():
    text = regions.page_text([fleet_run(), fleet_run() | {"model": "n", "version": NEW, "beside": "a build"}])
    assert text.startswith("By `bench/regions.py`. Machine: M. Machine: M. Beside it: a build.\n\n| model |"), text
    assert "| m | far-1 | 120 ms, 3 % each way, 5 | 1.70 (1.70) | 3: 99.0 (2.0 of them making and pushing) | 1.7, 30 of them cut |" in text, text
    assert f"`n`, {NEW}: a step is 8000 bytes of 1000000; the large one, of 5 % of the weights, 7000000." in text and "when the replica was ready, 11000000: its payload and at most 4 MB" in text, text


def test_bytes_of_a_piece_tell_that_a_download_is_on_its_way(tmp_path):
    assert not regions.some_came(tmp_path / "none") and not regions.some_came(tmp_path)
    (tmp_path / "object.have").write_bytes(bytes(8))
    assert not regions.some_came(tmp_path)
    (tmp_path / "object.have").write_bytes(bytes(4) + bytes([0, 1, 0, 0]))
    assert regions.some_came(tmp_path)


def test_two_threads_of_the_codec_are_compared_by_one_clock():
    one = {"pair": "1 step", "codec": "lockstep", "changed_percent": 0.3, "percent": 0.157, "threads": 1}
    for key in ("encode_", "decode_", "encode_digests_", "decode_digests_"):
        one |= {f"{key}gb_s": 2.0, f"{key}gb_s_a_processor": 4.0}
    two = one | {"threads": 2, "encode_gb_s": 3.5, "decode_gb_s": 3.0, "encode_digests_gb_s": 3.4, "decode_digests_gb_s": 3.3}
    two |= {f"{key}_gb_s_a_processor": 1.0 for key in ("encode", "decode")}  # not read
    text = delta_codec.page_text([one, two, {"pair": "1 step", "codec": "arc_v3", "percent": 0.314, "encode_gb_s_a_processor": 0.04}], "By x.", "a build")
    assert text.startswith("By x. Beside it: a build.\n") and "| 1 step | 0.30 % | lockstep | 0.157 % | 0.50 | 4.0 (3.5) | 4.0 (3.0) | 1.75, 1.50 |" in text, text
    assert "| lockstep, with the digests of base and result | 0.157 % | 0.50 | 4.0 (3.4) | 4.0 (3.3) | 1.70, 1.65 |" in text, text
    met, missed = text.split("Aims of speed that are met: ")[1].split("\n\nMissed: ")
    assert "encoding after 1 step: 4.0 GB/s of 4;" in met and "two threads encoding with digests after 1 step: 1.70 times one of 1.7" in met and "decoding with digests after 1 step: 4.0 GB/s of 2.5" in met, met
    assert missed == "two threads decoding after 1 step: 1.50 times one of 1.7; two threads decoding with digests after 1 step: 1.65 times one of 1.7.", missed


def test_costs_of_one_subject_are_summed():
    log = """cost   100.0 s  unit/test_sync (60.0 s of a processor)
cost    50.0 s  training/test_snapshot_mirror.py
cost    10.0 s  api/test_deployments_gate.py
cost   400.0 s  unit/test_jobs (399.0 s of a processor)
cost    70.0 s  tests of the family snapshot, in the rows above
cost   700.0 s  tests in Python, training (600.0 s of a processor)
"""
    text = ci_costs.of_subject(log, "weights", "By x.", "a build")
    assert text.startswith("By x. Beside it: a build. Checks of snapshots, fleets, deployments and held streams, in seconds of a processor, or of the clock for files in Python: 120, of which"), text
    assert "1.0 minutes longer for them; 7 are allowed: met." in text and "| `unit/test_sync` | 60 |\n| `training/test_snapshot_mirror.py` | 50 |\n| `api/test_deployments_gate.py` | 10 |" in text, text
    assert "`script/snapshot`" in text.rpartition("less than a second: ")[2] and "test_jobs" not in text and "`unit/test_sync`" not in text.rpartition("less than a second: ")[2], text
    assert "missed" in ci_costs.of_subject(log.replace(" 50.0 s  training", "800.0 s  training"), "weights", "By x.", "")
    tests = Path(__file__).resolve().parents[1]
    for pattern in (pattern for _, _, patterns in ci_costs.SUBJECTS.values() for pattern in patterns):  # each names something
        folder, _, name = pattern.partition("/")
        there = {"unit": lambda: (tests.parent / "src" / name.removeprefix("test_")).is_dir(), "script": lambda: (tests / f"check.d/{name}.sh").is_file()}.get(folder, lambda: list((tests / folder).glob(name)))()
        assert there, pattern


ROOT = Path(__file__).resolve().parents[2]


def test_the_table_of_aims_is_made_of_the_blocks_as_they_stand():
    found = weight_bars.block_of(ROOT, "docs/weight-sync.md", "bench/weight_bars.py").text
    assert found == "\n".join(weight_bars.table(ROOT)), "docs/weight-sync.md has newer blocks than its table of aims: bench/weight_bars.py --page docs/weight-sync.md"


def test_each_aim_is_met_missed_or_not_measured(tmp_path):
    """Over blocks as today's scripts write them."""
    one = {"pair": "1 step", "codec": "lockstep", "changed_percent": 0.3, "percent": 0.157, "threads": 1}
    for key in ("encode_", "decode_", "encode_digests_", "decode_digests_"):
        one |= {f"{key}gb_s": 4.0, f"{key}gb_s_a_processor": 4.0}
    rows = []
    for pair, percent in (("1 step", 0.157), ("4 steps", 0.426)):
        first = one | {"pair": pair, "percent": percent}
        rows += [first, first | {"threads": 2} | {key: 7.0 for key in one if key.endswith("gb_s")}, {"pair": pair, "codec": "arc_v3", "percent": 2 * percent}]
    blocks = {"bench/delta_codec.py": delta_codec.page_text(rows, f"By `bench/delta_codec.py`, {NEW}.", ""), "bench/published_run.py": published_run.page_text(real_run(), "run.svg"),
              "bench/regions.py": regions.page_text([fleet_run(), fleet_run() | {"model": "n", "version": NEW}])}  # fmt: skip

    def written(**changed):
        docs = tmp_path / "docs"
        docs.mkdir(exist_ok=True)
        for name in ("weight-sync", "tenants", "ci", "rl"):
            (docs / f"{name}.md").write_text((ROOT / f"docs/{name}.md").read_text())
        for script, text in {**blocks, **changed}.items():
            marked_page.write_between_marks(docs / "weight-sync.md", script, text)
        return {line.split(" | ")[0].removeprefix("| "): [cell.strip() for cell in line.strip("|").split("|")][1:] for line in weight_bars.table(tmp_path)[2:]}

    table = written()
    assert table["bytes of a delta after 4 steps, of the full ones"] == ["at most 0.60 %", "0.426 %", "met", "`bench/delta_codec.py`", "bbbbbbb2"]
    assert table["two threads over one, by the clock: encoding, decoding, each"][1:3] == ["1.75, 1.75; 1.75, 1.75; 1.75, 1.75; 1.75, 1.75", "met"]
    assert table["publishing, of a step"][1:3] == ["2.5 %", "met"] and table["publishing, of a step"][4] == "aaaaaaa1"
    assert table["the slow region ready after a step: median (most)"][1:] == ["m 1.70 (1.70) s, n 1.70 (1.70) s", "met", "`bench/regions.py`", "aaaaaaa1, bbbbbbb2"]
    table = written(**{"bench/published_run.py": published_run.page_text(real_run(publishing_percent=3.1, least_equal_percent=97.9), "run.svg"), "bench/delta_codec.py": "nothing"})
    assert table["publishing, of a step"][2] == "missed" and table["bf16 weights with the bits of the step before, the least of 50 steps"][2] == "missed"
    assert table["bytes of a delta after 1 step, of the full ones"][1:] == ["", "not measured", "`bench/delta_codec.py`", "not named"]
