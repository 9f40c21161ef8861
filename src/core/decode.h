// From stored bytes to sixteen lanes: the byte shuffles of K12 tiles and MXFP4 blocks, on every instruction set.
//
// Both formats are laid out so that table look-ups and unpacks stay inside 128-bit lanes: the same few steps then work on one
// 64-byte register, two of 32 or four of 16.
#pragma once

#include <bit>
#include <utility>

#include "vec.h"

namespace lilliput {
namespace {

// 128 bf16 weights of one row: four vectors of sixteen words, two weights a word.
struct Tile {
  U v[4];
};

// The two bytes of each E2M1 value (0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives) as bf16.
alignas(16) constexpr uint8_t kE2M1High[16] = {0x00, 0x3f, 0x3f, 0x3f, 0x40, 0x40, 0x40, 0x40,
                                               0x80, 0xbf, 0xbf, 0xbf, 0xc0, 0xc0, 0xc0, 0xc0};
alignas(16) constexpr uint8_t kE2M1Low[16] = {0x00, 0x00, 0x80, 0xc0, 0x00, 0x40, 0x80, 0xc0,
                                              0x00, 0x00, 0x80, 0xc0, 0x00, 0x40, 0x80, 0xc0};

// 2^(e - 127): the smallest is a subnormal, and 255, which stands for NaN, counts as zero (the caller reports it).
struct Scales {
  float of[256];
  constexpr Scales() : of() {
    for (uint32_t e = 0; e < 256; e++) of[e] = std::bit_cast<float>(e == 0 ? 0x00400000u : e == 255 ? 0u : e << 23);
  }
};
constexpr Scales kScales;

#if defined(LILLIPUT_ISA_AVX512)

struct Bytes16 {
  __m512i v;
};

inline Bytes16 bytes16(const uint8_t* p) {
  return {_mm512_maskz_broadcast_i32x4(kAll, _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
inline U look_up(Bytes16 table, U index) { return {_mm512_shuffle_epi8(table.v, index.v)}; }
inline U unpack_low(U low, U high) { return {_mm512_unpacklo_epi8(low.v, high.v)}; }
inline U unpack_high(U low, U high) { return {_mm512_unpackhi_epi8(low.v, high.v)}; }

#elif defined(LILLIPUT_ISA_AVX2)

struct Bytes16 {
  __m256i v;
};

inline Bytes16 bytes16(const uint8_t* p) { return {_mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))}; }
inline U unpack_low(U low, U high) { return {_mm256_unpacklo_epi8(low.a, high.a), _mm256_unpacklo_epi8(low.b, high.b)}; }
inline U unpack_high(U low, U high) { return {_mm256_unpackhi_epi8(low.a, high.a), _mm256_unpackhi_epi8(low.b, high.b)}; }
inline U look_up(Bytes16 table, U index) { return {_mm256_shuffle_epi8(table.v, index.a), _mm256_shuffle_epi8(table.v, index.b)}; }

#elif defined(LILLIPUT_ISA_NEON)

struct Bytes16 {
  uint8x16_t v;
};

inline Bytes16 bytes16(const uint8_t* p) { return {vld1q_u8(p)}; }

inline U unpack_low(U low, U high) {
  U r;
  for (int i = 0; i < 4; i++) r.v[i] = vreinterpretq_u32_u8(vzip1q_u8(vreinterpretq_u8_u32(low.v[i]), vreinterpretq_u8_u32(high.v[i])));
  return r;
}
inline U unpack_high(U low, U high) {
  U r;
  for (int i = 0; i < 4; i++) r.v[i] = vreinterpretq_u32_u8(vzip2q_u8(vreinterpretq_u8_u32(low.v[i]), vreinterpretq_u8_u32(high.v[i])));
  return r;
}
inline U look_up(Bytes16 table, U index) {
  U r;
  for (int i = 0; i < 4; i++) r.v[i] = vreinterpretq_u32_u8(vqtbl1q_u8(table.v, vreinterpretq_u8_u32(index.v[i])));
  return r;
}

#else

struct Bytes16 {
  uint8_t v[16];
};

inline Bytes16 bytes16(const uint8_t* p) {
  Bytes16 r;
  std::memcpy(&r, p, 16);
  return r;
}

struct Bytes64 {
  uint8_t v[64];
};

// Bytes `half` .. half + 7 of each 16, interleaved.
inline U unpack(const U& low, const U& high, int half) {
  const auto l = as<Bytes64>(low), h = as<Bytes64>(high);
  Bytes64 r;
  for (int lane = 0; lane < 64; lane += 16)
    for (int i = 0; i < 8; i++) {
      r.v[lane + 2 * i] = l.v[lane + half + i];
      r.v[lane + 2 * i + 1] = h.v[lane + half + i];
    }
  return as<U>(r);
}
inline U unpack_low(const U& low, const U& high) { return unpack(low, high, 0); }
inline U unpack_high(const U& low, const U& high) { return unpack(low, high, 8); }
inline U look_up(const Bytes16& table, const U& index) {
  auto r = as<Bytes64>(index);
  for (uint8_t& b : r.v) b = table.v[b & 15];
  return as<U>(r);
}

#endif

inline Tile k12_tile(const uint8_t* p, const Bytes16& table) {
  const U a = load_u(p), b = load_u(p + 64), codes = load_u(p + 128), low = splat_u(0x0f0f0f0f);
  const U ha = look_up(table, codes & low), hb = look_up(table, shr<4>(codes) & low);
  return {{unpack_low(a, ha), unpack_high(a, ha), unpack_low(b, hb), unpack_high(b, hb)}};
}

// body(0), body(1), ..., body(n - 1), each known to the compiler.
template <size_t... I, class Body>
inline void each_of(std::index_sequence<I...>, Body body) {
  (body(std::integral_constant<size_t, I>{}), ...);
}
template <size_t n, class Body>
inline void each(Body body) {
  each_of(std::make_index_sequence<n>{}, body);
}

// One row's block of MXFP4: fp4_weight<turn> gives the E2M1 value that each lane takes in that turn (contract rule 6; the low nibble
// of a byte is the earlier element), fp4_scales the scale of each group for its four lanes.
#if defined(LILLIPUT_ISA_AVX512)

// A lane's eight nibbles in one word, first turn lowest: the sixteen values are one register, and its look-up ignores upper bits.
struct Fp4Tables {
  __m512 values = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f);
  __m512i gather = _mm512_maskz_broadcast_i32x4(kAll, _mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15));
};
struct Fp4 {
  U v;
};
inline Fp4 fp4_block(const uint8_t* p, const Fp4Tables& t) { return {{_mm512_shuffle_epi8(load_u(p).v, t.gather)}}; }
template <size_t turn>
inline F fp4_weight(const Fp4& b, const Fp4Tables& t) {
  return {_mm512_maskz_permutexvar_ps(kAll, shr<4 * turn>(b.v).v, t.values)};
}
inline F fp4_scales(const uint8_t* s) {
  __m512 r = _mm512_set1_ps(kScales.of[s[0]]);
  r = _mm512_mask_broadcastss_ps(r, 0x00f0, _mm_load_ss(kScales.of + s[1]));
  r = _mm512_mask_broadcastss_ps(r, 0x0f00, _mm_load_ss(kScales.of + s[2]));
  return {_mm512_mask_broadcastss_ps(r, 0xf000, _mm_load_ss(kScales.of + s[3]))};
}

#else

// The two bytes of each value as bf16, looked up byte-wise.
struct Fp4Tables {
  Bytes16 high = bytes16(kE2M1High), low = bytes16(kE2M1Low);
};
// Word j of a group's first vector holds elements 4j and 4j + 2, of the second 4j + 1 and 4j + 3; the other two vectors hold the
// group's second half alike.
using Fp4 = Tile;
inline Fp4 fp4_block(const uint8_t* p, const Fp4Tables& t) {
  const U packed = load_u(p), mask = splat_u(0x0f0f0f0f), n0 = packed & mask, n1 = shr<4>(packed) & mask;
  const U h0 = look_up(t.high, n0), l0 = look_up(t.low, n0), h1 = look_up(t.high, n1), l1 = look_up(t.low, n1);
  return {{unpack_low(l0, h0), unpack_low(l1, h1), unpack_high(l0, h0), unpack_high(l1, h1)}};
}
template <size_t turn>
inline F fp4_weight(const Fp4& b, const Fp4Tables&) {
  const U& w = b.v[turn % 2 + 2 * (turn / 4)];
  return turn % 4 < 2 ? even(w) : odd(w);
}
#if defined(LILLIPUT_ISA_AVX2)
inline F fp4_scales(const uint8_t* s) {
  const float* of = kScales.of;
  return {_mm256_insertf128_ps(_mm256_castps128_ps256(_mm_broadcast_ss(of + s[0])), _mm_broadcast_ss(of + s[1]), 1),
          _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_broadcast_ss(of + s[2])), _mm_broadcast_ss(of + s[3]), 1)};
}
#else
inline F fp4_scales(const uint8_t* s) {
  float each[16];
  for (int l = 0; l < 16; l++) each[l] = kScales.of[s[l / 4]];
  return load(each);
}
#endif

#endif

}  // namespace
}  // namespace lilliput
