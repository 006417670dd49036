"""The arithmetic and the pages of bench/long_rollouts.py and long_prompt.py: prompts of the length that is said, ratios, and verdicts that can be missed."""

import random
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
import long_prompt  # noqa: E402
import long_rollouts  # noqa: E402


@pytest.mark.parametrize("tokens", [long_rollouts.LEAST, 4096])
def test_a_prompt_has_its_tokens_and_asks_for_its_own_records(tokens):
    prompt = long_rollouts.prompt_of(tokens, random.Random(3))
    text, asked = prompt.removesuffix(":").split("?")
    words = re.findall(r" [A-Za-z]+\d*", text)
    assert "".join(words) == text
    records = {word[:-2] for word in words if word[-1].isdigit()}
    assert len(records) == long_rollouts.RECORDS
    assert set(re.findall(r" [A-Za-z]+", asked)) <= records
    assert len(words) + len(records) + long_rollouts.QUESTIONS + 2 == tokens  # the question mark and the colon
    assert long_rollouts.prompt_of(tokens, random.Random(4)) != prompt


def test_rollouts_are_judged_by_the_median_of_rounds():
    rows = [long_rollouts.row_of(length, [((one, 500), (5.0, 510)) for one in seconds]) for length, seconds in ((16384, (6.0, 7.0)), (65536, (8.0, 9.5, 8.5)))]
    assert [row["ratio"] for row in rows] == pytest.approx([1.3, 1.7]) and rows[1]["ratio_range"] == [1.6, 1.9] and rows[1]["tokens"] == [1500, 1530]
    assert "1.70 (missed) (aim 1.8)" in long_rollouts.verdict(rows)[-1]
    assert "1.90 (met)" in long_rollouts.verdict([long_rollouts.row_of(65536, [((9.5, 1), (5.0, 1))])])[-1]
    assert "Not measured at 65,536" in long_rollouts.verdict(rows[:1])[-1]
    assert "| 65,536 | 8.50 | 5.00 | 1.70 (1.60 to 1.90) | 1500 and 1530 |" in long_rollouts.table(rows)


def test_neighbours_of_a_prompt_are_judged_by_the_95th_percentile(monkeypatch):
    monkeypatch.setattr(long_prompt, "machine", lambda: "a machine")
    monkeypatch.setattr(long_prompt, "version", lambda: "lockstep 0")
    alone, beside = ({"tokens": 9, "median_ms": m, "p95_ms": 2 * m, "longest_ms": 3 * m} for m in (5.0, 16.0))
    result = {"tokens": 4096, "streams": 8, "alone": alone, "beside": beside, "p95_times": 3.2, "prompt_done": False, "prompt_seconds_beside": 20.0}
    said = long_prompt.page_text(result, 2)
    assert "3.20 (missed) times that alone (aim 3 at most)" in said and "not through after 20 s" in said and "| beside the prompt | 9 | 16.0 | 32.0 | 48.0 |" in said
    said = long_prompt.page_text(result | {"p95_times": 2.0, "prompt_done": True, "prompt_seconds_alone": 7.0}, 0)
    assert "2.00 (met)" in said and "had its token after 20 s, and alone after 7 s" in said and "all threads" in said
