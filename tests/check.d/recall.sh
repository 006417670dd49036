#!/bin/sh
# The environment recall from its recipe to an answer: tokenizer, training by references and rewards, evaluation (tools/recall.py).
exec /usr/bin/python3 -B "$LOCKSTEP_ROOT/tests/check.d/tools/recall.py"
