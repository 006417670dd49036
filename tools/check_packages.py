#!/usr/bin/env python3
"""Checks that every package of tools/*packages.txt is used: its line `PACKAGE  # PLACE: TEXT` says where, and TEXT must be in PLACE, a file or
any file of a folder. Prints a line for each package that is unused, and one line PASS or FAIL. --self-test plants lines that must be found.
"""
import sys
import tempfile
from pathlib import Path


def unused(root):
    """(packages, what is wrong)."""
    count, wrong = 0, []
    for listing in sorted((root / "tools").glob("*packages.txt")):
        for number, line in enumerate(listing.read_text().splitlines(), 1):
            package, _, need = (part.strip() for part in line.partition("#"))
            if not package:
                continue
            count += 1
            at = f"tools/{listing.name}:{number}: {package}"
            place, _, text = (part.strip() for part in need.partition(": "))
            if not text:
                wrong.append(f"{at}: does not say what needs it; write `{package}  # PLACE: TEXT`, where TEXT stands in the file or folder PLACE")
            elif not (root / place).exists():
                wrong.append(f"{at}: {place} does not exist")
            else:
                files = [root / place] if (root / place).is_file() else [p for p in (root / place).rglob("*") if p.is_file()]
                if not any(text in p.read_text(errors="replace") for p in files):
                    wrong.append(f"{at}: '{text}' stands nowhere in {place}; drop the package, or say what needs it now")
    return count, wrong


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, text in {"src/a.h": "#include <used.h>\n", "tools/packages.txt": "used # src: <used.h>\n# a remark\nnothing-said\n",
                           "tools/more-packages.txt": "unused # src: <unused.h>\nelsewhere # lib: x\nexact # src/a.h: <used.h>\n"}.items():
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_text(text)
        count, wrong = unused(root)
    found = [w.split(": ")[1] for w in wrong]
    good = count == 5 and found == ["unused", "elsewhere", "nothing-said"]
    print(f"{'PASS' if good else 'FAIL'} self-test found: {', '.join(found)}")
    return not good


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    count, wrong = unused(Path(__file__).resolve().parent.parent)
    for line in wrong:
        print(line)
    print(f"{'FAIL' if wrong else 'PASS'} used {count} packages are listed, {len(wrong)} of them not used")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
