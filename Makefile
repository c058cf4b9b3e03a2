# Each target does its own set-up: a virtual environment in .venv with the tested versions (constraints.txt).
PYTHON ?= python3.11
BIN := .venv/bin
DEMO ?= demo
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: demo test lint format bench clean

demo: .venv/installed
	$(BIN)/clozeworks run examples/quickstart/recipe.toml --output $(DEMO)

test: .venv/installed
	$(BIN)/pytest

lint: .venv/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright

format: .venv/installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: .venv/installed
	$(BIN)/python -m benchmarks

# The checkout's folders are the packages clozeworks.pipeline, .model and .cli: .venv/checkout shows them to the type
# checker under these names.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[test]'
	mkdir -p .venv/checkout/clozeworks
	for package in pipeline model cli; do ln -sfn ../../../$$package .venv/checkout/clozeworks/$$package; done
	touch $@

clean:
	rm -rf .venv $(DEMO) build *.egg-info
