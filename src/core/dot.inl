// Dot products in pair order (contract rule 5): rows of bf16, float32 and K12 against activations that were permuted once.
//
// Four rows at a time: one row is a single chain of dependent multiply-adds and leaves the memory idle, four keep it busy. One
// token runs straight from the stored form in registers; more tokens share each decoded weight, in blocks that fit the
// registers (dot_tokens.inl). Neither choice touches the order inside one dot product, so neither shows in the bits.
#pragma once

#include "decode.h"
#include "kernels_dot.h"
#include "vec.h"

namespace lilliput {
namespace {

constexpr size_t kBlock = 128;  // columns

inline size_t padded(size_t n) { return (n + kBlock - 1) / kBlock * kBlock; }

inline void pair32(float* to, const float* x) {
  F even, odd;
  unzip(load(x), load(x + 16), even, odd);
  store(to, even);
  store(to + 16, odd);
}

// Even elements of each 32, then the odd ones: element i meets lane (i >> 1) & 15.
void pair_order(float* to, const float* x, size_t n) {
  size_t i = 0;
  for (; i + 32 <= n; i += 32) pair32(to + i, x + i);
  if (i == padded(n)) return;
  float last[kBlock] = {};
  std::memcpy(last, x + i, (n - i) * sizeof(float));
  for (size_t j = 0; i < padded(n); i += 32, j += 32) pair32(to + i, last + j);
}

// Four rows of bf16; short ones at the end of a matrix point at their neighbour and are not stored.
struct Quad {
  const uint8_t* row[4];
  size_t blocks;        // of 128 columns, read in place
  const uint8_t* tail;  // [4][256] bytes: one more block, zero-padded, or null
  size_t first, last;   // rows [first, last) are stored
};

// One block of 128 weights of one row: four words of two weights each, times eight vectors of activations.
inline F dot_block(const Tile& w, const float* x, F acc) {
  for (int s = 0; s < 4; s++) {
    acc = fma(even(w.v[s]), load(x + 32 * s), acc);
    acc = fma(odd(w.v[s]), load(x + 32 * s + 16), acc);
  }
  return acc;
}

inline void dot_blocks(F acc[4], const uint8_t* const row[4], size_t blocks, const float* x) {
  for (size_t i = 0; i < 4 * blocks; i++, x += 32) {
    const F x0 = load(x), x1 = load(x + 16);
    for (int r = 0; r < 4; r++) {
      const U w = load_u(row[r] + 64 * i);
      acc[r] = fma(odd(w), x1, fma(even(w), x0, acc[r]));
    }
  }
}

inline void store_quad(float* y, const F acc[4], size_t first, size_t last) {
  for (size_t r = first; r < last; r++) y[r] = reduce(acc[r]) + 0.0f;
}

inline void dot_token(float* y, const Quad& q, const float* x) {
  F acc[4] = {zero(), zero(), zero(), zero()};
  dot_blocks(acc, q.row, q.blocks, x);
  if (q.tail) {
    const uint8_t* row[4] = {q.tail, q.tail + 256, q.tail + 512, q.tail + 768};
    dot_blocks(acc, row, 1, x + q.blocks * kBlock);
  }
  store_quad(y, acc, q.first, q.last);
}

}  // namespace
}  // namespace lilliput

#include "dot_tokens.inl"

namespace lilliput {
namespace {

inline void dot_quad(float* y, size_t ld, const Quad& q, const float* xp, size_t tokens, size_t stride) {
  if (tokens == 1)
    dot_token(y, q, xp);
  else
    dot_tokens(y, ld, q, xp, tokens, stride);
}

void dot_bf16(float* y, size_t ld, const float* xp, size_t tokens, const uint8_t* w, size_t rows, size_t in) {
  const size_t blocks = in / kBlock, rest = (in - blocks * kBlock) * 2, bytes = in * 2;
  alignas(64) uint8_t tail[4 * 256];
  std::memset(tail, 0, sizeof tail);
  for (size_t r = 0; r < rows; r += 4) {
    const size_t count = rows - r < 4 ? rows - r : 4;
    Quad q{{}, blocks, rest ? tail : nullptr, 0, count};
    for (size_t i = 0; i < 4; i++) {
      q.row[i] = w + (r + (i < count ? i : 0)) * bytes;
      if (rest) std::memcpy(tail + 256 * i, q.row[i] + 256 * blocks, rest);
    }
    dot_quad(y + r, ld, q, xp, tokens, padded(in));
  }
}

// float32 rows are few and small: one token at a time, rearranged on the way.
void dot_f32(float* y, size_t ld, const float* xp, size_t tokens, const uint8_t* w, size_t rows, size_t in) {
  const size_t bytes = in * 4;
  for (size_t r = 0; r < rows; r++) {
    const uint8_t* row = w + r * bytes;
    for (size_t t = 0; t < tokens; t++) {
      const float* x = xp + t * padded(in);
      F acc = zero();
      for (size_t i = 0; i < in; i += 32) {
        float plain[32] = {};
        std::memcpy(plain, row + 4 * i, (in - i < 32 ? in - i : 32) * 4);
        F even, odd;
        unzip(load(plain), load(plain + 16), even, odd);
        acc = fma(odd, load(x + i + 16), fma(even, load(x + i), acc));
      }
      y[t * ld + r] = reduce(acc) + 0.0f;
    }
  }
}

inline uint32_t word(const uint8_t* p, size_t i) {
  uint32_t x;
  std::memcpy(&x, p + 4 * i, 4);
  return x;
}

void k12_decode(uint8_t* to, size_t stride, const K12& p, size_t row, size_t rows, size_t columns) {
  const Bytes16 table = bytes16(p.table);
  for (size_t quad = row / 4; quad * 4 < row + rows; quad++) {
    const size_t first = quad * 4 < row ? row - quad * 4 : 0, last = row + rows - quad * 4 < 4 ? row + rows - quad * 4 : 4;
    uint8_t* out[4];
    for (size_t r = first; r < last; r++) out[r] = to + (quad * 4 + r - row) * stride;
    const uint8_t* tile = p.tiles + quad * p.blocks * 4 * kK12Tile;
    for (size_t c = 0; c < columns; c += kBlock, tile += 4 * kK12Tile)
      for (size_t r = first; r < last; r++) {
        const Tile w = k12_tile(tile + r * kK12Tile, table);
        if (columns - c >= kBlock) {
          for (int s = 0; s < 4; s++) store_u(out[r] + 2 * c + 64 * s, w.v[s]);
        } else {
          alignas(64) uint8_t whole[256];
          for (int s = 0; s < 4; s++) store_u(whole + 64 * s, w.v[s]);
          std::memcpy(out[r] + 2 * c, whole, 2 * (columns - c));
        }
      }
    for (size_t e = word(p.offsets, quad); e < word(p.offsets, quad + 1); e++) {
      const uint32_t x = word(p.escapes, e);
      const size_t r = x >> 8 & 3;
      if (r >= first && r < last && x >> 10 < columns) out[r][2 * (x >> 10) + 1] = uint8_t(x);
    }
  }
}

// One token against one quad, decoded in registers; the rare tile with an escape is patched in memory first.
inline void k12_token(float* y, const K12& p, const Bytes16& table, size_t quad, size_t first, size_t last, const float* x) {
  F acc[4] = {zero(), zero(), zero(), zero()};
  const uint8_t* tile = p.tiles + quad * p.blocks * 4 * kK12Tile;
  size_t e = word(p.offsets, quad);
  const size_t end = word(p.offsets, quad + 1);
  size_t next = e < end ? word(p.escapes, e) >> 17 : p.blocks;  // block of the next escape
  for (size_t b = 0; b < p.blocks; b++, tile += 4 * kK12Tile, x += kBlock) {
    if (__builtin_expect(b != next, 1)) {
      for (int r = 0; r < 4; r++) acc[r] = dot_block(k12_tile(tile + r * kK12Tile, table), x, acc[r]);
      continue;
    }
    alignas(64) uint8_t whole[4 * 256];
    for (int r = 0; r < 4; r++) {
      const Tile w = k12_tile(tile + r * kK12Tile, table);
      for (int s = 0; s < 4; s++) store_u(whole + 256 * r + 64 * s, w.v[s]);
    }
    for (; e < end && word(p.escapes, e) >> 17 == b; e++) {
      const uint32_t at = word(p.escapes, e);
      whole[256 * (at >> 8 & 3) + 2 * (at >> 10 & 127) + 1] = uint8_t(at);
    }
    next = e < end ? word(p.escapes, e) >> 17 : p.blocks;
    const uint8_t* row[4] = {whole, whole + 256, whole + 512, whole + 768};
    dot_blocks(acc, row, 1, x);
  }
  store_quad(y, acc, first, last);
}

void dot_k12(float* y, size_t ld, const float* xp, size_t tokens, const K12& p, size_t row, size_t rows, uint8_t* scratch) {
  const Bytes16 table = bytes16(p.table);
  const size_t width = p.blocks * kBlock, bytes = 2 * width;
  for (size_t quad = row / 4; quad * 4 < row + rows; quad++) {
    const size_t first = quad * 4 < row ? row - quad * 4 : 0, last = row + rows - quad * 4 < 4 ? row + rows - quad * 4 : 4;
    // y[r - row] belongs to row r; `first` is zero except in a range's first quad, so this never points before y's own row.
    float* to = y + (quad * 4 + first - row);
    if (tokens == 1) {
      float out[4];
      k12_token(out, p, table, quad, first, last, xp);
      for (size_t r = first; r < last; r++) to[r - first] = out[r];
      continue;
    }
    k12_decode(scratch, bytes, p, quad * 4, 4, width);
    Quad q{{}, p.blocks, nullptr, 0, last - first};
    for (size_t r = 0; r < 4; r++) q.row[r] = scratch + (first + r < last ? first + r : first) * bytes;
    dot_tokens(to, ld, q, xp, tokens, width);
  }
}

void accumulate(float* y, const float* v, float weight, size_t n) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, fma(splat(weight), load(v + i), load(y + i)));
  for (; i < n; i++) y[i] = fma1(weight, v[i], y[i]);
}

}  // namespace
}  // namespace lilliput

#include "mxfp4.inl"
#include "transposed.inl"

namespace lilliput {
namespace {

constexpr DotKernels dot_kernels() {
  return {pair_order, quad_order, dot_f32, dot_bf16, dot_k12, k12_decode, mxfp4_kernel, transposed_f32, transposed_bf16, accumulate};
}

}  // namespace
}  // namespace lilliput
