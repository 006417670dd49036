"""The tables of docs/performance.md, a function a kind of result: from the JSON of a script of bench/ to lines of Markdown, of which the
first is the sentence behind the script's name."""

TARGETS = {
    ("moe", "prefill", 512): 1.2, ("moe", "decode", 1): 1.2, ("moe", "decode", 8): 1.3,
    ("f32", "prefill", 512): 1.3, ("f32", "decode", 1): 1.3, ("f32", "decode", 8): 1.3, ("f32", "decode", 32): 1.3,
    ("bf16", "prefill", 512): 0.8, ("bf16", "decode", 1): 1.3, ("bf16", "decode", 8): 1.3,
    ("q8_0", "decode", 1): 1.0, ("q4_0", "decode", 1): 1.0,
    **{(weights, "prefill", size): 2.0 for weights in ("f32", "bf16") for size in (2048, 8191)},
}  # fmt: skip


def span(row):
    return f"{row['ratio']:.2f} ({row['ratio_range'][0]:.2f} to {row['ratio_range'][1]:.2f})"


def percent(value):
    return f"{value * 100:.0f}%"


def shares(row):
    """A share and its range."""
    return f"{percent(row['share'])} ({percent(row['share_range'][0])} to {percent(row['share_range'][1])})"


def gemm_rows(rows, ceiling):
    """Header and rows; `ceiling` None: results from before it was measured."""
    yield "| N x K | M | lockstep, us | OpenBLAS, us | ratio | GFLOP/s |" + (" of the ceiling |" if ceiling else "")
    yield "|---|---|---|---|---|---|" + ("---|" if ceiling else "")
    for r in rows:
        work = 2 * r["rows"] * r["outputs"] * r["inputs"] / r["lockstep_seconds"] / 1e9
        yield (f"| {r['outputs']} x {r['inputs']} | {r['rows']} | {r['lockstep_seconds'] * 1e6:.0f} | {r['openblas_seconds'] * 1e6:.0f} | {span(r)} | {work:.0f} |"
               + (f" {100 * work / ceiling:.0f}% |" if ceiling else ""))  # fmt: skip


def gemm_table(data):
    ceiling = data.get("gigaflops")  # of multiply-adds in registers
    targets = "Targets: 1.0, and at M >= 512 88% of the ceiling." if data.get("large") else "Targets: 1.0 at M >= 64, 1.5 at M of 1 to 16."
    lines = [f"Peer: {data['peer']}; {data['threads']} threads. {targets}"
             + (f" The ceiling, multiply-adds in registers alone: {ceiling:.0f} GFLOP/s (`lockstep bench arithmetic`)." if ceiling else ""), "",
             *gemm_rows(data["rows"], ceiling)]  # fmt: skip
    one = data.get("one_thread")
    if one:
        lines += ["", f"With one thread on both sides; its ceiling is {one['gigaflops']:.0f} GFLOP/s.", "", *gemm_rows(one["rows"], one["gigaflops"])]
    return lines


# Of the memory's speed, for one stream where memory leaves no room for the ratio: what linear layers alone are asked for (variants.py bandwidth).
SHARE_OF_MEMORY = 0.8


def most_against_peer(row):
    """For a row with both sides' shares of the memory's speed: how much faster than the peer a program would be that reads at full speed."""
    return 1 / row["memory"]["llama_cpp"]["share"]


USUAL_PROMPT = 128  # before decoding
# Behind prompts of 2,048 tokens.
DEEP_TARGETS = {("f32", 1): 1.15, ("bf16", 1): 1.5, ("f32", 8): 1.4, ("bf16", 8): 1.4}


def llama_target(row):
    if row["case"] == "decode" and row.get("prompt", USUAL_PROMPT) != USUAL_PROMPT:
        return DEEP_TARGETS.get((row["weights"], row["size"]), "")
    target = TARGETS.get((row["weights"], row["case"], row["size"]))
    if target and "memory" in row and most_against_peer(row) < target:
        return f"{percent(SHARE_OF_MEMORY)} of memory's speed: it allows {most_against_peer(row):.2f}"
    return target or ""


def llama_table(data):
    lines = [f"Peer: {data['peer']}; {data['threads']} threads; {data['rounds']} rounds.", "",
             "| weights | case | lockstep, tok/s | llama.cpp, tok/s | ratio | target |", "|---|---|---|---|---|---|"]  # fmt: skip
    for r in data["rows"]:
        at = f" at depth {r['prompt']}" if r.get("prompt", USUAL_PROMPT) != USUAL_PROMPT else ""
        case = f"prefill of {r['size']}" if r["case"] == "prefill" else f"decode{at}, {r['size']} stream{'s' if r['size'] > 1 else ''}"
        lines.append(f"| {r['weights']} | {case} | {r['lockstep']:.0f} | {r['llama_cpp']:.0f} | {span(r)} | {llama_target(r)} |")
    read = [r for r in data["rows"] if "memory" in r]
    if read:
        lines += ["", "One stream reads every weight once a token. What both read a second (keys and values are not counted), beside the fastest read of memory "
                  "(`lockstep bench memory`) before and after each. No program that reads the weights is faster against llama.cpp than one divided by llama.cpp's share; "
                  f"where that is below the target of a ratio, the target is {percent(SHARE_OF_MEMORY)} of the memory's speed, as for linear layers alone.", "",
                  "| weights | read a token, MB | memory, GB/s | lockstep, GB/s | of memory | llama.cpp, GB/s | of memory | the most against llama.cpp |",
                  "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for r in read:
        memory, ours, theirs = r["memory"], r["memory"]["lockstep"], r["memory"]["llama_cpp"]
        lines.append(f"| {r['weights']} | {memory['bytes'] / 1e6:.0f} | {ours['ruler']:.1f} | {ours['gigabytes_per_second']:.1f} | {shares(ours)} "
                     f"| {theirs['gigabytes_per_second']:.1f} | {shares(theirs)} | {most_against_peer(r):.2f} |")  # fmt: skip
    for r in read:
        target = TARGETS.get((r["weights"], r["case"], r["size"]))
        if target and r["ratio"] < target <= most_against_peer(r):
            lines += ["", f"A ratio of {target} in {r['weights']} asks for {percent(target / most_against_peer(r))} of the memory's speed; {percent(r['memory']['lockstep']['share'])} is reached."]
    return lines


# Of the rate of multiply-adds, for products where it leaves no room for the ratio: what linear layers alone reach with many rows (gemm_peers.py).
SHARE_OF_PRODUCTS = 0.85
# Parts of `lockstep bench train --by-kernel` (src/benchmark/kernel_groups.cpp) that the sentence below the table counts apart.
PRODUCTS = ("products forward and for the gradients of inputs", "products for the gradients of weights")
ACCUMULATORS = "accumulators"


def step_limits(row):
    """Of a training step: its products' and its accumulators' share of the time in which its threads could compute, and how much faster than the peer the
    step were at most with products at the full rate of multiply-adds: with nothing beside them, and with the accumulators as they are; the latter too with
    products at SHARE_OF_PRODUCTS of that rate."""
    busy = row["busy_processors"] / row["threads"]
    products = busy * sum(row["kernels"].get(name, {"median": 0})["median"] for name in PRODUCTS)
    accumulators = busy * row["kernels"].get(ACCUMULATORS, {"median": 0})["median"]
    return products, accumulators, row["ratio"] / row["share"], row["ratio"] / (row["share"] + accumulators), row["ratio"] / (row["share"] / SHARE_OF_PRODUCTS + accumulators)


def peer_products(row, products, target):
    """The sentences on the same products by the peer's library; none for results that were kept before it was asked."""
    if "torch_products_seconds" not in row:
        return []
    tokens, theirs = row["sequences"] * row["length"], row["torch_products_seconds"]
    ours, step = products * tokens / row["lockstep"], tokens / row["torch"]
    alone = step / theirs
    return ["", f"Torch's library makes the same products, with nothing beside them, in {theirs:.2f} s; torch's step takes {step:.2f} s. So a step of these products and nothing else would be {alone:.2f} times as "
            f"fast as torch's" + ("" if alone >= target else f", less than {target}: that target asks for products faster than the peer's own, and what is held instead is products at the peer's speed")
            + f". Ours take {ours:.2f} s within the step: {theirs / ours:.2f} times the peer's speed."]  # fmt: skip


def tile_limit(row, products):
    """The sentence on a step whose products never waited for anything behind the first cache; none for results from before that was measured."""
    if "tile_gigaflops" not in row:
        return []
    tile = row["tile_gigaflops"]
    at_that_rate = row["ratio"] / (1 - products + row["share"] * row["gigaflops"] / tile)
    return ["", f"With the operands in the first cache, loaded as a product's tile loads them, this machine makes {tile:.0f} GFLOP/s of multiply-adds, {percent(tile / row['gigaflops'])} of the rate in registers. "
                f"With products at that rate and all else as it is, a step would be {at_that_rate:.2f} times as fast as torch's."]  # fmt: skip


def step_profile(row, target):
    """What a step's time goes into, and the sentence on what the machine's multiply-adds allow."""
    products, accumulators, alone, with_accumulators, reachable = step_limits(row)
    low, high = row["gigaflops_range"]
    lines = ["", f"The matrix products of a step alone, {'4' if row.get('lora_rank') else '6'} operations a weight and token, would take {shares(row)} of its time at the rate of multiply-adds "
             f"in registers, {row['gigaflops']:.0f} GFLOP/s ({low:.0f} to {high:.0f}; `lockstep bench arithmetic` before and after each run). They take {percent(products)} of it, "
             + (f"so they run at {percent(row['share'] / products)} of that rate" if row["share"] <= products else "which is too little to be true: others used the processors")
             + f"; deposits into the order-free accumulators, which are the contract's, take {percent(accumulators)}, and the rest "
             f"{percent(1 - products - accumulators)}. At that rate with nothing beside them a step would be {alone:.2f} times as fast as torch, with the deposits as they are {with_accumulators:.2f}"
             + (f": the target of {target} is within what the rate in registers allows." if reachable >= target
                else f", and {reachable:.2f} at {percent(SHARE_OF_PRODUCTS)} of that rate: less than {target}, so the target is {percent(SHARE_OF_PRODUCTS)} of that rate in the products."),
             *tile_limit(row, products), *peer_products(row, products, target), "",
             "| part of the step | of the processor time (range over rounds) |", "|---|---|"]  # fmt: skip
    for name, share in row["kernels"].items():
        if share["median"] >= 0.001:
            lines.append(f"| {name} | {100 * share['median']:.1f}% ({100 * share['least']:.1f}% to {100 * share['most']:.1f}%) |")
    return [*lines, "", f"By {row['samples']} samples of the processor time of the runs above (`lockstep bench train --by-kernel`); {row['busy_processors']:.2f} of {row['threads']} processors were busy."]


def without_profile(row):
    """For results from before a step had a profile."""
    return ["", f"The matrix products of a step alone, {'4' if row.get('lora_rank') else '6'} operations a weight and token, are {100 * row['share']:.0f}% of the {row['gigaflops']:.0f} GFLOP/s that multiply-adds in "
                "registers reach here (`lockstep bench arithmetic`): no order of sums makes a step faster than one divided by that share."]  # fmt: skip


def short_of(row, speed, memory):
    """The sentence on a target that a step misses, and where the page says what limits it and what was tried; nothing where none is missed. `memory` None: it
    has no target."""
    missed = [f"in tokens by a factor of {speed / row['ratio']:.2f}"] if row["ratio"] < speed else []
    if memory and row["memory_ratio"] > memory:
        missed.append(f"in memory by a factor of {row['memory_ratio'] / memory:.2f}")
    if not missed:
        return []
    return ["", f"The target is missed {' and '.join(missed)}: [what limits a step, and what was tried](profiling.md#what-a-training-step-is-short-of)."]


# Of a training step, in tokens: of an adapter, of a model with experts, of any other.
ADAPTER_TARGET, EXPERTS_TARGET, STEP_TARGET = 2.0, 1.5, 1.6


def torch_table(data):
    r = {**data["rows"][0], "threads": data["threads"]}
    what = f"adapter of rank {r['lora_rank']}" if r.get("lora_rank") else "all parameters"
    speed = ADAPTER_TARGET if r.get("lora_rank") else EXPERTS_TARGET if ", experts by " in data["peer"] else STEP_TARGET
    targets = f"Target: {speed} in tokens." if r.get("lora_rank") else f"Targets: {speed} in tokens, 0.65 in memory."
    return [f"Peer: {data['peer']}; {data['threads']} threads; {data['rounds']} rounds. {targets}", "",
            "| step | lockstep, tok/s | torch, tok/s | ratio | lockstep, peak GB | torch, peak GB | ratio |", "|---|---|---|---|---|---|---|",
            f"| {r['sequences']} x {r['length']} tokens, fp32, {what} | {r['lockstep']:.0f} | {r['torch']:.0f} | {span(r)} | "
            f"{r['lockstep_peak_bytes'] / 1e9:.2f} | {r['torch_peak_bytes'] / 1e9:.2f} | {r['memory_ratio']:.2f} |",
            *short_of(r, speed, None if r.get("lora_rank") else 0.65), *(step_profile(r, speed) if "kernels" in r else without_profile(r) if "share" in r else [])]  # fmt: skip


SHORT_PROMPT = 16  # of a GRPO step


def rl_table(data):
    r = data["rows"][0]
    prompt = r.get("prompt", SHORT_PROMPT)
    target = 2 if prompt == SHORT_PROMPT else 2.5
    lines = [f"Peer: {data['peer']}; {data['threads']} threads; {data['rounds']} rounds. A llama of 4 million parameters, fp32, random weights; prompts of {prompt} tokens. Target: {target}.", "",
             "| step | lockstep, samples/s | TRL, samples/s | ratio |", "|---|---|---|---|",
             f"| {r['prompts']} prompts x {r['samples']} samples x {r['tokens']} tokens | {r['lockstep']:.1f} | {r['trl']:.1f} | {span(r)} |"]  # fmt: skip
    if "parts" not in r:
        return lines
    lines += ["", "| part of a step | lockstep, ms | TRL, ms | its products, GFLOP | lockstep's, of the rate of multiply-adds |", "|---|---|---|---|---|"]
    for name, what in (("rollouts", "rollouts"), ("learning", "learning: forward, backward, optimizer" + ("; TRL's is all but rollouts" if "trl" in r["parts"]["learning"] else ""))):
        part = r["parts"][name]
        theirs = f"{part['trl'] * 1e3:.0f}" if "trl" in part else "not told"
        lines.append(f"| {what} | {part['lockstep'] * 1e3:.0f} | {theirs} | {part['gigaoperations']:.1f} | {shares(part)} |")
    rest = r["step"] - sum(part["lockstep"] for part in r["parts"].values())
    least = sum(part["gigaoperations"] for part in r["parts"].values()) / r["gigaflops"]
    most = r["trl_step"] / least
    return [*lines, f"| the rest: requests, advantages, the new weights in the sampler | {max(rest, 0) * 1e3:.0f} | | | |", "",
            f"Products count each prompt once where its samples can share it (rollouts, the forward of learning), at 2 operations a weight and token forward and 4 backward. At the rate of "
            f"multiply-adds in registers, {r['gigaflops']:.0f} GFLOP/s (`lockstep bench arithmetic` before and after each run), they take {least * 1e3:.0f} ms of a step of {r['step'] * 1e3:.0f} ms; "
            f"a step of nothing else would be {most:.1f} times as fast as TRL's, so that rate " + ("does not forbid the target." if most >= target else "forbids the target.")
            + f" The target asks for {percent(target / most)} of that rate over the whole step; {percent(least / r['step'])} is reached."]  # fmt: skip


def variants_table(what, first, second, of_first=1e3, of_second=1e3, ratio=span, least=lambda value: f"{value:.2f}"):
    """`least` None: of a share, whose two sides have no least times that belong together."""

    def table(data):
        lines = [f"{what} {data['threads']} threads; {data['rounds']} rounds in turns.", "",
                 f"| case | {first} | {second} | ratio (range over rounds) |" + (" of the least times |" if least else ""), "|---|---|---|---|" + ("---|" if least else "")]  # fmt: skip
        for r in data["rows"]:
            lines.append(f"| {r['case']} | {number(r['first'] * of_first)} | {number(r['second'] * of_second)} | {ratio(r)} |" + (f" {least(r['least_ratio'])} |" if least else ""))
        return lines

    return table


def number(value):
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def percents(row):
    return f"{percent(row['ratio'])} ({percent(row['ratio_range'][0])} to {percent(row['ratio_range'][1])})"


def change(value):
    return f"{(value - 1) * 100:+.1f}%"


def changes(row):
    return f"{change(row['ratio'])} ({change(row['ratio_range'][0])} to {change(row['ratio_range'][1])})"


def seconds_of(row):
    """A median and its range, in milliseconds below a second."""
    scale, unit = (1, "s") if row["median"] >= 1 else (1e3, "ms")
    return f"{number(row['median'] * scale)} {unit} ({number(row['least'] * scale)} to {number(row['most'] * scale)})"


def times_of(row):
    return f"{row['median']:.2f} ({row['least']:.2f} to {row['most']:.2f})"


def training_table(data):
    """Of bench/training_api.py; a part that was not run has no row."""
    lines = ["Through the real `tinker` SDK against `lockstep serve --training` on models/countdown-glm; medians over rounds in turns, with their range.", "",
             "| what | figure | target |", "|---|---|---|"]  # fmt: skip
    for name, how in (("fused", "forwards kept for their gradients"), ("fused_without_reuse", "none kept")):
        for r in data.get(name, []):
            what = f"rank {r['rank']}, 4,096 tokens, {how}"
            lines.append(f"| clipped policy loss fused: {what} | {seconds_of(r['seconds']['fused'])} | |")
            lines.append(f"| the same in the client, over fused: {what} | {times_of(r['custom_over_fused'])} | {'at most 1.15' if name == 'fused' else 'at least 1.25'} |")
            if "custom_parts" in r:
                parts, own = r["custom_parts"], r["client_seconds"]
                share = 1 - own["custom"]["median"] / r["seconds"]["custom"]["median"]
                lines += [f"| of that call: until the function, in it, after it | {seconds_of(parts['forward'])}, {seconds_of(parts['function'])}, {seconds_of(parts['gradient'])} | reported |",
                          f"| of it the client's own processor time (the SDK, torch, JSON); of the fused call | {seconds_of(own['custom'])}; {seconds_of(own['fused'])} | reported |",
                          f"| so {percent(share)} of the call is the server and the wire; these alone, over those of the fused call | {times_of(r['ours_over_fused'])} | reported |"]  # fmt: skip
            lines.append(f"| the same traced to the server, over fused: {what} | {times_of(r['traced_over_fused'])} | |")
    for r in data.get("losses", {}).get("losses", []):
        lines.append(f"| {r['loss']} in the client, over fused: rank 0, none kept (processor time of the server alone: {r['processor']:.2f}) "
                     f"| {times_of(r['custom_over_fused'])} | at least 1.25; published by a hosted service: {r['published']} |")  # fmt: skip
    if "losses" in data:
        r = data["losses"]
        lines.append(f"| of such a call: the forward, the function itself, the gradient with its weights | {seconds_of(r['forward_seconds'])}, "
                     f"{seconds_of(r['function_seconds'])}, {seconds_of(r['gradient_seconds'])} | reported |")  # fmt: skip
    if "http" in data:
        lines.append(f"| a step of 4,096 tokens over HTTP, over one in process | {times_of(data['http']['http_over_process'])} | at most 1.03 |")
    if "checkpoint_to_live" in data:
        r = data["checkpoint_to_live"]
        lines.append(f"| from a step to the first sample of its version | {seconds_of(r['seconds'])} | 1 s |")
        lines.append(f"| {r['versions']} versions live, one after another | {r['all_versions_seconds']:.2f} s | 10 s |")
        lines.append(f"| all {r['versions']} sampled at once | {r['all_sampled_at_once_seconds']:.2f} s | |")
    if "many" in data:
        r = data["many"]
        lines.append(f"| {r['samplers']} samplers and {r['trainers']} trainers at once: time-outs and errors | {len(r['failures'])} | 0 |")
        lines.append(f"| the same: p95 of a sample of 16 tokens, of a step | {r['p95_seconds']['sample']:.2f} s, {r['p95_seconds']['step']:.2f} s | reported |")
    if "small_batches" in data:
        r = data["small_batches"]
        lines.append(f"| operations a second of 8 adapters with small batches, in shared passes over passes of their own | {times_of(r['shared_over_separate'])} | |")
    if "chunks" in data:
        r = data["chunks"]
        lines.append(f"| the first result of a call in {r['chunks']} requests, of {r['call_seconds']:.2f} s in all | {r['first_result_seconds']:.2f} s | reported |")
    return lines


def offload_limits(size):
    """Of steps of one size: the bytes a step moves through its file, the seconds that a plain copy takes for as many, and the speed that those leave."""
    moved = sum(size["moved_bytes"]["file"][field] - size["moved_bytes"]["memory"][field] for field in ("rchar", "wchar"))
    # A copy reads and writes its bytes.
    seconds = size["copy"]["seconds"]["median"] * moved / (2 * size["copy"]["bytes"])
    in_memory = size["step_seconds"]["memory"]["median"]
    return moved, seconds, in_memory / (in_memory + seconds)


def offload_target(size):
    """In speed: 0.95, or what a copy of as many bytes leaves, where that was measured and is less."""
    return min(0.95, offload_limits(size)[2]) if size.get("copy") else 0.95


def offload_misses(sizes):
    """The sentence on targets that are missed, of the figures as they are told, to two digits; nothing where none is."""
    told = [(size["tokens"], what, round(reached, 2), round(target, 2)) for size in sizes
            for what, reached, target in (("in speed", size["speed_ratio"]["median"], offload_target(size)), ("in peak memory", -size["peak_ratio"], -0.6))]  # fmt: skip
    missed = [f"{what} with {number(tokens)} tokens a step ({abs(reached):.2f}, target {abs(target):.2f})" for tokens, what, reached, target in told if reached < target]
    if not missed:
        return []
    unknown = "" if all(size.get("copy") for size in sizes) else " How much of it a plain copy of the same bytes takes was not measured here."
    return ["", f"Targets that are missed: {'; '.join(missed)}.{unknown}"]


def ranks_table(data):
    t = data["targets"]
    lines = [f"`lockstep train sft`, {data['profile']}, two threads in all: of one rank, or one of each of two ranks, which are threads or processes. Of {data['steps']} steps (at 8,192 tokens one) the "
             f"median, after a first one. Targets: {t['of_one']:g} of one rank for dp, tp and cp; {t['of_experts']:g} for ep, of a random model of 16 experts; {t['of_ideal']:g} of the ideal m / (m + p - 1) for "
             f"stages of a pipeline; processes {t['of_threads']:g} of threads. Where the ranks' time went: computing, waiting for others and for what travels, packing and copying that.", "",
             "| sequences a step | micro-batches of | ranks | as | tokens/s | of one rank | ideal | of threads | computed | waited | copied |", "|---|---|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for r in data["table"]:
        processes = r["transport"] == "mpi"
        way = [r["ranks"], "processes" if processes else "threads"] if r["ranks"] else ["one", ""]
        over_one = [span(r), f"{r['ideal']:.2f}"] if r["ranks"] else ["", ""]
        parts = [f"{part:.2f}" for part in r["parts"]] if r["parts"] else ["", "", ""]
        cells = [f"{r['sequences']} x {number(r['tokens'])}", str(r["micro_batch"] or "all"), *way, number(r["tokens_per_second"]), *over_one, f"{r['over_threads']:.2f}" if processes else "", *parts]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def offload_table(data):
    lines = [f"`{data['model']}`, {data['profile']}, {data['trainers']} models trained by turns, all parameters; the losses of both servers are equal. "
             "Targets: 0.6 in peak memory, 0.95 in speed.", "",
             "| | in memory | in files | ratio |", "|---|---|---|---|"]  # fmt: skip
    told = [size for size in data["sizes"] if size.get("copy")]
    for size in data["sizes"]:
        peak, step = size["peak_bytes"], size["step_seconds"]
        lines += [f"| {number(size['tokens'])} tokens a step: peak memory, GB | {peak['memory'] / 1e9:.2f} | {peak['file'] / 1e9:.2f} | {size['peak_ratio']:.2f} |",
                  f"| the same less what the server has before training | | | {size['grown_ratio']:.2f} |",
                  f"| {number(size['tokens'])} tokens a step: a step | {seconds_of(step['memory'])} | {seconds_of(step['file'])} | speed {times_of(size['speed_ratio'])} |"]  # fmt: skip
        if size in told:
            lines += [f"| the same: {what}, GB | {size['moved_bytes']['memory'][field] / 1e9:.2f} | {size['moved_bytes']['file'][field] / 1e9:.2f} | |"
                      for field, what in (("rchar", "read by calls"), ("read_bytes", "of it from the disk"), ("wchar", "written by calls"), ("write_bytes", "of it for the disk"))]  # fmt: skip
    if not told:
        return lines + offload_misses(data["sizes"])
    lines += ["", "| a step of | through the file, GB | a plain copy of one optimizer's file | as many bytes at that rate, ms | a step longer than in memory, ms | the most in speed | target |",
              "|---|---|---|---|---|---|---|"]  # fmt: skip
    for size in told:
        moved, seconds, most = offload_limits(size)
        target = f"{offload_target(size):.2f}" + ("" if most >= 0.95 else ": what a copy at that rate leaves")
        copy, step = size["copy"], size["step_seconds"]
        longer = step["file"]["median"] - step["memory"]["median"]
        lines.append(f"| {number(size['tokens'])} tokens | {moved / 1e9:.2f} | {copy['bytes'] / 1e9:.2f} GB in {seconds_of(copy['seconds'])}, {2 * copy['bytes'] / copy['seconds']['median'] / 1e9:.2f} GB/s "
                     f"read and written | {seconds * 1e3:.0f} | {longer * 1e3:.0f} | {most:.2f} | {target} |")  # fmt: skip
    return [*lines, *offload_misses(data["sizes"]), "", "A server's trainers leave memory between steps: each step reads every moment from its file by calls and writes it back, as a copy of the file does, whether or not the "
            "system still has the file in memory. `lockstep bench train --optimizer-folder` (the section \"The optimizer's state in a file\") keeps its one file mapped into the process and "
            "copies nothing while there is room, so that it shows what the file itself costs, and this section what memory that is given back costs. A step of more tokens "
            "has the same bytes to move, so that their part of it is smaller."]  # fmt: skip


def packed_table(data):
    lines = ["A llama of random weights, an adapter of rank 16 over it, through the real `tinker` SDK; ratios are to bf16 (in speed, above 1 is faster). "
             "Targets: 0.29 of the bytes in int4, 0.53 in fp8.", "",
             "| weights | weights, MB | ratio | training step, tok/s | ratio | decode, 1 stream, tok/s | ratio | decode, 8 streams, tok/s | ratio |", "|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for profile, r in data["profiles"].items():
        cells = " | ".join(f"{number(r[name]['tokens_a_second'])} | {r[name]['ratio']:.2f}" for name in ("step", "decode 1", "decode 8"))
        lines.append(f"| {profile} | {r['weight_bytes'] / 1e6:.1f} | {r['weight_ratio']:.3f} | {cells} |")
    return lines


TAX = 0.03  # the most that a layer may take longer than without the contract


def tax_table(data):
    """Of `variants.py tax`: each row against the free order, and the tree against one leaf, with how many are above the target; then the accumulators' part of
    a step."""
    layers = [r for r in data["rows"] if "share" not in r]
    against = {name: [r for r in layers if r.get("against", "one leaf") == name] for name in ("one leaf", "free order")}
    missed = ", ".join(f"{sum(r['ratio'] > 1 + TAX for r in rows)} of {len(rows)} against {name}" for name, rows in against.items() if rows)
    lines = [f"Linear layers in fp32 with the contract's summation tree of 8 leaves, against the same kernels with one leaf, and against sums in whatever order suits the "
             f"tile. Target: at most {percent(TAX)}. {data['threads']} threads; {data['rounds']} rounds in turns.", "",
             "| case | compared with | that, ms | the contract, ms | ratio (range over rounds) | of the least times |", "|---|---|---|---|---|---|"]  # fmt: skip
    for r in layers:
        lines.append(f"| {r['case']} | {r.get('against', 'one leaf')} | {number(r['first'] * 1e3)} | {number(r['second'] * 1e3)} | {changes(r)} | {change(r['least_ratio'])} |")
    lines += ["", f"Above the target of {percent(TAX)} are {missed}."]
    shares = [r for r in data["rows"] if "share" in r]
    if shares:
        lines += ["", "| training step | deposits into the order-free accumulators, of its time (range over rounds) |", "|---|---|"]
        lines += [f"| {r['case']} | {100 * r['share']:.1f}% ({100 * r['share_range'][0]:.1f}% to {100 * r['share_range'][1]:.1f}%) |" for r in shares]
    return lines


SLOWER = 0.02  # the most that anything may get slower from one commit to a later one


def commits_table(data):
    lines = [f"Two builds in turns, commit {data['before']} and then {data['after']}; who begins changes with each round. The ratio is the time that the later one takes more. "
             f"Target: nothing above {percent(SLOWER)}. {data['threads']} threads; {data['rounds']} rounds.", "",
             "| case | before, ms | after, ms | more (range over rounds) | of the least times |", "|---|---|---|---|---|"]  # fmt: skip
    for r in data["rows"]:
        lines.append(f"| {r['case']} | {number(r['first'] * 1e3)} | {number(r['second'] * 1e3)} | {changes(r)} | {change(r['least_ratio'])} |")
    told = {verdict: [] for verdict in ("slower", "not slower", "not told")}
    for r in data["rows"]:
        low, high = r["ratio_range"]
        told["slower" if low > 1 + SLOWER else "not slower" if high <= 1 + SLOWER else "not told"].append(r["case"])
    list_of = lambda verdict: "; ".join(told[verdict]) or "nothing"  # noqa: E731
    return [*lines, "", f"By the whole range over rounds, slower by more than {percent(SLOWER)}: {list_of('slower')}. Not slower: {list_of('not slower')}. "
            f"Not told, since the range lies on both sides: {list_of('not told')}."]  # fmt: skip


def contexts_table(data):
    """Attention in long contexts, an indexer for several layers, and latent attention absorbed and expanded."""
    lines = [f"Random models with GLM-5.2's and DeepSeek-V3.2's proportions at 1/16, four layers, a selection of 2,048 keys, fp32; {data['threads']} threads; medians of rounds in turns. Prompts are computed in "
             "pieces of 512 tokens. Targets: attention's time a token grows by at most 1.15 from 16k to 64k; one indexer for four layers against one for each: "
             "0.85 of the ratio of their operations (published, of the whole model: 1.82 and 1.48), and 1.5 and 1.3 times at 64k.", "",
             "| model | prompt | rounds | seconds | a token: attention, us | indexers, us | a token after the prompt, ms |", "|---|---|---|---|---|---|---|"]  # fmt: skip
    for r in data["rows"]:
        lines.append(f"| {r['model']} | {r['tokens']:,} | {r.get('rounds', data['rounds'])} | {r['seconds']:.1f} | {r['attention'] / r['tokens'] * 1e6:.1f} | {r['indexer'] / r['tokens'] * 1e6:.1f} | {r['token'] * 1e3:.2f} |")
    by = {(r["model"], r["tokens"]): r["attention"] / r["tokens"] for r in data["rows"]}
    growth = {model: by[model, 65536] / by[model, 16384] for model, tokens in by if tokens == 65536 and (model, 16384) in by and "dense" not in model}
    ranges = {(r["model"], r["tokens"]): r["attention_range"] for r in data["rows"] if "attention_range" in r}
    def spread(model):
        """Of rounds: the least and the most that the ratio may be."""
        if (model, 65536) not in ranges:
            return ""
        (low, high), (low_before, high_before) = ranges[model, 65536], ranges[model, 16384]
        return f" ({low / high_before:.2f} to {high / low_before:.2f})"
    if grown := [f"{model}: {ratio:.2f}{spread(model)}" for model, ratio in growth.items()]:
        keys = lambda tokens: sum(min(position + 1, 2048) for position in range(tokens)) / tokens
        lines += ["", f"Attention's time a token, 64k over 16k: {'; '.join(grown)}. Of that, {keys(65536) / keys(16384):.2f} is arithmetic: the first 2,048 rows of a prompt have fewer keys, "
                  "and are a larger part of the shorter one."]  # fmt: skip
    if dense := next((r for r in data["rows"] if "dense" in r["model"] and r["tokens"] == 65536), None):
        sparse = next(r for r in data["rows"] if r["model"] == "V3.2" and r["tokens"] == 65536)
        lines += ["", f"At 65,536 tokens a prompt of V3.2 with its indexers is {dense['seconds'] / sparse['seconds']:.2f} times as fast as without, a token after it {dense['token'] / sparse['token']:.2f} times. "
                  "GLM-5.2 without indexers has the same attention, of half as many heads."]  # fmt: skip

    if above := [model for model, ratio in growth.items() if ratio > 1.15]:
        lines += ["", f"Above the target: {'; '.join(above)}. A row reads its 2,048 entries of 576 numbers out of 38 MB a layer at 16k and 151 MB at 64k, so that fewer of them are found in the caches that other "
                  "rows have filled. Tried, and stayed: a block of entries is asked for before it is used (1.1 to 1.3 times as fast in decoding)."]  # fmt: skip
    if s := data.get("sharing"):
        cases = [(s[what], s[what + "_operations"]) for what in ("prefill", "decode")]
        (prefill, of_prefill), (decode, of_decode) = [(f"{ratio:.2f}", f"{operations:.2f} to 1 (target {'met' if ratio >= 0.85 * operations else 'missed'})") for ratio, operations in cases]
        lines += ["", f"One indexer for four layers against one for each, at {s['tokens']:,} tokens: a prompt {prefill} times as fast, where their operations are as {of_prefill}; a token after it {decode} "
                  f"times, {of_decode}. Aims, 1.5 and 1.3: {'met' if round(s['prefill'], 2) >= 1.5 else 'missed'} and {'met' if round(s['decode'], 2) >= 1.3 else 'missed'}."]  # fmt: skip
        if any(ratio > operations for ratio, operations in cases):
            lines[-1] += " Counting operations is no bound of time: where one is faster than by its operations, those that it leaves out take longer each than the others."
    latent = data["latent"]
    lines += ["", f"Latent attention, 16 heads of 128 + 64 / 128 over a latent of 512, {latent['tokens']:,} tokens, the operations of attention alone. Target: expanded at least 2 times as fast; the arithmetic allows 3.4.", "",
              "| | absorbed, ms | expanded, ms | ratio |", "|---|---|---|---|",
              *(f"| {what} | {latent['absorbed_' + part] * 1e3:.1f} | {latent['expanded_' + part] * 1e3:.1f} | {latent['absorbed_' + part] / latent['expanded_' + part]:.2f} |"
                for what, part in (("forward", "attention_forward"), ("backward", "attention_backward"))),
              f"| both | {(latent['absorbed_attention_forward'] + latent['absorbed_attention_backward']) * 1e3:.1f} | "
              f"{(latent['expanded_attention_forward'] + latent['expanded_attention_backward']) * 1e3:.1f} | {span(latent)} |"]  # fmt: skip
    return lines


def judged(value, most=None, least=None):
    """A ratio, and whether it keeps to its target, as it is shown."""
    shown = round(value, 2)
    return f"{shown:.2f} ({'met' if (most is None or shown <= most) and (least is None or shown >= least) else 'missed'})"


RIGHT_GUESSES = {"cpu-f32": 4, "cpu-bf16w": 2.8, "cpu-int8w": 2.5, "cpu-int4w": 2}  # times as fast, at least
EIGHT_ROWS = {"cpu-f32": 1.6, "cpu-bf16w": 2.4}  # of one row's time, at most
NO_MATCH = 0.97  # of the speed without guesses, at least


def speculation_verdicts(rows):
    """Sentences on the targets of speculation_table, of the cases that were measured."""
    of = lambda case: {r["profile"]: r["ratio"] for r in rows if r["case"] == case}  # noqa: E731
    listed = lambda found: ", ".join(f"`{profile}` {text}" for profile, text in found.items()) or "not measured"  # noqa: E731
    right = {p: judged(ratio, least=RIGHT_GUESSES[p]) for p, ratio in of("prediction, right").items() if p in RIGHT_GUESSES}
    wide = {p: judged(1 / ratio, most=EIGHT_ROWS[p]) for p, ratio in of("prediction, wrong").items() if p in EIGHT_ROWS}
    no_match = {p: judged(ratio, least=NO_MATCH) for p, ratio in of("ngram, sampled").items()}
    return ["", f"Right guesses: {listed(right)}. A forward of 8 rows over one of a single row: {listed(wide)}. N-grams that are hardly ever right: {listed(no_match)}."]


def speculation_table(data):
    """One stream with guesses and without (speculation.py)."""
    most = data["draft_tokens"]
    lines = [f"One stream of `lockstep serve`, greedy, {data['tokens']} tokens of each of {data['prompts']} prompts, {most} guesses a forward, with each way of guessing and without; {data['threads']} threads; "
             f"medians of {data['rounds']} round{'s' if data['rounds'] > 1 else ''} in turns. `auto` is asked the same prompts in each round, and so finds its own earlier answers too, as `siblings`. A prediction that is lost is wrong once and not followed from there; one that is wrong is so in every forward, costs its rows and yields nothing: the inverse of that ratio is a forward of {most + 1} rows of a sequence over one of a single row. "
             "Targets: right guesses 4 in fp32, 2.8 in bf16, 2.5 in int8, 2 in int4; that inverse at most 1.6 in fp32, 2.4 in bf16; n-grams that never hit (`sampled`, temperature 2) 0.97; answers that differ: none.", "",
             "| profile | guesses | without, tok/s | with, tok/s | ratio (range over rounds) | right, of guesses | answers that differ |", "|---|---|---|---|---|---|---|"]  # fmt: skip
    for r in data["rows"]:
        lines.append(f"| `{r['profile']}` | {r['case']} | {number(r['off'])} | {number(r['with'])} | {span(r)} | {r['accepted']:,.0f} of {r['guessed']:,.0f} | {r['different']} of {r['answers']} |")
    return lines + speculation_verdicts(data["rows"])


def loading_table(data):
    """The largest resident size of a server until it listens, beside what it computes with."""
    lines = [f"`lockstep serve` until it listens, its cache left out, files in the page cache; {data['threads']} threads; the most memory and the median time of {data['rounds']} rounds. INT4 experts: a "
             "random folder as compressed-tensors packs it. Targets: 1.3 times the compute copy for SmolLM2 in bf16; for INT4 experts 1.15 times and 64 MB, and 3 s a GB.", "",
             "| files | GB | profile | computed with, MB | peak, MB | ratio | ready, s | a GB, s | of the processors, s |", "|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for r in data["rows"]:
        size = r["file_bytes"] / 1e9
        lines.append(f"| {r['folder']}{'' if r['build'] == 'this' else ', ' + r['build']} | {size:.2f} | `{r['profile']}` | {r['compute_copy_bytes'] / 1e6:.0f} | {r['peak_bytes'] / 1e6:.0f} | {r['ratio']:.2f} | "
                     f"{r['seconds']:.2f} | {r['seconds'] / size:.1f} | {r['processor_seconds']:.2f} |")  # fmt: skip
    return lines


def tenants_table(data):
    return [f"What tenants of one server take from each other, and what sharing costs where nobody waits ([tenants](tenants.md)). Medians; {data['threads']} threads. Seconds of "
            "steps are the median of the server's own in device seconds.", "", "| what | measured | goal |", "|---|---|---|",
            *(f"| {r['what']} | {r['measured']} | {r['goal']} |" for r in data["rows"])]  # fmt: skip
