#!/usr/bin/env python3
"""Measures training in 8 bits: the same reinforcement learning from the shipped model under cpu-bf16w, cpu-fp8, cpu-mxfp8 and cpu-mxfp8-experts, each
of which must have 0 different bits and a KL of 0 between its sampler and its trainer; and the symmetric KL between each of the others and cpu-bf16w.

    python3 bench/eight_bits.py --work DIR [--steps 60] [--seeds 1] [--problems 2000] [--threads 0] [--json FILE] [--page docs/few-bits.md]

The KL is of the shipped model over --problems random Countdown problems, one answer to each by either side: the sum of both directions, each the mean of
log(own / other) over tokens that one side sampled at temperature 1. Runs that exist already are not repeated."""
import json
import os
from types import SimpleNamespace

import numpy as np
from int4_qat import ROOT, made_by, parsed, run_options, trained
from kl_table import SEED, Server, countdown_prompts, trainer_scores
from marked_page import write_between_marks

PLAIN = "cpu-bf16w"
PROFILES = ["cpu-fp8", "cpu-mxfp8", "cpu-mxfp8-experts"]
MOST_KL = {"cpu-mxfp8-experts": 0.0063}  # aimed at


AT_ONCE = 16  # problems of a request


def drawn_by(arguments, profile):
    """One answer to each problem, with the sampler's log-probabilities."""
    model = SimpleNamespace(folder=arguments.work, full=ROOT / "models/countdown-glm", threads=arguments.threads)
    prompts, drawn = countdown_prompts(arguments.problems), []
    with Server(model, (model.full, profile, False)) as server:
        for begin in range(0, len(prompts), AT_ONCE):
            for choice in server.complete(prompts[begin : begin + AT_ONCE], 1, 16, SEED + begin):
                drawn.append({"prompt": choice["prompt_token_ids"], "tokens": choice["token_ids"], "logprobs": choice["logprobs"]["token_logprobs"]})
    return model, drawn


def direction(model, drawn, other):
    """Mean log(own / other) over what was drawn, and the number of tokens."""
    scores = trainer_scores(model, (model.full, other, False), drawn)
    own = np.array([x for d in drawn for x in d["logprobs"]], np.float64)
    return float((own - np.array([x for row in scores for x in row], np.float64)).mean()), len(own)


def symmetric_kl(arguments, profile):
    model, plain = drawn_by(arguments, PLAIN)
    _, low = drawn_by(arguments, profile)
    (there, tokens), (back, more) = direction(model, plain, profile), direction(model, low, PLAIN)
    return {"symmetric_kl": there + back, "tokens": tokens + more, "own": direction(model, low, profile)[0]}


def page_text(arguments, rows):
    lines = [f"By `bench/eight_bits.py`, {made_by(arguments)}: {arguments.steps} steps, {len(arguments.seeds)} seed(s); the symmetric KL over {arguments.problems:,} problems.", "",
             "| profile | reward of the first step | of the last | different bits | largest k3 | symmetric KL to cpu-bf16w | tokens | aim |", "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for row in rows:
        told = row["trained"]
        mean = lambda key: sum(one[key] for one in told) / len(told)  # noqa: E731, B023
        kl, most = row.get("symmetric_kl"), MOST_KL.get(row["profile"])
        aim = "" if most is None else f"below {most}: {'met' if kl < most else 'missed'}"
        lines.append(f"| `{row['profile']}` | {mean('reward_first'):.3f} | {mean('reward_last'):.3f} | {sum(one['different_bits'] for one in told)} | {max(one['k3'] for one in told):g} | "
                     f"{'' if kl is None else f'{kl:.5f}'} | {'' if kl is None else format(row['tokens'], ',')} | {aim} |")  # fmt: skip
    return "\n".join(lines)


def main():
    parser = run_options(__doc__, [1])
    parser.add_argument("--problems", type=int, default=2000)
    arguments = parsed(parser)
    os.environ["LOCKSTEP_BINARY"] = arguments.lockstep  # what kl_table.py starts
    rows = []
    for profile in [PLAIN, *PROFILES]:
        row = {"profile": profile, "trained": [trained(arguments, profile, seed)[1] for seed in arguments.seeds]}
        if profile != PLAIN:
            row |= symmetric_kl(arguments, profile)
        rows.append(row)
        print(json.dumps(row), flush=True)
        for told in row["trained"]:
            if told["different_bits"] or told["k3"]:
                raise SystemExit(f"{profile}: sampler and trainer differ: {told}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"steps": arguments.steps, "problems": arguments.problems, "rows": rows}, indent=1) + "\n")
    if arguments.page:
        write_between_marks(arguments.page, "eight_bits", page_text(arguments, rows))


if __name__ == "__main__":
    main()
