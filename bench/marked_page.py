"""A part of a document that a script writes: what stands between `<!-- NAME: begin -->` and `<!-- NAME: end -->`."""
import sys


def write_between_marks(document, name, text):
    """Puts `text` there; the program ends with a sentence where the document has no such marks."""
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
    before, found, rest = document.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        sys.exit(f"{document} has no marks of {name}")
    document.write_text(f"{before}{begin}{text}\n{end}{after}")
