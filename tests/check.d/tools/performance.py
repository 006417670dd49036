"""bench/write_performance.py and the page that it writes."""
import argparse
import json
import os
import subprocess
import sys

from harness import ROOT, TMP, check

sys.path.insert(0, str(ROOT / "bench"))
import performance_page  # noqa: E402
import write_performance  # noqa: E402

PAGE = (ROOT / "docs/performance.md").read_text()
WRITE = [sys.executable, "-B", str(ROOT / "bench/write_performance.py")]
GIVES = {  # what the stand-in program answers
    "gemm": {"seconds": {"median": 0.002, "least": 0.001}, "gigabytes_per_second": 20.0},
    "memory": {"gigabytes_per_second": 25.0},
}


def stand_in():
    program = TMP / "lockstep"
    cases = "\n".join(f"  'bench {kind}'*) echo '{json.dumps(row)}' ;;" for kind, row in GIVES.items())
    program.write_text(f"#!/bin/sh\ncase \"$*\" in\n  --version*) printf 'lockstep 1.0, commit abc123\\ninstruction set planted, 2 processors\\n' ;;\n{cases}\n  *) echo \"$*\" >&2; exit 1 ;;\nesac\n")
    program.chmod(0o755)
    return program


with check("the-page-is-what-the-script-writes"):
    write_performance.PAGE = TMP / "page.md"
    write_performance.PAGE.write_text(PAGE)
    write_performance.write_page(TMP)  # from no results
    assert write_performance.PAGE.read_text() == PAGE, "docs/performance.md is not what `bench/write_performance.py --only none` writes"

with check("every-section-has-a-command-that-its-script-takes"):
    done = subprocess.run([*WRITE, "--list"], capture_output=True, text=True)
    assert done.returncode == 0 and len(done.stdout.splitlines()) == len(write_performance.SECTIONS) + 1, done.stdout + done.stderr
    titles = performance_page.sections_of(PAGE)[1]
    options = argparse.Namespace(models=TMP, weights="f32", threads=2, before=TMP / "before")
    for name, section in write_performance.SECTIONS.items():
        assert section.title in titles, f"docs/performance.md has no section '{section.title}'"
        script, *arguments = write_performance.command_of(name, options, 1)
        text = (ROOT / "bench" / script).read_text()
        for option in [a for a in [*arguments, "--json"] if a.startswith("--")]:
            assert f'"{option}"' in text, f"bench/{script} has no {option}"
    done = subprocess.run([*WRITE, "--models", str(TMP), "--only", "bandwith"], capture_output=True, text=True)
    assert done.returncode == 2 and "--only has 'bandwith', allowed are gemm," in done.stderr, done.stderr

with check("a-block-names-its-commit-and-command"):
    os.environ["LOCKSTEP_BINARY"] = str(stand_in())
    section, kept = write_performance.SECTIONS["bandwidth"], TMP / "results"
    kept.mkdir(exist_ok=True)
    options = argparse.Namespace(models=TMP, threads=2, weights="f32", note="", peers="", torch="", trl="", before=None)
    write_performance.measure("bandwidth", options, 2, kept / "bandwidth.json")
    write_performance.write_page(kept)
    page = write_performance.PAGE.read_text()
    blocks = performance_page.blocks_of(performance_page.sections_of(page)[1][section.title])
    new = next(block for block in blocks if "Measured at commit abc123 by `bench/variants.py bandwidth --threads 2 --rounds 2`." in block)
    assert "| f32, M = 1, 2 threads | 25 | 20 | 80% (80% to 80%) |" in new, new
    # Blocks of other kinds of machines stay word for word, and so do the other sections.
    before = performance_page.sections_of(PAGE)[1]
    assert blocks == [*performance_page.blocks_of(before.pop(section.title)), new] and before.items() <= performance_page.sections_of(page)[1].items()
    # A block that names no commit is left out; what follows the first one takes its place, without a heading; and a section without blocks goes.
    assert performance_page.without_unnamed(page) == page
    unsaid = page.replace("Measured at commit abc123", "Said nothing of abc123")
    assert unsaid != page and performance_page.without_unnamed(unsaid) == PAGE
    first, second, *_ = blocks
    unsaid = performance_page.without_unnamed(page.replace(first, first.replace("Measured at commit ", "Said nothing of ")))
    assert performance_page.blocks_of(performance_page.sections_of(unsaid)[1][section.title]) == [performance_page.HEADING.sub("", second), *blocks[2:]]
    assert not performance_page.sections_of(performance_page.without_unnamed(page.replace("Measured at commit ", "Said nothing of ")))[1]
    write_performance.write_page(kept)
    assert write_performance.PAGE.read_text() == page, "written again, the page is another"
    replaced = performance_page.add_block(page, section.title, performance_page.HEADING.sub("", new).replace("abc123", "def456").splitlines(), [])
    assert "abc123" not in replaced and "def456" in replaced and replaced.count("### On ") == page.count("### On ")

with check("a-share-above-the-ruler-is-refused"):
    GIVES["gemm"]["gigabytes_per_second"] = 40.0
    stand_in()
    done = subprocess.run([*WRITE, "--models", str(TMP), "--only", "bandwidth", "--rounds", "1", "--threads", "1"], capture_output=True, text=True)
    assert done.returncode == 1 and "a layer read 1.60 of what the fastest read of memory did" in done.stderr, done.stdout + done.stderr
    assert "bandwidth: not measured" in done.stderr and "Traceback" not in done.stderr and (ROOT / "docs/performance.md").read_text() == PAGE, done.stderr
