"""A part of a document that a script writes: what stands between `<!-- NAME: begin -->` and `<!-- NAME: end -->`."""
import argparse
import sys
from pathlib import Path


def write_between_marks(document, name, text):
    """Puts `text` there; the program ends with a sentence where the document has no such marks."""
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
    before, found, rest = document.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        sys.exit(f"{document} has no marks of {name}")
    document.write_text(f"{before}{begin}{text}\n{end}{after}")


def page_command(description, name, text):
    """The command line of a script whose whole work is a block: `text()` goes between the marks of `name` in --page FILE, else to the terminal."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=Path)
    page = parser.parse_args().page
    if page:
        write_between_marks(page, name, text())
    else:
        print(text())
