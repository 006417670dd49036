#!/bin/sh
# The line of use in a header's first comment compiles as it stands.
exec /usr/bin/python3 -B "$LOCKSTEP_ROOT/tests/check.d/tools/usage_lines.py"
