#!/bin/sh
# The shipped model of many tasks: its folder, its template's calls, and that it solves what it is published to solve (tools/agent_model.py).
exec /usr/bin/python3 -B "$LOCKSTEP_ROOT/tests/check.d/tools/agent_model.py"
