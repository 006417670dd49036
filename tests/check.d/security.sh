#!/bin/sh
# What SECURITY.md names as shown by: each test and each file of it is in the tree, and every promise names one, with planted faults as controls.
exec /usr/bin/python3 -B "$LOCKSTEP_ROOT/tests/check.d/tools/security_page.py"
