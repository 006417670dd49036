"""The page of the long study: docs/mismatch-study.md, its plots and docs/mismatch-study.json, from the results of its cells."""

import json
import statistics
from collections import defaultdict

from svg_plot import Panel, share_ranges, write_svg

COLOURS = {"none": "#1a1a1a", "bf16": "#1f6feb", "int8": "#bf8700", "int4": "#cf222e"}
ROLLOUTS = {"none": "the trainer's own profile", "bf16": "bf16 activations, other order of sums", "int8": "8-bit integers", "int4": "4-bit integers"}
CORRECTIONS = {"none": "none", "tis": "TIS"}
LEGEND = [(f"{mismatch}, {CORRECTIONS[correction]}" if correction == "tis" else mismatch, COLOURS[mismatch], correction == "tis")
          for mismatch in COLOURS for correction in CORRECTIONS if (mismatch, correction) != ("none", "tis")]  # fmt: skip


def grouped(cells):
    """(rate, mismatch, correction) -> its cells by seed, without the control (truncated importance sampling without a mismatch)."""
    groups = defaultdict(list)
    for cell in cells:
        if (cell["mismatch"], cell["correction"]) != ("none", "tis"):
            groups[cell["rate"], cell["mismatch"], cell["correction"]].append(cell)
    return groups


def pass_at_1(cell):
    return cell["end"]["pass_at_1"]["value"] if "end" in cell else None


def average(cells, value):
    values = [value(c) for c in cells if value(c) is not None]
    return statistics.fmean(values) if values else None


def mean_curve(cells, key):
    by_step = defaultdict(list)
    for cell in cells:
        for step, value in cell[key]["curve"]:
            by_step[step].append(value)
    return [(step, statistics.fmean(values)) for step, values in sorted(by_step.items())]


def plots(cells, start, docs):
    groups = grouped(cells)
    rates = sorted({rate for rate, _, _ in groups})
    for key, label, logarithmic in (("reward", "mean reward", False), ("k3", "KL (k3)", True)):
        panels = [Panel(f"learning rate {rate:g}", "step", label, logarithmic) for rate in rates]
        for panel, rate in zip(panels, rates):
            for (of_rate, mismatch, correction), group in sorted(groups.items()):
                if of_rate == rate and not (key == "k3" and mismatch == "none"):
                    panel.line(mean_curve(group, key), COLOURS[mismatch], correction == "tis")
        share_ranges(panels)
        write_svg(docs / f"mismatch-study-{key}.svg", panels, [row for row in LEGEND if key == "reward" or row[0] != "none"])
    panel_names = list(COLOURS)
    panels = [Panel(f"learning rate {rate:g}", "sampler", "held-out pass@1 at the end", x_ticks=list(enumerate(panel_names))) for rate in rates]
    for panel, rate in zip(panels, rates):
        panel.line([(-0.5, start), (len(panel_names) - 0.5, start)], "#888")
        for (of_rate, mismatch, correction), group in sorted(groups.items()):
            if of_rate != rate:
                continue
            for cell in group:
                panel.point(panel_names.index(mismatch) + (0.15 if correction == "tis" else -0.15 if mismatch != "none" else 0), pass_at_1(cell),
                            COLOURS[mismatch], hollow=correction == "tis")  # fmt: skip
    share_ranges(panels)
    write_svg(docs / "mismatch-study-pass.svg", panels, [("start", "#888", False)] + [(f"{name}: dots none, rings TIS", colour, False) for name, colour in COLOURS.items() if name != "none"])


def shown(value, digits=3):
    return "-" if value is None else f"{value:.{digits}f}"


def small(value):
    return "0" if value == 0 else f"{value:.2g}"


def table(cells):
    groups = grouped(cells)
    same = {(c["rate"], c["seed"]): pass_at_1(c) for c in cells if (c["mismatch"], c["correction"]) == ("none", "none")}
    lines = ["| learning rate | sampler | correction | seeds | pass@1 at the end, mean (least to most) | minus the same seed without a mismatch, mean (each) | "
             "reward, last tenth | k3, first tenth | k3, last tenth | tokens outside the clip range | ratios cut by TIS | entropy, last tenth |",
             "|---|---|---|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for rate, mismatch, correction in sorted(groups, key=lambda g: (g[0], list(COLOURS).index(g[1]), g[2])):
        group = sorted(groups[rate, mismatch, correction], key=lambda c: c["seed"])
        ends = [pass_at_1(c) for c in group if pass_at_1(c) is not None]
        pairs = [pass_at_1(c) - same[rate, c["seed"]] for c in group if pass_at_1(c) is not None and same.get((rate, c["seed"])) is not None]
        against = "" if mismatch == "none" else f"{statistics.fmean(pairs):+.3f} ({', '.join(f'{p:+.3f}' for p in pairs)})" if pairs else "-"
        spread = f"{statistics.fmean(ends):.3f} ({min(ends):.3f} to {max(ends):.3f})" if ends else "-"
        failed = sum("failed" in c for c in group)
        lines.append(f"| {rate:g} | {mismatch} | {CORRECTIONS[correction]} | {', '.join(str(c['seed']) for c in group)}{f'; {failed} stopped by an error' if failed else ''} | "
                     f"{spread} | {against} | {shown(average(group, lambda c: c['reward']['last']))} | {small(average(group, lambda c: c['k3']['first']))} | "
                     f"{small(average(group, lambda c: c['k3']['last']))} | {average(group, lambda c: c['clipped']['last']):.2%} | "
                     f"{average(group, lambda c: c['truncated']):.2%} | {shown(average(group, lambda c: c['entropy']['last']))} |")  # fmt: skip
    return lines


def control(cells):
    """Truncated importance sampling without a mismatch: every weight is exactly 1, so the trained weights are the same to the bit."""
    by_name = {(c["mismatch"], c["correction"], c["rate"], c["seed"]): c for c in cells}
    for (mismatch, correction, rate, seed), cell in by_name.items():
        plain = by_name.get(("none", "none", rate, seed))
        if (mismatch, correction) == ("none", "tis") and plain:
            same = plain.get("weights_sha256") == cell.get("weights_sha256")
            return (f"Control: with TIS and no mismatch (learning rate {rate:g}, seed {seed}) the trained weights are "
                    f"{'the same to the bit' if same else 'DIFFERENT, which is a fault'} as without TIS: {cell.get('weights_sha256', 'none')[:16]} and "
                    f"{plain.get('weights_sha256', 'none')[:16]}.")  # fmt: skip
    return "Control: TIS without a mismatch was not run."


FEWEST = 5  # pairs that a verdict needs


def comparison(title, pairs):
    """One sentence over pairs of cells of one seed and rate. With few of them: each, beside the interval of the two measurements alone."""
    differences = [pass_at_1(a) - pass_at_1(b) for a, b in pairs]
    if not pairs:
        return f"- {title}: not run yet."
    if len(pairs) < FEWEST:
        each = []
        for (a, b), difference in zip(pairs, differences):
            halves = [(c["end"]["pass_at_1"]["high"] - c["end"]["pass_at_1"]["low"]) / 2 for c in (a, b)]
            own = (halves[0] ** 2 + halves[1] ** 2) ** 0.5
            each.append(f"{difference:+.3f} ({'beyond' if abs(difference) > own else 'within'} the ±{own:.3f} of the two measurements)")
        return f"- {title}: {'; '.join(each)}. Of {len(pairs)} pair{'s' if len(pairs) > 1 else ''} of one seed and learning rate: what other seeds do is not known."
    mean, error = statistics.fmean(differences), statistics.stdev(differences) / len(pairs) ** 0.5
    verdict = "more than two standard errors from 0" if abs(mean) > 2 * error else "within two standard errors of 0: no difference shown"
    return (f"- {title}: {mean:+.4f} ± {error:.4f} (standard error over {len(pairs)} pairs of one seed and learning rate; {sum(d > 0 for d in differences)} "
            f"are ahead), {verdict}.")  # fmt: skip


def findings(cells, start):
    by_name = {(c["mismatch"], c["correction"], c["rate"], c["seed"]): c for c in cells if "end" in c}
    keys = sorted({(c["rate"], c["seed"]) for c in cells})

    def pairs(first, second):
        return [(by_name[*first, *key], by_name[*second, *key]) for key in keys if (*first, *key) in by_name and (*second, *key) in by_name]

    lines = ["Of held-out pass@1 at the end, over all learning rates that are done:", ""]
    for mismatch in list(COLOURS)[1:]:
        lines.append(comparison(f"{mismatch} without correction, minus no mismatch", pairs((mismatch, "none"), ("none", "none"))))
        lines.append(comparison(f"{mismatch} with TIS, minus no mismatch", pairs((mismatch, "tis"), ("none", "none"))))
        lines.append(comparison(f"{mismatch}, TIS minus no correction", pairs((mismatch, "tis"), (mismatch, "none"))))
    falls = [f"{rate:g}, seed {seed}: {pass_at_1(c):.3f}" for (mismatch, correction, rate, seed), c in sorted(by_name.items())
             if (mismatch, correction) == ("none", "none") and pass_at_1(c) < start]  # fmt: skip
    if falls:
        lines += ["", f"Runs without any mismatch that end below the start of {start:.3f} (at such a learning rate training itself does harm): {'; '.join(falls)}."]
    return lines


def taken_over(cells):
    """One sentence on the cells of earlier releases, which one of them proved to be of the same study."""
    taken = [c for c in cells if "proof" in c]
    if not taken:
        return ""
    versions = ", ".join(sorted({c["version"] for c in taken}))
    return f" Of them {len(taken)} cells are of {versions}: {', '.join(sorted({c['proof'] for c in taken}))}, run again, ended with the same weights to the bit."


def write(data, docs):
    cells, settings, start = data["cells"], data["settings"], data["start"]
    seeds, rates = sorted({c["seed"] for c in cells}), sorted({c["rate"] for c in cells})
    plots(cells, start["pass_at_1"]["value"], docs)
    steps = sorted({c["steps"] for c in cells})
    lines = ["# When the sampler is not the trainer: a study", "",
             "Written by `bench/mismatch_study.py page` from the runs of `bench/mismatch_study.py run`; numbers of every cell, with curves, are in",
             "[mismatch-study.json](mismatch-study.json). Each cell is one `lockstep train rl` of `recipes/mismatch_study.toml` on the shipped model, whose",
             "trainer computes in `cpu-bf16w`; what differs is the numerics profile that samples:", "",
             *[f"- **{name}**: {text}." for name, text in ROLLOUTS.items()], "",
             f"Correction: none, or truncated importance sampling (TIS, `--importance-cap {settings['cap']:g}`). Without it the policy ratio is taken against what",
             "the sampler said and clipped, which by itself limits what a mismatch does; with it, against the trainer's own log-probability. Measured at the end on the same held-out problems, in the trainer's profile "
             f"({settings['problems']} problems x {settings['samples']} samples; one",
             "measurement has a 95% interval of about ±0.02).", "",
             f"Done: {len(cells)} cells of a grid of {data['grid']}; seeds {', '.join(map(str, seeds))}; learning rates {', '.join(f'{r:g}' for r in rates)}; "
             f"{' or '.join(map(str, steps))} steps a run. This is one small model, one task and short runs: it says what happens here, not",
             f"what happens at scale. Program: {settings['version']}.{taken_over(cells)}", "",
             f"At the start: pass@1 {start['pass_at_1']['value']:.3f} ({start['pass_at_1']['low']:.3f} to {start['pass_at_1']['high']:.3f}).", "",
             "## What is seen", "", *findings(cells, start["pass_at_1"]["value"]), "", control(cells), "",
             "## Numbers", "", *table(cells), "",
             "k3: the KL estimate between sampler and trainer over sampled tokens. Tokens outside the clip range: whose ratio of the two probabilities",
             "alone, before any learning, is outside [0.8, 1.28], in the last tenth of steps.", "",
             "## Curves", "", "Means over seeds; dashed: with TIS. Without a mismatch the KL is exactly 0 in every step, and has no place on a logarithmic axis.", "",
             "![mean reward over steps](mismatch-study-reward.svg)", "", "![KL over steps](mismatch-study-k3.svg)", "",
             "![held-out pass@1 of every cell](mismatch-study-pass.svg)"]  # fmt: skip
    (docs / "mismatch-study.md").write_text("\n".join(lines) + "\n")
    cells_text = ",\n".join("  " + json.dumps(cell) for cell in cells)
    head = {key: value for key, value in data.items() if key != "cells"}
    (docs / "mismatch-study.json").write_text(json.dumps(head, indent=1)[:-2] + ',\n "cells": [\n' + cells_text + "\n ]\n}\n")
    json.loads((docs / "mismatch-study.json").read_text())
    print(f"docs/mismatch-study.md is written, from {len(cells)} cells")
