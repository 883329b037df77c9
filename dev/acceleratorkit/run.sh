#!/bin/sh
# Runs the kit that lies in this folder: ./run.sh --help. Needs Python 3.12 with torch and triton for CUDA, no network.
set -eu
python=${PYTHON:-python3}
command -v "$python" >/dev/null || { echo "$python is not there; name one with PYTHON=/path/to/python3.12" >&2; exit 2; }
exec "$python" "$(dirname "$0")/unpack.py" "$@"
