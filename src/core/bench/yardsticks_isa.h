// The same on one range and one thread, compiled once per instruction set like the kernels.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lilliput::bench {

struct Yardsticks {
  const char* name;
  size_t chains;                                    // of sixteen lanes each in `peak`
  uint64_t (*read)(const uint8_t* from, size_t n);  // loads every byte into one of four accumulators
  float (*peak)(size_t rounds);                     // each round one fused multiply-add per lane of independent chains, all in registers
  // Product and sum apart, one row after the other, element i in lane i % 4.
  void (*bf16_doubles)(float* y, const float* x, const uint8_t* w, size_t rows, size_t in);
  void (*mxfp4_doubles)(float* y, const float* x, const uint8_t* packed, const uint8_t* scales, size_t rows, size_t in);
};

extern const Yardsticks yardsticks_scalar, yardsticks_avx2, yardsticks_avx512, yardsticks_neon;

}  // namespace lilliput::bench
