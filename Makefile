# Everything that a fresh clone needs, in one place. `make` alone lists it.
# The tests and the demo bring up their own RabbitMQ and Postgres; see dev/.

VENV ?= .venv
ARGS ?=
UPGRADE ?= --upgrade
WORKERS ?= 3
BIN := $(abspath $(VENV))/bin
READY := $(VENV)/.ready
BENCH_READY := $(VENV)/.ready-bench
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq

export PATH := $(BIN):$(PATH)
export PYTHONPATH := $(CURDIR)
# Containers like to set it; every process that a test starts would compile the product anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help venv servers clients demo demo-digest demo-import demo-reminders test test-brokers test-systemd check lint format types soak bench bench-forecast bench-forecast-real bench-pacing bench-proof bench-redrive bench-telemetry bench-drains drill lock clean

help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(READY) ## Make the virtual environment from the lock (the other targets do it by themselves)

$(READY): requirements.lock pyproject.toml
	@python=$$(PYTHON='$(PYTHON)' sh dev/find-python.sh) || exit 1; \
	echo "setting up $(VENV) with $$($$python --version)"; \
	$$python -m venv $(VENV)
	@$(PIP) install --require-hashes -r requirements.lock
	@# The build backend comes from the lock as well, so nothing unlocked is fetched to build with.
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

servers: $(READY) ## Have RabbitMQ and Postgres at hand, installed by apt where missing and allowed
	@$(BIN)/python -m dev.need

clients: $(READY) ## Have publishers in other languages at hand for the tests that run them, where that can be
	@$(BIN)/python -m dev.need clients

demo: servers ## Run the example: 2,000 jobs, a SIGKILL half-way, and the account of every one
	@$(BIN)/python examples/property-cleanup/demo.py $(ARGS)

demo-reminders: servers ## Run the example without Python in the lane: 600 reminders over HTTP
	@$(BIN)/python examples/rent-reminders/reminders.py $(ARGS)

demo-import: servers ## Run the example of a batch: 5,000 rows, a SIGKILL to the enqueue, and the account of every row
	@$(BIN)/python examples/support-import/support_demo.py $(ARGS)

demo-digest: servers ## Run the example of schedules: a weekly digest that is killed half-way, two lanes on one quota
	@$(BIN)/python examples/marketplace-digest/digest_demo.py $(ARGS)

test: servers clients ## Run the tests; ARGS="-k name" picks some, WORKERS=0 runs them one after the other
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

test-brokers: servers clients ## Run the tests that talk to a broker on RabbitMQ 4.0 and 4.3 too, half an hour each, built on first use; as root
	@$(BIN)/python -m dev.brokers test -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

check: lint types test ## Do exactly what CI does: lint, types, tests

lint: $(READY) ## Check style and formatting
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: $(READY) ## Put style and formatting right where that is safe
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: $(READY) ## Check types
	@$(BIN)/mypy

test-systemd: servers ## Boot a real systemd in a container, with the units in it, and try them; as root, 8 minutes
	@$(BIN)/python -m dev.need booted
	@$(BIN)/python -m pytest -m booted --timeout=300 tests/booted $(ARGS)

soak: servers clients ## Run the long tests
	@$(BIN)/python -m pytest -m "soak or hypothesis" --hypothesis-profile=many --timeout=0 $(ARGS) || [ $$? -eq 5 ]

bench: servers $(BENCH_READY) ## Compare with other consumers on this machine; ARGS="--help" lists the choices
	@$(BIN)/python -m bench.run $(ARGS)

$(BENCH_READY): $(READY) requirements-bench.lock
	@echo "adding what the benchmark compares with to $(VENV)"
	@$(PIP) install --require-hashes -r requirements-bench.lock
	@touch $@

LOCK := CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile --quiet $(UPGRADE) --generate-hashes \
    --allow-unsafe --strip-extras --no-emit-index-url --no-emit-trusted-host --no-emit-find-links

lock: $(READY) ## Write the locks anew, newest versions; UPGRADE= keeps those that still fit
	@$(LOCK) --extra daemon --extra dev --output-file requirements.lock pyproject.toml
	@# What a host runs, and builds the product with: of the same versions that are tested.
	@$(LOCK) --extra daemon --build-deps-for wheel --constraint requirements.lock \
	    --output-file requirements-daemon.lock pyproject.toml
	@# Both end up in one environment, so this one may not ask for another version than the first.
	@$(LOCK) --extra daemon --extra bench --constraint requirements.lock \
	    --output-file requirements-bench.lock pyproject.toml

clean: ## Remove what the targets made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

bench-proof: servers ## Make a million paced calls through kills, restarts and clocks that are set, and meter them
	@$(BIN)/python -m bench.proof $(ARGS)

bench-pacing: servers $(BENCH_READY) ## Measure how a quota is kept and used; ARGS="--help" lists the choices
	@$(BIN)/python -m bench.pacing $(ARGS)

bench-forecast: $(READY) ## Simulate drains and hold their forecasts against their ends; ARGS="--help" lists the choices
	@$(BIN)/python -m bench.backtest $(ARGS)

bench-forecast-real: servers ## Forecast two drains of a real daemon, and hold that against their ends; two minutes
	@$(BIN)/python -m bench.real_drains

bench-redrive: servers ## Measure what of its rate live work keeps beside a redrive; ARGS="--help" lists the choices
	@$(BIN)/python -m bench.redriving $(ARGS)

bench-telemetry: servers ## Measure what telemetry costs, and a collector that is killed or hangs; ARGS="--help" lists the choices
	@$(BIN)/python -m bench.telemetry $(ARGS)

bench-drains: servers ## Stop daemons at random moments under load and account for every job; ARGS="--help" lists the choices
	@$(BIN)/python -m bench.drains $(ARGS)

drill: servers ## Raise one fault after the other under load and account for every job; ARGS="--help" lists them
	@$(BIN)/python -m bench.faults $(ARGS)
