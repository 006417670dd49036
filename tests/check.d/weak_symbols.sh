#!/bin/sh
# No inline function that other files share may be compiled for AVX-512 (tools/weak_symbols.py).
exec /usr/bin/python3 -B "$LOCKSTEP_ROOT/tests/check.d/tools/weak_symbols.py"
