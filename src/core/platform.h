// Everything that differs between processors.
#pragma once

#include <cstddef>

namespace lilliput {

// An instruction set is usable when the processor has it and the operating system saves its registers.
bool cpu_has_avx2_fma();
bool cpu_has_avx512();  // F, BW, VL, DQ

// For the life of the object this thread rounds to nearest and keeps subnormals (contract rule 1); the former mode comes back after.
class FpuGuard {
 public:
  FpuGuard();
  ~FpuGuard();
  FpuGuard(const FpuGuard&) = delete;
  FpuGuard& operator=(const FpuGuard&) = delete;

 private:
  unsigned long long saved_;
};

}  // namespace lilliput
