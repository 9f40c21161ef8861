// Many tokens: a panel of rows and columns is opened once into floats that stay in the first-level cache, and every token of the
// call meets it there. One scheme for every storage.
//
//   for each strip of rows (its sums stay in the second-level cache), for each band of columns (so do its activations):
//     for each panel of the strip:  open it
//       for each tile of tokens (their activations of the band stay in the first-level cache), for each quad of the panel:
//         kPartTokens x 4 sums in registers, over the columns of the band
//
// Sixteen lanes are kept apart to the end (contract rule 7), so the sums between bands are [quad][token][4 rows][16 lanes].
// Lanes never mix before, so they are walked a register's worth at a time; neither that nor the blocking shows in the bits.
//
// Tried, and not worth it: panels of 4 quads x 2 blocks, 3 x 3, 4 x 3 or 1 x 8 (more traffic of sums, or of activations, than of 2 x 4, or
// more than the first-level cache holds; 2 x 3 is as good), 96 or 128 tokens at once, asking for the next tile's activations or sums in
// the first-level cache (as slow to come, only earlier), or for the weights that are opened next, blocks of activations at odd distances
// (that four of them share sets of the first-level cache does not show), strips of twice or four times as many rows, opening a panel
// between the products of its first tile, huge pages for sums and activations.
#pragma once

#include "few.inl"
#include "kernels_dot.h"
#include "part.h"

namespace lilliput {
namespace {

constexpr size_t kPanelQuads = 2, kPanelBlocks = 4;

constexpr size_t kSums = 4 * kLanes;  // of one token and quad

// What to ask for during a tile: cache lines of weights, evenly, for where too many are on their way at once everything else waits for
// them; and a run of lines of activations, at once, for a third-level cache is nearer than memory. Handed over by reference: a copy
// reads in one piece what was just written in several, and that waits for all the sums of the tile before.
struct Ahead {
  const uint8_t* const* weights;
  size_t count;
  const float* x;
  size_t lines;
};

// T tokens against the `blocks` opened blocks of one quad; x: [block, `step` apart][T][128]. With scales, a block's sum starts
// anew and is added to `sums` at its end (rule 6), else `sums` runs on (rule 5). Not inline: gcc would keep the registers of every T
// alive around the loops.
template <size_t T, bool kScaled>
[[gnu::noinline]] void tile(float* sums, const float* opened, const float* x, size_t blocks, size_t step, const Ahead& ahead) {
  constexpr size_t kRow = (kTurns + kScaled) * kLanes;
  const size_t turns = blocks * kTurns * (kLanes / kPartLanes);
  const uint8_t* const* weights = ahead.weights;
  const size_t count = ahead.count;
  size_t due = 0;  // lines of weights, times turns
  for (size_t l = 0; l < kLanes; l += kPartLanes) {
    Part acc[T][4];
    const float *w = opened + l, *u = x + l;
    float* const sum = sums + l;
    if (!kScaled)
      for (size_t t = 0; t < T; t++)
        for (size_t r = 0; r < 4; r++) acc[t][r] = part_load(sum + t * kSums + r * kLanes);
    // After the sums, which would wait for them.
    for (size_t i = 0; i < ahead.lines && l == 0; i++) prefetch_far(ahead.x + i * kLanes);
    for (size_t b = 0; b < blocks; b++, w += 4 * kRow, u += step) {
      const auto turn = [&](size_t i, auto accumulate) {
        for (due += count; due >= turns; due -= turns) prefetch_far(*weights++);
        Part each[4];
        for (size_t r = 0; r < 4; r++) each[r] = part_load(w + r * kRow + i * kLanes);
        for (size_t t = 0; t < T; t++) {
          const Part a = part_load(u + t * kBlock + i * kLanes);
          for (size_t r = 0; r < 4; r++) acc[t][r] = accumulate(each[r], a, acc[t][r]);
        }
      };
      if (kScaled) turn(0, [](Part weight, Part a, Part) { return part_mul(weight, a); });
      for (size_t i = kScaled; i < kTurns; i++) turn(i, part_fma);
      if (kScaled) {
        for (size_t r = 0; r < 4; r++) {
          const Part scale = part_load(w + r * kRow + kTurns * kLanes);
          for (size_t t = 0; t < T; t++) {
            float* at = sum + t * kSums + r * kLanes;
            part_store(at, part_fma(acc[t][r], scale, part_load(at)));
          }
        }
        asm volatile("" : : : "memory");  // or gcc keeps the sums on its stack as well
      }
    }
    if (!kScaled)
      for (size_t t = 0; t < T; t++)
        for (size_t r = 0; r < 4; r++) part_store(sum + t * kSums + r * kLanes, acc[t][r]);
  }
}

template <bool kScaled, size_t T = kPartTokens>
inline void tile_of(size_t tokens, float* sums, const float* opened, const float* x, size_t blocks, size_t step, const Ahead& ahead) {
  if (tokens == T)
    tile<T, kScaled>(sums, opened, x, blocks, step, ahead);
  else if constexpr (T > 1)
    tile_of<kScaled, T - 1>(tokens, sums, opened, x, blocks, step, ahead);
}

// Rows [row, row + rows) of w; x: [block][token][128].
template <class W>
void dot_panels(float* y, size_t ld, const float* x, size_t tokens, const W& w, size_t row, size_t rows, size_t in, float* scratch) {
  constexpr size_t kOpened = 4 * W::kVectors * kLanes;
  static_assert(kPanelQuads * kPanelBlocks * kOpened <= kMostOpened);
  float *const sums = scratch, *const panel = scratch + kStripSums;
  const size_t tiles = (tokens + kPartTokens - 1) / kPartTokens, step = tokens * kBlock, all = blocks_of(in), end = (row + rows + 3) / 4;
  const size_t strip = kStripSums / (tokens * kSums) / kPanelQuads * kPanelQuads;
  for (size_t first = row / 4, last; first < end; first = last) {
    last = end - first < strip ? end : first + strip;
    std::memset(sums, 0, (last - first) * tokens * kSums * sizeof(float));
    for (size_t b = 0; b < all; b += kPanelBlocks) {
      const size_t blocks = all - b < kPanelBlocks ? all - b : kPanelBlocks;
      // Of many columns the activations have left the second-level cache when the next strip comes to them: asked for a band ahead.
      const size_t next_b = b + blocks < all ? b + blocks : 0, calls = (last - first) * tiles;
      const float* next_x = x + next_b * step;
      size_t next_lines = (all - next_b < kPanelBlocks ? all - next_b : kPanelBlocks) * step / kLanes;
      const size_t next_share = (next_lines + calls - 1) / calls;
      for (size_t quad = first, quads; quad < last; quad += quads) {
        quads = last - quad < kPanelQuads ? last - quad : kPanelQuads;
        for (size_t q = 0; q < quads; q++) {
          const auto place = w.quad(quad + q);
          size_t e = w.escape(quad + q, b);
          for (size_t i = 0; i < blocks; i++) e = open(panel + (q * blocks + i) * kOpened, w, place, quad + q, b + i, e);
        }
        // What to ask for meanwhile: the panel below, else the first of the next band, else of the next strip.
        const bool below = quad + quads < last, band = b + blocks < all;
        const size_t next = below ? b : band ? b + blocks : 0, next_quad = below ? quad + quads : band ? first : last;
        const uint8_t* lines[kPanelQuads * kPanelBlocks * W::kLines];
        size_t count = 0;
        for (size_t q = 0; q < quads; q++)
          for (size_t i = 0; i < blocks * W::kLines; i++) lines[count++] = w.line(next_quad + q, next + i / W::kLines, i % W::kLines);
        Ahead ahead{lines, 0, next_x, 0};
        const size_t share = (count + tiles * quads - 1) / (tiles * quads);
        for (size_t k = 0, t = 0, some; k < tiles; k++, t += some) {
          some = tokens / tiles + (k < tokens % tiles);
          for (size_t q = 0; q < quads; q++) {
            count -= ahead.count = count < share ? count : share;
            next_lines -= ahead.lines = next_lines < next_share ? next_lines : next_share;
            tile_of<W::kScaled>(some, sums + ((quad - first + q) * tokens + t) * kSums, panel + q * blocks * kOpened,
                                x + b * step + t * kBlock, blocks, step, ahead);
            ahead.weights += ahead.count;
            ahead.x += ahead.lines * kLanes;
          }
        }
        next_x = ahead.x;
      }
    }
    for (size_t quad = first; quad < last; quad++)
      for (size_t t = 0; t < tokens; t++) {
        const float* sum = sums + ((quad - first) * tokens + t) * kSums;
        const F acc[4] = {load(sum), load(sum + kLanes), load(sum + 2 * kLanes), load(sum + 3 * kLanes)};
        store_quad(y + t * ld, acc, 4 * quad, row, rows);
      }
  }
}

}  // namespace
}  // namespace lilliput
