#!/bin/sh
# The page's TypeScript, with all types checked, where a compiler is (Debian: node-typescript, more than 100 MB with node; the build itself
# needs esbuild alone, which checks no types; ./setup --oracle installs it). Beside it a control: a wrong type is found.
if ! command -v tsc >/dev/null 2>&1; then
  if [ -n "${LOCKSTEP_BROWSER_REQUIRED:-}" ]; then
    echo "FAIL page no tsc, and LOCKSTEP_BROWSER_REQUIRED is set (tools/browser-packages.txt)"
  else
    echo "SKIP page no tsc (./setup --oracle installs it)"
  fi
  exit 0
fi
if tsc -p "$LOCKSTEP_ROOT/web"; then echo "PASS page"; else echo "FAIL page see the compiler's lines above"; fi
cp -r "$LOCKSTEP_ROOT/web" "$LOCKSTEP_TMP/web"
echo 'export const wrong: number = "text";' >>"$LOCKSTEP_TMP/web/format.ts"
if tsc -p "$LOCKSTEP_TMP/web" >/dev/null; then echo "FAIL control a wrong type was not found"; else echo "PASS control"; fi
