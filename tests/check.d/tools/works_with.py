"""The verdicts and the page of bench/works_with.py."""
import copy
import json
import os
import shutil
import stat
import subprocess
import sys

from harness import ROOT, TMP, check

sys.path.insert(0, str(ROOT / "bench"))
import works_with  # noqa: E402
import works_with_page  # noqa: E402

DOCS = ROOT / "docs"
RECIPES = {recipe.name: recipe for recipe in works_with.recipes()}
RESULTS = works_with_page.kept(DOCS)


def verdict(name, **changes):
    return works_with.judge(RECIPES[name], {**copy.deepcopy(RESULTS[name]), **changes}, RESULTS)


with check("the-page-is-what-the-results-say"):
    copied = TMP / "docs"
    copied.mkdir()
    shutil.copy(DOCS / "works-with.json", copied)
    results = works_with_page.kept(copied)
    for name, result in results.items():
        result["failed"] = works_with.judge(RECIPES[name], result, results)
    works_with_page.write(results, works_with.recipes(), copied)
    for path in copied.iterdir():
        assert path.read_bytes() == (DOCS / path.name).read_bytes(), f"docs/{path.name} is not what `bench/works_with.py page` writes"

with check("what-was-asked-nothing-only-ran"):
    text = (DOCS / "works-with.md").read_text()
    for name, recipe in RECIPES.items():
        row = next(line for line in text.splitlines() if line.startswith(f"| {name} |"))
        said = row.split("|")[3].strip()
        assert (said == "ran") == (not recipe.asked()), row
        assert not said.startswith("ok") or said == "ok: " + ", ".join(recipe.asked()), row
        assert (said == "ok: no KL") == (name in ("math_rl gsm8k", "rubric", "twenty_questions")), row  # two of them too short to learn, one without a judge
    assert {name for name, recipe in RECIPES.items() if not recipe.asked()} >= {"rl_loop", "rlhf_pipeline", "rubric.generate_data"}

with check("verdicts"):
    for name in RECIPES:
        assert verdict(name) is None, f"{name}: {verdict(name)}"
    flat = [[step, 1.0] for step in range(50)]
    assert "less than three standard errors" in verdict("chat_sl, sums", curve=flat)
    assert "not a finite number" in verdict("chat_sl, sums", curve=[[step, float("nan") if step == 9 else 9 - step / 9] for step in range(50)])
    assert verdict("arithmetic", curve=RESULTS["arithmetic"]["curve"][:40]) == "took 40 of 80 steps"
    kl = {"steps": 80, "largest": 1e-9, "exactly 0": 79}
    assert "agreed exactly in 79 of 80" in verdict("arithmetic", kl_sample_train_v2=kl)
    assert "agreed exactly in 0" in verdict("math_rl gsm8k", kl_sample_train_v2=None)
    assert "not always 0" in verdict("on_policy_multi_teacher", curve=[[0, 0.0], [1, 1e-7]])
    assert "exit code 1" in verdict("rl_loop", exit=1)

with check("no-commit-no-result"):
    program = TMP / "lockstep"
    program.write_text("#!/bin/sh\necho 'lockstep, commit 0123456789ab-dirty'\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    code = "import importlib.metadata as m; m.version = lambda name: 'x'; import sys, works_with; sys.exit(works_with.main())"
    done = subprocess.run([sys.executable, "-c", code, "run", "--work", str(TMP / "work")], cwd=ROOT / "bench", capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          env={**os.environ, "LOCKSTEP_BINARY": str(program)})
    assert done.returncode == 1 and "built from a tree with changes" in done.stderr, done.stdout + done.stderr
    clean, dirty = ({"lockstep": f"lockstep, commit 0123456789ab{end}"} for end in ("", "-dirty"))
    assert "no commit" in works_with_page.version_line(dirty) and "no commit" not in works_with_page.version_line(clean)
    assert len(json.loads((DOCS / "works-with.json").read_text())["results"]) == len(RECIPES)
