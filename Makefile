# `make run` shows the main job on a small example repository, `make test` runs the suite, `make test-clients` the tests
# with real agents. All set up .venv first if it is not there; nothing else is needed but Python 3.11+, git and make.

PY := .venv/bin/python
WORKERS ?= auto

.PHONY: run test test-clients setup lint format benchmarks lock

run: setup
	@$(PY) scripts/example.py

test: setup
	@echo "tests/clients are left out: make test-clients installs real agents (1.8 GB) and drives them"
	@$(PY) -m pytest -n $(WORKERS) --dist worksteal -m "not clients"

# Real coding agents, pinned, from the public registries, against a fake endpoint on this machine.
test-clients: setup
	@PYTHON=$(PY) sh scripts/clients.sh
	@$(PY) -m pytest -n $(WORKERS) --dist worksteal --durations=10 -m clients tests/clients

setup:
	@sh scripts/setup.sh

lint: setup
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy

format: setup
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

# Renew requirements.lock from pyproject.toml (needs uv); a test holds the two against each other.
lock:
	uv pip compile --universal --generate-hashes --no-header --no-annotate --no-emit-index-url \
		--no-emit-find-links --python-version 3.11 --group dev --all-extras pyproject.toml -o requirements.lock
