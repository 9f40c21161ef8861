// Python's view of ops_dot.h and k12.h: checks and conversions only.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <optional>
#include <tuple>
#include <vector>

#include "bind_array.h"
#include "k12.h"
#include "kernels_dot.h"
#include "ops_dot.h"
#include "pool.h"
#include "scratch.h"

namespace lilliput {
namespace {

namespace nb = nanobind;
using bind::array;
using bind::flat;
using bind::found_text;
using bind::In;
using bind::kAny;
using bind::Out;
using bind::refuse;

// Where the results of `rows` rows go: y [T, ld], columns row0 .. row0 + rows.
struct Target {
  float* y;
  size_t ld;
};

struct Tokens {
  const float* x;
  size_t count, in;
};

Tokens tokens_of(const In& x) {
  const float* data = array<float>(x, "x", {kAny, kAny});
  return {data, x.shape(0), x.shape(1)};
}

Target target(const Out& y, const Tokens& x, size_t row0, size_t rows) {
  float* data = array<float>(y, "y", {size_t(x.count), kAny});
  const size_t ld = y.shape(1);
  if (row0 > ld || rows > ld - row0)
    refuse("y", "at least " + std::to_string(row0) + " + " + std::to_string(rows) + " columns (row0 + rows)", found_text(y));
  return {data + row0, ld};
}

// rows * in weights of `bits` bits, in bytes; a product that no array could have is refused before it wraps around.
size_t size_of(size_t rows, size_t in, size_t bits) {
  size_t n = 0;
  if (__builtin_mul_overflow(rows, in, &n) || n > SIZE_MAX / 32)
    refuse("rows", "a matrix that fits the address space", std::to_string(rows) + " x " + std::to_string(in));
  return n * bits / 8;
}

Weights bf16_rows(const In& w, size_t rows, size_t in) {
  return {Weights::bf16, flat<uint8_t>(w, "w", size_of(rows, in, 16)), {}, rows, in};
}

Weights k12_rows(const In& piece, size_t rows, size_t in) {
  const uint8_t* data = flat<uint8_t>(piece, "piece");
  size_of(rows, in, 16);
  return {Weights::k12, nullptr, k12_open(data, piece.size(), rows, in), rows, in};
}

Weights f32_rows(const In& w, size_t in) {
  const float* data = array<float>(w, "w", {kAny, size_t(in)});
  return {Weights::f32, reinterpret_cast<const uint8_t*>(data), {}, w.shape(0), in};
}

void multiply(const Out& y, const Tokens& x, const std::vector<Weights>& pieces, size_t row0) {
  size_t rows = 0;
  for (const Weights& w : pieces)
    if (__builtin_add_overflow(rows, w.rows, &rows)) refuse("rows", "fewer rows", "more than the address space has");
  const Target to = target(y, x, row0, rows);
  const nb::gil_scoped_release unlocked;
  matmul(to.y, to.ld, x.x, x.count, pieces.data(), pieces.size());
}

using OneOf = Weights (*)(const In& w, size_t rows, size_t in);

template <OneOf of>
void multiply_one(const Out& y, const In& x, const In& w, size_t rows, size_t row0) {
  const Tokens t = tokens_of(x);
  multiply(y, t, {of(w, rows, t.in)}, row0);
}

Weights rows_of(const In& w, const std::string& kind, size_t rows, size_t in) {
  if (kind == "bf16") return bf16_rows(w, rows, in);
  if (kind == "k12") return k12_rows(w, rows, in);
  refuse("kind", "`bf16` or `k12`", "`" + kind + "`");
}

// Consecutive rows of one matrix in pieces: checked once, multiplied with many times. Keeps the arrays alive.
struct Rows {
  std::vector<Weights> pieces;
  std::vector<In> held;
  size_t columns;

  Rows(const std::string& kind, std::vector<In> data, const std::vector<size_t>& rows, size_t columns)
      : held(std::move(data)), columns(columns) {
    if (held.size() != rows.size())
      refuse("rows", "one number for each of " + std::to_string(held.size()) + " pieces", std::to_string(rows.size()));
    pieces.reserve(held.size());
    for (size_t i = 0; i < held.size(); i++) pieces.push_back(rows_of(held[i], kind, rows[i], columns));
  }
};

void multiply_rows(const Out& y, const In& x, const Rows& w, size_t row0) {
  const Tokens t{array<float>(x, "x", {kAny, size_t(w.columns)}), x.shape(0), w.columns};
  multiply(y, t, w.pieces, row0);
}

void multiply_t(const Out& y, const In& x, const Weights& w, size_t row, size_t rows) {
  if (row > w.rows || rows > w.rows - row)
    refuse("row0, rows", "a range inside " + std::to_string(w.rows) + " rows", std::to_string(row) + ", " + std::to_string(rows));
  const float* from = array<float>(x, "x", {kAny, size_t(rows)});
  float* to = array<float>(y, "y", {size_t(x.shape(0)), size_t(w.in)});
  const size_t tokens = x.shape(0);
  const nb::gil_scoped_release unlocked;
  matmul_t(to, from, tokens, w, row, rows);
}

size_t columns(const Out& y) {
  if (y.ndim() != 2) refuse("y", "float32 [*, *]", found_text(y));
  return y.shape(1);
}

// A bf16 matrix seen whole by the transposed product: as many rows as its bytes hold.
Weights bf16_whole(const In& w, size_t in) {
  const size_t row = in * 2;
  flat<uint8_t>(w, "w");
  if (row == 0 || w.size() % row != 0) refuse("w", "whole rows of " + std::to_string(row) + " bytes", std::to_string(w.size()) + " bytes");
  return bf16_rows(w, w.size() / row, in);
}

size_t kv_rows(size_t heads, size_t n, size_t v) {
  if (v > SIZE_MAX - n) refuse("v", "a number of rows", std::to_string(v));
  return size_of(heads, n + v, 8);
}

void absorb_query_py(const Out& q_lat, const In& q, const In& w, const std::string& kind, size_t n, size_t v) {
  const float* from = array<float>(q, "q", {kAny, kAny, kAny});
  const size_t tokens = q.shape(0), heads = q.shape(1);
  if (q.shape(2) < n) refuse("q", "at least n = " + std::to_string(n) + " values per head", found_text(q));
  const size_t r = q.shape(2) - n;
  float* to = array<float>(q_lat, "q_lat", {size_t(tokens), size_t(heads), kAny});
  if (q_lat.shape(2) < r) refuse("q_lat", "at least the " + std::to_string(r) + " values per head that pass through", found_text(q_lat));
  const Weights rows = rows_of(w, kind, kv_rows(heads, n, v), q_lat.shape(2) - r);
  const nb::gil_scoped_release unlocked;
  absorb_query(to, from, tokens, rows, heads, n, v, r);
}

void absorb_value_py(const Out& o, const In& o_lat, const In& w, const std::string& kind, size_t n, size_t v) {
  const float* from = array<float>(o_lat, "o_lat", {kAny, kAny, kAny});
  const size_t tokens = o_lat.shape(0), heads = o_lat.shape(1);
  float* to = array<float>(o, "o", {size_t(tokens), size_t(heads), size_t(v)});
  const Weights rows = rows_of(w, kind, kv_rows(heads, n, v), o_lat.shape(2));
  const nb::gil_scoped_release unlocked;
  absorb_value(to, from, tokens, rows, heads, n, v);
}

using Bytes = nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>;

Bytes new_bytes(size_t n) {
  constexpr std::align_val_t align{64};
  void* memory = ::operator new(n ? n : 1, align);
  nb::capsule owner(memory, [](void* p) noexcept { ::operator delete(p, std::align_val_t{64}); });
  return Bytes(memory, {n}, owner);
}

size_t mxfp4_width(size_t in) {
  if (in == 0 || in % 32 != 0) refuse("x", "a width that is a multiple of 32 (one MXFP4 group)", std::to_string(in));
  return in;
}

Mxfp4Rows mxfp4(const In& packed, const char* name, const In& scales, const char* scale_name, size_t rows, size_t in) {
  const size_t nibbles = size_of(rows, in, 4);
  return {flat<uint8_t>(packed, name, nibbles), flat<uint8_t>(scales, scale_name, nibbles / 16), rows, in};
}

void mxfp4_matmul(const Out& y, const In& x, const In& packed, const In& scales, size_t row0) {
  const Tokens from = tokens_of(x);
  const size_t in = mxfp4_width(from.in);
  flat<uint8_t>(packed, "packed");
  if (packed.size() % (in / 2))
    refuse("packed", "whole rows of " + std::to_string(in / 2) + " bytes", std::to_string(packed.size()) + " bytes");
  const Mxfp4Rows w = mxfp4(packed, "packed", scales, "scales", packed.size() / (in / 2), in);
  const Target to = target(y, from, row0, w.rows);
  const nb::gil_scoped_release unlocked;
  matmul_mxfp4(to.y, to.ld, from.x, from.count, w);
}

const int32_t* token_rows(const In& index, size_t tokens) {
  const int32_t* rows = array<int32_t>(index, "index", {kAny});
  for (size_t j = 0; j < index.shape(0); j++)
    if (rows[j] < 0 || size_t(rows[j]) >= tokens || (j && rows[j] <= rows[j - 1]))
      refuse("index", "ascending rows, below " + std::to_string(tokens), std::to_string(rows[j]) + " at " + std::to_string(j));
  return rows;
}

void accumulate_values(const Out& y, const In& values, const In& index, const In& weight) {
  array<float>(y, "y", {kAny, kAny});
  const int32_t* rows = token_rows(index, y.shape(0));
  const size_t count = index.shape(0);
  const float* from = array<float>(values, "values", {count, kAny});
  const size_t latent = values.shape(1);
  float* to = array<float>(y, "y", {kAny, latent});
  const float* weights = array<float>(weight, "weight", {count});
  const nb::gil_scoped_release unlocked;
  accumulate(to, from, rows, weights, count, latent);
}

void check_expert(size_t parts, size_t width, size_t latent) {
  if (parts != 6) refuse("parts", "6 of them (w1, w2, w3, each packed and scale)", std::to_string(parts));
  if (latent == 0 || latent % 32 != 0 || width == 0 || width % 32 != 0)
    refuse("width, latent", "multiples of 32 (one MXFP4 group)", std::to_string(width) + ", " + std::to_string(latent));
}

// The tensors of one expert: checked once, applied many times. Keeps the arrays alive.
struct ExpertParts {
  Mxfp4Rows w1, w2, w3;
  std::vector<In> held;

  // All in one array, from `places` on.
  ExpertParts(const In& data, const std::vector<size_t>& places, size_t width, size_t latent) : held{data} {
    check_expert(places.size(), width, latent);
    const uint8_t* all = flat<uint8_t>(data, "data");
    const size_t nibbles = size_of(width, latent, 4);
    for (size_t i = 0; i < places.size(); i++) {
      const size_t nbytes = i % 2 ? nibbles / 16 : nibbles;
      if (places[i] > data.size() || nbytes > data.size() - places[i])
        refuse("places", "a place for " + std::to_string(nbytes) + " bytes within " + std::to_string(data.size()),
               std::to_string(places[i]) + " for part " + std::to_string(i));
    }
    const auto rows = [&](size_t i, size_t n, size_t in) { return Mxfp4Rows{all + places[i], all + places[i + 1], n, in}; };
    w1 = rows(0, width, latent);
    w2 = rows(2, latent, width);
    w3 = rows(4, width, latent);
  }

  ExpertParts(std::vector<In> parts, size_t width, size_t latent) : held(std::move(parts)) {
    check_expert(held.size(), width, latent);
    w1 = mxfp4(held[0], "parts[0] (w1.packed)", held[1], "parts[1] (w1.scale)", width, latent);
    w2 = mxfp4(held[2], "parts[2] (w2.packed)", held[3], "parts[3] (w2.scale)", latent, width);
    w3 = mxfp4(held[4], "parts[4] (w3.packed)", held[5], "parts[5] (w3.scale)", width, latent);
  }
  Expert with(float beta, std::optional<float> linear_beta) const {
    const float linear = linear_beta.value_or(0.0f);
    return {w1, w2, w3, beta, linear, linear_beta.has_value() && !std::isnan(linear)};
  }
  size_t nan_scales() const {
    const nb::gil_scoped_release unlocked;
    return lilliput::nan_scales(w1) + lilliput::nan_scales(w2) + lilliput::nan_scales(w3);
  }
};

void expert(const Out& y, const In& x, const In& index, const ExpertParts& parts, float beta, std::optional<float> linear_beta) {
  const size_t latent = parts.w1.in;
  const float* from = array<float>(x, "x", {kAny, size_t(latent)});
  const int32_t* rows = token_rows(index, x.shape(0));
  const size_t count = index.shape(0);
  float* to = array<float>(y, "y", {size_t(count), size_t(latent)});
  const Expert e = parts.with(beta, linear_beta);
  const nb::gil_scoped_release unlocked;
  apply_expert(to, from, rows, count, e);
}

using ChosenExpert = std::tuple<In, In, const ExpertParts*>;

void experts(const Out& y, const In& x, const std::vector<ChosenExpert>& chosen, float beta, std::optional<float> linear_beta) {
  const float* from = array<float>(x, "x", {kAny, kAny});
  const size_t tokens = x.shape(0), latent = x.shape(1);
  float* to = array<float>(y, "y", {size_t(tokens), size_t(latent)});
  std::vector<Chosen> all;
  all.reserve(chosen.size());
  for (const auto& [index, weight, parts] : chosen) {
    if (!parts) refuse("chosen", "an Expert", "None");
    const size_t width = parts->w1.rows, first = all.empty() ? width : all.front().expert.w1.rows;
    if (parts->w1.in != latent || width != first)
      refuse("chosen", "experts of one width that take " + std::to_string(latent) + " values each",
             "one of width " + std::to_string(width) + " that takes " + std::to_string(parts->w1.in));
    const int32_t* rows = token_rows(index, tokens);
    const size_t count = index.shape(0);
    all.push_back({rows, array<float>(weight, "weight", {size_t(count)}), count, parts->with(beta, linear_beta)});
  }
  const nb::gil_scoped_release unlocked;
  apply_experts(to, from, all.data(), all.size());
}

const uint8_t* table_of(const In& table) { return flat<uint8_t>(table, "table", 16); }

void bind_k12(nb::module_& m) {
  m.def(
      "k12_histogram",
      [](const Out& counts, const In& w) {
        int64_t* to = array<int64_t>(counts, "counts", {256});
        const uint8_t* from = flat<uint8_t>(w, "w");
        if (w.size() % 2) refuse("w", "whole bf16 values", std::to_string(w.size()) + " bytes");
        const size_t n = w.size() / 2;
        const nb::gil_scoped_release unlocked;
        k12_histogram(to, from, n);
      },
      nb::arg("counts"), nb::arg("w"), "Adds to counts int64[256] how often each value is the high byte of a bf16 weight in w.");
  m.def(
      "k12_table",
      [](const In& counts) {
        uint8_t table[16];
        k12_table(table, array<int64_t>(counts, "counts", {256}));
        return nb::bytes(reinterpret_cast<const char*>(table), 16);
      },
      nb::arg("counts"), "The 16 most frequent high bytes, ties to the smaller; 0x00 first where it occurs.");
  m.def(
      "k12_size",
      [](const In& w, size_t rows, size_t in, const In& table) {
        const uint8_t *from = flat<uint8_t>(w, "w", size_of(rows, in, 16)), *codes = table_of(table);
        const nb::gil_scoped_release unlocked;
        return k12_size(from, rows, in, codes);
      },
      nb::arg("w"), nb::arg("rows"), nb::arg("columns"), nb::arg("table"), "Bytes of the piece that k12_encode would make.");
  m.def(
      "k12_encode",
      [](const In& w, size_t rows, size_t in, const In& table) {
        const uint8_t *from = flat<uint8_t>(w, "w", size_of(rows, in, 16)), *codes = table_of(table);
        size_t size = 0;
        {
          const nb::gil_scoped_release unlocked;
          size = k12_size(from, rows, in, codes);
        }
        Bytes piece = new_bytes(size);
        const nb::gil_scoped_release unlocked;
        k12_encode(piece.data(), size, from, rows, in, codes);
        return piece;
      },
      nb::arg("w"), nb::arg("rows"), nb::arg("columns"), nb::arg("table"), "One self-contained K12 piece of rows x columns bf16 weights.");
  m.def(
      "k12_encode_into",
      [](const Out& piece, const In& w, size_t rows, size_t in, const In& table) {
        uint8_t* to = flat<uint8_t>(piece, "piece");
        const uint8_t *from = flat<uint8_t>(w, "w", size_of(rows, in, 16)), *codes = table_of(table);
        const size_t room = piece.size();
        const nb::gil_scoped_release unlocked;
        return k12_encode(to, room, from, rows, in, codes);
      },
      nb::arg("piece"), nb::arg("w"), nb::arg("rows"), nb::arg("columns"), nb::arg("table"),
      "The same into the front of an array; the piece's bytes, and nothing written where the array has fewer.");
  m.def(
      "k12_matches",
      [](const In& piece, const In& w, size_t rows, size_t in) {
        const K12 k12 = k12_rows(piece, rows, in).piece;
        const uint8_t* expected = flat<uint8_t>(w, "w", size_of(rows, in, 16));
        const nb::gil_scoped_release unlocked;
        return k12_matches(k12, expected);
      },
      nb::arg("piece"), nb::arg("w"), nb::arg("rows"), nb::arg("columns"), "Whether a piece decodes to these bf16 weights.");
  m.def(
      "k12_decode",
      [](const In& piece, size_t rows, size_t in) {
        const Weights w = k12_rows(piece, rows, in);
        Bytes to = new_bytes(size_of(rows, in, 16));
        const nb::gil_scoped_release unlocked;
        k12_decode(to.data(), w.piece);
        return to;
      },
      nb::arg("piece"), nb::arg("rows"), nb::arg("columns"), "The bf16 bytes of a piece; ValueError for one that is malformed.");
}

}  // namespace

void bind_dot(nb::module_& m) {
  m.def(
      "set_threads", [](int64_t n, size_t least_work) { set_threads(size_t(std::max<int64_t>(n, 0)), least_work); }, nb::arg("n"),
      nb::arg("least_work") = kWorthSplitting, nb::call_guard<nb::gil_scoped_release>(),
      "Start the threads that share each computation, the caller included; less work than `least_work` stays on the caller.\n"
      "Raises DoesNotFitError where so many cannot be started: the former number stays in force.");
  m.def("waits_awake", &waits_awake, "How often a thread of the pool has begun to wait awake for long (for tests).");
  m.def("scratch_bytes", &scratch_bytes, "Working memory that the kernels keep, of all threads (for tests).");
  m.attr("MOST_TOKENS") = kMostTokens;
  m.attr("MOST_THREADS") = kMostThreads;
  m.attr("DOT_SCRATCH") = kDotScratch;
  m.def("threads", &threads, "Threads that share each computation.");
  bind_k12(m);

  m.def(
      "matmul_f32",
      [](const Out& y, const In& x, const In& w, size_t row0) {
        const Tokens t = tokens_of(x);
        multiply(y, t, {f32_rows(w, t.in)}, row0);
      },
      nb::arg("y"), nb::arg("x"), nb::arg("w"), nb::arg("row0") = 0, "y[:, row0:row0+rows] = x w^T; w float32 [rows, in].");
  m.def("matmul_bf16", &multiply_one<bf16_rows>, nb::arg("y"), nb::arg("x"), nb::arg("w"), nb::arg("rows"), nb::arg("row0") = 0,
        "The same with w as bf16 bytes at any alignment.");
  m.def("matmul_k12", &multiply_one<k12_rows>, nb::arg("y"), nb::arg("x"), nb::arg("w"), nb::arg("rows"), nb::arg("row0") = 0,
        "The same with w as a K12 piece.");
  nb::class_<Rows>(m, "Rows",
                   "Consecutive rows of one matrix, rows[i] of them in data[i]: bf16 bytes, or a K12 piece. Keeps the arrays alive.")
      .def(nb::init<const std::string&, std::vector<In>, const std::vector<size_t>&, size_t>(), nb::arg("kind"), nb::arg("data"),
           nb::arg("rows"), nb::arg("columns"));
  m.def("matmul", &multiply_rows, nb::arg("y"), nb::arg("x"), nb::arg("w"), nb::arg("row0") = 0, "y[:, row0:row0+rows] = x w^T.");
  m.def(
      "matmul_t_f32",
      [](const Out& y, const In& x, const In& w) {
        const Weights all = f32_rows(w, columns(y));
        multiply_t(y, x, all, 0, all.rows);
      },
      nb::arg("y"), nb::arg("x"), nb::arg("w"), "y [T, c] = x [T, d] w; w float32 [d, c].");
  m.def(
      "matmul_t_bf16",
      [](const Out& y, const In& x, const In& w, size_t row0, size_t rows) { multiply_t(y, x, bf16_whole(w, columns(y)), row0, rows); },
      nb::arg("y"), nb::arg("x"), nb::arg("w"), nb::arg("row0"), nb::arg("rows"), "The same with rows row0 .. row0 + rows of bf16 bytes.");
  m.def(
      "matmul_t_k12",
      [](const Out& y, const In& x, const In& piece, size_t all, size_t row0, size_t rows) {
        multiply_t(y, x, k12_rows(piece, all, columns(y)), row0, rows);
      },
      nb::arg("y"), nb::arg("x"), nb::arg("piece"), nb::arg("piece_rows"), nb::arg("row0"), nb::arg("rows"),
      "The same with a K12 piece of piece_rows rows.");
  m.def("absorb_query", &absorb_query_py, nb::arg("q_lat"), nb::arg("q"), nb::arg("w"), nb::arg("kind"), nb::arg("n"), nb::arg("v"),
        "q [T, H, n + r] to q_lat [T, H, c + r] through the key rows of kv_b; the last r values pass through.");
  m.def("absorb_value", &absorb_value_py, nb::arg("o"), nb::arg("o_lat"), nb::arg("w"), nb::arg("kind"), nb::arg("n"), nb::arg("v"),
        "o_lat [T, H, c] to o [T, H, v] through the value rows of kv_b.");
  m.def("mxfp4_matmul", &mxfp4_matmul, nb::arg("y"), nb::arg("x"), nb::arg("packed"), nb::arg("scales"), nb::arg("row0") = 0,
        "y[:, row0:row0+rows] = x w^T with MXFP4 weights; NaN scales (255) are taken as 0.");
  nb::class_<ExpertParts>(m, "Expert", "The six tensors of one expert: w1, w2, w3, each packed and scale. Keeps the arrays alive.")
      .def(nb::init<std::vector<In>, size_t, size_t>(), nb::arg("parts"), nb::arg("width"), nb::arg("latent"))
      .def(nb::init<const In&, const std::vector<size_t>&, size_t, size_t>(), nb::arg("data"), nb::arg("places"), nb::arg("width"),
           nb::arg("latent"), "The same, each from its place in one array on.")
      .def("nan_scales", &ExpertParts::nan_scales, "How many of its scales are NaN (255), which count as 0.");
  m.def("expert", &expert, nb::arg("y"), nb::arg("x"), nb::arg("index"), nb::arg("expert"), nb::arg("beta"), nb::arg("linear_beta").none(),
        "y[j] = expert(x[index[j]]), for `accumulate` to add later.");
  m.def("experts", &experts, nb::arg("y"), nb::arg("x"), nb::arg("chosen"), nb::arg("beta"), nb::arg("linear_beta").none(),
        "y[index[j]] += weight[j] * expert(x[index[j]]), fused, for one (index, weight, expert) after the other.");
  m.def("accumulate", &accumulate_values, nb::arg("y"), nb::arg("values"), nb::arg("index"), nb::arg("weight"),
        "y[index[j]] += weight[j] * values[j], fused: the last step of `experts`.");
}

}  // namespace lilliput
