#!/bin/sh
# A GGUF file is a model for every command, and a broken one is one error.
exec /usr/bin/python3 -B "$LOCKSTEP_ROOT/tests/check.d/tools/gguf.py"
