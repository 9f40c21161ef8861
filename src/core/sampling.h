// From logits to one token id, a pure function of its arguments: the same text at every budget, batch and restart.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace lilliput {

// Philox4x32-10: four random words that depend on key and counter only.
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 2> key, std::array<uint32_t, 4> counter);

struct SamplingOptions {
  double temperature;  // 0 is argmax
  uint64_t top_k;      // 0: off
  double top_p;        // in (0, 1], 1: off
  double min_p;        // in [0, 1], 0: off
  uint64_t seed;
};

// `position` is the absolute position of the token to choose, `choice` the index among several continuations of one prompt.
// logits finite, n > 0.
size_t sample(const float* logits, size_t n, const SamplingOptions& options, uint64_t position, uint64_t choice);

}  // namespace lilliput
