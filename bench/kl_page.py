"""The page of the KL table: docs/kl.md and docs/kl.json, from the rows that are done."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))
import named_commits  # noqa: E402

LINE = 0.01  # a row with a higher k3 (an estimate of the KL divergence) is marked
TOKENS = 20_000  # the least of a row
# k3 that others publish of their sampler against their trainer, for large models of the same families.
PUBLISHED = [("Kimi-K2.5", "kimi_k2", 0.002702), ("MiniMax-M2.5", "minimax_m2", 0.0070), ("Llama 3.3 70B", "llama", 0.000125), ("Qwen3-4B", "qwen3", 0.000266)]
ORDER = ["own-full", "own-adapter", "own-adapter-int4", "own-expanded", "own-adapter-expanded", "expanded", "study", "transformers", "merged", "fp8", "int8", "int4-experts", "int4"]

HEAD = """# The KL table: samplers that are not the trainer

How far a sampler's log-probabilities are from those of the trainer, of tokens that the sampler drew at temperature 1: for this program's own pairs, where
both compute the same bits, and beside them for pairs as they are usual elsewhere. Measured by `bench/kl_table.py` ([data](kl.json)).

`l` is the log of trainer's over sampler's probability of a sampled token: k1 = mean(-l), k2 = mean(l² / 2), k3 = mean(eˡ - 1 - l). *Other bits* counts tokens whose
fp32 log-probability differs in any bit. The sampler is `lockstep serve`, the trainer `lockstep score --via train`, the forward whose gradient training takes; a row
says where it is another. Every row has at least 20,000 sampled tokens{fewer}. **Bold: k3 above {line}**, the bar that
Fireworks publishes for sampler and trainer of its own.

Weights are in bf16 with fp32 activations (`cpu-bf16w`) where a row says nothing else. Measured with {versions}.

## This program's own pairs

{shorter}After steps of training, not at the start: {own_zero} of {own} rows have no token with other bits.

| model | trained | pair | k1 | k2 | k3 | largest \\|l\\| | other bits, of tokens |
|---|---|---|---|---|---|---|---|
"""

OTHERS = """
## Other pairs

| model | sampler | k1 | k2 | k3 | largest \\|l\\| | other bits, of tokens |
|---|---|---|---|---|---|---|
"""

THEIRS = """
## Published k3 of large models

Theirs, other sizes: not measured here.

| model | k3 | rows of the family above |
|---|---|---|
"""


def figures(row):
    k3 = f"**{row['k3']:.3g}**" if row["k3"] > LINE else f"{row['k3']:.3g}"
    share = row["different_bits"] / row["tokens"]
    other = f"{row['different_bits']:,} of {row['tokens']:,}" + (f" ({share:.0%})" if row["different_bits"] else "")
    return f"{row['k1']:.3g} | {row['k2']:.3g} | {k3} | {row['largest_log_ratio']:.3g} | {other}"


def with_earlier(rows, docs):
    """The rows, and those of other models and pairs in the page's data."""
    path = docs / "kl.json"
    earlier = json.loads(path.read_text()) if path.is_file() else {"rows": []}
    measured = {(r["model"], r["row"]) for r in rows}
    return rows + [r for r in earlier["rows"] if (r["model"], r["row"]) not in measured]


def versions(rows):
    """The programs that measured rows, with the number of rows of each."""
    of = [r["version"] for r in rows]
    names = sorted(set(of), key=lambda name: (-of.count(name), name))
    said = names[0] if len(names) == 1 else ", ".join(f"{name} ({of.count(name)} rows)" for name in names)
    return ". ".join([said, *(one.rstrip(".") for one in named_commits.sentences(said))])


LESSON = "taught Countdown, "


def shorter_lessons(rows):
    """The sentence on families whose rows are of models that had fewer steps than the others' (their notes begin with LESSON), so that they are not those of
    docs/families.md; empty without any."""
    steps = {r["model"]: int(r["note"].removeprefix(LESSON).split()[0].replace(",", "")) for r in rows if r["note"].startswith(LESSON)}
    fewer = sorted({n for n in steps.values() if n < max(steps.values())})
    of = [f"{' and '.join(sorted(m for m in steps if steps[m] == n))} {n:,} steps" for n in fewer]
    return f"Not every family had the whole lesson: {', '.join(of)}, and no reinforcement learning; such rows are not of the models of [families](families.md).\n\n" if of else ""


def write(rows, models, docs):
    rows = sorted(with_earlier(rows, docs), key=lambda r: (models.index(r["model"]), ORDER.index(r["row"])))
    (docs / "kl.json").write_text(json.dumps({"line": LINE, "rows": rows}, indent=1) + "\n")
    own, others = [r for r in rows if r["row"].startswith("own")], [r for r in rows if not r["row"].startswith("own")]
    few = sorted({r["model"] for r in rows if r["tokens"] < TOKENS})
    fewer = f" but those of {', '.join(few)}, of which the machine had no time for more" if few else ""
    text = HEAD.format(fewer=fewer, line=LINE, own=len(own), own_zero=sum(r["different_bits"] == 0 for r in own), versions=versions(rows), shorter=shorter_lessons(rows))
    text += "".join(f"| {r['model']} | {r['note']} | {r['what'].removeprefix('this program, ')} | {figures(r)} |\n" for r in own)
    text += OTHERS + "".join(f"| {r['model']} | {r['what']} | {figures(r)} |\n" for r in others)
    text += THEIRS
    for name, family, k3 in PUBLISHED:
        mine = [r["k3"] for r in others if r["family"] == family and r["model"] != "SmolLM2"]
        text += f"| {name} | {k3:.6g} | {f'`{family}`: {min(mine):.3g} to {max(mine):.3g}' if mine else 'none yet'} |\n"
    missing = [m for m in models if m not in {r["model"] for r in rows}]
    part = [m for m in models if m not in missing and not any(r["model"] == m and r["row"] == ORDER[-1] for r in rows)]
    if part:
        text += f"\nNot all rows are measured of {', '.join(part)}.\n"
    if missing:
        text += f"\nNot measured yet: {', '.join(missing)}. `bench/kl_table.py run --work FOLDER` goes on with them.\n"
    (docs / "kl.md").write_text(text)
