"""What a script wrote into a document, for tables of aims: its machine, its commits, and the cells of its tables.

    Block(text, script="bench/swaps.py").row("ten versions pushed")[1]; number("1,234 ms (5)")"""
import re

from performance_page import machine_kind

NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
COMMIT = re.compile(r"\bcommit ([0-9a-f]{7,40})")


def number(cell):
    """The first one in a cell."""
    found = NUMBER.search(cell or "")
    return float(found[0].replace(",", "")) if found else None


class Block:
    """Its tables have their rows as lists of cells, each table under the paragraph before it."""

    def __init__(self, text, script=""):
        self.script, self.text, self.tables, above = script, text, {}, ""
        self.kind = machine_kind(text).replace("(R)", "").replace(" Processor", "")
        self.commits = list(dict.fromkeys(COMMIT.findall(text)))
        measured = re.search(r"^Measured at commit ([0-9a-f]+)", text, re.M)
        self.commit = measured[1] if measured else "not named"
        for line in text.splitlines():
            if line.startswith("| "):
                self.tables.setdefault(above, []).append([cell.strip() for cell in line.strip("|").split("|")])
            elif line and not line.startswith("|---"):
                above = line

    def rows(self, above=""):
        """Of the tables whose paragraph before begins so."""
        return [row for before, rows in self.tables.items() if before.startswith(above) for row in rows]

    def row(self, *begin, above=""):
        """The first row whose cells begin so, and that has more of them."""
        return next((row for row in self.rows(above) if len(row) > len(begin) and all(cell.startswith(word) for cell, word in zip(row, begin))), None)
