PYTHON ?= python

.PHONY: install test lint types bench ci

install:  ## everything a developer needs, with the package in editable form
	$(PYTHON) -m pip install -e '.[dev]'

test:
	$(PYTHON) -m pytest

lint:
	$(PYTHON) -m ruff check
	$(PYTHON) -m ruff format --check

types:
	$(PYTHON) -m mypy

bench:  ## each script prints its figures
	set -e; for script in $$(grep -l "^from ratios import" benchmarks/*.py); do $(PYTHON) "$$script"; done

ci:  ## what a change has to pass
	.ci/run
