#include <cstring>

#include "../dispatch.h"
#include "../kernels.h"
#include "../platform.h"
#include "selftest.h"

namespace lilliput::selftest {

uint64_t Inputs::bits() {
  uint64_t z = state_ += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

float Inputs::value() {
  const uint64_t b = bits();
  const float x = float(int32_t(b >> 40) - (1 << 23)) * 0x1p-22f;
  switch (b % 128) {
    case 0:
      return x * 64.0f;
    case 1:
      return 0.0f;
    case 2:
      return -0.0f;
    case 3:
      return x * 0x1p-127f;
    default:
      return x;
  }
}

float Inputs::between(float low, float high) { return low + (high - low) * (float(bits() >> 40) * 0x1p-24f); }

uint16_t Inputs::weight() {
  const uint64_t b = bits();
  const auto sign = uint16_t(b >> 63 << 15), mantissa = uint16_t(b >> 32 & 127);
  switch (b % 256) {
    case 0:
      return sign;
    case 1:
      return uint16_t(sign | mantissa);  // subnormal
    case 2:
      return uint16_t(sign | (130 + (b >> 8 & 7)) << 7 | mantissa);  // 8 and more
    default:
      return uint16_t(sign | (124 - __builtin_ctz(unsigned(b >> 8 & 0x3fff) | 0x4000)) << 7 | mantissa);
  }
}

std::vector<float> Inputs::values(size_t n) {
  std::vector<float> v(n);
  for (float& x : v) x = value();
  return v;
}

std::vector<float> Inputs::values(size_t n, float low, float high) {
  std::vector<float> v(n);
  for (float& x : v) x = between(low, high);
  return v;
}

std::vector<uint8_t> Inputs::weights(size_t n) {
  std::vector<uint8_t> v(2 * n);
  for (size_t i = 0; i < n; i++) {
    const uint16_t w = weight();
    std::memcpy(&v[2 * i], &w, 2);
  }
  return v;
}

std::vector<uint8_t> Inputs::bytes(size_t n) { return bytes(n, 0, 255); }

std::vector<uint8_t> Inputs::bytes(size_t n, int low, int high) {
  std::vector<uint8_t> v(n);
  for (uint8_t& x : v) x = uint8_t(low + int((bits() >> 32) % uint64_t(high - low + 1)));
  return v;
}

void Report::add(const std::string& kernel, const std::string& shape, const void* data, size_t bytes) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (size_t i = 0; i < bytes; i++) hash = (hash ^ static_cast<const uint8_t*>(data)[i]) * 0x100000001b3u;
  std::string text = kernel + " " + shape + " ";
  for (int shift = 60; shift >= 0; shift -= 4) text += "0123456789abcdef"[hash >> shift & 15];
  lines_.push_back(text);
}

std::vector<std::string> run(const std::string& isa) {
  struct Restore {
    std::string name = kernels().name;
    ~Restore() { use_isa(name); }
  } restore;
  use_isa(isa);
  check_pool();
  const FpuGuard plain;  // the inputs hold subnormals
  Report report;
  dot_cases(report);
  math_cases(report);
  wide_dot_cases(report);
  return report.lines();
}

}  // namespace lilliput::selftest
