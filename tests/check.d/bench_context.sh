#!/bin/sh
# What `lockstep bench context` says: parts that add up, growth with the text, bytes, errors (tools/bench_context.py).
exec /usr/bin/python3 -B "$LOCKSTEP_ROOT/tests/check.d/tools/bench_context.py"
