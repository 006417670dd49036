"""bench/first_piece.py: it measures a real server, whose pieces have the bits of the gathered batch; one other bit ends it; its page says what was reached."""
import argparse
import json
import sys

import pytest
from conftest import MODEL, REPOSITORY

sys.path.insert(0, str(REPOSITORY / "bench"))
import first_piece  # noqa: E402

SMALL = ["--model", str(MODEL), "--layouts", "pp=2", "--pieces", "2", "--sequences", "1", "--tokens", "16", "--rounds", "1"]


def test_it_measures_a_server_and_compares_bits(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text("<!-- first_piece: begin -->\nNot measured yet.\n<!-- first_piece: end -->\n")
    monkeypatch.setattr(sys, "argv", ["first_piece", *SMALL, "--json", str(tmp_path / "row.json"), "--page", str(page)])
    first_piece.main()
    [row] = json.loads((tmp_path / "row.json").read_text())["table"]
    assert row["ranks"] == "pp=2" and min(row["first"], row["last"], row["gathered"]) > 0, row
    assert "| `pp=2` |" in page.read_text() and "countdown-glm, 2 pieces of 1 x 16 tokens" in page.read_text()
    # The control: another piece has other bits.
    whole = first_piece.gathered
    monkeypatch.setattr(first_piece, "gathered", lambda client, pieces: whole(client, [pieces[0], pieces[0]]))
    with pytest.raises(SystemExit, match="other bits"):
        first_piece.main()


def test_the_page_says_what_was_reached():
    options = argparse.Namespace(model=str(MODEL), pieces=8, sequences=4, tokens=128, threads=2, rounds=5)
    rows = [{"ranks": name, "gathered": 1.0, "first": share, "last": 1.1, "share": share} for name, share in (("one", 0.25), ("pp=2", 0.26))]
    text = first_piece.page_text(options, rows)
    assert "| `one` | 1.000 | 0.250 | 0.25 | 1.100 | at most 0.25: met |" in text and text.endswith("| 1.100 | at most 0.25: missed |"), text
