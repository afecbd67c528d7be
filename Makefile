# `make demo` and `make test` need only make and Python >= 3.11; each makes its own environment.
# On Debian and Ubuntu the module venv is a package of its own: python3-venv.

PYTHON ?= python3
PYTEST_WORKERS ?= 2
VENV := .venv
DEMO_VENV := .venv-demo
PIP_FLAGS := --quiet --disable-pip-version-check
CHECK_PYTHON = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
  "Python >= 3.11 is needed, this is " + sys.version.split()[0] + "; say: make PYTHON=python3.12")'

.PHONY: help demo test lint types tests format clean verify-compiler
.DELETE_ON_ERROR:

help:
	@echo "make demo    predictions for a few shapes; needs no GPU"
	@echo "make test    lint, types and tests, as CI runs them (each is a target too)"
	@echo "make verify-compiler  predicted shared memory and registers against the compiler"
	@echo "make format  let ruff rewrite what it can"
	@echo "make clean   remove the environments and all that a build or a test run left"

# A stamp stands for a finished install: a second run installs nothing, and a changed
# pyproject.toml or a changed pin below installs again.
#
# The tests run the kernels in Triton's interpreter, so torch and triton are here without a GPU:
# - torch may bring a triton of its own choice; --no-deps then puts the tested one in its place.
#   Triton has Linux wheels only; elsewhere the tests that need it skip.
# - numpy<2.4, in this environment alone: Triton 3.6's interpreter ends every loop over a tensor
#   bound with an error on numpy 2.4. The package itself has no such limit.
$(VENV)/.stamp: pyproject.toml Makefile
	@$(CHECK_PYTHON)
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install $(PIP_FLAGS) "torch==2.13.0" "numpy<2.4"
	test "$$(uname -s)" != Linux || $(VENV)/bin/python -m pip install $(PIP_FLAGS) --no-deps "triton==3.6.0"
	$(VENV)/bin/python -m pip install $(PIP_FLAGS) --editable ".[dev,plot]" "numpy<2.4"
	touch $@

# Predicting needs neither torch nor triton. Where there is a GPU and a python with torch, the
# demo sees that torch instead of installing gigabytes of it again.
$(DEMO_VENV)/.stamp: pyproject.toml Makefile
	@$(CHECK_PYTHON)
	test -x $(DEMO_VENV)/bin/python || \
	if command -v nvidia-smi >/dev/null && $(PYTHON) -c 'import torch' 2>/dev/null; \
	then $(PYTHON) -m venv --system-site-packages $(DEMO_VENV); \
	else $(PYTHON) -m venv $(DEMO_VENV); fi
	$(DEMO_VENV)/bin/python -m pip install $(PIP_FLAGS) --editable .
	touch $@

# -P keeps the repository's root off sys.path, so that the installed package is what runs.
demo: $(DEMO_VENV)/.stamp
	$(DEMO_VENV)/bin/python -P -m costmodel.demo

test: lint types tests

lint: $(VENV)/.stamp
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

# Some ten minutes a target the first time; what data/compiler/ holds already is not compiled again.
verify-compiler: $(VENV)/.stamp
	TRITON_INTERPRET=0 $(VENV)/bin/python -P -m costmodel.compiler.verify

types: $(VENV)/.stamp
	$(VENV)/bin/mypy

# The script, not `python -m pytest`, which would put the root on sys.path. loadfile keeps a file
# on one worker, so that the wheel is built once.
tests: $(VENV)/.stamp
	$(VENV)/bin/pytest -q -n $(PYTEST_WORKERS) --dist loadfile

format: $(VENV)/.stamp
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

clean:
	rm -rf $(VENV) $(DEMO_VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
	find costmodel kernels data tests -name __pycache__ -prune -exec rm -rf {} +
