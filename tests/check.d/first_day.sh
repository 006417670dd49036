#!/bin/sh
# The first day of a new user: the commands of the README, of every --help and of docs/coming-from.md, in an empty folder (tools/first_day.py).
exec /usr/bin/python3 -B "$LOCKSTEP_ROOT/tests/check.d/tools/first_day.py"
