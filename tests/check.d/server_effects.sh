#!/bin/sh
# Every option of servers and of what asks them has an effect (tools/server_effects.py).
exec /usr/bin/python3 -B "$LOCKSTEP_ROOT/tests/check.d/tools/server_effects.py"
