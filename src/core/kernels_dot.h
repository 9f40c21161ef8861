// Dot products with streamed weights: contract rules 5 to 8, and the last step of rule 11.
#pragma once

#include <cstddef>
#include <cstdint>

#include "k12.h"

namespace lilliput {

// Names: x activations, y results, w weights. Rows of y lie `ld` floats apart, one row per token; `rows` results go to each.
// xp, xq: the activations in pair or quad order, [block of 128 columns][token][128], zero-padded. Weights may have any alignment.
// At most kMostTokens at a time; up to kFewTokens meet the weights in registers (few.inl), more of them opened panels (panel.inl).
constexpr size_t kMostTokens = 64, kFewTokens = 6;

// scratch: this many floats at a 64-byte boundary, where there is more than one token. Sums of a strip of rows, and a panel of opened
// weights (panel.inl).
constexpr size_t kStripSums = 1 << 16, kMostOpened = 8 * 4 * 9 * 16, kDotScratch = kStripSums + kMostOpened;

struct DotKernels {
  // One token: its blocks go to xp, xp + step, ...
  void (*pair_order)(float* xp, size_t step, const float* x, size_t in);
  void (*quad_order)(float* xq, size_t step, const float* x, size_t in);

  void (*f32)(float* y, size_t ld, const float* xp, size_t tokens, const uint8_t* w, size_t rows, size_t in, float* scratch);
  void (*bf16)(float* y, size_t ld, const float* xp, size_t tokens, const uint8_t* w, size_t rows, size_t in, float* scratch);
  // Rows [row, row + rows) of the piece; they need not start at a quad.
  void (*k12)(float* y, size_t ld, const float* xp, size_t tokens, const K12& piece, size_t row, size_t rows, float* scratch);
  // The same rows as bf16, `columns` of each (up to 128 * blocks), `stride` bytes apart. Padding rows may be asked for.
  void (*k12_decode)(uint8_t* to, size_t stride, const K12& piece, size_t row, size_t rows, size_t columns);
  void (*mxfp4)(float* y, size_t ld, const float* xq, size_t tokens, const uint8_t* packed, const uint8_t* scales, size_t rows, size_t in,
                float* scratch);

  // y[t * ldy + c] = sum over d < depth of w[d][c] * x[t * ldx + d]; rows of w lie `stride` bytes apart.
  void (*transposed_f32)(float* y, size_t ldy, const float* x, size_t ldx, size_t tokens, const uint8_t* w, size_t stride, size_t depth,
                         size_t columns);
  void (*transposed_bf16)(float* y, size_t ldy, const float* x, size_t ldx, size_t tokens, const uint8_t* w, size_t stride, size_t depth,
                          size_t columns);

  void (*accumulate)(float* y, const float* v, float weight, size_t n);  // y = fma(weight, v, y)
};

}  // namespace lilliput
