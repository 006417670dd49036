"""The tables of docs/performance.md, a function a kind of result: from the JSON of a script of bench/ to lines of Markdown, of which the
first is the sentence behind the script's name."""

TARGETS = {
    ("f32", "prefill", 512): 1.3, ("f32", "decode", 1): 1.3, ("f32", "decode", 8): 1.3, ("f32", "decode", 32): 1.3,
    ("bf16", "prefill", 512): 0.8, ("bf16", "decode", 1): 1.3, ("bf16", "decode", 8): 1.3,
    ("q8_0", "decode", 1): 1.0, ("q4_0", "decode", 1): 1.0,
}  # fmt: skip


def span(row):
    return f"{row['ratio']:.2f} ({row['ratio_range'][0]:.2f} to {row['ratio_range'][1]:.2f})"


def gemm_table(data):
    ceiling = data.get("gigaflops")  # of multiply-adds in registers; results that were kept before it was measured have none
    lines = [f"Peer: {data['peer']}; {data['threads']} threads. Targets: 1.0 at M >= 64, 1.5 at M of 1 to 16."
             + (f" The ceiling, multiply-adds in registers alone: {ceiling:.0f} GFLOP/s (`lockstep bench arithmetic`)." if ceiling else ""), "",
             "| N x K | M | lockstep, us | OpenBLAS, us | ratio | GFLOP/s |" + (" of the ceiling |" if ceiling else ""), "|---|---|---|---|---|---|" + ("---|" if ceiling else "")]  # fmt: skip
    for r in data["rows"]:
        work = 2 * r["rows"] * r["outputs"] * r["inputs"] / r["lockstep_seconds"] / 1e9
        lines.append(f"| {r['outputs']} x {r['inputs']} | {r['rows']} | {r['lockstep_seconds'] * 1e6:.0f} | {r['openblas_seconds'] * 1e6:.0f} | {span(r)} | {work:.0f} |" + (f" {100 * work / ceiling:.0f}% |" if ceiling else ""))
    return lines


def llama_table(data):
    lines = [f"Peer: {data['peer']}; {data['threads']} threads; {data['rounds']} rounds.", "",
             "| weights | case | lockstep, tok/s | llama.cpp, tok/s | ratio | target |", "|---|---|---|---|---|---|"]  # fmt: skip
    for r in data["rows"]:
        case = f"prefill of {r['size']}" if r["case"] == "prefill" else f"decode, {r['size']} stream{'s' if r['size'] > 1 else ''}"
        target = TARGETS.get((r["weights"], r["case"], r["size"]))
        lines.append(f"| {r['weights']} | {case} | {r['lockstep']:.0f} | {r['llama_cpp']:.0f} | {span(r)} | {target or ''} |")
    return lines


def torch_table(data):
    r = data["rows"][0]
    what = f"adapter of rank {r['lora_rank']}" if r.get("lora_rank") else "all parameters"
    targets = "Target: 1.5 in tokens." if r.get("lora_rank") else "Targets: 1.5 in tokens, 0.65 in memory."
    return [f"Peer: {data['peer']}; {data['threads']} threads; {data['rounds']} rounds. {targets}", "",
            "| step | lockstep, tok/s | torch, tok/s | ratio | lockstep, peak GB | torch, peak GB | ratio |", "|---|---|---|---|---|---|---|",
            f"| {r['sequences']} x {r['length']} tokens, fp32, {what} | {r['lockstep']:.0f} | {r['torch']:.0f} | {span(r)} | "
            f"{r['lockstep_peak_bytes'] / 1e9:.2f} | {r['torch_peak_bytes'] / 1e9:.2f} | {r['memory_ratio']:.2f} |",
            *(["", f"The matrix products of a step alone, {'4' if r.get('lora_rank') else '6'} operations a weight and token, are {100 * r['share']:.0f}% of the {r['gigaflops']:.0f} GFLOP/s that multiply-adds in "
                   "registers reach here (`lockstep bench arithmetic`): no order of sums makes a step faster than one divided by that share."] if "share" in r else [])]  # fmt: skip


def rl_table(data):
    r = data["rows"][0]
    return [f"Peer: {data['peer']}; {data['threads']} threads; {data['rounds']} rounds. A llama of 4 million parameters, fp32, random weights. Target: 2.", "",
            "| step | lockstep, samples/s | TRL, samples/s | ratio |", "|---|---|---|---|",
            f"| {r['prompts']} prompts x {r['samples']} samples x {r['tokens']} tokens | {r['lockstep']:.1f} | {r['trl']:.1f} | {span(r)} |"]  # fmt: skip


def variants_table(what, first, second, of_first=1e3, of_second=1e3, ratio=span, least=lambda value: f"{value:.2f}"):
    def table(data):
        lines = [f"{what} {data['threads']} threads; {data['rounds']} rounds in turns.", "",
                 f"| case | {first} | {second} | ratio (range over rounds) | of the least times |", "|---|---|---|---|---|"]  # fmt: skip
        for r in data["rows"]:
            lines.append(f"| {r['case']} | {number(r['first'] * of_first)} | {number(r['second'] * of_second)} | {ratio(r)} | {least(r['least_ratio'])} |")
        return lines

    return table


def number(value):
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def percent(value):
    return f"{value * 100:.0f}%"


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


def offload_table(data):
    lines = [f"`{data['model']}`, {data['profile']}, {data['trainers']} models trained by turns, all parameters; the losses of both servers are equal. "
             "Targets: 0.6 in peak memory, 0.95 in speed.", "",
             "| | in memory | in files | ratio |", "|---|---|---|---|"]  # fmt: skip
    for size in data["sizes"]:
        peak, step = size["peak_bytes"], size["step_seconds"]
        lines += [f"| {number(size['tokens'])} tokens a step: peak memory, GB | {peak['memory'] / 1e9:.2f} | {peak['file'] / 1e9:.2f} | {size['peak_ratio']:.2f} |",
                  f"| the same less what the server has before training | | | {size['grown_ratio']:.2f} |",
                  f"| {number(size['tokens'])} tokens a step: a step | {seconds_of(step['memory'])} | {seconds_of(step['file'])} | speed {times_of(size['speed_ratio'])} |"]  # fmt: skip
    return lines


def packed_table(data):
    lines = ["A llama of random weights, an adapter of rank 16 over it, through the real `tinker` SDK; ratios are to bf16 (in speed, above 1 is faster). "
             "Targets: 0.29 of the bytes in int4, 0.53 in fp8.", "",
             "| weights | weights, MB | ratio | training step, tok/s | ratio | decode, 1 stream, tok/s | ratio | decode, 8 streams, tok/s | ratio |", "|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for profile, r in data["profiles"].items():
        cells = " | ".join(f"{number(r[name]['tokens_a_second'])} | {r[name]['ratio']:.2f}" for name in ("step", "decode 1", "decode 8"))
        lines.append(f"| {profile} | {r['weight_bytes'] / 1e6:.1f} | {r['weight_ratio']:.3f} | {cells} |")
    return lines


def tax_table(data):
    """Of `variants.py tax`: each row against the free order, and the tree against one leaf; then the accumulators' part of a step."""
    lines = [f"Linear layers in fp32 with the contract's summation tree of 8 leaves, against the same kernels with one leaf, and against sums in whatever order suits the "
             f"tile. Target: at most 3%. {data['threads']} threads; {data['rounds']} rounds in turns.", "",
             "| case | compared with | that, ms | the contract, ms | ratio (range over rounds) | of the least times |", "|---|---|---|---|---|---|"]  # fmt: skip
    for r in data["rows"]:
        if "share" in r:
            continue
        lines.append(f"| {r['case']} | {r.get('against', 'one leaf')} | {number(r['first'] * 1e3)} | {number(r['second'] * 1e3)} | {changes(r)} | {change(r['least_ratio'])} |")
    shares = [r for r in data["rows"] if "share" in r]
    if shares:
        lines += ["", "| training step | deposits into the order-free accumulators, of its time (range over rounds) |", "|---|---|"]
        lines += [f"| {r['case']} | {100 * r['share']:.1f}% ({100 * r['share_range'][0]:.1f}% to {100 * r['share_range'][1]:.1f}%) |" for r in shares]
    return lines
