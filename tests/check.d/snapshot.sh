#!/bin/sh
# Weights through a store and back, by every kind of `lockstep snapshot` (tools/snapshot.py).
exec /usr/bin/python3 -B "$LOCKSTEP_ROOT/tests/check.d/tools/snapshot.py"
