#include "ops_dot.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "kernels.h"
#include "platform.h"
#include "pool.h"
#include "profile.h"
#include "scratch.h"

namespace lilliput {
namespace {

// A range of rows has at least so many quads where panels of them are opened: they have their activations fetched together.
size_t least_quads(size_t tokens) { return tokens > kFewTokens ? 16 : 1; }

// body(t, n) for equal lots of n tokens from t on, none larger than `most`.
template <class Body>
void by_lots(size_t tokens, size_t most, Body&& body) {
  const size_t lots = (tokens + most - 1) / most;
  for (size_t k = 0; k < lots; k++) body(tokens * k / lots, tokens * (k + 1) / lots - tokens * k / lots);
}

size_t whole_blocks(size_t n) { return (n + 127) / 128 * 128; }

using Order = void (*)(float*, size_t, const float*, size_t);

// row(t), the activations of token t, in a kernel's order: [block][token][128].
template <class Row>
void permute(float* to, size_t tokens, size_t in, Order order, Row&& row) {
  parallel_for(tokens, in, [&](size_t begin, size_t end) {
    for (size_t t = begin; t < end; t++) order(to + t * 128, tokens * 128, row(t), in);
  });
}

thread_local Scratch permuted, hidden, results, decoded, working;

float* working_memory(size_t tokens) { return tokens > 1 ? working.get<float>(kDotScratch) : nullptr; }

using profile::Kind;
using profile::Timed;

Kind kind_of(const Weights& w) { return w.kind == Weights::k12 ? Kind::k12 : w.kind == Weights::bf16 ? Kind::bf16 : Kind::f32; }

}  // namespace

void matmul(float* y, size_t ld, const float* x, size_t tokens, const Weights* pieces, size_t count) {
  if (!count) return;
  const Timed timed(kind_of(*pieces));
  const DotKernels& dot = kernels().dot;
  const size_t in = pieces->in;
  std::vector<size_t> row(count + 1), quad(count + 1);  // before each piece
  for (size_t p = 0; p < count; p++) {
    row[p + 1] = row[p] + pieces[p].rows;
    quad[p + 1] = quad[p] + (pieces[p].rows + 3) / 4;
  }
  by_lots(tokens, kMostTokens, [&](size_t t, size_t n) {
    float* xp = permuted.get<float>(n * whole_blocks(in));
    permute(xp, n, in, dot.pair_order, [&](size_t i) { return x + (t + i) * in; });
    const auto multiply = [&](size_t begin, size_t end) {
      for (size_t p = 0; begin < end; p++) {
        if (begin >= quad[p + 1]) continue;
        const Weights& w = pieces[p];
        const size_t first = 4 * (begin - quad[p]), last = std::min(4 * (end - quad[p]), w.rows), some = last - first;
        float *out = y + t * ld + row[p] + first, *memory = working_memory(n);
        if (w.kind == Weights::k12)
          dot.k12(out, ld, xp, n, w.piece, first, some, memory);
        else if (w.kind == Weights::bf16)
          dot.bf16(out, ld, xp, n, w.bytes + first * in * 2, some, in, memory);
        else
          dot.f32(out, ld, xp, n, w.bytes + first * in * 4, some, in, memory);
        begin = quad[p + 1];
      }
    };
    parallel_for(quad[count], 4 * in * n, least_quads(n), multiply);
  });
}

void matmul_t(float* y, const float* x, size_t tokens, const Weights& w, size_t row, size_t rows) {
  const Timed timed(Kind::kv_b);
  const DotKernels& dot = kernels().dot;
  const size_t in = w.in, item = w.kind == Weights::f32 ? 4 : 2;
  const uint8_t* from = w.bytes + row * in * item;
  if (w.kind == Weights::k12) {
    uint8_t* to = decoded.get<uint8_t>(rows * in * 2);
    parallel_for(rows, in,
                 [&](size_t begin, size_t end) { dot.k12_decode(to + begin * in * 2, in * 2, w.piece, row + begin, end - begin, in); });
    from = to;
  }
  parallel_for((in + 31) / 32, 32 * rows * tokens, [&](size_t begin, size_t end) {
    const size_t first = 32 * begin, count = std::min(32 * end, in) - first;
    auto product = w.kind == Weights::f32 ? dot.transposed_f32 : dot.transposed_bf16;
    product(y + first, in, x, rows, tokens, from + first * item, in * item, rows, count);
  });
}

void absorb_query(float* q_lat, const float* q, size_t tokens, const Weights& w, size_t heads, size_t n, size_t v, size_t r) {
  const Timed timed(Kind::kv_b);
  const DotKernels& dot = kernels().dot;
  const size_t c = w.in, ldq = heads * (n + r), ldy = heads * (c + r);
  parallel_for(heads, n * c * tokens, [&](size_t begin, size_t end) {
    for (size_t h = begin; h < end; h++) {
      const uint8_t* rows = w.bytes + h * (n + v) * c * 2;
      if (w.kind == Weights::k12) {
        uint8_t* to = decoded.get<uint8_t>(n * c * 2);
        dot.k12_decode(to, c * 2, w.piece, h * (n + v), n, c);
        rows = to;
      }
      const float* from = q + h * (n + r);
      float* to = q_lat + h * (c + r);
      dot.transposed_bf16(to, ldy, from, ldq, tokens, rows, c * 2, n, c);
      for (size_t t = 0; t < tokens; t++) std::memcpy(to + t * ldy + c, from + t * ldq + n, r * sizeof(float));
    }
  });
}

void absorb_value(float* o, const float* o_lat, size_t tokens, const Weights& w, size_t heads, size_t n, size_t v) {
  const Timed timed(Kind::kv_b);
  const DotKernels& dot = kernels().dot;
  const size_t c = w.in;
  parallel_for(heads, v * c * tokens, [&](size_t begin, size_t end) {
    for (size_t h = begin; h < end; h++)
      by_lots(tokens, kMostTokens, [&](size_t t, size_t some) {
        const size_t row = h * (n + v) + n;
        float* xp = permuted.get<float>(some * whole_blocks(c));
        for (size_t i = 0; i < some; i++) dot.pair_order(xp + i * 128, some * 128, o_lat + ((t + i) * heads + h) * c, c);
        float *out = o + (t * heads + h) * v, *memory = working_memory(some);
        if (w.kind == Weights::k12)
          dot.k12(out, heads * v, xp, some, w.piece, row, v, memory);
        else
          dot.bf16(out, heads * v, xp, some, w.bytes + row * c * 2, v, c, memory);
      });
  });
}

void k12_decode(uint8_t* to, const K12& piece) {
  const size_t stride = piece.in * 2;
  parallel_for(piece.quads, 4 * piece.in, [&](size_t begin, size_t end) {
    const size_t first = 4 * begin, count = std::min(4 * end, piece.rows) - first;
    kernels().dot.k12_decode(to + first * stride, stride, piece, first, count, piece.in);
  });
}

bool k12_matches(const K12& piece, const uint8_t* w) {
  const size_t stride = piece.in * 2;
  std::atomic<bool> same{true};
  parallel_for(piece.quads, 4 * piece.in, [&](size_t begin, size_t end) {
    uint8_t* rows = decoded.get<uint8_t>(4 * stride);
    for (size_t q = begin; q < end; q++) {
      const size_t count = std::min(piece.rows - 4 * q, size_t(4));
      kernels().dot.k12_decode(rows, stride, piece, 4 * q, count, piece.in);
      if (std::memcmp(rows, w + 4 * q * stride, count * stride) != 0) same.store(false, std::memory_order_relaxed);
    }
  });
  return same;
}

size_t nan_scales(const Mxfp4Rows& w) {
  const Timed timed(Kind::experts);
  const size_t groups = w.in / 32;
  std::atomic<size_t> total{0};
  parallel_for(w.rows, groups, [&](size_t begin, size_t end) {
    size_t mine = 0;
    // Short runs, so that the counts stay in bytes and sixteen go at a time.
    for (size_t i = begin * groups; i < end * groups; i += 255) {
      uint8_t found = 0;
      for (size_t j = i; j < std::min(end * groups, i + 255); j++) found = uint8_t(found + (w.scales[j] == 255));
      mine += found;
    }
    total += mine;
  });
  return total;
}

namespace {

Mxfp4Rows part(const Mxfp4Rows& w, size_t begin, size_t end) {
  return {w.packed + begin * (w.in / 2), w.scales + begin * (w.in / 32), end - begin, w.in};
}

void run(float* y, size_t ld, const float* xq, size_t tokens, const Mxfp4Rows& w) {
  kernels().dot.mxfp4(y, ld, xq, tokens, w.packed, w.scales, w.rows, w.in, working_memory(tokens));
}

}  // namespace

void matmul_mxfp4(float* y, size_t ld, const float* x, size_t tokens, const Mxfp4Rows& w) {
  const Timed timed(Kind::experts);
  by_lots(tokens, kMostTokens, [&](size_t t, size_t n) {
    float* xq = permuted.get<float>(n * whole_blocks(w.in));
    permute(xq, n, w.in, kernels().dot.quad_order, [&](size_t i) { return x + (t + i) * w.in; });
    parallel_for((w.rows + 3) / 4, 4 * w.in * n, least_quads(n),
                 [&](size_t begin, size_t end) { run(y + t * ld + 4 * begin, ld, xq, n, part(w, 4 * begin, std::min(4 * end, w.rows))); });
  });
}

namespace {

// Some of the tokens of one expert, `count` from `first` on, which are those from `at` on of a lot.
struct Share {
  const Chosen* of;
  size_t first, count, at;
  const float* xq;
};

// body(share, first row, row behind the last): all rows of all shares, over the threads. `tokens`: of a share, on average.
template <class Body>
void over_rows(const std::vector<Share>& lot, size_t rows, size_t columns, size_t tokens, Body&& body) {
  const size_t quads = (rows + 3) / 4;
  parallel_for(lot.size() * quads, 4 * columns * tokens, least_quads(tokens), [&](size_t begin, size_t end) {
    for (size_t stop; begin < end; begin = stop) {
      const size_t share = begin / quads, before = share * quads;
      stop = std::min(end, before + quads);
      body(lot[share], 4 * (begin - before), std::min(4 * (stop - before), rows));
    }
  });
}

// values [tokens of the lot, latent]: what each expert makes of its tokens.
void apply_lot(float* values, const float* x, std::vector<Share>& lot) {
  const Kernels& k = kernels();
  const Expert& any = lot.front().of->expert;
  const size_t latent = any.w1.in, width = any.w1.rows, tokens = lot.back().at + lot.back().count;
  const size_t each = (tokens + lot.size() - 1) / lot.size();
  float* xq = permuted.get<float>(tokens * whole_blocks(std::max(latent, width)));
  float *gate = hidden.get<float>(tokens * 2 * width), *up = gate + tokens * width;
  const Share* last = nullptr;  // with a token of its own: in a pass of one token all experts have the same
  for (Share& s : lot) {
    const int32_t* index = s.of->index + s.first;
    const bool same = last && s.count == 1 && *index == last->of->index[last->first];
    s.xq = same ? last->xq : xq + s.at * whole_blocks(latent);
    if (!same)
      permute(xq + s.at * whole_blocks(latent), s.count, latent, k.dot.quad_order, [&](size_t i) { return x + size_t(index[i]) * latent; });
    if (s.count == 1) last = &s;
  }
  over_rows(lot, width, 2 * latent, each, [&](const Share& s, size_t begin, size_t end) {
    const Expert& e = s.of->expert;
    float *g = gate + s.at * width + begin, *u = up + s.at * width + begin;
    run(g, width, s.xq, s.count, part(e.w1, begin, end));
    run(u, width, s.xq, s.count, part(e.w3, begin, end));
    for (size_t i = 0; i < s.count; i++, g += width, u += width) k.math.situ(g, g, u, end - begin, e.beta, e.linear_beta, e.bounded);
  });
  for (Share& s : lot) s.xq = xq + s.at * whole_blocks(width);
  parallel_for(tokens, width, [&](size_t begin, size_t end) {
    for (const Share& s : lot)
      for (size_t i = std::max(begin, s.at); i < std::min(end, s.at + s.count); i++)
        k.dot.quad_order(xq + s.at * whole_blocks(width) + (i - s.at) * 128, s.count * 128, gate + i * width, width);
  });
  over_rows(lot, latent, width, each, [&](const Share& s, size_t begin, size_t end) {
    run(values + s.at * latent + begin, latent, s.xq, s.count, part(s.of->expert.w2, begin, end));
  });
}

}  // namespace

void apply_experts(float* y, const float* x, const Chosen* chosen, size_t experts) {
  const Timed timed(Kind::experts);
  size_t tokens = 0;
  std::vector<Share> lot;
  const auto apply = [&] {
    if (lot.empty()) return;
    const size_t latent = chosen->expert.w1.in;
    float* values = results.get<float>(tokens * latent);
    apply_lot(values, x, lot);
    parallel_for(latent, tokens, 16, [&](size_t begin, size_t end) {
      for (const Share& s : lot)
        for (size_t i = 0; i < s.count; i++)
          kernels().dot.accumulate(y + size_t(s.of->index[s.first + i]) * latent + begin, values + (s.at + i) * latent + begin,
                                   s.of->weight[s.first + i], end - begin);
    });
    lot.clear();
    tokens = 0;
  };
  for (size_t e = 0; e < experts; e++)
    by_lots(chosen[e].count, kMostTokens, [&](size_t first, size_t n) {
      if (tokens + n > kMostTokens) apply();
      lot.push_back({chosen + e, first, n, tokens, nullptr});
      tokens += n;
    });
  apply();
}

void apply_expert(float* y, const float* x, const int32_t* index, size_t count, const Expert& e) {
  const Timed timed(Kind::experts);
  const Chosen all{index, nullptr, count, e};
  by_lots(count, kMostTokens, [&](size_t first, size_t n) {
    std::vector<Share> lot{{&all, first, n, 0, nullptr}};
    apply_lot(y + first * e.w1.in, x, lot);
  });
}

void accumulate(float* y, const float* values, const int32_t* index, const float* weight, size_t count, size_t latent) {
  const Timed timed(Kind::experts);
  const FpuGuard guard;
  for (size_t j = 0; j < count; j++) kernels().dot.accumulate(y + size_t(index[j]) * latent, values + j * latent, weight[j], latent);
}

}  // namespace lilliput
