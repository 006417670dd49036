"""Tests of the `tinker` and `fireworks-ai` clients against a training server over two processes of Open MPI: `mpirun -n 2 lockstep serve --training`. All that
can be run so are in `./check --night clients-training` (tools/over_processes.py); that the bits are those of one rank: test_ranks.py."""
import os

import pytest
from conftest import REPOSITORY, Server

import over_processes
from test_fireworks import test_the_published_snippet, test_weights_are_synced_and_sampled  # noqa: F401
from test_tinker import (rank, service, test_a_snapshot_keeps_its_weights, test_resume_with_optimizer_is_the_client_that_went_on, test_several_targets_a_position,  # noqa: F401
                         test_trainer_and_sampler_have_the_same_bits, test_what_is_wrong_is_said_and_the_client_goes_on)  # fmt: skip


@pytest.fixture(scope="module")
def training_server(tmp_path_factory):
    program = os.environ.get("LOCKSTEP_BINARY", str(REPOSITORY / "build" / "lockstep"))
    if lacking := over_processes.lacking(program):
        pytest.skip(lacking)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCKSTEP_BINARY", str(over_processes.wrapped(program)))
        running = Server("--training", "--state", str(tmp_path_factory.mktemp("over-processes")), "--alias", "Qwen/Qwen3-8B")
    yield running
    assert running.stop() == 0, "".join(running.errors)
