"""docs/works-with.md, its plot and docs/works-with.json, from the results of bench/works_with.py."""

import json
import statistics

from svg_plot import Panel, share_ranges, write_svg
from works_with_base import BASES

COLUMNS = 3  # panels of one picture


def number(value):
    return "-" if value is None else f"{value:.4g}"


def mean_and_noise(values):
    """The mean and its standard error (0 of a single value)."""
    noise = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return statistics.fmean(values), noise


def ends(curve):
    """Mean and noise of the first and of the last fifth, each of at least two steps if there are four: a single step gives no noise."""
    fifth = max(2 if len(curve) >= 4 else 1, len(curve) // 5)
    values = [value for _, value in curve]
    return mean_and_noise(values[:fifth]), mean_and_noise(values[-fifth:])


def shown(end):
    return number(end[0]) + (f" ± {end[1]:.2g}" if end[1] else "")


def kept(docs):
    """The results that docs/works-with.json has, by recipe."""
    found = json.loads((docs / "works-with.json").read_text())
    return {result["recipe"]: {**result, "versions": found["versions"][result["versions"]]} for result in found["results"]}


def kl_shown(result):
    found = result.get("kl_sample_train_v2")
    if not found:
        return ""
    if found["exactly 0"] == found["steps"]:
        return f"exactly 0 in all {found['steps']}"
    return f"at most {found['largest']:.2g}, exactly 0 in {found['exactly 0']} of {found['steps']}"


def verdict(recipe, result):
    if result["failed"]:
        return f"**failed**: {result['failed']}"
    if result["exit"] == "stopped":
        return f"ok as far as it went: stopped by hand after {len(result['curve'])} steps"
    if recipe.refused:
        return "refused, as it must"
    if recipe.kill_at:
        return f"killed after step {recipe.kill_at}, as asked"
    if not recipe.asked():
        return "ran"
    return "ok: " + ", ".join(recipe.asked())


def version_line(found):
    """The version, marked if it was built from a tree that is no commit."""
    line = ", ".join(version if version.startswith(f"{name} ") else f"{name} {version}" for name, version in found.items())
    return line + (" (**built from a tree with changes that are in no commit**)" if found["lockstep"].endswith("-dirty") else "")


def row(recipe, result, versions):
    moved = "{}: {} to {}".format(result["metric"], *map(shown, ends(result["curve"]))) if result.get("curve") else ""
    refusals = ", ".join(f"{count} x {status}" for status, count in sorted(result["refusals"].items()))
    steps = len(result["curve"]) if result.get("curve") else ""
    return (f"| {recipe.name} | {result['base']} | {verdict(recipe, result)} | {steps} | {moved} | {kl_shown(result)} | {result['seconds']:.0f} | {refusals or 'none'} "
            f"| {versions.index(result['versions']) + 1} | {result['note']} |").replace("\n", " ")  # fmt: skip


def plots(results, recipes, docs):
    """The names of the pictures."""
    curves = [(recipe, results[recipe.name]) for recipe in recipes if recipe.curve and len(results.get(recipe.name, {}).get("curve") or []) > 1]
    names = []
    for start in range(0, len(curves), COLUMNS):
        panels = []
        for recipe, result in curves[start : start + COLUMNS]:
            panel = Panel(recipe.curve, "step", recipe.metric.rsplit("/", 1)[-1])
            panel.line([tuple(point) for point in result["curve"]], "#1f6feb")
            share_ranges([panel])  # each has a range of its own: they are not to be compared
            panels.append(panel)
        names.append(f"works-with-{start // COLUMNS + 1}.svg")
        write_svg(docs / names[-1], panels, [])
    return names


def write(results, recipes, docs):
    done = [recipe for recipe in recipes if recipe.name in results]
    failed = [recipe.name for recipe in done if results[recipe.name]["failed"]]
    asked = [recipe for recipe in done if recipe.asked()]
    ran = [recipe.name for recipe in done if not recipe.asked() and recipe.name not in failed]
    agreed = [recipe.name for recipe in asked if recipe.asked() == ["no KL"]]
    missing = [recipe.name for recipe in recipes if recipe.name not in results]
    measured = [results[r.name]["kl_sample_train_v2"] for r in done if "kl_sample_train_v2" in results[r.name]]
    synchronous = sum(m["exactly 0"] for m in measured), sum(m["steps"] for m in measured)
    versions = []
    for recipe in done:
        if results[recipe.name]["versions"] not in versions:
            versions.append(results[recipe.name]["versions"])
    pictures = plots(results, recipes, docs)
    text = [
        "# Works with: tinker-cookbook",
        "",
        "Written by `bench/works_with.py page` from the runs of `bench/works_with.py run`; all numbers and curves are in [works-with.json](works-with.json).",
        "Each row is a recipe of the published package, unchanged, as a subprocess with the environment that a user would set, against",
        "`lockstep serve --training`. How to do the same: [training-api](training-api.md#tinker-cookbook).",
        "",
        "Versions, by the numbers of the table's column:",
        "",
        *[f"{number}. {version_line(found)}" for number, found in enumerate(versions, 1)],
        "",
        "The bases are no useful models: each is the shipped one (0.7 million parameters), its tokenizer's reserved tokens renamed to the turn marks that the",
        "renderers want, all of its parameters then fine-tuned by `lockstep train sft` on made-up conversations (`bench/works_with_lessons.py`):",
        "",
        *[f"- {base.name}: {base.taught}; {base.steps} steps of {base.batch} conversations." for base in BASES if any(results[r.name]["base"] == base.name for r in done)],
        "- smollm2 is SmolLM2-135M-Instruct as it was published.",
        "",
        "Names such as Qwen/Qwen3-8B are aliases of them, where a recipe insists on a name. Data sets of the hub are stand-ins of the same columns, made of",
        "sums. So these runs say that the recipes work and learn; they say nothing about how well a real model would. Adapters have each recipe's own rank.",
        "",
        f"{sum(r.name not in failed for r in asked)} of {len(asked)} did what was asked of them" + (f"; failed: {', '.join(failed)}" if failed else "") + "."
        + (f" Of {len(agreed)} of these nothing else than that sampler and trainer agree exactly, whatever they learnt: {', '.join(agreed)}." if agreed else "")
        + (f" Of {len(ran)} more nothing was asked but to end, and they ran: {', '.join(ran)}." if ran else "") + (f" Not run yet: {', '.join(missing)}." if missing else ""),
        "",
        f"The cookbook measures in each step of reinforcement learning how far the log-probabilities of training are from those of sampling. Its second-order KL",
        f"estimate (`optim/kl_sample_train_v2`, half the mean squared difference) was exactly 0, so every pair of them equal, in {synchronous[0]} of {synchronous[1]} steps.",
        "Where the recipe itself trains on samples of older weights (asynchronous runs, several optimizer steps a batch) it cannot be 0.",
        "",
        "± is the standard error of a mean over steps. What is asked stands behind `ok`: that a curve goes up or down, by three standard errors of the difference; no KL,",
        "so that sampler and trainer agree exactly in every step, where a recipe trains on samples of the newest weights; a refusal; the same numbers as another run;",
        "and of all the steps that they were told to take. `ran`: it took them, and nothing of what it did can be checked.",
        "",
        "| recipe | base | result | steps | means of the first and the last fifth | KL of sampler and trainer | seconds | refusing answers | versions | |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *[row(recipe, results[recipe.name], versions) for recipe in done],
        "",
        "Seconds are of two slow cores that were busy with other work beside, and include Python's start.",
        "",
        *[line for name in pictures for line in (f"![curves]({name})", "")],
        "## Commands",
        "",
        "Environment: `TINKER_BASE_URL=http://127.0.0.1:PORT TINKER_API_KEY=tml-dummy HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 WANDB_MODE=disabled`.",
        "",
        "```",
        *[results[recipe.name]["command"] for recipe in done],
        "```",
    ]  # fmt: skip
    (docs / "works-with.md").write_text("\n".join(text) + "\n")
    written = {"versions": versions, "results": [{**results[recipe.name], "versions": versions.index(results[recipe.name]["versions"])} for recipe in done]}
    (docs / "works-with.json").write_text(json.dumps(written, indent=1) + "\n")
    return 0
