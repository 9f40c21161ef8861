// Norms, gates, activations, short convolution, depth mixing and log-softmax (contract rules 4, 7, 9, 13).
#pragma once

#include "kernels_math.h"
#include "math_functions.inl"
#include "vec.h"

namespace lilliput {
namespace {

// The last n < 16 floats of a row go through zero-filled scratch; nothing is read or written across the end.
inline F load_some(const float* p, size_t n) {
  if (n == kLanes) return load(p);
  float t[kLanes] = {};
  std::memcpy(t, p, n * sizeof(float));
  return load(t);
}
inline void store_some(float* p, F a, size_t n) {
  if (n == kLanes) return store(p, a);
  float t[kLanes];
  store(t, a);
  std::memcpy(p, t, n * sizeof(float));
}

// body(i, m) for [0, n) in steps of sixteen: m is 16, and less in the last step.
template <class Body>
inline void sixteens(size_t n, Body body) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, kLanes);
  if (i < n) body(i, n - i);
}

// step(even, odd) over pairs of a row in the pair order: element i in lane (i >> 1) & 15; the row is padded with zeros.
template <class Step>
inline void pairs(const float* x, size_t n, Step step) {
  F even, odd;
  size_t i = 0;
  for (; i + 32 <= n; i += 32) {
    unzip(load(x + i), load(x + i + 16), even, odd);
    step(even, odd, i);
  }
  if (i < n) {
    float t[32] = {};
    std::memcpy(t, x + i, (n - i) * sizeof(float));
    unzip(load(t), load(t + 16), even, odd);
    step(even, odd, i);
  }
}

inline float sum_of_squares(const float* x, size_t n) {
  F acc = zero();
  pairs(x, n, [&](F even, F odd, size_t) { acc = fma(odd, odd, fma(even, even, acc)); });
  return reduce(acc) + 0.0f;
}

inline float inverse_root(float x) { return 1.0f / __builtin_sqrtf(x); }
inline float inverse_rms(const float* x, size_t n, float eps) { return inverse_root(sum_of_squares(x, n) / float(n) + eps); }

template <F (*function)(F)>
void map(float* y, const float* x, size_t n) {
  sixteens(n, [=](size_t i, size_t m) { store_some(y + i, function(load_some(x + i, m)), m); });
}

inline void add(float* y, const float* x, size_t n) {
  sixteens(n, [=](size_t i, size_t m) { store_some(y + i, load_some(y + i, m) + load_some(x + i, m), m); });
}

inline void finish(float* y, size_t n) {
  sixteens(n, [=](size_t i, size_t m) { store_some(y + i, load_some(y + i, m) + zero(), m); });
}

inline void gate(float* y, const float* g, size_t n) {
  sixteens(n, [=](size_t i, size_t m) { store_some(y + i, load_some(y + i, m) * sigmoid(load_some(g + i, m)), m); });
}

inline void situ(float* y, const float* gate, const float* up, size_t n, float beta, float linear_beta, bool bounded) {
  const F b = splat(beta), lb = splat(linear_beta);
  sixteens(n, [=](size_t i, size_t m) {
    const F g = load_some(gate + i, m);
    F u = load_some(up + i, m);
    if (bounded) u = lb * tanh(u / lb);
    store_some(y + i, ((b * tanh(g / b)) * sigmoid(g)) * u, m);
  });
}

inline void rms_norm(float* y, const float* x, const float* w, size_t rows, size_t n, float eps) {
  for (; rows--; x += n, y += n) {
    const F inv = splat(inverse_rms(x, n, eps));
    sixteens(n, [=](size_t i, size_t m) { store_some(y + i, load_some(w + i, m) * (load_some(x + i, m) * inv), m); });
  }
}

inline void l2_norm(float* y, const float* x, size_t rows, size_t n, float eps, float scale, bool scaled) {
  for (; rows--; x += n, y += n) {
    const F inv = splat(inverse_root(sum_of_squares(x, n) + eps)), s = splat(scale);
    sixteens(n, [=](size_t i, size_t m) {
      const F a = load_some(x + i, m) * inv;
      store_some(y + i, scaled ? a * s : a, m);
    });
  }
}

inline void gated_norm(float* y, const float* x, const float* w, const float* g, size_t rows, size_t n, float eps) {
  for (; rows--; x += n, y += n, g += n) {
    const F inv = splat(inverse_rms(x, n, eps));
    sixteens(n, [=](size_t i, size_t m) {
      store_some(y + i, (load_some(w + i, m) * (load_some(x + i, m) * inv)) * sigmoid(load_some(g + i, m)), m);
    });
  }
}

// The largest of n > 0 finite floats.
inline float largest(const float* x, size_t n) {
  F m = splat(-kInfinity);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) m = max(load(x + i), m);
  float t[kLanes];
  store(t, m);
  float best = t[0];
  for (size_t l = 1; l < kLanes; l++) best = t[l] > best ? t[l] : best;
  for (; i < n; i++) best = x[i] > best ? x[i] : best;
  return best;
}

inline void log_softmax(float* y, const float* x, size_t rows, size_t n) {
  for (; rows--; x += n, y += n) {
    const F top = splat(largest(x, n));
    F acc = zero();
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
      F even, odd;
      unzip(load(x + i), load(x + i + 16), even, odd);
      acc = (acc + exp(even - top)) + exp(odd - top);
    }
    if (i < n) {  // the padding's terms are zeros, so it is filled with what has the exponential zero
      float t[32];
      for (size_t j = 0; j < 32; j++) t[j] = i + j < n ? x[i + j] : -kInfinity;
      F even, odd;
      unzip(load(t), load(t + 16), even, odd);
      acc = (acc + exp(even - top)) + exp(odd - top);
    }
    const F log_sum = log(splat(reduce(acc) + 0.0f));
    sixteens(n, [=](size_t j, size_t m) { store_some(y + j, (load_some(x + j, m) - top) - log_sum, m); });
  }
}

// Softmax over a few values in place, ascending: e_j / sum. x is readable and writable up to whole_lanes(n).
inline void softmax(float* x, size_t n) {
  float top = x[0];
  for (size_t j = 1; j < n; j++) top = x[j] > top ? x[j] : top;
  for (size_t j = n; j < whole_lanes(n); j++) x[j] = -kInfinity;
  for (size_t j = 0; j < n; j += kLanes) store(x + j, exp(load(x + j) - splat(top)));
  float sum = 0.0f;
  for (size_t j = 0; j < n; j++) sum = sum + x[j];
  sum = sum + 0.0f;
  for (size_t j = 0; j < n; j++) x[j] = x[j] / sum;
}

inline void mix(float* y, const float* const* entries, size_t count, const float* w, size_t begin, size_t end, size_t n, float eps,
                float* scratch) {
  for (size_t row = begin; row < end; row++) {
    for (size_t e = 0; e < count; e++) {
      const float* v = entries[e] + row * n;
      const F inv = splat(inverse_rms(v, n, eps));
      F acc = zero();
      pairs(v, n, [&](F even, F odd, size_t i) {
        F w_even, w_odd;
        if (n - i >= 32) {
          unzip(load(w + i), load(w + i + 16), w_even, w_odd);
        } else {
          float t[32] = {};
          std::memcpy(t, w + i, (n - i) * sizeof(float));
          unzip(load(t), load(t + 16), w_even, w_odd);
        }
        acc = fma(odd * inv, w_odd, fma(even * inv, w_even, acc));
      });
      scratch[e] = reduce(acc) + 0.0f;
    }
    softmax(scratch, count);
    sixteens(n, [=](size_t i, size_t m) {
      F acc = zero();
      for (size_t e = 0; e < count; e++) acc = fma(splat(scratch[e]), load_some(entries[e] + row * n + i, m), acc);
      store_some(y + row * n + i, acc + zero(), m);
    });
  }
}

// Sixteen channels at a time, the window of the last inputs in registers or close by; the newest input meets the last tap.
inline void short_conv(float* y, const float* u, const float* tail, const float* w, size_t tokens, size_t channels, size_t taps,
                       size_t begin, size_t end) {
  for (size_t c = begin; c < end; c += kLanes) {
    const size_t m = end - c < kLanes ? end - c : kLanes;
    float weight[kMostTaps][kLanes] = {}, window[kMostTaps][kLanes] = {};
    for (size_t l = 0; l < m; l++) {
      for (size_t j = 0; j < taps; j++) weight[j][l] = w[(c + l) * taps + j];
      for (size_t j = 0; j + 1 < taps; j++) window[j][l] = tail[(c + l) * (taps - 1) + j];
    }
    for (size_t t = 0; t < tokens; t++) {
      store(window[taps - 1], load_some(u + t * channels + c, m));
      F acc = zero();
      for (size_t j = 0; j < taps; j++) acc = fma(load(weight[j]), load(window[j]), acc);
      store_some(y + t * channels + c, acc * sigmoid(acc), m);
      for (size_t j = 0; j + 1 < taps; j++) store(window[j], load(window[j + 1]));
    }
  }
}

inline void kda_decay(float* alpha, const float* z, const float* a_log, const float* dt_bias, size_t tokens, size_t heads, size_t width,
                      float lower_bound, bool bounded) {
  const F bound = splat(lower_bound);
  for (size_t h = 0; h < heads; h++) {
    const F rate = exp(splat(a_log[h])), falling = negate(rate);
    for (size_t t = 0; t < tokens; t++) {
      const size_t at = (t * heads + h) * width;
      sixteens(width, [=](size_t i, size_t m) {
        const F x = load_some(z + at + i, m) + load_some(dt_bias + h * width + i, m);
        const F g = bounded ? bound * sigmoid(rate * x) : falling * softplus(x);
        store_some(alpha + at + i, exp(g), m);
      });
    }
  }
}

}  // namespace
}  // namespace lilliput
