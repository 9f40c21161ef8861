#!/usr/bin/env bash
# Lines per file, longest first: a file above 400 lines is probably two ideas.
# awk and not head: head goes when it has its lines, and sort, still writing, would be killed and fail the script.
set -euo pipefail
cd "$(dirname "$0")/.."
git ls-files 'src/*.py' 'src/core/*' | xargs wc -l | sort -rn | awk -v most="${1:-12}" 'NR <= most'
