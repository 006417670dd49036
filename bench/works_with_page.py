"""docs/works-with.md, its plot and docs/works-with.json, from the results of bench/works_with.py."""

import json
import statistics

from svg_plot import Panel, share_ranges, write_svg

COLUMNS = 3  # panels of one picture


def number(value):
    return "-" if value is None else f"{value:.4g}"


def ends(curve):
    """Means of the first and of the last fifth."""
    fifth = max(1, len(curve) // 5)
    return statistics.fmean(v for _, v in curve[:fifth]), statistics.fmean(v for _, v in curve[-fifth:])


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
    if recipe.refused:
        return "refused, as it must"
    if recipe.kill_at:
        return f"killed after step {recipe.kill_at}, as asked"
    return f"ok; the same numbers as {recipe.same_as}" if recipe.same_as else "ok"


def row(recipe, result):
    first, last = ends(result["curve"]) if result.get("curve") else (None, None)
    moved = f"{result['metric']}: {number(first)} to {number(last)}" if first is not None else ""
    refusals = ", ".join(f"{count} x {status}" for status, count in sorted(result["refusals"].items()))
    steps = len(result["curve"]) if result.get("curve") else ""
    return f"| {recipe.name} | {verdict(recipe, result)} | {steps} | {moved} | {kl_shown(result)} | {result['seconds']:.0f} | {refusals or 'none'} | {recipe.note} |".replace("\n", " ")


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


def write(results, versions, recipes, docs):
    if not results:
        raise SystemExit("no recipe has been run yet")
    done = [recipe for recipe in recipes if recipe.name in results]
    failed = [recipe.name for recipe in done if results[recipe.name]["failed"]]
    missing = [recipe.name for recipe in recipes if recipe.name not in results]
    measured = [results[r.name]["kl_sample_train_v2"] for r in done if "kl_sample_train_v2" in results[r.name]]
    synchronous = sum(m["exactly 0"] for m in measured), sum(m["steps"] for m in measured)
    pictures = plots(results, recipes, docs)
    text = [
        "# Works with: tinker-cookbook",
        "",
        "Written by `bench/works_with.py page` from the runs of `bench/works_with.py run`; all numbers and curves are in [works-with.json](works-with.json).",
        "Each row is a recipe of the published package, unchanged, as a subprocess with the environment that a user would set, against",
        "`lockstep serve --training`. How to do the same: [training-api](training-api.md#tinker-cookbook).",
        "",
        "Versions: " + ", ".join(f"{name} {version}" for name, version in versions.items()) + ".",
        "",
        "The base is no useful model: it is the shipped one (0.7 million parameters), its tokenizer's reserved tokens renamed to the turn marks that the",
        "renderers want, fine-tuned for some minutes on made-up conversations that are right three times in five (`bench/works_with_base.py`). Names such as",
        "Qwen/Qwen3-8B are aliases of it, where a recipe insists on a name. Data sets of the hub are stand-ins of the same columns, made of sums. So these",
        "runs say that the recipes work and learn; they say nothing about how well a real model would. Adapters have each recipe's own rank.",
        "",
        f"{len(done) - len(failed)} of {len(done)} did what was asked of them" + (f"; failed: {', '.join(failed)}" if failed else "") + "."
        + (f" Not run yet: {', '.join(missing)}." if missing else ""),
        "",
        *(["What failed by its curve ran to its end without an error: its rewards did not rise in so few steps. The base is weak and the"
           " runs are short; which of the two it was has not been looked into.", ""] if any("went from" in (results[name]["failed"] or "") for name in failed) else []),
        f"The cookbook measures in each step of reinforcement learning how far the log-probabilities of training are from those of sampling. Its second-order KL",
        f"estimate (`optim/kl_sample_train_v2`, half the mean squared difference) was exactly 0, so every pair of them equal, in {synchronous[0]} of {synchronous[1]} steps.",
        "Where the recipe itself trains on samples of older weights (asynchronous runs, several optimizer steps a batch) it cannot be 0.",
        "",
        "| recipe | result | steps | means of the first and the last fifth | KL of sampler and trainer | seconds | refusing answers | |",
        "|---|---|---|---|---|---|---|---|",
        *[row(recipe, results[recipe.name]) for recipe in done],
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
    (docs / "works-with.json").write_text(json.dumps({"versions": versions, "results": [results[recipe.name] for recipe in done]}, indent=1) + "\n")
    return 0
