# One command set, the same locally and in CI.  `make demo` and `make test` set up .venv by themselves.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest

.PHONY: help setup demo check test test-all format clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

# Torch and torchvision first and by exact version: a resolver left alone picks another build of several GB.
$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch torchvision
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[preprocess,train,demo,test]'
	@touch $@

setup: $(VENV)/.ready  ## create .venv with everything but the benchmark peers

demo: setup  ## draw a corpus, preprocess it, train on two ranks, evaluate, report
	$(BIN)/python -m demo

check: setup  ## format, lint, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

test: check  ## check + unit, contract and integration tests
	$(PYTEST) -n 2 --dist worksteal -m 'not full'

test-all: check  ## whole matrices, kills, fuzzing, three demo seeds
	$(PYTEST) -n 2 --dist worksteal

format: setup  ## apply the formatter and the safe fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## remove what the demo and the tools left (not .venv)
	rm -rf .demo build .mypy_cache .ruff_cache .pytest_cache .hypothesis
