#!/usr/bin/env python3
"""The aims of weights that travel in one table: what was measured, whether that meets the aim, by which script, at which commit. Nothing is measured here: the
figures are those of the blocks that scripts wrote into the documents, and a table that is older than they is found by a test.

    python3 bench/weight_bars.py [--page docs/weight-sync.md]

An aim whose block lacks the figure has `not measured`."""
import re
from pathlib import Path

from ci_costs import LONGER, SUBJECTS
from marked_page import page_command
from measured_block import Block, number

ROOT = Path(__file__).resolve().parents[1]
HERE, TENANTS, CI, RL = "docs/weight-sync.md", "docs/tenants.md", "docs/ci.md", "docs/rl.md"


def block_of(root, document, script):
    found = re.search(rf"<!-- {re.escape(script)}: begin -->\n(.*?)\n<!-- {re.escape(script)}: end -->", (root / document).read_text(), re.S)
    return Block(found[1] if found else "", script.partition(" --")[0])


def at_most(limit, *values):
    return None if None in values else all(value <= limit for value in values)


def at_least(limit, *values):
    return None if None in values else all(value >= limit for value in values)


def codec_bars(block):
    def of(pair, digests, column, missing=None):
        row = block.row(pair, "", "lockstep, with" if digests else "lockstep")
        return number(row[column]) if row and len(row) > column else missing

    for pair, most, of_theirs, speed in (("1 step", 0.22, 0.56, 4), ("4 steps", 0.60, 0.58, 3)):
        size, ratio, encode, decode = (of(pair, False, column) for column in (3, 4, 5, 6))
        yield f"bytes of a delta after {pair}, of the full ones", f"at most {most:.2f} %", f"{size} %", at_most(most, size)
        yield f"bytes of a delta after {pair}, of `arc_v3`'s", f"at most {of_theirs}", f"{ratio}", at_most(of_theirs, ratio)
        yield f"GB/s a processor after {pair}, encoding and decoding", f"at least {speed}", f"{encode}, {decode}", at_least(speed, encode, decode)
    encode, decode, later, last = (of(pair, True, column) for pair in ("1 step", "4 steps") for column in (5, 6))
    yield "GB/s a processor with all digests, after 1 step and after 4", "at least 2.5", f"{encode}, {decode}; {later}, {last}", at_least(2.5, encode, decode, later, last)
    cells = [row[7] for pair in ("1 step", "4 steps") for kind in ("lockstep", "lockstep, with") if (row := block.row(pair, "", kind)) and len(row) > 7]
    ratios = [float(value) for cell in cells for value in re.findall(r"\d+\.\d+", cell)]
    yield "two threads over one, by the clock: encoding, decoding, each", "at least 1.7", "; ".join(cells) if ratios else "None", at_least(1.7, *ratios) if ratios else None


def run_bars(block):
    kept, link = (number((block.row(begin) or ["", ""])[1]) for begin in ("bf16 weights with the bits", "bytes in the store"))
    row = block.row("a step with publishing") or block.row("publishing, of a step's time")
    yield "bf16 weights with the bits of the step before, the least of 50 steps", "at least 98 %", f"{kept} %", at_least(98, kept)
    yield "bytes in the store, the first full copy included, of 50 full copies", "at most 6 %", f"{link} %", at_most(6, link)
    yield "publishing, of a step", "at most 3 %", f"{number(row[1]) if row else None} %", at_most(3, number(row[1]) if row else None)


def swap_bars(block):
    names = next((row[1:3] for row in block.rows() if "countdown-glm" in row), ["", ""])

    def cells(begin):
        return (block.row(begin) or ["", "", ""])[1:3]

    def told(begin):
        return "; ".join(f"{name} {cell}" for name, cell in zip(names, cells(begin)))

    for begin, name, limit in (("until a first token of another", "end of `optim_step` to a first token of another process's replica: median (most)", 1), ("ten versions pushed", "ten versions ready on two replicas", 10)):
        values = [number(cell) for cell in cells(begin)]
        yield name, f"less than {limit} s", told(begin), None if None in values else max(values) < limit
    for name, step, pause in zip(names, cells("a token of that stream without swaps"), cells("`double`: the swap")):
        met = None if None in (number(step), number(pause)) else number(pause) <= number(step)
        yield f"pause of a swap with `double`, {name}: median (most)", f"one step: {step}", pause, met
    a_gb = number(cells("`single`: a GB of weights")[1])
    yield "pause with `single`, a GB of weights", "less than 1 s", f"{a_gb} s", None if a_gb is None else a_gb < 1
    double, single = (number(cells(f"`{kind}`: most memory")[1]) for kind in ("double", "single"))
    yield "most memory, of the weights: `double`, `single`", "at most 2.1, 1.1", f"{double}, {single}", None if None in (double, single) else double <= 2.1 and single <= 1.1


def region_bars(block):
    rows = re.findall(r"^\|(?: ([^|]+) \|)? far-1 \| [^|]+ \| ([\d.]+) \(([\d.]+)\) \|", block.text, re.M)
    told = ", ".join(f"{model or 'countdown-glm'} {middle} ({most}) s" for model, middle, most in rows)
    yield "the slow region ready after a step: median (most)", "at most 10 s", told or "None", at_most(10, *(float(most) for _, _, most in rows)) if rows else None


def live_bars(block):
    words = ("95th percentile of the gap", "of the time to the first one", "rollouts' tokens a second beside", "where no live request comes")
    names = ("gap between live tokens beside rollouts, 95th percentile, ms", "time to a live answer's first token, the same, ms", "rollouts' tokens a second beside live answers, of theirs alone",
             "the same where no live request comes, of those without a bound")  # fmt: skip
    for begin, name in zip(words, names):
        row = block.row(begin)
        yield name, row[2] if row else "", row[1] if row else "None", row[3] == "met" if row else None


def lesson_bars(block):
    plain, checked = (re.findall(r"\d+\.\d+", (block.row(begin) or ["", ""])[1]) for begin in ("plain", "checked"))
    tokens = number((block.row("checked") or ["", "", "", ""])[3])
    if len(plain) < 3 or len(checked) < 3 or tokens is None:
        yield "Countdown with a checker: held-out problems solved", "0.08 more, intervals disjoint, at most 1.6 times the tokens", "None", None
        return
    more, apart = float(checked[0]) - float(plain[0]), float(checked[1]) > float(plain[2])
    yield ("Countdown with a checker: held-out problems solved", "0.08 more, 95 % intervals disjoint, at most 1.6 times the tokens",
           f"{more:.3f} more, {'' if apart else 'not '}disjoint, {tokens:g} times", more >= 0.08 and apart and tokens <= 1.6)  # fmt: skip


def cost_bars(block):
    found, allowed = LONGER.search(block.text), SUBJECTS["weights"][1]
    yield "what a run of `.ci/run` is longer", f"at most {allowed} minutes", f"{found[1]} minutes" if found else "None", at_most(allowed, float(found[1])) if found else None


def lesson_block(root):
    """A table of rl.md that names its script in the sentence before."""
    found = re.search(r"What the checker of `countdown-checked`.*?(?=\n## )", (root / RL).read_text(), re.S)
    return Block(found[0] if found else "", "bench/checked_answers.py")


def table(root):
    """The lines of the table, of the documents below `root`."""
    lines = ["| | aim | measured | | script | commit |", "|---|---|---|---|---|---|"]
    for bars, block in ((codec_bars, block_of(root, HERE, "bench/delta_codec.py")), (run_bars, block_of(root, HERE, "bench/published_run.py")), (swap_bars, block_of(root, HERE, "bench/weight_swaps.py")),
                        (region_bars, block_of(root, HERE, "bench/regions.py")), (live_bars, block_of(root, TENANTS, "bench/live_rollouts.py")), (lesson_bars, lesson_block(root)),
                        (cost_bars, block_of(root, CI, "bench/ci_costs.py --of weights"))):  # fmt: skip
        for name, aim, measured, met in bars(block):
            said = "not measured" if met is None else "met" if met else "missed"
            lines.append(f"| {name} | {aim} | {measured if met is not None else ''} | {said} | `{block.script}` | {', '.join(block.commits) if block.commits else 'not named'} |")
    return lines


if __name__ == "__main__":
    page_command(__doc__, "bench/weight_bars.py", lambda: "\n".join(table(ROOT)))
