"""What tools/comparison.py must never admit."""

from pathlib import Path

import numpy as np
import pytest
import torch
from comparison import assert_near, largest_difference, relative_error

WANT = [1.0, -4.0, 2.0]


def test_errors_are_the_largest():
    assert largest_difference([1.5, -4, 2.25], WANT) == 0.5 and relative_error([1.5, -4, 2.25], WANT) == 0.125
    assert relative_error(torch.tensor(WANT), np.array(WANT, np.float32)) == 0 == relative_error([0.0], [0.0])
    assert relative_error([1e-30], [0.0]) == float("inf")


@pytest.mark.parametrize("at", range(3))
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_no_nan_and_no_infinity_is_near_anything(bad, at):
    broken = [bad if i == at else value for i, value in enumerate(WANT)]
    for value, truth in ((broken, WANT), (WANT, broken), (broken, broken)):
        for compare in (largest_difference, relative_error):
            with pytest.raises(AssertionError, match="no finite numbers"):
                compare(value, truth)


def test_shapes_must_be_equal():
    for value, truth in (([1.0], WANT), (WANT, WANT[:2]), ([WANT], WANT), (1.0, WANT)):
        with pytest.raises(AssertionError, match="shapes differ"):
            relative_error(value, truth)
    with pytest.raises(AssertionError, match="nothing to compare"):
        relative_error([], [])


def test_near_is_an_element_at_a_time():
    assert_near([1.0, 2.0], [1.05, 2.0], rtol=0, atol=0.1)
    assert_near([100.0, 1e-9], [101.0, 0.0], rtol=0.01, atol=1e-8)
    for value, truth in (([1.0, 2.0], [1.2, 2.0]), ([100.0, 1.0], [100.0, 1.1]), ([1.0, float("nan")], [1.0, float("nan")]), ([1.0], [1.0, 1.0]), ([[1.0, 1.0]], [1.0, 1.0])):
        with pytest.raises(AssertionError):
            assert_near(value, truth, rtol=0.01, atol=0.05)


def test_nothing_compares_by_what_lets_nan_pass():
    """numpy.testing.assert_allclose takes NaN for NaN and broadcasts shapes."""
    here = Path(__file__).resolve()
    users = [path.name for path in here.parents[1].rglob("*.py") if path != here and "assert_allclose" in path.read_text()]
    assert not users, f"assert_near of tools/comparison.py instead: {users}"
