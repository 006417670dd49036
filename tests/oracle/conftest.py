"""Runs the built `lockstep` binary as a client would: files in, files and JSON lines out.

LOCKSTEP_BINARY names it (default build/lockstep under the repository). Without a binary these tests fail; they are
never skipped. The oracle itself lives in tools/make_goldens.py; tools/oracle-requirements.txt lists what it needs.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tools"))
TIMEOUT_SECONDS = 600


class Lockstep:
    """The command line, one method a subcommand."""

    def __init__(self, binary, folder):
        self.binary, self.folder, self.calls = binary, folder, 0

    def run(self, *arguments):
        command = [str(self.binary), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
        assert done.returncode == 0, f"{' '.join(command)} exited with {done.returncode}:\n{done.stderr}"
        return done.stdout

    def tokens_file(self, sequences):
        self.calls += 1
        path = self.folder / f"tokens{self.calls}.jsonl"
        path.write_text("".join(json.dumps({"tokens": [int(t) for t in tokens]}) + "\n" for tokens in sequences))
        return path

    def score(self, model, sequences, via, profile="cpu-f32"):
        """One dictionary {"logprobs": [n-1 floats], "bits": hash} per sequence."""
        tokens = self.tokens_file(sequences)
        output = self.run("score", "--model", model, "--tokens", tokens, "--via", via, "--profile", profile)
        rows = [json.loads(line) for line in output.splitlines() if line.strip()]
        assert [len(row["logprobs"]) for row in rows] == [len(tokens) - 1 for tokens in sequences], f"rows of --via {via}"
        assert all(isinstance(row["bits"], str) and row["bits"] for row in rows), f"bits of --via {via}"
        return rows

    def grad(self, model, sequences, profile="cpu-f32"):
        """Tensor name -> gradient of the summed cross-entropy of all sequences, as the file holds it."""
        from safetensors.numpy import load_file

        out = self.folder / f"grads{self.calls}.safetensors"
        self.run("grad", "--model", model, "--tokens", self.tokens_file(sequences), "--out", out, "--profile", profile)
        return load_file(out)


@pytest.fixture
def lockstep(tmp_path):
    binary = Path(os.environ.get("LOCKSTEP_BINARY", REPOSITORY / "build" / "lockstep")).resolve()
    if not os.access(binary, os.X_OK) or binary.is_dir():
        pytest.fail(f"there is no lockstep binary at {binary}; build it or set LOCKSTEP_BINARY")
    return Lockstep(binary, tmp_path)


def pytest_terminal_summary(terminalreporter):
    """Whatever is skipped is said, whatever the flags."""
    for report in terminalreporter.stats.get("skipped", []):
        terminalreporter.write_line(f"SKIPPED {report.nodeid}: {report.longrepr[2]}")
