// The extension `lilliput._bench`: Python's view of yardsticks.h, checks and conversions only.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>

#include "../bind_array.h"
#include "../bind_errors.h"
#include "../pool.h"
#include "yardsticks.h"

namespace nb = nanobind;

namespace {

using namespace lilliput;
using bind::array;
using bind::flat;
using bind::In;
using bind::kAny;
using bind::Out;
using bind::refuse;

constexpr size_t kStreamAlignment = 16;

uint64_t read_all(const In& data) {
  const uint8_t* from = flat<uint8_t>(data, "data");
  const size_t n = data.size();
  const nb::gil_scoped_release unlocked;
  return bench::read(from, n);
}

void copy(const Out& to, const In& from) {
  const uint8_t* source = flat<uint8_t>(from, "from");
  uint8_t* target = flat<uint8_t>(to, "to", from.size());
  if ((reinterpret_cast<uintptr_t>(source) | reinterpret_cast<uintptr_t>(target)) % kStreamAlignment)
    refuse("to, from", "arrays at 16-byte boundaries", "another address");
  const size_t n = from.size();
  const nb::gil_scoped_release unlocked;
  bench::copy(target, source, n);
}

uint64_t peak(const std::string& isa, size_t rounds) {
  const nb::gil_scoped_release unlocked;
  return bench::peak(isa.c_str(), rounds);
}

size_t columns(const In& x, size_t multiple) {
  array<float>(x, "x", {kAny});
  if (x.size() == 0 || x.size() % multiple)
    refuse("x", "a width that is a multiple of " + std::to_string(multiple), std::to_string(x.size()));
  return x.size();
}

void bf16_doubles(const Out& y, const In& x, const In& w) {
  const size_t in = columns(x, 4);
  float* to = array<float>(y, "y", {kAny});
  const size_t rows = y.size();
  const uint8_t* weights = flat<uint8_t>(w, "w", rows * in * 2);
  const float* from = static_cast<const float*>(x.data());
  const nb::gil_scoped_release unlocked;
  bench::bf16_doubles(to, from, weights, rows, in);
}

void mxfp4_doubles(const Out& y, const In& x, const In& packed, const In& scales) {
  const size_t in = columns(x, 32);
  float* to = array<float>(y, "y", {kAny});
  const size_t rows = y.size();
  const uint8_t *nibbles = flat<uint8_t>(packed, "packed", rows * in / 2), *exponents = flat<uint8_t>(scales, "scales", rows * in / 32);
  const float* from = static_cast<const float*>(x.data());
  const nb::gil_scoped_release unlocked;
  bench::mxfp4_doubles(to, from, nibbles, exponents, rows, in);
}

}  // namespace

NB_MODULE(_bench, m) {
  m.doc() = "What `lilliput bench` compares the kernels with. Its threads are its own: set_threads here does not change the core's.";
  bind::translate_errors();
  m.def("set_threads", [](size_t n) { lilliput::set_threads(n); }, nb::arg("n"), "How many threads the functions below use.");
  m.def("read", read_all, nb::arg("data"), "Loads every byte of data; returns something that depends on all of them.");
  m.def("copy", copy, nb::arg("to"), nb::arg("from_"), "to = from_, past the caches where the processor can.");
  m.def("peak", peak, nb::arg("isa"), nb::arg("rounds"),
        "Fused multiply-adds in registers on every thread, in chains that hide their latency; returns how many (of single floats).");
  m.def("bf16_doubles", bf16_doubles, nb::arg("y"), nb::arg("x"), nb::arg("w"),
        "y [R] = W x for bf16 rows, in four lanes of double, product and sum apart.");
  m.def("mxfp4_doubles", mxfp4_doubles, nb::arg("y"), nb::arg("x"), nb::arg("packed"), nb::arg("scales"),
        "y [R] = W x for E2M1 nibbles [R, N / 2] and E8M0 scales [R, N / 32], likewise.");
}
