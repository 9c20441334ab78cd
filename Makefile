# `make quickstart` and `make test` set up everything they need in .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: help install quickstart test test-system mutants format clean

help:
	@echo "make install      install everything into .venv"
	@echo "make quickstart   train and translate on built-in data, about 5 minutes after installation"
	@echo "make test         format, lint, spelling and all tests but the long ones"
	@echo "make test-system  long tests: do the models use their context?"
	@echo "make mutants      takes hours: do the tests notice changes of the code? see tests/README.md"
	@echo "make format       format the code"

install: $(INSTALLED)

# torch is pinned to a release that is known to work and, where a CPU build of it is at hand, keeps
# pip from fetching several GB of newer GPU libraries.  fairseq-fixed is built against this torch
# (no build isolation), which needs the build tools to be there first.
$(INSTALLED): setup.py fairseq_docmt/ops/step_kernels.cpp
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -q torch==2.13.0 numpy cython "setuptools<85" wheel
	@echo "installing; fairseq compiles for two to four minutes"
	$(BIN)/python -m pip install --disable-pip-version-check -q --no-build-isolation -e ".[dev]"
	touch $(INSTALLED)

quickstart: $(INSTALLED)
	PATH="$(CURDIR)/$(BIN):$$PATH" bash examples/context_probe/run.sh

test: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/codespell
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests -q -m "not system and not long" -n 2 --dist worksteal

test-system: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests -q -m "system or long" -n 2 --dist loadfile

mutants: $(INSTALLED)
	$(BIN)/python -m pip install --disable-pip-version-check -q mutmut==3.8.1 coverage==7.17.3
	OMP_NUM_THREADS=1 $(BIN)/python -W ignore tests/mutants/run.py $(MUTANTS)

format: $(INSTALLED)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) examples/context_probe/work
