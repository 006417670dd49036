#!/bin/sh
# The first training steps under every instruction set, thread count and micro-batch: one hash (tools/determinism.py).
exec /usr/bin/python3 -B "$LOCKSTEP_ROOT/tests/check.d/tools/determinism.py"
