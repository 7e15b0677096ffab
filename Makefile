# Everything a user or a contributor runs. Each target makes .venv if it is absent, installs what constraints.txt pins,
# builds the extension, and runs; the stamp files in .venv let a second call start at once.

PYTHON ?= python3
VENV   ?= .venv

BIN     := $(VENV)/bin
PIP     := $(BIN)/python -m pip --disable-pip-version-check install --quiet -c constraints.txt
PROJECT := $(PIP) --no-build-isolation --editable
# Every core has tests of its own, and one more process works while others wait for what they started; but each
# imports torch, and so there are not more than eight. Threads that wait do not spin, which those of several
# processes would for each other.
WORKERS := $(shell $(PYTHON) -c "import os; print(min(8, (os.cpu_count() or 1) + 1))")
PYTEST  := OMP_WAIT_POLICY=passive $(BIN)/pytest --numprocesses=$(WORKERS) --dist=worksteal
BUILD   := pyproject.toml CMakeLists.txt src/halfgp/version.py $(wildcard cpp/*)

# Dozens of processes import the package in every run, and would each compile it.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help demo demo-full product paper paper-quick test test-all test-avx2 lint bench wheel clean

help:                ## show this list
	@grep -hE '^[a-z0-9-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

demo: $(VENV)/.plot  ## fit real terrain, 20,000 heights, and draw it (a minute)
	@$(BIN)/halfgp doctor
	@$(BIN)/python examples/terrain_demo.py $(DEMO_ARGS)

demo-full: $(VENV)/.plot ## the same from 124,000 heights
	@$(BIN)/python examples/terrain_demo.py --rows 124000 --picture terrain-full.png $(DEMO_ARGS)

product: $(VENV)/.built ## time one kernel product on this machine
	@$(BIN)/python examples/product_demo.py

paper: $(VENV)/.paper ## every figure and table of the paper (hours; goes on where it was; HALFGP_DATA names the data)
	@$(BIN)/halfgp paper run $(PAPER_ARGS)

paper-quick: $(VENV)/.paper ## the same on small samples (minutes)
	@$(BIN)/halfgp paper run --quick $(PAPER_ARGS)

test: lint           ## lint, types, import rules and all tests of what this machine has
	@echo "== pytest"; $(PYTEST) -m "not elsewhere" $(PYTEST_ARGS)

test-all: lint       ## the same with what it emulates: NEON in qemu, the kernels of a GPU
	@echo "== pytest"; $(PYTEST) $(PYTEST_ARGS)

# What rounds differently elsewhere: torch, OpenBLAS and the engine held to AVX2, and MKL to what every processor has,
# for it heeds no other limit on AMD's.
AVX2    := ATEN_CPU_CAPABILITY=avx2 MKL_CBWR=COMPATIBLE OPENBLAS_CORETYPE=Haswell HALFGP_INSTRUCTION_SET=avx2 \
           HALFGP_TEST_THREADS=2
# The contract of the engine is not among them: it holds every instruction set to its bounds wherever it runs.
NUMERIC := $(addprefix tests/,solvers preconditioners likelihood prediction analysis training/test_exact.py \
           training/test_judgement.py training/test_stochastic.py test_nearest.py test_neighbours.py test_honesty.py) \
           --ignore=tests/solvers/test_checkpoint.py # which compares bits of one processor with its own

test-avx2: $(VENV)/.dev ## the numerical tests as on a processor without AVX-512, with two threads
	@echo "== pytest, AVX2"; $(AVX2) $(PYTEST) $(NUMERIC) $(PYTEST_ARGS)

# Dead code too: imports, variables and arguments that nothing uses are ruff's (F, ARG), unreachable lines mypy's.
lint: $(VENV)/.dev   ## ruff, mypy --strict and import-linter only
	@echo "== ruff"; $(BIN)/ruff check . && $(BIN)/ruff format --check .
	@echo "== mypy"; $(BIN)/mypy --strict src
	@echo "== import-linter"; PYTHONPATH=src $(BIN)/lint-imports

bench: $(VENV)/.bench ## the speed table against KeOps, HiGP and torch (some minutes)
	@$(BIN)/python benchmarks/products.py $(BENCH_ARGS)

wheel: $(VENV)/.tools ## a wheel for this platform, in dist/
	@$(BIN)/python -m pip --disable-pip-version-check wheel --quiet --no-deps --no-build-isolation -w dist .
	@ls dist

clean:               ## remove the environment, builds and caches
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests benchmarks examples -name __pycache__ -type d -exec rm -rf {} +

$(VENV)/.tools: constraints.txt
	@test -x $(BIN)/python || { echo "== making $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "== installing the build tools"
	@$(PIP) --upgrade pip
	@$(PIP) scikit-build-core nanobind cmake ninja
	@touch $@

$(VENV)/.built: $(VENV)/.tools $(BUILD)
	@echo "== building halfgp (the first time also downloads torch; a few minutes)"
	@$(PROJECT) .
	@touch $@

$(VENV)/.plot: pyproject.toml constraints.txt | $(VENV)/.built
	@echo "== installing matplotlib"
	@$(PROJECT) '.[plot]'
	@touch $@

$(VENV)/.paper: pyproject.toml constraints.txt | $(VENV)/.built
	@echo "== installing what the paper's tables are compared with"
	@$(PROJECT) '.[paper]'
	@touch $@

# Order-only on .built: a change of a C++ source rebuilds the extension and leaves the tools alone.
$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/.built
	@echo "== installing the test tools"
	@$(PROJECT) '.[dev]'
	@touch $@

$(VENV)/.bench: pyproject.toml constraints.txt | $(VENV)/.built
	@echo "== installing the peers to compare with"
	@$(PROJECT) '.[bench]'
	@touch $@
