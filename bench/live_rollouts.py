#!/usr/bin/env python3
"""What rollouts beside live answers take from these, and what they make themselves: live requests come by chance (Poisson) at a share of what the server
can answer, and rollouts fill the rest, as `lockstep bench serve` puts them on a server. Percentiles of the gap between two tokens of a live answer and of the
time to its first one, and rollouts' tokens a second,

    with `serve --live-token-ms`   rollouts with `service_tier` flex
    by shares                      the same with --live-token-ms 0
    without classes                rollouts that say nothing, which the server cannot tell from live answers: the control

beside live requests alone and rollouts alone, these also by shares. `bars` compares with what is aimed at: the 95th percentile of gaps at most the bound or 1.1 times that
without rollouts, of first tokens at most 1.5 times, and rollouts' tokens a second at least 55 % of theirs alone, 95 % where no live request comes. Every load is the same in each: arrivals and prompts are drawn from one seed.

    python3 bench/live_rollouts.py [--model models/countdown-glm] [--lockstep build/lockstep] [--bound 40] [--seconds 40] [--rollouts 64] [--load 0.3] [--json FILE] [--page docs/tenants.md]
    python3 bench/live_rollouts.py --page-of FILE --page docs/tenants.md    # from what a run wrote"""
import argparse
import json
import os
import subprocess
from pathlib import Path

from marked_page import write_between_marks
from started_server import StartedServer
from write_performance import machine, version

LOADS = ("live alone", "rollouts alone", "with --live-token-ms", "rollouts alone, by shares", "by shares", "without classes")
BARS = {"gap_p95_ms": "95th percentile of the gap between two live tokens, ms", "first_token_p95_ms": "of the time to the first one, ms",
        "rollouts_beside_live": "rollouts' tokens a second beside live answers, of theirs alone", "rollouts_without_live": "where no live request comes, of those without a bound"}  # fmt: skip


class Server(StartedServer):
    def __init__(self, options, bound):
        self.options = options
        command = [options.lockstep, "serve", "--model", options.model, "--port", "0", "--threads", str(options.threads), "--live-token-ms", str(bound), "--speculate", "off",
                   "--no-access-log", "--log-level", "error"]
        super().__init__(command)

    def load(self, *more):
        o = self.options
        command = [o.lockstep, "bench", "serve", "--url", self.url, "--seconds", o.seconds, "--live-tokens", o.live_tokens, "--rollout-tokens", o.rollout_tokens, "--prompt-words", o.prompt_words, "--json", *more]
        return json.loads(subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True).stdout)


def bars(found):
    alone, live, rate = found["live alone"]["live"], found["with --live-token-ms"]["live"], lambda name: found[name]["rollouts"]["tokens_per_second"]

    def bar(value, limit, at_most=True):
        return {"value": round(value, 3), "at_most" if at_most else "at_least": round(limit, 3), "met": value <= limit if at_most else value >= limit}

    return {"gap_p95_ms": bar(live["gap_ms"]["p95"], max(found["bound_ms"], 1.1 * alone["gap_ms"]["p95"])),
            "first_token_p95_ms": bar(live["first_token_ms"]["p95"], 1.5 * alone["first_token_ms"]["p95"]),
            "rollouts_beside_live": bar(rate("with --live-token-ms") / rate("rollouts alone"), 0.55, at_most=False),
            "rollouts_without_live": bar(rate("rollouts alone") / rate("rollouts alone, by shares"), 0.95, at_most=False)}


def page_text(found):
    def cells(load):
        live, rollouts = found[load].get("live"), found[load].get("rollouts")
        gaps = [f"{live[key][p]:.0f}" if live else "" for key, p in (("gap_ms", "p50"), ("gap_ms", "p95"), ("first_token_ms", "p95"))]
        return [load, *gaps, f"{live['tokens_per_second']:.0f}" if live else "", f"{rollouts['tokens_per_second']:.0f}" if rollouts else ""]

    def bar(name):
        row = found["bars"][name]
        limit = f"at most {row['at_most']}" if "at_most" in row else f"at least {row['at_least']}"
        return f"| {BARS[name]} | {row['value']} | {limit} | {'met' if row['met'] else 'missed'} |"

    return "\n".join([
        f"By `bench/live_rollouts.py --model {found['model']}`, {found['commit']}. Machine: {found['machine']} Live requests come at {found['load']:.0%} of what the server can answer ({found['live_answers_a_second']:.3g} a second, of {found['live_tokens']} tokens), "
        f"beside {found['rollouts']} rollouts at a time; {found['seconds']:.0f} seconds each, a bound of {found['bound_ms']:.0f} ms.", "",
        "| load | live gap, median, ms | 95th percentile | first token, 95th percentile | live tokens a second | rollouts' tokens a second |", "|---|---|---|---|---|---|",
        *(f"| {' | '.join(cells(load))} |" for load in LOADS), "",
        "| aim | measured | allowed | |", "|---|---|---|---|", *map(bar, BARS)])  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="models/countdown-glm")
    parser.add_argument("--lockstep", default="build/lockstep")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--bound", type=float, default=40, help="milliseconds of --live-token-ms")
    parser.add_argument("--seconds", type=float, default=40, help="that each load is measured")
    parser.add_argument("--rollouts", type=int, default=64, help="at a time")
    parser.add_argument("--load", type=float, default=0.3, help="live answers, of those that the server could give")
    parser.add_argument("--live-tokens", type=int, default=64)
    parser.add_argument("--rollout-tokens", type=int, default=128)
    parser.add_argument("--prompt-words", type=int, default=12)
    parser.add_argument("--json")
    parser.add_argument("--page", type=Path)
    parser.add_argument("--page-of", type=Path)
    options = parser.parse_args()
    if options.page_of:
        write_between_marks(options.page, "bench/live_rollouts.py", page_text(json.loads(options.page_of.read_text())))
        return
    os.environ["LOCKSTEP_BINARY"] = str(options.lockstep)  # whose version and instruction set are told
    found = {"model": Path(options.model).name, "bound_ms": options.bound, "rollouts": options.rollouts, "load": options.load, "seconds": options.seconds, "live_tokens": options.live_tokens,
             "commit": version().splitlines()[0], "machine": machine()}  # fmt: skip
    beside = ("--rollouts", options.rollouts)
    with Server(options, options.bound) as server:
        alone = server.load("--load", options.load, "--streams", options.rollouts)
        live = ("--rate", alone["rate"])
        found["live_answers_a_second"] = alone["rate"]
        found["live alone"] = alone["classes"]
        found["rollouts alone"] = server.load(*beside)["classes"]
        found["with --live-token-ms"] = server.load(*live, *beside)["classes"]
    with Server(options, 0) as server:
        found["rollouts alone, by shares"] = server.load(*beside)["classes"]
        found["by shares"] = server.load(*live, *beside)["classes"]
        found["without classes"] = server.load(*live, *beside, "--classless")["classes"]
    found["bars"] = bars(found)
    text = json.dumps(found, indent=1)
    print(text)
    if options.json:
        Path(options.json).write_text(text + "\n")
    if options.page:
        write_between_marks(options.page, "bench/live_rollouts.py", page_text(found))


if __name__ == "__main__":
    main()
