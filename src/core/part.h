// One machine register of floats. Sixteen lanes are one, two or four of them; lanes never mix before the end of a dot product, so the
// kernels for several tokens walk them a register's worth at a time and keep more sums in registers.
#pragma once

#include "vec.h"

namespace lilliput {
namespace {

// kPartTokens: as many tokens as fill the register file with 4 x kPartTokens sums, the weights of four rows and the activations of a
// token.
#if defined(LILLIPUT_ISA_AVX512)

using Part = __m512;
constexpr size_t kPartLanes = 16, kPartTokens = 6;
inline Part part_load(const float* p) { return _mm512_loadu_ps(p); }
inline void part_store(float* p, Part a) { _mm512_storeu_ps(p, a); }
inline Part part_mul(Part a, Part b) { return _mm512_mul_ps(a, b); }
inline Part part_fma(Part a, Part b, Part c) { return _mm512_fmadd_ps(a, b, c); }
template <size_t p>
inline Part& part(F& x) {
  return x.v;
}

#elif defined(LILLIPUT_ISA_AVX2)

using Part = __m256;
constexpr size_t kPartLanes = 8, kPartTokens = 3;
inline Part part_load(const float* p) { return _mm256_loadu_ps(p); }
inline void part_store(float* p, Part a) { _mm256_storeu_ps(p, a); }
inline Part part_mul(Part a, Part b) { return _mm256_mul_ps(a, b); }
inline Part part_fma(Part a, Part b, Part c) { return _mm256_fmadd_ps(a, b, c); }
template <size_t p>
inline Part& part(F& x) {
  return p ? x.b : x.a;
}

#elif defined(LILLIPUT_ISA_NEON)

using Part = float32x4_t;
constexpr size_t kPartLanes = 4, kPartTokens = 6;
inline Part part_load(const float* p) { return vld1q_f32(p); }
inline void part_store(float* p, Part a) { vst1q_f32(p, a); }
inline Part part_mul(Part a, Part b) { return vmulq_f32(a, b); }
inline Part part_fma(Part a, Part b, Part c) { return vfmaq_f32(c, a, b); }
template <size_t p>
inline Part& part(F& x) {
  return x.v[p];
}

#else

using Part = F;
constexpr size_t kPartLanes = 16, kPartTokens = 2;
inline Part part_load(const float* p) { return load(p); }
inline void part_store(float* p, const Part& a) { store(p, a); }
inline Part part_mul(const Part& a, const Part& b) { return a * b; }
inline Part part_fma(const Part& a, const Part& b, const Part& c) { return fma(a, b, c); }
template <size_t p>
inline Part& part(F& x) {
  return x;
}

#endif

constexpr size_t kParts = kLanes / kPartLanes;

}  // namespace
}  // namespace lilliput
