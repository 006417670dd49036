#!/bin/sh
# A family with experts learns: 300 steps of its lesson; recipes of reinforcement learning, preferences and distillation do (tools/lessons.py).
exec /usr/bin/python3 -B "$LOCKSTEP_ROOT/tests/check.d/tools/lessons.py"
