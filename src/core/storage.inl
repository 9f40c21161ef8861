// Rows of weights as they are stored, opened four rows (a quad) and 128 columns (a block) at a time.
//
// A storage W gives a W::Quad, the places of its rows; W::block, one row's block in registers; and from that W::weight<turn>, the
// weights that the sixteen lanes take in that turn, and where kScaled the scale of each lane's group. Rows beyond the last repeat
// it. `open` writes a quad's block as floats, [4 rows][kVectors][16 lanes], and takes the blocks that are not as they are stored as
// well: the last, where columns are missing (they become zeros), and those with K12 escapes.
#pragma once

#include "decode.h"
#include "k12.h"
#include "vec.h"

namespace lilliput {
namespace {

constexpr size_t kBlock = 128;  // columns
constexpr size_t kTurns = kBlock / kLanes;

inline size_t blocks_of(size_t columns) { return (columns + kBlock - 1) / kBlock; }

// What the storages of plain rows share: the places of four rows, and their last block filled up with zeros.
struct PlainRows {
  struct Quad {
    const uint8_t* row[4];
  };
  const uint8_t* w;
  size_t rows, bytes, whole;  // bytes of a row, blocks that are whole

  inline Quad quad(size_t q, size_t first = 0) const {  // rows from `first` of the quad on
    Quad to;
    for (size_t r = 4 * q + first, i = 0; i < 4; r++, i++) to.row[i] = w + bytes * (r < rows ? r : rows - 1);
    return to;
  }
  // size: of a block's row; room: four of them.
  inline Quad padded(const Quad& q, uint8_t* room, size_t size) const {
    Quad to;
    std::memset(room, 0, 4 * size);
    for (size_t r = 0; r < 4; r++) {
      std::memcpy(room + r * size, q.row[r] + whole * size, bytes - whole * size);
      to.row[r] = room + r * size;
    }
    return to;
  }
  inline size_t escape(size_t, size_t) const { return 0; }
  inline size_t escape_block(size_t, size_t) const { return SIZE_MAX; }
  inline size_t patch(float*, size_t, size_t, size_t e) const { return e; }
};

// Two weights a word.
struct Words {
  using Block = Tile;
  static constexpr bool kScaled = false;
  static constexpr size_t kStreams = 4, kVectors = kTurns;
  template <size_t turn>
  static inline F weight(const Block& w) {
    return turn % 2 ? odd(w.v[turn / 2]) : even(w.v[turn / 2]);
  }
};

struct Bf16Rows : PlainRows, Words {
  static constexpr size_t kLines = 16, kRoom = 4 * 256;

  Bf16Rows(const uint8_t* w, size_t rows, size_t in) : PlainRows{w, rows, 2 * in, in / kBlock} {}
  static inline Block block(const Quad& q, size_t r, size_t b) {
    const uint8_t* p = q.row[r] + 256 * b;
    return {{load_u(p), load_u(p + 64), load_u(p + 128), load_u(p + 192)}};
  }
  inline Quad padded(const Quad& q, uint8_t* room) const { return PlainRows::padded(q, room, 256); }
  inline const uint8_t* line(size_t quad, size_t b, size_t i) const { return w + bytes * (4 * quad + i / 4) + 256 * b + 64 * (i % 4); }
  // A kilobyte on, and from the end of a row on in the row that is next in its place.
  inline void ahead(const Quad& q, size_t r, size_t b) const {
    const size_t at = 256 * b + 1024;
    for (size_t i = 0; i < 256; i += 64) prefetch(q.row[r], at + i + (at < bytes ? 0 : 3 * bytes));
  }
};

struct F32Rows : PlainRows {
  struct Block {
    F v[kTurns];
  };
  static constexpr bool kScaled = false;
  static constexpr size_t kStreams = 4, kVectors = kTurns, kLines = 1, kRoom = 4 * 512;

  F32Rows(const uint8_t* w, size_t rows, size_t in) : PlainRows{w, rows, 4 * in, in / kBlock} {}
  template <size_t turn>
  static inline F weight(const Block& b) {
    return b.v[turn];
  }
  static inline Block block(const Quad& q, size_t r, size_t b) {
    const uint8_t* p = q.row[r] + 512 * b;
    Block to;
    for (size_t i = 0; i < kTurns; i += 2) unzip(from_bits(load_u(p + 64 * i)), from_bits(load_u(p + 64 * i + 64)), to.v[i], to.v[i + 1]);
    return to;
  }
  inline Quad padded(const Quad& q, uint8_t* room) const { return PlainRows::padded(q, room, 512); }
  inline const uint8_t* line(size_t, size_t, size_t) const { return w; }  // few and small
  static inline void ahead(const Quad&, size_t, size_t) {}
};

inline uint32_t word(const uint8_t* p, size_t i) {
  uint32_t x;
  std::memcpy(&x, p + 4 * i, 4);
  return x;
}

// The high byte of one lane, chosen by where in this window a vector is loaded from.
struct LaneWindow {
  uint32_t of[2 * kLanes - 1];
  constexpr LaneWindow() : of() { of[kLanes - 1] = 0xff000000u; }
};
constexpr LaneWindow kLaneWindow;

struct K12Rows : Words {
  using Quad = const uint8_t*;  // its tiles
  static constexpr size_t kLines = 12, kRoom = 1;
  const K12& piece;
  const Bytes16 table;
  const size_t whole;

  explicit K12Rows(const K12& p) : piece(p), table(bytes16(p.table)), whole(p.blocks) {}
  inline Quad quad(size_t q, size_t = 0) const { return piece.tiles + q * piece.blocks * 4 * kK12Tile; }
  inline Block block(Quad q, size_t r, size_t b) const { return k12_tile(q + (4 * b + r) * kK12Tile, table); }
  static inline Quad padded(Quad q, uint8_t*) { return q; }  // packed with its padding
  inline const uint8_t* line(size_t q, size_t b, size_t i) const { return quad(q) + b * 4 * kK12Tile + 64 * i; }
  static inline void ahead(Quad q, size_t r, size_t b) {
    for (size_t i = 0; i < kK12Tile; i += 64) {
      prefetch(q + (4 * b + r) * kK12Tile + i, 3072);
      prefetch_far(q + (4 * b + r) * kK12Tile + i, 16384);
    }
  }

  // The quad's first escape in block b or after it, and the block of an escape.
  inline size_t escape(size_t quad, size_t b) const {
    size_t low = word(piece.offsets, quad), high = word(piece.offsets, quad + 1);
    while (low < high) {
      const size_t middle = low + (high - low) / 2;
      if (word(piece.escapes, middle) >> 17 < b)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }
  inline size_t escape_block(size_t quad, size_t e) const {
    return e < word(piece.offsets, quad + 1) ? word(piece.escapes, e) >> 17 : SIZE_MAX;
  }
  // Gives the weights of opened block b that are escapes, from e on, their high bytes; returns the first escape after it. Whole
  // vectors are read and written back: a load behind a narrower store would wait for the cache.
  inline size_t patch(float* opened, size_t quad, size_t b, size_t e) const {
    for (; escape_block(quad, e) == b; e++) {
      const uint32_t x = word(piece.escapes, e);
      const size_t column = x >> 10 & 127;
      float* at = opened + (x >> 8 & 3) * kBlock + column / 32 * 32 + column % 2 * kLanes;
      const U old = load_u(at), lane = load_u(kLaneWindow.of + kLanes - 1 - column / 2 % 16);
      store_u(at, old ^ ((old ^ splat_u(x << 24)) & lane));
    }
    return e;
  }
};

struct Fp4Rows : PlainRows {
  struct Quad {
    PlainRows::Quad packed;
    const uint8_t* scale[4];
  };
  struct Block {
    Fp4 v;
    F scale;
  };
  static constexpr bool kScaled = true;
  static constexpr size_t kStreams = 1, kVectors = kTurns + 1, kLines = 4, kRoom = 4 * 64 + 4 * 4;
  const PlainRows scales;
  const Fp4Tables tables{};

  Fp4Rows(const uint8_t* packed, const uint8_t* scales, size_t rows, size_t in)
      : PlainRows{packed, rows, in / 2, in / kBlock}, scales{scales, rows, in / 32, in / kBlock} {}
  inline Quad quad(size_t q, size_t first = 0) const {
    const auto s = scales.quad(q, first);
    return {PlainRows::quad(q, first), {s.row[0], s.row[1], s.row[2], s.row[3]}};
  }
  template <size_t turn>
  inline F weight(const Block& b) const {
    return fp4_weight<turn>(b.v, tables);
  }
  inline Block block(const Quad& q, size_t r, size_t b) const {
    return {fp4_block(q.packed.row[r] + 64 * b, tables), fp4_scales(q.scale[r] + 4 * b)};
  }
  inline Quad padded(const Quad& q, uint8_t* room) const {
    const auto s = scales.padded({q.scale[0], q.scale[1], q.scale[2], q.scale[3]}, room + 4 * 64, 4);
    return {PlainRows::padded(q.packed, room, 64), {s.row[0], s.row[1], s.row[2], s.row[3]}};
  }
  inline const uint8_t* line(size_t quad, size_t b, size_t i) const { return w + bytes * (4 * quad + i) + 64 * b; }
  // Rows are short and follow each other, so that "ahead" is soon another row: many rows on for the second-level cache.
  static inline void ahead(const Quad& q, size_t r, size_t b) {
    prefetch(q.packed.row[r] + 64 * b, 1024);
    prefetch_far(q.packed.row[r] + 64 * b, 16384);
  }
};

// e: the quad's first escape in the block or after it; returns the first after it.
template <class W>
inline size_t open(float* to, const W& w, typename W::Quad place, size_t quad, size_t b, size_t e) {
  alignas(64) uint8_t room[W::kRoom];
  const bool whole = b < w.whole;
  if (!whole) place = w.padded(place, room);
  for (size_t r = 0; r < 4; r++) {
    float* row = to + r * W::kVectors * kLanes;
    const auto block = w.block(place, r, whole ? b : 0);
    each<kTurns>([&](auto turn) { store(row + turn * kLanes, w.template weight<turn>(block)); });
    if constexpr (W::kScaled) store(row + kBlock, block.scale);
  }
  return w.patch(to, quad, b, e);
}

// A row of an opened block, looked at like one of a storage.
template <bool scaled>
struct Opened {
  static constexpr bool kScaled = scaled;
  struct Plain {
    const float* at;
  };
  struct Scaled {
    const float* at;
    F scale = load(at + kBlock);
  };
  using Block = std::conditional_t<scaled, Scaled, Plain>;
  template <size_t turn>
  static inline F weight(const Block& row) {
    return load(row.at + turn * kLanes);
  }
};

}  // namespace
}  // namespace lilliput
