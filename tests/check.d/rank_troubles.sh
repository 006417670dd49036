#!/bin/sh
# Runs over processes that lose one of them, its disk or its memory at random moments, and go on elsewhere to the same bits (tools/rank_troubles.py).
exec /usr/bin/python3 -B "$LOCKSTEP_ROOT/tests/check.d/tools/rank_troubles.py"
