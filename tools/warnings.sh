#!/usr/bin/env bash
# Compile the core with every warning an error.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"
cmake -S . -B build/warnings -DLILLIPUT_PYTHON=OFF -DLILLIPUT_SELFTEST=ON -DLILLIPUT_WERROR=ON >/dev/null
cmake --build build/warnings -j 2
