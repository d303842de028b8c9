#!/bin/sh
# Prints the newest Python from 3.11 on that can make a virtual environment; PYTHON names one outright.
# Says on standard error what to install where there is none.
lacking=
for candidate in ${PYTHON:-python3.13 python3.12 python3.11 python3}; do
    # Run, not only looked up: a version manager's stand-in is on PATH even where its Python is not.
    "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
    if "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
        echo "$candidate"
        exit 0
    fi
    lacking=${lacking:-$candidate}
done
if [ -n "$lacking" ]; then
    echo "$lacking cannot make a virtual environment: its venv module is missing." >&2
    echo "Debian, Ubuntu: sudo apt-get install ${lacking##*/}-venv" >&2
else
    echo "No Python 3.11 or newer found${PYTHON:+ as $PYTHON}." >&2
    echo "Debian 12, Ubuntu 24.04 and newer: sudo apt-get install python3 python3-venv" >&2
    echo "Elsewhere install one and name it: make PYTHON=/path/to/python3.11 ..." >&2
fi
exit 1
