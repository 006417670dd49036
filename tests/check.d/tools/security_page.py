"""SECURITY.md over this tree, and over planted faults."""
import re

from harness import ROOT, check

TEST = re.compile(r"^TEST(?:_F|_P)?\((\w+), *(\w+)", re.M)


def tests_in_the_tree():
    """(Suite.Test of C++, file.py::test of Python)."""
    sources = [path.read_text() for folder in ("src", "tests") for path in (ROOT / folder).rglob("*_test.cpp")]
    python = {f"{path.name}::{name}" for path in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"^ *(?:async )?def (test_\w+)", path.read_text(), re.M)}
    return {f"{suite}.{name}" for text in sources for suite, name in TEST.findall(text)}, python


def faults(page, cpp, python, exists):
    """What is wrong with the rows of its tables, as sentences."""
    found, suites, files = [], {name.partition(".")[0] for name in cpp}, {name.partition("::")[0] for name in python}
    rows = [row.strip("|").split("|") for row in re.findall(r"^\| .*\|$", page, re.M)]
    for promise, shown in (row for row in rows if row[0].strip() != "promise"):
        names, file = re.findall(r"`([^`]+)`", shown), ""
        if not names:
            found.append(f"nothing shows '{promise.strip()}'")
        for name in names:
            if name.startswith("::"):  # of the file before
                name = file + name
            file = name.partition("::")[0] if ".py" in name else file
            if re.fullmatch(r"[A-Z]\w+\.(\w+|\*)", name):
                good = name.partition(".")[0] in suites if name.endswith("*") else name in cpp
            elif re.fullmatch(r"[\w/]*test_\w+\.py(::\w+)?", name):
                last = name.rpartition("/")[2]
                good = last in python if "::" in last else last in files
            else:
                good = "/" not in name or " " in name or exists(name)  # commands show something too
            if not good:
                found.append(f"it names {name}, which is not there")
    return found


with check("what-shows-a-promise-is-there"):
    page, (cpp, python) = (ROOT / "SECURITY.md").read_text(), tests_in_the_tree()
    wrong = faults(page, cpp, python, lambda name: (ROOT / name).exists())
    assert not wrong, "\n".join(["SECURITY.md:", *wrong])
    assert len(re.findall(r"^\| .*\|$", page, re.M)) > 20 and len(cpp) > 1000 and len(python) > 500, "the page or the tree was not read"

with check("planted-faults-are-found"):
    head, cpp, python = "| promise | shown by |\n|---|---|\n", {"Box.Opens"}, {"test_box.py::test_lid"}
    good = head + "| p | `Box.Opens`, `Box.*`, `tests/api/test_box.py`, `test_box.py::test_lid`, `::test_lid`, `src/box.cpp`, `lockstep parity` |\n"
    assert faults(good, cpp, python, lambda name: name == "src/box.cpp") == []
    for shown, said in (("`Box.Shuts`", "names Box.Shuts"), ("`Crate.*`", "names Crate.*"), ("`test_crate.py`", "names test_crate.py"), ("`test_box.py::test_key`", "names test_box.py::test_key"),
                        ("`test_box.py`, `::test_key`", "names test_box.py::test_key"), ("`src/crate.cpp`", "names src/crate.cpp"), ("some tests", "nothing shows 'p'")):  # fmt: skip
        found = faults(head + f"| p | {shown} |\n", cpp, python, lambda name: name == "src/box.cpp")
        assert len(found) == 1 and said in found[0], (shown, found)
