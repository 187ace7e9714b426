# Sets up .venv/ once and runs commands in it. `make help` lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/stamps
PIP := $(BIN)/python -m pip install --disable-pip-version-check --quiet --constraint constraints.txt
# constraints for building packages: older pips read the first variable, newer ones the second
export PIP_CONSTRAINT := constraints.txt
export PIP_BUILD_CONSTRAINT := constraints.txt
# if it is set, each of the hundreds of processes that tests start compiles its imports again
unexport PYTHONDONTWRITEBYTECODE
# minimum percentage of rskip's lines that the fast tests must run
COVERAGE ?= 95
# One process per core, at most 8, with one thread each. A file's tests stay in one process; tests/conftest.py orders files.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder
# pytest's -m for `make test`
TESTS ?= not slow and not install
# tests for `make test-lowest`: those that need no tools of development
LOWEST ?= $(addprefix tests/,checkpoint connections cpu files generation nn records serving settings text transformer)
# number of inputs per kind for `make fuzz`, which takes an hour or more
FUZZ ?= 5000

.PHONY: help demo setup test tests test-slow test-install test-lowest fuzz coverage lint bench study docs dist sums clean distclean
.DELETE_ON_ERROR:

help:
	@echo 'make demo        prepare, train, average, translate and score a generated corpus; then translate with a trained model'
	@echo 'make test        ruff, mypy and the fast tests'
	@echo 'make test-slow   the tests that train, kill processes or run torchrun'
	@echo 'make test-install  install into fresh environments, from wheels and editable, with two versions of pip'
	@echo 'make test-lowest  a part of the fast tests with the lowest versions that setup.py admits, in build/lowest'
	@echo 'make fuzz        tests/fuzz with new inputs each time, FUZZ per kind (default: $(FUZZ)); make test runs half a minute of it'
	@echo 'make coverage    check that the fast tests run at least $(COVERAGE) % of the lines of rskip/'
	@echo 'make lint        ruff and mypy'
	@echo 'make bench       the benchmarks'
	@echo 'make study       regenerate the tables and figures in docs/ from the records in study/results/'
	@echo 'make docs        build the site in build/docs: guides and API reference; fails on warnings'
	@echo 'make dist        source distribution and wheel of the last commit, checked, a bill of materials, and checksums, in dist/'
	@echo 'make setup       set up $(VENV)/ only; PYTHON=python3.12 chooses the Python'
	@echo 'make clean       remove the files of builds and tests; make distclean removes $(VENV)/ too'

demo: $(STAMPS)/fairseq
	@$(BIN)/rskip run recipes/numbers_en_de_demo.yaml
	@$(BIN)/python scripts/translate_with_hub.py

setup: $(STAMPS)/fairseq $(STAMPS)/dev

# lint runs in parallel with the tests, since mypy needs only one core
test: setup
	@$(MAKE) --no-print-directory --jobs=2 lint tests

tests: setup
	@$(PYTEST) -m '$(TESTS)'

test-slow: setup
	@$(PYTEST) -m slow

test-install: setup
	@$(PYTEST) -m install tests/setup

test-lowest: $(STAMPS)/release
	@$(BIN)/uv venv --quiet --clear --python "$(PYTHON)" build/lowest
	@$(BIN)/uv pip install --quiet --python build/lowest/bin/python --resolution lowest-direct --editable '.[all]'
	@$(BIN)/uv pip install --quiet --python build/lowest/bin/python pytest hypothesis httpx
	@OMP_NUM_THREADS=1 build/lowest/bin/python -m pytest -m 'not slow and not install' $(LOWEST)

fuzz: setup
	@RSKIP_FUZZ=$(FUZZ) $(PYTEST) tests/fuzz

coverage: setup
	@$(PYTEST) --cov --cov-report= -m 'not slow and not install'
	@$(BIN)/coverage report --include='rskip/*' --fail-under=$(COVERAGE)

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/mypy

bench: setup
	@for benchmark in benchmarks/*.py; do $(BIN)/python "$$benchmark" || exit 1; done

study: setup
	@$(BIN)/python -m study

docs: $(STAMPS)/docs
	@rm -rf build/docs build/doctrees docs/api
	@$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --nitpicky --conf-dir docs --doctree-dir build/doctrees . build/docs
	@echo 'build/docs/index.html'

dist: $(STAMPS)/release
	@rm -rf build/dist dist && mkdir -p build/dist
	@git archive HEAD | tar -x -C build/dist
	@$(BIN)/python -m build --outdir dist build/dist >build/dist.log 2>&1 || { cat build/dist.log >&2; exit 1; }
	@$(BIN)/twine check --strict dist/*
	@$(BIN)/cyclonedx-py environment --output-reproducible $(BIN)/python | sed 's|file://$(CURDIR)|.|' >dist/rskip.cdx.json
	@cp build/dist/checkpoints.json dist
	@$(MAKE) --no-print-directory sums

sums:
	@cd dist && rm -f SHA256SUMS && sha256sum -- * | tee ../build/SHA256SUMS && mv ../build/SHA256SUMS .

clean:
	rm -rf build dist docs/api *.egg-info .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -path ./$(VENV) -prune -o -type d -name __pycache__ -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV)

# Python and the compiler are checked before anything is created or downloaded.
$(STAMPS)/venv:
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || { \
	  echo 'error: rskip needs Python 3.10 or newer, and $(PYTHON) is $(or $(shell "$(PYTHON)" --version 2>/dev/null),not there): choose another with make PYTHON=python3.11' >&2; exit 1; }
	@command -v g++ >/dev/null || command -v c++ >/dev/null || command -v clang++ >/dev/null || { \
	  echo 'error: no C++ compiler (g++, c++ or clang++) is on the PATH, and fairseq needs one: install g++' >&2; exit 1; }
	@echo 'setting up $(VENV)/: this downloads PyTorch and compiles fairseq, once'
	@"$(PYTHON)" -m venv $(VENV)
	@mkdir -p $(STAMPS)
	@touch $@

$(STAMPS)/torch: $(STAMPS)/venv constraints.txt
	@$(PIP) torch torchvision
	@touch $@

$(STAMPS)/rskip: $(STAMPS)/torch setup.py pyproject.toml $(wildcard rskip/cpu/source/*)
	@$(PIP) 'pip>=25.1'  # the first with --group
	@$(PIP) --editable '.[all]'
	@touch $@

$(STAMPS)/fairseq: $(STAMPS)/rskip
	@$(BIN)/rskip setup-fairseq
	@touch $@

$(STAMPS)/dev: $(STAMPS)/fairseq
	@$(PIP) --group dev
	@touch $@

$(STAMPS)/docs: $(STAMPS)/rskip
	@$(PIP) --group docs
	@touch $@

$(STAMPS)/release: $(STAMPS)/rskip
	@$(PIP) --group release
	@touch $@
