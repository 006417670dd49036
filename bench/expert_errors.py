#!/usr/bin/env python3
"""How far the products of routed experts in 8 bits are from those with bf16 weights: 32 experts of 7168 inputs and 2048 outputs, the forward and the gradient of inputs, of
random numbers, under the roundings of cpu-fp8 and of cpu-mxfp8 and cpu-mxfp8-experts (docs/numerics.md).

    bench/expert_errors.py [--experts 32] [--rows 64] [--page docs/few-bits.md]

The relative error is |y - y16| / |y16| over all numbers of an expert's product (Euclidean), the median over experts and the range. Rounding is written here in NumPy;
tests/oracle/test_eight_bits.py holds it against the definitions that the program's own rounding is compared with, bit by bit. Products are of fp32: the order of a sum
moves it by a millionth, of which nothing is seen beside the rounding. Some minutes and 1 GB. Needs numpy.
"""
import argparse
from pathlib import Path

import numpy as np

INPUTS, OUTPUTS = 7168, 2048
F32 = np.float32


def bf16(x):
    """To nearest even; of numbers that are none nothing is promised."""
    bits = np.ascontiguousarray(x, F32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(F32)


def e4m3(x):
    """To nearest even among the numbers of E4M3, at most 448: steps of an eighth of the power of two below, and of 2^-9 below 2^-6."""
    x = np.clip(x, -448, 448)
    step = np.ldexp(F32(1), np.maximum(np.frexp(x)[1] - 1, -6) - 3).astype(F32)
    return np.rint(x / step) * step


def in_blocks(x, height, width, format):
    """Each block of height x width rounded under its own power of two; both divide the shape of x, whose numbers are of ordinary size."""
    rows, columns = x.shape
    blocks = x.reshape(rows // height, height, columns // width, width)
    largest = np.abs(blocks).max(axis=(1, 3), keepdims=True)
    exponent = np.frexp(largest)[1] - 1 - 8
    if format == "fp8":  # the least power of two under which nothing is above 448
        exponent = exponent + (largest > 448 * np.ldexp(F32(1), exponent))
    scale = np.ldexp(F32(1), exponent).astype(F32)
    return (e4m3(blocks / scale) * scale).reshape(x.shape)


def rounded_rows(x, format):
    return in_blocks(x, 1, 128 if format == "fp8" else 32, format)


def forward_weight(w, format):
    return in_blocks(w, 128, 128, format) if format == "fp8" else in_blocks(w, 1, 32, format)


def gradient_weight(w, format):
    return in_blocks(w, 128, 128, format) if format == "fp8" else in_blocks(w, 32, 1, format)


def relative(got, want):
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


def errors_of(expert, rows):
    """{(format, product): relative error} of one expert of so many rows."""
    draw = np.random.default_rng(expert)
    w = (0.02 * draw.standard_normal((OUTPUTS, INPUTS))).astype(F32)
    x, dy = draw.standard_normal((rows, INPUTS)).astype(F32), draw.standard_normal((rows, OUTPUTS)).astype(F32)
    plain = bf16(w)
    y, dx = x @ plain.T, dy @ plain
    found = {}
    for format in ("fp8", "mxfp8"):
        found[format, "forward"] = relative(rounded_rows(x, format) @ forward_weight(w, format).T, y)
        found[format, "gradient of inputs"] = relative(rounded_rows(dy, format) @ gradient_weight(w, format), dx)
    return found


def table(found):
    lines = ["| rounding | product | relative error to bf16 weights | over experts |", "|---|---|---|---|"]
    for format, profiles in (("fp8", "`cpu-fp8`"), ("mxfp8", "`cpu-mxfp8`, `cpu-mxfp8-experts`")):
        for product in ("forward", "gradient of inputs"):
            errors = [one[format, product] for one in found]
            lines.append(f"| {profiles} | {product} | {100 * float(np.median(errors)):.2f}% | {100 * min(errors):.2f}% to {100 * max(errors):.2f}% |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experts", type=int, default=32)
    parser.add_argument("--rows", type=int, default=64, help="of each expert")
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    found = [errors_of(expert, options.rows) for expert in range(options.experts)]
    head = f"By `bench/expert_errors.py`, numpy {np.__version__}: {options.experts} experts of {INPUTS} x {OUTPUTS}, {options.rows} rows each, normally distributed numbers."
    text = "\n".join([head, "", *table(found)])
    if not options.page:
        return print(text)
    from marked_page import write_between_marks

    write_between_marks(options.page, "expert_errors", text)


if __name__ == "__main__":
    main()
