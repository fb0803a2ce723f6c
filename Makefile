# `make demo` and `make test` set everything up by themselves; a second call is quick.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The CPU build of torch, where this machine's package index offers it; elsewhere whatever the index gives.
TORCH ?= torch==2.13.0
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: demo test lint types clean

demo: $(VENV)/.report
	$(BIN)/remanence run demo --runs runs

test: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n auto

lint: $(VENV)/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.test
	$(BIN)/mypy

$(VENV)/.core: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing (about a minute the first time) ..."
	@$(BIN)/python -c 'import torch' 2>/dev/null || $(PIP) install "$(TORCH)" || $(PIP) install torch
	@$(PIP) install --editable .
	@touch $@

$(VENV)/.report: $(VENV)/.core
	@$(PIP) install --editable ".[report]"
	@touch $@

$(VENV)/.test: $(VENV)/.report
	@$(PIP) install --editable ".[report,tables,images,test]"
	@touch $@

clean:
	rm -rf $(VENV) runs
