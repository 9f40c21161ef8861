// The KDA recurrence (contract rules 8 and 13), vector along the value dimension: one lane per column of S, so there are no
// sums across lanes and columns are independent of each other.
//
// Up to 64 columns of a head are copied to scratch, where they stay in the first-level cache while all tokens run (128 x 64
// floats are 32 KB), so the state is read and written once per call whatever the number of tokens.
#pragma once

#include "elementwise.inl"
#include "kernels_math.h"
#include "vec.h"

namespace lilliput {
namespace {

struct KdaHead {
  float* o;  // this and the next five: of this head's first token; a token is `stride` further
  const float *q, *k, *v, *alpha, *beta;
  float* s_out;
  const float* s_in;
  size_t tokens, stride, beta_stride, width;
};

// Columns [first, first + columns) with columns <= 16 R; lanes beyond compute on zeros.
template <int R>
inline void kda_columns(const KdaHead& a, size_t first, size_t columns, float* s) {
  const size_t width = a.width;
  size_t lanes[R];
  for (int r = 0; r < R; r++) lanes[r] = columns - 16 * size_t(r) < kLanes ? columns - 16 * size_t(r) : kLanes;
  for (size_t i = 0; i < width; i++)
    for (int r = 0; r < R; r++) store(s + (i * R + r) * kLanes, load_some(a.s_in + i * width + first + 16 * r, lanes[r]));

  for (size_t t = 0; t < a.tokens; t++) {
    const size_t at = t * a.stride;
    const float *q = a.q + at, *k = a.k + at, *alpha = a.alpha + at;
    F w[R], o[R], u[R];
    for (int r = 0; r < R; r++) w[r] = o[r] = zero();
    for (size_t i = 0; i < width; i++) {
      const F decay = splat(alpha[i]), key = splat(k[i]);
      for (int r = 0; r < R; r++) {
        float* cell = s + (i * R + r) * kLanes;
        const F x = load(cell) * decay;
        store(cell, x);
        w[r] = fma(x, key, w[r]);
      }
    }
    const F beta = splat(a.beta[t * a.beta_stride]);
    for (int r = 0; r < R; r++) u[r] = beta * (load_some(a.v + at + first + 16 * r, lanes[r]) - (w[r] + zero()));
    for (size_t i = 0; i < width; i++) {
      const F key = splat(k[i]), query = splat(q[i]);
      for (int r = 0; r < R; r++) {
        float* cell = s + (i * R + r) * kLanes;
        const F x = fma(key, u[r], load(cell));
        store(cell, x);
        o[r] = fma(x, query, o[r]);
      }
    }
    if (a.o)
      for (int r = 0; r < R; r++) store_some(a.o + at + first + 16 * r, o[r] + zero(), lanes[r]);
  }

  if (a.s_out)
    for (size_t i = 0; i < width; i++)
      for (int r = 0; r < R; r++) store_some(a.s_out + i * width + first + 16 * r, load(s + (i * R + r) * kLanes), lanes[r]);
}

inline void kda(float* o, float* s_out, const float* s_in, const float* q, const float* k, const float* v, const float* alpha,
                const float* beta, size_t tokens, size_t heads, size_t width, size_t head, float* scratch) {
  const size_t at = head * width;
  const KdaHead a = {o ? o + at : nullptr, q + at, k + at, v + at, alpha + at, beta + head, s_out, s_in, tokens,
                     heads * width,        heads,  width};
  for (size_t first = 0, columns; first < width; first += columns) {
    const size_t left = width - first;
    if (left > 48) {
      columns = left < 64 ? left : 64;
      kda_columns<4>(a, first, columns, scratch);
    } else {
      columns = left < 16 ? left : 16;
      kda_columns<1>(a, first, columns, scratch);
    }
  }
}

}  // namespace
}  // namespace lilliput
