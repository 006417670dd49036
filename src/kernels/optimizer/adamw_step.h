// AdamW of one element or a vector of them (formulas in optimizer.h): a template over V for CPUs and GPUs.
#pragma once
#include "base/device_code.h"

namespace lockstep {

template <class V>
struct AdamWConstants {
  V clip, beta1, rest1, beta2, rest2, bias1, bias2, eps, learning_rate, weight_decay;
  // `norm` is looked at where max_norm is positive; a NaN norm stays a NaN.
  LOCKSTEP_EVERYWHERE static AdamWConstants of(const AdamW& op, const typename V::Elem* norm) {
    V clip = V::set1(1.0f);
    if (op.max_norm > 0) clip = min(clip, V::set1(op.max_norm) / V::set1(*norm));
    return {clip,
            V::set1(op.beta1),
            V::set1(1.0f - op.beta1),
            V::set1(op.beta2),
            V::set1(1.0f - op.beta2),
            V::set1(op.bias1),
            V::set1(op.bias2),
            V::set1(op.eps),
            V::set1(op.learning_rate),
            V::set1(op.weight_decay)};
  }
};

template <class V>
struct AdamWElements {
  V master, m, v;
};
template <class V>
LOCKSTEP_EVERYWHERE inline AdamWElements<V> adamw_elements(const AdamWConstants<V>& c, const AdamWElements<V>& old, const V& gradient) {
  const V g = gradient * c.clip;
  const V m = fma(c.beta1, old.m, c.rest1 * g);
  const V v = fma(c.beta2, old.v, (c.rest2 * g) * g);
  const V update = (m / c.bias1) / (sqrt(v / c.bias2) + c.eps);
  return {old.master - c.learning_rate * fma(c.weight_decay, old.master, update), m, v};
}

}  // namespace lockstep
