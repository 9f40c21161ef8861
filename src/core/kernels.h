// The table of kernels that every instruction set fills in. A kernel works on one range on one thread; ops_*.cpp split the
// work over the pool. What each computes, to the last bit, is the arithmetic contract in docs/arithmetic.md.
#pragma once

#include "kernels_dot.h"
#include "kernels_math.h"

namespace lilliput {

struct Kernels {
  const char* name;  // scalar, avx2, avx512, neon
  DotKernels dot;
  MathKernels math;
};

extern const Kernels kernels_scalar, kernels_avx2, kernels_avx512, kernels_neon;

// The table in use: the widest the machine has, or the one asked for.
const Kernels& kernels();

}  // namespace lilliput
