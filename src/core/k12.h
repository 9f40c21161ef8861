// K12: bf16 matrices in twelve bits per weight, lossless. docs/arithmetic.md has the format; this is the encoder and the reader
// of a piece's frame. Decoding proper is a kernel (kernels_dot.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace lilliput {

// Plain data, and no inline functions: this header is compiled into every instruction set's kernels.
struct K12 {
  const uint8_t* tiles;    // [quads][blocks][4 rows][192]
  const uint8_t* table;    // 16 high bytes
  const uint8_t* offsets;  // quads + 1 uint32: first escape of each quad
  const uint8_t* escapes;  // uint32: column << 10 | row in quad << 8 | high byte, ascending in a quad
  size_t rows, in;
  size_t quads, blocks;  // of 4 rows, of 128 columns
};

constexpr size_t kK12Tile = 192;                     // bytes of one row's 128 weights
constexpr size_t kK12MostColumns = size_t(1) << 22;  // what an escape can address

// counts[b] += how often b is the high byte of a weight. w: n bf16 values at any alignment.
void k12_histogram(int64_t counts[256], const uint8_t* w, size_t n);

// The sixteen most frequent high bytes, ties to the smaller; 0x00, where it occurs at all, comes first in any case.
void k12_table(uint8_t table[16], const int64_t counts[256]);

// Bytes of the piece that k12_encode makes of the same arguments.
size_t k12_size(const uint8_t* w, size_t rows, size_t in, const uint8_t table[16]);

// Writes a piece and returns its size; where that is more than `room`, nothing is written.
size_t k12_encode(uint8_t* piece, size_t room, const uint8_t* w, size_t rows, size_t in, const uint8_t table[16]);

// Checks everything that a kernel relies on; throws std::invalid_argument for a piece that is not one of rows x in.
K12 k12_open(const uint8_t* piece, size_t bytes, size_t rows, size_t in);

}  // namespace lilliput
