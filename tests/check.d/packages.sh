#!/bin/sh
# Every package that is installed is used (tools/check_packages.py), and the check sees one that is not.
/usr/bin/python3 -B "$LOCKSTEP_ROOT/tools/check_packages.py"
/usr/bin/python3 -B "$LOCKSTEP_ROOT/tools/check_packages.py" --self-test
