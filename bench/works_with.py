#!/usr/bin/env python3
"""Runs recipes of tinker-cookbook, unchanged, against `lockstep serve --training`, and writes docs/works-with.md of what came out.

    bench/works_with.py run --work FOLDER [--smollm2 FOLDER] [--threads 2] [--again] [RECIPE...]
    bench/works_with.py page [--work FOLDER]
    bench/works_with.py list

run: each recipe is `python -m tinker_cookbook.recipes.NAME` in FOLDER, with the environment that a user would set and nothing patched. Recipes
that are done are left alone unless they are named or --again is given; one file of results a recipe. Run it with the Python of an environment
made from tools/oracle-requirements.txt and, without dependencies, tools/oracle-requirements-alone.txt.
A binary that was built from a tree with changes is refused; --dirty runs it, and the page marks its results.
page: docs/works-with.md, its plots and docs/works-with.json, from the results that FOLDER has; what docs/works-with.json has of other recipes
stays (without FOLDER: of all), judged by what is asked now, and the page says of which versions each result is. Ctrl-C stops a run and keeps the result so far, which the page calls that.
"""

import argparse
import importlib.metadata
import json
import math
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import works_with_base
import works_with_page
from started_server import StartedServer
from works_with_recipes import recipes

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ["tinker-cookbook", "tinker", "torch", "transformers", "datasets"]
KL = ["optim/kl_sample_train_v1", "optim/kl_sample_train_v2"]


def binary():
    return os.environ.get("LOCKSTEP_BINARY", str(ROOT / "build/lockstep"))


class Server(StartedServer):
    """`lockstep serve --training` on the base, its access log in `log`."""

    def __init__(self, work, model, name, threads):
        log = work / f"server-{name}.log"
        command = [binary(), "serve", "--training", "--model", str(model), "--name", name, "--state", str(work / f"state-{name}"), "--port", "0", "--log-format", "json",
                   "--threads", str(threads), *(word for alias in works_with_base.ALIASES for word in ("--alias", alias))]  # fmt: skip
        self.errors = log.open("a")
        self.log = log
        try:
            super().__init__(command, stderr=self.errors)
        except RuntimeError as why:
            sys.exit(f"{why}; see {log}")

    def statuses(self, since):
        """How often each refusing status was answered, since that place in the log; the places of lines."""
        self.errors.flush()
        counts = {}
        with self.log.open() as lines:
            lines.seek(since)
            for line in lines:
                found = re.search(r'"status":\s*"?(\d+)', line)
                if found and int(found[1]) >= 400 and found[1] != "408":  # 408: a poll that ended before its result, as the protocol has it
                    counts[found[1]] = counts.get(found[1], 0) + 1
        return counts

    def stop(self):
        try:
            return super().stop()
        finally:
            self.errors.close()


def environment(work, url):
    empty = work / "empty"
    empty.mkdir(exist_ok=True)
    return {**os.environ, "TINKER_BASE_URL": url, "TINKER_API_KEY": "tml-dummy", "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(empty),
            "WANDB_MODE": "disabled", "TINKER_COOKBOOK_RUNS_DIR": str(work / "logs"), "TOKENIZERS_PARALLELISM": "false"}  # fmt: skip


def file_name(recipe_name):
    return re.sub(r"\W+", "-", recipe_name)


def folder_of(work, recipe):
    """The recipe's log folder; one that resumes another uses that one's."""
    return work / "logs" / file_name(recipe.resumes or recipe.name)


def arguments_of(work, recipe):
    import tinker_cookbook

    def checkpoint(found):
        key = f"{found[1]}_path"
        of = next(r for r in recipes() if r.name == found[2])
        saved = [json.loads(line) for line in (folder_of(work, of) / "checkpoints.jsonl").read_text().splitlines()]
        return [line[key] for line in saved if line.get(key)][-1]

    text = recipe.arguments.replace("{package}", str(Path(tinker_cookbook.__file__).parent))
    arguments = shlex.split(re.sub(r"\{(state|sampler):([^}]*)\}", checkpoint, text))
    if recipe.logs:
        arguments.append(f"log_path={folder_of(work, recipe)}")
        # Recipes without this option are the loops, which just append to their folder.
        if "behavior_if" not in recipe.arguments and recipe.module not in ("sl_loop", "rl_loop"):
            arguments.append("behavior_if_log_dir_exists=delete")
    return arguments


def metrics_of(folder):
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.is_file() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]  # the last one may be in the writing


def wait(process, folder, recipe):
    """The recipe's exit code, or "stopped" if this program was interrupted meanwhile."""
    try:
        return wait_undisturbed(process, folder, recipe)
    except KeyboardInterrupt:
        process.kill()
        process.wait()
        return "stopped"


def wait_undisturbed(process, folder, recipe):
    end = time.monotonic() + recipe.seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            return process.returncode
        if recipe.kill_at and any(row.get("step", 0) >= recipe.kill_at for row in metrics_of(folder)):
            process.kill()
            process.wait()
            return "killed"
        time.sleep(0.1)
    process.kill()
    process.wait()
    return "none: out of time"


def judge(recipe, result, others):
    """Why a result is not as asked; None: it is."""
    if recipe.refused:
        if result["exit"] == 0:
            return "was not refused"
        return None if recipe.refused in result["error"] else f"failed otherwise than with a word of {recipe.refused}"
    stopped = result["exit"] == "stopped"
    if stopped and not (recipe.better and len(result.get("curve", [])) >= 15):
        return "stopped before anything can be said"
    if not stopped and result["exit"] != ("killed" if recipe.kill_at else 0):
        return f"exit code {result['exit']}: {result['error'][-300:]}"
    if not recipe.logs:
        return None
    curve = [value for _, value in result.get("curve", [])]
    if not curve:
        return f"wrote no {recipe.metric}"
    if not all(math.isfinite(value) for value in curve):
        return f"{recipe.metric} is not a finite number in some step"
    wanted = re.search(r"\bmax_steps=(\d+)", recipe.arguments)
    if wanted and result["exit"] == 0 and len(curve) < int(wanted[1]):
        return f"took {len(curve)} of {wanted[1]} steps"
    if recipe.same_kl:
        kl = result.get("kl_sample_train_v2") or {"steps": 0, "exactly 0": 0}
        if kl["steps"] < len(curve) or kl["exactly 0"] != kl["steps"]:
            return f"sampler and trainer agreed exactly in {kl['exactly 0']} of {len(curve)} steps"
    if recipe.always is not None and any(value != recipe.always for value in curve):
        return f"{recipe.metric} is not always {recipe.always}"
    if recipe.better:
        (first, first_noise), (last, last_noise) = works_with_page.ends(result["curve"])
        if not (last - first) * (1 if recipe.better == "up" else -1) > 3 * (first_noise**2 + last_noise**2) ** 0.5:
            return f"{recipe.metric} went from {first:.4g} to {last:.4g}, by less than three standard errors"
    if recipe.same_as:
        if recipe.same_as not in others:
            return f"{recipe.same_as} has not run"
        other = dict(others[recipe.same_as]["curve"])
        if recipe.resumes and len(curve) <= len(other):
            return "took no step of its own"
        different = [step for step, value in result["curve"] if other.get(step, value) != value]
        if different:
            return f"{recipe.metric} is another than that of {recipe.same_as} at steps {different}"
    return None


def run_recipe(work, recipe, server, versions, others):
    missing = [name for name in recipe.needs if name not in others]
    if missing:
        sys.exit(f"{recipe.name} needs {missing[0]}, which has not run")
    folder = folder_of(work, recipe)
    if not recipe.resumes and folder.exists():
        shutil.rmtree(folder)
    arguments = arguments_of(work, recipe)
    command = [sys.executable, "-m", f"tinker_cookbook.recipes.{recipe.module}", *arguments]
    log = work / "logs" / f"{file_name(recipe.name)}.log"
    log.parent.mkdir(exist_ok=True)
    since = server.log.stat().st_size
    began = time.monotonic()
    with log.open("w") as out:
        process = subprocess.Popen(command, cwd=work, env=environment(work, server.url), stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        code = wait(process, folder, recipe)
    result = {"recipe": recipe.name, "command": shown(work, recipe, arguments), "exit": code, "seconds": round(time.monotonic() - began, 1), "note": recipe.note,
              "base": recipe.base, "versions": versions, "refusals": server.statuses(since), "error": ""}  # fmt: skip
    if code not in (0, "killed", "stopped"):
        said = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        result["error"] = next((line for line in reversed(said) if re.match(r"[\w.]*(Error|Exception|Failed)\b", line)), said[-1] if said else "")[:600]
    rows = metrics_of(folder) if recipe.logs else []
    if recipe.metric:
        result.update(metric=recipe.metric, curve=[[row.get("step", i), row[recipe.metric]] for i, row in enumerate(rows) if row.get(recipe.metric) is not None])
    for key in KL:
        values = [abs(row[key]) for row in rows if row.get(key) is not None]
        if values:
            result[key.rsplit("/", 1)[1]] = {"steps": len(values), "largest": max(values), "exactly 0": sum(v == 0 for v in values)}
    result["failed"] = judge(recipe, result, others)
    return result


def shown(work, recipe, arguments):
    """The command without paths of this machine."""
    import tinker_cookbook

    words = [word.replace(str(Path(tinker_cookbook.__file__).parent), "PACKAGE").replace(str(work) + "/", "") for word in arguments]
    return " ".join([f"python -m tinker_cookbook.recipes.{recipe.module}", *words])


def write_json(path, value):
    path.parent.mkdir(exist_ok=True)
    path.with_suffix(".tmp").write_text(json.dumps(value, indent=1) + "\n")
    path.with_suffix(".tmp").rename(path)


def results_of(work):
    found = {}
    for recipe in recipes():
        path = work / "results" / f"{file_name(recipe.name)}.json"
        if path.is_file():
            found[recipe.name] = json.loads(path.read_text())
    return found


def run(options):
    known = {recipe.name: recipe for recipe in recipes()}
    for name in options.recipes:
        if name not in known:
            sys.exit(f"there is no recipe {name!r}; there are: {', '.join(known)}")
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    versions = {"lockstep": subprocess.run([binary(), "--version"], capture_output=True, text=True).stdout.split("\n")[0], "python": platform.python_version(),
                **{name: importlib.metadata.version(name) for name in PACKAGES}}  # fmt: skip
    if versions["lockstep"].endswith("-dirty") and not options.dirty:
        sys.exit(f"{binary()} is {versions['lockstep']}: it was built from a tree with changes, so nobody can have it; commit and build first, or give --dirty")
    given = {works_with_base.BASE: options.model, "smollm2": options.smollm2}
    works_with_base.write_stand_ins(work)
    servers = {}
    bad = 0
    try:
        for name, recipe in known.items():
            done = results_of(work)
            if (options.recipes and name not in options.recipes) or (not options.recipes and not options.again and name in done):
                continue
            if recipe.base not in servers:
                made = next((base for base in works_with_base.BASES if base.name == recipe.base), None)
                if not made and not given[recipe.base]:
                    print(f"skip {name}: needs --{recipe.base}", flush=True)
                    continue
                folder = given.get(recipe.base)
                if folder:
                    works_with_base.link_tokenizers(work, folder.resolve(), [recipe.base])
                else:
                    folder = works_with_base.make_base(work, made, binary(), options.threads)
                if made:
                    works_with_base.link_tokenizers(work, folder.resolve())
                servers[recipe.base] = Server(work, folder.resolve(), recipe.base, options.threads)
            result = run_recipe(work, recipe, servers[recipe.base], versions, done)
            write_json(work / "results" / f"{file_name(name)}.json", result)
            bad += result["failed"] is not None
            print(f"{'FAIL' if result['failed'] else 'ok  '} {name} ({result['seconds']} s) {result['failed'] or ''}", flush=True)
            if result["exit"] == "stopped":
                break
    finally:
        ends = {server.log: server.stop() for server in servers.values()}
    for log, status in ends.items():
        if status != 0:
            sys.exit(f"the server ended with {status}; see {log}")
    return int(bad > 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["run", "page", "list"])
    parser.add_argument("recipes", nargs="*")
    parser.add_argument("--work", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dirty", action="store_true", help="a binary that no commit is; the page marks its results")
    parser.add_argument("--again", action="store_true", help="recipes that are done, too")
    parser.add_argument("--smollm2", type=Path, help="SmolLM2-135M as tools/make_smollm2.py makes it, for the recipes that run on it")
    parser.add_argument("--model", type=Path, help="a base that is already made, named countdown-chat")
    options = parser.parse_intermixed_args()
    if options.command == "list":
        for recipe in recipes():
            print(f"{recipe.name}: tinker_cookbook.recipes.{recipe.module} {recipe.arguments}")
        return 0
    if options.command == "page":
        results = {**works_with_page.kept(ROOT / "docs"), **(results_of(options.work.resolve()) if options.work else {})}
        for recipe in recipes():  # by what is asked of them now
            if recipe.name in results:
                results[recipe.name]["failed"] = judge(recipe, results[recipe.name], results)
        return works_with_page.write(results, recipes(), ROOT / "docs")
    if not options.work:
        parser.error("--work is needed")
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
