#!/usr/bin/env python3
"""Is the critic right? Trains critics of a policy that stays as it is, and compares their values with what 64 continuations of 500 states earn.

    ninja -C build critic_states
    bench/critic_right.py run --work FOLDER [--environments lockbox,dozen] [--policy DIR] [--steps 150] [--rollouts 128] [--states 500] [--continuations 64] [--threads 1]
    bench/critic_right.py page --work FOLDER

run: `lockstep train rl --algorithm ppo` whose critic alone learns, in every step (--critic-warmup), on training problems; then build/bench/critic_states on held-out
ones. In lockbox four critics: values carried from window to window or each window ending with the rollout's reward, summaries trained or not. Of a task of one answer
(dozen) there is one, and states are the beginnings of answers. An environment whose rewards the policy never earns has nothing to be right about: it is left
out, and the page says so. It may be stopped at any time, and the same command goes on where it was.
page: puts the tables between their marks in docs/rl.md.

Bars, of the critic with carried values and trained summaries: correlation at least 0.8, root mean square error at most 0.15; of failed rollouts the mean
advantage of the failing action at most -0.3, and of the other tokens within 0.1 of 0. As a control the same critic is fed zeros in the place of all tokens.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import fmean

from families import lockstep, once, version
from marked_page import write_between_marks

ROOT = Path(__file__).resolve().parents[1]
MAIN = "carried, summaries trained"
ARMS = {MAIN: [], "carried, summaries not trained": ["--no-train-summaries"], "terminal, summaries trained": ["--chain-value", "terminal"],
        "terminal, summaries not trained": ["--chain-value", "terminal", "--no-train-summaries"]}  # fmt: skip
ARMS_OF = {"lockbox": ARMS, "dozen": {MAIN: []}}
COMPACT_AT, MAX_TOKENS = {"lockbox": 80, "dozen": 0}, 16
LEAST_REWARD = 0.005  # of the policy, for there to be something to be right about
LAMBDA = 0.95  # of the advantages that the bars are about
SEED, STATES_SEED = 11, 12
LEAST_CORRELATION, MOST_ERROR, MOST_FAILING, MOST_ROUTINE = 0.8, 0.15, -0.3, 0.1


def correlation(xs, ys):
    """Pearson's; None where one side does not vary."""
    mx, my = fmean(xs), fmean(ys)
    xx, yy = sum((x - mx) ** 2 for x in xs), sum((y - my) ** 2 for y in ys)
    return sum((x - mx) * (y - my) for x, y in zip(xs, ys, strict=True)) / (xx * yy) ** 0.5 if xx > 0 and yy > 0 else None


def figures(measured, zeros=False):
    """What the bars are about, of one result of critic_states."""
    states = measured["states"]
    values, means = [state["zeros" if zeros else "value"] for state in states], [state["mean"] for state in states]
    row = next(row for row in measured["advantages_zeros" if zeros else "advantages"] if row["lambda"] == LAMBDA)
    tokens = sum(row["routine_tokens"])
    return {"correlation": correlation(values, means), "error": fmean((value - mean) ** 2 for value, mean in zip(values, means, strict=True)) ** 0.5,
            "failing": fmean(row["failing"]) if row["failing"] else None, "routine": sum(row["routine_sum"]) / tokens if tokens else None,
            "failed": len(row["failing"])}  # fmt: skip


def bars(f):
    """By bar whether it is met."""
    return {"values": f["correlation"] is not None and f["correlation"] >= LEAST_CORRELATION and f["error"] <= MOST_ERROR,
            "advantages": f["failing"] is not None and f["failing"] <= MOST_FAILING and abs(f["routine"]) <= MOST_ROUTINE}  # fmt: skip


def named(arm):
    return arm.replace(", ", "-").replace(" ", "-")


def critic_of(environment, arm, options):
    """The exported critic of that arm."""
    name = f"{environment}-{named(arm)}"
    folder = options.work / "runs" / name
    export = folder / "critic" / "export"
    if not (export / "model.safetensors").is_file():
        words = ["train", "rl", "--model", options.policy, "--environment", environment, "--max-tokens", MAX_TOKENS, "--algorithm", "ppo",
                 "--rollouts", 1, "--problems", options.rollouts, "--steps", options.steps, "--critic-warmup", options.steps, "--critic-learning-rate", "1e-3",
                 "--lambda", LAMBDA, "--critic-lambda", 1, "--seed", SEED, "--runs", options.work / "runs", "--name", name, "--threads", options.threads, "--no-page",
                 "--checkpoint-every", 10, "--keep-last", 1, "--transcripts", 0, *ARMS[arm], *(["--compact-at", COMPACT_AT[environment]] if COMPACT_AT[environment] else [])]  # fmt: skip
        lockstep(*words, *(["--resume"] if any((folder / "checkpoints").glob("*")) else []))
    return export


def measure(environment, arm, options):
    command = [options.states_binary, options.policy, critic_of(environment, arm, options), "--environment", environment, "--states", options.states, "--continuations",
               options.continuations, "--seed", STATES_SEED, "--compact-at", COMPACT_AT[environment], "--max-tokens", MAX_TOKENS, "--threads", options.threads]  # fmt: skip
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"critic_states: exit code {done.returncode}; the same command goes on")
    return json.loads(done.stdout)


def run(options):
    here = {"version": version(), "policy": str(options.policy.relative_to(ROOT) if options.policy.is_relative_to(ROOT) else options.policy.name), "steps": options.steps,
            "rollouts": options.rollouts, "states": options.states, "continuations": options.continuations}  # fmt: skip
    settings = options.work / "settings.json"
    if once(settings, lambda: here) != here:
        sys.exit(f"{settings} is of other settings or of another program; take another --work")
    for environment in options.environments:
        window = ["--compact-at", COMPACT_AT[environment]] if COMPACT_AT[environment] else []
        start = once(options.work / "results" / f"{environment}.json",
                     lambda: lockstep("eval", environment, "--model", options.policy, "--n", 500, "--samples", 4, "--max-tokens", MAX_TOKENS, "--threads", options.threads, *window)["pass_at_1"])  # noqa: B023  # fmt: skip
        if start["value"] < LEAST_REWARD:
            print(f"{environment}: the policy earns its reward in {start['value']:.2%} of its rollouts: nothing to be right about")
            continue
        for arm in ARMS_OF[environment]:
            file = options.work / "results" / f"{environment}-{named(arm)}.json"
            told = figures(once(file, lambda environment=environment, arm=arm: measure(environment, arm, options)))
            print(f"{environment}, {arm}: {told}", flush=True)


def shown(value):
    return "-" if value is None else f"{value:.3f}"


def text(environment, settings, results):
    """`results`: by arm what critic_states measured."""
    main, arms = results[MAIN], ARMS_OF[environment]
    lines = [f"`{environment}`: the policy ({settings['policy']}) earns a reward in {main['reward']:.1%} of its rollouts. {'Its critics' if len(arms) > 1 else 'Its critic'} learned from {settings['steps']} steps of "
             f"{settings['rollouts']} rollouts. {settings['states']} states, each the beginning of a random turn of another held-out rollout; {settings['continuations']} continuations each. "
             f"Advantages with lambda {LAMBDA:g}, of failed rollouts.",
             "", "| critic | correlation | root mean square error | advantage of the failing action | of the other tokens |", "|---|---|---|---|---|"]  # fmt: skip
    for arm, measured in results.items():
        for zeros in (False, True) if arm == MAIN else (False,):
            f = figures(measured, zeros)
            label = arm if len(arms) > 1 else "the critic"
            lines.append(f"| {label}{', fed zeros (control)' if zeros else ''} | {shown(f['correlation'])} | {shown(f['error'])} | {shown(f['failing'])} | {shown(f['routine'])} |")
    own, control = bars(figures(main)), bars(figures(main, True))
    said = lambda met: "met" if met else "not met"  # noqa: E731
    of_control = ("neither", "one of them, which so shows nothing", "both, which so show nothing")[sum(control.values())]
    lines += ["", f"Bars, of the first row: correlation at least {LEAST_CORRELATION:g} and error at most {MOST_ERROR:g}: {said(own['values'])}; failing action at most {MOST_FAILING:g}, others within "
              f"{MOST_ROUTINE:g} of 0: {said(own['advantages'])}. The control meets {of_control}."]  # fmt: skip
    if missing := [arm for arm in arms if arm not in results]:
        lines += ["", f"Not measured yet: {'; '.join(missing)}."]
    return "\n".join(lines)


def page(options):
    read = lambda path: json.loads(path.read_text())  # noqa: E731
    settings, blocks = read(options.work / "settings.json"), []
    for environment, arms in ARMS_OF.items():
        results = {arm: read(file) for arm in arms if (file := options.work / "results" / f"{environment}-{named(arm)}.json").is_file()}
        start = options.work / "results" / f"{environment}.json"
        if MAIN in results:
            blocks.append(text(environment, settings, results))
        elif start.is_file() and (earned := read(start))["value"] < LEAST_REWARD:
            blocks.append(f"`{environment}`: the policy ({settings['policy']}) earns its reward in {earned['value']:.2%} of 2,000 rollouts, so there is nothing that a critic could be right about: not run.")
        else:
            blocks.append(f"`{environment}`: not measured yet.")
    write_between_marks(ROOT / "docs/rl.md", "bench/critic_right.py", "\n\n".join([*blocks, f"Measured with {settings['version']}."]))


def main():
    absolute = lambda word: Path(word).resolve()  # noqa: E731
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "page"))
    parser.add_argument("--work", type=absolute, required=True)
    parser.add_argument("--environments", type=lambda word: word.split(","), default=list(ARMS_OF))
    parser.add_argument("--policy", type=absolute, default=ROOT / "models/agent-glm")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--rollouts", type=int, default=128, help="a step")
    parser.add_argument("--states", type=int, default=500)
    parser.add_argument("--continuations", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--states-binary", type=absolute, default=os.environ.get("LOCKSTEP_CRITIC_STATES") or ROOT / "build/bench/critic_states")
    options = parser.parse_args()
    if unknown := [name for name in options.environments if name not in ARMS_OF]:
        parser.error(f"unknown environments {', '.join(unknown)}; there are {', '.join(ARMS_OF)}")
    options.work.mkdir(parents=True, exist_ok=True)
    (run if options.what == "run" else page)(options)


if __name__ == "__main__":
    main()
