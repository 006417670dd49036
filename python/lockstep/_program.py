"""Finds the program and the model of this package, and its version."""
from __future__ import annotations

import os
import re
from pathlib import Path

_HERE = Path(__file__).resolve().parent


def program() -> Path:
    """The program of this package, or the one that LOCKSTEP_BINARY names."""
    named = os.environ.get("LOCKSTEP_BINARY")
    path = Path(named) if named else _HERE / "bin" / "lockstep"
    if not os.access(path, os.X_OK) or path.is_dir():
        raise FileNotFoundError(f"there is no program at {path}" + (", which LOCKSTEP_BINARY names" if named else "; install the package from its wheel (./wheel)"))
    return path


def shipped_model() -> Path:
    """The folder of the model in this package: countdown-glm, 0.7 million parameters."""
    return _HERE / "models" / "countdown-glm"


def version() -> str:
    """The version that `lockstep --version` prints, read from CMakeLists.txt in a checkout, else from the installed package's metadata."""
    source = _HERE.parents[1] / "CMakeLists.txt"
    if source.exists():
        found = re.search(r"^project\(lockstep VERSION ([0-9.]+)", source.read_text(), re.M)
        if found:
            return found[1]
    from importlib.metadata import version as installed

    return installed("lockstep")
