"""Training in 8 bits beside other writings of the formats: rows and weights bit by bit with the casts of `ml_dtypes`, and, under mxfp8, with the MX tensors of
`torchao`, specials included. (The definitions, with torch's casts: test_eight_bits.py.)"""
import ml_dtypes
import numpy as np
import pytest
import test_eight_bits
import torch
from test_eight_bits import F32, ask, bits, forward_weight, gradient_weight, rows, same
from torchao.prototype.mx_formats.mx_tensor import ScaleCalculationMode, to_mx


def matrices():
    """x, w and dy of whole groups, with numbers of many sizes, ties, groups of zeros, and the largest of a group above and at 448 units."""
    random = np.random.default_rng(19)
    x, w, dy = ((random.standard_normal(size) * 10.0 ** random.uniform(-3, 3, size)).astype(F32) for size in ((9, 256), (160, 256), (9, 160)))
    x[0, :32], x[0, 40], w[7, :16] = 0.0, -0.0, np.arange(16) / 16 + 8
    x[-1, 32:40] = [511.9, 449, 448, 464, 463.9, -500, 1e-3, 2.0**-9]
    return x, w, dy


@pytest.mark.parametrize("format", ["fp8", "mxfp8"])
def test_numbers_are_those_of_ml_dtypes(format, monkeypatch):
    x, w, dy = matrices()
    x[3, 5], dy[4, 100] = np.nan, -np.inf
    cast = lambda numbers: np.clip(numbers, -448, 448).astype(ml_dtypes.float8_e4m3fn).astype(F32)  # noqa: E731
    monkeypatch.setattr(test_eight_bits, "e4m3", cast)
    got = ask(format, x, w, dy)
    want = {"x": rows(x, format), "dy": rows(dy, format), "forward_w": forward_weight(w, format), "gradient_w": gradient_weight(w, format)}
    for name, value in want.items():
        assert same(got[name], value), (name, int((bits(got[name]) != bits(value)).sum()))
    # The control: another format of 8 bits gives other numbers.
    monkeypatch.setattr(test_eight_bits, "e4m3", lambda numbers: np.clip(numbers, -448, 448).astype(ml_dtypes.float8_e5m2).astype(F32))
    assert not same(got["x"], rows(x, format))


def of_torchao(x, mode=ScaleCalculationMode.FLOOR):
    scale, codes = to_mx(torch.from_numpy(np.ascontiguousarray(x, F32)), torch.float8_e4m3fn, 32, mode)
    powers = scale.view(torch.uint8).numpy()
    wide = np.where(powers == 255, F32(np.nan), np.ldexp(F32(1), powers.astype(np.int64) - 127).astype(F32)).repeat(32, axis=1)
    return codes.to(torch.float32).numpy() * wide


def equal(got, want):
    """Zeros of either sign are equal: in a group of zeros the peers keep signs, and here they are all +0."""
    return np.array_equal(got, want, equal_nan=True)


def test_numbers_are_those_of_torchaos_mx_tensors():
    x, w, dy = matrices()
    x[3, 5], dy[4, 100] = np.nan, np.nan  # of a group with an infinity the peer's numbers are others
    got = ask("mxfp8", x, w, dy)
    assert equal(got["x"], of_torchao(x)) and equal(got["dy"], of_torchao(dy))
    assert equal(got["forward_w"], of_torchao(w)) and equal(got["gradient_w"], of_torchao(w.T).T)
    assert np.isnan(got["x"][3, :32]).all() and np.isfinite(got["x"][3, 32:]).all()
    assert not equal(got["x"], of_torchao(x, ScaleCalculationMode.CEIL)), "the control: another rule for scales"
