"""The first steps of training, again and again: whatever the machine computes them with, one hash.

Reinforcement learning (2 steps of 32 rollouts from the shipped model) and fine-tuning (3 steps from random weights: dense,
indexer, sparse) under every instruction set here x threads {1, 2} x micro-batch {1, all}, on the deferred backend and on ranks. One
weights hash each, one hash of masters and moments, equal metrics, KL 0 and no bit that differs between sampler and trainer.
Another seed must give another hash, or the comparison would say nothing.
"""
import itertools
import shutil

from harness import Skip, TMP, bits, check, done, instruction_sets, require_same, rl_arguments, sft_arguments

KINDS = {"rl": rl_arguments, "sft": sft_arguments}
RUNS = TMP / "runs"
present = instruction_sets()


def run(kind, name, **settings):
    found = bits(RUNS / name, done(*KINDS[kind](name, RUNS, **settings)))
    shutil.rmtree(RUNS / name)
    if kind == "rl":
        for row in found["metrics"]:
            assert row["k1"] == row["k2"] == row["k3"] == 0, f"step {row['step']}: the KL is not 0: {row}"
            assert row["different_bits"] == 0, f"step {row['step']}: {row['different_bits']} log-probabilities differ"
    return found


for kind in KINDS:
    expected = {}
    for isa in ("avx512", "avx2", "scalar"):
        for threads, micro_batch in itertools.product((2, 1), (0, 1)):
            name = f"{kind}-{isa}-threads{threads}-micro{micro_batch or 'all'}"
            with check(name):
                if isa not in present:
                    raise Skip("no AVX-512 on this machine")
                found = run(kind, name, isa=isa, threads=threads, micro_batch=micro_batch)
                require_same(expected.setdefault("first", found), found, name)

    with check(f"{kind}-deferred"):
        found = run(kind, f"{kind}-deferred", backend="deferred", threads=2)
        require_same(expected["first"], found, "the deferred backend")

    for ranks in ("tp=2", "dp=3", "dp=2,pp=2", "tp=2,dp=2,ep=2", "dp=2,shard=weights", "dp=2,ep=2,rows=dealt"):
        with check(f"{kind}-ranks-{ranks.replace('=', '').replace(',', '-')}"):
            found = run(kind, f"{kind}-ranks", ranks=ranks, threads=2)
            require_same(expected["first"], found, f"ranks {ranks}")

    with check(f"{kind}-checkpointing"):
        found = run(kind, f"{kind}-checkpointing", checkpoint_activations="true", threads=2, micro_batch=5)
        require_same(expected["first"], found, "recomputed activations, micro-batches of 5")

    with check(f"{kind}-moves"):
        # Weights that did not move would be equal everywhere.
        assert all(row["gradient_norm"] > 0 for row in expected["first"]["metrics"]), expected["first"]["metrics"]

    with check(f"{kind}-other-seed"):
        other = run(kind, f"{kind}-other-seed", seed=99, threads=2)
        assert other["weights"] != expected["first"]["weights"], "another seed gave the same hash: the hash says nothing"
        assert other["state"] != expected["first"]["state"], "another seed gave the same state"
