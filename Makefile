PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: demo test figures kinds projections sets

demo: $(STAMP)  ## the grid world: table and figure
	$(BIN)/cvxmdp demo

test: $(STAMP)  ## style, types and tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy src
	$(BIN)/pytest

figures: $(STAMP)  ## the figures of the README
	$(BIN)/python benchmarks/figures.py

kinds: $(STAMP)  ## every kind of problem against CVXPY: docs/kinds.md
	PYTHONPATH=tests $(BIN)/python benchmarks/kinds.py $(HOW)

projections: $(STAMP)  ## the speed of projections: docs/projections.md
	$(BIN)/python benchmarks/projections.py

sets: $(STAMP)  ## the pictures and tables of docs/sets.md
	$(BIN)/python docs/make_sets.py

# Installed again only when pyproject.toml changes; the package itself is editable.
$(STAMP): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[plot,test]'
	touch $@
