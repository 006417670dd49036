#!/usr/bin/env python3
"""Makes docs/works-with-clients.md from tests/api/test_clients.py, so that the page shows what CI runs. --check: fails if the page differs.

    python3 tools/make_clients_page.py
"""
import ast
import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS, PAGE = ROOT / "tests/api/test_clients.py", ROOT / "docs/works-with-clients.md"
HEAD = """# Client libraries that work unchanged

Each example runs in CI as it stands, against `lockstep serve`, with the version named. `url` is `http://127.0.0.1:8080/v1`, `MODEL` the name that
`GET /v1/models` tells. The page is made of `tests/api/test_clients.py` by `tools/make_clients_page.py`.

The examples share:

```python
{shared}
```
"""


def page():
    source = TESTS.read_text()
    tree = ast.parse(source)
    listed = "".join((ROOT / "tools" / name).read_text() for name in ("oracle-requirements.txt", "oracle-requirements-alone.txt"))
    versions = dict(re.findall(r"^([\w.-]+?)(?:\[\w+\])?==(\S+)$", listed, re.MULTILINE))
    shared = [ast.get_source_segment(source, node) for node in tree.body
              if isinstance(node, ast.ClassDef) and node.name == "Pair" or isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "ADD_PARAMETERS"]
    parts = [HEAD.format(shared="\n\n".join(shared))]
    for group in (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name.startswith("Test")):
        library = ast.get_docstring(group).strip("`")
        version = versions.get(library) or versions[library + "-slim"]
        parts.append(f"## {library} {version}\n")
        for test in (node for node in group.body if isinstance(node, ast.FunctionDef)):
            lines = source.splitlines()[test.lineno:test.end_lineno]
            title = test.name.removeprefix("test_").replace("_", " ").capitalize()
            parts.append(f"{title}:\n\n```python\n{textwrap.dedent(chr(10).join(lines))}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        if page() != PAGE.read_text():
            sys.exit(f"{PAGE.relative_to(ROOT)} is not what tests/api/test_clients.py makes; run tools/make_clients_page.py")
    else:
        PAGE.write_text(page())
