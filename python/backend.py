#!/usr/bin/env python3
"""Builds the wheel of the package lockstep: a PEP 517 backend, and a command.

    python3 python/backend.py [--binary build/lockstep] [--out dist]

The wheel has python/lockstep, the stripped program with the shared libraries that it needs beside libc (its DT_RPATH is $ORIGIN/../lib), their
copyright files, the models and the recipes, and where the program was built beside Open MPI its module for --transport mpi, which takes that of the system. A source distribution has the files that git tracks. The platform tag names the newest version of glibc
among the symbols of the wheel's files. The same inputs give the same bytes. Needs Linux with strip, objdump, readelf and ldd (binutils, libc-bin).
"""
import argparse
import base64
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
# Libraries that every glibc system has; all others go into the wheel.
OF_THE_SYSTEM = re.compile(r"(linux-vdso|ld-linux-x86-64|libc|libm|libpthread|libdl|librt)\.so")
EXTRAS = {"tinker": "tinker", "openai": "openai", "fireworks": "fireworks-ai"}


class BuildError(Exception):
    pass


def _run(*command, **options):
    result = subprocess.run([str(c) for c in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, **options)
    if result.returncode != 0:
        raise BuildError(f"{' '.join(map(str, command))}: status {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout


def version():
    found = re.search(r"^project\(lockstep VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text(), re.M)
    if not found:
        raise BuildError("CMakeLists.txt names no version of the project")
    return found[1]


def program(given=None):
    """The path of the built program: `given`, else LOCKSTEP_BINARY, else build/lockstep, which ./setup makes if it is missing."""
    named = given or os.environ.get("LOCKSTEP_BINARY")
    path = Path(named or ROOT / "build/lockstep").resolve()
    if not named and not path.exists():
        subprocess.run([str(ROOT / "setup")], check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    if not os.access(path, os.X_OK) or path.is_dir():
        raise BuildError(f"there is no program at {path}")
    if "[$ORIGIN/../lib]" not in _run("readelf", "-d", path):
        raise BuildError(f"{path} does not look for its libraries in $ORIGIN/../lib; build it again with this checkout")
    return path


def shared_libraries(path):
    """{soname: file} of the libraries that the program loads and a bare system lacks."""
    # Without LD_LIBRARY_PATH the loader finds the libraries that the program was linked with.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LD_")}
    found = {}
    for line in _run("ldd", path, env=environment).splitlines():
        if match := re.match(r"\s*(\S+) => (\S.*) \(0x", line):
            if not OF_THE_SYSTEM.match(match[1]):
                found[match[1]] = Path(match[2])
        elif "not found" in line:
            raise BuildError(f"{path}: {line.strip()}")
    return found


MODULE = "lockstep_mpi.so"  # loaded when it is asked for, from ../lib of the program (src/parallel/module_file.h)


def newest_glibc(paths):
    newest = (2, 17)
    for path in paths:
        for number in re.findall(r"GLIBC_([0-9.]+)", _run("objdump", "-T", path)):
            newest = max(newest, tuple(map(int, number.split(".")[:2])))
    return newest


def copyrights_of(libraries):
    """{package: its copyright file} of the Debian packages that contain the libraries; a library of no package is left out."""
    if not shutil.which("dpkg-query"):
        return {}
    ways = [{library, library.resolve(), Path(str(library.resolve()).removeprefix("/usr"))} for library in libraries]
    # One call for all, since each reads the file lists of all installed packages. Its status only says whether all files are known.
    said = subprocess.run(["dpkg-query", "-S", *sorted(str(path) for one in ways for path in one)], capture_output=True, text=True).stdout
    package_of = {path: names.split(":")[0] for names, _, path in (line.partition(": ") for line in said.splitlines())}
    packages = {next((package_of[str(path)] for path in sorted(one) if str(path) in package_of), None) for one in ways} - {None}
    files = {package: Path("/usr/share/doc") / package / "copyright" for package in packages}
    return {package: file for package, file in files.items() if file.exists()}


def metadata():
    lines = ["Metadata-Version: 2.4", "Name: lockstep", f"Version: {version()}",
             "Summary: Trains and serves language models with one forward pass: the model trained is bit for bit the model served",
             "Requires-Python: >=3.9", "License-Expression: Apache-2.0", "License-File: LICENSE", "Description-Content-Type: text/markdown"]
    for extra, package in EXTRAS.items():
        lines += [f"Provides-Extra: {extra}", f"Requires-Dist: {package} ; extra == '{extra}'"]
    return "\n".join(lines) + "\n\n" + (HERE / "README.md").read_text()


def _make(out, binary=None):
    source = program(binary)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        stripped = Path(folder) / "lockstep"
        libraries = shared_libraries(source)
        _run("strip", "-o", stripped, source)
        stripped_libraries = {}
        for soname, path in libraries.items():
            stripped_libraries[soname] = Path(folder) / soname
            _run("strip", "--strip-unneeded", "-o", stripped_libraries[soname], path)
        if (module := source.with_name(MODULE)).is_file():
            stripped_libraries[MODULE] = Path(folder) / MODULE
            _run("strip", "--strip-unneeded", "-o", stripped_libraries[MODULE], module)
        tag = "py3-none-manylinux_{}_{}_x86_64".format(*newest_glibc([stripped, *stripped_libraries.values()]))
        info = f"lockstep-{version()}.dist-info"
        files = [(f"lockstep/{p.relative_to(HERE / 'lockstep')}", p.read_bytes(), 0o644)
                 for p in sorted((HERE / "lockstep").rglob("*")) if p.is_file() and "__pycache__" not in p.parts]
        files += [(f"lockstep/{p.relative_to(ROOT)}", p.read_bytes(), 0o644) for p in sorted((ROOT / "models").glob("*/*")) if p.is_file()]
        files += [(f"lockstep/recipes/{p.name}", p.read_bytes(), 0o644) for p in sorted((ROOT / "recipes").glob("*.toml"))]
        files.append(("lockstep/bin/lockstep", stripped.read_bytes(), 0o755))
        files += [(f"lockstep/lib/{soname}", path.read_bytes(), 0o755) for soname, path in sorted(stripped_libraries.items())]
        files += [(f"{info}/licenses/libraries/{package}.txt", path.read_bytes(), 0o644) for package, path in sorted(copyrights_of(libraries.values()).items())]
        files.append((f"{info}/licenses/LICENSE", (ROOT / "LICENSE").read_bytes(), 0o644))
        files.append((f"{info}/METADATA", metadata().encode(), 0o644))
        files.append((f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: lockstep ({version()})\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(), 0o644))
        files.append((f"{info}/entry_points.txt", b"[console_scripts]\nlockstep = lockstep.__main__:main\n", 0o644))
        name = f"lockstep-{version()}-{tag}.whl"
        _write(out / name, files, f"{info}/RECORD")
    return name


def _write(path, files, record):
    rows = []
    partial = path.with_name(path.name + ".tmp")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as wheel:
        for name, data, mode in files:
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            rows.append(f"{name},sha256={digest},{len(data)}")
            _add(wheel, name, data, mode)
        _add(wheel, record, "".join(f"{row}\n" for row in [*rows, f"{record},,"]).encode(), 0o644)
    partial.replace(path)


def _add(wheel, name, data, mode):
    entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    entry.external_attr = (0o100000 | mode) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    wheel.writestr(entry, data, compresslevel=6)


# --- PEP 517 ---------------------------------------------------------------------------------------------------------
def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return _make(Path(wheel_directory), (config_settings or {}).get("binary"))


def build_sdist(sdist_directory, config_settings=None):
    if not (ROOT / ".git").exists():
        raise BuildError(f"{ROOT} is no git checkout, so nothing says which files are sources; `python -m build --wheel` needs none")
    stem = f"lockstep-{version()}"
    name = f"{stem}.tar.gz"
    names = _run("git", "-C", ROOT, "ls-files", "-z").rstrip("\0").split("\0")
    with tarfile.open(Path(sdist_directory) / name, "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for file in names:
            if (ROOT / file).exists():
                archive.add(ROOT / file, f"{stem}/{file}", recursive=False)
        entry = tarfile.TarInfo(f"{stem}/PKG-INFO")
        text = metadata().encode()
        entry.size = len(text)
        archive.addfile(entry, io.BytesIO(text))
    return name


def main():
    parser = argparse.ArgumentParser(prog="python/backend.py", description="Builds the wheel of the package lockstep.")
    parser.add_argument("--binary", help="the program (default: LOCKSTEP_BINARY, or build/lockstep, which ./setup makes)")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the folder of the wheel (default: dist)")
    options = parser.parse_args()
    try:
        print(options.out / _make(options.out, options.binary))
    except BuildError as error:
        print(f"wheel: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
