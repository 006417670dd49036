"""Tables of docs/performance.md on what is not computed twice and on the machine's limits, as bench/performance_tables.py has the others."""
from performance_tables import number, percent, span

KINDS = ("off", "forward", "backward")


def prompts_table(data):
    """Of `variants.py prompts`: a training step on samples of one long prompt."""
    lines = []
    for r in data["rows"]:
        lines += [f"SmolLM2-135M, fp32, all parameters: a training step on {r['samples']} samples of {r['tokens']:,} tokens after one prompt of {r['prompt']:,} (`lockstep bench prefix --share KIND`, a process each). "
                  f"Targets, of the backward shared too: {data['targets']['ratio']:g} times as fast as with nothing shared, in at most {data['targets']['memory']:g} of its memory. {data['threads']} threads; "
                  f"{data['rounds']} rounds in turns.", "",
                  "| shared | rows computed forward | rows computed backward | step, s | times as fast as nothing shared (range over rounds) | peak memory, GB | of nothing shared's |", "|---|---|---|---|---|---|---|"]  # fmt: skip
        for kind in KINDS:
            k = r["kinds"][kind]
            lines.append(f"| {kind} | {k['forward_rows']:,} | {k['backward_rows']:,} | {k['seconds']:.2f} | {span(k)} | {k['peak_bytes'] / 1e9:.2f} | {k['memory_ratio']:.2f} |")
    return lines


def kept_table(data):
    """Of `kept_forwards.py`."""
    o, most = data["options"], max(r["rows_asked"] for r in data["table"])  # a run that keeps nothing computes them all
    lines = [f"`lockstep train rl` with `--keep-forward` off, inputs and all: {o['problems']} problems x {o['rollouts']} rollouts, whose answers have {data['table'][0]['answer_tokens']:.0f} tokens in the middle and at most {o['max_tokens']}, "
             f"{o['steps']} steps of which the first is not counted. Target: {data['target']:g} of the step without. {o['threads']} threads; {o['rounds']} rounds in turns; every run ended with the same weights, and in every "
             "run the rows that were computed and those that were kept were all rows.", "",
             "| activations | kept | step, s | of that sampling | training | times as fast as off (range over rounds) | rows computed | kept | computed again in the backward | kept, MB | KB a row |", "|---|---|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for r in data["table"]:
        ratio = span({"ratio": r["ratio"], "ratio_range": [r["ratio_low"], r["ratio_high"]]})
        computed = r["rows_computed"] if r["mode"] != "off" else most
        lines.append(f"| {'checkpointed' if r['checkpointed'] else 'in memory'} | {r['mode']} | {r['step_seconds']:.2f} | {r['rollout_seconds']:.2f} | {r['train_seconds']:.2f} | {ratio} | {computed:,} | {r['rows_kept']:,} "
                     f"| {r['rows_recomputed']:,} | {r['kept_bytes'] / 1e6:.0f} | {r['kept_bytes_a_row'] / 1e3:.1f} |")  # fmt: skip
    return [*lines, "", "A row is a position of a text. Sampling and training are medians of their own, so they need not add up."]


def loop_table(data):
    """Of `kept_loop.py`."""
    lines = [f"`rl_loop` of tinker-cookbook, unmodified, on SmolLM2-135M: {data['batch']} questions x {data['group']} answers of at most {data['max_tokens']} tokens, an adapter of rank 32; the steps that trained. "
             f"Target: {data['target']:g} of the step without. {data['threads']} threads; {data['rounds']} rounds in turns.", "",
             "| kept | step, s | times as fast as off (range over rounds) | steps that trained | rows kept in sampling | read in training | computed beside them | dropped |", "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for r in data["table"]:
        lines.append(f"| {r['mode']} | {r['step']:.2f} | {span(r)} | {r['trained']} | {r['rows_kept']:,.0f} | {r['rows_read']:,.0f} | {r['rows_beside']:,.0f} | {r['rows_dropped']:,.0f} |")
    told = [f"{r['device']['rollouts']:.2f} s sampling and {r['device']['training']:.2f} s training with `{r['mode']}`" for r in data["table"] if "device" in r]
    return [*lines, "", f"Of the device's time a step has {', '.join(told)}: means over all steps, those that did not train among them."] if told else lines


# Operations below this share of a run are told together.
SMALL = 0.01


PRODUCTS = {"attention_forward": ["linear_forward"], "attention_backward": ["linear_backward_input", "linear_backward_weight"]}


def attention_of(operations):
    """The sentence on attention's rate beside that of the products of its direction; empty: memory limits it."""
    found = {o["operation"]: o for o in operations}
    told = []
    for name, products in PRODUCTS.items():
        own, beside = found.get(name), [found[one] for one in products if one in found]
        if own and beside and own["bound"] == "arithmetic" and all(o["bound"] == "arithmetic" for o in beside):
            rate = sum(o["reached"] * o["seconds"] for o in beside) / sum(o["seconds"] for o in beside)
            told.append(f"{name} at {own['reached'] / rate:.2f} of the rate of {' and '.join(products)}")
    return f"{'; '.join(told)}. Target: 0.6." if told else ""


def limits_table(data):
    """Of `roofline.py`: each operation of each run against the machine's limits."""
    lines = [f"What each operation of a run reached of what the machine allows (`lockstep bench roofline`, then `lockstep bench ... --profile-operations`): its limit is the least time for its arithmetic at the "
             f"rate of multiply-adds in registers and for its bytes at the best read of memory, whichever is longer. `caches`: more than memory gives, of what an earlier operation left in the caches. {data['rounds']} rounds, medians.", "",
             "| threads | multiply-adds, GFLOP/s | best read, GB/s | FLOP a byte |", "|---|---|---|---|"]  # fmt: skip
    for limit in data["limits"]:
        lines.append(f"| {limit['threads']} | {limit['gigaflops']:.0f} | {limit['gigabytes_per_second']:.1f} | {limit['gigaflops'] / limit['gigabytes_per_second']:.1f} |")
    for run in data["runs"]:
        lines += ["", f"{run['title']}, {number(run['step'] * 1e3)} ms:", "", "| operation | calls | ms | of the run | limited by | limit | reached | share |", "|---|---|---|---|---|---|---|---|"]
        small = [o for o in run["operations"] if o["of_run"] < SMALL]
        attention = attention_of(run["operations"])
        for o in run["operations"]:
            if o in small:
                continue
            by = "memory" if o["bound"] == "memory" else "arithmetic"
            unit = "GB/s" if by == "memory" else "GFLOP/s"
            lines.append(f"| {o['operation']} | {o['calls']:g} | {number(o['seconds'] * 1e3)} | {percent(o['of_run'])} | {by} | {o['limit']:.0f} {unit} | {number(o['reached'])} {unit} | {percent(o['share']) if o['share'] <= 1 else 'caches'} |")
        if small:
            lines.append(f"| {len(small)} smaller ones | | {number(sum(o['seconds'] for o in small) * 1e3)} | {percent(sum(o['of_run'] for o in small))} | | | | |")
        lines += ["", attention] if attention else []
    return lines
