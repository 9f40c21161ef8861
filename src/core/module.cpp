// The extension `lilliput._core`: instruction set, self-test, and the tables of contents bind_dot.cpp, bind_math.cpp and bind_reader.cpp.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind_errors.h"
#include "dispatch.h"
#include "kernels.h"
#include "profile.h"
#include "selftest/selftest.h"

namespace nb = nanobind;

namespace lilliput {
void bind_dot(nb::module_& m);
void bind_math(nb::module_& m);
void bind_reader(nb::module_& m);
void bind_checksum(nb::module_& m);
}  // namespace lilliput

namespace {

nb::dict stop_profile() {
  nb::dict found;
  for (const auto& line : lilliput::profile::stop()) found[line.name.c_str()] = nb::make_tuple(line.calls, line.seconds);
  return found;
}

}  // namespace

NB_MODULE(_core, m) {
  using namespace lilliput;
  m.doc() = "Lilliput's kernels. What each computes, to the last bit, is in docs/arithmetic.md.";
  m.def("isas", &isas, "Instruction sets usable on this machine, the widest last.");
  m.def("isa", [] { return std::string(kernels().name); }, "The instruction set in use.");
  m.def("use_isa", &use_isa, nb::arg("name"),
        "Choose an instruction set; ValueError for one that this machine lacks. Not during a computation.");
  m.def(
      "selftest",
      [](const std::string& isa) {
        const nb::gil_scoped_release unlocked;
        return selftest::run(isa);
      },
      nb::arg("isa"), "Lines `kernel shape digest` over fixed inputs; every instruction set must give those of tests/kernel_digests.txt.");
  m.def("profile_start", &profile::start, "From now on, count calls and wall time of every kind of operation.");
  m.def("profile_stop", stop_profile, "Stop counting: {kind: (calls, seconds)}; `forks` and `joins` are parts of the other kinds.");
  bind::translate_errors();
  bind_dot(m);
  bind_math(m);
  bind_reader(m);
  bind_checksum(m);
}
