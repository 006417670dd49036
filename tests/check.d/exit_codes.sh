#!/bin/sh
# Every exit code that docs/cli.md lists is provoked, and none that it does not list (tools/exit_codes.py).
exec /usr/bin/python3 -B "$LOCKSTEP_ROOT/tests/check.d/tools/exit_codes.py"
