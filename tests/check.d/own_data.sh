#!/bin/sh
# Training data in the forms that users have, and the tokens that become of them (tools/own_data.py).
exec /usr/bin/python3 -B "$LOCKSTEP_ROOT/tests/check.d/tools/own_data.py"
