"""A local `lockstep serve`, started and stopped from Python."""
from __future__ import annotations

import atexit
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Mapping, Optional, Sequence, Type, Union

from ._program import program, shipped_model

if TYPE_CHECKING:
    import openai as _openai
    import tinker as _tinker

_LISTENING = re.compile(r"^listening on (https?://\S+)$", re.M)
_POLL_SECONDS = 0.05


class LockstepError(RuntimeError):
    """The server could not be started or stopped; the message holds the end of its log."""


class Server:
    """A running server; serve() makes one. Stops with the `with` block, with stop(), or with the interpreter. One thread at a time."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path, folder: Path, model: str) -> None:
        self._process = process
        self._folder = folder
        self._url = ""
        self.log = log
        """The file of the server's log; removed by stop()."""
        self.model = model
        """The model's name in requests."""

    @property
    def base_url(self) -> str:
        """http://127.0.0.1:PORT, the base URL for clients of tinker and fireworks-ai."""
        return self._url

    @property
    def openai_url(self) -> str:
        """The base URL of OpenAI's API: base_url/v1."""
        return self._url + "/v1"

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def tail(self, lines: int = 20) -> str:
        """The last lines of the server's log."""
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except OSError:
            return ""

    def openai(self, **options: Any) -> "_openai.OpenAI":
        """A client of the package openai."""
        try:
            from openai import OpenAI
        except ImportError as error:
            raise ImportError("the package openai is not installed: pip install openai") from error
        return OpenAI(**{"base_url": self.openai_url, "api_key": "local", **options})

    def tinker(self, **options: Any) -> "_tinker.ServiceClient":
        """A ServiceClient of the package tinker. Needs serve(training=True), which is the default."""
        try:
            from tinker import ServiceClient
        except ImportError as error:
            raise ImportError("the package tinker is not installed: pip install tinker") from error
        return ServiceClient(**{"base_url": self.base_url, "api_key": "tml-local", **options})

    def fireworks(self, **options: Any) -> Any:
        """A FiretitanServiceClient of the package fireworks-ai. Needs serve(training=True), which is the default."""
        try:
            from fireworks.training.sdk import FiretitanServiceClient
        except ImportError as error:
            raise ImportError("the package fireworks-ai is not installed: pip install fireworks-ai") from error
        return FiretitanServiceClient(**{"base_url": self.base_url, "api_key": "local", **options})

    def stop(self, seconds: float = 60) -> int:
        """Stops the server by SIGTERM: running requests finish, models in training are written to `state`. Returns the exit status, 0 for success.

        After `seconds` the server is killed and LockstepError raised. A second call does nothing.
        """
        atexit.unregister(self.stop)
        late = False
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(timeout=seconds)
            except subprocess.TimeoutExpired:
                late = True
                self._process.kill()
                self._process.wait()
        said = self.tail()
        shutil.rmtree(self._folder, ignore_errors=True)
        if late:
            raise LockstepError(f"the server did not stop within {seconds:g} s and was killed; the end of its log:\n{said}")
        return self._process.returncode

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<lockstep.Server {self.model} {self._url}{'' if self.running else ' stopped'}>"

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._ready():
            status = self._process.poll()
            if status is not None or time.monotonic() > deadline:
                self._process.kill()
                self._process.wait()
                said = self.tail()
                shutil.rmtree(self._folder, ignore_errors=True)
                how = f"was not ready within {seconds:g} s" if status is None else f"ended with status {status} before it was ready"
                raise LockstepError(f"the server {how}; the end of its log:\n{said}")
            time.sleep(_POLL_SECONDS)

    def _ready(self) -> bool:
        if not self._url:
            found = _LISTENING.search(self.log.read_text(errors="replace"))
            if not found:
                return False
            self._url = found[1]
        # The server is on this machine, so the environment's proxies are not used.
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(self._url + "/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


def serve(
    model: Union[str, "os.PathLike[str]", None] = None,
    *,
    training: bool = True,
    state: Union[str, "os.PathLike[str]", None] = None,
    port: int = 0,
    name: Optional[str] = None,
    aliases: Sequence[str] = (),
    threads: int = 0,
    options: Sequence[str] = (),
    environment: Optional[Mapping[str, str]] = None,
    start_seconds: float = 120,
) -> Server:
    """Starts a server on this machine's loopback interface, and returns when it is ready.

    model: a model folder or a GGUF file; None or "countdown-glm": the small model of this package.
    training: serve the API of tinker and fireworks-ai beside OpenAI's. state: folder of its checkpoints; None: a temporary one, removed by stop().
    port: 0: any free one. name: the model's name in requests; None: its folder's. aliases: more names of it for training clients.
    threads: 0: all processors. options: more options of `lockstep serve`. environment: more environment variables of the server.
    start_seconds: time limit for getting ready. Raises LockstepError with the end of the server's log if the server ends or is too late.
    """
    folder = shipped_model() if model is None or (str(model) == "countdown-glm" and not Path(model).exists()) else Path(model)
    place = Path(tempfile.mkdtemp(prefix="lockstep-"))
    command = [str(program()), "serve", "--model", str(folder), "--host", "127.0.0.1", "--port", str(port), "--threads", str(threads), "--runs", str(place / "runs")]
    if name is not None:
        command += ["--name", name]
    if training:
        command += ["--training", "--state", str(state if state is not None else place / "state")]
        for alias in aliases:
            command += ["--alias", alias]
    command += options
    log = place / "log"
    try:
        with log.open("wb") as out:
            # A session of its own: Ctrl-C in a notebook interrupts the cell, not the server.
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **(environment or {})}, start_new_session=True)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    server = Server(process, log, place, name if name is not None else folder.resolve().name)
    atexit.register(server.stop)
    try:
        server._wait(start_seconds)
    except BaseException:
        atexit.unregister(server.stop)
        if process.poll() is None:
            process.kill()
            process.wait()
        shutil.rmtree(place, ignore_errors=True)
        raise
    return server
