// What `lilliput bench kernels` compares the kernels with: limits of the machine, and how an engine that sums in doubles multiplies.
// An extension of its own (`lilliput._bench`): nothing here is on the way of a token. yardsticks.cpp splits the work over a pool of this
// extension's own (set_threads in pool.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace lilliput::bench {

// Every byte loaded, by the widest instruction set of this machine; the result depends on all of them.
uint64_t read(const uint8_t* from, size_t n);
// Past the caches where the processor can; both at 16-byte boundaries.
void copy(uint8_t* to, const uint8_t* from, size_t n);
// `rounds` rounds of multiply-adds on every thread; returns how many. Throws std::invalid_argument for what this machine lacks.
uint64_t peak(const char* isa, size_t rounds);
// Matrix-vector products in four lanes of double, on AVX2 where there is one, for that is what such an engine is built for.
void bf16_doubles(float* y, const float* x, const uint8_t* w, size_t rows, size_t in);                               // in % 4 = 0
void mxfp4_doubles(float* y, const float* x, const uint8_t* packed, const uint8_t* scales, size_t rows, size_t in);  // in % 32 = 0

}  // namespace lilliput::bench
