// lilliput_selftest [--isa NAME|all] [--threads N]: prints one digest per kernel and shape; fails where instruction sets disagree.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "../dispatch.h"
#include "../pool.h"
#include "selftest.h"

namespace {

int usage() {
  std::fputs("usage: lilliput_selftest [--isa NAME|all] [--threads N]\n", stderr);
  return 2;
}

int compare(const std::vector<std::string>& names) {
  int different = 0;
  std::vector<std::string> first;
  for (const auto& name : names) {
    const auto lines = lilliput::selftest::run(name);
    if (first.empty()) {
      first = lines;
      for (const auto& line : lines) std::puts(line.c_str());
      continue;
    }
    for (size_t i = 0; i < first.size(); i++)
      if (i >= lines.size() || lines[i] != first[i]) {
        std::fprintf(stderr, "%s and %s disagree:\n  %s\n  %s\n", names[0].c_str(), name.c_str(), first[i].c_str(),
                     i < lines.size() ? lines[i].c_str() : "nothing");
        different++;
      }
  }
  return different ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::string isa = "all";
  for (int i = 1; i < argc; i += 2) {
    const std::string option = argv[i];
    if (i + 1 == argc) return usage();
    if (option == "--isa")
      isa = argv[i + 1];
    else if (option == "--threads")
      lilliput::set_threads(std::strtoul(argv[i + 1], nullptr, 10), 0);
    else
      return usage();
  }
  try {
    return compare(isa == "all" ? lilliput::isas() : std::vector<std::string>{isa});
  } catch (const std::exception& e) {
    std::fprintf(stderr, "lilliput_selftest: %s\n", e.what());
    return 1;
  }
}
