// Absorbed attention of one token over float32 latents (contract rule 10): one lane per head, so scores need no sums across
// lanes; queries and outputs are turned into [latent][head] scratch, and a tile of positions x head registers stays in registers.
#pragma once

#include "kernels_math.h"
#include "math_functions.inl"
#include "vec.h"

namespace lilliput {
namespace {

// Accumulators of a tile: 24 of 32 zmm, 12 of 16 ymm (an F is two of them), 24 of 32 q registers (an F is four). In what is left
// there is room for a broadcast per row, whose registers are all alike, and for one head register of the column.
#if defined(LILLIPUT_ISA_AVX512)
constexpr int kTileRows = 4, kTileHeads = 6;
#elif defined(LILLIPUT_ISA_AVX2)
constexpr int kTileRows = 2, kTileHeads = 3;
#elif defined(LILLIPUT_ISA_NEON)
constexpr int kTileRows = 3, kTileHeads = 2;
#else
constexpr int kTileRows = 1, kTileHeads = 1;
#endif

// out[row][head] (+)= sum over i ascending of element i of the row times column[i][head]. Element i of row a is at
// rows[a * row_step + i * step]: the latents of one position are (row_step, step) = (width, 1), one latent of successive
// positions is (1, width). Rows of `column` and `out` are `pitch` floats. Starts from +0 or, where `onto`, from `out`.
struct HeadProduct {
  float* out;
  const float *rows, *column;
  size_t pitch, row_step, step, n;
  bool onto;
};

template <int ROWS, int R>
inline void head_tile(const HeadProduct& p, size_t row, size_t head) {
  const float *rows = p.rows + row * p.row_step, *column = p.column + head;
  float* out = p.out + row * p.pitch + head;
  F acc[ROWS][R];
  for (int a = 0; a < ROWS; a++)
    for (int b = 0; b < R; b++) acc[a][b] = p.onto ? load(out + a * p.pitch + b * kLanes) : zero();
  for (size_t i = 0; i < p.n; i++, rows += p.step, column += p.pitch) {
    F x[ROWS];
    for (int a = 0; a < ROWS; a++) x[a] = splat(rows[a * p.row_step]);
    for (int b = 0; b < R; b++) {
      const F c = load(column + b * kLanes);
      for (int a = 0; a < ROWS; a++) acc[a][b] = fma(x[a], c, acc[a][b]);
    }
  }
  for (int a = 0; a < ROWS; a++)
    for (int b = 0; b < R; b++) store(out + a * p.pitch + b * kLanes, acc[a][b]);
}

// Terms of a sum taken at a time: what they need of `column`, kDepth x 96 heads, stays in the first-level cache.
constexpr size_t kDepth = 64;

// The positions of the next tile. Of each only kDepth latents are read and then another position's: the hardware foresees little.
inline void prefetch_rows(const HeadProduct& p, size_t row) {
  for (size_t a = row; a < row + kTileRows && p.step == 1; a++)
    for (size_t i = 0; i < p.n; i += kLanes) prefetch(p.rows + a * p.row_step + i);
}

// Heads [head, padded), R registers at a time and fewer for what is left.
template <int R>
inline void head_product(const HeadProduct& p, size_t count, size_t head, size_t padded) {
  for (; head + R * kLanes <= padded; head += R * kLanes) {
    size_t row = 0;
    for (; row + kTileRows <= count; row += kTileRows) {
      if (head == 0) prefetch_rows(p, row + kTileRows);
      head_tile<kTileRows, R>(p, row, head);
    }
    for (; row < count; row++) head_tile<1, R>(p, row, head);
  }
  if constexpr (R > 1)
    if (head < padded) head_product<R - 1>(p, count, head, padded);
}

inline void head_product(HeadProduct p, size_t count, size_t padded) {
  for (size_t left = p.n; left; left -= p.n) {
    p.n = left < kDepth ? left : kDepth;
    head_product<kTileHeads>(p, count, 0, padded);
    p.rows += p.n * p.step;
    p.column += p.n * p.pitch;
    p.onto = true;
  }
}

inline void attend(float* o, const float* q, const float* const* blocks, size_t positions, float scale, size_t heads, size_t latent,
                   size_t rest, float* scratch) {
  const size_t padded = whole_lanes(heads), width = latent + rest;
  float* const query = scratch;                         // [width][padded]
  float* const sum = query + width * padded;            // [latent][padded], the o of rule 10
  float* const score = sum + latent * padded;           // [kBlockPositions][padded], scores and then their exponentials
  float* const top = score + kBlockPositions * padded;  // [padded], m
  float* const mass = top + padded;                     // [padded], l

  for (size_t i = 0; i < width; i++)
    for (size_t h = 0; h < padded; h++) query[i * padded + h] = h < heads ? q[h * width + i] : 0.0f;
  for (size_t i = 0; i < latent * padded; i += kLanes) store(sum + i, zero());
  for (size_t h = 0; h < padded; h += kLanes) {
    store(top + h, splat(-kInfinity));
    store(mass + h, zero());
  }

  for (size_t b = 0; b * kBlockPositions < positions; b++) {
    const size_t left = positions - b * kBlockPositions, n = left < kBlockPositions ? left : kBlockPositions;
    head_product({score, blocks[b], query, padded, width, 1, width, false}, n, padded);
    for (size_t h = 0; h < padded; h += kLanes) {
      float* const s = score + h;
      F best = splat(-kInfinity);
      for (size_t p = 0; p < n; p++) {
        const F x = load(s + p * padded) * splat(scale);
        store(s + p * padded, x);
        best = max(best, x);
      }
      const F before = load(top + h), now = max(before, best);
      const M grown = greater(now, before);
      F l = load(mass + h);
      if (b > 0 && any(grown)) {
        const F r = select(grown, exp(before - now), splat(1.0f));  // times 1 changes nothing
        l = l * r;
        for (size_t c = 0; c < latent; c++) store(sum + c * padded + h, load(sum + c * padded + h) * r);
      }
      for (size_t p = 0; p < n; p++) {
        const F e = exp(load(s + p * padded) - now);
        store(s + p * padded, e);
        l = l + e;
      }
      store(top + h, now);
      store(mass + h, l);
    }
    head_product({sum, blocks[b], score, padded, 1, width, n, true}, latent, padded);
  }

  for (size_t h = 0; h < padded; h += kLanes) {
    const F inverse = splat(1.0f) / load(mass + h);
    for (size_t c = 0; c < latent; c++) store(sum + c * padded + h, load(sum + c * padded + h) * inverse + zero());
  }
  for (size_t h = 0; h < heads; h++)
    for (size_t c = 0; c < latent; c++) o[h * latent + c] = sum[c * padded + h];
}

}  // namespace
}  // namespace lilliput
