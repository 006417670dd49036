#!/bin/sh
# Kills and faults that tests ask for by the environment are not in the program that is released (tools/faults.py).
exec /usr/bin/python3 -B "$LOCKSTEP_ROOT/tests/check.d/tools/faults.py"
