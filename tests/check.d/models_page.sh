#!/bin/sh
# The lists of docs/models.md are what the program says of its families and of file formats (tools/models_page.py). Beside it controls: a key that is
# left out is found, and a profile of a format.
set -u
cd "$LOCKSTEP_ROOT" || exit 1
if /usr/bin/python3 -B tools/models_page.py --check; then echo "PASS page"; else echo "FAIL page see the line above"; fi
mkdir -p "$LOCKSTEP_TMP/tools" "$LOCKSTEP_TMP/docs"
cp tools/models_page.py "$LOCKSTEP_TMP/tools/"
sed 's/`decoder_sparse_step`, //' docs/models.md >"$LOCKSTEP_TMP/docs/models.md"
if /usr/bin/python3 -B "$LOCKSTEP_TMP/tools/models_page.py" --check >/dev/null 2>&1; then echo "FAIL control a missing key was not found"; else echo "PASS control"; fi
sed '/^| INT4, groups of 32 | bf16 numbers | experts alone /s/, `cpu-int4-base`//' docs/models.md >"$LOCKSTEP_TMP/docs/models.md"
if cmp -s docs/models.md "$LOCKSTEP_TMP/docs/models.md" || /usr/bin/python3 -B "$LOCKSTEP_TMP/tools/models_page.py" --check >/dev/null 2>&1; then
  echo "FAIL formats-control a profile that is missing from a format's row was not found"
else
  echo "PASS formats-control"
fi
# The example of docs/adding-a-model.md is, word for word, code that tests/system compiles.
if /usr/bin/python3 -B -c "
import re, sys
(example,) = [code for code in re.findall(r'\`\`\`cpp\n(.*?)\`\`\`', open('docs/adding-a-model.md').read(), re.S) if 'make_' in code]
sys.exit(example not in open('tests/system/toy_family_test.cpp').read())"; then echo "PASS example"; else echo "FAIL example it is not in tests/system/toy_family_test.cpp"; fi
