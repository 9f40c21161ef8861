// Transposed products (contract rule 8): one lane per output column, fused multiply-adds over the rows in order, from +0.
#pragma once

#include "vec.h"

namespace lilliput {
namespace {

// 32 columns of one row as two vectors, and back. The two float orders differ (halves, or even and odd columns), which is fine:
// a lane belongs to one column from beginning to end.
struct Columns {
  F a, b;
};

struct Bf16 {
  static constexpr size_t kBytes = 2;
  static inline Columns load(const uint8_t* p) {
    const U w = load_u(p);
    return {even(w), odd(w)};
  }
  static inline void order(float* to, const float* a, const float* b) {
    for (size_t l = 0; l < 16; l++) {
      to[2 * l] = a[l];
      to[2 * l + 1] = b[l];
    }
  }
};

struct F32 {
  static constexpr size_t kBytes = 4;
  static inline Columns load(const uint8_t* p) { return {from_bits(load_u(p)), from_bits(load_u(p + 64))}; }
  static inline void order(float* to, const float* a, const float* b) {
    std::memcpy(to, a, 64);
    std::memcpy(to + 16, b, 64);
  }
};

// N times 32 columns of T tokens. `count` columns are stored; a row shorter than 32 columns is read through zero-filled scratch.
template <class W, size_t N, size_t T>
inline void columns(float* y, size_t ldy, const float* x, size_t ldx, const uint8_t* w, size_t stride, size_t depth, size_t count) {
  F a[T][N], b[T][N];
  for (size_t t = 0; t < T; t++)
    for (size_t n = 0; n < N; n++) a[t][n] = b[t][n] = zero();
  alignas(64) uint8_t padded_row[32 * W::kBytes] = {};
  for (size_t d = 0; d < depth; d++) {
    const uint8_t* row = w + d * stride;
    if (count < 32) {
      std::memcpy(padded_row, row, count * W::kBytes);
      row = padded_row;
    }
    Columns c[N];
    for (size_t n = 0; n < N; n++) c[n] = W::load(row + 32 * W::kBytes * n);
    for (size_t t = 0; t < T; t++) {
      const F each = splat(x[t * ldx + d]);
      for (size_t n = 0; n < N; n++) {
        a[t][n] = fma(c[n].a, each, a[t][n]);
        b[t][n] = fma(c[n].b, each, b[t][n]);
      }
    }
  }
  for (size_t t = 0; t < T; t++)
    for (size_t n = 0; n < N; n++) {
      float first[16], second[16], out[32];
      store(first, a[t][n] + zero());
      store(second, b[t][n] + zero());
      W::order(out, first, second);
      std::memcpy(y + t * ldy + 32 * n, out, (count < 32 ? count : 32) * sizeof(float));
    }
}

// Accumulators: 2 N T vectors. AVX-512 and NEON-sized register files take 16 machine registers, AVX2 takes 8.
#if defined(LILLIPUT_ISA_AVX512)
constexpr size_t kAlone = 4, kShared = 2, kSharing = 4;
#else
constexpr size_t kAlone = 2, kShared = 1, kSharing = 2;
#endif

template <class W, size_t N, size_t T>
inline void column_range(float* y, size_t ldy, const float* x, size_t ldx, const uint8_t* w, size_t stride, size_t depth, size_t count) {
  size_t c = 0;
  for (; c + 32 * N <= count; c += 32 * N) columns<W, N, T>(y + c, ldy, x, ldx, w + c * W::kBytes, stride, depth, 32 * N);
  for (; c + 32 <= count; c += 32) columns<W, 1, T>(y + c, ldy, x, ldx, w + c * W::kBytes, stride, depth, 32);
  if (c < count) columns<W, 1, T>(y + c, ldy, x, ldx, w + c * W::kBytes, stride, depth, count - c);
}

template <class W>
void transposed(float* y, size_t ldy, const float* x, size_t ldx, size_t tokens, const uint8_t* w, size_t stride, size_t depth,
                size_t count) {
  size_t t = 0;
  for (; t + kSharing <= tokens; t += kSharing)
    column_range<W, kShared, kSharing>(y + t * ldy, ldy, x + t * ldx, ldx, w, stride, depth, count);
  for (; t < tokens; t++) column_range<W, kAlone, 1>(y + t * ldy, ldy, x + t * ldx, ldx, w, stride, depth, count);
}

void transposed_f32(float* y, size_t ldy, const float* x, size_t ldx, size_t tokens, const uint8_t* w, size_t stride, size_t depth,
                    size_t count) {
  transposed<F32>(y, ldy, x, ldx, tokens, w, stride, depth, count);
}

void transposed_bf16(float* y, size_t ldy, const float* x, size_t ldx, size_t tokens, const uint8_t* w, size_t stride, size_t depth,
                     size_t count) {
  transposed<Bf16>(y, ldy, x, ldx, tokens, w, stride, depth, count);
}

}  // namespace
}  // namespace lilliput
