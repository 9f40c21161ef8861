// The KDA recurrence (contract rules 8 and 13), vector along the value dimension: one lane per column of S, so there are no
// sums across lanes and columns are independent of each other.
//
// Some columns of a head are worked on at a time, in scratch that stays in the first-level cache while all tokens run, so the state
// is read and written once per call whatever the number of tokens. S is kept there as the decay of the next token leaves it: the
// update and output of one token and the decay and prediction of the next are one walk over S.
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

// Columns of a walk: w, u and o of each, and four factors of a row, are registers.
#if defined(LILLIPUT_ISA_AVX512)
constexpr int kKdaVectors = 4;
#else
constexpr int kKdaVectors = 2;
#endif

// Columns [first, first + 16 R), or, for R = 1, the `columns` that there are; lanes beyond compute on zeros.
template <int R>
inline void kda_columns(const KdaHead& a, size_t first, size_t columns, float* s) {
  const size_t width = a.width;
  const auto from = [&](const float* p, int r) { return R > 1 ? load(p + 16 * r) : load_some(p, columns); };
  const auto to = [&](float* p, int r, F x) { R > 1 ? store(p + 16 * r, x) : store_some(p, x, columns); };
  // Asked for ahead: the columns to come, here or in the next head, and what the next tokens bring, each far from the last.
  const size_t next_columns = (first + 16 * R < width ? 16 * R : width * width - first) * sizeof(float);
  const auto ask_for_token = [&](size_t t) {
    const float* const from[] = {a.q, a.k, a.v, a.alpha};
    for (size_t i = 0; i < width && t < a.tokens; i += kLanes)
      for (const float* p : from) prefetch(p + t * a.stride + i);
  };
  ask_for_token(1);
  F w[R], o[R], u[R];
  for (int r = 0; r < R; r++) w[r] = zero();
  for (size_t i = 0; i < width; i++) {
    const F decay = splat(a.alpha[i]), key = splat(a.k[i]);
    for (int r = 0; r < R; r++) {
      const float* cell = a.s_in + i * width + first;
      prefetch_far(cell + r * kLanes, next_columns);
      const F x = from(cell, r) * decay;
      store(s + (i * R + r) * kLanes, x);
      w[r] = fma(x, key, w[r]);
    }
  }
  for (size_t t = 0;; t++) {
    const size_t at = t * a.stride, next = at + a.stride;
    ask_for_token(t + 2);
    const F beta = splat(a.beta[t * a.beta_stride]);
    for (int r = 0; r < R; r++) {
      u[r] = beta * (from(a.v + at + first, r) - (w[r] + zero()));
      w[r] = o[r] = zero();
    }
    const bool last = t + 1 == a.tokens;
    for (size_t i = 0; i < width && !last; i++) {
      const F key = splat(a.k[at + i]), query = splat(a.q[at + i]), decay = splat(a.alpha[next + i]), next_key = splat(a.k[next + i]);
      for (int r = 0; r < R; r++) {
        float* cell = s + (i * R + r) * kLanes;
        const F x = fma(key, u[r], load(cell)), y = x * decay;
        store(cell, y);
        o[r] = fma(x, query, o[r]);
        w[r] = fma(y, next_key, w[r]);
      }
    }
    for (size_t i = 0; i < width && last; i++) {
      const F key = splat(a.k[at + i]), query = splat(a.q[at + i]);
      for (int r = 0; r < R; r++) {
        const F x = fma(key, u[r], load(s + (i * R + r) * kLanes));
        if (a.s_out) to(a.s_out + i * width + first, r, x);
        o[r] = fma(x, query, o[r]);
      }
    }
    if (a.o)
      for (int r = 0; r < R; r++) to(a.o + at + first, r, o[r] + zero());
    if (last) return;
  }
}

inline void kda(float* o, float* s_out, const float* s_in, const float* q, const float* k, const float* v, const float* alpha,
                const float* beta, size_t tokens, size_t heads, size_t width, size_t head, float* scratch) {
  const size_t at = head * width;
  const KdaHead a = {o ? o + at : nullptr, q + at, k + at, v + at, alpha + at, beta + head, s_out, s_in, tokens,
                     heads * width,        heads,  width};
  size_t first = 0;
  for (; first + kKdaVectors * kLanes <= width; first += kKdaVectors * kLanes) kda_columns<kKdaVectors>(a, first, 0, scratch);
  for (; first < width; first += kLanes) kda_columns<1>(a, first, width - first < kLanes ? width - first : kLanes, scratch);
}

}  // namespace
}  // namespace lilliput
