#!/bin/sh
# The limits of the tree: methods a class, files that see the kernel table, files on the way of a request, lines of families and of headers,
# columns of comments (tools/house_numbers.py). Beside it, as a control, a planted excess of each.
/usr/bin/python3 -B "$LOCKSTEP_ROOT/tools/house_numbers.py" --check || true
/usr/bin/python3 -B "$LOCKSTEP_ROOT/tools/house_numbers.py" --self-test || true
