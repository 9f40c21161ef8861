// XXH64 with seed 0: the checksum of everything that the packed tape writes.
//
// Not a defence against forgery but against bad memory, cables and disks. Chosen over an own recipe because its specification, its
// test vectors and tools that compute it (`xxhsum -H64`) exist elsewhere, and because four independent lanes of multiplications
// keep up with any disk on one core without vector instructions. The same on every machine: words are little-endian.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lilliput {

uint64_t checksum(const uint8_t* data, size_t bytes);

}  // namespace lilliput
