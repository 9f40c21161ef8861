// Router top-k, argmax and the watch for NaN and infinities (contract rules 9 and 12), and the table of everything that is
// not a dot product.
#pragma once

#include "attention.inl"
#include "elementwise.inl"
#include "kernels_math.h"
#include "math_functions.inl"
#include "recurrence.inl"
#include "vec.h"

namespace lilliput {
namespace {

// x - x is +0 for a finite x and NaN for the others.
inline bool finite(const float* x, size_t n) {
  F acc = zero();
  sixteens(n, [&](size_t i, size_t m) {
    const F a = load_some(x + i, m);
    acc = acc + (a - a);
  });
  return !any(is_nan(acc));
}

inline size_t argmax(const float* x, size_t n) {
  const float best = largest(x, n);
  for (size_t i = 0; i < n; i++)
    if (x[i] == best) return i;
  return 0;  // only where x is not finite, which callers refuse before
}

inline bool route(int32_t* ids, float* weights, const float* logits, const float* bias, size_t experts, size_t k, bool renormalize,
                  float factor, float* scratch) {
  float *affinity = scratch, *best = scratch + experts;
  if (!finite(logits, experts)) return false;
  map<sigmoid>(affinity, logits, experts);

  // The k best in falling order. A later expert has to be strictly better to pass an earlier one: ties go to the lower id.
  size_t count = 0;
  for (size_t e = 0; e < experts; e++) {
    const float score = affinity[e] + bias[e];
    if (!(score - score == 0.0f)) return false;
    if (count == k && !(score > best[k - 1])) continue;
    size_t at = count < k ? count++ : k - 1;
    for (; at > 0 && score > best[at - 1]; at--) {
      best[at] = best[at - 1];
      ids[at] = ids[at - 1];
    }
    best[at] = score;
    ids[at] = int32_t(e);
  }

  for (size_t j = 1; j < k; j++) {
    const int32_t id = ids[j];
    size_t at = j;
    for (; at > 0 && ids[at - 1] > id; at--) ids[at] = ids[at - 1];
    ids[at] = id;
  }
  float sum = 0.0f;
  for (size_t j = 0; j < k; j++) {
    weights[j] = affinity[ids[j]];
    sum = sum + weights[j];
  }
  const float divisor = (sum + 0.0f) + 1e-20f;
  for (size_t j = 0; j < k; j++) {
    if (renormalize && k > 1) weights[j] = weights[j] / divisor;
    weights[j] = weights[j] * factor;
  }
  return true;
}

constexpr MathKernels math_kernels() {
  return {map<exp>,   map<log>,    map<sigmoid>, map<tanh>,  map<softplus>, add, finish, gate,  situ,   rms_norm, l2_norm,
          gated_norm, log_softmax, mix,          short_conv, kda_decay,     kda, attend, route, argmax, finite};
}

}  // namespace
}  // namespace lilliput
