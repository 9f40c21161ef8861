#!/usr/bin/env bash
# The core on the oldest x86-64 there is, emulated: it must load, find that only the scalar kernels fit, and give the pinned bits.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/cmake.sh

if [ "$(uname -m)" != x86_64 ]; then
  echo "baseline x86-64: this machine compiles for $(uname -m), nothing to test"
  exit
fi
install qemu-user
selftest build/baseline
qemu-x86_64 -cpu qemu64 build/baseline/lilliput_selftest --isa all --threads 2 | diff - tests/kernel_digests.txt
if qemu-x86_64 -cpu qemu64 build/baseline/lilliput_selftest --isa avx2 2>/dev/null; then
  echo "baseline x86-64: AVX2 was accepted on a processor without it"
  exit 1
fi
echo "baseline x86-64: all digests as pinned"
