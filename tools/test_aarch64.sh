#!/usr/bin/env bash
# The core on a 64-bit ARM processor, emulated where this machine is none: scalar and NEON kernels must give the pinned bits.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/cmake.sh

if [ "$(uname -m)" = aarch64 ]; then
  run=()
  selftest build/aarch64
else
  install g++-aarch64-linux-gnu qemu-user
  run=(qemu-aarch64)
  selftest build/aarch64 -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
    -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ -DCMAKE_EXE_LINKER_FLAGS=-static
fi
for isa in scalar neon; do
  "${run[@]}" build/aarch64/lilliput_selftest --isa "$isa" --threads 2 | diff - tests/kernel_digests.txt
  echo "aarch64, $isa: all digests as pinned"
done
