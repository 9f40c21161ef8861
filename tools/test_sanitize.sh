#!/usr/bin/env bash
# The core's self-test and the reader's stress program under the address, undefined-behaviour and thread sanitizers, on every instruction set of this machine.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/cmake.sh

# Without address randomisation: the thread sanitizer's fixed memory map does not allow for as much of it as kernels now use.
plain=()
if command -v setarch >/dev/null && setarch -R true 2>/dev/null; then plain=(setarch -R); fi

for sanitizers in address,undefined thread; do
  directory=build/sanitize-${sanitizers%%,*}
  selftest "$directory" -DLILLIPUT_SANITIZE="$sanitizers"
  "${plain[@]}" "$directory/lilliput_selftest" --threads 3 | diff - tests/kernel_digests.txt
  "${plain[@]}" "$directory/lilliput_reader_stress" "$directory" 12
  echo "$sanitizers: nothing found, all digests as pinned"
done
