"""Advantages over chains (rl/gae.h) against NumPy, written from the definition, and against verl's and TRL's own ways of computing them: verl's
compute_gae_advantage_return (its file is loaded alone, as in test_advantages.py), which steps over masked tokens, and TRL's loop over columns. The bridge is
build/advantage_bridge."""

import numpy as np
import pytest
import torch
from comparison import assert_near, is_near
from test_advantages import ask, verl  # noqa: F401  (a fixture)


def rollouts(seed, chains=1, masked=True):
    """Random rollouts: chains of tokens with values and rewards, some not trained; those have no reward, which verl would leave out."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(int(rng.integers(1, 7))):
        rollout = {"chains": [], "reward": float(rng.normal())}
        for window in range(int(rng.integers(1, chains + 1))):
            n = int(rng.integers(1, 12))
            trained = rng.uniform(size=n) < (0.7 if masked else 2)
            trained[-1] = True
            tokens = [{"trained": bool(t), "value": float(rng.normal()), "reward": float(rng.normal()) if t else 0.0} for t in trained]
            rollout["chains"].append({"tokens": tokens, "window": window})
        made.append(rollout)
    return made


def estimated(made, **settings):
    (answer,) = ask([{"rollouts": made, "settings": settings}])
    assert "error" not in answer, answer
    return answer


def in_time(rollout, numbers):
    """Of the trained tokens of a rollout, chain after chain."""
    return [x for chain, own in zip(rollout["chains"], numbers) for token, x in zip(chain["tokens"], own) if token["trained"]]


def by_numpy(rollout, gamma, lam, behind=0.0):
    """The sums of the definition, not a recursion: A_t = sum over k of (gamma lambda)^k delta_(t+k)."""
    tokens = [t for chain in rollout["chains"] for t in chain["tokens"] if t["trained"]]
    v = np.array([t["value"] for t in tokens] + [behind])
    r = np.array([t["reward"] for t in tokens])
    r[-1] += rollout["reward"]
    delta = r + gamma * v[1:] - v[:-1]
    powers = (gamma * lam) ** np.arange(len(delta))
    return np.array([(powers[: len(delta) - t] * delta[t:]).sum() for t in range(len(delta))])


@pytest.mark.parametrize("gamma, lam, critic_lam", [(1, 1, 1), (0.99, 0.95, 1), (0.9, 0, 0.5)])
def test_the_definition_over_chains(gamma, lam, critic_lam):
    for seed in range(30):
        made = rollouts(seed, chains=4)
        got = estimated(made, gamma=gamma, **{"lambda": lam}, critic_lambda=critic_lam, whiten=False)
        for rollout, advantages, returns in zip(made, got["advantages"], got["returns"], strict=True):
            assert_near(in_time(rollout, advantages), by_numpy(rollout, gamma, lam), rtol=1e-12, atol=1e-12)
            values = [t["value"] for chain in rollout["chains"] for t in chain["tokens"] if t["trained"]]
            assert_near(in_time(rollout, returns), by_numpy(rollout, gamma, critic_lam) + values, rtol=1e-12, atol=1e-12)


def test_lambda_by_length_and_a_cut():
    for seed in range(20):
        made = rollouts(seed, chains=3)
        for rollout in made:
            rollout["bootstrap"] = 0.7
        got = estimated(made, lambda_length=0.3, whiten=False)
        for rollout, advantages in zip(made, got["advantages"], strict=True):
            n = len(in_time(rollout, advantages))
            assert_near(in_time(rollout, advantages), by_numpy(rollout, 1, max(0, 1 - 1 / (0.3 * n)), 0.7), rtol=1e-11, atol=1e-11)


def test_terminal_chains_are_rollouts_of_their_own():
    for seed in range(20):
        made = rollouts(seed, chains=4)
        got = estimated(made, gamma=0.97, **{"lambda": 0.9}, carry=False, whiten=False)
        for rollout, advantages in zip(made, got["advantages"], strict=True):
            want = [a for chain in rollout["chains"] for a in by_numpy({"chains": [chain], "reward": rollout["reward"]}, 0.97, 0.9)]
            assert_near(in_time(rollout, advantages), want, rtol=1e-12, atol=1e-12)


def padded(made):
    width = max(len(r["chains"][0]["tokens"]) for r in made)
    values, rewards, mask = (torch.zeros(len(made), width, dtype=torch.float64) for _ in range(3))
    for i, rollout in enumerate(made):
        tokens = rollout["chains"][0]["tokens"]
        for t, token in enumerate(tokens):
            values[i, t], rewards[i, t], mask[i, t] = token["value"], token["reward"], token["trained"]
        rewards[i, len(tokens) - 1] += rollout["reward"]
    return values, rewards, mask


@pytest.mark.parametrize("gamma, lam", [(1.0, 1.0), (0.99, 0.95), (0.9, 0.3)])
def test_as_verl(verl, gamma, lam):  # noqa: F811
    """Whitened, as verl always does, which takes n + 1e-8 for the number of tokens; by n itself against NumPy. One chain a rollout: it knows no other."""
    for seed in range(30):
        made = rollouts(seed)
        if sum(len(in_time(r, [[0] * 99])) for r in made) < 2:
            continue
        values, rewards, mask = padded(made)
        advantages, returns = verl.compute_gae_advantage_return(rewards, values, mask, gamma, lam)
        got = estimated(made, gamma=gamma, **{"lambda": lam})
        plain = np.concatenate([by_numpy(rollout, gamma, lam) for rollout in made])
        whitened = (plain - plain.mean()) / np.sqrt(plain.var(ddof=1) + 1e-8)
        ours = [x for rollout, own in zip(made, got["advantages"], strict=True) for x in in_time(rollout, own)]
        assert_near(ours, whitened, rtol=1e-11, atol=1e-11)
        for i, rollout in enumerate(made):
            trained = mask[i].bool()
            assert_near(in_time(rollout, got["advantages"][i]), advantages[i][trained].numpy(), rtol=1e-6, atol=1e-6)
            assert_near(in_time(rollout, got["returns"][i]), returns[i][trained].numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("gamma, lam", [(1.0, 0.95), (0.9, 0.5)])
def test_as_a_loop_over_columns(gamma, lam):
    """As TRL's PPO trainer has it, over tokens of which all are trained: rewards and values padded with 0, columns from the last to the first."""
    for seed in range(30):
        made = rollouts(seed, masked=False)
        values, rewards, _ = padded(made)
        last, reversed_advantages = 0, []
        for t in reversed(range(values.shape[1])):
            following = values[:, t + 1] if t < values.shape[1] - 1 else 0.0
            last = rewards[:, t] + gamma * following - values[:, t] + gamma * lam * last
            reversed_advantages.append(last)
        advantages = torch.stack(reversed_advantages[::-1], axis=1)
        got = estimated(made, gamma=gamma, **{"lambda": lam}, whiten=False)
        for i, rollout in enumerate(made):
            n = len(rollout["chains"][0]["tokens"])
            assert_near(got["advantages"][i][0], advantages[i, :n].numpy(), rtol=1e-12, atol=1e-12)


def test_another_lambda_is_told_apart(verl):  # noqa: F811
    """The control."""
    made = rollouts(3)
    values, rewards, mask = padded(made)
    advantages, _ = verl.compute_gae_advantage_return(rewards, values, mask, 1.0, 0.9)
    got = estimated(made, **{"lambda": 0.95})
    assert not is_near(in_time(made[0], got["advantages"][0]), advantages[0][mask[0].bool()].numpy(), rtol=1e-3, atol=1e-3)
