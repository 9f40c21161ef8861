#include "platform.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif !defined(__aarch64__)
#error "Lilliput's core is written for x86-64 and aarch64"
#endif

namespace lilliput {

#if defined(__x86_64__)

// __builtin_cpu_supports asks cpuid and xgetbv: a register set that the system does not save counts as absent.
bool cpu_has_avx2_fma() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

bool cpu_has_avx512() {
  return cpu_has_avx2_fma() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

FpuGuard::FpuGuard() : saved_(_mm_getcsr()) { _mm_setcsr(0x1f80); }  // all exceptions masked, nearest, no FTZ, no DAZ
FpuGuard::~FpuGuard() { _mm_setcsr(static_cast<unsigned>(saved_)); }

#else

bool cpu_has_avx2_fma() { return false; }
bool cpu_has_avx512() { return false; }

FpuGuard::FpuGuard() {
  asm volatile("mrs %0, fpcr" : "=r"(saved_));
  const unsigned long long plain = 0;
  asm volatile("msr fpcr, %0" : : "r"(plain));
}
FpuGuard::~FpuGuard() { asm volatile("msr fpcr, %0" : : "r"(saved_)); }

#endif

}  // namespace lilliput
