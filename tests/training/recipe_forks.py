"""Runs recipes of tinker-cookbook, each in a process of its own, which is forked from one that has imported what all of them import: torch, transformers,
datasets and the cookbook itself take a processor many seconds, once instead of for every recipe. A recipe is run as `python -m` runs it.

    forks = RecipeForks(folder, ["math_rl.train"])   # an empty folder, for what Hugging Face's libraries would cache; the recipes that may come
    recipe = forks.start("math_rl.train", ["max_steps=1"], cwd=work, environment={"TINKER_BASE_URL": url})
    recipe.wait(60); recipe.said(); recipe.kill(); forks.stop()
"""
import json
import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

PACKAGE = "tinker_cookbook.recipes."


class Recipe:
    """A recipe while it runs; used as a subprocess.Popen is."""

    def __init__(self, forks, pid, output):
        self.forks, self.pid, self.output, self.returncode = forks, pid, output, None

    def poll(self):
        if self.returncode is None:
            self.returncode = self.forks.ask(poll=self.pid)
        return self.returncode

    def wait(self, seconds):
        """The exit code. Error TimeoutExpired."""
        end = time.monotonic() + seconds
        while self.poll() is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired(f"recipe {self.pid}", seconds)
            time.sleep(0.05)
        return self.returncode

    def kill(self):
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait(30)

    def said(self):
        return self.output.read_text(errors="replace")


class RecipeForks:
    def __init__(self, folder, modules):
        self.folder, self.runs = Path(folder), 0
        offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder), "WANDB_MODE": "disabled", "OMP_NUM_THREADS": "1"}
        self.errors = self.folder / "forks"
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen([sys.executable, __file__, *modules], cwd=folder, env={**os.environ, **offline}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=errors, text=True)  # fmt: skip

    def ask(self, **what):
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the process that recipes are forked from has ended: {self.errors.read_text()[-2000:]}")
        return json.loads(answer)

    def start(self, module, arguments, cwd, environment):
        self.runs += 1
        output = self.folder / f"said-{self.runs}"
        return Recipe(self, self.ask(module=module, arguments=arguments, cwd=str(cwd), environment=environment, output=str(output)), output)

    def stop(self):
        self.process.stdin.close()
        self.process.wait(60)


def become(asked):
    """Makes this process, which was forked a moment ago, one that `python -m` has begun in that folder."""
    os.setsid()
    os.chdir(asked["cwd"])
    os.environ.update(asked["environment"])
    for descriptor, path, flags in ((0, os.devnull, os.O_RDONLY), (1, asked["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)):
        opened = os.open(path, flags, 0o644)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.dup2(1, 2)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115 they last as long as the process
    sys.argv[:] = ["recipe", *asked["arguments"]]
    sys.path[0] = asked["cwd"]


def serve(modules):
    """Forks a recipe a line of stdin, and says how those ended that it is asked about."""
    for module in modules:
        __import__(PACKAGE + module)
        del sys.modules[PACKAGE + module]  # it is imported anew, as __main__
    for line in sys.stdin:
        asked = json.loads(line)
        if "poll" in asked:
            pid, status = os.waitpid(asked["poll"], os.WNOHANG)
            told = None if pid == 0 else os.waitstatus_to_exitcode(status)
        else:
            told = os.fork()
            if told == 0:
                return asked
        print(json.dumps(told), flush=True)
    return None


if __name__ == "__main__":
    recipe = serve(sys.argv[1:])
    if recipe:
        become(recipe)
        runpy.run_module(PACKAGE + recipe["module"], run_name="__main__", alter_sys=True)
