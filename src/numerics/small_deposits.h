// Totals of the order-free accumulator (accumulator.h) of a few small numbers, without its first bin and its carries. Below 2^-5 a deposit puts +0 into that
// bin, and the other two hold the sum exactly without a carry; what a carry moves between them changes neither that exact sum nor its one rounding to double.
//   if (all_small<V>(sums, count)) { SmallDeposits<V> total; for (...) total.deposit(V::load(...)); total.total().store(...); }
#pragma once
#include <cstdint>

#include "numerics/accumulator.h"

namespace lockstep {

// At most this many deposits.
inline constexpr int kMostSmallDeposits = 16;

template <class V>
struct SmallDeposits {
  typename V::Double bin1 = V::Double::set1(0.0), bin2 = V::Double::set1(0.0);
  typename V::Double magic1 = V::Double::set1(0x1.8p+2), magic2 = V::Double::set1(0x1.8p-44);

  [[gnu::always_inline]] void deposit(const V& x) {
    const auto whole = to_double(x), middle = (whole + magic1) - magic1;
    bin1 = bin1 + middle;
    bin2 = bin2 + (((whole - middle) + magic2) - magic2);
  }
  [[gnu::always_inline]] V total() const { return to_float(bin1 + bin2); }
};

// Whether the numbers of `count` vectors are all below 2^-5; not where one is NaN.
template <class V>
inline bool all_small(const typename V::Elem* x, std::int64_t count) {
  constexpr int kChains = 4;
  V squares[kChains] = {V::zero(), V::zero(), V::zero(), V::zero()};
  for (std::int64_t i = 0; i < count; ++i) {
    const V value = V::load(x + i * 16);
    squares[i % kChains] = fma(value, value, squares[i % kChains]);
  }
  return ((squares[0] + squares[1]) + (squares[2] + squares[3])).tree_sum() < 0x1p-10f;
}

}  // namespace lockstep
