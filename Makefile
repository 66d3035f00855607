# The two commands of the README: `make run` and `make test`. Each sets up .venv by itself.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DOCS   := $(VENV)/.docs

SEED  ?= 0
CASES ?= 100000

.PHONY: run test test-cpus fuzz lint bench dist docs clean

run: $(STAMP)
	$(BIN)/sobgnn fit digits --labels 0.1

# One worker per core, each with one thread: many small tests do not share a core well.
test: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist loadfile

# The suite as other processors would run it, and the kernels by every compiler there is. `.ci/cpus --help` says more.
test-cpus: $(STAMP)
	BIN=$(BIN) .ci/cpus

# CASES hostile files, saved models and estimator inputs each, from SEED on: some hours. What fails is printed, shrunk.
fuzz: $(STAMP)
	FUZZ=$(CASES) OMP_NUM_THREADS=1 POLARS_MAX_THREADS=1 $(BIN)/pytest tests/fuzz --hypothesis-seed=$(SEED) --timeout=0

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP)
	$(BIN)/python -m benchmarks

# The site, in site/: open site/index.html. Nothing in it is loaded from elsewhere.
docs: $(DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --clean --quiet

$(DOCS): $(STAMP)
	$(BIN)/python -m pip install -qq --constraint constraints.txt --editable '.[docs]'
	touch $@

# An sdist and, built from it, a wheel; the wheel is installed in a fresh environment and tried there.
dist: $(STAMP)
	BIN=$(BIN) .ci/dist

# Reinstalled when the dependencies or the compiled kernel change; otherwise a second call does nothing here.
$(STAMP): pyproject.toml constraints.txt setup.py $(wildcard src/sobgnn/propagation/*.cpp src/sobgnn/propagation/*.h)
	@echo "Setting up $(VENV), which takes a few minutes the first time."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -qq --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist site src/*.egg-info src/sobgnn/propagation/*.so
