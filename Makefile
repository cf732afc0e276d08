# penstock: two commands matter, `make demo` and `make test`; `make help` lists the rest.
SHELL := /bin/sh
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN_STAMP := $(VENV)/.runtime-installed
DEV_STAMP := $(VENV)/.dev-installed
COMPILE := $(BIN)/uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --no-annotate --no-header --quiet

.PHONY: help demo test unit check lint types docs reference soak bench golden tiers functions lock clean
.DEFAULT_GOAL := help

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

demo: $(RUN_STAMP) ## Install penstock and run the main job end to end on a small data set
	@$(BIN)/python examples/demo.py

test: $(DEV_STAMP) lint types docs ## Install everything the tests need and run the whole suite
	@$(BIN)/python tools/install_test_servers.py
	@$(BIN)/python tools/run_tests.py

unit: $(DEV_STAMP) ## The tests that need no JVM, in seconds
	@$(BIN)/python -m pytest tests/unit

check: $(DEV_STAMP) lint types unit ## Lint, types, unit tests and a smoke of the rest, in five minutes
	@$(BIN)/python -m pytest tests -m smoke

soak: $(DEV_STAMP) ## Long fault runs, with a fresh seed
	@PENSTOCK_TEST_SEED=$${PENSTOCK_TEST_SEED:-$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')} $(BIN)/python -m pytest tests -m soak -o timeout=7200

reference: $(DEV_STAMP) ## Write the reference of operators, functions and options anew
	@$(BIN)/python tools/write_reference.py
	@$(BIN)/python tools/write_options.py

lint: $(DEV_STAMP) ## Style
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(DEV_STAMP) ## Types, strictly
	@$(BIN)/mypy

docs: $(DEV_STAMP) ## Build the documentation into site/; a warning fails
	@log=$$(mktemp); NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict >$$log 2>&1; code=$$?; \
		test $$code -eq 0 || cat $$log >&2; rm -f $$log; exit $$code

bench: $(DEV_STAMP) ## The benchmarks, side by side with their peers (long)
	@$(BIN)/python benchmarks/cold_start.py
	@$(BIN)/python benchmarks/pipeline_start.py
	@for name in ticks flatness tpch load churn vectors streaming_throughput streaming_micro_batch streaming_window streaming_latency streaming_first_row pipelines scripts; do $(BIN)/python benchmarks/$$name.py || exit 1; done

golden: $(DEV_STAMP) ## Check that the recorded answers to the golden cases are still Spark's; RECORD=1 records them again
	@PYTHONPATH=tests $(BIN)/python -m golden.record $(if $(RECORD),,--check)

functions: $(DEV_STAMP) ## Compare every function of Spark in views with batch queries, and write the reference page of them
	@$(BIN)/python tools/sweep_functions.py

tiers: $(DEV_STAMP) ## Record the tiers of the views of the golden cases and of TPC-H again
	@PYTHONPATH=tests $(BIN)/python -m golden.record_tiers

lock: $(DEV_STAMP) ## Pin the requirements again, with hashes
	@$(COMPILE) --group dev -o requirements/dev.txt
	@$(COMPILE) -c requirements/dev.txt -o requirements/runtime.txt

clean: ## Remove what make built in this clone
	@rm -rf $(VENV) site build dist .mypy_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "penstock needs Python 3.11 or newer; found $$($(PYTHON) --version). Set PYTHON=python3.12, for example." >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) \
		|| { rm -rf $(VENV); echo "python3 cannot make virtual environments here. On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 2; }

$(RUN_STAMP): requirements/runtime.txt pyproject.toml | $(VENV)/bin/python
	@echo "installing penstock into $(VENV) (once, a few minutes)"
	@test -f $(DEV_STAMP) || $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/runtime.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

$(DEV_STAMP): requirements/dev.txt pyproject.toml | $(VENV)/bin/python
	@echo "installing what the tests need into $(VENV) (once, a few minutes)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@
