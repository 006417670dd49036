"""A `lockstep serve --training` on the shipped model, and the real SDKs against it.

LOCKSTEP_BINARY names the binary (default build/lockstep under the repository). They need the packages of
tools/oracle-requirements.txt: tinker, fireworks-ai, torch.
"""
import importlib.util
import os
import sys
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"  # a name that is no folder must not be looked for elsewhere
os.environ.setdefault("TINKER_TELEMETRY", "0")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

_spec = importlib.util.spec_from_file_location("lockstep_api_conftest", Path(__file__).resolve().parents[1] / "api/conftest.py")
_api = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_api)
Server, MODEL, REPOSITORY = _api.Server, _api.MODEL, _api.REPOSITORY
_status = 0


def pytest_sessionfinish(session, exitstatus):
    global _status
    _status = int(exitstatus)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config):
    """Ends without Python's own end. Clients that nobody closed leave threads; one that comes back from C while the interpreter goes away
    aborts the process (PyGILState_Release, Python 3.11), when all has been told and written."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(_status)


@pytest.fixture(scope="session")
def training_server(tmp_path_factory):
    running = Server("--training", "--state", str(tmp_path_factory.mktemp("state")), "--alias", "Qwen/Qwen3-8B")
    yield running
    assert running.stop() == 0, "".join(running.errors)


@pytest.fixture
def start_sampler():
    """start_sampler(*arguments, model=DIR): a server of the test's own that trains nothing, stopped at its end."""
    started = []

    def start(*arguments, **model):
        started.append(Server(*arguments, **model))
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture
def start_server(tmp_path):
    """start_server(*arguments, model=DIR): a server of the test's own on the same folder each time, stopped at its end."""
    started = []

    def start(*arguments, **model):
        started.append(Server("--training", "--state", str(tmp_path / "state"), *arguments, **model))
        return started[-1]

    yield start
    for server in started:
        server.stop()
