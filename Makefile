# Everything runs in .venv, which the first target that needs it makes.
PYTHON ?= python3
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow lint bench clean

help: ## show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: .venv/sim ## compare seven rules on real digits; ends with a table, a picture and a report
	$(BIN)/fedhaw compare --out fedhaw-runs/demo

test: .venv/dev ## the whole test-suite, under ten minutes on two cores
	$(BIN)/pytest -n 2 --dist loadfile -m "not slow"

test-slow: .venv/dev ## reproductions and long soaks
	$(BIN)/pytest -m slow

lint: .venv/dev ## style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/bench ## the server's step beside its peers
	$(BIN)/python benchmarks/server_step.py

clean: ## remove the environment and caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# One stamp per set of extras: a changed pyproject.toml installs again, nothing else does.
.venv/sim .venv/dev .venv/bench: .venv/%: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[$*]"
	@touch $@
