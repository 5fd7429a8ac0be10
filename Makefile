# make demo   compile the shipped example to an engine and show its report
# make test   install everything, then lint, types and tests
# make check  the same without the installation and the slow tests
# make clean  remove the environment and what the tools left behind
#
# The environment is .venv. It is made once for each content of pyproject.toml; after that nothing
# here needs a network.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.PHONY: demo test check lint types tests clean

VENV := .venv
BIN := $(VENV)/bin
KEY := $(shell cksum < pyproject.toml | cut -d ' ' -f 1)
BASE := $(VENV)/.base-$(KEY)
ALL := $(VENV)/.all-$(KEY)

SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14; do \
	"$$p" -c '$(SUPPORTED)' 2>/dev/null && echo "$$p" && break; done)

demo: $(BASE)
	$(BIN)/optcc compile examples/digits/digits.onnx --precision int8 \
		--eval examples/digits/eval.npz -o digits.optcc

test: $(ALL) lint types tests

check: lint types
	$(BIN)/python -m pytest -q -x tests --ignore=tests/e2e

lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types:
	$(BIN)/mypy

tests:
	$(BIN)/python -m pytest -q -n auto --dist loadfile

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 to 3.14 found" >&2; \
		echo "hint: make PYTHON=/path/to/python3" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(BASE): | $(BIN)/python
	$(BIN)/python -m pip install --quiet -e .
	touch $@

$(ALL): | $(BIN)/python
	$(BIN)/python tools/cpu_torch.py
	$(BIN)/python -m pip install --quiet -e '.[dev,all]'
	touch $@ $(BASE)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis *.optcc *.failed
