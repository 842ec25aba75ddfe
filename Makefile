# Everything runs in .venv, which the first target that needs it makes.
PYTHON ?= python3
BIN := .venv/bin
# Three at a time on two cores: tests of real servers mostly wait.
PYTEST := $(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder -m "not slow"

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow coverage lint docs wheel bench clean

help: ## show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: .venv/sim ## compare seven rules on real digits; ends with a table, a picture and a report
	$(BIN)/fedhaw compare --out fedhaw-runs/demo

test: .venv/dev ## the whole test-suite, under ten minutes on two cores
	$(PYTEST)

test-slow: .venv/dev ## reproductions and long soaks
	$(BIN)/pytest -m slow

coverage: .venv/dev ## the whole test-suite, and which lines it ran, with a floor
	$(PYTEST) --cov

lint: .venv/dev ## style, types, the direction of imports and the workflows
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.citation-file-format CITATION.cff

docs: .venv/docs ## the site, strictly, into build/site
	$(BIN)/python docs/builder

wheel: .venv/dev ## wheel and sdist into dist, and a few tests of the wheel outside the checkout
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python .ci/test_wheel.py dist

bench: .venv/bench ## the server's step beside its peers
	$(BIN)/python benchmarks/server_step.py

clean: ## remove the environment, caches and what was built
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .cache build dist

# One stamp per set of extras: a changed pyproject.toml installs again, nothing else does.
.venv/sim .venv/dev .venv/docs .venv/bench: .venv/%: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[$*]"
	@touch $@
