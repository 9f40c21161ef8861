// Products with streamed weights, split over the thread pool. Shapes are the caller's to check (bind_dot.cpp does).
#pragma once

#include <cstddef>
#include <cstdint>

#include "k12.h"

namespace lilliput {

// Rows of one matrix as they are stored: bf16 or float32 at any alignment, or a checked K12 piece.
struct Weights {
  enum Kind { f32, bf16, k12 } kind;
  const uint8_t* bytes;  // f32, bf16
  K12 piece;             // k12
  size_t rows, in;
};

// y[t * ld + r] = row r . x[t], for tokens x in activations x (rule 5). The rows are those of `count` pieces, end to end: one call for all
// that are there, because the threads meet at the end of each.
void matmul(float* y, size_t ld, const float* x, size_t tokens, const Weights* pieces, size_t count);

// y[t][c] = sum over d < rows of w[row + d][c] * x[t][d], x [tokens, rows], y [tokens, in] (rule 8).
void matmul_t(float* y, const float* x, size_t tokens, const Weights& w, size_t row, size_t rows);

// kv_b: `heads` times n key rows and v value rows, `w.in` latents wide. q [T, H, n + r] -> q_lat [T, H, c + r].
void absorb_query(float* q_lat, const float* q, size_t tokens, const Weights& w, size_t heads, size_t n, size_t v, size_t r);
// o_lat [T, H, c] -> o [T, H, v].
void absorb_value(float* o, const float* o_lat, size_t tokens, const Weights& w, size_t heads, size_t n, size_t v);

// The weights of one piece as bf16 again.
void k12_decode(uint8_t* to, const K12& piece);

// Whether it decodes to w, rows x in bf16 values; needs no memory for all of them.
bool k12_matches(const K12& piece, const uint8_t* w);

// E2M1 nibbles [rows, in / 2] and E8M0 scales [rows, in / 32].
struct Mxfp4Rows {
  const uint8_t *packed, *scales;
  size_t rows, in;
};

// How many scales are 255 (NaN), which the products below take as zero.
size_t nan_scales(const Mxfp4Rows& w);

void matmul_mxfp4(float* y, size_t ld, const float* x, size_t tokens, const Mxfp4Rows& w);

// w1, w3 [width, latent], w2 [latent, width].
struct Expert {
  Mxfp4Rows w1, w2, w3;
  float beta, linear_beta;
  bool bounded;
};

// An expert and the `count` tokens that chose it; index ascending.
struct Chosen {
  const int32_t* index;
  const float* weight;
  size_t count;
  Expert expert;
};

// For one expert after the other: y[index[j]] = fma(weight[j], w2 situ(w1 x, w3 x), y[index[j]]) (rule 11); all of the same widths.
void apply_experts(float* y, const float* x, const Chosen* chosen, size_t experts);

// y[j] = the expert's output for token index[j], y [count, latent], for `accumulate` to add when its turn has come.
void apply_expert(float* y, const float* x, const int32_t* index, size_t count, const Expert& e);

// y[index[j]] = fma(weight[j], values[j], y[index[j]]), the last step of apply_experts.
void accumulate(float* y, const float* values, const int32_t* index, const float* weight, size_t count, size_t latent);

}  // namespace lilliput
