# Everything a contributor or CI runs. Each target makes .venv and builds what it needs.
PYTHON ?= python3
VENV := .venv
# numpy itself has threads, which only tests use: they would fight over the cores with the test runners.
export OPENBLAS_NUM_THREADS := 1
BIN := $(VENV)/bin
BUILD_STAMP := $(VENV)/.built-$(shell cat CMakeLists.txt pyproject.toml src/core/*.* src/core/selftest/*.* src/core/bench/*.* 2>/dev/null | cksum | cut -d' ' -f1)

# They share .venv and build/: whoever calls us with -j, or has it in MAKEFLAGS, gets one after the other.
.NOTPARALLEL:
.PHONY: demo test hunt acceptance ladder lint bench test-sanitize test-aarch64 test-baseline clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check --upgrade pip

# Editable: Python changes show at once; a change of the core changes the stamp's name and builds again.
$(BUILD_STAMP): $(BIN)/python
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[dev]'
	rm -f $(VENV)/.built-*
	touch $@

demo: $(BUILD_STAMP)
	@printf "Once upon a time"
	@$(BIN)/lilliput generate demo "Once upon a time"

test: $(BUILD_STAMP)
	$(BIN)/python -m pytest -n 2 -m "not ladder and not acceptance"

# The tests that make up their examples, with new ones every time: make hunt ROUNDS=20
ROUNDS ?= 5
hunt: $(BUILD_STAMP)
	for round in $$(seq $(ROUNDS)); do \
	  $(BIN)/python -m pytest -q -n 2 -m "hypothesis and not ladder and not acceptance" --hypothesis-profile=hunt || exit 1; \
	done

ladder: $(BUILD_STAMP)
	$(BIN)/python -m pytest -n 2 -m ladder
	$(BIN)/python tools/exhaustive_functions.py

acceptance: $(BUILD_STAMP) test-aarch64 test-baseline test-sanitize
	$(BIN)/python -m pip install -q --disable-pip-version-check --group acceptance
	tools/test_wheel.sh
	$(BIN)/python -m pytest -m acceptance

lint: $(BUILD_STAMP)
	$(BIN)/python -m pip install -q --disable-pip-version-check --group lint
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $$(git ls-files 'src/core/*.h' 'src/core/*.cpp' 'src/core/*.inl')
	tools/warnings.sh
	tools/line_counts.sh

bench: $(BUILD_STAMP)
	test -e build/mini/config.json || $(BIN)/lilliput synth build/mini --shape mini
	$(BIN)/lilliput bench open build/mini
	$(BIN)/lilliput bench disk build/mini
	$(BIN)/lilliput bench decode build/mini --memory 700MB
	$(BIN)/lilliput bench prefill build/mini
	$(BIN)/lilliput bench kernels

test-sanitize:
	tools/test_sanitize.sh

test-aarch64:
	tools/test_aarch64.sh

test-baseline:
	tools/test_baseline.sh

clean:
	rm -rf build $(VENV)
