#!/bin/sh
# Every commit that a document names is in the history, or said to be of an earlier one (tools/named_commits.py), with planted faults as controls.
exec /usr/bin/python3 -B "$LOCKSTEP_ROOT/tests/check.d/tools/commits_in_documents.py"
