# The two commands of the README: `make run` and `make test`. Each sets up .venv by itself.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: run test test-cpus lint bench dist clean

run: $(STAMP)
	$(BIN)/sobgnn fit digits --labels 0.1

# One worker per core, each with one thread: many small tests do not share a core well.
test: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist loadfile

# The suite as other processors would run it, and the kernels by every compiler there is. `.ci/cpus --help` says more.
test-cpus: $(STAMP)
	BIN=$(BIN) .ci/cpus

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP)
	$(BIN)/python -m benchmarks

# An sdist and, built from it, a wheel; the wheel is installed in a fresh environment and tried there.
dist: $(STAMP)
	BIN=$(BIN) .ci/dist

# Reinstalled when the dependencies or the compiled kernel change; otherwise a second call does nothing here.
$(STAMP): pyproject.toml constraints.txt setup.py $(wildcard src/sobgnn/propagation/*.cpp src/sobgnn/propagation/*.h)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -qq --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist src/*.egg-info src/sobgnn/propagation/*.so
