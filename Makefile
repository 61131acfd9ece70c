# Two commands: `make run` and `make test`. Both set up what they need in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# How many examples each property is tried with: quick or thorough.
PROFILE ?= quick

.PHONY: run test check coverage lint load bench browser codex clean

run: $(VENV)/.run
	@$(BIN)/turnlane serve

test: check
	$(BIN)/pytest -q -n auto --hypothesis-profile=$(PROFILE)

coverage: $(VENV)/.dev
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -q
	@$(BIN)/coverage combine -q
	@$(BIN)/coverage report

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# Takes a second a file, so it is not part of `make test`; CI runs it.
lint: $(VENV)/.dev
	$(BIN)/flake8 --select=ASYNC $$(git ls-files lifecycle proxy harness | grep '\.py$$')

load: $(VENV)/.dev
	$(BIN)/pytest -q -m load -o faulthandler_timeout=0

# CPU a turn as a ratio to a floor and to the peers in ./peers: docs/performance.md. BENCH="--help".
bench: $(VENV)/.dev
	$(BIN)/python -m harness.bench $(BENCH)

browser: $(VENV)/.dev
	$(BIN)/pytest -q -m browser tests/e2e/test_browser.py

codex: $(VENV)/.dev
	TURNLANE_CODEX="$${TURNLANE_CODEX:-$$(bash .ci/codex-install | tail -n 1)}" \
		$(BIN)/pytest -q -m codex -o faulthandler_timeout=0 tests/codex

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml setup.py | $(VENV)/bin/python
	@$(BIN)/pip install -q --disable-pip-version-check -e .
	@touch $@

$(VENV)/.dev: pyproject.toml setup.py | $(VENV)/bin/python
	@$(BIN)/pip install -q --disable-pip-version-check -e '.[dev]'
	@touch $@ $(VENV)/.run

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage*
