#!/usr/bin/env bash
# Lines per file, longest first: a file above 400 lines is probably two ideas.
set -euo pipefail
cd "$(dirname "$0")/.."
git ls-files 'src/*.py' 'src/core/*' | xargs wc -l | sort -rn | head -n "${1:-12}"
