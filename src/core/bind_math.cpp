// Python names of everything that is not a dot product: conversion and checks only.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "bind_array.h"
#include "kernels_math.h"
#include "ops_math.h"
#include "sampling.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace lilliput {
namespace {

using bind::array;
using bind::flat;
using bind::In;
using bind::kAny;
using bind::Out;
using bind::refuse;
using Release = nb::gil_scoped_release;

// Arguments are checked before this runs; their arrays stay alive in the caller's frame.
template <class Body>
auto without_gil(Body body) {
  Release release;
  return body();
}

size_t last(const In& a, const char* name) {
  if (a.ndim() == 0 || a.shape(a.ndim() - 1) == 0) refuse(name, "at least one element in a row", bind::found_text(a));
  return a.shape(a.ndim() - 1);
}

void dimensions(const In& a, const char* name, size_t n) {
  if (a.ndim() != n) refuse(name, std::to_string(n) + " dimensions", bind::found_text(a));
}

template <ops::Map kernel>
void map(const Out& y, const In& x) {
  const float* from = flat<float>(x, "x");
  float* to = flat<float>(y, "y", x.size());
  without_gil([&] { ops::map(kernel, to, from, x.size()); });
}

void finish(const Out& y) {
  float* to = flat<float>(y, "y");
  without_gil([&] { ops::finish(to, y.size()); });
}

void situ(const Out& y, const In& gate, const In& up, double beta, std::optional<double> linear_beta) {
  const size_t n = gate.size();
  const float *g = flat<float>(gate, "gate"), *u = flat<float>(up, "up", n);
  float* to = flat<float>(y, "y", n);
  without_gil([&] { ops::situ(to, g, u, n, float(beta), float(linear_beta.value_or(1.0)), linear_beta.has_value()); });
}

void rms_norm(const Out& y, const In& x, const In& w, double eps) {
  const size_t n = last(x, "x"), rows = x.size() / n;
  const float *from = flat<float>(x, "x"), *weight = array<float>(w, "w", {n});
  float* to = flat<float>(y, "y", x.size());
  without_gil([&] { ops::rms_norm(to, from, weight, rows, n, float(eps)); });
}

void l2_heads(const Out& y, const In& x, size_t heads, double eps, std::optional<double> scale) {
  const size_t tokens = x.ndim() ? x.shape(0) : 0, rows = tokens * heads;
  const float* from = flat<float>(x, "x");
  float* to = flat<float>(y, "y", x.size());
  if (x.size() == 0) return;
  if (rows == 0 || x.size() % rows) refuse("heads", "a divisor of the width of x " + bind::found_text(x), std::to_string(heads));
  without_gil([&] { ops::l2_norm(to, from, rows, x.size() / rows, float(eps), float(scale.value_or(1.0)), scale.has_value()); });
}

void gated_norm(const Out& y, const In& o, const In& w, const In& g, double eps) {
  const size_t n = last(o, "o"), rows = o.size() / n;
  const float *from = flat<float>(o, "o"), *weight = array<float>(w, "w", {n}), *gates = flat<float>(g, "g", o.size());
  float* to = flat<float>(y, "y", o.size());
  without_gil([&] { ops::gated_norm(to, from, weight, gates, rows, n, float(eps)); });
}

void log_softmax(const Out& y, const In& x) {
  const size_t n = last(x, "x"), rows = x.size() / n;
  const float* from = flat<float>(x, "x");
  float* to = flat<float>(y, "y", x.size());
  without_gil([&] { ops::log_softmax(to, from, rows, n); });
}

void mix(const Out& y, const std::vector<In>& entries, const In& w, double eps) {
  const size_t n = last(w, "w"), count = entries.size(), rows = y.size() / n;
  if (count == 0) refuse("entries", "at least one array", "none");
  const float* weight = array<float>(w, "w", {n});
  float* to = array<float>(y, "y", {rows, n});
  std::vector<const float*> pointers;
  for (const In& entry : entries) pointers.push_back(array<float>(entry, "entries", {rows, n}));
  without_gil([&] { ops::mix(to, pointers.data(), count, weight, rows, n, float(eps)); });
}

size_t taps_of(const In& w) {
  dimensions(w, "w", 2);
  const size_t taps = w.shape(1);
  if (taps < 1 || taps > kMostTaps) refuse("w", "1 to " + std::to_string(kMostTaps) + " taps", std::to_string(taps));
  return taps;
}

void short_conv(const Out& y, const In& u, const In& tail, const In& w) {
  const size_t taps = taps_of(w), channels = w.shape(0);
  const float *weight = array<float>(w, "w", {channels, taps}), *inputs = array<float>(u, "u", {kAny, channels});
  const float* before = array<float>(tail, "tail", {channels, taps - 1});
  const size_t tokens = u.shape(0);
  float* to = array<float>(y, "y", {tokens, channels});
  without_gil([&] { ops::short_conv(to, inputs, before, weight, tokens, channels, taps); });
}

void conv_tail(const Out& new_tail, const In& tail, const In& u, size_t n) {
  dimensions(tail, "tail", 2);
  const size_t channels = tail.shape(0), kept = tail.shape(1);
  const float *before = array<float>(tail, "tail", {channels, kept}), *inputs = array<float>(u, "u", {kAny, channels});
  float* to = array<float>(new_tail, "new_tail", {channels, kept});
  if (n > u.shape(0)) refuse("n", "at most the " + std::to_string(u.shape(0)) + " tokens of u", std::to_string(n));
  without_gil([&] { ops::conv_tail(to, before, inputs, n, channels, kept + 1); });
}

void kda_decay(const Out& alpha, const In& z, const In& a_log, const In& dt_bias, std::optional<double> lower_bound) {
  dimensions(z, "z", 3);
  const size_t tokens = z.shape(0), heads = z.shape(1), width = z.shape(2);
  const float *from = flat<float>(z, "z"), *rates = array<float>(a_log, "a_log", {kAny});
  if (a_log.size() < heads) refuse("a_log", "at least " + std::to_string(heads) + " entries", std::to_string(a_log.size()));
  const float* bias = flat<float>(dt_bias, "dt_bias", heads * width);
  float* to = flat<float>(alpha, "alpha", z.size());
  without_gil(
      [&] { ops::kda_decay(to, from, rates, bias, tokens, heads, width, float(lower_bound.value_or(0.0)), lower_bound.has_value()); });
}

void kda(std::optional<Out> o, std::optional<Out> s_out, const In& s_in, const In& q, const In& k, const In& v, const In& alpha,
         const In& beta) {
  dimensions(q, "q", 3);
  const size_t tokens = q.shape(0), heads = q.shape(1), width = q.shape(2);
  const auto all = {tokens, heads, width};
  const float *queries = array<float>(q, "q", all), *keys = array<float>(k, "k", all), *values = array<float>(v, "v", all);
  const float *decay = array<float>(alpha, "alpha", all), *rate = array<float>(beta, "beta", {tokens, heads});
  const float* before = array<float>(s_in, "s_in", {heads, width, width});
  float* outputs = o ? array<float>(*o, "o", all) : nullptr;
  float* after = s_out ? array<float>(*s_out, "s_out", {heads, width, width}) : nullptr;
  without_gil([&] { ops::kda(outputs, after, before, queries, keys, values, decay, rate, tokens, heads, width); });
}

void attend(const Out& o, const In& q, const In& blocks, size_t start, double scale) {
  dimensions(q, "q", 3);
  if (o.ndim() != 3 || o.shape(2) > q.shape(2)) refuse("o", "[tokens, heads, latent] for q " + bind::found_text(q), bind::found_text(o));
  const size_t tokens = q.shape(0), heads = q.shape(1), width = q.shape(2), latent = o.shape(2);
  const float* queries = array<float>(q, "q", {tokens, heads, width});
  float* to = array<float>(o, "o", {tokens, heads, latent});
  const bool is_signed = blocks.dtype() == nb::dtype<int64_t>();
  const void* addresses = is_signed ? static_cast<const void*>(array<int64_t>(blocks, "blocks", {kAny}))
                                    : static_cast<const void*>(array<uint64_t>(blocks, "blocks", {kAny}));
  const auto* const* block = static_cast<const float* const*>(addresses);
  static_assert(sizeof(float*) == sizeof(uint64_t));
  if (start > SIZE_MAX / 2) refuse("start", "a position that memory could hold", std::to_string(start));
  const size_t needed = tokens ? (start + tokens + kBlockPositions - 1) / kBlockPositions : 0;
  if (blocks.size() < needed) refuse("blocks", std::to_string(needed) + " addresses", std::to_string(blocks.size()));
  for (size_t b = 0; b < needed; b++)
    if (!block[b]) refuse("blocks", "the address of block " + std::to_string(b), "0");
  without_gil([&] { ops::attend(to, queries, block, start, tokens, float(scale), heads, latent, width - latent); });
}

int64_t route(const Out& ids, const Out& weights, const In& logits, const In& bias, size_t k, bool renormalize, double factor) {
  dimensions(logits, "logits", 2);
  const size_t rows = logits.shape(0), experts = logits.shape(1);
  if (k < 1 || k > experts) refuse("k", "1 to " + std::to_string(experts) + " experts", std::to_string(k));
  const float *scores = array<float>(logits, "logits", {rows, experts}), *shift = array<float>(bias, "bias", {experts});
  auto* chosen = array<int32_t>(ids, "ids", {rows, k});
  float* shares = array<float>(weights, "weights", {rows, k});
  return without_gil([&] { return ops::route(chosen, shares, scores, shift, rows, experts, k, renormalize, float(factor)); });
}

// Finite, or a ValueError that names the first culprit.
void demand_finite(const float* x, size_t rows, size_t n) {
  const int64_t row = ops::nonfinite(x, rows, n);
  if (row < 0) return;
  for (size_t i = 0; i < n; i++) {
    const float value = x[size_t(row) * n + i];
    if (std::isfinite(value)) continue;
    const std::string where = rows > 1 ? "row " + std::to_string(row) + ", entry " : "entry ";
    refuse("logits", "finite numbers", (std::isnan(value) ? "NaN at " : "an infinity at ") + where + std::to_string(i));
  }
}

int64_t argmax(const In& logits) {
  const float* x = array<float>(logits, "logits", {last(logits, "logits")});
  demand_finite(x, 1, logits.size());
  int64_t id = 0;
  without_gil([&] { ops::argmax(&id, x, 1, logits.size()); });
  return id;
}

void argmax_rows(const Out& out, const In& logits) {
  dimensions(logits, "logits", 2);
  const size_t n = last(logits, "logits"), rows = logits.shape(0);
  const float* x = array<float>(logits, "logits", {rows, n});
  auto* ids = array<int64_t>(out, "out", {rows});
  demand_finite(x, rows, n);
  without_gil([&] { ops::argmax(ids, x, rows, n); });
}

int64_t nonfinite(const In& x) {
  const float* from = flat<float>(x, "x");
  const size_t rows = x.ndim() > 1 ? x.shape(0) : 1;
  if (x.size() == 0) return -1;
  return without_gil([&] { return ops::nonfinite(from, rows, x.size() / rows); });
}

size_t sample(const In& logits, double temperature, uint64_t top_k, double top_p, double min_p, uint64_t seed, uint64_t position,
              uint64_t choice) {
  const size_t n = last(logits, "logits");
  const float* x = array<float>(logits, "logits", {n});
  if (!(temperature >= 0.0 && std::isfinite(temperature))) refuse("temperature", "0 or more", std::to_string(temperature));
  if (!(top_p > 0.0 && top_p <= 1.0)) refuse("top_p", "more than 0, at most 1", std::to_string(top_p));
  if (!(min_p >= 0.0 && min_p <= 1.0)) refuse("min_p", "0 to 1", std::to_string(min_p));
  demand_finite(x, 1, n);
  return without_gil([&] { return sample(x, n, SamplingOptions{temperature, top_k, top_p, min_p, seed}, position, choice); });
}

nb::tuple philox(uint64_t key, nb::tuple counter) {
  if (counter.size() != 4) refuse("counter", "four 32-bit words", std::to_string(counter.size()));
  std::array<uint32_t, 4> words;
  for (size_t i = 0; i < 4; i++) words[i] = nb::cast<uint32_t>(counter[i]);
  const auto r = philox4x32({uint32_t(key), uint32_t(key >> 32)}, words);
  return nb::make_tuple(r[0], r[1], r[2], r[3]);
}

}  // namespace

void bind_math(nb::module_& m) {
  m.def("exp_", map<&MathKernels::exp>, "y"_a, "x"_a, "y = exp(x), elementwise; y may be x.");
  m.def("log_", map<&MathKernels::log>, "y"_a, "x"_a, "y = log(x), elementwise; y may be x.");
  m.def("sigmoid_", map<&MathKernels::sigmoid>, "y"_a, "x"_a, "y = 1 / (1 + exp(-x)), elementwise; y may be x.");
  m.def("tanh_", map<&MathKernels::tanh>, "y"_a, "x"_a, "y = tanh(x), elementwise; y may be x.");
  m.def("softplus_", map<&MathKernels::softplus>, "y"_a, "x"_a, "y = log(1 + exp(x)), elementwise; y may be x.");
  m.def("add", map<&MathKernels::add>, "y"_a, "x"_a, "y += x");
  m.def("gate", map<&MathKernels::gate>, "y"_a, "g"_a, "y *= sigmoid(g)");
  m.def("finish", finish, "y"_a, "y += 0: a negative zero becomes positive, nothing else changes.");
  m.def(
      "situ", situ, "y"_a, "gate"_a, "up"_a, "beta"_a, "linear_beta"_a.none(),
      "y = beta tanh(gate / beta) sigmoid(gate) linear_beta tanh(up / linear_beta); with None the last factor is up. y may be gate or up.");
  m.def("rms_norm", rms_norm, "y"_a, "x"_a, "w"_a, "eps"_a, "y = w x / sqrt(mean(x^2) + eps) over rows x [..., D], w [D]; y may be x.");
  m.def("l2_heads", l2_heads, "y"_a, "x"_a, "heads"_a, "eps"_a, "scale"_a.none(),
        "y = x / sqrt(sum(x^2) + eps), times scale if given, over the heads of x [T, heads * K]; y may be x.");
  m.def("gated_norm", gated_norm, "y"_a, "o"_a, "w"_a, "g"_a, "eps"_a, "y = rms_norm(o [..., K], w [K]) sigmoid(g); y may be o or g.");
  m.def("log_softmax", log_softmax, "y"_a, "x"_a, "Log-probabilities over the rows of x [..., V], which must be finite; y may be x.");
  m.def("mix", mix, "y"_a, "entries"_a, "w"_a, "eps"_a,
        "Depth mixing: y [N, D] = sum of softmax(logit_j) v_j, logit_j = rms_norm(v_j) . w, over the list of v_j [N, D]; w [D].");
  m.def("short_conv", short_conv, "y"_a, "u"_a, "tail"_a, "w"_a,
        "y [T, P] = silu(causal convolution of u [T, P]); tail [P, taps - 1] the inputs before, oldest first; w [P, taps], 1 to 8 taps.");
  m.def("conv_tail", conv_tail, "new_tail"_a, "tail"_a, "u"_a, "n"_a, "The tail after the first n tokens of u; new_tail may be tail.");
  m.def("kda_decay", kda_decay, "alpha"_a, "z"_a, "a_log"_a, "dt_bias"_a, "lower_bound"_a.none(),
        "alpha [T, H, K] = exp(lower_bound sigmoid(exp(a_log) (z + dt_bias))), or exp(-exp(a_log) softplus(z + dt_bias)) for None; "
        "a_log has H entries or more, dt_bias H * K. alpha may be z.");
  m.def("kda", kda, "o"_a.none(), "s_out"_a.none(), "s_in"_a, "q"_a, "k"_a, "v"_a, "alpha"_a, "beta"_a,
        "T steps of the recurrence: q, k, v, alpha, o [T, H, K], beta [T, H], states [H, K, K] with the key index first. "
        "o or s_out may be None, s_out may be s_in.");
  m.def("attend", attend, "o"_a, "q"_a, "blocks"_a, "start"_a, "scale"_a,
        "Absorbed causal attention: q [T, H, c + r], o [T, H, c], token t at position start + t. blocks: int64 or uint64 addresses of "
        "float32 [128, c + r] arrays of latents, which the caller keeps alive.");
  m.def(
      "inverse_root", [](double x) { return ops::inverse_root(float(x)); }, "x"_a,
      "1 / sqrt(x) in float32: the scale of heads of width x.");
  m.def("route", route, "ids"_a, "weights"_a, "logits"_a, "bias"_a, "k"_a, "renormalize"_a, "factor"_a,
        "The k best experts of each row of logits [N, E] by sigmoid(logit) + bias: ids int32 [N, k] ascending, weights [N, k]. "
        "Returns -1, or the first row with a NaN or an infinity (ids and weights are then not to be used).");
  m.def("argmax", argmax, "logits"_a, "The lowest id of the largest of logits [V]; ValueError for a NaN or an infinity.");
  m.def("argmax_rows", argmax_rows, "out"_a, "logits"_a, "out int64 [N] = argmax of the rows of logits [N, V].");
  m.def("nonfinite", nonfinite, "x"_a, "The first row of x with a NaN or an infinity, or -1.");
  m.def("sample", static_cast<size_t (*)(const In&, double, uint64_t, double, double, uint64_t, uint64_t, uint64_t)>(sample), "logits"_a,
        "temperature"_a, "top_k"_a, "top_p"_a, "min_p"_a, "seed"_a, "position"_a, "choice"_a,
        "The id chosen from logits [V]: a pure function of the arguments. ValueError for a NaN or an infinity.");
  m.def("philox4x32", philox, "key"_a, "counter"_a, "Four words of Philox4x32-10 for a 64-bit key and a tuple of four 32-bit words.");
}

}  // namespace lilliput
