// Compiled once per instruction set, with LILLIPUT_ISA_... and LILLIPUT_TABLE defined by the build.
#include "kernels.h"

#include "math_functions.inl"
#include "vec.h"
//
#include "dot.inl"
#include "elementwise.inl"
//
#include "attention.inl"
#include "recurrence.inl"
#include "routing.inl"

namespace lilliput {

#define LILLIPUT_STRING2(x) #x
#define LILLIPUT_STRING(x) LILLIPUT_STRING2(x)
#define LILLIPUT_JOIN2(a, b) a##b
#define LILLIPUT_JOIN(a, b) LILLIPUT_JOIN2(a, b)

// Filled in by the compiler: an initialiser that ran at load would run this instruction set on machines that lack it.
constinit const Kernels LILLIPUT_JOIN(kernels_, LILLIPUT_TABLE) = {LILLIPUT_STRING(LILLIPUT_TABLE), dot_kernels(), math_kernels()};

}  // namespace lilliput
