PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint bench memory sizes precision crashes faults clean

## demo: make 1 GB of data with a known answer, run on it, check the result
demo: $(READY)
	$(BIN)/dpca demo

## test: lint, types, import direction, tests
test: $(READY) lint
	$(BIN)/python -m pytest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

## bench: dpca beside its peers and the floor of this machine, case by case (minutes; `pip install -e .[peers]` for all peers)
bench: $(READY)
	$(BIN)/python -m workflows.benchmarks.bench configs/benchmarks/*.yaml

## memory: 16 GB in a budget of 2 GiB, with 1000 and with 4000 samples (needs 18 GB of disk)
memory: $(READY)
	$(BIN)/python -m workflows.memory.measure --samples 1000 --features 4000000
	$(BIN)/python -m workflows.memory.measure --samples 4000 --features 1000000

## sizes: time and memory against the number of samples and of features
sizes: $(READY)
	$(BIN)/python -m workflows.memory.measure --samples 500 1000 2000 4000 8000 --features 60000 --memory 6GiB
	$(BIN)/python -m workflows.memory.measure --samples 1000 --features 100000 400000 1600000

## faults: 200 runs that are disturbed at random moments, and what came of them (minutes)
faults: $(READY)
	$(BIN)/python -m tests.faults --runs 200 --seed 0

## crashes: power lost at every step of a run, in turn (minutes)
crashes: $(READY)
	DPCA_CRASH_STRIDE=1 $(BIN)/python -m pytest -q tests/test_crashes.py

## precision: error of the Gram matrix in single precision, against features and panel widths
precision: $(READY)
	$(BIN)/python workflows/precision/measure.py

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) dpca-demo dpca-memory dpca-bench results
