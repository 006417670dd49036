#!/bin/sh
# `lockstep launch`: processes and hosts that are lost, stopped and taken back, where Open MPI is; and the batch scripts (tools/launch.py).
exec /usr/bin/python3 -B "$LOCKSTEP_ROOT/tests/check.d/tools/launch.py"
