// Which instruction sets this machine can run, and which one is in use.
#pragma once

#include <string>
#include <vector>

namespace lilliput {

std::vector<std::string> isas();        // usable here, widest last
void use_isa(const std::string& name);  // throws std::invalid_argument; not while a computation runs

}  // namespace lilliput
