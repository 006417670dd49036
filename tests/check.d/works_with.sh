#!/bin/sh
# What docs/works-with.md says of runs that nobody repeats here: judged by what is asked now, and written from docs/works-with.json alone.
exec /usr/bin/python3 -B "$LOCKSTEP_ROOT/tests/check.d/tools/works_with.py"
