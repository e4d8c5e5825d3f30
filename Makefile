PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: demo test figures

demo: $(STAMP)  ## the grid world: table and figure
	$(BIN)/cvxmdp demo

test: $(STAMP)  ## style, types and tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy src
	$(BIN)/pytest

figures: $(STAMP)  ## the figures of the README
	$(BIN)/python benchmarks/figures.py

# Installed again only when pyproject.toml changes; the package itself is editable.
$(STAMP): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[plot,test]'
	touch $@
