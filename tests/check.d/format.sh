#!/bin/sh
# All C++ stands as .clang-format says (tools/format.sh writes it so), where clang-format is (Debian: clang-format; ./setup --oracle installs
# it). Beside it a control: a line out of shape is found.
if ! command -v clang-format >/dev/null 2>&1; then
  if [ -n "${LOCKSTEP_BROWSER_REQUIRED:-}" ]; then
    echo "FAIL format no clang-format, and LOCKSTEP_BROWSER_REQUIRED is set (tools/browser-packages.txt)"
  else
    echo "SKIP format no clang-format (./setup --oracle installs it)"
  fi
  exit 0
fi
if "$LOCKSTEP_ROOT/tools/format.sh" --check; then echo "PASS format"; else echo "FAIL format tools/format.sh writes it as it should stand"; fi
mkdir -p "$LOCKSTEP_TMP/format/src"
cp "$LOCKSTEP_ROOT/.clang-format" "$LOCKSTEP_TMP/format/"
printf 'int right(int x) { return x; }\n' >"$LOCKSTEP_TMP/format/src/a.cpp"
if "$LOCKSTEP_ROOT/tools/format.sh" --check "$LOCKSTEP_TMP/format"; then echo "PASS control-right"; else echo "FAIL control-right what stands right was refused"; fi
printf 'int  wrong( int x ){return x ;}\n' >"$LOCKSTEP_TMP/format/src/a.cpp"
if "$LOCKSTEP_ROOT/tools/format.sh" --check "$LOCKSTEP_TMP/format" 2>/dev/null; then echo "FAIL control a line out of shape was not found"; else echo "PASS control"; fi
