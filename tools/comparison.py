"""The difference of numbers from the expected ones, for tests that compare within a tolerance.

A NaN or an infinity on either side, unequal shapes (NumPy would broadcast them) and empty arrays raise AssertionError whatever the tolerance:
`max([0.1, nan])` is 0.1, and `nan > tolerance` is false.
"""
import numpy as np


def as_numbers(values):
    return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values, dtype=np.float64)


def largest_difference(value, truth):
    """max |value - truth|"""
    value, truth = as_numbers(value), as_numbers(truth)
    assert value.shape == truth.shape, f"shapes differ: {value.shape}, wanted {truth.shape}"
    assert value.size > 0, "there is nothing to compare"
    for name, numbers in (("values", value), ("wanted values", truth)):
        assert np.isfinite(numbers).all(), f"{np.count_nonzero(~np.isfinite(numbers))} of {numbers.size} {name} are no finite numbers"
    return float(np.max(np.abs(value - truth)))


def relative_error(value, truth):
    """max |value - truth| / max |truth|; 0 where both are zeros, infinite where only the truth is"""
    difference, scale = largest_difference(value, truth), float(np.max(np.abs(as_numbers(truth))))
    return 0.0 if difference == 0 else difference / scale if scale > 0 else float("inf")


def distance(value, truth):
    """The length of value - truth."""
    largest_difference(value, truth)
    return float(np.linalg.norm(as_numbers(value) - as_numbers(truth)))


def far_from(value, truth, rtol, atol):
    """Where |value - truth| is more than atol + rtol |truth|."""
    largest_difference(value, truth)
    value, truth = as_numbers(value), as_numbers(truth)
    return np.abs(value - truth) > atol + rtol * np.abs(truth)


def is_near(value, truth, rtol, atol):
    """As numpy.allclose, for controls that tell a wrong value apart: what is no number, or of another shape, is no proof that it was."""
    return not far_from(value, truth, rtol, atol).any()


def assert_near(value, truth, rtol, atol, err_msg=""):
    """Every |value - truth| is at most atol + rtol |truth|, as numpy.testing.assert_allclose has it; but NaN is near nothing, and shapes are equal."""
    far = far_from(value, truth, rtol, atol)
    value, truth = as_numbers(value), as_numbers(truth)
    assert not far.any(), f"{np.count_nonzero(far)} of {far.size} differ, first {value[far][0]!r}, wanted {truth[far][0]!r}; largest difference {np.max(np.abs(value - truth)):.3g} {err_msg}"
