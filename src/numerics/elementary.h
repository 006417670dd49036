// exp, log, sigmoid and rsqrt over the virtual vector, with the same bits on every instruction set. No libm.
// Each is a fixed sequence of IEEE operations (function versions: kElementaryVersion in numerics/profile.h).
// exp, log: range reduction and minimax polynomials after Cephes (Moshier); error about 1 ulp.
#pragma once
#include "numerics/element.h"

namespace lockstep {

// e^x; exactly 0 below -87.3; arguments above 88 are taken as 88.
template <class V>
LOCKSTEP_EVERYWHERE inline V exp(const V& x_in) {
  const V low = V::set1(-87.3f);
  const V x = min(V::set1(88.0f), max(low, x_in));  // operand order lets a NaN through
  const V n = round_nearest(x * V::set1(1.44269504088896341f));
  V r = fma(n, V::set1(-0.693359375f), x);
  r = fma(n, V::set1(2.12194440e-4f), r);
  V p = V::set1(1.9875691500e-4f);
  p = fma(p, r, V::set1(1.3981999507e-3f));
  p = fma(p, r, V::set1(8.3334519073e-3f));
  p = fma(p, r, V::set1(4.1665795894e-2f));
  p = fma(p, r, V::set1(1.6666665459e-1f));
  p = fma(p, r, V::set1(5.0000001201e-1f));
  p = fma(p, r * r, r) + V::set1(1.0f);
  return select_gt(low, x_in, V::zero(), p * pow2(n));
}

// log x for normal x > 0; -infinity for 0 and below (callers keep x > 0).
template <class V>
LOCKSTEP_EVERYWHERE inline V log(const V& x) {
  const V half_root = V::set1(0.707106781186547524f);
  V m = mantissa_of(x);
  V e = exponent_of(x);
  e = select_gt(half_root, m, e - V::set1(1.0f), e);
  m = select_gt(half_root, m, m + m, m) - V::set1(1.0f);
  const V z = m * m;
  V p = V::set1(7.0376836292e-2f);
  p = fma(p, m, V::set1(-1.1514610310e-1f));
  p = fma(p, m, V::set1(1.1676998740e-1f));
  p = fma(p, m, V::set1(-1.2420140846e-1f));
  p = fma(p, m, V::set1(1.4249322787e-1f));
  p = fma(p, m, V::set1(-1.6668057665e-1f));
  p = fma(p, m, V::set1(2.0000714765e-1f));
  p = fma(p, m, V::set1(-2.4999993993e-1f));
  p = fma(p, m, V::set1(3.3333331174e-1f));
  p = p * m * z;
  p = fma(e, V::set1(-2.12194440e-4f), p);
  p = fma(z, V::set1(-0.5f), p);
  const V value = fma(e, V::set1(0.693359375f), m + p);
  return select_gt(x, V::zero(), value, V::set1(-__builtin_inff()));
}

// 1 / (1 + e^-x), computed from e^-|x| so that nothing overflows.
template <class V>
LOCKSTEP_EVERYWHERE inline V sigmoid(const V& x) {
  const V magnitude = max(x, V::zero() - x);
  const V e = exp(V::zero() - magnitude);
  const V one = V::set1(1.0f);
  return select_gt(V::zero(), x, e, one) / (one + e);
}

template <class V>
LOCKSTEP_EVERYWHERE inline V rsqrt(const V& x) {
  return V::set1(1.0f) / sqrt(x);
}

// The same functions of one element: lane 0 of the vector form, so the bits agree.
template <class V>
LOCKSTEP_EVERYWHERE inline typename V::Elem exp_element(typename V::Elem x) {
  return exp(V::set1(x)).extract(0);
}
template <class V>
LOCKSTEP_EVERYWHERE inline typename V::Elem log_element(typename V::Elem x) {
  return log(V::set1(x)).extract(0);
}
template <class V>
LOCKSTEP_EVERYWHERE inline typename V::Elem sigmoid_element(typename V::Elem x) {
  return sigmoid(V::set1(x)).extract(0);
}

}  // namespace lockstep
