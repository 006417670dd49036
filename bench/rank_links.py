#!/usr/bin/env python3
"""Measures training steps of two processes with a link between them, whose rate is set: how much of its transfers a step hides, and its time beside what `lockstep simulate`
computes of the same layout, tokens and rate.

    bench/rank_links.py --model FOLDER [--rates free,1gbit,200mbit] [--layouts dp,shard,tp,pp,cp] [--steps 2] [--tokens 256] [--json FILE] [--page docs/ranks.md]

The processes have a thread each, and stand in two network namespaces of this machine (tools/two_hosts.py: as root). `lockstep doctor --ranks` measures each link first. A step
is the median of --steps, after a first one. Of the transfers of a step that part is hidden by which it is not longer than over the free link:
1 - (its time - its time there) / (the bytes that its ranks receive, of the rank that gets most / the link's measured rate). Computed is the range from the higher efficiencies with all
hidden that could be to the lower ones with nothing hidden. All runs of a layout, over all links, must end with the same weights. Layouts with experts (--layouts ep) need a
model that has some. SmolLM2 at 60 tokens a second, as two cores with AVX2 have: about 25 minutes, and more for what the links take.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rank_steps import binary, run, write_texts

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))
from marked_page import write_between_marks  # noqa: E402
from two_hosts import NoHosts, mpirun_between, two_hosts  # noqa: E402
from write_performance import machine, version  # noqa: E402

MARKS = "rank_links"
HIDDEN, OFF = 0.5, 0.15  # aimed at: of dp=2,shard=weights at 1 Gbit/s; of a time beside the computed ones


@dataclass(frozen=True)
class Layout:
    ranks: str
    sequences: int = 4
    micro_batch: int = 0
    tokens: int = 0  # 0: --tokens


LAYOUTS = {"dp": Layout("dp=2"), "shard": Layout("dp=2,shard=weights"), "tp": Layout("tp=2"), "pp": Layout("pp=2", 8, 1), "cp": Layout("cp=2", 1, 0, 2048), "ep": Layout("ep=2")}
GIGABITS = {"free": None, "10gbit": 10, "1gbit": 1, "200mbit": 0.2}


def link_of(hosts):
    """Bytes a second of the slower way, as the ranks' exchanges see it."""
    words = [binary(), "doctor", "--ranks", "--transport", "mpi", "--threads", 1, "--json"]
    done = subprocess.run(mpirun_between(hosts, words), stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"rank_links: {done.stderr.strip()[-500:]}")
    [link] = json.loads(done.stdout.splitlines()[-1])["links"]
    return min(link["bytes_per_second"], link["bytes_per_second_back"])


def computed(options, layout, tokens, gigabits):
    """Seconds of a step: the least and the most."""
    words = [binary(), "simulate", options.model, "--device", "measured", "--ranks", layout.ranks, "--tokens", layout.sequences * tokens, "--length", tokens, "--micro-batch", layout.micro_batch,
             "--profile", options.profile, "--json", *(["--host-devices", 1, "--network-gigabits", gigabits] if gigabits else [])]  # fmt: skip
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"rank_links: {' '.join(map(str, words))}: {done.stderr.strip()[-500:]}")
    fast, slow = (json.loads(done.stdout)["layouts"][0]["seconds"][end] for end in ("fast", "slow"))
    return [fast["step"] - fast["could_be_hidden"], slow["step"]]


def beyond(seconds, ends):
    """By which part a time lies outside of the range; 0: it does not."""
    low, high = ends
    return seconds / high - 1 if seconds > high else seconds / low - 1 if seconds < low else 0.0


def measured(options, layout, data, hosts):
    """Of the runs over this link: seconds of a step, the most bytes that a rank receives in it, where the ranks' time went, and the weights."""
    with tempfile.TemporaryDirectory() as folder:
        steps, weights = run(options, data, Path(folder), layout.sequences, layout.micro_batch, layout.ranks, "mpi", mpirun=mpirun_between(hosts, []))
    median = lambda of: statistics.median(map(of, steps))  # noqa: E731
    most = lambda part: median(lambda step: max(rank[part] for rank in step["ranks_each"]))  # noqa: E731
    return {"seconds": median(lambda step: step["tokens"] / step["tokens_per_second"]), "received": most("sent_bytes"), "waited": most("waited_seconds"), "copied": most("sent_seconds"),
            "weights_sha256": weights}  # fmt: skip


def rows_of(options, hosts, work):
    links, rows = {}, []
    for rate in options.rates:
        hosts.limit(None if rate == "free" else rate)
        links[rate] = link_of(hosts)
        print(f"{rate}: {links[rate] / 1e6:,.1f} MB/s", flush=True)
    for name in options.layouts:
        layout = LAYOUTS[name]
        tokens = layout.tokens or options.tokens
        write_texts(work / "texts.jsonl", options.model, layout.sequences * (options.steps + 1), tokens)
        own = []
        for rate in options.rates:
            hosts.limit(None if rate == "free" else rate)
            row = {"ranks": layout.ranks, "sequences": layout.sequences, "tokens": tokens, "rate": rate, "link": links[rate], **measured(options, layout, work / "texts.jsonl", hosts)}
            row["computed"] = computed(options, layout, tokens, GIGABITS[rate])
            row["beyond"] = beyond(row["seconds"], row["computed"])
            free = next((other for other in own if other["rate"] == "free"), None)
            row["hidden"] = 1 - (row["seconds"] - free["seconds"]) / (row["received"] / row["link"]) if free else None
            own.append(row)
            print(json.dumps(row), flush=True)
        if len({row["weights_sha256"] for row in own}) != 1:
            raise SystemExit(f"rank_links: {layout.ranks}: the runs ended with different weights")
        rows += own
    return rows


def page_text(options, rows):
    lines = [f"By `bench/rank_links.py`, {version().splitlines()[0]}, profile `{options.profile}`, of {options.steps} steps the median.", "", f"Machine: {machine()}", "",
             "| ranks | sequences | link, MB/s | received, MB | a step, s | computed, s | outside of it | waited, s | copied, s | transfers hidden |", "|---|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for row in rows:
        low, high = row["computed"]
        lines.append(f"| `{row['ranks']}` | {row['sequences']} x {row['tokens']:,} | {row['rate']}: {row['link'] / 1e6:,.0f} | {row['received'] / 1e6:,.1f} | {row['seconds']:.2f} | {low:.2f} to {high:.2f} | "
                     f"{row['beyond']:+.0%} | {row['waited']:.2f} | {row['copied']:.2f} | {'' if row['hidden'] is None else format(row['hidden'], '.2f')} |")  # fmt: skip
    aim = next((row for row in rows if row["ranks"] == LAYOUTS["shard"].ranks and row["rate"] == "1gbit" and row["hidden"] is not None), None)
    within = sum(abs(row["beyond"]) <= OFF for row in rows)
    lines += ["", f"At most {OFF:.0%} outside of the computed range: {within} of {len(rows)}."]
    if aim:
        lines.append(f"`{aim['ranks']}` at 1 Gbit/s hides {aim['hidden']:.2f} of its transfers (aim: {HIDDEN:g}): {'met' if aim['hidden'] >= HIDDEN else 'missed'}.")
    return "\n".join(lines)


def chosen(allowed):
    def names(text):
        if unknown := set(text.split(",")) - set(allowed):
            raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))} is none of {', '.join(allowed)}")
        return text.split(",")

    return names


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--profile", default="cpu-bf16w", choices=["cpu-f32", "cpu-bf16w"])
    parser.add_argument("--rates", type=chosen(GIGABITS), default=["free", "1gbit", "200mbit"], help="the first one is free where what is hidden is to be told")
    parser.add_argument("--layouts", type=chosen(LAYOUTS), default=["dp", "shard", "tp", "pp", "cp"])
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_btl_vader_single_copy_mechanism="none", TMPDIR="/tmp")
    with tempfile.TemporaryDirectory() as work:
        try:
            with two_hosts(work) as hosts:
                rows = rows_of(options, hosts, Path(work))
        except NoHosts as none:
            raise SystemExit(f"rank_links: {none}") from None
    print("\n" + page_text(options, rows))
    if options.json:
        options.json.write_text(json.dumps({"profile": options.profile, "steps": options.steps, "version": version().splitlines()[0], "machine": machine(), "table": rows}, indent=1) + "\n")
    if options.page:
        write_between_marks(options.page, MARKS, page_text(options, rows))


if __name__ == "__main__":
    main()
