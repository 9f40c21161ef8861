#include "dispatch.h"

#include <atomic>
#include <stdexcept>

#include "kernels.h"
#include "platform.h"

namespace lilliput {
namespace {

std::vector<const Kernels*> usable() {
  std::vector<const Kernels*> found{&kernels_scalar};
#if defined(__x86_64__)
  if (cpu_has_avx2_fma()) found.push_back(&kernels_avx2);
  if (cpu_has_avx512()) found.push_back(&kernels_avx512);
#else
  found.push_back(&kernels_neon);  // part of every aarch64
#endif
  return found;
}

// Not a static of a function: the child of a fork that came while another thread made it would wait for that thread for ever.
std::atomic<const Kernels*> current{nullptr};

}  // namespace

const Kernels& kernels() {
  const Kernels* chosen = current.load(std::memory_order_relaxed);
  if (chosen) return *chosen;
  const Kernels* widest = usable().back();
  return current.compare_exchange_strong(chosen, widest, std::memory_order_relaxed) ? *widest : *chosen;
}

std::vector<std::string> isas() {
  std::vector<std::string> names;
  for (const Kernels* k : usable()) names.emplace_back(k->name);
  return names;
}

void use_isa(const std::string& name) {
  std::string here;
  for (const Kernels* k : usable()) {
    if (name == k->name) {
      current.store(k, std::memory_order_relaxed);
      return;
    }
    here += (here.empty() ? "" : ", ") + std::string(k->name);
  }
  const bool known = name == "scalar" || name == "avx2" || name == "avx512" || name == "neon";
  throw std::invalid_argument("instruction set: needed one of " + here + " on this machine, found `" + name + "`" +
                              (known ? ", which this processor or its operating system does not offer" : ""));
}

}  // namespace lilliput
