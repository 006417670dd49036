#!/usr/bin/env python3
"""The commits that documents name, such as those that a figure was measured at: each is in this repository's history, or stands in
docs/earlier-commits.json, and then a sentence beside it says so.

    tools/named_commits.py            what is wrong, a line each; status 1 if anything is
    tools/named_commits.py --write    adds that sentence where it is missing

docs/earlier-commits.json: commits of an earlier history, each with the commit of this one that its figures came in with. Where git has only a part of the
history (a shallow clone, an unpacked archive) nothing can be told: status 0, and a line that says so.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EARLIER = "docs/earlier-commits.json"
_HASH = r"`?[0-9a-f]{7,40}`?(?:-dirty)?"
_NAMED = re.compile(rf'(?:\b[Cc]ommits? |"commit": "){_HASH}(?:,? (?:and |then |to |or )+{_HASH})*')


def earlier_commits(root=ROOT):
    return json.loads((root / EARLIER).read_text())


def sentence(commit, came_with):
    return f"Commit {commit} is of an earlier history, which this repository does not have; its figures came in with commit {came_with}."


def sentences(text, root=ROOT):
    """Of the commits of an earlier history that a text names and says nothing about, for whoever writes a page."""
    return [sentence(commit, came_with) for commit, came_with in earlier_commits(root).items() if commit in named(text) and sentence(commit, came_with) not in text]


def named(text):
    """The commits that a text names, in its order."""
    return list(dict.fromkeys(commit for place in _NAMED.findall(text) for commit in re.findall(r"(?<![0-9a-z])[0-9a-f]{7,40}(?![0-9a-z])", place)))


def git(root, *words):
    done = subprocess.run(["git", "-C", str(root), *words], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return done.stdout.split() if done.returncode == 0 else None


def history(root=ROOT):
    """Every commit from HEAD back; None where git does not have them all."""
    return git(root, "rev-list", "HEAD") if git(root, "rev-parse", "--is-shallow-repository") == ["false"] else None


def faults(documents, commits, earlier):
    """What is wrong, as sentences. `documents`: {name: text}; `commits`: whole names; `earlier`: as in the file."""
    found, seen = [], set()
    exists = lambda commit: any(one.startswith(commit) for one in commits)  # noqa: E731
    for name, text in documents.items():
        for line in text.splitlines() if name.endswith(".md") else [text]:
            for commit in named(line):
                seen.add(commit)
                if commit in earlier:
                    if name.endswith(".md") and sentence(commit, earlier[commit]) not in line:
                        found.append(f"{name} names commit {commit} and does not say that it is of an earlier history: tools/named_commits.py --write")
                elif not exists(commit):
                    found.append(f"{name} names commit {commit}, which is not in the history of HEAD. Under another name? Else put it into {EARLIER}")
    found += [f"{EARLIER} has {commit}, which no document names" for commit in earlier if commit not in seen]
    found += [f"{EARLIER} has {commit}, which is in the history of HEAD" for commit in earlier if exists(commit)]
    return list(dict.fromkeys(found + [f"{EARLIER} says {came_with}, which is not in the history of HEAD" for came_with in earlier.values() if not exists(came_with)]))


def documents(root=ROOT):
    files = git(root, "ls-files", "*.md", "docs/*.json") or []
    return {name: (root / name).read_text() for name in files if name != EARLIER and (root / name).is_file()}


def write(root=ROOT):
    for name, text in documents(root).items():
        if name.endswith(".md"):
            lines = [" ".join([line, *sentences(line, root)]) for line in text.split("\n")]
            if lines != text.split("\n"):
                (root / name).write_text("\n".join(lines))


def main():
    if sys.argv[1:] not in ([], ["--write"]):
        sys.exit(__doc__)
    if sys.argv[1:]:
        write()
    commits = history()
    if commits is None:
        return print("git does not have the whole history here")
    found = faults(documents(), commits, earlier_commits())
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
