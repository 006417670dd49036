"""Recipes of tinker-cookbook, unchanged and in processes of their own, against our server: the quickest of those that bench/works_with.py runs.

The base is the shipped model with the turn marks that the renderers want. It has not been taught to chat: what is asked here is that the
recipes run and that numbers agree to the bit. One test teaches a base the form of a task first and asks that a recipe's reward rises; what
more can be learned, docs/works-with.md shows.
"""
import importlib.util
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy
import pytest
from recipe_forks import RecipeForks

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import works_with_base  # noqa: E402

_spec = importlib.util.spec_from_file_location("lockstep_api_conftest", ROOT / "tests/api/conftest.py")
_api = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_api)
SECONDS = 240
LOOP = ["sl_loop", "batch_size=8", "max_length=256", "learning_rate=1e-2", "save_every=2", "max_steps=6", "log_path=loop"]


class Kitchen:
    """A working folder, a server, and recipes. `teach(start, base)` writes the base from the folder `start`; without it they are the same."""

    def __init__(self, forks, work, teach=None):
        self.forks, self.work = forks, work
        base, start = work / works_with_base.BASE, work / "start"
        works_with_base.write_model_folder(start if teach else base)
        if teach:
            teach(start, base)
        works_with_base.link_tokenizers(work, base)
        works_with_base.write_stand_ins(work)
        aliases = [word for name in works_with_base.ALIASES for word in ("--alias", name)]
        self.server = _api.Server("--training", "--state", str(work / "state"), *aliases, model=base)

    def start(self, module, *arguments):
        return self.forks.start(module, arguments, self.work, {"TINKER_BASE_URL": self.server.url, "TINKER_API_KEY": "tml-dummy"})

    def run(self, *command):
        """(exit code, what it said)"""
        process = self.start(*command)
        try:
            code = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            pytest.fail(f"{command[0]} ran past {SECONDS} s: {process.said()[-2000:]}")
        return code, process.said()

    def metrics(self, log):
        path = self.work / log / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")] if path.is_file() else []


@pytest.fixture(scope="module")
def forks(tmp_path_factory):
    made = RecipeForks(tmp_path_factory.mktemp("recipes"), ["preference.shorter.train", "math_rl.train", "sl_loop", "preference.dpo.train"])
    yield made
    made.stop()


@pytest.fixture(scope="module")
def kitchen(forks, tmp_path_factory):
    made = Kitchen(forks, tmp_path_factory.mktemp("cookbook"))
    yield made
    assert made.server.stop() == 0, "".join(made.server.errors)


def test_reinforcement_learning_trains_on_what_it_sampled_to_the_bit(kitchen):
    code, said = kitchen.run("preference.shorter.train", "model_name=Qwen/Qwen3.5-4B", "batch_size=2", "group_size=4", "max_tokens=12", "learning_rate=1e-2", "max_steps=3", "eval_every=0",
                             "log_path=shorter")  # fmt: skip
    assert code == 0, said[-2000:]
    steps = [row for row in kitchen.metrics("shorter") if "optim/lr" in row]  # the last row is a summary
    assert len(steps) == 3
    for step in steps:
        assert step["optim/kl_sample_train_v1"] == 0 and step["optim/kl_sample_train_v2"] == 0
    # The control: a step moves the weights, and that is seen in the same measure.
    assert max(step["kl_pre_post_v2"] for step in steps if "kl_pre_post_v2" in step) > 0


def test_the_default_loss_is_refused_with_names_of_others(kitchen):
    code, said = kitchen.run("math_rl.train", "model_name=countdown-chat", "renderer_name=role_colon", "env=arithmetic", "group_size=2", "groups_per_batch=2", "max_tokens=4", "max_steps=1",
                             "eval_every=0", "save_every=0", "log_path=stable")  # fmt: skip
    assert code != 0
    assert "stable_reinforce" in said and "importance_sampling" in said


def test_a_recipe_that_was_killed_goes_on_with_the_same_bits(kitchen):
    process = kitchen.start(*LOOP)
    end = time.monotonic() + SECONDS
    checkpoints = kitchen.work / "loop/checkpoints.jsonl"

    def saved_batches():
        return [json.loads(line)["batch"] for line in checkpoints.read_text().splitlines(keepends=True) if line.endswith("\n")] if checkpoints.is_file() else []

    # Killed when it has done a step after one of its checkpoints, which the resumed run does again.
    while not (saved := saved_batches()) or not any(row["step"] >= saved[-1] for row in kitchen.metrics("loop")):
        assert process.poll() is None and time.monotonic() < end, process.said()[-2000:]
        time.sleep(0.05)
    process.kill()
    first = {row["step"]: row["train_mean_nll"] for row in kitchen.metrics("loop")}
    saved = saved_batches()
    code, said = kitchen.run(*LOOP)
    assert code == 0, said[-2000:]
    assert f"Resuming from batch {saved[-1]}" in said
    second = {row["step"]: row["train_mean_nll"] for row in kitchen.metrics("loop")}
    assert sorted(second) == [0, 1, 2, 3, 4, 5]
    repeated = [step for step in first if step >= saved[-1]]
    assert repeated  # steps that the killed run had done, too, and that were done again
    assert {step: second[step] for step in repeated} == {step: first[step] for step in repeated}
    assert second[5] < second[0]


def test_preferences_begin_at_the_log_of_two(kitchen):
    """DPO's reference is a sampler's compute_logprobs, its policy the trainer's forward: the same weights, so the margin is exactly 0."""
    code, said = kitchen.run("preference.dpo.train", "model_name=Qwen/Qwen3.5-9B-Base", "dataset=hhh", "batch_size=8", "max_steps=3", "max_length=256", "learning_rate=1e-2", "log_path=dpo")
    assert code == 0, said[-2000:]
    steps = [row for row in kitchen.metrics("dpo") if "dpo_loss" in row]
    assert len(steps) == 3
    assert numpy.float32(steps[0]["dpo_loss"]) == numpy.float32(numpy.log(2)) and steps[0]["margin"] == 0
    assert steps[1]["dpo_loss"] != steps[0]["dpo_loss"]  # the control


def teach_to_ramble(start, base):
    """Sums whose answer is any number, well ended, or, two times in three, a sentence that is longer than the recipe's answers may be."""
    rng, lines = random.Random(3), []
    for _ in range(160 * 16):
        prompt = f"User: What is 4 + 5?\n\nAssistant: 9\n\nUser: What is {rng.randint(0, 100)} + {rng.randint(0, 100)}?\n\nAssistant:"
        answer = f" {rng.randint(0, 100)}\n\nUser:" if rng.random() < 1 / 3 else " I think that you would do well to ask another model about the numbers"
        lines.append(json.dumps({"prompt": prompt, "completion": answer}))
    data = start.parent / "rambling.jsonl"
    data.write_text("\n".join(lines) + "\n")
    command = [os.environ.get("LOCKSTEP_BINARY", str(ROOT / "build/lockstep")), "train", "sft", "--model", str(start), "--data", str(data), "--runs", str(start.parent / "runs"), "--name", "rambling",
               "--steps", "160", "--batch", "16", "--learning-rate", "3e-3", "--schedule", "linear", "--warmup", "10", "--max-norm", "1", "--eval-share", "0", "--no-page", "--quiet",
               "--export-to", str(base)]  # fmt: skip
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def test_reward_rises(forks, tmp_path):
    """The recipe's problems are seeded by the step; adapters and samples are not, by anybody: the rise that is asked for is many times its noise.

    The step is small and the groups are large, so that one lucky sum, whose reward is ten times that of a form, does not throw the adapter away: with
    twice the rate and half the group one run in six fell to no form at all.
    """
    kitchen = Kitchen(forks, tmp_path, teach_to_ramble)
    try:
        code, said = kitchen.run("math_rl.train", "model_name=countdown-chat", "renderer_name=role_colon", "env=arithmetic", "loss_fn=importance_sampling", "group_size=16", "groups_per_batch=4",
                                 "max_tokens=12", "learning_rate=1e-3", "max_steps=14", "eval_every=0", "save_every=0", "log_path=rising")  # fmt: skip
    finally:
        status = kitchen.server.stop()
    assert code == 0, said[-2000:]
    assert status == 0, "".join(kitchen.server.errors)
    steps = [row for row in kitchen.metrics("rising") if "optim/lr" in row]
    assert len(steps) == 14
    formed = [step["env/all/format"] for step in steps]
    reward = [step["env/all/reward/total"] for step in steps]
    # Before the first update about a third of 64 answers are well ended, with a deviation of 0.06; the reward is a tenth of that, less 0.1,
    # and 1 for a right sum, which is luck.
    assert 0.1 < formed[0] < 0.7
    assert numpy.mean(formed[-3:]) > numpy.mean(formed[:2]) + 0.2, formed
    assert numpy.mean(reward[-3:]) > numpy.mean(reward[:3]), reward
    assert all(step["optim/kl_sample_train_v2"] == 0 for step in steps)
