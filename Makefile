# One command each; every target works first on a fresh clone.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.jobyard-stamp

.DEFAULT_GOAL := help
.PHONY: help setup run demo test servers check soak mutants bench

help:            ## this list
	@grep -hE '^[a-z]+: .*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

setup: $(STAMP)  ## build .venv with all extras and tools

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "jobyard needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[fast,redis,postgres,server,client,sandbox,tracing,bench,dev]'
	@touch $@

run: $(STAMP)    ## the API server and a worker with the example app and a sandbox, on SQLite
	@mkdir -p run && exec $(BIN)/jobyard --app examples.demo_app:yard up --concurrency 8 --sandbox

demo: $(STAMP)   ## the example app kept busy, and the live view in this terminal
	@$(BIN)/python examples/demo.py

check: $(STAMP)  ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: servers    ## the checks and every test, small counts
	$(BIN)/python -m tests.run

servers: $(STAMP)  ## install what the tests need and lack: Redis, PostgreSQL, PgBouncer, Chromium
	@$(BIN)/python -m tests.servers.install

soak: servers    ## fault and race suites with full counts, recorded in docs/reliability.md
	JOBYARD_SOAK=1 $(BIN)/python -m tests.soak

mutants: servers  ## put known faults into a copy of the code and see that tests notice them
	$(BIN)/python -m tests.mutants

bench: $(STAMP)  ## speed against peers, as ratios: table, JSON, SVG
	$(BIN)/python -m bench
