# Two commands do everything on a fresh machine: `make demo` and `make test`. The environment is .venv, here.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Tests wait half of their time, for processes, pages and clocks: twice as many workers as cores (measured on two).
WORKERS ?= 4
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

# Tests start hundreds of processes, and each would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo field field-demo peer peer-demo test quick check lint format docs figures wheel coverage bench reproduce fuzz lock clean

help:  ## show what there is to make
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/core  ## the tour on built-in data: a table and a report, no download
	$(BIN)/tacit demo

field: $(VENV)/field  ## what a coordinator, a device and the pages need, and no more

field-demo: $(VENV)/dev  ## a coordinator and fourteen devices under masks as processes on this machine, with TLS [METHOD=name]
	$(BIN)/python tools/field_demo.py $(METHOD)

peer: $(VENV)/peer  ## what a peer without a server needs, and no more

peer-demo: $(VENV)/dev  ## eight peers and two routers as processes on this machine, a router killed on the way
	$(BIN)/python tools/peer_demo.py

test: $(VENV)/dev  ## every test (real-data tests run where TACIT_DATA points at the data)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not reproduce and not fuzz"

quick: $(VENV)/dev  ## what is not marked slow: under a minute, once kernels are compiled
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not reproduce and not fuzz and not slow and not data" --durations=20 --durations-min=0.5

check: lint test  ## format, lint, strict types, import floors, parameters, tests

lint: $(VENV)/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python tools/floors.py
	$(BIN)/python tools/names.py
	$(BIN)/python tools/parameters.py
	$(BIN)/python tools/check_tests.py

format: $(VENV)/dev  ## put the code into its usual form
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/docs  ## the documentation site in build/site/html: offline, warnings are errors
	$(BIN)/python tools/site_pages.py

figures: $(VENV)/dev  ## every figure and screenshot of the documentation anew: hours with all studies [ONLY="demo pages"]
	$(BIN)/python tools/figures.py $(ONLY)

wheel: $(VENV)/dev  ## wheel and sdist, the wheel installed into an empty environment and run there
	$(BIN)/python tools/check_wheel.py

bench: $(VENV)/bench  ## speeds beside peers, one JSON line each [ONLY=name]
	$(BIN)/python -m benchmarks $(ONLY)

reproduce: $(VENV)/dev  ## slow reproductions of published tables
	$(BIN)/python -m pytest -m reproduce

coverage: $(VENV)/dev  ## every test with the share of lines that they run; pages in build/coverage
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not reproduce and not fuzz" --cov --cov-report=html:build/coverage --cov-report=term

fuzz: $(VENV)/dev  ## the secure sum under many thousands of rounds, drops and mutated messages (more than an hour)
	$(BIN)/python -m pytest -n 2 -m fuzz

lock: $(VENV)/dev  ## renew the locked dependencies
	$(PIP) install "uv>=0.9"
	$(COMPILE) --extra dev --extra cluster --extra page --extra field --extra peer --extra onnx --extra optuna -o requirements/dev.lock
	$(COMPILE) --extra page -c requirements/dev.lock -o requirements/core.lock
	$(COMPILE) --extra page --extra field -c requirements/dev.lock -o requirements/field.lock
	$(COMPILE) --extra page --extra peer -c requirements/dev.lock -o requirements/peer.lock
	$(COMPILE) --extra page --extra docs -c requirements/dev.lock -o requirements/docs.lock
	$(COMPILE) --extra dev --extra cluster --extra page --extra field --extra peer --extra onnx --extra optuna --extra bench -c requirements/dev.lock -o requirements/bench.lock

clean:  ## remove the environment and everything made here
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis runs

COMPILE := $(BIN)/uv pip compile pyproject.toml requirements/build.in --universal --python-version 3.11 --generate-hashes \
	--no-header --no-annotate --quiet --upgrade

# One marker file per set of packages: made when all of them are installed, remade when the lock changes.
# What builds Tacit itself is in the locks too: nothing is fetched that has no hash. A lock is complete, so nothing is
# resolved: pip would refuse a lock as soon as a package that another one asks for with an extra has a newer version.
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Tacit needs Python 3.11 or newer; $(PYTHON) is older. Run: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/core $(VENV)/field $(VENV)/peer $(VENV)/dev $(VENV)/docs $(VENV)/bench: $(VENV)/%: requirements/%.lock pyproject.toml | $(VENV)/bin/python
	@echo "Installing the packages of $< into $(VENV): a minute or two, once."
	@$(PIP) install --no-deps --require-hashes -r $<
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@
