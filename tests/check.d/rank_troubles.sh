#!/bin/sh
# Runs over processes that lose one of them, or its disk, at random moments, and go on elsewhere to the same bits (tools/rank_troubles.py).
exec /usr/bin/python3 -B "$LOCKSTEP_ROOT/tests/check.d/tools/rank_troubles.py"
