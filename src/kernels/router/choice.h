// Shared by all forms of the router (router.h): the order of choices, and the constants of its rules. Templates over the vector, of
// one element; CPU kernels include this below their instruction set's pragma, CUDA ones as it is.
#pragma once
#include "numerics/element.h"

namespace lockstep {

inline constexpr float kRouterTiny = 1e-20f;  // keeps the normalising sum from 0
inline constexpr std::int32_t kRouterNanFlag = 1 << 1;

template <class V>
LOCKSTEP_EVERYWHERE inline bool router_is_nan(const typename V::Elem& x) {
  return value_of(x) != value_of(x);
}

// Whether choice a goes before choice b of a lower expert id: the larger, a NaN below everything. Equal choices: no.
template <class V>
LOCKSTEP_EVERYWHERE inline bool router_before(const typename V::Elem& a, const typename V::Elem& b) {
  return a > b || (router_is_nan<V>(b) && !router_is_nan<V>(a));
}

}  // namespace lockstep
