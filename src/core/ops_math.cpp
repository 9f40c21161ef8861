#include "ops_math.h"

#include <atomic>
#include <cmath>
#include <cstring>
#include <utility>

#include "kernels.h"
#include "platform.h"
#include "pool.h"
#include "profile.h"
#include "scratch.h"

namespace lilliput::ops {
namespace {

using profile::Kind;
using profile::Timed;

const MathKernels& math() { return kernels().math; }

constexpr size_t kChunk = 4096;  // a multiple of sixteen: only the last chunk of an array has a tail

template <class Body>
void elements(size_t n, Body body) {
  parallel_for((n + kChunk - 1) / kChunk, kChunk, [&](size_t b, size_t e) {
    const size_t from = b * kChunk, to = e * kChunk < n ? e * kChunk : n;
    body(from, to - from);
  });
}

thread_local Scratch scratch;

}  // namespace

void map(Map kernel, float* y, const float* x, size_t n) {
  const Timed timed(Kind::elementwise);
  elements(n, [=](size_t from, size_t count) { (math().*kernel)(y + from, x + from, count); });
}

void finish(float* y, size_t n) {
  const Timed timed(Kind::elementwise);
  elements(n, [=](size_t from, size_t count) { math().finish(y + from, count); });
}

void situ(float* y, const float* gate, const float* up, size_t n, float beta, float linear_beta, bool bounded) {
  const Timed timed(Kind::elementwise);
  elements(n, [=](size_t from, size_t count) { math().situ(y + from, gate + from, up + from, count, beta, linear_beta, bounded); });
}

void rms_norm(float* y, const float* x, const float* w, size_t rows, size_t n, float eps) {
  const Timed timed(Kind::norms);
  parallel_for(rows, n, [=](size_t b, size_t e) { math().rms_norm(y + b * n, x + b * n, w, e - b, n, eps); });
}

void l2_norm(float* y, const float* x, size_t rows, size_t n, float eps, float scale, bool scaled) {
  const Timed timed(Kind::norms);
  parallel_for(rows, n, [=](size_t b, size_t e) { math().l2_norm(y + b * n, x + b * n, e - b, n, eps, scale, scaled); });
}

void gated_norm(float* y, const float* x, const float* w, const float* g, size_t rows, size_t n, float eps) {
  const Timed timed(Kind::norms);
  parallel_for(rows, 4 * n, [=](size_t b, size_t e) { math().gated_norm(y + b * n, x + b * n, w, g + b * n, e - b, n, eps); });
}

void log_softmax(float* y, const float* x, size_t rows, size_t n) {
  const Timed timed(Kind::choice);
  parallel_for(rows, 4 * n, [=](size_t b, size_t e) { math().log_softmax(y + b * n, x + b * n, e - b, n); });
}

void mix(float* y, const float* const* entries, size_t count, const float* w, size_t rows, size_t n, float eps) {
  const Timed timed(Kind::mixing);
  parallel_for(rows, count * n,
               [=](size_t b, size_t e) { math().mix(y, entries, count, w, b, e, n, eps, scratch.get<float>(mix_scratch(count))); });
}

void short_conv(float* y, const float* u, const float* tail, const float* w, size_t tokens, size_t channels, size_t taps) {
  const Timed timed(Kind::convolution);
  parallel_for((channels + 15) / 16, 64 * tokens, [=](size_t b, size_t e) {
    math().short_conv(y, u, tail, w, tokens, channels, taps, b * 16, e * 16 < channels ? e * 16 : channels);
  });
}

void conv_tail(float* new_tail, const float* tail, const float* u, size_t n, size_t channels, size_t taps) {
  const Timed timed(Kind::convolution);
  const size_t kept = taps - 1;
  for (size_t c = 0; c < channels; c++)
    for (size_t j = 0; j < kept; j++) {  // input j of the last `kept`, counted over the old tail and then u; ascending, so in place works
      const size_t at = n + j;
      new_tail[c * kept + j] = at < kept ? tail[c * kept + at] : u[(at - kept) * channels + c];
    }
}

void kda_decay(float* alpha, const float* z, const float* a_log, const float* dt_bias, size_t tokens, size_t heads, size_t width,
               float lower_bound, bool bounded) {
  const Timed timed(Kind::elementwise);
  const size_t n = heads * width;
  parallel_for(tokens, 8 * n, [=](size_t b, size_t e) {
    math().kda_decay(alpha + b * n, z + b * n, a_log, dt_bias, e - b, heads, width, lower_bound, bounded);
  });
}

void kda(float* o, float* s_out, const float* s_in, const float* q, const float* k, const float* v, const float* alpha, const float* beta,
         size_t tokens, size_t heads, size_t width) {
  const Timed timed(Kind::kda);
  const size_t cells = width * width;
  if (!tokens) {
    if (s_out && s_out != s_in) std::memcpy(s_out, s_in, heads * cells * sizeof(float));
    return;
  }
  parallel_for(heads, cells * (tokens + 1), [=](size_t b, size_t e) {
    float* memory = scratch.get<float>(kda_scratch(width));
    for (size_t h = b; h < e; h++)
      math().kda(o, s_out ? s_out + h * cells : nullptr, s_in + h * cells, q, k, v, alpha, beta, tokens, heads, width, h, memory);
  });
}

// Tasks are (token, group of heads). A token's latents are read once per group, so heads are divided only where there are
// fewer tokens than threads, and in whole registers of sixteen.
void attend(float* o, const float* q, const float* const* blocks, size_t start, size_t tokens, float scale, size_t heads, size_t latent,
            size_t rest) {
  const Timed timed(Kind::attention);
  if (!tokens || !heads) return;
  const size_t registers = (heads + 15) / 16, wanted = (threads() + tokens - 1) / tokens;
  const size_t groups = registers < wanted ? registers : wanted, size = (registers + groups - 1) / groups * 16;
  const size_t width = latent + rest;
  parallel_for(tokens * groups, size * width * (start + tokens), [=](size_t b, size_t e) {
    float* memory = scratch.get<float>(attend_scratch(size < heads ? size : heads, latent, rest));
    for (size_t task = b; task < e; task++) {
      const size_t t = task / groups, from = task % groups * size;
      if (from >= heads) continue;
      const size_t count = heads - from < size ? heads - from : size;
      math().attend(o + (t * heads + from) * latent, q + (t * heads + from) * width, blocks, start + t + 1, scale, count, latent, rest,
                    memory);
    }
  });
}

int64_t route(int32_t* ids, float* weights, const float* logits, const float* bias, size_t rows, size_t experts, size_t k, bool renormalize,
              float factor) {
  const Timed timed(Kind::router);
  std::atomic<size_t> bad{rows};
  parallel_for(rows, 8 * experts, [&](size_t b, size_t e) {
    float* memory = scratch.get<float>(route_scratch(experts, k));
    for (size_t r = b; r < e; r++) {
      if (math().route(ids + r * k, weights + r * k, logits + r * experts, bias, experts, k, renormalize, factor, memory)) continue;
      size_t first = bad.load();
      while (r < first && !bad.compare_exchange_weak(first, r)) {
      }
      return;  // later rows of this range cannot be the first
    }
  });
  return bad == rows ? -1 : int64_t(bad.load());
}

void argmax(int64_t* ids, const float* x, size_t rows, size_t n) {
  const Timed timed(Kind::choice);
  parallel_for(rows, n, [=](size_t b, size_t e) {
    for (size_t r = b; r < e; r++) ids[r] = int64_t(math().argmax(x + r * n, n));
  });
}

int64_t nonfinite(const float* x, size_t rows, size_t n) {
  const Timed timed(Kind::choice);
  FpuGuard guard;
  for (size_t r = 0; r < rows; r++)
    if (!math().finite(x + r * n, n)) return int64_t(r);
  return -1;
}

float inverse_root(float x) {
  FpuGuard guard;
  return 1.0f / std::sqrt(x);
}

}  // namespace lilliput::ops
