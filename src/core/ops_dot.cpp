#include "ops_dot.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "kernels.h"
#include "platform.h"
#include "pool.h"
#include "profile.h"
#include "scratch.h"

namespace lilliput {
namespace {

// Of wide matrices' activations fewer at a time: 48 times K3's 7168 columns stay in a second-level cache.
constexpr size_t kWideTokens = 48;

// body(t, n) for equal lots of n tokens from t on, none larger than `most`.
template <class Body>
void by_lots(size_t tokens, size_t most, Body&& body) {
  const size_t lots = (tokens + most - 1) / most;
  for (size_t k = 0; k < lots; k++) body(tokens * k / lots, tokens * (k + 1) / lots - tokens * k / lots);
}

size_t padded(size_t n) { return (n + 127) / 128 * 128; }

using Order = void (*)(float*, size_t, const float*, size_t);

// row(t), the activations of token t, in a kernel's order: [block][token][128].
template <class Row>
void permute(float* to, size_t tokens, size_t in, Order order, Row&& row) {
  parallel_for(tokens, in, [&](size_t begin, size_t end) {
    for (size_t t = begin; t < end; t++) order(to + t * 128, tokens * 128, row(t), in);
  });
}

thread_local Scratch permuted, hidden, decoded, working;

float* working_memory(size_t tokens) { return tokens > 1 ? working.get<float>(kDotScratch) : nullptr; }

using profile::Kind;
using profile::Timed;

Kind kind_of(const Weights& w) { return w.kind == Weights::k12 ? Kind::k12 : w.kind == Weights::bf16 ? Kind::bf16 : Kind::f32; }

}  // namespace

void matmul(float* y, size_t ld, const float* x, size_t tokens, const Weights& w) {
  const Timed timed(kind_of(w));
  const DotKernels& dot = kernels().dot;
  const size_t in = w.in, rows = w.rows;
  by_lots(tokens, kWideTokens, [&](size_t t, size_t n) {
    float* xp = permuted.get<float>(n * padded(in));
    permute(xp, n, in, dot.pair_order, [&](size_t i) { return x + (t + i) * in; });
    parallel_for((rows + 3) / 4, 4 * in * n, [&](size_t begin, size_t end) {
      const size_t first = 4 * begin, count = std::min(4 * end, rows) - first;
      float *out = y + t * ld + first, *memory = working_memory(n);
      if (w.kind == Weights::k12)
        dot.k12(out, ld, xp, n, w.piece, first, count, memory);
      else if (w.kind == Weights::bf16)
        dot.bf16(out, ld, xp, n, w.bytes + first * in * 2, count, in, memory);
      else
        dot.f32(out, ld, xp, n, w.bytes + first * in * 4, count, in, memory);
    });
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
        float* xp = permuted.get<float>(some * padded(c));
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

namespace {

// Scales of 255 (NaN), which the kernels take as zero. Short runs, so that the counts stay in bytes and sixteen go at a time.
size_t nan_scales(const Mxfp4Rows& w) {
  const size_t n = w.rows * (w.in / 32);
  size_t total = 0;
  for (size_t i = 0; i < n; i += 255) {
    uint8_t found = 0;
    for (size_t j = i; j < std::min(n, i + 255); j++) found = uint8_t(found + (w.scales[j] == 255));
    total += found;
  }
  return total;
}

Mxfp4Rows part(const Mxfp4Rows& w, size_t begin, size_t end) {
  return {w.packed + begin * (w.in / 2), w.scales + begin * (w.in / 32), end - begin, w.in};
}

void run(float* y, size_t ld, const float* xq, size_t tokens, const Mxfp4Rows& w) {
  kernels().dot.mxfp4(y, ld, xq, tokens, w.packed, w.scales, w.rows, w.in, working_memory(tokens));
}

// Rows are handed out by fours, so that a pair of rows never straddles two threads.
template <class Body>
void over_rows(size_t rows, size_t work_per_row, Body&& body) {
  parallel_for((rows + 3) / 4, 4 * work_per_row, [&](size_t begin, size_t end) { body(4 * begin, std::min(4 * end, rows)); });
}

}  // namespace

size_t matmul_mxfp4(float* y, size_t ld, const float* x, size_t tokens, const Mxfp4Rows& w) {
  const Timed timed(Kind::experts);
  std::atomic<size_t> bad{0};
  by_lots(tokens, kMostTokens, [&](size_t t, size_t n) {
    float* xq = permuted.get<float>(n * padded(w.in));
    permute(xq, n, w.in, kernels().dot.quad_order, [&](size_t i) { return x + (t + i) * w.in; });
    over_rows(w.rows, w.in * n, [&](size_t begin, size_t end) {
      const Mxfp4Rows mine = part(w, begin, end);
      if (t == 0) bad += nan_scales(mine);
      run(y + t * ld + begin, ld, xq, n, mine);
    });
  });
  return bad;
}

size_t apply_expert(float* y, const float* x, const int32_t* index, const float* weight, size_t count, const Expert& e) {
  const Timed timed(Kind::experts);
  const Kernels& k = kernels();
  const size_t latent = e.w1.in, width = e.w1.rows;
  std::atomic<size_t> bad{0};
  by_lots(count, kMostTokens, [&](size_t t, size_t n) {
    float* xq = permuted.get<float>(n * padded(std::max(latent, width)));
    float* gate = hidden.get<float>(n * (2 * width + latent));
    float *up = gate + n * width, *out = up + n * width;
    permute(xq, n, latent, k.dot.quad_order, [&](size_t i) { return x + size_t(index[t + i]) * latent; });
    over_rows(width, 2 * latent * n, [&](size_t begin, size_t end) {
      const Mxfp4Rows w1 = part(e.w1, begin, end), w3 = part(e.w3, begin, end);
      if (t == 0) bad += nan_scales(w1) + nan_scales(w3);
      run(gate + begin, width, xq, n, w1);
      run(up + begin, width, xq, n, w3);
      for (size_t i = 0; i < n; i++) {
        float* g = gate + i * width + begin;
        k.math.situ(g, g, up + i * width + begin, end - begin, e.beta, e.linear_beta, e.bounded);
      }
    });
    permute(xq, n, width, k.dot.quad_order, [&](size_t i) { return gate + i * width; });
    float* values = weight ? out : y + t * latent;
    over_rows(latent, width * n, [&](size_t begin, size_t end) {
      const Mxfp4Rows w2 = part(e.w2, begin, end);
      if (t == 0) bad += nan_scales(w2);
      run(values + begin, latent, xq, n, w2);
      if (!weight) return;
      for (size_t i = 0; i < n; i++)
        k.dot.accumulate(y + size_t(index[t + i]) * latent + begin, out + i * latent + begin, weight[t + i], end - begin);
    });
  });
  return bad;
}

void accumulate(float* y, const float* values, const int32_t* index, const float* weight, size_t count, size_t latent) {
  const Timed timed(Kind::experts);
  const FpuGuard guard;
  for (size_t j = 0; j < count; j++) kernels().dot.accumulate(y + size_t(index[j]) * latent, values + j * latent, weight[j], latent);
}

}  // namespace lilliput
