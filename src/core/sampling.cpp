#include "sampling.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "kernels.h"
#include "platform.h"
#include "profile.h"

namespace lilliput {
namespace {

// A candidate as one integer whose descending order is (larger logit, lower id): the logit's bits made monotonic above the
// id's complement. Both zeros are one value.
uint64_t candidate(float logit, uint32_t id) {
  const float plain = logit + 0.0f;
  uint32_t bits;
  std::memcpy(&bits, &plain, sizeof bits);
  const uint32_t rank = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return uint64_t(rank) << 32 | uint32_t(~id);
}
uint32_t id_of(uint64_t c) { return ~uint32_t(c); }

// 53 bits, in [0, 1).
double uniform(uint64_t seed, uint64_t position, uint64_t choice) {
  const auto low = [](uint64_t x) { return uint32_t(x); };
  const auto high = [](uint64_t x) { return uint32_t(x >> 32); };
  const auto word = philox4x32({low(seed), high(seed)}, {low(position), high(position), low(choice), high(choice)});
  return double((uint64_t(word[1]) << 32 | word[0]) >> 11) * 0x1p-53;
}

// Temperatures no float can hold mean the same as the nearest that can: all probability on the maximum, or all alike.
float as_float(double temperature) {
  if (temperature > double(std::numeric_limits<float>::max())) return std::numeric_limits<float>::max();
  return float(temperature);
}

}  // namespace

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 2> key, std::array<uint32_t, 4> counter) {
  for (int round = 0; round < 10; round++) {
    const uint64_t a = uint64_t(0xD2511F53u) * counter[0], b = uint64_t(0xCD9E8D57u) * counter[2];
    counter = {uint32_t(b >> 32) ^ counter[1] ^ key[0], uint32_t(b), uint32_t(a >> 32) ^ counter[3] ^ key[1], uint32_t(a)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

size_t sample(const float* logits, size_t n, const SamplingOptions& options, uint64_t position, uint64_t choice) {
  const profile::Timed timed(profile::Kind::choice);
  const FpuGuard guard;
  const MathKernels& math = kernels().math;
  const size_t best = math.argmax(logits, n);
  const float temperature = as_float(options.temperature), top = logits[best];
  if (!(temperature > 0.0f)) return best;

  // Unnormalised probabilities exp((l - max) / temperature), 1 for the best.
  std::vector<float> weight(n);
  for (size_t i = 0; i < n; i++) weight[i] = (logits[i] - top) / temperature;
  math.exp(weight.data(), weight.data(), n);

  // Those of weight zero cannot be chosen and add nothing to a sum; among what is left order is all that matters.
  std::vector<uint64_t> order;
  order.reserve(n);
  for (size_t i = 0; i < n; i++)
    if (weight[i] > 0.0f) order.push_back(candidate(logits[i], uint32_t(i)));
  const auto first = order.begin();
  auto last = order.end();
  if (options.top_k && options.top_k < order.size()) {
    last = first + std::ptrdiff_t(options.top_k);
    std::nth_element(first, last - 1, order.end(), std::greater<>());
  }
  std::sort(first, last, std::greater<>());
  size_t count = size_t(last - first);
  const auto weight_at = [&](size_t i) { return double(weight[id_of(order[i])]); };

  std::vector<double> cumulative(count);
  double sum = 0.0;
  for (size_t i = 0; i < count; i++) cumulative[i] = sum = sum + weight_at(i);
  if (options.top_p < 1.0) {  // the smallest prefix that holds top_p of what top-k left
    const double enough = options.top_p * sum;
    count = size_t(std::lower_bound(cumulative.begin(), cumulative.end(), enough) - cumulative.begin()) + 1;
    count = std::min(count, cumulative.size());
  }
  while (count > 1 && weight_at(count - 1) < options.min_p) count--;  // the best weighs 1, the order falls
  const double drawn = uniform(options.seed, position, choice) * cumulative[count - 1];
  const auto end = cumulative.begin() + std::ptrdiff_t(count);
  const size_t chosen = size_t(std::upper_bound(cumulative.begin(), end, drawn) - cumulative.begin());
  return id_of(order[std::min(chosen, count - 1)]);
}

}  // namespace lilliput
