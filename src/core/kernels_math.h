// Everything but the dot products: own functions, norms, gates, convolution, KDA, attention, depth mixing, routing.
// All arrays are float32, rows contiguous. `scratch` is the caller's, of the size the matching ..._scratch function gives.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lilliput {

struct MathKernels {
  // y[i] = f(x[i]) for i < n; y may be x.
  void (*exp)(float* y, const float* x, size_t n);
  void (*log)(float* y, const float* x, size_t n);
  void (*sigmoid)(float* y, const float* x, size_t n);
  void (*tanh)(float* y, const float* x, size_t n);
  void (*softplus)(float* y, const float* x, size_t n);

  void (*add)(float* y, const float* x, size_t n);   // y += x
  void (*finish)(float* y, size_t n);                // y += 0.0f
  void (*gate)(float* y, const float* g, size_t n);  // y *= sigmoid(g)
  // y = ((beta * tanh(gate / beta)) * sigmoid(gate)) * (linear_beta * tanh(up / linear_beta)); unbounded: the last factor is `up`
  void (*situ)(float* y, const float* gate, const float* up, size_t n, float beta, float linear_beta, bool bounded);

  void (*rms_norm)(float* y, const float* x, const float* w, size_t rows, size_t n, float eps);
  void (*l2_norm)(float* y, const float* x, size_t rows, size_t n, float eps, float scale, bool scaled);
  void (*gated_norm)(float* y, const float* x, const float* w, const float* g, size_t rows, size_t n, float eps);
  void (*log_softmax)(float* y, const float* x, size_t rows, size_t n);
  // rows [begin, end) of y[N][n] from `count` arrays [N][n]; scratch: mix_scratch(count) floats
  void (*mix)(float* y, const float* const* entries, size_t count, const float* w, size_t begin, size_t end, size_t n, float eps,
              float* scratch);
  // channels [begin, end): y, u [tokens][channels], tail [channels][taps - 1], w [channels][taps]
  void (*short_conv)(float* y, const float* u, const float* tail, const float* w, size_t tokens, size_t channels, size_t taps, size_t begin,
                     size_t end);
  // alpha, z [tokens][heads * width]; a_log [heads], dt_bias [heads * width]
  void (*kda_decay)(float* alpha, const float* z, const float* a_log, const float* dt_bias, size_t tokens, size_t heads, size_t width,
                    float lower_bound, bool bounded);

  // One head: o, q, k, v, alpha [tokens][heads][width], beta [tokens][heads], s_in and s_out [width][width] of this head.
  // o or s_out may be null; s_out may be s_in. scratch: kda_scratch(width) floats.
  void (*kda)(float* o, float* s_out, const float* s_in, const float* q, const float* k, const float* v, const float* alpha,
              const float* beta, size_t tokens, size_t heads, size_t width, size_t head, float* scratch);

  // One token, `heads` heads: q [heads][latent + rest], o [heads][latent], blocks[b] [128][latent + rest] with `positions`
  // positions in all. scratch: attend_scratch(heads, latent, rest) floats.
  void (*attend)(float* o, const float* q, const float* const* blocks, size_t positions, float scale, size_t heads, size_t latent,
                 size_t rest, float* scratch);

  // One row of `experts` router logits; ids ascending. False: a logit, or a logit's score with its bias, is not finite.
  // scratch: route_scratch(experts, k) floats.
  bool (*route)(int32_t* ids, float* weights, const float* logits, const float* bias, size_t experts, size_t k, bool renormalize,
                float factor, float* scratch);
  size_t (*argmax)(const float* x, size_t n);  // lowest index of the largest; x finite, n > 0
  bool (*finite)(const float* x, size_t n);
};

constexpr size_t kBlockPositions = 128;  // positions in a block of latents
constexpr size_t kMostTaps = 8;

constexpr size_t whole_lanes(size_t n) { return (n + 15) / 16 * 16; }
constexpr size_t mix_scratch(size_t count) { return whole_lanes(count); }
constexpr size_t kda_scratch(size_t width) { return width * 64; }
constexpr size_t attend_scratch(size_t heads, size_t latent, size_t rest) {
  return whole_lanes(heads) * (2 * latent + rest + kBlockPositions + 2);
}
constexpr size_t route_scratch(size_t experts, size_t k) { return experts + k; }

}  // namespace lilliput
