#!/usr/bin/env python3
"""Is the critic right? Trains critics of a policy that stays as it is, and compares their values with what 64 continuations of 500 states earn.

    ninja -C build critic_states
    bench/critic_right.py run --work FOLDER [--environments lockbox,dozen] [--policy DIR] [--steps 100,400,1000] [--rollouts 128] [--states 500] [--continuations 64] [--threads 1]
    bench/critic_right.py page --work FOLDER

run: `lockstep train rl --algorithm ppo` whose critic alone learns, in every step (--critic-warmup), on training problems; then build/bench/critic_states on held-out
ones. Each of --steps is measured: a run goes on from the critic of fewer steps, which is kept beside it. In lockbox four critics, those that are not the first of the most steps alone: values carried from window to window or each window ending with the rollout's reward, summaries trained or not. Of a task of one answer
(dozen) there is one, and states are the beginnings of answers. An environment whose rewards the policy never earns has nothing to be right about: it is left
out, and the page says so. It may be stopped at any time, and the same command goes on where it was.
page: puts the tables between their marks in docs/rl.md.

Bars, of the critic with carried values and trained summaries after the most steps: correlation at least 0.8, root mean square error at most 0.15; of failed
rollouts the mean advantage of the failing action at most -0.3, and of the other tokens within 0.1 of 0. As a control the same critic is fed zeros in the place
of all tokens. Advantages are shown with every lambda that build/bench/critic_states knows, and judged with 0. With 0 a token's advantage is how its own choice
changed the value, which is what the bar asks about. With a lambda above 0 the token k places before the failing one has lambda^k of its advantage also where
the critic is perfect, so of answers of a few tokens the others are near 0 only if the failing one is near 0 as well.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import fmean

from families import lockstep, metrics, once, version
from marked_page import write_between_marks

ROOT = Path(__file__).resolve().parents[1]
MAIN = "carried, summaries trained"
ARMS = {MAIN: [], "carried, summaries not trained": ["--no-train-summaries"], "terminal, summaries trained": ["--chain-value", "terminal"],
        "terminal, summaries not trained": ["--chain-value", "terminal", "--no-train-summaries"]}  # fmt: skip
ARMS_OF = {"lockbox": ARMS, "dozen": {MAIN: []}}
COMPACT_AT, MAX_TOKENS = {"lockbox": 80, "dozen": 0}, 16
LEAST_REWARD = 0.005  # of the policy, for there to be something to be right about
JUDGED = 0  # the lambda of the advantages that the bars are about
WARM_UP = 1_000_000  # more than all steps: a run that goes on for more has to have the same
SEED, STATES_SEED = 11, 12
LEAST_CORRELATION, MOST_ERROR, MOST_FAILING, MOST_ROUTINE = 0.8, 0.15, -0.3, 0.1


def correlation(xs, ys):
    """Pearson's; None where one side does not vary."""
    mx, my = fmean(xs), fmean(ys)
    xx, yy = sum((x - mx) ** 2 for x in xs), sum((y - my) ** 2 for y in ys)
    return sum((x - mx) * (y - my) for x, y in zip(xs, ys, strict=True)) / (xx * yy) ** 0.5 if xx > 0 and yy > 0 else None


def lambdas(measured):
    return [row["lambda"] for row in measured["advantages"]]


def figures(measured, zeros=False, of=JUDGED):
    """What the bars are about, of one result of critic_states; advantages with the lambda `of`."""
    states = measured["states"]
    values, means = [state["zeros" if zeros else "value"] for state in states], [state["mean"] for state in states]
    row = next(row for row in measured["advantages_zeros" if zeros else "advantages"] if row["lambda"] == of)
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


def critic_of(environment, arm, steps, options):
    """The exported critic of that arm after so many steps, and its explained variance over the last ten of them."""
    name = f"{environment}-{named(arm)}"
    folder, kept = options.work / "runs" / name, options.work / "critics" / f"{name}-{steps}"
    told = kept / "explained_variance.json"
    if not told.is_file():
        words = ["train", "rl", "--model", options.policy, "--environment", environment, "--max-tokens", MAX_TOKENS, "--algorithm", "ppo",
                 "--rollouts", 1, "--problems", options.rollouts, "--steps", steps, "--critic-warmup", WARM_UP, "--critic-learning-rate", "1e-3",
                 "--critic-lambda", 1, "--seed", SEED, "--runs", options.work / "runs", "--name", name, "--threads", options.threads, "--no-page",
                 "--checkpoint-every", 10, "--keep-last", 1, "--transcripts", 0, *ARMS[arm], *(["--compact-at", COMPACT_AT[environment]] if COMPACT_AT[environment] else [])]  # fmt: skip
        lockstep(*words, *(["--resume"] if any((folder / "checkpoints").glob("*")) else []))
        shutil.copytree(folder / "critic/export", kept, dirs_exist_ok=True)
        told.write_text(json.dumps(last_explained(metrics(folder))) + "\n")
    return kept, json.loads(told.read_text())


def last_explained(rows):
    """The mean explained variance of the last ten steps; None where returns did not vary."""
    found = [row["explained_variance"] for row in rows[-10:] if row.get("explained_variance") is not None]
    return fmean(found) if found else None


def measure(environment, arm, steps, options):
    critic, explained = critic_of(environment, arm, steps, options)
    command = [options.states_binary, options.policy, critic, "--environment", environment, "--states", options.states, "--continuations",
               options.continuations, "--seed", STATES_SEED, "--compact-at", COMPACT_AT[environment], "--max-tokens", MAX_TOKENS, "--threads", options.threads]  # fmt: skip
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"critic_states: exit code {done.returncode}; the same command goes on")
    return json.loads(done.stdout) | {"explained_variance": explained}


def run(options):
    here = {"version": version(), "policy": str(options.policy.relative_to(ROOT) if options.policy.is_relative_to(ROOT) else options.policy.name),
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
            for steps in options.steps if arm == MAIN else options.steps[-1:]:
                file = options.work / "results" / f"{environment}-{named(arm)}-{steps}.json"
                told = figures(once(file, lambda environment=environment, arm=arm, steps=steps: measure(environment, arm, steps, options)))
                print(f"{environment}, {arm}, {steps} steps: {told}", flush=True)


def shown(value):
    return "-" if value is None else f"{value:.3f}"


def noise(measured):
    """The root mean square error that the values would have if they were the states' true ones, at most: of means of so many rewards between 0 and 1."""
    return fmean(state["mean"] * (1 - state["mean"]) / measured["continuations"] for state in measured["states"]) ** 0.5


def by_lambda(measured):
    """Advantages of failed rollouts with every lambda, of the critic and of the control."""
    lines = ["| lambda | advantage of the failing action | of the other tokens | of the control: failing | others |", "|---|---|---|---|---|"]
    for of in lambdas(measured):
        own, control = figures(measured, of=of), figures(measured, True, of)
        lines.append(f"| {of:g}{' (judged)' if of == JUDGED else ''} | {shown(own['failing'])} | {shown(own['routine'])} | {shown(control['failing'])} | {shown(control['routine'])} |")
    return lines


def text(environment, settings, results):
    """`results`: by arm and steps what critic_states measured."""
    arms, most = ARMS_OF[environment], max(steps for arm, steps in results if arm == MAIN)
    main = results[MAIN, most]
    lines = [f"`{environment}`: the policy ({settings['policy']}) earns a reward in {main['reward']:.1%} of its rollouts. {'Its critics' if len(arms) > 1 else 'Its critic'} learned from steps of "
             f"{settings['rollouts']} rollouts. {settings['states']} states, each the beginning of a random turn of another held-out rollout; {settings['continuations']} continuations each, whose own "
             f"chance makes an error of at most {noise(main):.3f}. Advantages of failed rollouts, with lambda {JUDGED:g}.",
             "", "| critic | steps | explained variance, last ten steps | correlation | root mean square error | advantage of the failing action | of the other tokens |", "|---|---|---|---|---|---|---|"]  # fmt: skip
    for (arm, steps), measured in results.items():
        for zeros in (False, True) if (arm, steps) == (MAIN, most) else (False,):
            f = figures(measured, zeros)
            label = arm if len(arms) > 1 else "the critic"
            explained = "" if zeros else shown(measured.get("explained_variance"))
            lines.append(f"| {label}{', fed zeros (control)' if zeros else ''} | {steps:,} | {explained} | {shown(f['correlation'])} | {shown(f['error'])} | {shown(f['failing'])} | {shown(f['routine'])} |")
    own, control = bars(figures(main)), bars(figures(main, True))
    said = lambda met: "met" if met else "not met"  # noqa: E731
    of_control = ("neither", "one of them, which so shows nothing", "both, which so show nothing")[sum(control.values())]
    lines += ["", f"Bars, {f'of the first critic after {most:,} steps' if len(results) > 1 else 'of the first row'}: correlation at least {LEAST_CORRELATION:g} and error at most {MOST_ERROR:g}: {said(own['values'])}; failing action at most {MOST_FAILING:g}, others within "
              f"{MOST_ROUTINE:g} of 0: {said(own['advantages'])}. The control meets {of_control}.",
              "", f"The same critic after {most:,} steps with every lambda:", "", *by_lambda(main)]  # fmt: skip
    if missing := [arm for arm in arms if (arm, most) not in results]:
        lines += ["", f"Not measured yet: {'; '.join(missing)}."]
    return "\n".join(lines)


def results_of(work, environment):
    """By arm and steps, fewer steps first, what critic_states measured."""
    found = {}
    for arm in ARMS_OF[environment]:
        start = f"{environment}-{named(arm)}-"
        files = {file.stem.removeprefix(start): file for file in (work / "results").glob(f"{start}*.json")}
        found |= {(arm, int(steps)): json.loads(files[steps].read_text()) for steps in sorted(filter(str.isdigit, files), key=int)}
    return found


def page(options):
    read = lambda path: json.loads(path.read_text())  # noqa: E731
    settings, blocks = read(options.work / "settings.json"), []
    for environment in ARMS_OF:
        results = results_of(options.work, environment)
        start = options.work / "results" / f"{environment}.json"
        if any(arm == MAIN for arm, _ in results):
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
    parser.add_argument("--steps", type=lambda word: sorted({int(steps) for steps in word.split(",")}), default=[100, 400, 1000], help="of the critic, N,N,...")
    parser.add_argument("--rollouts", type=int, default=128, help="a step")
    parser.add_argument("--states", type=int, default=500)
    parser.add_argument("--continuations", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--states-binary", type=absolute, default=os.environ.get("LOCKSTEP_CRITIC_STATES") or ROOT / "build/bench/critic_states")
    options = parser.parse_args()
    if unknown := [name for name in options.environments if name not in ARMS_OF]:
        parser.error(f"unknown environments {', '.join(unknown)}; there are {', '.join(ARMS_OF)}")
    if options.steps[0] < 1 or options.steps[-1] >= WARM_UP:
        parser.error(f"--steps are from 1 to {WARM_UP - 1}")
    options.work.mkdir(parents=True, exist_ok=True)
    (run if options.what == "run" else page)(options)


if __name__ == "__main__":
    main()
