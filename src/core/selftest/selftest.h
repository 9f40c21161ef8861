// Every kernel over fixed inputs, one digest of the output bytes each: the file tests/kernel_digests.txt pins them for ever.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lilliput::selftest {

// Deterministic values made from integers with exact operations only, so every machine makes the same ones.
class Inputs {
 public:
  explicit Inputs(uint64_t seed) : state_(seed) {}

  uint64_t bits();                       // 64 random bits (SplitMix64)
  float value();                         // about -2 .. 2; now and then an outlier near 100, a zero of either sign, a subnormal
  float between(float low, float high);  // for arguments that must stay in a range
  uint16_t weight();                     // finite bf16, mostly 2^-17 .. 2^-3, like a trained matrix
  std::vector<float> values(size_t n);
  std::vector<float> values(size_t n, float low, float high);
  std::vector<uint8_t> weights(size_t n);  // n bf16 values as bytes
  std::vector<uint8_t> bytes(size_t n);
  std::vector<uint8_t> bytes(size_t n, int low, int high);  // each low .. high

 private:
  uint64_t state_;
};

class Report {
 public:
  // The line of one case. `shape` has no spaces.
  void add(const std::string& kernel, const std::string& shape, const void* data, size_t bytes);
  template <class T>
  void add(const std::string& kernel, const std::string& shape, const std::vector<T>& out) {
    add(kernel, shape, out.data(), out.size() * sizeof(T));
  }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::vector<std::string> lines_;
};

// "3x5x7"
template <class... N>
std::string shape(N... n) {
  std::string text;
  ((text.append(text.empty() ? "" : "x").append(std::to_string(n))), ...);
  return text;
}

void dot_cases(Report& report), wide_dot_cases(Report& report);
void math_cases(Report& report);
void check_pool();  // throws std::logic_error

// All lines on one instruction set; the one in use before is in use again after. Throws where two kernels that must agree do not.
std::vector<std::string> run(const std::string& isa);

}  // namespace lilliput::selftest
