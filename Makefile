# Each target sets up what it needs: a virtual environment in .venv with the tested versions (constraints.txt). It takes the
# first of the tested versions of Python that is there; `make PYTHON=...` takes another.
#
# Times are those of a machine with two cores (AMD EPYC), after the download.
SHELL := bash
# Hundreds of processes would each compile their modules again.
unexport PYTHONDONTWRITEBYTECODE
BIN := .venv/bin
DEMO ?= demo

# $(call timed,WHAT,HOW LONG) COMMAND says what begins, runs the command, and says how long it took.
timed = @echo "==> $(1): about $(2) on two cores"; TIMEFORMAT="==> $(1): took %lR"; time

# One process more than cores, because many tests wait for processes of their own; at most four, because of memory.
TEST := $(BIN)/pytest --numprocesses $$(($$(nproc) + 1)) --maxprocesses 4

.PHONY: demo quick test test-avx2 test-cluster test-clusters test-store lint torture format docs dist versions bench clean

demo: .venv/installed
	$(call timed,demo,3 to 4 minutes) $(BIN)/clozeworks run examples/quickstart/recipe.toml --output $(DEMO)

# A file of each room, without what is slow: for every save. `make test` runs all.
QUICK := $(addprefix tests/,promises/test_imports.py cli/test_messages.py pipeline/test_ragged.py pipeline/text/test_formulas.py \
	pipeline/text/test_gutenberg.py pipeline/sources/test_row_documents.py pipeline/documents/test_duplicates.py \
	pipeline/vocabulary/test_wordpiece.py pipeline/instances/test_pairs.py pipeline/auditing/test_audit.py \
	pipeline/storage/test_state.py pipeline/execution/test_job.py model/test_bert.py model/pretraining/test_sequence.py \
	model/training/test_update.py model/tasks/test_classify.py)

quick: .venv/test
	$(call timed,quick tests,30 seconds) $(BIN)/pytest -m 'not slow' $(QUICK)

test: .venv/test
	$(call timed,all tests,6 minutes) $(TEST)

# What computes once more, as on a processor without AVX-512, AMX and bf16; without the tests of several processes, kills,
# mistakes and compiled graphs, which are the same on every processor.
test-avx2: .venv/test
	ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 $(TEST) \
		-k 'not processes and not killed and not ranks and not refused and not graph and not traced' \
		tests/model/training/test_optim.py tests/model/training/test_update.py tests/model/test_bert.py tests/model/test_packed.py \
		tests/model/pretraining/test_pretrain.py tests/model/finetuning/test_run.py

# The quickest cluster, of Dask, with one worker's host killed: on Linux, as root; elsewhere it says why it is skipped.
test-cluster: .venv/test
	$(call timed,a cluster,1 minute) PATH="$(abspath $(BIN)):$$PATH" timeout --foreground --kill-after 60 600 \
		$(BIN)/python -u examples/dask/try_here.py --shared-folder --only worker

# The data stages on clusters of several hosts: on Linux, as root. TRIALS=--faults also kills hosts and servers
# (14 minutes), TRIALS=--all in every way, for hours.
test-clusters: .venv/test
	for engine in dask flink spark slurm; do PATH="$(abspath $(BIN)):$$PATH" \
		$(BIN)/python -u examples/$$engine/try_here.py $(TRIALS) || failed=1; done; test -z "$$failed"

# All commands on an S3 server, with faults: on Linux, as root.
test-store: .venv/test
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -u examples/clusters/try_store.py

lint: .venv/test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright

format: .venv/test
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# A short form of `python -m tests.torture`, without the limits of memory and files, which depend on the machine.
torture: .venv/test
	$(BIN)/python -m tests.torture --share 0.005 --only mutations --only kills --only full_disks

# The site, into site/; warnings are errors (mkdocs.yml). The variables silence advertisements about a future MkDocs 2.
docs: .venv/test
	./install.sh '.[docs]'
	NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true $(BIN)/mkdocs build --quiet

# What a release holds, into dist/, tried away from the checkout with the libraries of .venv; WHOLE=--whole installs all of
# them anew.
dist: .venv/test
	rm -rf build dist
	$(BIN)/python -m build --no-isolation --outdir dist . >/dev/null
	$(call timed,a trial of the wheel,1 minute) tests/try_dist.sh dist $(WHOLE)

# constraints.txt from pyproject.toml, with hashes: versions stay where they can; UPGRADE=--upgrade takes the newest. It needs uv.
versions:
	UV_CUSTOM_COMPILE_COMMAND='make versions' uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-annotate --extra test --extra docs $(UPGRADE) --output-file constraints.txt pyproject.toml

bench: .venv/test
	$(BIN)/python -m benchmarks

.venv/installed: pyproject.toml constraints.txt
	$(call timed,installation,2 minutes) ./install.sh '.[data,train]'
	@touch $@

# The checkout's folders are the packages clozeworks.pipeline, .model and .cli, and package/ is clozeworks itself;
# .venv/checkout links them under these names for the type checker.
.venv/test: .venv/installed
	$(call timed,installation of the tests,1 minute) ./install.sh '.[test]'
	@mkdir -p .venv/checkout/clozeworks
	@for path in package/*.py pipeline model cli; do ln -sfn ../../../$$path .venv/checkout/clozeworks/$${path##*/}; done
	@touch $@

clean:
	rm -rf .venv $(DEMO) build dist site *.egg-info
