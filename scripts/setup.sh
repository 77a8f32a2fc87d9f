#!/bin/sh
# Make .venv hold exactly what requirements.lock names (hash-checked). A complete .venv is left alone and needs no
# network. Says what is missing, and stops, where the machine lacks Python 3.11, its venv module, or a package index.
set -eu
cd "$(dirname "$0")/.."

python=${PYTHON:-}
if [ -z "$python" ]; then
    for name in python3 python3.14 python3.13 python3.12 python3.11 python; do
        if command -v "$name" >/dev/null 2>&1 &&
            "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            python=$name
            break
        fi
    done
fi
if [ -z "$python" ]; then
    echo "setup: no Python 3.11 or newer is on the PATH; install one, or name it: make PYTHON=/path/to/python3 ..." >&2
    exit 3
fi
if ! command -v git >/dev/null 2>&1; then
    echo "setup: git is not on the PATH" >&2
    exit 3
fi

want=$("$python" -c '
import hashlib, pathlib, sys
print(sys.version.split()[0], hashlib.sha256(pathlib.Path("requirements.lock").read_bytes()).hexdigest())')
if [ -x .venv/bin/python ] && [ "$(cat .venv/complete 2>/dev/null || true)" = "$want" ]; then
    exit 0
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "setup: making .venv with $("$python" --version)" >&2
rm -f .venv/complete
if command -v uv >/dev/null 2>&1; then
    install="uv pip install --quiet --python .venv/bin/python --require-hashes -r requirements.lock"
    uv venv --quiet --clear --python "$(command -v "$python")" .venv >"$log" 2>&1 || {
        cat "$log" >&2
        exit 3
    }
else
    if ! "$python" -m venv --clear .venv >"$log" 2>&1; then
        cat "$log" >&2
        echo "setup: $python has no working venv module (on Debian and Ubuntu: apt install python3-venv)" >&2
        exit 3
    fi
    install=".venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock"
fi
if ! $install >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "setup: could not install requirements.lock; is a package index reachable (pip config, PIP_INDEX_URL)?" >&2
    exit 3
fi
echo "$want" >.venv/complete
