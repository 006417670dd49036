"""The weights that lessons of CI end with: recipes/learned.json, which a lesson's script writes where it is run by hand with --publish."""
import json
import sys

from harness import ROOT

FILE = ROOT / "recipes/learned.json"


def published(name, weights):
    """Whether this lesson ended with the weights that are published; with --publish they are, from now on."""
    known = json.loads(FILE.read_text())
    if "--publish" in sys.argv:
        FILE.write_text(json.dumps(dict(sorted((known | {name: weights}).items())), indent=1) + "\n")
        return
    assert name in known, f"{FILE.name} has no '{name}'; its script writes it with --publish: {weights}"
    assert weights == known[name], f"{name} ends with the weights {weights}, published are {known[name]}"
