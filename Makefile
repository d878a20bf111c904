# Everything a contributor runs. Needs make and a Python 3.11 or later; the rest is set up in .venv.
# To choose the Python: make clean, then make venv PYTHON=/path/to/python.

VENV := .venv
BIN := $(VENV)/bin
LOCK_VENV := .venv-lock
DIST_VENV := .venv-dist
DOCS_VENV := .venv-docs

# Where it is set, every process that a test starts would compile the whole package once more.
unexport PYTHONDONTWRITEBYTECODE

# The first of these that runs (a version manager's shim may exist and fail) and is new enough.
find_python = \
	for python in $(PYTHON) python3 python3.13 python3.12 python3.11; do \
		if "$$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; \
		then break; fi; python=; \
	done; \
	if [ -z "$$python" ]; then \
		echo "windlass needs Python 3.11 or later with venv: install one, or name it: make PYTHON=/path/to/python" >&2; \
		exit 1; \
	fi

# Hashes are required and nothing is built from source, so an install runs no code but the installer's.
pip_install = -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all:

.PHONY: help
help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: venv
venv: $(VENV)/.project  ## set up .venv (every other target does so when needed)

$(VENV)/.requirements: requirements/dev.txt
	@$(find_python); echo "setting up $(VENV) with $$("$$python" --version)"; "$$python" -m venv --clear $(VENV)
	@$(BIN)/python $(pip_install) -r requirements/dev.txt
	@touch $@

$(VENV)/.project: $(VENV)/.requirements pyproject.toml
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@touch $@

.PHONY: demo
demo: venv  ## watch two workers run several hundred jobs, crashes included, with an account of every one
	@$(BIN)/python -m windlass.demo

.PHONY: test
test: venv  ## run the tests, except for the slow ones (ARGS="-k fence -x" narrows)
	$(BIN)/python tools/run_tests.py $(ARGS)

.PHONY: servers
servers: venv  ## fetch the message brokers that tests start and no wheel brings along, into .servers
	$(BIN)/python -m tools.servers $(ARGS)

.PHONY: test-slow
test-slow: venv  ## run the slow tests, with many more Hypothesis examples
	$(BIN)/python -m pytest -m slow --hypothesis-profile thorough $(ARGS)

.PHONY: web
web: venv  ## check and build the dashboard into the package, with the Node of the environment
	$(BIN)/python web/build.py

.PHONY: web-types
web-types: venv  ## write the dashboard's types anew from the API's description
	$(BIN)/python web/api_types.py

.PHONY: test-browser
test-browser: venv web  ## run the tests of the dashboard in Chromium
	$(BIN)/python -m pytest -m browser -n 1 tests/browser $(ARGS)

.PHONY: verify
verify: venv  ## hurt workers, network and stores for a minute each on every store, and check the promises (SEED=7)
	$(BIN)/windlass verify --own sqlite --minutes 1 --seed $(or $(SEED),1)
	$(BIN)/windlass verify --own redis --minutes 1 --seed $(or $(SEED),1)
	$(BIN)/windlass verify --own postgres --minutes 1 --seed $(or $(SEED),1)

.PHONY: check
check: venv  ## lint, format, types, layers, file sizes, package hosts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tools/check_file_sizes.py
	$(BIN)/python tools/check_package_hosts.py

.PHONY: format
format: venv  ## format the code and fix what the linter can fix
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

.PHONY: coverage
coverage: venv  ## run the tests and require 98 % of the branches of the core and the reference model
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report
	$(BIN)/coverage json --quiet
	$(BIN)/python tools/check_branch_coverage.py 98 windlass/core windlass/broker/memory

.PHONY: bench
bench: venv  ## measure Windlass and its peers side by side (ARGS="--store redis --only drain,bulk --quick")
	$(BIN)/python bench/run.py $(ARGS)

.PHONY: dist
dist: venv $(DIST_VENV)/.installed  ## build wheel and sdist into dist/, twice, and check them: contents, install, demo (PYTHONS="python3.11 python3.13")
	$(BIN)/python tools/build_dist.py $(abspath $(DIST_VENV))/bin/python $(PYTHONS)

$(DIST_VENV)/.installed: requirements/dist.txt
	@$(find_python); "$$python" -m venv --clear $(DIST_VENV)
	@$(DIST_VENV)/bin/python $(pip_install) -r requirements/dist.txt
	@touch $@

.PHONY: docs
docs: venv $(DOCS_VENV)/.installed  ## build the documentation site into build/docs/site; a dead link or anchor fails
	$(BIN)/python tools/build_docs.py $(DOCS_VENV)/bin/zensical

$(DOCS_VENV)/.installed: requirements/docs.txt
	@$(find_python); "$$python" -m venv --clear $(DOCS_VENV)
	@$(DOCS_VENV)/bin/python $(pip_install) -r requirements/docs.txt
	@touch $@

# Keeps the versions already pinned, unless asked: make lock UPGRADE=--upgrade
.PHONY: lock
lock: $(LOCK_VENV)/.installed  ## pin the requirements anew (UPGRADE=--upgrade for newer versions)
	$(call compile,requirements/dev.txt,--all-extras pyproject.toml requirements/dev.in)
	$(call compile,requirements/dist.txt,requirements/dist.in)
	$(call compile,requirements/docs.txt,requirements/docs.in)
	$(call compile,requirements/lock.txt,requirements/lock.in)

# One file for every platform and every Python from 3.11 on, that names no package host.
compile = $(LOCK_VENV)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--only-binary :all: --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' \
	$(UPGRADE) --output-file $(1) $(2)

$(LOCK_VENV)/.installed: requirements/lock.txt
	@$(find_python); "$$python" -m venv --clear $(LOCK_VENV)
	@$(LOCK_VENV)/bin/python $(pip_install) -r requirements/lock.txt
	@touch $@

.PHONY: clean
clean:  ## remove all that these commands made, the environments too
	rm -rf $(VENV) $(LOCK_VENV) $(DIST_VENV) $(DOCS_VENV) .servers web/node_modules src/windlass/api/static build dist .coverage .coverage.* .hypothesis
	rm -rf .pytest_cache .ruff_cache .import_linter_cache __pycache__
	find src tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
