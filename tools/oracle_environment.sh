#!/bin/sh
# Makes .oracle, the Python environment of the tests by pytest (against torch and transformers, with the clients openai, tinker and
# fireworks-ai), from PyPI: ./setup --oracle, also in .ci/run. Made anew when the requirements change; a second without.
set -eu
cd -- "$(dirname -- "$0")/.."
requirements=tools/oracle-requirements.txt alone=tools/oracle-requirements-alone.txt
stamp=.oracle/requirements.sha256
wanted=$(cat "$requirements" "$alone" | sha256sum | cut -d' ' -f1)
versions='import pytest, torch, transformers
print("torch", torch.__version__, "transformers", transformers.__version__)'
if [ "$(cat "$stamp" 2>/dev/null || true)" = "$wanted" ] && .oracle/bin/python -c "$versions"; then exit 0; fi
rm -rf .oracle
# torch first, so that the second install cannot choose another one.
torch=$(grep -E '^torch==' "$requirements") || {
  echo "$requirements names no torch==VERSION" >&2
  exit 1
}
/usr/bin/python3 -m venv .oracle
# Of 350 MB of sources in Python the tests import a part: it is compiled when it is first imported, while the compiler of C++ has these processors.
pip() { .oracle/bin/python -m pip install --no-compile --no-input --disable-pip-version-check --progress-bar off "$@"; }
pip "$torch"
pip -r "$requirements"
pip --no-deps -r "$alone"
.oracle/bin/python -c "$versions"
echo "$wanted" >"$stamp"
