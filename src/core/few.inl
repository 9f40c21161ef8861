// Few tokens: every block is opened in registers and meets them there, four rows at a time; one row is a single chain of dependent
// multiply-adds and leaves the memory idle, four keep it busy.
//
// Lanes are walked a machine register at a time, like in panel.inl: only that part of a block is opened, and its four to eight words,
// the sums of kFew tokens and the tables of the format fit the registers of AVX2.
//
// Tried, and not worth it: prefetches marked non-temporal (0.6 of the speed of memory), two or four MXFP4 rows as parallel streams (its
// rows are short, one after the other is one long stream), opening into the first-level cache first (a store per vector).
#pragma once

#include "part.h"
#include "storage.inl"

namespace lilliput {
namespace {

constexpr size_t kFew = 6;

// Chains of dependent operations side by side: for one token the parts of a row, and for one or two some rows.
template <size_t T>
constexpr size_t kPartsTogether = T == 1 ? kParts : 1;
template <size_t T>
constexpr size_t kRowsTogether = kParts == 1 && T <= 2 ? 2 : 1;

// A block of R rows against T tokens; x: [T][128].
template <size_t R, size_t T, class W>
inline void meet(F (*sums)[T], const W& w, const typename W::Block* block, const float* x) {
  constexpr bool scaled = requires { block->scale; };
  constexpr size_t P = kPartsTogether<T>;
  each<kParts / P>([&](auto some) {
    Part acc[P][R][T];
    each<P>([&](auto i) {
      constexpr size_t p = some * P + i;
      for (size_t r = 0; r < R && !scaled; r++)
        for (size_t t = 0; t < T; t++) acc[i][r][t] = part<p>(sums[r][t]);
    });
    each<kTurns>([&](auto turn) {
      each<P>([&](auto i) {
        constexpr size_t p = some * P + i;
        Part weight[R];
        for (size_t r = 0; r < R; r++) {
          F whole = w.template weight<turn>(block[r]);
          weight[r] = part<p>(whole);
        }
        for (size_t t = 0; t < T; t++) {
          const Part a = part_load(x + t * kBlock + turn * kLanes + p * kPartLanes);
          for (size_t r = 0; r < R; r++) acc[i][r][t] = scaled && turn == 0 ? part_mul(weight[r], a) : part_fma(weight[r], a, acc[i][r][t]);
        }
      });
    });
    each<P>([&](auto i) {
      constexpr size_t p = some * P + i;
      for (size_t r = 0; r < R; r++)
        for (size_t t = 0; t < T; t++) {
          if constexpr (scaled) {
            F scale = block[r].scale;
            acc[i][r][t] = part_fma(acc[i][r][t], part<p>(scale), part<p>(sums[r][t]));
          }
          part<p>(sums[r][t]) = acc[i][r][t];
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

// Rows [row, row + rows) of w against T tokens; x: [block][T][128].
template <size_t T, class W>
void dot_some(float* y, size_t ld, const float* x, const W& w, size_t row, size_t rows, size_t in) {
  constexpr size_t R = kRowsTogether<T>, streams = T > 1 ? 4 : W::kStreams < R ? R : W::kStreams, opened_row = W::kVectors * kLanes;
  for (size_t quad = row / 4; 4 * quad < row + rows; quad++) {
    F quads[4][T];
    for (size_t first = 0; first < 4; first += streams) {
      const auto place = w.quad(quad, first);
      F sums[streams][T];
      for (size_t r = 0; r < streams; r++)
        for (size_t t = 0; t < T; t++) sums[r][t] = zero();
      size_t e = w.escape(quad, 0);
      const auto next = [&] { return w.escape_block(quad, e) < w.whole ? w.escape_block(quad, e) : w.whole; };
      const float* a = x;
      for (size_t b = 0, special = next(); b < blocks_of(in); b++, a += T * kBlock) {
        if (__builtin_expect(b != special, 1)) {
          for (size_t r = 0; r < streams; r += R) {
            typename W::Block block[R];
            for (size_t i = 0; i < R; i++) {
              w.ahead(place, r + i, b);
              block[i] = w.block(place, r + i, b);
            }
            meet<R, T>(sums + r, w, block, a);
          }
        } else {
          alignas(64) float opened[4 * opened_row];
          e = open(opened, w, place, quad, b, e);
          special = next();
          for (size_t r = 0; r < streams; r++) {
            const OpenedRow<W::kScaled> block[] = {{opened + r * opened_row}};
            meet<1, T>(sums + r, Opened<W::kScaled>{}, block, a);
          }
        }
      }
      for (size_t r = 0; r < streams; r++)
        for (size_t t = 0; t < T; t++) quads[first + r][t] = sums[r][t];
    }
    for (size_t t = 0; t < T; t++) {
      const F acc[4] = {quads[0][t], quads[1][t], quads[2][t], quads[3][t]};
      store_quad(y + t * ld, acc, 4 * quad, row, rows);
    }
  }
}

template <class W, size_t T = kFew>
inline void dot_few(float* y, size_t ld, const float* x, size_t tokens, const W& w, size_t row, size_t rows, size_t in) {
  if (tokens == T)
    dot_some<T>(y, ld, x, w, row, rows, in);
  else if constexpr (T > 1)
    dot_few<W, T - 1>(y, ld, x, tokens, w, row, rows, in);
}

}  // namespace
}  // namespace lilliput
