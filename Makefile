PYTHON ?= python3
BIN := .venv/bin
ROOT := $(if $(filter 0,$(shell id -u)),,sudo)
INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check --editable

# PETSc, with the launcher of the MPI that it was built with.
export PETSC_DIR ?= /usr/lib/petscdir/petsc-real
export PETSC_ARCH ?=
# Two cores have to do for three ranks, and one for root.
RANKS := OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
	OMPI_MCA_mpi_yield_when_idle=1 OMP_NUM_THREADS=1

.PHONY: demo test browser ranks paper cases growth pages kinds verdicts claims real projections sets examples docs

demo: .venv/.demo  ## the grid world: table and figure
	$(BIN)/cvxmdp demo

test: .venv/.all .venv/.petsc browser  ## style, types and tests, also on one, two and three ranks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy src
	$(MAKE) ranks
	$(BIN)/pytest

ranks: .venv/.all .venv/.petsc
	for n in 1 2 3; do \
	    $(RANKS) CVXMDP_RANKS=$$n timeout 600 mpiexec -n $$n $(BIN)/python -m pytest -p no:cacheprovider tests/distributed || exit; \
	done

browser:  ## chromium, in which the tests open pages; Debian's and Ubuntu's, where there is none yet
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
	{ $(ROOT) apt-get update -qq && $(ROOT) apt-get install -y -qq chromium; }

paper: .venv/.all  ## the paper's experiments, hours; goes on where it was stopped
	for experiment in table1 table2 gridworld inexact; do $(BIN)/cvxmdp paper $$experiment || exit; done
	$(BIN)/python benchmarks/pages.py

cases: .venv/.all  ## the further cases of docs/benchmarks.md; goes on where it was stopped
	$(BIN)/python benchmarks/harness.py cases $(HOW)
	$(BIN)/python benchmarks/pages.py

pages: .venv/.all  ## docs/benchmarks.md and the tables of docs/reproduction.md from benchmarks/results/
	$(BIN)/python benchmarks/pages.py

growth: .venv/.all  ## how our time grows, the speed of a sweep, the methods compared: docs/growth.md
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/pages.py

kinds: .venv/.all  ## every kind of problem against CVXPY: docs/kinds.md
	PYTHONPATH=reference $(BIN)/python benchmarks/kinds.py $(HOW)

verdicts: .venv/.all  ## verdicts near the border of feasibility: docs/verdicts.md
	PYTHONPATH=reference $(BIN)/python benchmarks/verdicts.py $(HOW)

claims: .venv/.all  ## is any claim false? thousands of hard problems: docs/claims.md; goes on where it was stopped
	PYTHONPATH=reference $(BIN)/python benchmarks/claims.py $(HOW)

real: .venv/.all  ## real models under every kind of limit: docs/real.md; goes on where it was stopped
	$(BIN)/python benchmarks/real.py $(HOW)

projections: .venv/.all  ## the speed of projections: docs/projections.md
	$(BIN)/python benchmarks/projections.py

sets: .venv/.all  ## the pictures and tables of docs/sets.md
	$(BIN)/python docs/make_sets.py

examples: .venv/.all  ## the pictures of docs/examples/ and what the pages quote of the scripts
	$(BIN)/python docs/make_examples.py

docs: .venv/.all  ## the site, from docs/ to site/; python -m http.server -d site shows it with its search
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Installed again only when pyproject.toml or what is compiled changes; the package itself is editable.
COMPILED := pyproject.toml hatch_build.py $(wildcard src/native/*)
.venv/.demo: $(COMPILED)
	$(PYTHON) -m venv .venv
	$(INSTALL) '.[plot]'
	touch $@

# PETSc and its compilers are Debian's and Ubuntu's, where there are none yet; a cluster has its own, named by PETSC_DIR.
# Which version there is, the shell finds out: make would look before it is installed.
.venv/.petsc: .venv/.all
	@{ command -v mpiexec && test -d $(PETSC_DIR); } >/dev/null || \
	{ $(ROOT) apt-get update -qq && $(ROOT) apt-get install -y -qq --no-install-recommends libpetsc-real-dev openmpi-bin; }
	$(BIN)/python -m pip install -qq --disable-pip-version-check mpi4py setuptools wheel
	version=$$(awk '/define PETSC_VERSION_(MAJOR|MINOR|SUBMINOR) /{printf "%s%s", dot, $$3; dot = "."}' \
	    $(PETSC_DIR)/include/petscversion.h) && \
	$(BIN)/python -m pip install -qq --disable-pip-version-check --no-build-isolation petsc4py==$$version
	touch $@

.venv/.all: $(COMPILED)
	$(PYTHON) -m venv .venv
	$(INSTALL) '.[plot,test,bench,docs]'
	touch $@
