#!/bin/sh
# `lockstep demo --quick` meets its published hash, on the widest instruction set with all processors and on AVX2 with one thread.
set -u
cd -- "$LOCKSTEP_ROOT"
for device in "" "--isa avx2 --threads 1"; do
  name="demo/quick${device:+-avx2-one-thread}"
  # shellcheck disable=SC2086
  if "$LOCKSTEP_BINARY" demo --quick --runs "$LOCKSTEP_TMP/runs" $device >"$LOCKSTEP_TMP/demo.log" 2>&1 &&
    [ "$(tail -n 1 "$LOCKSTEP_TMP/demo.log")" = "identical to the published run" ]; then
    echo "PASS $name"
  else
    tail -n 20 "$LOCKSTEP_TMP/demo.log"
    echo "FAIL $name"
  fi
done
