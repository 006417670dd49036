#!/bin/sh
# A server and the demo with ranks as processes over Open MPI, where it is: the answers and the hash of one process (tools/mpi_serve.py).
exec /usr/bin/python3 -B "$LOCKSTEP_ROOT/tests/check.d/tools/mpi_serve.py"
