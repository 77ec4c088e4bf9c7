# One command each; every target works first on a fresh clone.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.jobyard-stamp
NODE   := node_modules/.jobyard-stamp

.DEFAULT_GOAL := help
.PHONY: help setup run demo scanner test servers check soak mutants bench

help:            ## this list
	@grep -hE '^[a-z]+: .*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

setup: $(STAMP)  ## build .venv with all extras and tools

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "jobyard needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[fast,redis,postgres,server,client,github,sandbox,tracing,alerts,bench,dev]'
	@touch $@

$(NODE): package.json
	@command -v npm >/dev/null || { echo "the checks of the dashboard need npm: apt-get install npm"; exit 1; }
	npm install --silent
	@touch $@

run: $(STAMP)    ## the API server and a worker with the example app and a sandbox, on SQLite
	@mkdir -p run && exec $(BIN)/jobyard --app examples.busy_demo:yard up --concurrency 8 --sandbox

demo: $(STAMP)   ## the example app kept busy, and the live view in this terminal
	@$(BIN)/python examples/demo.py

scanner: $(STAMP)  ## the product scanner of examples/product-scanner: eight platforms, and what each of them runs
	@$(BIN)/python examples/product-scanner/run.py

check: $(STAMP) $(NODE)  ## ruff, mypy --strict, import-linter, tsc --strict for the dashboard
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	node_modules/.bin/tsc -p .

test: servers $(NODE)  ## the checks and every test, small counts
	$(BIN)/python -m tests.run

servers: $(STAMP)  ## install what the tests need and lack: Redis, PostgreSQL, PgBouncer, Chromium
	@$(BIN)/python -m tests.servers.install

soak: servers    ## fault and race suites with full counts, recorded in docs/reliability.md
	JOBYARD_SOAK=1 $(BIN)/python -m tests.soak

mutants: servers  ## put known faults into a copy of the code and see that tests notice them
	$(BIN)/python -m tests.mutants

bench: $(STAMP)  ## speed against peers, as ratios: table, JSON, SVG
	$(BIN)/python -m bench
