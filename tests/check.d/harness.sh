#!/bin/sh
# What ./check itself does (tools/harness_of_checks.py).
exec /usr/bin/python3 -B "$LOCKSTEP_ROOT/tests/check.d/tools/harness_of_checks.py"
