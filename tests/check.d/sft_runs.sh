#!/bin/sh
# Runs over one's own data: what is taken where nothing is said, adapters, evaluation, what --resume allows (tools/sft_runs.py).
exec /usr/bin/python3 -B "$LOCKSTEP_ROOT/tests/check.d/tools/sft_runs.py"
