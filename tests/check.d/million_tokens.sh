#!/bin/sh
# A prompt of a million tokens over HTTP: taken, computed beside others, left; what is longer is refused (tools/million_tokens.py).
exec /usr/bin/python3 -B "$LOCKSTEP_ROOT/tests/check.d/tools/million_tokens.py"
