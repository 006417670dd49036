#!/usr/bin/env python3
"""A real run that publishes every step (docs/weight-sync.md): SmolLM2-135M, taught the form of Countdown's answers by some steps of `train sft`, then 50 GRPO
steps of `train rl --publish` at a learning rate of 1e-6. How many bf16 weights keep their bits in a step, what went up the link, and what publishing cost.

    .oracle/bin/python bench/published_run.py --models FOLDER --work WORK [--steps 50] [--control-steps 20] [--minutes 60] [--json FILE]
                                              [--page docs/weight-sync.md [--beside TEXT]]

FOLDER has fp32/ of tools/make_smollm2.py, which is made there on first use. After --minutes, or Ctrl-C, the same command goes on where it was: the runs from
their checkpoints, the comparison from the step that it had reached. Then the exit code is 3. --page: writes the figures between the marks there, and the plot
beside it. A step's weights are those of two snapshots that were pulled, compared word by word; the bytes are those that stand in the store's folder.

What publishing costs is told by a control, --control-steps of the same run without --publish: each of its steps must have the reward, loss and gradient of the
published one. The two take turns, a step each, while the other process is stopped, and each step is compared with the control's: by the clock, in which is all
that publishing does beside a step and all that the run waits for it, and by the processors' time.

A rollout's reward falls with its length (--overlong-tokens), so the rewards of a group differ in every step, also where no answer is right: then that is said.
The exit code is 1 where a run was not what it should be. Needs numpy."""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy
from families import binary, lockstep, metrics, once, settings, version
from marked_page import write_between_marks
from runs_in_turns import Run, TimeIsUp, in_turns, measured_steps
from svg_plot import Panel, share_ranges, write_svg
from write_performance import machine

ROOT = Path(__file__).resolve().parents[1]
PROFILE = "cpu-bf16w"
TEACH = {"environment": "countdown", "steps": 40, "batch": 16, "learning_rate": 5e-5, "warmup": 4, "weight_decay": 0.0, "seed": 1, "checkpoint_every": 0, "export_dtype": "f32"}
GRPO = {"environment": "countdown", "algorithm": "grpo", "problems": 8, "rollouts": 8, "max_tokens": 24, "overlong_tokens": 16, "learning_rate": 1e-6, "schedule": "constant",
        "warmup": 0, "beta1": 0.9, "beta2": 0.95, "weight_decay": 0.0, "seed": 1, "checkpoint_every": 25, "keep_last": 1}
EQUAL, UPLINK, PUBLISHING = 98, 6, 3  # percent: the aims
SAME = ("reward", "tokens", "loss", "gradient_norm")  # of a step, whether it is published or not
COLOUR = "#1f6feb"


def run_of(options, kind, name, model, values, *more):
    """The command of a run that begins, or goes on from its checkpoint, and its folder. NAME.versions has the programs that worked on it."""
    folder = options.work / "runs" / name
    begun = any((folder / "checkpoints").glob("*"))
    if not begun:
        shutil.rmtree(folder, ignore_errors=True)
    with (options.work / f"{name}.versions").open("a" if begun else "w") as made:
        made.write(version() + "\n")
    return [binary(), "train", kind, "--model", model, "--runs", options.work / "runs", "--name", name, "--profile", PROFILE, "--no-page", "--quiet", "--threads", options.threads, *more,
            *settings(values), *(["--resume"] if begun else [])], folder  # fmt: skip


def trained(options, runs):
    """The runs' folders, once all are whole; TimeIsUp where they were stopped before, each with a checkpoint. Runs: (name, kind, model, values, *more)."""
    folders = {name: options.work / "runs" / name for name, *_ in runs}
    open_runs = [(name, *run_of(options, kind, name, model, values, *more)) for name, kind, model, values, *more in runs if not (folders[name] / "whole").is_file()]
    in_turns([Run(name, command, folder, options.work / f"{name}.steps") for name, command, folder in open_runs], options.until)
    for name, *_ in open_runs:
        (folders[name] / "whole").touch()
    return folders


def versions_of(options, *names):
    """The programs that made these runs, from their begin on."""
    files = [options.work / f"{name}.versions" for name in names]
    if missing := [file.name for file in files if not file.is_file()]:
        sys.exit(f"published_run: {options.work} has no {missing[0]}, so nobody knows what made that run; another --work begins anew")
    return " and ".join(dict.fromkeys(line for file in files for line in file.read_text().splitlines()))


def words_of(folder):
    """The bits of every tensor of a folder: (type, words), by name."""
    data = numpy.memmap(folder / "model.safetensors", numpy.uint8, "r")
    length = int.from_bytes(bytes(data[:8]), "little")
    header = json.loads(bytes(data[8 : 8 + length]))
    begin = 8 + length
    return {name: (t["dtype"], data[begin + t["data_offsets"][0] : begin + t["data_offsets"][1]].view({"BF16": numpy.uint16, "F32": numpy.uint32}[t["dtype"]]))
            for name, t in header.items() if name != "__metadata__"}  # fmt: skip


def pulled(options, store, snapshot, number):
    """A folder with the snapshot's weights, made from the one before where that is there."""
    folder, before = options.work / "pulled" / str(number), options.work / "pulled" / str(number - 1)
    if not (folder / "model.safetensors").is_file():
        lockstep("snapshot", "pull", store, snapshot, folder, "--quiet", "--overwrite", *(["--base", before] if before.is_dir() else []))
    return folder


def compared(options, store, ids, number):
    """Snapshot `number` beside the one before: how many words of bf16 have the same bits."""
    before = words_of(pulled(options, store, ids[number - 1], number - 1))
    now = words_of(pulled(options, store, ids[number], number))
    shutil.rmtree(options.work / "pulled" / str(number - 2), ignore_errors=True)
    if before.keys() != now.keys():
        sys.exit(f"published_run: snapshot {number} has other tensors than the one before")
    row = {"weights": 0, "equal": 0, "fp32_weights": 0, "fp32_equal": 0}
    for name, (kind, words) in now.items():
        of = "" if kind == "BF16" else "fp32_"
        row[of + "weights"] += words.size
        row[of + "equal"] += int(numpy.count_nonzero(words == before[name][1]))
    return row


def chain_of(store):
    """Ids of the channel's snapshots, the first one first."""
    ids = [json.loads((store / "channels/chat.json").read_text())["target"]]
    while parent := json.loads((store / f"manifests/{ids[-1]}.json").read_text())["parent"]:
        ids.append(parent)
    return ids[::-1]


def bytes_in(*folders):
    return sum(path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file())


def measured(options):
    source = options.models / "fp32"
    if not source.is_dir():
        subprocess.run([sys.executable, str(ROOT / "tools/make_smollm2.py"), str(options.models), "--dtype", "fp32"], check=True)
    taught = trained(options, [("taught", "sft", source, TEACH | {"steps": options.taught_steps})])["taught"] / "export"
    store = options.work / "store"
    values = GRPO | {"steps": options.steps, "problems": options.problems}
    folders = trained(options, [("control", "rl", taught, values | {"steps": min(options.control_steps, options.steps)}), ("published", "rl", taught, values, "--publish", store / "chat")])
    made = versions_of(options, "control", "published")
    rows = metrics(folders["published"])
    cost = cost_of_publishing(rows, metrics(folders["control"]), *(measured_steps(options.work / f"{name}.steps") for name in ("published", "control")))
    # The channel's number goes up with each snapshot, from 1; a run that went on has published what it began with again.
    ids = chain_of(store)
    if len(rows) != options.steps or rows[-1]["publish_sequence"] != len(ids):
        sys.exit(f"published_run: {len(rows)} steps and {len(ids)} snapshots, the last with the number {rows[-1].get('publish_sequence')}; expected {options.steps} steps, and a number each")
    steps = []
    for number, row in enumerate(rows, 1):
        if time.monotonic() > options.until:
            raise TimeIsUp
        equal = once(options.work / "equal" / f"{number}.json", lambda n=number: compared(options, store, ids, n))
        manifest = store / f"manifests/{ids[number]}.json"
        sent = manifest.stat().st_size + sum(tensor["bytes"] for tensor in json.loads(manifest.read_text())["tensors"])
        steps.append({**equal, "percent": 100 * equal["equal"] / equal["weights"], "bytes": sent, "publish_seconds": row["publish_seconds"], "reward": row["reward"]})
    full = rows[0]["publish_full_bytes"]
    uplink = bytes_in(store / "objects", store / "manifests")
    shutil.rmtree(options.work / "pulled", ignore_errors=True)
    return {"steps": steps, "full_bytes": full, "uplink_bytes": uplink, "uplink_percent": 100 * uplink / (options.steps * full), "first_bytes": uplink - sum(s["bytes"] for s in steps),
            "least_equal_percent": min(s["percent"] for s in steps), "mean_equal_percent": statistics.mean(s["percent"] for s in steps),
            "rewarded_steps": sum(s["reward"] != 0 for s in steps), **cost, "version": made,
            "machine": machine(), "threads": options.threads, "beside": options.beside,
            "taught_steps": options.taught_steps, "rollouts": options.problems * GRPO["rollouts"], "unchanged_steps": sum(s["equal"] == s["weights"] for s in steps)}  # fmt: skip


def cost_of_publishing(published, control, published_steps, control_steps):
    """What a step takes more with publishing than without, of the steps that both runs were measured in; both did the same, so that only publishing is between them."""
    for number, (with_it, without) in enumerate(zip(published, control), 1):
        if different := [key for key in SAME if with_it[key] != without[key]]:
            sys.exit(f"published_run: step {number} has another {different[0]} when it is published ({with_it[different[0]]}) than alone ({without[different[0]]})")
    both = sorted(published_steps.keys() & control_steps.keys())
    if len(both) < 4:
        sys.exit(f"published_run: {len(both)} steps were measured with publishing and without, which are too few to compare")
    found = {"control_steps": len(both)}
    for key in ("seconds", "processor_seconds"):
        more = statistics.quantiles([100 * (published_steps[step][key] / control_steps[step][key] - 1) for step in both], n=4)
        found |= {f"control_{key}": statistics.median(control_steps[step][key] for step in both), f"published_{key}": statistics.median(published_steps[step][key] for step in both),
                  f"more_{key}_percent": more}  # fmt: skip
    return found | {"publishing_percent": found["more_seconds_percent"][1]}


def plot(found, path):
    steps = range(1, len(found["steps"]) + 1)
    equal = Panel("bf16 weights with the bits of the step before", "step", "%")
    equal.line([(n, s["percent"]) for n, s in zip(steps, found["steps"])], COLOUR)
    equal.line([(1, EQUAL), (len(found["steps"]), EQUAL)], "#888", dashed=True)
    sent, points = found["first_bytes"], []
    for n, step in zip(steps, found["steps"]):
        sent += step["bytes"]
        points.append((n, 100 * sent / (len(found["steps"]) * found["full_bytes"])))
    link = Panel("sent until then, of all steps' full copies", "step", "%")
    link.line(points, COLOUR)
    link.line([(1, UPLINK), (len(found["steps"]), UPLINK)], "#888", dashed=True)
    for panel in (equal, link):
        share_ranges([panel])
    write_svg(path, [equal, link], [("measured", COLOUR, False), ("aim", "#888", True)])


def page_text(found, image):
    steps = found["steps"]
    return "\n".join([
        f"![bits that are kept, and bytes sent]({image})", "",
        f"`bench/published_run.py`, {found['version']}: {len(steps)} GRPO steps of {found['rollouts']} rollouts, SmolLM2-135M at a learning rate of 1e-6, after {found['taught_steps']} steps of `train sft` "
        "that taught it the form of an answer.", "",
        f"Machine: {found['machine']} {found['threads']} threads{'; ' + found['beside'] if found['beside'] else ''}.", "",
        "| | measured | aim |", "|---|---|---|",
        f"| bf16 weights with the bits of the step before: least (mean) of the steps | {found['least_equal_percent']:.2f} % ({found['mean_equal_percent']:.2f} %) | at least {EQUAL} % |",
        f"| bytes in the store, the first full copy included, of {len(steps)} full copies | {found['uplink_percent']:.2f} % ({found['uplink_bytes'] / 1e6:.0f} MB; the first {found['first_bytes'] / 1e6:.0f} MB, "
        f"a step {statistics.mean(s['bytes'] for s in steps) / 1e6:.2f} MB) | at most {UPLINK} % |",
        f"| a step with publishing, its waits included, over the same step without, less one, by the clock: median (quartiles) of {found['control_steps']} steps | {more(found, 'seconds')} | at most {PUBLISHING} % |",
        f"| the same in seconds of the processors | {more(found, 'processor_seconds')} | |",
        f"| of the published steps: what the run waited for the snapshot before, median (most) | {statistics.median(s['publish_seconds'] for s in steps):.2f} ({max(s['publish_seconds'] for s in steps):.2f}) s | |",
        f"| reward, mean of the first and of the last five steps | {statistics.mean(s['reward'] for s in steps[:5]):.3f}, {statistics.mean(s['reward'] for s in steps[-5:]):.3f} | |",
        *notes_of(found)])  # fmt: skip


def more(found, key):
    low, median, high = found[f"more_{key}_percent"]
    return f"{median:.1f} % ({low:.1f} to {high:.1f} %; {found[f'published_{key}']:.2f} s over {found[f'control_{key}']:.2f} s)"


def no_right_answer(found):
    return f"No answer of the {len(found['steps'])} steps was right: their rewards differ by the penalty of length alone, and that is what the steps learned from."


def notes_of(found):
    """What the table's reader has to know of it, each a paragraph."""
    notes = [] if found["rewarded_steps"] else [no_right_answer(found)]
    if found["publishing_percent"] > PUBLISHING:
        notes.append("The third aim is missed. Whatever the step was, publishing passes over all weights twice (what differs from the bytes that were published last, and the digest of the result) on the processors "
                     "that the next step uses: its seconds go with the model's size, its share with the step's.")  # fmt: skip
    return [line for note in notes for line in ("", note)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--problems", type=int, default=GRPO["problems"], help="of a step, with eight rollouts each")
    parser.add_argument("--taught-steps", type=int, default=TEACH["steps"])
    parser.add_argument("--control-steps", type=int, default=20, help="of the run without --publish")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--beside", default="", help="what else ran on the machine, for the page")
    options = parser.parse_args()
    options.until = time.monotonic() + 60 * options.minutes
    options.models, options.work = options.models.resolve(), options.work.resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    try:
        found = measured(options)
    except (TimeIsUp, KeyboardInterrupt):
        print("published_run: the time is up; the same command goes on")
        return 3
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps({key: value for key, value in found.items() if key != "steps"}, indent=1))
    if options.page:
        image = options.page.with_name("weight-sync-run.svg")
        plot(found, image)
        write_between_marks(options.page, "bench/published_run.py", page_text(found, image.name))
    if not found["rewarded_steps"]:
        print(f"published_run: {no_right_answer(found)}")
    if found["unchanged_steps"]:
        print(f"published_run: {found['unchanged_steps']} steps changed no weight: nothing is measured of them")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
