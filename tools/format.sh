#!/bin/sh
# Formats all C++ of the tree by .clang-format. Needs clang-format 14 (Debian: clang-format).
#   tools/format.sh               rewrites files
#   tools/format.sh --check       changes nothing, prints what would change; exit code 1 if anything would
#   tools/format.sh --check DIR   the same for another tree, by its own .clang-format
set -eu
check=
if [ "${1:-}" = --check ]; then check=yes; shift; fi
cd -- "${1:-$(dirname -- "$0")/..}"
files() { find src tests bench -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.inl' -o -name '*.inc' \) -print0 2>/dev/null || true; }
if [ -n "$check" ]; then
  files | xargs -0 -r -P 2 -n 40 clang-format --style=file --dry-run --Werror --ferror-limit=1
else
  files | xargs -0 -r -P 2 -n 40 clang-format --style=file -i
fi
