"""What tools/comparison.py must never admit."""

import numpy as np
import pytest
import torch
from comparison import largest_difference, relative_error

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
