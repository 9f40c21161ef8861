// Own exp, log, sigmoid, tanh and softplus on sixteen lanes: only fma, + - * /, comparisons and integer operations (contract
// rules 1 and 2), so that the bits are the same everywhere. Every one is within 2 ulp of the true value for every float,
// subnormal arguments and results included; NaN gives the one NaN 0x7fc00000. tools/exhaustive_functions.py tries all 2^32.
//
// The polynomials are minimax in the relative error of the result; their own error is below 0.06 ulp, so what is left is rounding.
#pragma once

#include "vec.h"

namespace lilliput {
namespace {

constexpr float kInfinity = __builtin_inff();

inline F negate(F x) { return from_bits(bits(x) ^ splat_u(0x80000000u)); }
inline F absolute(F x) { return from_bits(bits(x) & splat_u(0x7fffffffu)); }
inline F copy_sign(F magnitude, F sign) { return from_bits(bits(magnitude) | (bits(sign) & splat_u(0x80000000u))); }
inline F quiet_nan() { return from_bits(splat_u(0x7fc00000u)); }

// exp(x) = (1 + p) * a * b: p = e^r - 1 of the reduced argument, a and b powers of two whose product may leave the range of
// normal floats although each of them stays inside it.
struct ExpParts {
  F p, a, b;
};

// x must not be NaN. Below -104 the result is a zero, above 89 an infinity, so clamping there changes nothing.
inline ExpParts exp_parts(F x) {
  x = select(greater(x, splat(89.0f)), splat(89.0f), x);
  x = select(greater(splat(-104.0f), x), splat(-104.0f), x);
  const F magic = splat(0x1.8p23f);  // adding it leaves the nearest integer in the low bits of the significand
  const F shifted = fma(x, splat(0x1.715476p+0f), magic);
  const F n = shifted - magic;
  F r = fma(n, splat(-0x1.62e4p-1f), x);  // 15 bits of ln 2: exact
  r = fma(n, splat(-0x1.7f7d1cp-20f), r);
  F q = splat(0x1.6a23fcp-10f);
  q = fma(q, r, splat(0x1.123a00p-7f));
  q = fma(q, r, splat(0x1.5558f2p-5f));
  q = fma(q, r, splat(0x1.555492p-3f));
  q = fma(q, r, splat(0x1.fffffcp-2f));
  const U k = bits(shifted) - bits(magic);  // n as an integer
  const U half = sar<1>(k), one = splat_u(127);
  return {fma(r * r, q, r), from_bits(shl<23>(half + one)), from_bits(shl<23>(k - half + one))};
}

inline F exp(F x) {
  const ExpParts e = exp_parts(x);
  return select(is_nan(x), quiet_nan(), (splat(1.0f) + e.p) * e.a * e.b);  // of the two products only the last can round
}

// exp(-|x|) as the sum of two floats, for the functions that would lose too much by rounding it first.
struct Pair {
  F high, low;
};

inline Pair exp_negative(F magnitude) {
  const ExpParts e = exp_parts(negate(magnitude));
  const F sum = splat(1.0f) + e.p;
  return {sum * e.a * e.b, (e.p - (sum - splat(1.0f))) * e.a * e.b};
}

// 1 / (1 + e) for x >= 0, e / (1 + e) below, e = exp(-|x|): relative accuracy in both tails. One division; the remainder of
// quotient and denominator is put back.
inline F sigmoid(F x) {
  const Pair e = exp_negative(absolute(x));
  const F one = splat(1.0f);
  const M negative = greater(zero(), x);
  const F top = select(negative, e.high, one), top_low = select(negative, e.low, zero());
  const F sum = one + e.high;
  const F sum_low = e.high - (sum - one) + e.low;
  const F inverse = one / sum;
  const F quotient = top * inverse;
  const F rest = fma(negate(quotient), sum_low, fma(negate(quotient), sum, top) + top_low);
  return select(is_nan(x), quiet_nan(), fma(rest, inverse, quotient));
}

inline F tanh(F x) {
  const F a = absolute(x), u = a * a;
  F p = splat(-0x1.76ac0cp-8f);
  p = fma(p, u, splat(0x1.5256d4p-6f));
  p = fma(p, u, splat(-0x1.b84448p-5f));
  p = fma(p, u, splat(0x1.110734p-3f));
  p = fma(p, u, splat(-0x1.555534p-2f));
  const F small = fma(a * u, p, a);
  const F e = exp(splat(-2.0f) * a);
  const F large = splat(1.0f) - (e + e) / (splat(1.0f) + e);
  return select(is_nan(x), quiet_nan(), copy_sign(select(greater(splat(0.625f), a), small, large), x));
}

// log(1 + exp(x)) = max(x, 0) + log1p(e), e = exp(-|x|); log1p(e) = e * (1 + e * q(e)) on [0, 1].
inline F softplus(F x) {
  const Pair e = exp_negative(absolute(x));
  F q = splat(0x1.0fb6bep-9f);
  q = fma(q, e.high, splat(-0x1.beafa0p-7f));
  q = fma(q, e.high, splat(0x1.57ea7ep-5f));
  q = fma(q, e.high, splat(-0x1.54461ap-4f));
  q = fma(q, e.high, splat(0x1.fea7a4p-4f));
  q = fma(q, e.high, splat(-0x1.4a543ep-3f));
  q = fma(q, e.high, splat(0x1.97827cp-3f));
  q = fma(q, e.high, splat(-0x1.ffc420p-3f));
  q = fma(q, e.high, splat(0x1.5553a6p-2f));
  q = fma(q, e.high, splat(-0x1.fffff8p-2f));
  const F t = e.high * q, one = splat(1.0f);
  const F factor = one + t, factor_low = t - (factor - one);
  const F slope = fma(e.high, splat(-0.5f), one);  // 1 / (1 + e), near enough for what e.low weighs
  const F product = e.high * factor;
  const F product_low = fma(e.high, factor, negate(product)) + fma(e.high, factor_low, e.low * slope);
  const F base = select(greater(x, zero()), x, zero());
  const F sum = base + product;
  const F back = sum - base;
  const F sum_low = (base - (sum - back)) + (product - back);  // what rounding the sum left out
  const F y = select(greater(x, splat(100.0f)), x, sum + (sum_low + product_low));
  return select(is_nan(x), quiet_nan(), y);
}

// x = m * 2^n with m in [sqrt(1/2), sqrt(2)); log(m) = f - f^2/2 + f^3 * p(f), f = m - 1.
inline F log(F x) {
  const M tiny = greater(splat(0x1p-126f), x);
  const F scaled = select(tiny, x * splat(0x1p23f), x);
  const U offset = splat_u(0x3f3504f3u);  // sqrt(1/2)
  const U i = bits(scaled) - offset;
  const F m = from_bits((i & splat_u(0x007fffffu)) + offset);
  const F n = from_bits(sar<23>(i) + splat_u(0x4b400000u)) - splat(0x1.8p23f) - select(tiny, splat(23.0f), zero());
  const F f = m - splat(1.0f), u = f * f;
  F p = splat(0x1.146356p-4f);
  p = fma(p, f, splat(-0x1.de4f84p-4f));
  p = fma(p, f, splat(0x1.e6f5d8p-4f));
  p = fma(p, f, splat(-0x1.fc1f6cp-4f));
  p = fma(p, f, splat(0x1.2336e6p-3f));
  p = fma(p, f, splat(-0x1.555c5ap-3f));
  p = fma(p, f, splat(0x1.99a4bcp-3f));
  p = fma(p, f, splat(-0x1.000006p-2f));
  p = fma(p, f, splat(0x1.555548p-2f));
  F y = fma(f * u, p, n * splat(-0x1.e8082ep-16f));
  y = fma(u, splat(-0.5f), y);
  y = fma(n, splat(0x1.62e8p-1f), f + y);
  y = select(greater(x, splat(0x1.fffffep127f)), x, y);  // +infinity
  y = select(greater(x, zero()), y, splat(-kInfinity));  // a zero of either sign
  return select(greater(zero(), x), quiet_nan(), select(is_nan(x), quiet_nan(), y));
}

}  // namespace
}  // namespace lilliput
