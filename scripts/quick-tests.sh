#!/bin/sh
# The quick tests, by the first Python on PATH that has what they need. `[verify]` in school.toml runs this in
# working trees that have no .venv of their own; the school's own tools come last on PATH there.
set -eu
IFS=:
for directory in .venv/bin $PATH; do
    python="$directory/python"
    if [ -x "$python" ] && "$python" -c "import hypothesis, pydantic, pytest_timeout, structlog" 2>/dev/null; then
        exec "$python" -m pytest -q -p no:cacheprovider tests/supervisor tests/test_config.py tests/test_tasks.py \
            tests/test_guarded.py tests/test_souls.py tests/test_bookbag_moves.py
    fi
done
echo "no Python on PATH has this project's test dependencies; run: make setup" >&2
exit 1
