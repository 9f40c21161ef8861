// Python's view of checksum.h.
#include "bind_array.h"
#include "checksum.h"

namespace lilliput {

namespace nb = nanobind;

void bind_checksum(nb::module_& m) {
  m.def(
      "checksum",
      [](const bind::In& data) {
        const uint8_t* from = bind::flat<uint8_t>(data, "data");
        const size_t bytes = data.size();
        const nb::gil_scoped_release unlocked;
        return checksum(from, bytes);
      },
      nb::arg("data"), "XXH64 (seed 0) of a uint8 array: 64 bits, the same on every machine.");
}

}  // namespace lilliput
