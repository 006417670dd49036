#!/bin/sh
# The program as a user meets it: help, refusals, exit codes, JSON, input that lies (tools/cli.py).
exec /usr/bin/python3 -B "$LOCKSTEP_ROOT/tests/check.d/tools/cli.py"
