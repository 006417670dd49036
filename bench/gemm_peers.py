#!/usr/bin/env python3
"""Linear layers y = x W^T in fp32: `lockstep bench gemm` beside the OpenBLAS of NumPy's wheel, in turns, on the same threads.

    bench/gemm_peers.py [--large] [--threads N] [--rounds 5] [--seconds 0.3] [--json FILE]

Prints, per shape, the medians over rounds, the range, and the ratio (above 1: lockstep is faster). NumPy multiplies
x [M, K] by W^T of a weight stored [N, K], as a Hugging Face layer does. With more than one thread the most rows are measured again with one
thread on both sides, beside that thread's own ceiling. --large: seven shapes, those of large models too, of many rows alone, every case with both
numbers of threads. Needs numpy and, for --large, 6 GB of memory.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHAPES = [(1536, 576), (576, 1536), (4096, 4096)]
ROWS = [1, 2, 4, 8, 16, 64, 128, 512]
LARGE_SHAPES = [(1536, 576), (576, 1536), (4096, 1024), (4096, 4096), (11008, 4096), (4096, 11008), (32000, 4096)]
LARGE_ROWS = [64, 128, 512, 2048]


def bench(kind, options, *arguments):
    command = [os.environ.get("LOCKSTEP_BINARY", str(ROOT / "build/lockstep")), "bench", kind, "--json", *arguments,
               "--threads", str(options.threads), "--seconds", str(options.seconds)]  # fmt: skip
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def lockstep(rows, n, k, options):
    return bench("gemm", options, "--shape", f"{n}x{k}", "--rows", str(rows))["seconds"]["median"]


def numpy_openblas(np, rows, n, k, options):
    random = np.random.default_rng(1)
    x, w = random.random((rows, k), np.float32), random.random((n, k), np.float32)
    y = np.empty((rows, n), np.float32)
    transposed = w.T
    np.matmul(x, transposed, out=y)
    times, begin = [], time.perf_counter()
    while len(times) < 3 or time.perf_counter() - begin < options.seconds:
        at = time.perf_counter()
        np.matmul(x, transposed, out=y)
        times.append(time.perf_counter() - at)
    return statistics.median(times)


def kernel_set(np):
    """The processor whose kernels OpenBLAS has chosen at run time, which may differ from the one that it was built on."""
    import ctypes

    folder = Path(np.__file__).parent
    for library in [*folder.parent.glob("numpy.libs/*openblas*"), *folder.glob(".libs/*openblas*")]:
        handle = ctypes.CDLL(str(library))
        for name in ("scipy_openblas_get_corename64_", "scipy_openblas_get_corename", "openblas_get_corename64_", "openblas_get_corename"):
            if hasattr(handle, name):
                function = getattr(handle, name)
                function.restype = ctypes.c_char_p
                return function().decode()
    return "unknown"


def with_one_thread(options):
    """The results for the most rows, or all of --large, of a run of this script with one thread: OpenBLAS gets its number of threads when it is loaded."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        what = ["--large"] if options.large else ["--rows", str(ROWS[-1])]
        command = [sys.executable, __file__, "--threads", "1", *what, "--rounds", str(options.rounds), "--seconds", str(options.seconds), "--json", str(result)]
        print("with one thread on both sides:", flush=True)
        subprocess.run(command, check=True)
        return json.loads(result.read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--rows", type=int, nargs="+", help="M of the products (default: all of the table)")
    parser.add_argument("--large", action="store_true", help="the seven shapes, with many rows")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    options.rows = options.rows or (LARGE_ROWS if options.large else ROWS)
    os.environ["OPENBLAS_NUM_THREADS"] = str(options.threads)
    import numpy as np
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    peer = f"NumPy {np.__version__}, {blas.get('openblas configuration', blas['name'])}".strip() + f"; kernels of {kernel_set(np)}"
    print(f"peer: {peer}")
    rows_out = []
    ceilings = [bench("arithmetic", options)["gigaflops"] for _ in range(options.rounds)]
    print(f"{'N':>6} {'K':>6} {'M':>5} {'lockstep us':>12} {'openblas us':>12} {'ratio':>7} {'range':>14} {'GFLOP/s':>9}")
    for n, k in LARGE_SHAPES if options.large else SHAPES:
        for rows in options.rows:
            ours, theirs = [], []
            for _ in range(options.rounds):
                ours.append(lockstep(rows, n, k, options))
                theirs.append(numpy_openblas(np, rows, n, k, options))
            ratios = [b / a for a, b in zip(ours, theirs)]
            a, b = statistics.median(ours), statistics.median(theirs)
            rows_out.append({"outputs": n, "inputs": k, "rows": rows, "lockstep_seconds": a, "openblas_seconds": b, "ratio": b / a,
                             "ratio_range": [min(ratios), max(ratios)]})
            print(f"{n:6} {k:6} {rows:5} {a * 1e6:12.1f} {b * 1e6:12.1f} {b / a:7.2f} {min(ratios):6.2f} .. {max(ratios):4.2f}"
                  f" {2 * rows * n * k / a / 1e9:9.1f}")
            sys.stdout.flush()
    ceiling = max(*ceilings, *(bench("arithmetic", options)["gigaflops"] for _ in range(options.rounds)))
    print(f"multiply-adds in registers, before and after: {ceiling:.0f} GFLOP/s")
    result = {"peer": peer, "threads": options.threads, "gigaflops": ceiling, "large": options.large, "rows": rows_out}
    if options.threads > 1 and (options.large or ROWS[-1] in options.rows):
        one = with_one_thread(options)
        result["one_thread"] = {"gigaflops": one["gigaflops"], "rows": one["rows"]}
    if options.json:
        options.json.write_text(json.dumps(result, indent=1, default=str))


if __name__ == "__main__":
    main()
