#!/bin/sh
# Three teachers, each of one task, become one model that does all three (tools/merged_teachers.py).
exec /usr/bin/python3 -B "$LOCKSTEP_ROOT/tests/check.d/tools/merged_teachers.py"
