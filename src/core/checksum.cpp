#include "checksum.h"

#include <bit>
#include <cstring>
#include <initializer_list>

namespace lilliput {
namespace {

constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87, kPrime2 = 0xC2B2AE3D27D4EB4F, kPrime3 = 0x165667B19E3779F9, kPrime4 = 0x85EBCA77C2B2AE63,
                   kPrime5 = 0x27D4EB2F165667C5;

uint64_t reversed(uint64_t x) {
  uint64_t y = 0;
  for (int i = 0; i < 8; i++) y = (y << 8) | ((x >> (8 * i)) & 255);
  return y;
}

uint64_t word64(const uint8_t* p) {
  uint64_t x;
  std::memcpy(&x, p, 8);
  return std::endian::native == std::endian::little ? x : reversed(x);
}

uint64_t word32(const uint8_t* p) { return p[0] | uint64_t(p[1]) << 8 | uint64_t(p[2]) << 16 | uint64_t(p[3]) << 24; }

uint64_t step(uint64_t lane, uint64_t word) { return std::rotl(lane + word * kPrime2, 31) * kPrime1; }

}  // namespace

uint64_t checksum(const uint8_t* data, size_t bytes) {
  const uint8_t *p = data, *end = data + bytes;
  uint64_t h = kPrime5;
  if (bytes >= 32) {
    uint64_t a = kPrime1 + kPrime2, b = kPrime2, c = 0, d = uint64_t(0) - kPrime1;
    for (; end - p >= 32; p += 32) {
      a = step(a, word64(p));
      b = step(b, word64(p + 8));
      c = step(c, word64(p + 16));
      d = step(d, word64(p + 24));
    }
    h = std::rotl(a, 1) + std::rotl(b, 7) + std::rotl(c, 12) + std::rotl(d, 18);
    for (const uint64_t lane : {a, b, c, d}) h = (h ^ step(0, lane)) * kPrime1 + kPrime4;
  }
  h += bytes;
  for (; end - p >= 8; p += 8) h = std::rotl(h ^ step(0, word64(p)), 27) * kPrime1 + kPrime4;
  if (end - p >= 4) {
    h = std::rotl(h ^ (word32(p) * kPrime1), 23) * kPrime2 + kPrime3;
    p += 4;
  }
  for (; p < end; p++) h = std::rotl(h ^ (*p * kPrime5), 11) * kPrime1;
  h = (h ^ (h >> 33)) * kPrime2;
  h = (h ^ (h >> 29)) * kPrime3;
  return h ^ (h >> 32);
}

}  // namespace lilliput
