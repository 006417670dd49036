"""What tools/comparison.py must never admit."""

import ast
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from comparison import assert_near, distance, is_near, largest_difference, relative_error

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


def test_a_control_is_no_proof_by_nan():
    assert is_near([1.0, 2.0], [1.05, 2.0], rtol=0, atol=0.1) and not is_near([1.0, 2.0], [1.2, 2.0], rtol=0, atol=0.1)
    assert distance([3.0, 0.0], [0.0, 4.0]) == 5
    for value, truth in (([1.0, float("nan")], [1.0, 2.0]), ([1.0], [1.0, 1.0]), ([[1.0, 1.0]], [1.0, 1.0])):
        for compare in (distance, lambda value, truth: is_near(value, truth, rtol=0, atol=0.1)):
            with pytest.raises(AssertionError):
                compare(value, truth)


def called(node):
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def is_difference(node):
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)


def values_of(call):
    """The arguments of a call, and what a method is called of; of a comprehension its element."""
    values = call.args + ([call.func.value] if isinstance(call.func, ast.Attribute) else [])
    return [value.elt if isinstance(value, (ast.GeneratorExp, ast.ListComp)) else value for value in values]


def hand_comparisons(source):
    """Lines that compare by what takes NaN for near, or broadcasts: allclose and its kin, the largest of |a - b|, the length of a - b."""
    lines = set()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        largest = called(node) in ("max", "amax", "nanmax") and any(
            isinstance(value, ast.Call) and called(value) in ("abs", "absolute") and any(map(is_difference, values_of(value))) for value in values_of(node))
        if called(node) in ("allclose", "assert_allclose", "isclose") or largest or (called(node) == "norm" and any(map(is_difference, values_of(node)))):
            lines.add(node.lineno)
    return sorted(lines)


# The same in C++: std::max(worst, NaN) is worst.
CPP_LARGEST = re.compile(r"max(?:<double>)?\([^;]*abs\([^;]* - ")


def test_hand_comparisons_are_found():
    for line in ("np.allclose(a, b)", "assert not torch.allclose(a, b)", "np.testing.assert_allclose(a, b)", "np.abs(a - b).max() < 1", "np.max(np.abs(a - b))",
                 "(a - b).abs().max() < 1", "max(abs(x - y) for x, y in z)", "torch.max(torch.abs(a - b))", "np.linalg.norm(a - b, axis=1).max()"):  # fmt: skip
        assert hand_comparisons(line) == [1], line
    for line in ("largest_difference(a, b) < 1", "np.abs(a).max()", "max(a - b, c)", "abs(a - b) < 1", "np.linalg.norm(a)", "math.sqrt(a - b)"):
        assert hand_comparisons(line) == [], line
    assert CPP_LARGEST.search("worst = std::max(worst, std::abs(got[i] - want[i]));") and not CPP_LARGEST.search("std::max(a, b - std::abs(c));")


def test_nothing_compares_by_what_lets_nan_pass():
    tests = Path(__file__).resolve().parents[1]
    found = [f"{path.relative_to(tests)}:{line}" for path in sorted(tests.rglob("*.py")) for line in hand_comparisons(path.read_text())]
    assert not found, f"largest_difference, relative_error, distance, is_near or assert_near of tools/comparison.py instead: {found}"
    sources = [path for root in (tests, tests.parent / "src") for path in sorted(root.rglob("*_test.cpp"))]
    found = [str(path.relative_to(tests.parent)) for path in sources if CPP_LARGEST.search(path.read_text())]
    assert len(sources) > 300 and not found, f"LargestError of comparison_test_tools.h instead: {found}"
