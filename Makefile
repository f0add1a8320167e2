# Two commands do all set-up on a fresh clone: `make test` and `make demo`.
# Nothing is needed beforehand but make and Python 3.11 or newer.

SHELL := /bin/sh
.DEFAULT_GOAL := help

VENV := .venv
PY := $(VENV)/bin/python
# A file of our own, because pip doesn't touch the folder on a second install.
STAMP := $(VENV)/.installed
MODEL_STAMP := $(VENV)/.installed-test-model
ARGS ?=
# What `make simulate` plays: so many seeds, from this one on.
SEEDS ?= 200
START ?= 1
# Whose model the demo asks: openai or anthropic. Nothing: a stand-in that works offline.
LLM ?=
# Another interpreter: make venv PYTHON=/path/to/python. One that is named is used, or refused; never replaced by another.
PYTHON ?=
CANDIDATES := $(if $(PYTHON),$(PYTHON),python3.11 python3 python3.12 python3.13 python3.14 python)

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: venv
venv: named-python $(STAMP) ## Create .venv and install everything into it, as requirements.lock pins it

# Asked before make looks whether .venv is there already: a named interpreter must not be passed over for that.
.PHONY: named-python
named-python:
	@if [ -n "$(PYTHON)" ] && ! "$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	  echo "PYTHON=$(PYTHON) is no Python 3.11 or newer: $$("$(PYTHON)" --version 2>&1 | tail -n 1)" >&2; exit 1; fi

# The build backend is constrained as well: by the first variable up to pip 25.2, by the second after it.
# Each candidate is run, not only looked up: a version manager's shim exists without its Python.
$(STAMP): pyproject.toml requirements.lock
	@if ! $(PY) -m pip --version >/dev/null 2>&1; then \
	  found=; \
	  for python in $(CANDIDATES); do \
	    if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	      found=$$python; break; fi; \
	  done; \
	  if [ -z "$$found" ]; then \
	    echo "stepgraph needs Python 3.11 or newer, and none of these is one that runs:" >&2; \
	    for python in $(CANDIDATES); do \
	      echo "  $$python: $$(command -v "$$python" >/dev/null && "$$python" --version 2>&1 | tail -n 1 || echo not found)" >&2; \
	    done; \
	    echo "Install it, or name one: make venv PYTHON=/path/to/python3.11" >&2; exit 1; fi; \
	  echo "==> creating $(VENV) with $$("$$found" --version)"; \
	  rm -rf $(VENV); \
	  "$$found" -m venv $(VENV) || { \
	    echo "Could not create $(VENV): Debian and Ubuntu need the package python3-venv." >&2; exit 1; }; \
	fi
	@echo "==> installing what requirements.lock pins (about a minute the first time)"
	@PIP_CONSTRAINT=requirements.lock PIP_BUILD_CONSTRAINT=requirements.lock \
	  PIP_DISABLE_PIP_VERSION_CHECK=1 $(PY) -m pip install --quiet -e '.[server,prometheus,fast,anthropic,openai,dev]'
	@touch $@
	@echo "==> ready"

.PHONY: test
test: $(STAMP) ## Run the tests; ARGS="-k joins -x" is passed to pytest
	@$(PY) -m pytest $(ARGS)

# The model server and its model are for this target alone: everything else does without their 400 MB.
$(MODEL_STAMP): $(STAMP)
	@echo "==> installing a model server and a small model (400 MB, a minute the first time)"
	@PIP_CONSTRAINT=requirements.lock PIP_BUILD_CONSTRAINT=requirements.lock \
	  PIP_DISABLE_PIP_VERSION_CHECK=1 $(PY) -m pip install --quiet -e '.[test-model]'
	@$(PY) -c 'from tests.support.model_server import model_file; model_file()'
	@touch $@

.PHONY: test-model
test-model: $(MODEL_STAMP) ## Run the tests against a real model server; it and its model take 400 MB
	@$(PY) -m pytest -m model tests/model $(ARGS)

.PHONY: check
check: $(STAMP) ## Run every check that CI runs; ARGS=--fast leaves the tests out
	@$(PY) -m tests.check $(ARGS)

.PHONY: demo
demo: $(STAMP) ## Start a server and executors, and run graphs through them; LLM=openai asks a real model
	@$(PY) -m examples.demo $(if $(LLM),--llm $(LLM)) $(ARGS)

.PHONY: bench
bench: $(STAMP) ## Run the benchmark, side by side with other systems
	@$(PY) -m benchmarks.react $(ARGS)

.PHONY: simulate
simulate: $(STAMP) ## Play the whole server in a world where all goes wrong; SEEDS=300 START=12345 for more
	@PYTHONPATH=protos:server:client:. $(PY) -m tests.simulation --seeds $(SEEDS) --start $(START) $(ARGS)

.PHONY: soak
soak: $(STAMP) ## Run the long tests that `make test` leaves out
	@$(PY) -m pytest -m soak --timeout 0 $(ARGS)

.PHONY: generate
generate: $(STAMP) ## Regenerate the protobuf code beside the .proto files, and docs/reference
	@$(PY) scripts/generate.py
	@$(PY) scripts/reference.py
	@$(PY) scripts/command_line.py

.PHONY: reference
reference: $(STAMP) ## Write docs/reference from the .proto files, the settings and the commands
	@$(PY) scripts/reference.py
	@$(PY) scripts/command_line.py

.PHONY: format
format: $(STAMP) ## Format Python and proto files in place
	@$(VENV)/bin/ruff check --fix --quiet . || true
	@$(VENV)/bin/ruff format .
	@$(VENV)/bin/buf format --write

.PHONY: lock
lock: $(STAMP) ## Pin the newest versions that pyproject.toml allows
	@$(VENV)/bin/uv pip compile pyproject.toml --quiet --upgrade --all-extras --universal \
	  --python-version 3.11 --no-emit-index-url --custom-compile-command "make lock" -o requirements.lock

.PHONY: clean
clean: ## Remove .venv and everything that tools left behind
	@rm -rf $(VENV) build dist .coverage .coverage.* htmlcov .hypothesis \
	  .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
