// Few tokens: every block is opened in registers and meets them there, four rows at a time; one row is a single chain of dependent
// multiply-adds and leaves the memory idle, four keep it busy.
//
// Lanes are walked a machine register at a time, like in panel.inl: only that part of a block is opened, and its four to eight words,
// the sums of kFewTokens tokens and the tables of the format fit the registers of AVX2.
//
// Tried, and not worth it: prefetches marked non-temporal (0.6 of the speed of memory), two or four MXFP4 rows as parallel streams (its
// rows are short, one after the other is one long stream), turns of several rows side by side (the processor does that), opening into the
// first-level cache first (a store per vector).
#pragma once

#include "part.h"
#include "storage.inl"

namespace lilliput {
namespace {

// Parts side by side: one token alone would be a single chain.
template <size_t T>
constexpr size_t kPartsTogether = T == 1 ? kParts : 1;

// A row's block against T tokens; x: [T][128].
template <size_t T, class W>
inline void meet(F sums[T], const W& w, const typename W::Block& block, const float* x) {
  constexpr size_t P = kPartsTogether<T>;
  each<kParts / P>([&](auto some) {
    Part acc[P][T];
    each<P>([&](auto i) {
      for (size_t t = 0; t < T && !W::kScaled; t++) acc[i][t] = part<some * P + i>(sums[t]);
    });
    each<kTurns>([&](auto turn) {
      F weight = w.template weight<turn>(block);
      each<P>([&](auto i) {
        constexpr size_t p = some * P + i;
        for (size_t t = 0; t < T; t++) {
          const Part a = part_load(x + t * kBlock + turn * kLanes + p * kPartLanes);
          acc[i][t] = W::kScaled && turn == 0 ? part_mul(part<p>(weight), a) : part_fma(part<p>(weight), a, acc[i][t]);
        }
      });
    });
    each<P>([&](auto i) {
      constexpr size_t p = some * P + i;
      for (size_t t = 0; t < T; t++) {
        if constexpr (W::kScaled) {
          F scale = block.scale;
          acc[i][t] = part_fma(acc[i][t], part<p>(scale), part<p>(sums[t]));
        }
        part<p>(sums[t]) = acc[i][t];
      }
    });
  });
}

// y[r - row] for the rows of the quad at `first` that are in [row, row + rows).
inline void store_quad(float* y, const F acc[4], size_t first, size_t row, size_t rows) {
  float sums[4];
  reduce(sums, acc);
  for (size_t r = 0; r < 4; r++)
    if (first + r >= row && first + r < row + rows) y[first + r - row] = sums[r] + 0.0f;
}

// S rows of a quad on their way through the columns.
template <size_t S, size_t T, class W>
struct Walk {
  typename W::Quad place;
  size_t quad, escape, special;  // the next escape, and the next block that is not as it is stored
  F sums[S][T];

  inline void start(const W& w, size_t q, size_t first) {
    place = w.quad(q, first);
    quad = q;
    escape = w.escape(q, 0);
    look_ahead(w);
    for (size_t r = 0; r < S; r++)
      for (size_t t = 0; t < T; t++) sums[r][t] = zero();
  }
  inline void look_ahead(const W& w) {
    special = w.escape_block(quad, escape);
    if (special > w.whole) special = w.whole;
  }
  inline void step(const W& w, size_t b, const float* x) {
    if (__builtin_expect(b != special, 1)) {
      for (size_t r = 0; r < S; r++) {
        w.ahead(place, r, b);
        meet<T>(sums[r], w, w.block(place, r, b), x);
      }
      return;
    }
    constexpr size_t row = W::kVectors * kLanes;
    alignas(64) float opened[4 * row];
    escape = open(opened, w, place, quad, b, escape);
    look_ahead(w);
    for (size_t r = 0; r < S; r++) meet<T>(sums[r], Opened<W::kScaled>{}, {opened + r * row}, x);
  }
};

// Rows [row, row + rows) of w against T tokens; x: [block][T][128]. Several tokens' activations come from the second-level cache,
// once for two quads; for the shorter rows of MXFP4 more streams of weights cost more than that.
template <size_t T, class W>
void dot_some(float* y, size_t ld, const float* x, const W& w, size_t row, size_t rows, size_t in) {
  constexpr size_t S = T > 1 ? 4 : W::kStreams, Q = T > 1 && !W::kScaled ? 2 : 1;
  const size_t end = (row + rows + 3) / 4;
  for (size_t quad = row / 4; quad < end; quad += Q) {
    const size_t quads = end - quad < Q ? end - quad : Q;
    F sums[Q][T][4];
    for (size_t first = 0; first < 4; first += S) {
      Walk<S, T, W> walk[Q];
      for (size_t q = 0; q < quads; q++) walk[q].start(w, quad + q, first);
      for (size_t b = 0; b < blocks_of(in); b++)
        for (size_t q = 0; q < quads; q++) walk[q].step(w, b, x + b * T * kBlock);
      for (size_t q = 0; q < quads; q++)
        for (size_t t = 0; t < T; t++)
          for (size_t r = 0; r < S; r++) sums[q][t][first + r] = walk[q].sums[r][t];
    }
    for (size_t q = 0; q < quads; q++)
      for (size_t t = 0; t < T; t++) store_quad(y + t * ld, sums[q][t], 4 * (quad + q), row, rows);
  }
}

template <class W, size_t T = kFewTokens>
inline void dot_few(float* y, size_t ld, const float* x, size_t tokens, const W& w, size_t row, size_t rows, size_t in) {
  if (tokens == T)
    dot_some<T>(y, ld, x, w, row, rows, in);
  else if constexpr (T > 1)
    dot_few<W, T - 1>(y, ld, x, tokens, w, row, rows, in);
}

}  // namespace
}  // namespace lilliput
