"""The tests that every family of models has: its goldens and fresh random configs, in both directions. A test file of a family imports them, and has
fixtures `golden` and `fresh` of its own (oracle_cases.Case)."""

import make_goldens
import pytest
from oracle_cases import check_float32_oracle, check_gradients, check_gradients_of_two_sequences, check_scores, check_trained_export

# The oracle by itself: the folder transformers saved loads again, and float32 meets the tolerances asked of lockstep.


def test_oracle_in_float32_meets_the_tolerances_on_goldens(golden):
    if golden.config["model_type"] not in make_goldens.ORACLE_TYPES:  # which transformers does not load by that name
        check_float32_oracle(golden)


def test_oracle_in_float32_meets_the_tolerances_on_fresh_configs(fresh):
    check_float32_oracle(fresh)


# Their checkpoint, our numbers.


def test_golden_scores(lockstep, golden):
    check_scores(lockstep, golden)


def test_golden_gradients(lockstep, golden):
    check_gradients(lockstep.grad(golden.folder, [golden.tokens]), golden, golden.grads)


def test_fresh_scores(lockstep, fresh):
    check_scores(lockstep, fresh)


def test_fresh_gradients_of_two_sequences(lockstep, fresh):
    check_gradients_of_two_sequences(lockstep, fresh)


# Our checkpoint, their numbers.


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_a_trained_export_loads_in_transformers_and_scores_alike(lockstep, fresh, tmp_path, dtype):
    check_trained_export(lockstep, fresh, tmp_path, dtype)
