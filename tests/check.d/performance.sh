#!/bin/sh
# docs/performance.md is what bench/write_performance.py writes, and that runs (with a stand-in program: nothing is measured here).
exec /usr/bin/python3 -B "$LOCKSTEP_ROOT/tests/check.d/tools/performance.py"
