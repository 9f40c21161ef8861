// Four bf16 rows against several tokens at once: every weight is loaded once for a block of tokens.
//
// The sixteen lanes are walked in parts of one machine register, so that 4 rows x kTokens accumulators of one part fit the
// register file; lanes never mix before the end, so walking them apart changes nothing.
#pragma once

#include "vec.h"

namespace lilliput {
namespace {

#if defined(LILLIPUT_ISA_AVX512)

using Part = __m512;
constexpr size_t kPartLanes = 16, kTokens = 6;
inline Part part_zero() { return _mm512_setzero_ps(); }
inline Part part_load(const float* p) { return _mm512_loadu_ps(p); }
inline void part_store(float* p, Part a) { _mm512_storeu_ps(p, a); }
inline Part part_even(const uint8_t* p) { return even(load_u(p)).v; }
inline Part part_odd(const uint8_t* p) { return odd(load_u(p)).v; }
inline Part part_fma(Part a, Part b, Part c) { return _mm512_fmadd_ps(a, b, c); }

#elif defined(LILLIPUT_ISA_AVX2)

using Part = __m256;
constexpr size_t kPartLanes = 8, kTokens = 3;
inline Part part_zero() { return _mm256_setzero_ps(); }
inline Part part_load(const float* p) { return _mm256_loadu_ps(p); }
inline void part_store(float* p, Part a) { _mm256_storeu_ps(p, a); }
inline __m256i part_words(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
inline Part part_even(const uint8_t* p) { return _mm256_castsi256_ps(_mm256_slli_epi32(part_words(p), 16)); }
inline Part part_odd(const uint8_t* p) { return _mm256_castsi256_ps(_mm256_and_si256(part_words(p), _mm256_set1_epi32(int(0xffff0000)))); }
inline Part part_fma(Part a, Part b, Part c) { return _mm256_fmadd_ps(a, b, c); }

#elif defined(LILLIPUT_ISA_NEON)

using Part = float32x4_t;
constexpr size_t kPartLanes = 4, kTokens = 6;
inline Part part_zero() { return vdupq_n_f32(0.0f); }
inline Part part_load(const float* p) { return vld1q_f32(p); }
inline void part_store(float* p, Part a) { vst1q_f32(p, a); }
inline uint32x4_t part_words(const uint8_t* p) { return vreinterpretq_u32_u8(vld1q_u8(p)); }
inline Part part_even(const uint8_t* p) { return vreinterpretq_f32_u32(vshlq_n_u32(part_words(p), 16)); }
inline Part part_odd(const uint8_t* p) { return vreinterpretq_f32_u32(vandq_u32(part_words(p), vdupq_n_u32(0xffff0000u))); }
inline Part part_fma(Part a, Part b, Part c) { return vfmaq_f32(c, a, b); }

#else

using Part = F;
constexpr size_t kPartLanes = 16, kTokens = 2;
inline Part part_zero() { return zero(); }
inline Part part_load(const float* p) { return load(p); }
inline void part_store(float* p, const Part& a) { store(p, a); }
inline Part part_even(const uint8_t* p) { return even(load_u(p)); }
inline Part part_odd(const uint8_t* p) { return odd(load_u(p)); }
inline Part part_fma(const Part& a, const Part& b, const Part& c) { return fma(a, b, c); }

#endif

template <size_t T>
inline void part_blocks(Part acc[4][T], const uint8_t* const row[4], size_t blocks, const float* x, size_t stride) {
  for (size_t i = 0; i < 4 * blocks; i++) {
    Part w[4];
    for (size_t r = 0; r < 4; r++) w[r] = part_even(row[r] + 64 * i);
    for (size_t t = 0; t < T; t++) {
      const Part a = part_load(x + t * stride + 32 * i);
      for (size_t r = 0; r < 4; r++) acc[r][t] = part_fma(w[r], a, acc[r][t]);
    }
    for (size_t r = 0; r < 4; r++) w[r] = part_odd(row[r] + 64 * i);
    for (size_t t = 0; t < T; t++) {
      const Part a = part_load(x + t * stride + 32 * i + 16);
      for (size_t r = 0; r < 4; r++) acc[r][t] = part_fma(w[r], a, acc[r][t]);
    }
  }
}

template <size_t T>
inline void dot_token_block(float* y, size_t ld, const Quad& q, const float* x, size_t stride) {
  alignas(64) float lanes[4][T][16];
  for (size_t l = 0; l < 16; l += kPartLanes) {
    Part acc[4][T];
    for (size_t r = 0; r < 4; r++)
      for (size_t t = 0; t < T; t++) acc[r][t] = part_zero();
    const uint8_t* row[4] = {q.row[0] + 4 * l, q.row[1] + 4 * l, q.row[2] + 4 * l, q.row[3] + 4 * l};
    part_blocks<T>(acc, row, q.blocks, x + l, stride);
    if (q.tail) {
      const uint8_t* end[4] = {q.tail + 4 * l, q.tail + 256 + 4 * l, q.tail + 512 + 4 * l, q.tail + 768 + 4 * l};
      part_blocks<T>(acc, end, 1, x + l + q.blocks * kBlock, stride);
    }
    for (size_t r = 0; r < 4; r++)
      for (size_t t = 0; t < T; t++) part_store(&lanes[r][t][l], acc[r][t]);
  }
  for (size_t t = 0; t < T; t++)
    for (size_t r = q.first; r < q.last; r++) y[t * ld + r] = reduce(load(lanes[r][t])) + 0.0f;
}

// The largest block that fits, then what is left at once.
template <size_t T = kTokens>
inline void dot_tokens(float* y, size_t ld, const Quad& q, const float* xp, size_t tokens, size_t stride) {
  for (; tokens >= T; tokens -= T, y += T * ld, xp += T * stride) dot_token_block<T>(y, ld, q, xp, stride);
  if constexpr (T > 1) {
    if (tokens) dot_tokens<T - 1>(y, ld, q, xp, tokens, stride);
  }
}

}  // namespace
}  // namespace lilliput
