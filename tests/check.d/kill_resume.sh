#!/bin/sh
# Training runs that are killed, interrupted, refused the disk (tools/kill_resume.py).
exec /usr/bin/python3 -B "$LOCKSTEP_ROOT/tests/check.d/tools/kill_resume.py"
