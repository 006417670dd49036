#!/bin/sh
# Every option, which is every key of a config file too, has an effect (tools/option_effects.py).
exec /usr/bin/python3 -B "$LOCKSTEP_ROOT/tests/check.d/tools/option_effects.py"
