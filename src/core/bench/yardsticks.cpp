#include "yardsticks.h"

#include <atomic>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "../platform.h"
#include "../pool.h"
#include "yardsticks_isa.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace lilliput::bench {
namespace {

constexpr size_t kPage = 4096;

// Usable here, the widest last.
std::vector<const Yardsticks*> usable() {
  std::vector<const Yardsticks*> found{&yardsticks_scalar};
#if defined(__x86_64__)
  if (cpu_has_avx2_fma()) found.push_back(&yardsticks_avx2);
  if (cpu_has_avx512()) found.push_back(&yardsticks_avx512);
#else
  found.push_back(&yardsticks_neon);
#endif
  return found;
}

const Yardsticks& of_peers() {
  const auto found = usable();
  return *found[found.size() > 1 ? 1 : 0];
}

// body(first, count) over the bytes of n, cut at pages.
template <class Body>
void over_pages(size_t n, Body body) {
  parallel_for((n + kPage - 1) / kPage, kPage, [&](size_t begin, size_t end) {
    const size_t first = begin * kPage, last = end * kPage < n ? end * kPage : n;
    body(first, last - first);
  });
}

void copy_range(uint8_t* to, const uint8_t* from, size_t n) {
  size_t i = 0;
#if defined(__x86_64__)
  for (; i + 64 <= n; i += 64)
    for (size_t k = 0; k < 64; k += 16)
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + i + k), _mm_load_si128(reinterpret_cast<const __m128i*>(from + i + k)));
  _mm_sfence();
#endif
  std::memcpy(to + i, from + i, n - i);
}

}  // namespace

uint64_t read(const uint8_t* from, size_t n) {
  std::atomic<uint64_t> all{0};
  const Yardsticks& widest = *usable().back();
  over_pages(n, [&](size_t first, size_t count) { all ^= widest.read(from + first, count); });
  return all;
}

void copy(uint8_t* to, const uint8_t* from, size_t n) {
  over_pages(n, [&](size_t first, size_t count) { copy_range(to + first, from + first, count); });
}

uint64_t peak(const char* isa, size_t rounds) {
  const Yardsticks* chosen = nullptr;
  for (const Yardsticks* y : usable())
    if (std::strcmp(y->name, isa) == 0) chosen = y;
  if (!chosen) throw std::invalid_argument(std::string("instruction set: `") + isa + "` is not one of this machine's");
  const size_t n = threads();
  std::atomic<float> kept{0.0f};
  parallel_for(n, SIZE_MAX / 2 / n, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; i++) kept = chosen->peak(rounds);
  });
  return uint64_t(n) * rounds * chosen->chains * 16;
}

void bf16_doubles(float* y, const float* x, const uint8_t* w, size_t rows, size_t in) {
  parallel_for(rows, in, [&](size_t begin, size_t end) { of_peers().bf16_doubles(y + begin, x, w + begin * in * 2, end - begin, in); });
}

void mxfp4_doubles(float* y, const float* x, const uint8_t* packed, const uint8_t* scales, size_t rows, size_t in) {
  parallel_for(rows, in, [&](size_t begin, size_t end) {
    of_peers().mxfp4_doubles(y + begin, x, packed + begin * (in / 2), scales + begin * (in / 32), end - begin, in);
  });
}

}  // namespace lilliput::bench
