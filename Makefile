PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint compare clean

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

## compare: the figures of README.md: dpca beside a plain Dask Gram and scikit-learn, on the demo's data
compare: $(READY)
	$(BIN)/python workflows/compare/compare.py

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) dpca-demo results
