"""The tables of docs/performance.md of what learning costs: from the JSON of bench/learning_costs.py and bench/learning_peers.py to lines of Markdown, of which the
first is the sentence behind the script's name."""

from performance_tables import changes, number, span

PPO, CRITIC, KEPT = 2.1, 1.15, 1.03  # at most
PLANNED = 0.1  # between what a critic of all weights holds and what is planned
PAIRS = 4  # a step of DPO
DPO, DPO_LONG, DPO_MEMORY, DISTILL_CE, DISTILL, DISTILL_MEMORY = 1.5, 1.7, 0.65, 1.7, 1.5, 0.5


def verdict(reached, target, most=False):
    return "met" if (reached <= target if most else reached >= target) else "missed"


def told(data):
    return f"{data['threads']} threads; {data['rounds']} rounds in turns."


def ppo_table(data):
    lines = [f"A step's training of PPO with a critic of all weights over GRPO's, on the same completions: forward, backward and optimizer, sampling left out. {told(data)} Target: at most {PPO} times; two models "
             "trained on the same tokens are 2.0 times the arithmetic.", "",
             "| case | PPO: policy, ms | critic, ms | GRPO, ms | times (range over rounds) | |", "|---|---|---|---|---|---|"]  # fmt: skip
    lines += [f"| {r['case']} | {number(r['policy'] * 1e3)} | {number(r['critic'] * 1e3)} | {number(r['grpo'] * 1e3)} | {span(r)} | {verdict(r['ratio'], PPO, True)} |" for r in data["rows"]]
    for r in data["rows"]:
        if r["ratio"] > PPO:  # which of the two is more than a step of GRPO
            lines += ["", f"{r['case']}: PPO's policy takes {r['policy'] / r['grpo']:.2f} of GRPO's step, its critic {r['critic'] / r['grpo']:.2f}, where the target leaves {PPO} for both."]
    return lines


def critic_table(data):
    lines = [f"The most memory that a run's process held. {told(data)} Targets: at most {CRITIC} times the same run without a critic; within {round(100 * PLANNED)}% of what is planned.", "", "| run | GB | against | GB | times (range over rounds) | |", "|---|---|---|---|---|---|"]  # fmt: skip
    said = lambda r: verdict(abs(r["ratio"] - 1), PLANNED, True) if r.get("what") == "planned" else verdict(r["ratio"], CRITIC, True)  # noqa: E731
    return lines + [f"| {r['case']} | {r['bytes'] / 1e9:.2f} | {r['against']} | {r['against_bytes'] / 1e9:.2f} | {span(r)} | {said(r)} |" for r in data["rows"]]


def where_an_interval_lies(low, high, target):
    """A verdict only where the interval is on one side of the target."""
    return "met" if high <= target else "missed" if low > target else "not told apart"


def kept_sets_table(data):
    lines = [f"Top-k of 40, in turns within one process: sampling that tells what each token was drawn from against the same that does not; the policy's step over these tokens against one over all. {data['threads']} "
             f"threads; processor times, of which the ratio is what kept sets add: the median over rounds and the interval that holds it with 95%. Target: at most {round(100 * (KEPT - 1))}%, met or missed only where the "
             "whole interval is.", "", "| case | rounds | without, ms | with, ms | ratio (interval) | of the least times | |", "|---|---|---|---|---|---|---|"]  # fmt: skip
    return lines + [f"| {r['case']} | {r['rounds']} | {number(r['first'] * 1e3)} | {number(r['second'] * 1e3)} | {changes(r)} | {(r['least_ratio'] - 1) * 100:+.1f}% | "
                    f"{where_an_interval_lies(*r['ratio_range'], KEPT)} |" for r in data["rows"]]  # fmt: skip


def dpo_table(data):
    lines = [f"Peer: {data['peer']}, DPOTrainer as it comes; {told(data)} SmolLM2-135M, fp32, all weights, 4 pairs a step; on either side a pair is scored once under the reference. Targets: {DPO} times the pairs/s, "
             f"{DPO_LONG} where prompts are as long as answers, and {DPO_MEMORY} of the memory.", "",
             "| pairs | lockstep, pairs/s | TRL, pairs/s | ratio | lockstep, GB | TRL, GB | ratio | |", "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for r in data["rows"]:
        target = DPO if r["prompt"] < 64 else DPO_LONG
        lines.append(f"| {r['case']} | {r['lockstep']:.2f} | {r['trl']:.2f} | {span(r)} | {r['lockstep_peak_bytes'] / 1e9:.2f} | {r['trl_peak_bytes'] / 1e9:.2f} | {r['memory_ratio']:.2f} | "
                     f"speed {verdict(r['ratio'], target)}, memory {verdict(r['memory_ratio'], DPO_MEMORY, True)} |")  # fmt: skip
    return lines + [line for r in data["rows"] if "model_bytes" in r for line in ("", dpo_limits(r))]


def dpo_limits(r):
    """Of a row what limits it, from what was measured: the reference's part of the time, and of the memory what is neither side's choice."""
    step = PAIRS / r["lockstep"]
    without = r["ratio"] * step / (step - r["scoring"])
    room = DPO_MEMORY * r["trl_peak_bytes"] - r["model_bytes"]
    return (f"{r['case'].split(':')[0].capitalize()}: of {step:.2f} s for {PAIRS} pairs the reference's forward takes {r['scoring']:.2f}; a step that had none would be {without:.2f} times as fast as TRL's, so what is left of the "
            f"target is up to the forward and backward of the policy. Of the memory, weights, gradients and moments are {r['model_bytes'] / 1e9:.2f} GB (`lockstep plan`); the target leaves {room / 1e9:.2f} GB for everything "
            f"else, and activations of all rows, without shared prompts, are {r['activation_bytes'] / 1e9:.2f}.")  # fmt: skip


def distill_table(data):
    lines = [f"Peer: {data['peer']}, DistillationTrainer as it comes; {told(data)} A random qwen3 of 4 layers and 151,936 tokens, fp32, and a teacher as large; 8 prompts of 4 tokens and completions of 60. Both are the "
             f"reverse divergence over all tokens. Targets: at most {DISTILL_CE} times a "
             f"cross-entropy step; of memory no more than the same run over sampled tokens, the teacher's hidden states and one chunk of its logits; {DISTILL} times TRL's speed and {DISTILL_MEMORY} of its memory.", "",
             "| what | lockstep, ms | other, ms | ratio (range over rounds) | lockstep, GB | other, GB | ratio | |", "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for r in data["rows"]:
        time = r["what"] == "time"
        said = f"time {verdict(r['ratio'], DISTILL_CE, True)}{of_chunks(r)}" if time else f"speed {verdict(r['ratio'], DISTILL)}, memory {verdict(r['memory_ratio'], DISTILL_MEMORY, True)}"
        lines.append(f"| {r['case']} ({'time over time' if time else 'speed'}, by token) | {number(r['lockstep'] * 1e3)} | {number(r['other'] * 1e3)} | {span(r)} | {r['lockstep_peak_bytes'] / 1e9:.2f} | "
                     f"{r['other_peak_bytes'] / 1e9:.2f} | {r['memory_ratio']:.2f} | {said} |")  # fmt: skip
    return lines + [line for r in data["rows"] for line in distill_limits(r)] + list(memory_of_cross_entropy(data["rows"]))


def memory_of_cross_entropy(rows):
    """Where the memory beside TRL's misses its target: what the same student's step holds that has neither rollouts nor a teacher."""
    time, speed = (next((r for r in rows if r["what"] == what), None) for what in ("time", "speed"))
    if time and speed and speed["memory_ratio"] > DISTILL_MEMORY:
        yield from ("", f"The target is {DISTILL_MEMORY * speed['other_peak_bytes'] / 1e9:.2f} GB, of TRL's; a step of cross-entropy of the same student, without rollouts and without a teacher, takes {time['other_peak_bytes'] / 1e9:.2f}.")


def more_bytes(r):
    """What the divergence over all tokens holds beside the same run over sampled ones and the teacher's hidden states: the logits of rows at once, and little else."""
    return r["lockstep_peak_bytes"] - r["sampled_peak_bytes"] - r["kept_bytes"]


def of_chunks(r):
    return f", memory {verdict(more_bytes(r), r['chunk_bytes'], True)}" if "sampled_peak_bytes" in r else ""


def distill_limits(r):
    """From what was measured: where the time goes, and what the memory beside cross-entropy's is."""
    if r["what"] == "time":
        learning = r["lockstep"] - r["teacher"]
        yield from ("", f"Of the {number(r['lockstep'] * 1e3)} ms the teacher's forward takes {number(r['teacher'] * 1e3)}, learning {number(learning * 1e3)}.")
        if "sampled_peak_bytes" in r:
            yield (f"The process holds {(r['lockstep_peak_bytes'] - r['other_peak_bytes']) / 1e6:.0f} MB more than that of cross-entropy, which has no rollouts and no teacher, and "
                   f"{(r['lockstep_peak_bytes'] - r['sampled_peak_bytes']) / 1e6:.0f} MB more than the same run over sampled tokens, which has both: {r['kept_bytes'] / 1e6:.1f} MB are the teacher's hidden states, a chunk "
                   f"of its logits takes {r['chunk_bytes'] / 1e6:.0f} (the target: both together), and those of all tokens would take {r['whole_bytes'] / 1e6:.0f}.")  # fmt: skip
    elif "rollouts" in r:
        yield from ("", f"Of our whole step rollouts take {number(r['rollouts'] * 1e3)} ms, the teacher's forward {number(r['teacher'] * 1e3)}, learning {number(r['training'] * 1e3)}.")

