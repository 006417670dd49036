#!/bin/sh
# A step of one long sequence has the same bits over threads, recomputed activations, instruction sets and pieces (tools/long_gradients.py).
exec /usr/bin/python3 -B "$LOCKSTEP_ROOT/tests/check.d/tools/long_gradients.py"
