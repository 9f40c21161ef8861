// Compiled once per instruction set, with LILLIPUT_ISA_... and LILLIPUT_TABLE defined by the build.
#include "yardsticks_isa.h"

#include <cstring>

#include "../vec.h"

namespace lilliput::bench {
namespace {

// Enough to hide four or five cycles of latency on two units, few enough to stay in registers: a chain is one register of
// AVX-512, two of AVX2 (16 in all), four of NEON (32 in all).
#if defined(LILLIPUT_ISA_AVX512)
constexpr size_t kChains = 12;
#else
constexpr size_t kChains = 6;
#endif

uint64_t read(const uint8_t* from, size_t n) {
  constexpr size_t kStep = 4 * sizeof(U);
  U sum[4] = {splat_u(0), splat_u(0), splat_u(0), splat_u(0)};
  size_t i = 0;
  for (; i + kStep <= n; i += kStep)
    for (size_t k = 0; k < 4; k++) sum[k] = sum[k] ^ load_u(from + i + k * sizeof(U));
  uint32_t lanes[kLanes];
  store_u(lanes, (sum[0] ^ sum[1]) ^ (sum[2] ^ sum[3]));
  uint64_t all = 0;
  for (const uint32_t lane : lanes) all ^= lane;
  for (; i < n; i++) all ^= from[i];
  return all;
}

float peak(size_t rounds) {
  F chain[kChains];
  for (size_t i = 0; i < kChains; i++) chain[i] = splat(float(i));
  const F shrink = splat(0.999f), step = splat(0.001f);  // towards 1, so that no subnormal slows it down
  for (size_t r = 0; r < rounds; r++)
    for (size_t i = 0; i < kChains; i++) chain[i] = fma(chain[i], shrink, step);
  F sum = zero();
  for (size_t i = 0; i < kChains; i++) sum = sum + chain[i];
  float lanes[kLanes], all = 0.0f;
  store(lanes, sum);
  for (const float lane : lanes) all += lane;  // every lane: what nobody looks at the compiler leaves out, half of each chain on AVX2
  return all;
}

template <class To>
To at(const void* from) {
  To to;
  std::memcpy(&to, from, sizeof to);
  return to;
}

void bf16_doubles(float* y, const float* x, const uint8_t* w, size_t rows, size_t in) {
  for (size_t r = 0; r < rows; r++, w += 2 * in) {
#if defined(__AVX2__)
    __m256d sum4 = _mm256_setzero_pd();
    for (size_t i = 0; i < in; i += 4) {
      const __m128i halves = _mm_cvtepu16_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(w + 2 * i)));
      const __m256d weights = _mm256_cvtps_pd(_mm_castsi128_ps(_mm_slli_epi32(halves, 16)));
      sum4 = _mm256_add_pd(sum4, _mm256_mul_pd(weights, _mm256_cvtps_pd(_mm_loadu_ps(x + i))));
    }
    double sum[4];
    _mm256_storeu_pd(sum, sum4);
#else
    double sum[4] = {};
    for (size_t i = 0; i < in; i += 4)
      for (size_t k = 0; k < 4; k++) {
        const uint32_t bits = uint32_t(at<uint16_t>(w + 2 * (i + k))) << 16;
        sum[k] += double(at<float>(&bits)) * double(x[i + k]);
      }
#endif
    y[r] = float((sum[0] + sum[1]) + (sum[2] + sum[3]));
  }
}

constexpr float kE2M1[16] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

// 2^(e - 127); 255 counts as 0, as in the kernels.
float scale_of(uint8_t e) {
  const uint32_t bits = e == 0 ? 0x00400000u : e == 255 ? 0u : uint32_t(e) << 23;
  return at<float>(&bits);
}

void mxfp4_doubles(float* y, const float* x, const uint8_t* packed, const uint8_t* scales, size_t rows, size_t in) {
  for (size_t r = 0; r < rows; r++) {
    double sum[4] = {};
    for (size_t i = 0; i < in; i += 32) {
      const float scale = scale_of(*scales++);
      for (size_t j = 0; j < 32; j += 4, packed += 2) {
        sum[0] += double(kE2M1[packed[0] & 15] * scale) * double(x[i + j]);
        sum[1] += double(kE2M1[packed[0] >> 4] * scale) * double(x[i + j + 1]);
        sum[2] += double(kE2M1[packed[1] & 15] * scale) * double(x[i + j + 2]);
        sum[3] += double(kE2M1[packed[1] >> 4] * scale) * double(x[i + j + 3]);
      }
    }
    y[r] = float((sum[0] + sum[1]) + (sum[2] + sum[3]));
  }
}

}  // namespace

#define LILLIPUT_STRING2(x) #x
#define LILLIPUT_STRING(x) LILLIPUT_STRING2(x)
#define LILLIPUT_JOIN2(a, b) a##b
#define LILLIPUT_JOIN(a, b) LILLIPUT_JOIN2(a, b)

constinit const Yardsticks LILLIPUT_JOIN(yardsticks_, LILLIPUT_TABLE) = {
    LILLIPUT_STRING(LILLIPUT_TABLE), kChains, read, peak, bf16_doubles, mxfp4_doubles};

}  // namespace lilliput::bench
