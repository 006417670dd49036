"""Ranks as processes: what mpirun runs has the bits of threads.

Every operation of a communicator over Open MPI beside threads, what is refused, processes that die or are stopped; a fine-tuning run over two processes, whole
and in two parts, and one of reinforcement learning, beside those of a single rank. Where build/mpi_operations is not built (no Open MPI), all of it is skipped.
"""
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

from harness import BINARY, MODEL, ROOT, TMP, bits, check, done, instruction_sets, last_checkpoint, metrics, require_same, rl_arguments, sft_arguments, state
from processes import ENVIRONMENT, LONG, OPERATIONS, end_all, mpirun, mpirun_line, needs_mpi, pids_of

RUNS = TMP / "runs"
SILENCE = 5  # seconds; a process says a word ten times in it
NAMED = re.compile(r"process \d+ \(host [^)]*\) (?:ended without a word|is silent for)")
MOST_UNTIL_NAMED = 2  # seconds from a process's death; behind SILENCE there are five


def run(processes, name, *more, **settings):
    outcome = mpirun(processes, BINARY, *sft_arguments(name, RUNS, transport="mpi", **settings), *more)
    assert outcome.returncode == 0, f"status {outcome.returncode}\n{outcome}"
    return outcome


for processes in (1, 2, 3):
    with check(f"operations-{processes}-processes"):
        needs_mpi()
        outcome = mpirun(processes, OPERATIONS, "operations")
        assert outcome.returncode == 0 and outcome.stdout.count("ok ") == 11 and "FAILED" not in outcome.stdout, outcome

for processes in (2, 3):
    with check(f"refusals-{processes}-processes"):
        needs_mpi()
        outcome = mpirun(processes, OPERATIONS, "refusals")
        assert outcome.returncode == 0 and outcome.stdout.count("ok ") == 3 and "FAILED" not in outcome.stdout, outcome
    with check(f"death-is-named-{processes}-processes"):
        # Either we say who died, or mpirun does and ends the others first; nobody hangs.
        needs_mpi()
        outcome = mpirun(processes, OPERATIONS, "death")
        assert outcome.returncode != 0, outcome
        assert f"rank {processes - 1}" in outcome.stderr or f"process {processes - 1} (host" in outcome.stderr, outcome
    with check(f"death-is-told-{processes}-processes"):
        # mpirun leaves the others alone: they see it themselves.
        needs_mpi()
        outcome = mpirun(processes, "--enable-recovery", OPERATIONS, "death")
        assert f"process 0 was told: process {processes - 1} (host" in outcome.stderr, outcome

expected = {}
with check("sft-of-one-rank"):
    needs_mpi()
    expected["one"] = bits(RUNS / "one", done(*sft_arguments("one", RUNS, threads=1)))

for ranks in ("dp=2", "tp=2", "pp=2", "tp=2,dp=2", "dp=2,shard=weights", "ep=2,rows=dealt"):
    with check(f"sft-two-processes-{ranks.replace('=', '').replace(',', '-')}"):
        needs_mpi()
        name = f"two-{ranks.replace('=', '').replace(',', '-')}"
        require_same(expected["one"], bits(RUNS / name, run(2, name, ranks=ranks, threads=2)), f"two processes, {ranks}")

with check("sft-of-two-instruction-sets"):
    # Each process computes with its own, and the weights are those of one rank.
    needs_mpi()
    own = lambda isa: [BINARY, *sft_arguments("mixed", RUNS, transport="mpi", ranks="dp=2", threads=2, isa=isa), "--log-level", "debug"]  # noqa: E731
    outcome = mpirun(1, *own(instruction_sets()[-1]), ":", "-n", 1, *own("scalar"))
    assert outcome.returncode == 0 and "instruction_set=scalar" in outcome.stderr, outcome
    require_same(expected["one"], bits(RUNS / "mixed", outcome), "two processes of different instruction sets")

with check("accumulators-travel-in-few-bytes"):
    needs_mpi()
    for line in (RUNS / "two-dp2/metrics.jsonl").read_text().splitlines():
        step = json.loads(line)
        moved = [e for e in step["ranks_exchanges"] if e["operation"] == "reduce_scatter"]
        memory, sent = sum(e["bytes"] for e in moved), sum(e["sent_bytes"] for e in moved)
        assert 0 < 24 * sent <= 12 * memory, f"{24 * sent / memory:.1f} bytes a weight, allowed are at most 12: {step}"
        assert step["ranks_sent_bytes"] == step["ranks_bytes"] - memory + sent - sum(e["bytes"] - e["sent_bytes"] for e in step["ranks_exchanges"] if e not in moved), step
        assert abs(step["ranks_waited_seconds"] - sum(e["waited_seconds"] for e in step["ranks_exchanges"])) < 1e-6, step


with check("rows-for-experts-travel-alone"):
    # Of the rows of the other process those that an expert here was chosen for.
    needs_mpi()
    for line in (RUNS / "two-ep2-rowsdealt/metrics.jsonl").read_text().splitlines():
        [moved] = [e for e in json.loads(line)["ranks_exchanges"] if e["group"] == "model" and e["operation"] == "exchange"]
        assert 0 < moved["sent_bytes"] < moved["bytes"], moved


def require_rank_times(run, layout, processes):
    """Each line of its metrics says of every rank where its time went, whichever process has it; and process 0's together are those of its ranks."""
    for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()):
        each = line["ranks_each"]
        assert line["ranks_layout"] == layout and [one["rank"] for one in each] == list(range(len(each))) and {one["process"] for one in each} == set(range(processes)), line
        assert all(one["computed_seconds"] > 0 and one["sent_seconds"] > 0 and one["waited_seconds"] >= 0 and one["sent_bytes"] > 0 and one["host"] for one in each), line
        for part in ("computed_seconds", "waited_seconds", "sent_seconds", "sent_bytes"):
            assert abs(line[f"ranks_{part}"] - sum(one[part] for one in each if one["process"] == 0)) < 1e-6, (part, line)


def doctor(processes, *words):
    return mpirun(processes, BINARY, "doctor", "--ranks", *words, "--transport", "mpi", "--threads", 1, "--json")


with check("doctor-two-processes"):
    # The ranks of a run before it begins: links with figures, and the same bits on every instruction set that the processes take.
    needs_mpi()
    outcome = doctor(2)
    assert outcome.returncode == 0, outcome
    told = outcome.json()
    assert told["fit"] and told["layout"] == "tp=1,dp=2,ep=1" and [(r["rank"], r["process"]) for r in told["ranks"]] == [(0, 0), (1, 1)], told
    assert len({r["bits"] for r in told["ranks"]}) == 1 and len({r["pid"] for r in told["ranks"]}) == 2, told
    [link] = told["links"]
    assert 1e-7 < link["latency_seconds"] < 0.1 and min(link["bytes_per_second"], link["bytes_per_second_back"], told["around_bytes_per_second"]) > 1e6, told
    mixed = mpirun(1, BINARY, "doctor", "--ranks", "tp=2,dp=2", "--transport", "mpi", "--threads", 1, "--quick", "--isa", "scalar",
                   ":", "-n", 1, BINARY, "doctor", "--ranks", "tp=2,dp=2", "--transport", "mpi", "--threads", 2, "--quick", "--isa", "avx2")  # fmt: skip
    assert mixed.returncode == 0 and "the same bits in 2 processes (avx2, scalar)" in mixed.stdout and "these ranks are fit" in mixed.stdout, mixed
    assert len(doctor(3, "tp=2,dp=2").json()["links"]) == 6

with check("doctor-compares-models"):
    needs_mpi()
    copies = [TMP / "doctor" / name / "model" for name in ("one", "two")]
    for copy in copies:
        shutil.copytree(MODEL, copy)
    words = (BINARY, "doctor", "--ranks", "dp=2", "--transport", "mpi", "--threads", 1, "--quick", "--model", "model")
    both = lambda: mpirun(1, "--wdir", copies[0].parent, *words, ":", "-n", 1, "--wdir", copies[1].parent, *words)  # noqa: E731
    same = both()
    assert same.returncode == 0 and "the same in 2 processes" in same.stdout, same
    weights = copies[1] / "model.safetensors"
    changed = bytearray(weights.read_bytes())
    changed[-1] ^= 1
    weights.write_bytes(changed)
    other = both()
    assert other.returncode != 0 and "has another model.safetensors, of as many bytes" in other.stdout and "rank 1 (process 1, host" in other.stdout, other

with check("another-model-on-one-host-is-refused"):
    # The same path, and a weight of another value, in a run of all weights and in one of an adapter over them.
    needs_mpi()
    words = ("--model", "model", "--environment", "countdown", "--steps", 1, "--batch", 2, "--warmup", 0, "--threads", 2, "--ranks", "dp=2", "--transport", "mpi", "--runs", RUNS, "--no-page", "--quiet", "--json")
    for name, more in (("whole", ()), ("over", ("--adapter-rank", 4))):
        line = (BINARY, "train", "sft", "--name", f"copies-{name}", *words, *more)
        outcome = mpirun(1, "--wdir", copies[0].parent, *line, ":", "-n", 1, "--wdir", copies[1].parent, *line)
        assert outcome.returncode != 0 and "process 1 (host" in outcome.stderr and "has other weights than process 0" in outcome.stderr, outcome
        assert not (RUNS / f"copies-{name}/export").exists(), "it was trained"

with check("doctor-refused"):
    needs_mpi()
    few = doctor(2, "tp=1")
    assert few.returncode != 0 and "there are 2 processes" in few.stderr, few
    apart = mpirun(2, BINARY, "doctor", "--ranks", "tp=2")
    assert apart.returncode != 0 and "one of 2 processes that mpirun started" in apart.stderr, apart

with check("nccl-without-gpus-is-refused"):
    # Where a GPU and the module are, the device is what is wrong.
    needs_mpi()
    outcome = mpirun(2, BINARY, *sft_arguments("nccl", RUNS, transport="nccl", ranks="dp=2", threads=2))
    reasons = ("this build has no CUDA", "no NVIDIA GPU can be used here", "its module cannot be loaded", "device is 'cpu' with the transport nccl")
    assert outcome.returncode != 0 and any(reason in outcome.stderr for reason in reasons), outcome
    alone = mpirun(1, "env", "-u", "OMPI_COMM_WORLD_SIZE", "-u", "PMIX_RANK", BINARY, *sft_arguments("nccl", RUNS, transport="nccl", ranks="dp=2", threads=2))
    assert alone.returncode != 0 and "transport is 'nccl' in a process that mpirun did not start" in alone.stderr, alone
    words = mpirun(2, BINARY, "doctor", "--ranks", "tp=2", "--transport", "nccl")
    assert words.returncode != 0 and "threads" in words.stderr and "mpi" in words.stderr and "nccl" in words.stderr, words

with check("sft-in-two-parts"):
    needs_mpi()
    # Beside a run of one rank in the same parts: a rate that falls to the end of two steps is another than one of three.
    done(*sft_arguments("parts-one", RUNS, threads=1, steps=2))
    wanted = bits(RUNS / "parts-one", done(*sft_arguments("parts-one", RUNS, threads=1), "--resume"))
    run(2, "parts", ranks="dp=2,shard=weights", threads=2, steps=2)
    assert [p.name for p in sorted((RUNS / "parts/checkpoints/step-000002").iterdir())] == ["rank-00.state", "rank-01.state", "state.json"], "each process writes its share"
    require_same(wanted, bits(RUNS / "parts", run(2, "parts", "--resume", ranks="tp=2", threads=2)), "two parts over two processes")
    last = done(*sft_arguments("parts", RUNS, threads=1), "--resume")  # one rank reads what two processes wrote
    assert last.json()["weights_sha256"] == wanted["weights"], last

# One of two processes dies while the second checkpoint is written: the first one stands, and goes on in another layout to the same bits.
for process, place in ((1, "checkpoint:write:2"), (1, "checkpoint:fsync:2"), (0, "folder.synced:2"), (0, "checkpoint:rename:2")):
    with check(f"killed-process-{process}-at-{place.replace(':', '-').replace('.', '-')}"):
        needs_mpi()
        name = f"saving-{process}-{place.replace(':', '-')}"
        words = [BINARY.with_name("lockstep_faults"), *sft_arguments(name, RUNS, transport="mpi", ranks="dp=2", threads=2, checkpoint_every=1)]
        dies = ["env", f"LOCKSTEP_KILL_AT={place}", *words]
        first, second = (words, dies) if process == 1 else (dies, words)
        outcome = mpirun(1, *first, ":", "-n", 1, *second)
        assert outcome.returncode != 0, outcome
        assert last_checkpoint(RUNS / name)["step"] == 1, last_checkpoint(RUNS / name)
        require_same(expected["one"], bits(RUNS / name, run(2, name, "--resume", ranks="tp=2", threads=2, checkpoint_every=1)), f"killed at {place}")
        assert not list((RUNS / name / "checkpoints").glob("*.partial")), "half a checkpoint was left"

for processes, ranks in ((2, "dp=2"), (2, "tp=2"), (3, "tp=2,dp=2"), (2, "dp=2,pp=2"), (2, "dp=2,shard=weights")):
    with check(f"rl-{processes}-processes-{ranks.replace('=', '').replace(',', '-')}"):
        needs_mpi()
        if "rl" not in expected:
            expected["rl"] = bits(RUNS / "rl", done(*rl_arguments("rl", RUNS, threads=1)))
        name = f"rl-{processes}-{ranks.replace('=', '').replace(',', '-')}"
        outcome = mpirun(processes, BINARY, *rl_arguments(name, RUNS, transport="mpi", ranks=ranks, threads=2))
        assert outcome.returncode == 0, f"status {outcome.returncode}\n{outcome}"
        assert outcome.json()["different_bits"] == 0, outcome
        require_same(expected["rl"], bits(RUNS / name, outcome), f"{processes} processes, {ranks}")

for ranks in ("tp=2", "tp=2,dp=2", "pp=2"):
    with check(f"adapter-two-processes-{ranks.replace('=', '').replace(',', '-')}"):
        needs_mpi()
        adapter = {"adapter_rank": 4, "threads": 2}
        if "adapter" not in expected:
            expected["adapter"] = bits(RUNS / "adapter", done(*rl_arguments("adapter", RUNS, **adapter)))
            assert expected["adapter"]["weights"] != expected["rl"]["weights"]
        name = f"adapter-{ranks.replace('=', '').replace(',', '-')}"
        outcome = mpirun(2, BINARY, *rl_arguments(name, RUNS, transport="mpi", ranks=ranks, **adapter))
        assert outcome.returncode == 0, f"status {outcome.returncode}\n{outcome}"
        assert outcome.json()["different_bits"] == 0, outcome
        require_same(expected["adapter"], bits(RUNS / name, outcome), f"an adapter over two processes, {ranks}")

for critic, ranks in (("full", "dp=2"), ("adapter", "tp=2")):
    with check(f"critic-{critic}-and-reference-two-processes-{ranks.replace('=', '')}"):
        needs_mpi()
        judged = {"advantages": "gae", "critic": critic, "kl_coefficient": 0.05, "adapter_rank": 4 if critic == "adapter" else 0, "threads": 2}
        alone = bits(RUNS / f"critic-{critic}", done(*rl_arguments(f"critic-{critic}", RUNS, **judged)))
        assert alone["weights"] not in (expected["rl"]["weights"], expected["adapter"]["weights"]), "a critic changed nothing"
        outcome = mpirun(2, BINARY, *rl_arguments(f"critic-{critic}-two", RUNS, transport="mpi", ranks=ranks, **judged))
        assert outcome.returncode == 0, f"status {outcome.returncode}\n{outcome}"
        require_same(alone, bits(RUNS / f"critic-{critic}-two", outcome), f"a critic and a reference over two processes, {ranks}")

# A layer of multi-token prediction trained beside the model: in one process, and over two, whose second one alone has it with pp=2.
LAYER = ("--mtp-depths", 2, "--mtp-loss", "both", "--mtp-learning-rate", "0.01")
JOINTLY = {"sparse_from": 0, "index_from": 0}


def of_layer(name, outcome):
    """The layer's hash, and the bits of the run, whose metrics have the layer's losses."""
    return outcome.json()["draft_sha256"], bits(RUNS / name, outcome)


def require_same_layer(expected, found, what):
    require_same(expected[1], found[1], what)
    assert expected[0] == found[0], f"{what}: the layer's hash is {found[0]}, expected {expected[0]}"


for ranks in ("dp=2", "pp=2"):
    with check(f"layer-for-drafts-two-processes-{ranks.replace('=', '')}"):
        needs_mpi()
        if "layer" not in expected:
            expected["layer"] = of_layer("layer", done(*sft_arguments("layer", RUNS, threads=1), *LAYER))
            assert expected["layer"][1]["weights"] == expected["one"]["weights"], "a layer that reads the model has moved it"
        name = f"layer-{ranks.replace('=', '')}"
        require_same_layer(expected["layer"], of_layer(name, run(2, name, *LAYER, ranks=ranks, threads=2)), f"a layer over two processes, {ranks}")

with check("layer-for-drafts-in-two-parts"):
    needs_mpi()
    done(*sft_arguments("layer-parts-one", RUNS, threads=1, steps=2), *LAYER)
    wanted = of_layer("layer-parts-one", done(*sft_arguments("layer-parts-one", RUNS, threads=1), *LAYER, "--resume"))
    assert wanted[0] != expected["layer"][0], "another schedule gave the same hash: the hash says nothing"
    run(2, "layer-parts", *LAYER, ranks="dp=2", threads=2, steps=2)
    require_same_layer(wanted, of_layer("layer-parts", run(2, "layer-parts", *LAYER, "--resume", ranks="pp=2", threads=2)), "two parts over two processes")

with check("layer-for-drafts-that-moves-the-model"):
    needs_mpi()
    alone = of_layer("joint", done(*sft_arguments("joint", RUNS, threads=1, **JOINTLY), *LAYER, "--mtp-joint"))
    for ranks in ("dp=2", "pp=2"):
        name = f"joint-{ranks.replace('=', '')}"
        require_same_layer(alone, of_layer(name, run(2, name, *LAYER, "--mtp-joint", ranks=ranks, threads=2, **JOINTLY)), f"jointly over two processes, {ranks}")

with check("layer-for-drafts-on-line"):
    # It learns from rollouts that it has drafted: those of one process, token for token.
    needs_mpi()
    online = ("--rollout-speculation", "mtp", "--mtp-depths", 2)
    alone = of_layer("rl-layer", done(*rl_arguments("rl-layer", RUNS, threads=1), *online))
    outcome = mpirun(2, BINARY, *rl_arguments("rl-layer-two", RUNS, transport="mpi", ranks="pp=2", threads=2), *online)
    assert outcome.returncode == 0, f"status {outcome.returncode}\n{outcome}"
    require_same_layer(alone, of_layer("rl-layer-two", outcome), "a layer on line over two processes")
    assert alone[1]["weights"] == expected["rl"]["weights"], "drafts have changed what is learned"


def other_run(command, name, *more, transport="threads", ranks="", model=MODEL):
    """Preferences or a distillation: two steps on data of its own."""
    layout = ["--transport", transport, "--ranks", ranks] if ranks else []
    return ["train", command, "--model", model, "--runs", RUNS, "--name", name, "--steps", 2, "--threads", 2, "--learning-rate", "1e-3", "--warmup", 0, "--seed", 4, "--no-page", "--quiet", "--json", *layout, *more]


def large(name, hidden):
    """A random model of 1,536 tokens, of which teachers tell no log-probabilities: the divergence is computed in the head."""
    folder = TMP / f"large-{name}"
    if not folder.exists():
        folder.mkdir()
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(MODEL / file, folder / file)
        config = {"model_type": "llama", "vocab_size": 1536, "hidden_size": hidden, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 64,
                  "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False, "hidden_act": "silu", "eos_token_id": 102}  # fmt: skip
        (folder / "config.json").write_text(json.dumps(config))
        data = folder / "text.jsonl"
        data.write_text(json.dumps({"prompt": "4 2 3=6:", "completion": "4+2=6"}) + "\n")
        done("train", "sft", "--model", folder, "--from-scratch", "--init-seed", hidden, "--init-deviation", 0.2, "--data", data, "--eval-share", 0, "--steps", 1, "--batch", 1, "--threads", 2,
             "--runs", RUNS, "--name", folder.name, "--no-page", "--quiet", "--json")  # fmt: skip
    return RUNS / folder.name / "export"


def figures(run, outcome):
    return {"weights": outcome.json()["weights_sha256"], **state(run), "metrics": metrics(run), "transcripts": None}


PAIRS, PROMPTS, TEACHERS = TMP / "pairs.jsonl", TMP / "prompts.jsonl", TMP / "teachers.toml"
PAIRS.write_text("".join(json.dumps({"prompt": f"{a} {b} 3={a + b}:", "chosen": f" {a}+{b}", "rejected": f" {a}-{b}"}) + "\n" for a in (4, 7) for b in (2, 5, 9)))
PROMPTS.write_text("".join(json.dumps({"prompt": f"{a} 2 3={a + 2}:"}) + "\n" for a in (4, 7, 9, 8)))
LARGE_TEACHERS = TMP / "large-teachers.toml"
LARGE_TEACHERS.write_text(f'[[teacher]]\nname = "large"\nfolder = "{RUNS / "large-teacher/export"}"\n')
TEACHERS.write_text(f'[[teacher]]\nname = "itself"\nfolder = "{MODEL}"\n')
OTHERS = {"dpo": ("dpo", "--data", PAIRS, "--batch", 3), "reward": ("reward", "--data", PAIRS, "--batch", 3), "adapter-dpo": ("dpo", "--data", PAIRS, "--batch", 3, "--adapter-rank", 4),
          "distill": ("distill", "--teachers", TEACHERS, "--data", PROMPTS, "--prompts", 4, "--max-tokens", 8),
          "distill-in-the-head": ("distill", "--teachers", LARGE_TEACHERS, "--data", PROMPTS, "--prompts", 4, "--max-tokens", 8)}  # fmt: skip
seen = set()
for name, (command, *more) in OTHERS.items():
    for ranks in ("tp=2", "dp=2"):
        with check(f"{name}-two-processes-{ranks.replace('=', '')}"):
            needs_mpi()
            model = MODEL
            if name == "distill-in-the-head":
                model = large("student", 32)
                large("teacher", 48)
            if name not in expected:
                expected[name] = figures(RUNS / name, done(*other_run(command, name, *more, model=model)))
                assert expected[name]["weights"] not in seen, "two kinds of runs have the same weights: the hash says nothing"
                seen.add(expected[name]["weights"])
            over = f"{name}-{ranks.replace('=', '')}"
            outcome = mpirun(2, BINARY, *other_run(command, over, *more, transport="mpi", ranks=ranks, model=model))
            assert outcome.returncode == 0, f"status {outcome.returncode}\n{outcome}"
            require_same(expected[name], figures(RUNS / over, outcome), f"{name} over two processes, {ranks}")

with check("distill-in-the-head-of-another-teacher"):
    needs_mpi()
    itself = TMP / "large-itself.toml"
    itself.write_text(f'[[teacher]]\nname = "itself"\nfolder = "{large("student", 32)}"\n')
    words = ("--teachers", itself, "--data", PROMPTS, "--prompts", 4, "--max-tokens", 8)
    outcome = mpirun(2, BINARY, *other_run("distill", "large-itself", *words, transport="mpi", ranks="tp=2", model=large("student", 32)))
    assert outcome.returncode == 0, f"status {outcome.returncode}\n{outcome}"
    assert {line["loss"] for line in map(json.loads, (RUNS / "large-itself/metrics.jsonl").read_text().splitlines())} == {0}, "what is its own teacher learns"
    assert outcome.json()["weights_sha256"] != expected["distill-in-the-head"]["weights"], "another teacher gave the same hash: the hash says nothing"

with check("what-each-rank-did"):
    needs_mpi()
    for name in ("two-dp2", "rl-2-dp2", "adapter-tp2-dp2", "critic-full-two", "dpo-dp2", "distill-dp2"):
        require_rank_times(RUNS / name, "tp=2,dp=2,ep=1" if "tp2-dp2" in name else "tp=1,dp=2,ep=1", 2)
    alone, together = ((json.loads(line)["ranks_bytes"] for line in (RUNS / name / "metrics.jsonl").read_text().splitlines()) for name in ("rl-2-dp2", "critic-full-two"))
    assert sum(together) > 1.5 * sum(alone), "a critic's exchanges are not counted"

with check("scores-two-processes"):
    # By the training forward and by decoding, of the model and of an adapter: the lines of one process.
    needs_mpi()
    lines = TMP / "lines.jsonl"
    lines.write_text("".join(json.dumps({"tokens": tokens}) + "\n" for tokens in ([1, 5, 7, 9, 11, 13, 8, 6], [3], [9, 4, 2, 31])))
    told = {}
    for via, ranks, adapter in (("train", "tp=2", ""), ("train", "dp=2", RUNS / "adapter/export"), ("decode", "tp=2", ""), ("decode", "tp=2", RUNS / "adapter/export")):
        words = ["score", "--model", MODEL, "--profile", "cpu-bf16w", "--tokens", lines, "--via", via, *(["--adapter", adapter] if adapter else [])]
        alone = done(*words, "--threads", 1).stdout
        outcome = mpirun(2, BINARY, *words, "--threads", 2, "--ranks", ranks, "--transport", "mpi")
        assert outcome.returncode == 0 and outcome.stdout == alone and len(alone.splitlines()) == 3, (via, ranks, adapter, alone, outcome)
        told.setdefault(bool(adapter), set()).add(alone)
    assert len(told[False]) == len(told[True]) == 1 and told[False] != told[True], "the control: an adapter says something else"
    few = mpirun(2, BINARY, *words, "--threads", 2, "--ranks", "dp=2", "--transport", "mpi")
    assert few.returncode != 0 and "there are 2 processes" in few.stderr, few

with check("other-seed"):
    needs_mpi()
    other = bits(RUNS / "other", run(2, "other", ranks="dp=2", threads=2, seed=99))
    assert other["weights"] != expected["one"]["weights"], "another seed gave the same hash: the hash says nothing"

with check("refused"):
    needs_mpi()
    outcome = mpirun(2, BINARY, *sft_arguments("few", RUNS, transport="mpi"))
    assert outcome.returncode != 0 and "there are 2 processes" in outcome.stderr, outcome
    alone = subprocess.run([BINARY, *sft_arguments("alone", RUNS, transport="mpi", ranks="dp=2")], cwd=ROOT, capture_output=True, text=True, timeout=LONG)
    assert alone.returncode != 0 and "mpirun" in alone.stderr, alone
    apart = mpirun(2, BINARY, *sft_arguments("apart", RUNS, ranks="dp=2"))
    assert apart.returncode != 0 and "one of 2 processes that mpirun started" in apart.stderr, apart
    missing = mpirun(2, BINARY, *sft_arguments("missing", RUNS, transport="mpi", ranks="dp=2", model=TMP / "nowhere"))
    assert missing.returncode != 0 and "nowhere" in missing.stderr, missing


def while_running(name, act, **settings):
    """A run without an end over two processes: when it has taken steps act(pids by process) is called, and the run ends by itself. Returns pids, status, stderr, and
    the seconds from then until somebody was named."""
    line = mpirun_line(2, "--enable-recovery", BINARY, *sft_arguments(name, RUNS, transport="mpi", ranks="dp=2", steps=100000, threads=2, **settings))
    with tempfile.TemporaryFile("w+") as errors:
        running = subprocess.Popen(line, env=ENVIRONMENT, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=errors, text=True)
        pids = {}
        try:
            metrics = RUNS / name / "metrics.jsonl"
            until = time.monotonic() + LONG
            while not metrics.exists() or not metrics.read_text().count("\n"):
                assert time.monotonic() < until and running.poll() is None, "the run did not begin"
                time.sleep(0.1)
            pids = pids_of(running.pid)
            assert set(pids) == {0, 1}, pids
            act(pids)
            began = time.monotonic()
            # Read where it stands: what the processes write goes on at the file's end.
            while running.poll() is None and time.monotonic() < began + LONG and not NAMED.search(os.pread(errors.fileno(), 1 << 20, 0).decode(errors="replace")):
                time.sleep(0.05)
            named = time.monotonic() - began
            running.wait(timeout=LONG)
            print(f"  {name}: named after {named:.1f} s, all had ended {time.monotonic() - began:.1f} s later", flush=True)
        finally:
            end_all(running, pids)
        errors.seek(0)
        return pids, running.returncode, errors.read(), named


def signalled(process, number):
    return lambda pids: os.kill(pids[process], number)


for process in (1, 0):
    with check(f"killed-process-{process}-is-named"):
        needs_mpi()
        for attempt in range(3):  # what else the machine does may hold up who is to say it
            pids, status, stderr, named = while_running(f"killed-{process}-{attempt}", signalled(process, signal.SIGKILL))
            assert f"process {process} (host" in stderr and f"pid {pids[process]}) ended without a word" in stderr, (status, stderr)
            if named < MOST_UNTIL_NAMED:
                break
        assert named < MOST_UNTIL_NAMED, named
    with check(f"stopped-process-{process}-is-named"):
        needs_mpi()
        pids, status, stderr, named = while_running(f"stopped-{process}", signalled(process, signal.SIGSTOP), rank_timeout=SILENCE)
        assert f"process {process} (host" in stderr and f"pid {pids[process]}) is silent for {SILENCE} s" in stderr, (status, stderr)
        assert SILENCE - 1 < named < SILENCE + 5, named

with check("a-pause-of-all-is-no-loss"):
    # As Ctrl-Z: whoever was stopped himself accuses nobody when he goes on. The run is ended afterwards, and says who was.
    needs_mpi()

    def pause(pids):
        for number, wait in ((signal.SIGSTOP, SILENCE + 3), (signal.SIGCONT, 3)):
            for pid in pids.values():
                os.kill(pid, number)
            time.sleep(wait)
        os.kill(pids[1], signal.SIGKILL)

    pids, status, stderr, _ = while_running("paused", pause, rank_timeout=SILENCE)
    assert "is silent" not in stderr and f"pid {pids[1]}) ended without a word" in stderr, (status, stderr)
