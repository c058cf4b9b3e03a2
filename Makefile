# Each target sets up what it needs: a virtual environment in .venv with the tested versions (constraints.txt).
PYTHON ?= python3.11
BIN := .venv/bin
DEMO ?= demo
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: demo quick test lint torture format docs bench clean

demo: .venv/installed
	$(BIN)/clozeworks run examples/quickstart/recipe.toml --output $(DEMO)

# The tests that take less than half a second each, on all cores: for every save. `make test` runs them all.
quick: .venv/test
	$(BIN)/pytest -m 'not slow' --numprocesses auto --maxprocesses 8

test: .venv/test
	$(BIN)/pytest

lint: .venv/test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright

format: .venv/test
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# A short form of `python -m tests.torture`, without the limits of memory and files, which depend on the machine.
torture: .venv/test
	$(BIN)/python -m tests.torture --share 0.005 --only mutations --only kills --only double_starts --only full_disks

# The site, into site/; warnings are errors (mkdocs.yml). The variables silence advertisements about a future MkDocs 2.
docs: .venv/test
	$(INSTALL) '.[docs]'
	NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true $(BIN)/mkdocs build --quiet

bench: .venv/test
	$(BIN)/python -m benchmarks

INSTALL = $(BIN)/pip install --quiet --constraint constraints.txt --editable

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) '.[data,train]'
	touch $@

# The checkout's folders are the packages clozeworks.pipeline, .model and .cli, and package/ is clozeworks itself;
# .venv/checkout links them under these names for the type checker.
.venv/test: .venv/installed
	$(INSTALL) '.[test]'
	mkdir -p .venv/checkout/clozeworks
	for path in package/*.py pipeline model cli; do ln -sfn ../../../$$path .venv/checkout/clozeworks/$${path##*/}; done
	touch $@

clean:
	rm -rf .venv $(DEMO) build site *.egg-info
