"""tools/named_commits.py over this tree, over planted faults, and where git has only a part of the history."""
import json
import os
import subprocess
import sys

from harness import ROOT, TMP, Skip, check

sys.path.insert(0, str(ROOT / "tools"))
import named_commits  # noqa: E402

HERE, THERE, ELSEWHERE = "1234567890ab", "abcdef012345", "fedcba987654"
HISTORY, EARLIER = [HERE + "0" * 28], {THERE: HERE}

with check("commits-that-documents-name"):
    commits = named_commits.history()
    if commits is None:
        raise Skip("git does not have the whole history here")
    found = named_commits.faults(named_commits.documents(), commits, named_commits.earlier_commits())
    assert not found, "\n".join(["documents name commits that are not there", *found])

with check("names-of-commits-are-found"):
    for text, names in ((f"Measured at commit {HERE} by x.", [HERE]), (f"with lockstep 0.1.0, commit {HERE}-dirty (70 rows), lockstep 0.1.0, commit {THERE} (2 rows)", [HERE, THERE]),
                        (f"commit {HERE} and then {THERE}; who begins", [HERE, THERE]), (f"commits `{HERE}` and `{THERE}`", [HERE, THERE]), (f'{{"commit": "{HERE}"}}', [HERE]),
                        (f"its hash is {HERE}, and a commit is one", []), ("a commit added to it", [])):  # fmt: skip
        assert named_commits.named(text) == names, (text, named_commits.named(text))

with check("planted-faults-are-found"):
    said = f"Measured at commit {THERE}. {named_commits.sentence(THERE, HERE)}"
    good = {"a.md": f"{said}\n\nMeasured at commit {HERE[:7]}.", "a.json": f'"commit {THERE}"'}
    faults = lambda documents, commits=HISTORY, earlier=EARLIER: named_commits.faults(documents, commits, earlier)  # noqa: E731
    assert faults(good) == []
    for documents, commits, earlier, words in (
        ({**good, "b.md": f"at commit {ELSEWHERE}"}, HISTORY, EARLIER, ["b.md names commit fedcba987654, which is not in the history"]),
        ({**good, "b.md": f"at commit {THERE}\n{named_commits.sentence(THERE, HERE)}"}, HISTORY, EARLIER, ["b.md names commit abcdef012345 and does not say"]),
        ({"b.md": f"at commit {HERE}"}, HISTORY, EARLIER, ["has abcdef012345, which no document names"]),
        (good, [*HISTORY, THERE + "1" * 28], EARLIER, ["has abcdef012345, which is in the history"]),
        (good, HISTORY, {**EARLIER, THERE: ELSEWHERE}, ["a.md names commit abcdef012345 and does not say", "says fedcba987654, which is not in the history"]),
    ):  # fmt: skip
        found = faults(documents, commits, earlier)
        assert len(found) == len(words) and all(word in one for word, one in zip(words, found)), (found, words)

with check("without-the-whole-history-nothing-is-told"):
    whole, shallow, archive = TMP / "whole", TMP / "shallow", TMP / "archive"
    run = lambda *words: subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@example.com", *map(str, words)], check=True, capture_output=True)  # noqa: E731
    os.environ["GIT_CEILING_DIRECTORIES"] = str(TMP)  # it may stand in this repository
    (whole / "docs").mkdir(parents=True)
    (whole / "docs/a.md").write_text("text")
    (whole / named_commits.EARLIER).write_text("{}")
    run("init", "-q", whole)
    for message in ("first", "second"):
        run("-C", whole, "add", "-A")
        run("-C", whole, "commit", "-q", "--allow-empty", "-m", message)
    run("clone", "-q", "--depth", "1", f"file://{whole}", shallow)
    archive.mkdir()
    assert len(named_commits.history(whole)) == 2 and named_commits.history(shallow) is None and named_commits.history(archive) is None
    # And the sentence is written where it is missing, once.
    (whole / named_commits.EARLIER).write_text(json.dumps(EARLIER))
    (whole / "docs/a.md").write_text(f"text\n\nat commit {THERE}.\n")
    for _ in range(2):
        named_commits.write(whole)
        assert (whole / "docs/a.md").read_text() == f"text\n\nat commit {THERE}. {named_commits.sentence(THERE, HERE)}\n"
