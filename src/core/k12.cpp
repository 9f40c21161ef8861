#include "k12.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "pool.h"

namespace lilliput {
namespace {

constexpr size_t kTable = 16;

struct Shape {
  size_t quads, blocks, tiles;  // tiles in bytes

  Shape(size_t rows, size_t in)
      : quads(rows / 4 + (rows % 4 != 0)), blocks(in / 128 + (in % 128 != 0)), tiles(quads * blocks * 4 * kK12Tile) {
    if (in > kK12MostColumns || quads > SIZE_MAX / 2 / ((blocks + 1) * 4 * kK12Tile))
      throw std::invalid_argument("K12 matrix: needed at most " + std::to_string(kK12MostColumns) +
                                  " columns, and tiles that fit the address space, found " + std::to_string(rows) + " x " +
                                  std::to_string(in));
  }
  size_t frame() const { return tiles + kTable + 4 * (quads + 1); }  // everything but the escapes
};

// Code of each high byte, 255 for one that is not in the table; the same as a low and a high nibble, where such a one is 0.
struct Codes {
  uint8_t of[256], low[256], high[256];

  explicit Codes(const uint8_t table[16]) {
    std::memset(of, 255, sizeof of);
    for (size_t i = 16; i-- > 0;) of[table[i]] = uint8_t(i);
    for (size_t b = 0; b < 256; b++) {
      low[b] = of[b] == 255 ? 0 : of[b];
      high[b] = uint8_t(low[b] << 4);
    }
  }
};

uint32_t word(const uint8_t* p, size_t i) {
  uint32_t x;
  std::memcpy(&x, p + 4 * i, 4);
  return x;
}

// First escape of every quad, and at the end how many there are.
std::vector<uint32_t> count_escapes(const uint8_t* w, size_t rows, size_t in, const Codes& codes, const Shape& shape) {
  std::vector<uint32_t> offsets(shape.quads + 1);
  parallel_for(shape.quads, 4 * in, [&](size_t begin, size_t end) {
    for (size_t q = begin; q < end; q++) {
      const size_t last = std::min(rows, 4 * q + 4);
      uint32_t n = 0;
      for (size_t i = 4 * q * in; i < last * in; i++) n += codes.of[w[2 * i + 1]] == 255;
      offsets[q + 1] = n;
    }
  });
  uint64_t total = 0;
  for (size_t q = 0; q < shape.quads; q++) {
    total += offsets[q + 1];
    if (total > UINT32_MAX) throw std::invalid_argument("w: needed fewer than 2^32 escapes in one piece, found more; use smaller pieces");
    offsets[q + 1] = uint32_t(total);
  }
  return offsets;
}

uint64_t four(const uint8_t* w) {
  uint64_t x;
  std::memcpy(&x, w, 8);
  return x;
}

// The low bytes of four weights.
uint32_t low_bytes(uint64_t x) {
  x &= 0x00ff00ff00ff00ff;
  x = (x | x >> 8) & 0x0000ffff0000ffff;
  return uint32_t(x | x >> 16);
}

// What `of` has for their high bytes.
uint32_t look_up(const uint8_t of[256], uint64_t x) {
  return uint32_t(of[x >> 8 & 255]) | uint32_t(of[x >> 24 & 255]) << 8 | uint32_t(of[x >> 40 & 255]) << 16 | uint32_t(of[x >> 56]) << 24;
}

// One row's 128 weights, four at a time in ordinary registers: byte by byte the compiler vectorizes it to a sixth of the speed.
void encode_full_tile(uint8_t* __restrict tile, const uint8_t* __restrict w, const Codes& codes) {
  for (size_t k = 0; k < 4; k++)
    for (size_t half = 0; half < 2; half++)
      for (size_t j = 0; j < 8; j += 4) {
        const uint8_t* columns = w + 2 * (32 * half + 8 * k + j);
        const uint64_t a = four(columns), b = four(columns + 128);
        const uint32_t low_a = low_bytes(a), low_b = low_bytes(b), code = look_up(codes.low, a) | look_up(codes.high, b);
        uint8_t* to = tile + 16 * k + 8 * half + j;
        std::memcpy(to, &low_a, 4);
        std::memcpy(to + 64, &low_b, 4);
        std::memcpy(to + 128, &code, 4);
      }
}

// The first `columns` of them, the rest padding: low byte 0, and a high byte of code 0.
void encode_tile(uint8_t* tile, const uint8_t* w, size_t columns, const Codes& codes, uint8_t padding) {
  if (columns == 128) return encode_full_tile(tile, w, codes);
  if (columns == 0) {
    std::memset(tile, 0, kK12Tile);
    return;
  }
  uint8_t padded[256];
  for (size_t c = 0; c < 128; c++) {
    padded[2 * c] = 0;
    padded[2 * c + 1] = padding;
  }
  std::memcpy(padded, w, 2 * columns);
  encode_full_tile(tile, padded, codes);
}

[[noreturn]] void malformed(const std::string& what, const std::string& needed, const std::string& found) {
  throw std::invalid_argument("K12 piece: " + what + ": needed " + needed + ", found " + found);
}

}  // namespace

void k12_histogram(int64_t counts[256], const uint8_t* w, size_t n) {
  // Four tables: neighbouring weights often share their high byte, and one table would wait for its own stores.
  std::vector<int64_t> four(4 * 256);
  size_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (size_t k = 0; k < 4; k++) four[256 * k + w[2 * (i + k) + 1]]++;
  for (; i < n; i++) four[w[2 * i + 1]]++;
  for (size_t b = 0; b < 256; b++) counts[b] += four[b] + four[256 + b] + four[512 + b] + four[768 + b];
}

void k12_table(uint8_t table[16], const int64_t counts[256]) {
  uint8_t order[256];
  for (size_t b = 0; b < 256; b++) order[b] = uint8_t(b);
  std::stable_sort(order, order + 256, [&](uint8_t a, uint8_t b) {
    if ((a == 0 && counts[0] > 0) != (b == 0 && counts[0] > 0)) return a == 0;
    return counts[a] > counts[b];
  });
  std::memcpy(table, order, 16);
}

size_t k12_size(const uint8_t* w, size_t rows, size_t in, const uint8_t table[16]) {
  const Shape shape(rows, in);
  return shape.frame() + 4 * size_t(count_escapes(w, rows, in, Codes(table), shape).back());
}

size_t k12_encode(uint8_t* piece, size_t room, const uint8_t* w, size_t rows, size_t in, const uint8_t table[16]) {
  const Shape shape(rows, in);
  const Codes codes(table);
  const auto offsets = count_escapes(w, rows, in, codes, shape);
  const size_t size = shape.frame() + 4 * size_t(offsets.back());
  if (size > room) return size;
  uint8_t* escapes = piece + shape.frame();
  std::memcpy(piece + shape.tiles, table, kTable);
  std::memcpy(piece + shape.tiles + kTable, offsets.data(), 4 * offsets.size());
  parallel_for(shape.quads, 4 * in, [&](size_t begin, size_t end) {
    for (size_t q = begin; q < end; q++) {
      const size_t count = std::min(rows - 4 * q, size_t(4));
      for (size_t b = 0; b < shape.blocks; b++)
        for (size_t r = 0; r < 4; r++) {
          uint8_t* tile = piece + ((q * shape.blocks + b) * 4 + r) * kK12Tile;
          encode_tile(tile, w + 2 * ((4 * q + r) * in + 128 * b), r < count ? std::min(in - 128 * b, size_t(128)) : 0, codes, table[0]);
        }
      size_t e = offsets[q];
      if (offsets[q + 1] == e) continue;
      for (size_t c = 0; c < in; c++)
        for (size_t r = 0; r < count; r++) {
          const uint8_t high = w[2 * ((4 * q + r) * in + c) + 1];
          if (codes.of[high] != 255) continue;
          const auto escape = uint32_t(c << 10 | r << 8 | high);
          std::memcpy(escapes + 4 * e++, &escape, 4);
        }
    }
  });
  return size;
}

K12 k12_open(const uint8_t* piece, size_t bytes, size_t rows, size_t in) {
  const Shape shape(rows, in);
  const std::string what = std::to_string(rows) + " x " + std::to_string(in);
  if (bytes < shape.frame()) malformed(what, "at least " + std::to_string(shape.frame()) + " bytes", std::to_string(bytes));
  const K12 p{piece, piece + shape.tiles, piece + shape.tiles + kTable, piece + shape.frame(), rows, in, shape.quads, shape.blocks};
  const size_t room = (bytes - shape.frame()) / 4;
  uint32_t before = word(p.offsets, 0);
  if (before != 0) malformed("first escape offset", "0", std::to_string(before));
  for (size_t q = 0; q < shape.quads; q++) {
    const uint32_t next = word(p.offsets, q + 1);
    if (next < before || next > room)
      malformed("escape offset of quad " + std::to_string(q + 1), std::to_string(before) + " to " + std::to_string(room),
                std::to_string(next));
    const size_t count = std::min(rows - 4 * q, size_t(4));
    int64_t last = -1;
    for (size_t e = before; e < next; e++) {
      const uint32_t x = word(p.escapes, e);
      if (int64_t(x >> 8) <= last || (x >> 8 & 3) >= count || x >> 10 >= in)
        malformed("escape " + std::to_string(e), "ascending positions inside " + what,
                  "row " + std::to_string(4 * q + (x >> 8 & 3)) + ", column " + std::to_string(x >> 10));
      last = x >> 8;
    }
    before = next;
  }
  if (bytes != shape.frame() + 4 * size_t(before))
    malformed(what, std::to_string(shape.frame() + 4 * size_t(before)) + " bytes by its own escape count", std::to_string(bytes));
  return p;
}

}  // namespace lilliput
