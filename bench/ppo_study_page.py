"""The page of the study of PPO against GRPO: docs/ppo-study.md and docs/ppo-study.json, from its cells. Intervals are Student's, over seeds, 95 %; "ahead"
is written only where the two of a pair are disjoint."""

import json
from statistics import fmean, stdev

# The 97.5 % quantile of Student's t by degrees of freedom.
STUDENT = [None, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262]
FEWEST = 3  # seeds that an interval needs
SAMPLES, SAMPLED, WHOLE = 1, 2, 3  # the columns of a step by which cells are compared
NAMES = {"ppo": "PPO", "grpo": "GRPO"}


def interval(values):
    """(mean, low, high); low and high are None for fewer than FEWEST values."""
    mean = fmean(values)
    if len(values) < FEWEST:
        return mean, None, None
    half = STUDENT[min(len(values) - 1, len(STUDENT) - 1)] * stdev(values) / len(values) ** 0.5
    return mean, mean - half, mean + half


def success(steps, column, budget):
    """The mean reward of the last tenth (at least 5) of the steps that ended within the budget of that column; None before there are so many."""
    within = [step[0] for step in steps if step[column] <= budget + 1e-9]
    window = max(5, len(steps) // 10)
    return fmean(within[-window:]) if len(within) >= window else None


def verdict(pairs):
    """Of two intervals by algorithm: who is ahead, if they are disjoint."""
    (a, (_, a_low, a_high)), (b, (_, b_low, b_high)) = pairs.items()
    if a_low is None or b_low is None:
        return "too few seeds"
    return f"{NAMES[a]} ahead" if a_low > b_high else f"{NAMES[b]} ahead" if b_low > a_high else "not told apart"


def shown(value):
    mean, low, high = value
    return f"{mean:.3f}" if low is None else f"{mean:.3f} [{low:.3f}, {high:.3f}]"


def compared(groups, column, budget):
    """By algorithm the interval over seeds at that budget; None where one of them has not come so far."""
    found = {}
    for algorithm, cells in groups.items():
        values = [success(cell["steps"], column, budget) for cell in cells]
        if any(value is None for value in values):
            return None
        found[algorithm] = interval(values)
    return found


def rows_of(groups):
    """Lines of the table of one task and size; `groups`: algorithm -> cells, one a seed."""
    lines = []
    for column, unit in ((SAMPLES, "rollouts"), (SAMPLED, "seconds of rollouts"), (WHOLE, "seconds in all")):
        most = min(cell["steps"][-1][column] for cells in groups.values() for cell in cells)
        for part in (0.25, 0.5, 1):
            values = compared(groups, column, part * most)
            if values:
                amount = f"{part * most:,.0f}" if part * most >= 100 else f"{part * most:.1f}"
                lines.append(f"| {amount} {unit} | {' | '.join(shown(values[a]) for a in NAMES)} | {verdict({a: values[a] for a in NAMES})} |")
    for key, label in (("pass_at_1", "held out, sampled"), ("greedy", "held out, greedy")):
        values = {a: interval([cell["end"][key]["value"] for cell in groups[a]]) for a in NAMES}
        lines.append(f"| the end: {label} | {' | '.join(shown(values[a]) for a in NAMES)} | {verdict(values)} |")
    silent = fmean(step[4] for cell in groups["grpo"] for step in cell["steps"])
    lines.append(f"| groups without signal | none | {silent:.1%} | |")
    return lines


def text(data):
    settings, choosing = data["settings"], set(data["settings"]["choosing"])
    lines = ["# PPO against GRPO", "", "<!-- written by bench/ppo_study.py page -->", "",
             "PPO with a critic and one rollout a problem, and GRPO with eight, on the same number of rollouts a step. Learning rates were chosen on other seeds "
             f"({', '.join(map(str, sorted(choosing)))}) of {', '.join(f'{rate:g}' for rate in settings['rates'])}; the critic's settings were tuned for neither. Mean and 95 % interval (Student's) over seeds; "
             "\"ahead\" where the two are disjoint. Success is the mean reward of the last tenth of the steps within a budget, on problems that were not seen before, sampled at temperature 1; "
             "in its first 5 steps PPO trains the critic alone, which counts. Seconds are of one processor, one thread; those of rollouts are until a step's batch is whole.", ""]  # fmt: skip
    for task, start in data["start"].items():
        rate = start["pass_at_1"]
        lines += [f"## {task}", "", f"The start: {rate['value']:.3f} [{rate['low']:.3f}, {rate['high']:.3f}] sampled, {start['greedy']['value']:.3f} greedy."]
        of_task = [cell for cell in data["cells"] if cell["task"] == task and cell["seed"] not in choosing]
        if not of_task:
            reason = ("Its rewards are never earned, or hardly ever, so neither algorithm has anything to learn from: no cell was run. What was tried to teach it: "
                      "[agent-glm](../models/agent-glm/README.md#limits)." + (" The bar, 0.8 in every seed, is not met." if task == "lockbox" else "")
                      if rate["value"] < 0.005 else "No cell is done.")  # fmt: skip
            lines += ["", reason, ""]
            continue
        for size in sorted({cell["size"] for cell in of_task}):
            groups = {a: sorted((c for c in of_task if (c["algorithm"], c["size"]) == (a, size)), key=lambda c: c["seed"]) for a in NAMES}
            seeds = {a: [c["seed"] for c in cells] for a, cells in groups.items()}
            both = sorted(set(seeds["ppo"]) & set(seeds["grpo"]))
            groups = {a: [c for c in cells if c["seed"] in both] for a, cells in groups.items()}
            if not both:
                continue
            rates = {a: groups[a][0]["rate"] for a in NAMES}
            bits = sum(c["different_bits"] for cells in groups.values() for c in cells)
            lines += ["", f"### {size} rollouts a step", "", f"Seeds {', '.join(map(str, both))}; rates {', '.join(f'{NAMES[a]} {rates[a]:g}' for a in NAMES)}; "
                      f"{bits} log-probabilities differed in a bit.", "", f"| after | {' | '.join(NAMES.values())} | |", "|---|---|---|---|", *rows_of(groups)]  # fmt: skip
            explained = [c["explained_variance"] for c in groups["ppo"] if "explained_variance" in c]
            if explained:
                lines += ["", f"The critic explains {fmean(explained):.2f} of the returns' variance in the last third of the steps."]
            if any(c["clock"] for cells in groups.values() for c in cells):
                lines += ["", "Some cells were interrupted; their seconds are the clock's."]
            if task == "lockbox":
                least = min(c["end"]["pass_at_1"]["value"] for c in groups["ppo"])
                lines += ["", f"PPO's worst seed ends at {least:.3f}; the bar is 0.8 in every seed: {'met' if least >= 0.8 else 'not met'}."]
        done = {cell["size"] for cell in of_task}
        if left := [size for size in settings["tasks"][task]["steps"] if int(size) not in done]:
            lines += ["", f"Not run yet: {' and '.join(left)} rollouts a step."]
        lines.append("")
    for task in settings["tasks"]:
        if task not in data["start"]:
            lines += [f"## {task}", "", "Not run yet.", ""]
    lines += [f"Measured with {settings['version']}; every cell: [ppo-study.json](ppo-study.json).", ""]
    return "\n".join(lines)


def write(data, docs):
    (docs / "ppo-study.md").write_text(text(data))
    (docs / "ppo-study.json").write_text(json.dumps(data) + "\n")
