#!/bin/sh
# Ranks as processes over Open MPI, where it is: the bits of threads, and who dies is named (tools/mpi.py).
exec /usr/bin/python3 -B "$LOCKSTEP_ROOT/tests/check.d/tools/mpi.py"
