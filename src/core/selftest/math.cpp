#include <vector>

#include "../ops_math.h"
#include "../sampling.h"
#include "selftest.h"

namespace lilliput::selftest {
namespace {

// Own functions: every exponent and sign with random fractions, the switches of the functions, infinities, NaN.
void functions(Report& report) {
  Inputs random(11);
  std::vector<uint32_t> bits;
  for (uint32_t top = 0; top < 512; top++)
    for (int i = 0; i < 40; i++) bits.push_back(top << 23 | uint32_t(random.bits() >> 41));
  for (const float x : {0.0f, 0.625f, 1.0f, 88.72283f, 88.72284f, 87.33655f, 103.9721f, 103.9722f, 104.0f, 100.0f, 0x1p-126f, 0x1p-149f})
    for (const uint32_t step : {0u, 1u, 2u, 0x80000000u, 0x80000001u}) bits.push_back(__builtin_bit_cast(uint32_t, x) + step);
  std::vector<float> x, y(bits.size());
  for (const uint32_t b : bits) x.push_back(__builtin_bit_cast(float, b));
  const struct {
    const char* name;
    ops::Map kernel;
  } all[] = {{"exp", &MathKernels::exp},
             {"log", &MathKernels::log},
             {"sigmoid", &MathKernels::sigmoid},
             {"tanh", &MathKernels::tanh},
             {"softplus", &MathKernels::softplus}};
  for (const auto& f : all) {
    ops::map(f.kernel, y.data(), x.data(), x.size());
    report.add(f.name, shape(x.size()), y);
  }
}

void elementwise(Report& report, size_t rows, size_t n) {
  Inputs random(rows * 1009 + n);
  const auto x = random.values(rows * n), g = random.values(rows * n, -12.0f, 12.0f), w = random.values(n);
  const auto name = shape(rows, n);
  std::vector<float> y(rows * n);
  ops::rms_norm(y.data(), x.data(), w.data(), rows, n, 1e-5f);
  report.add("rms_norm", name, y);
  ops::l2_norm(y.data(), x.data(), rows, n, 1e-6f, 1.0f, false);
  report.add("l2_heads", name, y);
  ops::l2_norm(y.data(), x.data(), rows, n, 1e-6f, ops::inverse_root(float(n)), true);
  report.add("l2_heads_scaled", name, y);
  ops::gated_norm(y.data(), x.data(), w.data(), g.data(), rows, n, 1e-5f);
  report.add("gated_norm", name, y);
  ops::situ(y.data(), g.data(), x.data(), y.size(), 4.0f, 25.0f, true);
  report.add("situ", name, y);
  ops::situ(y.data(), g.data(), x.data(), y.size(), 1.0f, 1.0f, false);
  report.add("situ_unbounded", name, y);
  ops::log_softmax(y.data(), g.data(), rows, n);
  report.add("log_softmax", name, y);
  y = x;
  ops::map(&MathKernels::add, y.data(), g.data(), y.size());
  ops::map(&MathKernels::gate, y.data(), g.data(), y.size());
  ops::finish(y.data(), y.size());
  report.add("add_gate_finish", name, y);
}

void mixing(Report& report, size_t rows, size_t n, size_t count) {
  Inputs random(rows * 1013 + n * 7 + count);
  std::vector<std::vector<float>> entries;
  std::vector<const float*> pointers;
  for (size_t e = 0; e < count; e++) entries.push_back(random.values(rows * n));
  for (const auto& e : entries) pointers.push_back(e.data());
  const auto w = random.values(n);
  std::vector<float> y(rows * n);
  ops::mix(y.data(), pointers.data(), count, w.data(), rows, n, 1e-5f);
  report.add("mix", shape(rows, n, count), y);
}

void convolution(Report& report, size_t tokens, size_t channels, size_t taps) {
  Inputs random(tokens * 1019 + channels * 3 + taps);
  const auto u = random.values(tokens * channels), tail = random.values(channels * (taps - 1)), w = random.values(channels * taps);
  const auto name = shape(tokens, channels, taps);
  std::vector<float> y(tokens * channels), after(tail.size());
  ops::short_conv(y.data(), u.data(), tail.data(), w.data(), tokens, channels, taps);
  report.add("short_conv", name, y);
  ops::conv_tail(after.data(), tail.data(), u.data(), tokens - 1, channels, taps);
  report.add("conv_tail", name, after);
}

void recurrence(Report& report, size_t tokens, size_t heads, size_t width) {
  Inputs random(tokens * 1021 + heads * 5 + width);
  const size_t n = tokens * heads * width;
  const auto name = shape(tokens, heads, width);
  const auto z = random.values(n), dt_bias = random.values(heads * width), a_log = random.values(heads, -0.75f, 2.47f);
  std::vector<float> alpha(n), softplus_alpha(n), q = random.values(n), k = random.values(n), o(n);
  ops::kda_decay(alpha.data(), z.data(), a_log.data(), dt_bias.data(), tokens, heads, width, -5.0f, true);
  report.add("kda_decay", name, alpha);
  ops::kda_decay(softplus_alpha.data(), z.data(), a_log.data(), dt_bias.data(), tokens, heads, width, 0.0f, false);
  report.add("kda_decay_softplus", name, softplus_alpha);
  ops::l2_norm(q.data(), q.data(), tokens * heads, width, 1e-6f, ops::inverse_root(float(width)), true);
  ops::l2_norm(k.data(), k.data(), tokens * heads, width, 1e-6f, 1.0f, false);
  const auto v = random.values(n), beta = random.values(tokens * heads, 0.0f, 1.0f);
  auto s = random.values(heads * width * width);
  ops::kda(o.data(), s.data(), s.data(), q.data(), k.data(), v.data(), alpha.data(), beta.data(), tokens, heads, width);
  report.add("kda_output", name, o);
  report.add("kda_state", name, s);
}

void attention(Report& report, size_t tokens, size_t start, size_t heads, size_t latent, size_t rest) {
  Inputs random(tokens * 1031 + start * 3 + heads * 11 + latent);
  const size_t width = latent + rest, count = (start + tokens + kBlockPositions - 1) / kBlockPositions;
  std::vector<std::vector<float>> blocks;
  std::vector<const float*> pointers;
  for (size_t b = 0; b < count; b++) blocks.push_back(random.values(kBlockPositions * width));
  for (const auto& b : blocks) pointers.push_back(b.data());
  const auto q = random.values(tokens * heads * width);
  std::vector<float> o(tokens * heads * latent);
  ops::attend(o.data(), q.data(), pointers.data(), start, tokens, ops::inverse_root(float(width)), heads, latent, rest);
  report.add("attend", shape(tokens, start, heads, latent, rest), o);
}

void routing(Report& report, size_t rows, size_t experts, size_t k) {
  Inputs random(rows * 1033 + experts * 3 + k);
  auto logits = random.values(rows * experts, -6.0f, 6.0f);
  for (size_t e = 0; e + 1 < experts; e += 7) logits[e + 1] = logits[e];  // ties
  const auto bias = random.values(experts, -0.0625f, 0.0625f);
  std::vector<int32_t> ids(rows * k);
  std::vector<int64_t> best(rows);
  std::vector<float> weights(rows * k);
  const auto name = shape(rows, experts, k);
  ops::route(ids.data(), weights.data(), logits.data(), bias.data(), rows, experts, k, true, 2.5f);
  report.add("route_ids", name, ids);
  report.add("route_weights", name, weights);
  ops::argmax(best.data(), logits.data(), rows, experts);
  report.add("argmax", shape(rows, experts), best);
}

void sampling(Report& report, size_t n) {
  Inputs random(n);
  const auto logits = random.values(n, -9.0f, 9.0f);
  const SamplingOptions all[] = {
      {1.0, 0, 1.0, 0.0, 1}, {0.7, 40, 1.0, 0.0, 2}, {1.3, 0, 0.9, 0.0, 3}, {1.0, 0, 1.0, 0.05, 4}, {2.0, 50, 0.95, 0.01, ~uint64_t{0}}};
  std::vector<uint32_t> ids;
  for (const auto& options : all)
    for (uint64_t position = 0; position < 8; position++) ids.push_back(uint32_t(sample(logits.data(), n, options, position << 30, 1)));
  report.add("sample", shape(n), ids);
}

}  // namespace

void math_cases(Report& report) {
  functions(report);
  elementwise(report, 1, 1);
  elementwise(report, 2, 31);
  elementwise(report, 3, 100);
  elementwise(report, 3, 130);
  elementwise(report, 2, 7168);
  mixing(report, 2, 33, 1);
  mixing(report, 3, 100, 9);
  mixing(report, 1, 7168, 17);
  convolution(report, 5, 37, 1);
  convolution(report, 1, 16, 4);
  convolution(report, 7, 100, 4);
  convolution(report, 3, 33, 8);
  recurrence(report, 1, 1, 8);
  recurrence(report, 5, 3, 10);
  recurrence(report, 2, 2, 24);
  recurrence(report, 3, 2, 70);
  recurrence(report, 2, 2, 128);
  attention(report, 1, 0, 1, 32, 8);
  attention(report, 3, 126, 3, 48, 8);
  attention(report, 1, 299, 17, 9, 4);
  attention(report, 2, 127, 96, 33, 7);
  attention(report, 1, 140, 20, 512, 64);
  routing(report, 3, 16, 1);
  routing(report, 3, 17, 4);
  routing(report, 4, 896, 16);
  sampling(report, 320);
  sampling(report, 5000);
}

}  // namespace lilliput::selftest
