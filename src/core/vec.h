// Sixteen float32 lanes, the same four ways: AVX-512 (one register), AVX2+FMA (two), NEON (four), plain C++ (arrays).
//
// Every operation is one IEEE operation per lane, so a kernel written on top of this header gives the same bits on all of
// them. Include it only from the kernel sources that are compiled once per instruction set. Everything here is in an unnamed
// namespace on purpose: an inline function with external linkage, compiled for AVX-512 in one object, could be the copy the
// linker keeps for the baseline. For the same reason kernel sources use no standard containers or algorithms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(LILLIPUT_ISA_AVX512) || defined(LILLIPUT_ISA_AVX2)
#include <immintrin.h>
#elif defined(LILLIPUT_ISA_NEON)
#include <arm_neon.h>
#elif !defined(LILLIPUT_ISA_SCALAR)
#error "define one of LILLIPUT_ISA_SCALAR, _AVX2, _AVX512, _NEON"
#endif

namespace lilliput {
namespace {

constexpr size_t kLanes = 16;

template <class To, class From>
inline To as(From x) {
  static_assert(sizeof(To) == sizeof(From));
  To y;
  std::memcpy(&y, &x, sizeof y);
  return y;
}

// One fused multiply-add of single floats: a * b + c rounded once.
inline float fma1(float a, float b, float c) {
#if defined(__FMA__) || defined(__aarch64__)
  return __builtin_fmaf(a, b, c);
#else
  // The product is exact in double. The sum is rounded to odd, so that rounding it once more to float cannot double-round;
  // with 53 bits against 24 this holds for subnormal results as well.
  const double product = double(a) * double(b), addend = double(c);
  double sum = product + addend;
  const double back = sum - product;
  const double error = (product - (sum - back)) + (addend - back);
  if (error > 0.0 || error < 0.0) {  // false for NaN: infinities and NaNs stay as they are
    uint64_t bits = as<uint64_t>(sum);
    if (!(bits & 1)) {
      bits += (error > 0.0) == (sum > 0.0) ? 1 : -1;
      sum = as<double>(bits);
    }
  }
  return float(sum);
#endif
}

#if defined(LILLIPUT_ISA_AVX512)

struct F {
  __m512 v;
};  // 16 floats
struct U {
  __m512i v;
};  // 16 x uint32
struct M {
  __mmask16 v;
};

// gcc's unmasked shifts, roots and shuffles start from an undefined register and warn about it; masked with all ones they
// are the same instruction.
constexpr __mmask16 kAll = 0xffff;

inline F zero() { return {_mm512_setzero_ps()}; }
inline F splat(float x) { return {_mm512_set1_ps(x)}; }
inline U splat_u(uint32_t x) { return {_mm512_set1_epi32(int(x))}; }
inline F load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline void store(float* p, F a) { _mm512_storeu_ps(p, a.v); }
inline U load_u(const void* p) { return {_mm512_loadu_si512(p)}; }
inline void store_u(void* p, U a) { _mm512_storeu_si512(p, a.v); }
inline F fma(F a, F b, F c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline F operator+(F a, F b) { return {_mm512_add_ps(a.v, b.v)}; }
inline F operator-(F a, F b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline F operator*(F a, F b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline F operator/(F a, F b) { return {_mm512_div_ps(a.v, b.v)}; }
inline F sqrt(F a) { return {_mm512_maskz_sqrt_ps(kAll, a.v)}; }
inline M greater(F a, F b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_GT_OQ)}; }
inline M is_nan(F a) { return {_mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q)}; }
inline F select(M m, F a, F b) { return {_mm512_mask_blend_ps(m.v, b.v, a.v)}; }  // m ? a : b
inline U bits(F a) { return {_mm512_castps_si512(a.v)}; }
inline F from_bits(U a) { return {_mm512_castsi512_ps(a.v)}; }
inline U operator+(U a, U b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline U operator-(U a, U b) { return {_mm512_sub_epi32(a.v, b.v)}; }
inline U operator&(U a, U b) { return {_mm512_and_si512(a.v, b.v)}; }
inline U operator|(U a, U b) { return {_mm512_or_si512(a.v, b.v)}; }
inline U operator^(U a, U b) { return {_mm512_xor_si512(a.v, b.v)}; }
template <int n>
inline U shl(U a) {
  return {_mm512_maskz_slli_epi32(kAll, a.v, n)};
}
template <int n>
inline U shr(U a) {
  return {_mm512_maskz_srli_epi32(kAll, a.v, n)};
}
template <int n>
inline U sar(U a) {
  return {_mm512_maskz_srai_epi32(kAll, a.v, n)};
}
inline bool any(M m) { return m.v != 0; }
// Two lots of sixteen floats into their even and their odd elements.
inline void unzip(F a, F b, F& even, F& odd) {
  const __m512i pick = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  even = {_mm512_permutex2var_ps(a.v, pick, b.v)};
  odd = {_mm512_permutex2var_ps(a.v, _mm512_add_epi32(pick, _mm512_set1_epi32(1)), b.v)};
}

#elif defined(LILLIPUT_ISA_AVX2)

struct F {
  __m256 a, b;
};
struct U {
  __m256i a, b;
};
struct M {
  __m256 a, b;
};

inline F zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline F splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline U splat_u(uint32_t x) { return {_mm256_set1_epi32(int(x)), _mm256_set1_epi32(int(x))}; }
inline F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store(float* p, F x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
inline U load_u(const void* p) {
  auto q = static_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
inline void store_u(void* p, U x) {
  auto q = static_cast<__m256i*>(p);
  _mm256_storeu_si256(q, x.a);
  _mm256_storeu_si256(q + 1, x.b);
}
inline F fma(F x, F y, F z) { return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
inline F operator+(F x, F y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline F operator-(F x, F y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
inline F operator*(F x, F y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
inline F operator/(F x, F y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
inline F sqrt(F x) { return {_mm256_sqrt_ps(x.a), _mm256_sqrt_ps(x.b)}; }
inline M greater(F x, F y) { return {_mm256_cmp_ps(x.a, y.a, _CMP_GT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_GT_OQ)}; }
inline M is_nan(F x) { return {_mm256_cmp_ps(x.a, x.a, _CMP_UNORD_Q), _mm256_cmp_ps(x.b, x.b, _CMP_UNORD_Q)}; }
inline F select(M m, F x, F y) { return {_mm256_blendv_ps(y.a, x.a, m.a), _mm256_blendv_ps(y.b, x.b, m.b)}; }
inline U bits(F x) { return {_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)}; }
inline F from_bits(U x) { return {_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }
inline U operator+(U x, U y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
inline U operator-(U x, U y) { return {_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)}; }
inline U operator&(U x, U y) { return {_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)}; }
inline U operator|(U x, U y) { return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)}; }
inline U operator^(U x, U y) { return {_mm256_xor_si256(x.a, y.a), _mm256_xor_si256(x.b, y.b)}; }
template <int n>
inline U shl(U x) {
  return {_mm256_slli_epi32(x.a, n), _mm256_slli_epi32(x.b, n)};
}
template <int n>
inline U shr(U x) {
  return {_mm256_srli_epi32(x.a, n), _mm256_srli_epi32(x.b, n)};
}
template <int n>
inline U sar(U x) {
  return {_mm256_srai_epi32(x.a, n), _mm256_srai_epi32(x.b, n)};
}
inline bool any(M m) { return (_mm256_movemask_ps(m.a) | _mm256_movemask_ps(m.b)) != 0; }
inline __m256 unzip_half(__m256 even_or_odd) {  // 64-bit quarters 0 2 1 3 into order
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(even_or_odd), 0xd8));
}
inline void unzip(F x, F y, F& even, F& odd) {
  even = {unzip_half(_mm256_shuffle_ps(x.a, x.b, 0x88)), unzip_half(_mm256_shuffle_ps(y.a, y.b, 0x88))};
  odd = {unzip_half(_mm256_shuffle_ps(x.a, x.b, 0xdd)), unzip_half(_mm256_shuffle_ps(y.a, y.b, 0xdd))};
}

#elif defined(LILLIPUT_ISA_NEON)

struct F {
  float32x4_t v[4];
};
struct U {
  uint32x4_t v[4];
};
struct M {
  uint32x4_t v[4];
};

#define LILLIPUT_EACH(R, EXPRESSION)               \
  R r;                                             \
  for (int i = 0; i < 4; i++) r.v[i] = EXPRESSION; \
  return r

inline F zero() { LILLIPUT_EACH(F, vdupq_n_f32(0.0f)); }
inline F splat(float x) { LILLIPUT_EACH(F, vdupq_n_f32(x)); }
inline U splat_u(uint32_t x) { LILLIPUT_EACH(U, vdupq_n_u32(x)); }
inline F load(const float* p) { LILLIPUT_EACH(F, vld1q_f32(p + 4 * i)); }
inline void store(float* p, F a) {
  for (int i = 0; i < 4; i++) vst1q_f32(p + 4 * i, a.v[i]);
}
inline U load_u(const void* p) {
  auto q = static_cast<const uint8_t*>(p);
  LILLIPUT_EACH(U, vreinterpretq_u32_u8(vld1q_u8(q + 16 * i)));
}
inline void store_u(void* p, U a) {
  auto q = static_cast<uint8_t*>(p);
  for (int i = 0; i < 4; i++) vst1q_u8(q + 16 * i, vreinterpretq_u8_u32(a.v[i]));
}
inline F fma(F a, F b, F c) { LILLIPUT_EACH(F, vfmaq_f32(c.v[i], a.v[i], b.v[i])); }
inline F operator+(F a, F b) { LILLIPUT_EACH(F, vaddq_f32(a.v[i], b.v[i])); }
inline F operator-(F a, F b) { LILLIPUT_EACH(F, vsubq_f32(a.v[i], b.v[i])); }
inline F operator*(F a, F b) { LILLIPUT_EACH(F, vmulq_f32(a.v[i], b.v[i])); }
inline F operator/(F a, F b) { LILLIPUT_EACH(F, vdivq_f32(a.v[i], b.v[i])); }
inline F sqrt(F a) { LILLIPUT_EACH(F, vsqrtq_f32(a.v[i])); }
inline M greater(F a, F b) { LILLIPUT_EACH(M, vcgtq_f32(a.v[i], b.v[i])); }
inline M is_nan(F a) { LILLIPUT_EACH(M, vmvnq_u32(vceqq_f32(a.v[i], a.v[i]))); }
inline F select(M m, F a, F b) { LILLIPUT_EACH(F, vbslq_f32(m.v[i], a.v[i], b.v[i])); }
inline U bits(F a) { LILLIPUT_EACH(U, vreinterpretq_u32_f32(a.v[i])); }
inline F from_bits(U a) { LILLIPUT_EACH(F, vreinterpretq_f32_u32(a.v[i])); }
inline U operator+(U a, U b) { LILLIPUT_EACH(U, vaddq_u32(a.v[i], b.v[i])); }
inline U operator-(U a, U b) { LILLIPUT_EACH(U, vsubq_u32(a.v[i], b.v[i])); }
inline U operator&(U a, U b) { LILLIPUT_EACH(U, vandq_u32(a.v[i], b.v[i])); }
inline U operator|(U a, U b) { LILLIPUT_EACH(U, vorrq_u32(a.v[i], b.v[i])); }
inline U operator^(U a, U b) { LILLIPUT_EACH(U, veorq_u32(a.v[i], b.v[i])); }
template <int n>
inline U shl(U a) {
  LILLIPUT_EACH(U, vshlq_n_u32(a.v[i], n));
}
template <int n>
inline U shr(U a) {
  LILLIPUT_EACH(U, vshrq_n_u32(a.v[i], n));
}
template <int n>
inline U sar(U a) {
  LILLIPUT_EACH(U, vreinterpretq_u32_s32(vshrq_n_s32(vreinterpretq_s32_u32(a.v[i]), n)));
}
inline bool any(M m) { return vmaxvq_u32(vorrq_u32(vorrq_u32(m.v[0], m.v[1]), vorrq_u32(m.v[2], m.v[3]))) != 0; }
inline void unzip(F a, F b, F& even, F& odd) {
  for (int i = 0; i < 4; i++) {
    const F& from = i < 2 ? a : b;
    even.v[i] = vuzp1q_f32(from.v[2 * (i & 1)], from.v[2 * (i & 1) + 1]);
    odd.v[i] = vuzp2q_f32(from.v[2 * (i & 1)], from.v[2 * (i & 1) + 1]);
  }
}

#undef LILLIPUT_EACH

#else  // LILLIPUT_ISA_SCALAR

struct F {
  float v[16];
};
struct U {
  uint32_t v[16];
};
struct M {
  bool v[16];
};

#define LILLIPUT_EACH(R, EXPRESSION)                \
  R r;                                              \
  for (int i = 0; i < 16; i++) r.v[i] = EXPRESSION; \
  return r

inline F zero() { LILLIPUT_EACH(F, 0.0f); }
inline F splat(float x) { LILLIPUT_EACH(F, x); }
inline U splat_u(uint32_t x) { LILLIPUT_EACH(U, x); }
inline F load(const float* p) {
  F r;
  std::memcpy(&r, p, sizeof r);
  return r;
}
inline void store(float* p, const F& a) { std::memcpy(p, &a, sizeof a); }
inline U load_u(const void* p) {
  U r;
  std::memcpy(&r, p, sizeof r);
  return r;
}
inline void store_u(void* p, const U& a) { std::memcpy(p, &a, sizeof a); }
inline F fma(const F& a, const F& b, const F& c) { LILLIPUT_EACH(F, fma1(a.v[i], b.v[i], c.v[i])); }
inline F operator+(const F& a, const F& b) { LILLIPUT_EACH(F, a.v[i] + b.v[i]); }
inline F operator-(const F& a, const F& b) { LILLIPUT_EACH(F, a.v[i] - b.v[i]); }
inline F operator*(const F& a, const F& b) { LILLIPUT_EACH(F, a.v[i] * b.v[i]); }
inline F operator/(const F& a, const F& b) { LILLIPUT_EACH(F, a.v[i] / b.v[i]); }
inline F sqrt(const F& a) { LILLIPUT_EACH(F, __builtin_sqrtf(a.v[i])); }
inline M greater(const F& a, const F& b) { LILLIPUT_EACH(M, a.v[i] > b.v[i]); }
inline M is_nan(const F& a) { LILLIPUT_EACH(M, a.v[i] != a.v[i]); }
inline F select(const M& m, const F& a, const F& b) { LILLIPUT_EACH(F, m.v[i] ? a.v[i] : b.v[i]); }
inline U bits(const F& a) { return as<U>(a); }
inline F from_bits(const U& a) { return as<F>(a); }
inline U operator+(const U& a, const U& b) { LILLIPUT_EACH(U, a.v[i] + b.v[i]); }
inline U operator-(const U& a, const U& b) { LILLIPUT_EACH(U, a.v[i] - b.v[i]); }
inline U operator&(const U& a, const U& b) { LILLIPUT_EACH(U, a.v[i] & b.v[i]); }
inline U operator|(const U& a, const U& b) { LILLIPUT_EACH(U, a.v[i] | b.v[i]); }
inline U operator^(const U& a, const U& b) { LILLIPUT_EACH(U, a.v[i] ^ b.v[i]); }
template <int n>
inline U shl(const U& a) {
  LILLIPUT_EACH(U, a.v[i] << n);
}
template <int n>
inline U shr(const U& a) {
  LILLIPUT_EACH(U, a.v[i] >> n);
}
template <int n>
inline U sar(const U& a) {
  LILLIPUT_EACH(U, uint32_t(int32_t(a.v[i]) >> n));
}
inline bool any(const M& m) {
  bool r = false;
  for (int i = 0; i < 16; i++) r |= m.v[i];
  return r;
}
inline void unzip(const F& a, const F& b, F& even, F& odd) {
  for (int i = 0; i < 16; i++) {
    const float* from = i < 8 ? a.v + 2 * i : b.v + 2 * (i - 8);
    even.v[i] = from[0];
    odd.v[i] = from[1];
  }
}

#undef LILLIPUT_EACH

#endif

inline F max(F a, F b) { return select(greater(a, b), a, b); }

// The compiler's prefetch never faults, so running past the end of the mapping is harmless. Far: into the second-level cache.
inline void prefetch(const void* p, size_t ahead = 0) {
  __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(p) + ahead));
}
inline void prefetch_far(const void* p, size_t ahead = 0) {
  __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(p) + ahead), 0, 2);
}

// Two bf16 weights of one 32-bit word, widened exactly: element 2l in the low half, 2l+1 in the high half of lane l.
inline F even(U w) { return from_bits(shl<16>(w)); }
inline F odd(U w) { return from_bits(w & splat_u(0xffff0000u)); }

// Contract rule 7 for four at a time: t[l] + t[l+8], then +4, +2, +1; to[i] is what a[i] comes to.
inline void reduce(float to[4], const F a[4]) {
#if defined(LILLIPUT_ISA_AVX512)
  const auto halves = [](F x, F y) {  // eight lanes of each
    return _mm512_add_ps(_mm512_maskz_shuffle_f32x4(kAll, x.v, y.v, 0x44), _mm512_maskz_shuffle_f32x4(kAll, x.v, y.v, 0xee));
  };
  const __m512 x = halves(a[0], a[1]), y = halves(a[2], a[3]);
  __m512 t = _mm512_add_ps(_mm512_maskz_shuffle_f32x4(kAll, x, y, 0x88), _mm512_maskz_shuffle_f32x4(kAll, x, y, 0xdd));
  t = _mm512_add_ps(t, _mm512_maskz_permute_ps(kAll, t, 0x0e));
  t = _mm512_add_ps(t, _mm512_maskz_permute_ps(kAll, t, 0x01));
  _mm_storeu_ps(to, _mm512_maskz_extractf32x4_ps(0xf, _mm512_maskz_compress_ps(0x1111, t), 0));
#elif defined(LILLIPUT_ISA_AVX2)
  const auto quarters = [](F x, F y) {  // four lanes of each
    const __m256 p = _mm256_add_ps(x.a, x.b), q = _mm256_add_ps(y.a, y.b);
    return _mm256_add_ps(_mm256_permute2f128_ps(p, q, 0x20), _mm256_permute2f128_ps(p, q, 0x31));
  };
  const __m256 x = quarters(a[0], a[1]), y = quarters(a[2], a[3]);
  __m256 t = _mm256_add_ps(_mm256_shuffle_ps(x, y, 0x44), _mm256_shuffle_ps(x, y, 0xee));  // 0 0 2 2 1 1 3 3
  t = _mm256_add_ps(_mm256_shuffle_ps(t, t, 0x88), _mm256_shuffle_ps(t, t, 0xdd));         // 0 2 0 2 1 3 1 3
  _mm_storeu_ps(to, _mm_unpacklo_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps(t, 1)));
#elif defined(LILLIPUT_ISA_NEON)
  const auto pairs = [](F x, F y) {  // two lanes of each
    const float32x4_t p = vaddq_f32(vaddq_f32(x.v[0], x.v[2]), vaddq_f32(x.v[1], x.v[3]));
    const float32x4_t q = vaddq_f32(vaddq_f32(y.v[0], y.v[2]), vaddq_f32(y.v[1], y.v[3]));
    return vaddq_f32(vcombine_f32(vget_low_f32(p), vget_low_f32(q)), vcombine_f32(vget_high_f32(p), vget_high_f32(q)));
  };
  vst1q_f32(to, vpaddq_f32(pairs(a[0], a[1]), pairs(a[2], a[3])));
#else
  for (int i = 0; i < 4; i++) {
    float t[16];
    store(t, a[i]);
    for (int half = 8; half; half >>= 1)
      for (int l = 0; l < half; l++) t[l] = t[l] + t[l + half];
    to[i] = t[0];
  }
#endif
}

inline float reduce(F a) {
  const F four[4] = {a, a, a, a};
  float to[4];
  reduce(to, four);
  return to[0];
}

}  // namespace
}  // namespace lilliput
