// MXFP4 experts: 4-bit weights in groups of 32 with one power-of-two scale each, in quad order (contract rule 6).
#pragma once

#include "decode.h"
#include "vec.h"

namespace lilliput {
namespace {

// Element i of a block of 128 meets lane 4 * (i / 32) + (i / 4) % 4; its turn there is 4 * (i / 16 % 2) + i % 4.
void quad_order(float* to, const float* x, size_t n) {
  for (size_t b = 0; b < padded(n); b += kBlock) {
    float block[kBlock] = {};
    std::memcpy(block, x + b, (n - b < kBlock ? n - b : kBlock) * sizeof(float));
    for (size_t m = 0; m < 8; m++)
      for (size_t l = 0; l < 16; l++) to[b + 16 * m + l] = block[32 * (l / 4) + 16 * (m / 4) + 4 * (l % 4) + m % 4];
  }
}

// The compiler's prefetch never faults, so running past the end of the mapping is harmless.
inline void prefetch(const uint8_t* p, size_t ahead) {
  __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(p) + ahead));
}

template <size_t R, size_t T>
struct Mxfp4 {
  F acc[R][T];

  inline void block(size_t r, const uint8_t* packed, const uint8_t* scales, const float* x, size_t stride, Bytes16 high, Bytes16 low) {
    const Tile q = mxfp4_block(packed, high, low);
    const F scale = mxfp4_scales(scales);
    const F w[8] = {even(q.v[0]), even(q.v[1]), odd(q.v[0]), odd(q.v[1]), even(q.v[2]), even(q.v[3]), odd(q.v[2]), odd(q.v[3])};
    for (size_t t = 0; t < T; t++) {
      F part = w[0] * load(x + t * stride);
      for (size_t m = 1; m < 8; m++) part = fma(w[m], load(x + t * stride + 16 * m), part);
      acc[r][t] = fma(part, scale, acc[r][t]);
    }
  }

  inline void rows(float* y, size_t ld, const float* xq, size_t stride, const uint8_t* packed, const uint8_t* scales, size_t in) {
    const Bytes16 high = bytes16(kE2M1High), low = bytes16(kE2M1Low);
    for (size_t r = 0; r < R; r++)
      for (size_t t = 0; t < T; t++) acc[r][t] = zero();
    const size_t blocks = in / kBlock, rest = in % kBlock;
    for (size_t b = 0; b < blocks; b++)
      for (size_t r = 0; r < R; r++) {
        const uint8_t* p = packed + r * (in / 2) + 64 * b;
        prefetch(p, 2048);
        block(r, p, scales + r * (in / 32) + 4 * b, xq + b * kBlock, stride, high, low);
      }
    if (rest)
      for (size_t r = 0; r < R; r++) {  // whole groups of zeros complete the block
        alignas(64) uint8_t p[64] = {};
        uint8_t s[4] = {127, 127, 127, 127};
        std::memcpy(p, packed + r * (in / 2) + 64 * blocks, rest / 2);
        std::memcpy(s, scales + r * (in / 32) + 4 * blocks, rest / 32);
        block(r, p, s, xq + blocks * kBlock, stride, high, low);
      }
    for (size_t t = 0; t < T; t++)
      for (size_t r = 0; r < R; r++) y[t * ld + r] = reduce(acc[r][t]) + 0.0f;
  }
};

// One token: one row at a time with prefetch, the fastest measured (more rows are more streams). Several: two rows share the
// activations of four tokens.
void mxfp4_kernel(float* y, size_t ld, const float* xq, size_t tokens, const uint8_t* packed, const uint8_t* scales, size_t rows,
                  size_t in) {
  const size_t stride = padded(in);
  size_t r = 0;
  if (tokens > 1)
    for (; r + 2 <= rows; r += 2) {
      const uint8_t *p = packed + r * (in / 2), *s = scales + r * (in / 32);
      size_t t = 0;
      for (; t + 4 <= tokens; t += 4) Mxfp4<2, 4>().rows(y + t * ld + r, ld, xq + t * stride, stride, p, s, in);
      for (; t + 2 <= tokens; t += 2) Mxfp4<2, 2>().rows(y + t * ld + r, ld, xq + t * stride, stride, p, s, in);
      for (; t < tokens; t++) Mxfp4<2, 1>().rows(y + t * ld + r, ld, xq + t * stride, stride, p, s, in);
    }
  for (; r < rows; r++)
    for (size_t t = 0; t < tokens; t++)
      Mxfp4<1, 1>().rows(y + t * ld + r, ld, xq + t * stride, stride, packed + r * (in / 2), scales + r * (in / 32), in);
}

}  // namespace
}  // namespace lilliput
