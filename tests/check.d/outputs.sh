#!/bin/sh
# Nothing of anybody's is lost where commands write (tools/outputs.py).
exec /usr/bin/python3 -B "$LOCKSTEP_ROOT/tests/check.d/tools/outputs.py"
