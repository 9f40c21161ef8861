// The kernels of kernels_math.h over whole arrays, split over the pool. No argument checks here: bind_math.cpp does them.
// Every function computes under an FpuGuard, whatever thread it runs on.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels_math.h"

namespace lilliput::ops {

using Map = void (*MathKernels::*)(float*, const float*, size_t);

void map(Map kernel, float* y, const float* x, size_t n);  // exp, log, ..., add, gate
void finish(float* y, size_t n);
void situ(float* y, const float* gate, const float* up, size_t n, float beta, float linear_beta, bool bounded);
void rms_norm(float* y, const float* x, const float* w, size_t rows, size_t n, float eps);
void l2_norm(float* y, const float* x, size_t rows, size_t n, float eps, float scale, bool scaled);
void gated_norm(float* y, const float* x, const float* w, const float* g, size_t rows, size_t n, float eps);
void log_softmax(float* y, const float* x, size_t rows, size_t n);
void mix(float* y, const float* const* entries, size_t count, const float* w, size_t rows, size_t n, float eps);
void short_conv(float* y, const float* u, const float* tail, const float* w, size_t tokens, size_t channels, size_t taps);
// The inputs before the next token once the first n of u have been seen; new_tail may be tail.
void conv_tail(float* new_tail, const float* tail, const float* u, size_t n, size_t channels, size_t taps);
void kda_decay(float* alpha, const float* z, const float* a_log, const float* dt_bias, size_t tokens, size_t heads, size_t width,
               float lower_bound, bool bounded);
// s_in, s_out [heads][width][width]; o or s_out may be null, s_out may be s_in
void kda(float* o, float* s_out, const float* s_in, const float* q, const float* k, const float* v, const float* alpha, const float* beta,
         size_t tokens, size_t heads, size_t width);
// q [tokens][heads][latent + rest], o [tokens][heads][latent]; token t sees positions 0 .. start + t
void attend(float* o, const float* q, const float* const* blocks, size_t start, size_t tokens, float scale, size_t heads, size_t latent,
            size_t rest);
// The first row that could not be routed (see MathKernels::route), or -1.
int64_t route(int32_t* ids, float* weights, const float* logits, const float* bias, size_t rows, size_t experts, size_t k, bool renormalize,
              float factor);
void argmax(int64_t* ids, const float* x, size_t rows, size_t n);
int64_t nonfinite(const float* x, size_t rows, size_t n);  // first row with a NaN or an infinity, or -1
float inverse_root(float x);                               // 1 / sqrt(x) in float32: head scales

}  // namespace lilliput::ops
