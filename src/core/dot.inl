// Dot products in pair and quad order (contract rules 5 and 6) with weights in four storages, against activations that were permuted
// once. storage.inl opens the weights, few.inl and panel.inl bring them together with few and with many tokens. Neither the number
// of tokens nor any blocking touches the order inside one dot product, so neither shows in the bits.
#pragma once

#include "decode.h"
#include "kernels_dot.h"
#include "panel.inl"
#include "storage.inl"
#include "vec.h"

namespace lilliput {
namespace {

// A block of activations: in place where it is whole, else in `room`, filled up with zeros.
inline const float* padded(float* room, const float* x, size_t n) {
  if (n >= kBlock) return x;
  std::memset(room, 0, kBlock * sizeof(float));
  std::memcpy(room, x, n * sizeof(float));
  return room;
}

inline void pair32(float* to, const float* x) {
  F even, odd;
  unzip(load(x), load(x + 16), even, odd);
  store(to, even);
  store(to + 16, odd);
}

// Even elements of each 32, then the odd ones: element i meets lane (i >> 1) & 15.
void pair_order(float* to, size_t step, const float* x, size_t n) {
  for (size_t i = 0; i < n; i += kBlock, to += step) {
    alignas(64) float room[kBlock];
    const float* from = padded(room, x + i, n - i);
    for (size_t s = 0; s < kBlock; s += 32) pair32(to + s, from + s);
  }
}

// Element i of a block of 128 meets lane 4 * (i / 32) + (i / 4) % 4; its turn there is 4 * (i / 16 % 2) + i % 4.
void quad_order(float* to, size_t step, const float* x, size_t n) {
  for (size_t i = 0; i < n; i += kBlock, to += step) {
    alignas(64) float room[kBlock];
    const float* from = padded(room, x + i, n - i);
    for (size_t s = 0; s < 8; s++)  // sixteen elements: four lanes, four turns
      for (size_t turn = 0; turn < 4; turn++)
        for (size_t l = 0; l < 4; l++) to[(s % 2 * 4 + turn) * kLanes + s / 2 * 4 + l] = from[16 * s + 4 * l + turn];
  }
}

template <class W>
inline void dot(float* y, size_t ld, const float* x, size_t tokens, const W& w, size_t row, size_t rows, size_t in, float* scratch) {
  if (tokens <= kFewTokens)
    dot_few(y, ld, x, tokens, w, row, rows, in);
  else
    dot_panels(y, ld, x, tokens, w, row, rows, in, scratch);
}

void dot_bf16(float* y, size_t ld, const float* xp, size_t tokens, const uint8_t* w, size_t rows, size_t in, float* scratch) {
  dot(y, ld, xp, tokens, Bf16Rows(w, rows, in), 0, rows, in, scratch);
}

void dot_f32(float* y, size_t ld, const float* xp, size_t tokens, const uint8_t* w, size_t rows, size_t in, float* scratch) {
  dot(y, ld, xp, tokens, F32Rows(w, rows, in), 0, rows, in, scratch);
}

void dot_k12(float* y, size_t ld, const float* xp, size_t tokens, const K12& piece, size_t row, size_t rows, float* scratch) {
  dot(y, ld, xp, tokens, K12Rows(piece), row, rows, piece.in, scratch);
}

void dot_mxfp4(float* y, size_t ld, const float* xq, size_t tokens, const uint8_t* packed, const uint8_t* scales, size_t rows, size_t in,
               float* scratch) {
  dot(y, ld, xq, tokens, Fp4Rows(packed, scales, rows, in), 0, rows, in, scratch);
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

void accumulate(float* y, const float* v, float weight, size_t n) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, fma(splat(weight), load(v + i), load(y + i)));
  for (; i < n; i++) y[i] = fma1(weight, v[i], y[i]);
}

}  // namespace
}  // namespace lilliput

#include "transposed.inl"

namespace lilliput {
namespace {

constexpr DotKernels dot_kernels() {
  return {pair_order, quad_order, dot_f32, dot_bf16, dot_k12, k12_decode, dot_mxfp4, transposed_f32, transposed_bf16, accumulate};
}

}  // namespace
}  // namespace lilliput
