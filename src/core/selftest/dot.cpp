#include <stdexcept>

#include "../k12.h"
#include "../ops_dot.h"
#include "selftest.h"

namespace lilliput::selftest {
namespace {

void same(const std::vector<float>& a, const std::vector<float>& b, const std::string& what) {
  for (size_t i = 0; i < a.size(); i++)
    if (__builtin_bit_cast(uint32_t, a[i]) != __builtin_bit_cast(uint32_t, b[i]))
      throw std::logic_error(what + ": results differ at " + std::to_string(i));
}

// The piece of these weights under the table of their own histogram, or under one that makes every third weight an escape.
std::vector<uint8_t> pack(const std::vector<uint8_t>& w, size_t rows, size_t in, bool good_table) {
  int64_t counts[256] = {};
  if (good_table)
    k12_histogram(counts, w.data(), rows * in);
  else
    for (int b = 0; b < 256; b++) counts[b] = b & 1;
  uint8_t table[16];
  k12_table(table, counts);
  std::vector<uint8_t> piece(k12_size(w.data(), rows, in, table));
  k12_encode(piece.data(), piece.size(), w.data(), rows, in, table);
  std::vector<uint8_t> back(w.size());
  k12_decode(back.data(), k12_open(piece.data(), piece.size(), rows, in));
  if (back != w) throw std::logic_error("K12 " + shape(rows, in) + ": decoding does not give the weights back");
  return piece;
}

Weights packed(const std::vector<uint8_t>& piece, size_t rows, size_t in) {
  return {Weights::k12, nullptr, k12_open(piece.data(), piece.size(), rows, in), rows, in};
}

Weights plain(const std::vector<uint8_t>& w, size_t rows, size_t in) { return {Weights::bf16, w.data(), {}, rows, in}; }

void matmul(float* y, const float* x, size_t tokens, const Weights& w) { lilliput::matmul(y, w.rows, x, tokens, &w, 1); }

void products(Report& report, size_t rows, size_t in, size_t tokens) {
  Inputs random(rows * 1000003 + in * 101 + tokens);
  const auto x = random.values(tokens * in);
  const auto w = random.weights(rows * in);
  const auto name = shape(rows, in, tokens);
  std::vector<float> y(tokens * rows), z(tokens * rows);
  matmul(y.data(), x.data(), tokens, plain(w, rows, in));
  report.add("matmul_bf16", name, y);
  const size_t some = rows / 3;
  const Weights halves[] = {{Weights::bf16, w.data(), {}, some, in}, {Weights::bf16, w.data() + some * in * 2, {}, rows - some, in}};
  lilliput::matmul(z.data(), rows, x.data(), tokens, halves, 2);
  same(y, z, "matmul_bf16 in pieces " + name);
  for (const bool good_table : {true, false}) {
    const auto piece = pack(w, rows, in, good_table);
    report.add(good_table ? "k12_piece" : "k12_piece_escapes", name, piece);
    matmul(z.data(), x.data(), tokens, packed(piece, rows, in));
    same(y, z, "matmul_k12 " + name);
  }
  const auto f = random.values(rows * in);
  matmul(y.data(), x.data(), tokens, {Weights::f32, reinterpret_cast<const uint8_t*>(f.data()), {}, rows, in});
  report.add("matmul_f32", name, y);
}

void transposed(Report& report, size_t rows, size_t in, size_t tokens, size_t row, size_t depth) {
  Inputs random(rows * 999983 + in * 103 + tokens);
  const auto x = random.values(tokens * depth);
  const auto w = random.weights(rows * in);
  const auto name = shape(depth, in, tokens);
  std::vector<float> y(tokens * in), z(tokens * in);
  matmul_t(y.data(), x.data(), tokens, plain(w, rows, in), row, depth);
  report.add("matmul_t_bf16", name, y);
  matmul_t(z.data(), x.data(), tokens, packed(pack(w, rows, in, true), rows, in), row, depth);
  same(y, z, "matmul_t_k12 " + name);
  const auto f = random.values(rows * in);
  matmul_t(y.data(), x.data(), tokens, {Weights::f32, reinterpret_cast<const uint8_t*>(f.data()), {}, rows, in}, row, depth);
  report.add("matmul_t_f32", name, y);
}

void absorbed(Report& report, size_t tokens, size_t heads, size_t n, size_t v, size_t r, size_t c) {
  Inputs random(tokens * 7 + heads * 11 + n * 13 + v * 17 + r * 19 + c * 23);
  const size_t rows = heads * (n + v);
  const auto w = random.weights(rows * c);
  const auto piece = pack(w, rows, c, false);
  const auto q = random.values(tokens * heads * (n + r)), o_lat = random.values(tokens * heads * c);
  const auto name = shape(tokens, heads, n, v, r, c);
  std::vector<float> y(tokens * heads * (c + r)), z(y.size()), o(tokens * heads * v), p(o.size());
  absorb_query(y.data(), q.data(), tokens, plain(w, rows, c), heads, n, v, r);
  absorb_query(z.data(), q.data(), tokens, packed(piece, rows, c), heads, n, v, r);
  same(y, z, "absorb_query " + name);
  report.add("absorb_query", name, y);
  absorb_value(o.data(), o_lat.data(), tokens, plain(w, rows, c), heads, n, v);
  absorb_value(p.data(), o_lat.data(), tokens, packed(piece, rows, c), heads, n, v);
  same(o, p, "absorb_value " + name);
  report.add("absorb_value", name, o);
}

struct Fp4 {
  std::vector<uint8_t> packed, scales;
  size_t rows, in;

  Fp4(Inputs& random, size_t rows, size_t in)
      : packed(random.bytes(rows * in / 2)), scales(random.bytes(rows * in / 32, 112, 124)), rows(rows), in(in) {
    scales[0] = 0;                    // the smallest scale is a subnormal
    scales[scales.size() / 2] = 255;  // NaN counts as zero
  }
  Mxfp4Rows view() const { return {packed.data(), scales.data(), rows, in}; }
};

void mxfp4(Report& report, size_t rows, size_t in, size_t tokens) {
  Inputs random(rows * 31 + in * 37 + tokens * 41);
  const Fp4 w(random, rows, in);
  const auto x = random.values(tokens * in);
  std::vector<float> y(tokens * rows);
  matmul_mxfp4(y.data(), rows, x.data(), tokens, w.view());
  report.add("mxfp4_matmul", shape(rows, in, tokens), y);
}

void expert(Report& report, size_t latent, size_t width, size_t tokens, bool bounded) {
  Inputs random(latent * 43 + width * 47 + tokens);
  const Fp4 w1(random, width, latent), w2(random, latent, width), w3(random, width, latent);
  const auto x = random.values(2 * tokens * latent);
  auto y = random.values(2 * tokens * latent);
  std::vector<int32_t> index;
  for (size_t t = 0; t < tokens; t++) index.push_back(int32_t(2 * t + (t & 1)));
  const auto weight = random.values(tokens, 0.0f, 1.0f);
  const Expert e{w1.view(), w2.view(), w3.view(), 4.0f, 25.0f, bounded};
  const Chosen chosen[] = {{index.data(), weight.data(), tokens, e}, {index.data(), weight.data() + tokens / 2, tokens / 2, e}};
  auto twice = y, z = y;
  apply_experts(y.data(), x.data(), chosen, 1);
  apply_experts(twice.data(), x.data(), chosen, 2);
  std::vector<float> values(tokens * latent);
  for (const Chosen& c : chosen) {
    apply_expert(values.data(), x.data(), c.index, c.count, e);
    accumulate(z.data(), values.data(), c.index, c.weight, c.count, latent);
  }
  same(twice, z, "experts one by one");
  report.add(bounded ? "expert" : "expert_unbounded", shape(latent, width, tokens), y);
}

}  // namespace

void dot_cases(Report& report) {
  products(report, 1, 1, 1);
  products(report, 3, 31, 2);
  products(report, 4, 128, 1);
  products(report, 5, 130, 6);
  products(report, 6, 300, 3);
  products(report, 9, 257, 13);
  products(report, 7, 7168, 1);
  products(report, 7, 1536, 5);
  products(report, 2, 512, 50);
  transposed(report, 5, 33, 1, 0, 5);
  transposed(report, 19, 200, 3, 3, 13);
  transposed(report, 130, 512, 6, 1, 128);
  absorbed(report, 1, 3, 6, 5, 3, 40);
  absorbed(report, 7, 2, 16, 12, 8, 130);
  absorbed(report, 1, 2, 128, 128, 64, 512);
  for (const size_t in : {32, 64, 96, 128, 160, 224, 3584})
    for (const size_t tokens : {1, 2, 7}) mxfp4(report, in == 3584 ? 4 : 5, in, tokens);
  expert(report, 64, 32, 1, true);
  expert(report, 96, 160, 3, true);
  expert(report, 96, 160, 3, false);
  expert(report, 160, 96, 51, true);
}

// More rows than a strip has, several bands of columns, several lots of tokens.
void wide_dot_cases(Report& report) {
  products(report, 130, 600, 61);
  products(report, 9, 640, 150);
  mxfp4(report, 70, 608, 61);
  expert(report, 160, 96, 150, true);
}

}  // namespace lilliput::selftest
