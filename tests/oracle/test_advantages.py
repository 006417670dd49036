"""Advantages by group and batch against verl's core_algos, whose file is loaded alone: what it imports beside torch and NumPy stands in with
the three helpers that the estimators call. MaxRL, which verl has not, is written out in NumPy. The bridge is build/advantage_bridge (tests/tools)."""
import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from comparison import assert_near, is_near

REPOSITORY = Path(__file__).resolve().parents[2]
BRIDGE = Path(os.environ.get("LOCKSTEP_BINARY", REPOSITORY / "build" / "lockstep")).resolve().parent / "advantage_bridge"


def loaded(name, path, **members):
    """A module from a file, in whose imports of verl these members are found."""
    stub = types.ModuleType("stub")
    stub.__getattr__ = lambda attribute: members.get(attribute, stub if attribute.islower() else type(attribute, (), {}))  # a module, or a class
    before = dict(sys.modules)
    for module in ("omegaconf", "verl", "verl.utils", "verl.utils.torch_functional", "verl.trainer", "verl.trainer.config", "verl.utils.import_utils", "verl.utils.device",
                   "verl.utils.groupwise", "verl.workers", "verl.workers.config", "tensordict", "transformers"):  # fmt: skip
        sys.modules[module] = stub
    try:
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module
    finally:
        for key in set(sys.modules) - set(before):
            del sys.modules[key]
        sys.modules.update(before)


@pytest.fixture(scope="module")
def verl():
    place = importlib.machinery.PathFinder.find_spec("verl")
    assert place, "verl is not in the oracle environment (tools/oracle-requirements-alone.txt)"
    folder = Path(place.submodule_search_locations[0])
    identity = lambda *_, **__: (lambda f: f)  # noqa: E731
    functional = loaded("verl_torch_functional", folder / "utils/torch_functional.py", deprecated=identity)
    return loaded("verl_core_algos", folder / "trainer/ppo/core_algos.py", torch_functional=functional, deprecated=identity)


def ask(requests):
    if not os.access(BRIDGE, os.X_OK):
        pytest.fail(f"there is no advantage_bridge at {BRIDGE}; build the tests first")
    done = subprocess.run([BRIDGE], input="".join(json.dumps(r) + "\n" for r in requests), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def batches(least):
    """Random batches of groups: rewards of several kinds, equal ones too, lengths of 1 to 40 tokens."""
    random = np.random.default_rng(5)
    for _ in range(40):
        groups = []
        for _ in range(random.integers(1, 7)):
            n = int(random.integers(least, 9))
            kind = random.integers(4)
            rewards = [random.integers(0, 2, n).astype(float), random.normal(size=n), random.uniform(0, 1, n), np.full(n, random.integers(0, 2).astype(float))][kind]
            groups.append({"rewards": rewards.tolist(), "tokens": random.integers(1, 41, n).tolist()})
        if sum(sum(g["tokens"]) for g in groups) > 1 and len({r for g in groups for r in g["rewards"]}) > 1:
            yield groups


def by_verl(verl, function, groups, options):
    """One number a rollout: the advantage that all of its tokens have."""
    tokens = [n for g in groups for n in g["tokens"]]
    rewards = [r for g in groups for r in g["rewards"]]
    mask = torch.zeros(len(tokens), max(tokens), dtype=torch.float64)
    scores = torch.zeros_like(mask)
    for i, (n, r) in enumerate(zip(tokens, rewards)):
        mask[i, :n] = 1
        scores[i, n - 1] = r
    index = np.array([g for g, group in enumerate(groups) for _ in group["rewards"]])
    config = types.SimpleNamespace(gamma=1.0, get=options.get)
    named = {"token_level_rewards": scores, "response_mask": mask, "index": index, "config": config, **options}
    if "plus_plus_outcome" in function:
        del named["index"]
    advantages, _ = getattr(verl, function)(**named)
    for i, n in enumerate(tokens):
        assert (advantages[i, :n] == advantages[i, 0]).all()
    return advantages[:, 0].numpy()


KINDS = {
    "group-normalised": ("compute_grpo_outcome_advantage", {}),
    "mean-only": ("compute_grpo_outcome_advantage", {"norm_adv_by_std_in_grpo": False}),
    "leave-one-out": ("compute_rloo_outcome_advantage", {}),
    "length-weighted": ("compute_opo_outcome_advantage", {}),
    "best-minus-second": ("compute_grpo_passk_outcome_advantage", {"norm_adv_by_std_in_grpo": False}),
    "batch-whitened": ("compute_reinforce_plus_plus_outcome_advantage", {}),
    "mean-only-whitened": ("compute_reinforce_plus_plus_baseline_outcome_advantage", {}),
}


@pytest.mark.parametrize("name", KINDS)
def test_as_verl(verl, name):
    function, options = KINDS[name]
    cases = list(batches(1 if name == "batch-whitened" else 2))
    for groups, ours in zip(cases, ask([{"name": name, "groups": g} for g in cases]), strict=True):
        assert isinstance(ours, list), ours
        flat = [a for group in ours for a in group]
        assert_near(flat, by_verl(verl, function, groups, options), rtol=2e-6, atol=2e-6, err_msg=str(groups))


def test_another_estimator_is_told_apart(verl):
    """The control: by another estimator of verl's no name passes."""
    cases = [g for g in batches(2) if len(g) > 1][:20]
    for name in KINDS:
        answers = ask([{"name": name, "groups": g} for g in cases])
        for other, (function, options) in KINDS.items():
            if other == name:
                continue
            same = all(is_near([a for g in ours for a in g], by_verl(verl, function, groups, options), rtol=2e-6, atol=2e-6) for groups, ours in zip(cases, answers))
            assert not same, (name, other)


def test_maxrl():
    """(r - mean) / mean, and nothing where all rewards are equal."""
    cases = [[{**g, "rewards": [abs(r) for r in g["rewards"]]} for g in groups] for groups in batches(2)]
    for groups, ours in zip(cases, ask([{"name": "mean-normalised", "groups": g} for g in cases]), strict=True):
        for group, advantages in zip(groups, ours):
            r = np.array(group["rewards"])
            wanted = np.zeros_like(r) if (r == r[0]).all() else (r - r.mean()) / r.mean()
            assert_near(advantages, wanted, rtol=1e-6, atol=1e-7)


def written_out(name, groups, place):
    """KL in rewards, in NumPy: by group, rollout and token. `place`: where costs of tokens enter."""
    values = []
    for group in groups:
        r, costs = np.array(group["rewards"]), [np.array(c) for c in group["costs"]]
        if place == "rollout":
            r = r - np.array([c.sum() for c in costs])
        if name in ("mean-only", "mean-only-whitened"):
            r = r - r.mean()
        elif name == "leave-one-out":
            r = np.array([x - (r.sum() - x) / (len(r) - 1) for x in r])
        elif name == "group-normalised":
            r = (r - r.mean()) / (r.std(ddof=1) + 1e-6)
        taken = {"rollout": lambda c: 0 * c, "to_go": lambda c: c[::-1].cumsum()[::-1], "token": lambda c: c}[place]
        values.append([x - taken(c) for x, c in zip(r, costs)])
    if "whitened" in name:
        flat = np.concatenate([v for group in values for v in group])
        values = [[(v - flat.mean()) / np.sqrt(flat.var(ddof=1) + 1e-8) for v in group] for group in values]
    return values


PLACES = {"mean-only": "rollout", "leave-one-out": "rollout", "group-normalised": "rollout", "batch-whitened": "to_go", "mean-only-whitened": "token"}


@pytest.mark.parametrize("name", PLACES)
def test_kl_in_rewards(name):
    """Costs of tokens enter where the table says, and a writing with another place, or without them, is told apart."""
    random = np.random.default_rng(9)
    cases = [[{**g, "costs": [random.normal(scale=0.1, size=n).tolist() for n in g["tokens"]]} for g in groups] for groups in batches(2)]
    flat = lambda values: np.concatenate([np.asarray(v) for group in values for v in group])  # noqa: E731
    answers = [flat(a) for a in ask([{"name": name, "groups": g} for g in cases])]
    for groups, ours in zip(cases, answers, strict=True):
        assert_near(ours, flat(written_out(name, groups, PLACES[name])), rtol=2e-5, atol=2e-6)
    for wrong in {"rollout", "to_go", "token"} - {PLACES[name]}:
        assert not all(is_near(ours, flat(written_out(name, groups, wrong)), rtol=1e-3, atol=1e-3) for groups, ours in zip(cases, answers)), wrong
    free = [[{**g, "costs": [[0.0] * n for n in g["tokens"]]} for g in groups] for groups in cases]
    assert not all(is_near(ours, flat(written_out(name, groups, PLACES[name])), rtol=1e-3, atol=1e-3) for groups, ours in zip(free, answers))
