#!/usr/bin/env python3
"""The aims of products, steps, attention, decoding, the training API and kept forwards in one table: what was measured on which machine, whether that meets the aim, at which commit. Nothing
is measured here: the figures are those of the blocks of docs/performance.md and docs/ci.md, and a table that is older than they is found by script/performance.

    python3 bench/limit_bars.py [--page docs/profiling.md]

An aim of which no block has a figure has `not measured`, and the script that would measure it."""
import re
from pathlib import Path

from ci_costs import SUBJECTS, minutes_longer
from marked_page import page_command
from measured_block import Block, number
from performance_page import blocks_of, sections_of

ROOT = Path(__file__).resolve().parents[1]
CASES = 7 * 4 * 2  # of products: shapes, M, threads


def product_cases(block):
    """(threads, shape, M, ratio, share of the ceiling in percent) of each case with M of 64 and more."""
    for above, rows in block.tables.items():
        threads = 1 if above.startswith("With one thread") else 2
        for row in rows:
            if len(row) == 7 and row[1].isdigit() and int(row[1]) >= 64:
                yield threads, row[0], int(row[1]), number(row[4]), number(row[6])


def product_bars(blocks):
    """Of one machine: its blocks of both sections of products. Figures have a third part here: whether cases are missing."""
    found = {case[:3]: case for block in blocks for case in product_cases(block)}
    if not found:
        return
    some = "" if len(found) == CASES else f"; {len(found)} of {CASES} cases"
    told = lambda case, figure: f"{figure} at {case[1]}, M = {case[2]}, {case[0]} thread{'s' if case[0] > 1 else ''}"  # noqa: E731
    least = min(found.values(), key=lambda case: case[3])
    yield "products", (told(least, f"{least[3]:.2f}") + some, least[3] >= 1.0, bool(some))
    many = [case for case in found.values() if case[2] >= 512]
    if many:
        least, peer = min(many, key=lambda case: case[4]), max(case[4] / case[3] for case in many)
        yield "peak", (told(least, f"{least[4]:.0f} %") + f"; OpenBLAS at most {peer:.0f}", least[4] >= 88, bool(some))


def step_of(block):
    """(ratio to the peer, peak GB of ours) of a training step."""
    row = next((row for row in block.rows() if len(row) == 7 and "tokens, fp32" in row[0]), None)
    return (number(row[3]), number(row[4])) if row else (None, None)


def at_least(limit, value, told=None):
    return None if value is None else (told or f"{value:.2f}", value >= limit)


def inside_over_alone(step, products):
    """Products within a step over the same alone, by their shares of the rate in registers: SmolLM2's shapes at M = 512 with two threads."""
    inside = re.search(r"so they run at (\d+)% of that rate", step.text)
    alone = [case[4] for block in products for case in product_cases(block) if case[:1] == (2,) and case[2] == 512 and case[1] in ("1536 x 576", "576 x 1536")]
    if not inside or not alone:
        return None
    rate = sum(alone) / len(alone)
    return at_least(0.85, float(inside[1]) / rate, f"{float(inside[1]) / rate:.2f}: {inside[1]} % of the rate in registers, alone {rate:.0f} %")


def operation(block, run, name):
    """(ms, reached, share in percent) of an operation of a run of roofline.py."""
    row = block.row(name, above=f"SmolLM2, fp32: {run}")
    return (number(row[2]), number(row[6]), number(row[7])) if row and len(row) == 8 else None


def attention_over_products(block, run, attention, products):
    found, all_of = operation(block, run, attention), [operation(block, run, name) for name in products]
    if not found or None in all_of:
        return None
    rate = sum(ms * reached for ms, reached, _ in all_of) / sum(ms for ms, _, _ in all_of)
    return at_least(0.6, found[1] / rate, f"{found[1] / rate:.2f}: {found[1]:.0f} of {rate:.0f} GFLOP/s")


def limit_bars(block):
    for length in ("512", "2,048", "8,191"):
        yield f"attention {length}", attention_over_products(block, f"a prompt of {length} tokens", "attention_forward", ["linear_forward"])
    yield "attention backward", attention_over_products(block, "a training step of 1 x 2,048", "attention_backward", ["linear_backward_input", "linear_backward_weight"])
    for run in ("one stream behind a prompt of 512", "one stream behind a prompt of 2,048"):
        found = operation(block, f"a token of {run}", "attention_forward")
        yield f"keys, {run}", found and at_least(85, found[2], f"{found[2]:.0f} %")


def kept_bars(block):
    rows = {row[0]: row for row in block.rows() if len(row) == 11 and row[1] == "all"}
    if rows:
        ratios = {name: number(row[5]) for name, row in rows.items()}
        told = ", ".join(f"{ratio:.2f} with activations {name}" for name, ratio in ratios.items())
        yield "kept", at_least(1.18, max(ratios.values()), f"{told}; {number(next(iter(rows.values()))[10]):.0f} KB a row")


def prompt_bars(block):
    row = block.row("backward")
    if row:
        yield "prompt", at_least(5, number(row[4]))
        yield "prompt memory", (f"{number(row[6]):.2f}", number(row[6]) <= 0.5)


def llama_bars(block):
    read = next((row for row in block.rows("One stream reads") if row[0] == "bf16"), None)
    if read:
        yield "decode bf16", at_least(90, number(read[4]), f"{number(read[4]):.0f} %")
    for weights in ("f32", "bf16"):
        row = block.row(weights, "decode, 1 stream")
        yield f"stream {weights}", at_least(1.3, number(row[4]) if row else None)


def offload_bars(block):
    """What a plain copy of a step's bytes leaves stands beside a speed, where it was measured."""
    for size in OFFLOADED:
        row = block.row(f"{size} tokens a step: a step")
        most = next((number(one[5]) for one in block.rows() if one[0] == f"{size} tokens" and len(one) == 7), None)
        if row:
            speed = number(row[3])
            yield f"offload {size}", at_least(0.95, speed, f"{speed:.2f}" + (f"; a plain copy of the same bytes leaves {most:.2f}" if most else ""))


def custom_bars(block):
    found = [re.fullmatch(r"the same in the client, over fused: rank (\d+), .*, forwards kept for their gradients", row[0]) for row in block.rows()]
    ratios = {match[1]: number(row[1]) for match, row in zip(found, block.rows()) if match}
    if ratios:
        yield "custom", (", ".join(f"{ratio:.2f} of rank {rank}" for rank, ratio in ratios.items()), max(ratios.values()) <= 1.15)


def llama_long_bars(block):
    ratio = lambda weights, case: number((block.row(weights, case) or [""] * 5)[4])  # noqa: E731
    for size in ("2048", "8191"):
        for weights in ("f32", "bf16"):
            yield f"prefill {size} {weights}", at_least(2.0, ratio(weights, f"prefill of {size}"))
    for weights, aim in (("f32", 1.15), ("bf16", 1.5)):
        yield f"depth {weights}", at_least(aim, ratio(weights, "decode at depth 2048, 1 stream"))
        yield f"depth 8 {weights}", at_least(1.4, ratio(weights, "decode at depth 2048, 8 streams"))


def grpo_bar(name, limit):
    def bars(block):
        row = block.row("8 prompts x 8 samples x 32 tokens")
        yield name, at_least(limit, number(row[3]) if row else None)

    return bars


def loop_bars(block):
    row = block.row("all")
    yield "loop", at_least(1.12, number(row[2]) if row else None)


def step_bars(block, products):
    ratio, peak = step_of(block)
    yield "torch", at_least(1.6, ratio)
    yield "memory", None if peak is None else (f"{peak:.2f} GB", peak <= 2.79)
    deposits = block.row("accumulators")
    yield "deposits", deposits and (f"{number(deposits[1])} %", number(deposits[1]) < 4)
    yield "inside", inside_over_alone(block, products)


def small_step_bars(block):
    for aim, case in SMALL_STEPS.items():
        row = next((row for row in block.rows("Above the target of 3%") if row[0] == case), None)
        yield aim, row and (f"{number(row[1])} %", number(row[1]) < 4)


SMALL_STEPS = {"deposits small": "SmolLM2, 4 x 64 tokens", "deposits tiny": "countdown-glm, 64 x 64 tokens"}
OFFLOADED = (512, 2048)  # tokens a step
PRODUCTS, LARGE = "Linear layers, fp32", "Linear layers of seven shapes, fp32"
# What each aim is called, what it asks for, and the script.
AIMS = {
    "products": ("products over OpenBLAS, M of 64 and more: the least", "at least 1.0", "gemm_peers.py --large"),
    "peak": ("products of M of 512 and more, of the rate of multiply-adds in registers: the least", "at least 88 %", "gemm_peers.py --large"),
    "inside": ("products inside a training step, of their rate alone", "at least 0.85", "torch_peers.py"),
    "deposits": ("deposits into accumulators, of a step of 4 x 256 tokens", "less than 4 %", "torch_peers.py"),
    **{aim: (f"the same of a step of {case}", "less than 4 %", "variants.py tax") for aim, case in SMALL_STEPS.items()},
    "torch": ("a training step of 4 x 256 tokens over torch", "at least 1.6", "torch_peers.py"),
    "torch long": ("a training step of 1 x 2,048 tokens over torch", "at least 1.6", "torch_peers.py --sequences 1 --length 2048"),
    "lora": ("a step of an adapter of rank 8 over PEFT", "at least 2.0", "torch_peers.py --lora-rank 8"),
    "memory": ("peak memory of a training step of 4 x 256 tokens", "at most 2.79 GB", "torch_peers.py"),
    "grpo": ("a GRPO step of 8 x 8 x 32 over TRL", "at least 2.0", "rl_peer.py"),
    "grpo long": ("the same with prompts of 256 tokens", "at least 2.5", "rl_peer.py --prompt 256"),
    **{f"offload {size}": (f"a step of {size} tokens with the optimizer in files over one in memory", "at least 0.95", "training_api.py --offload") for size in OFFLOADED},
    "custom": ("a loss in the client over the fused one, forwards kept: the most", "at most 1.15", "training_api.py"),
    "kept": ("`train rl` of SmolLM2 with kept forwards over without", "at least 1.18", "kept_forwards.py"),
    "loop": ("`rl_loop` of the cookbook with kept forwards over without", "at least 1.12", "kept_loop.py"),
    "prompt": ("a step on 8 samples of one prompt of 2,048, its backward shared, over nothing shared", "at least 5", "variants.py prompts"),
    "prompt memory": ("memory of that step, of nothing shared's", "at most 0.5", "variants.py prompts"),
    **{f"attention {n}": (f"attention of a prompt of {n} tokens, of the products' rate", "at least 0.6", "roofline.py") for n in ("512", "2,048", "8,191")},
    "attention backward": ("attention's backward of 1 x 2,048 tokens, of the products' rate", "at least 0.6", "roofline.py"),
    **{f"keys, {run}": (f"keys and values read by {run}, of the best read", "at least 85 %", "roofline.py") for run in ("one stream behind a prompt of 512", "one stream behind a prompt of 2,048")},
    "decode bf16": ("decoding one stream in bf16, of the best read", "at least 90 %", "llama_peers.py"),
    **{f"stream {w}": (f"decoding one stream over llama.cpp, {w}", "at least 1.3", "llama_peers.py") for w in ("f32", "bf16")},
    **{f"prefill {n} {w}": (f"a prompt of {n} tokens over llama.cpp, {w}", "at least 2.0", "llama_peers.py --long") for n in ("2048", "8191") for w in ("f32", "bf16")},
    **{f"depth {w}": (f"decoding at depth 2,048 over llama.cpp, {w}", f"at least {aim}", "llama_peers.py --long") for w, aim in (("f32", 1.15), ("bf16", 1.5))},
    **{f"depth 8 {w}": (f"the same with 8 streams, {w}", "at least 1.4", "llama_peers.py --long") for w in ("f32", "bf16")},
    "ci": ("what a run of `.ci/run` is longer", f"at most {SUBJECTS['kept'][1]} minutes", "ci_costs.py --of kept"),
}  # fmt: skip


def ci_bar(root):
    if found := minutes_longer(root, "kept"):
        minutes, allowed, commit = found
        yield "ci", "", (f"{minutes} minutes", float(minutes) <= allowed), commit


def found_in(root):
    """(aim, machine, (figure, met), commit) of every figure."""
    sections = {title: [Block(block) for block in blocks_of(text)] for title, text in sections_of((root / "docs/performance.md").read_text())[1].items()}
    products = [*sections.get(PRODUCTS, []), *sections.get(LARGE, [])]
    for kind in dict.fromkeys(block.kind for block in products):
        of_kind = [block for block in products if block.kind == kind]
        for aim, figure in product_bars(of_kind):
            yield aim, kind, figure, ", ".join(dict.fromkeys(block.commit for block in of_kind))
    bars = {
        "SmolLM2-135M: a training step": lambda block: step_bars(block, [one for one in products if one.kind == block.kind]),
        "SmolLM2-135M: a training step of one long sequence": lambda block: [("torch long", at_least(1.6, step_of(block)[0]))],
        "SmolLM2-135M: a training step of an adapter": lambda block: [("lora", at_least(2.0, step_of(block)[0]))],
        "A GRPO step": grpo_bar("grpo", 2.0), "A GRPO step after prompts of 256 tokens": grpo_bar("grpo long", 2.5), "Kept forwards": kept_bars, "Kept forwards in a client's loop": loop_bars,
        "One prompt of thousands of tokens": prompt_bars, "Against the machine's limits": limit_bars, "SmolLM2-135M: prefill and decoding": llama_bars,
        "SmolLM2-135M: long prompts, and decoding behind them": llama_long_bars, "What the contract costs": small_step_bars, "Optimizers in files": offload_bars, "The training API": custom_bars,
    }  # fmt: skip
    for title, of in bars.items():
        for block in sections.get(title, []):
            for aim, found in of(block):
                if found:
                    yield aim, block.kind, found, block.commit
    yield from ci_bar(root)


def table(root):
    """The lines of the table, of the documents below `root`."""
    lines, found = ["| | aim | machine | measured | | script | commit |", "|---|---|---|---|---|---|---|"], list(found_in(root))
    for aim, (name, limit, script) in AIMS.items():
        rows = [one for one in found if one[0] == aim]
        for _, kind, (told, met, *some), commit in rows:
            said = "missed" if not met else "met where measured" if any(some) else "met"
            lines.append(f"| {name} | {limit} | {kind} | {told} | {said} | `bench/{script}` | {commit} |")
        if not rows:
            lines.append(f"| {name} | {limit} | | | not measured | `bench/{script}` | |")
    return lines


if __name__ == "__main__":
    page_command(__doc__, "bench/limit_bars.py", lambda: "\n".join(table(ROOT)))
