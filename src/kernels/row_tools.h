// Templates shared by kernels whose gradients are rows of a table (embedding, norms): sums over terms that are computed on the fly,
// and how such a row lies in bins. Included by .inl files, after the instruction set's pragma, and by CUDA kernels; every function is a
// template over V. A table row of n elements has ceil(n/16) groups of 16 lanes, each AccumulatorVec<V>::kStorage storage elements; a
// bins view has rows = table rows and cols = 16 * ceil(n/16).
#pragma once
#include "numerics/accumulator.h"
#include "tensor/device_pointer.h"

namespace lockstep {

// dot16 of terms a(i, lanes) * b(i, lanes), vectors of the elements i .. i + lanes: one chain a lane, then the tree.
template <class V, class A, class B>
inline typename V::Elem dot16_of(std::int64_t n, const A& a, const B& b) {
  V sum = V::zero();
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) sum = fma(a(i, 16), b(i, 16), sum);
  if (i < n) {  // lanes beyond the end keep their chain
    const int rest = static_cast<int>(n - i);
    typename V::Elem lanes[16];
    sum.store(lanes);
    fma(a(i, rest), b(i, rest), sum).store_partial(lanes, rest);
    sum = V::load(lanes);
  }
  return reduce_tree(sum);
}

// dot16 along rows, for 16 columns at once: chain i mod 16 takes row i of the segment; the tree joins the chains.
template <class V>
struct ColumnChains {
  V chain[16];
  LOCKSTEP_EVERYWHERE void clear() {
    for (V& c : chain) c = V::zero();
  }
  LOCKSTEP_EVERYWHERE void add(std::int64_t row_of_segment, const V& a, const V& b) {
    V& c = chain[row_of_segment & 15];
    c = fma(a, b, c);
  }
  LOCKSTEP_EVERYWHERE V sum() {
    for (int half = 8; half >= 1; half /= 2)
      for (int i = 0; i < half; ++i) chain[i] = chain[i] + chain[i + half];
    return chain[0];
  }
};

// The accumulator of group `group` of table row `row`, counting deposits so that carries come in time. A V of one lane (numerics/isa/lane.h)
// is the lane `lane` of the group. Without bins nothing persists.
template <class V>
struct BinGroup {
  using Bins = AccumulatorVec<V>;
  Bins bins;
  typename Bins::Storage* place;  // null: nothing persists
  int deposits = 0;

  LOCKSTEP_EVERYWHERE BinGroup() : bins(Bins::zero()), place(nullptr) {}
  LOCKSTEP_EVERYWHERE BinGroup(const View& view, std::int64_t row, std::int64_t group, std::int64_t lane = 0) : BinGroup() {
    if (!view) return;
    place = device_pointer<typename Bins::Storage>(view) + row * view.stride * (Bins::kStorage / 16) + group * Bins::kStorage + lane;
    bins = Bins::load(place);
  }
  LOCKSTEP_EVERYWHERE void deposit(const V& x) {
    bins.deposit(x);
    if (++deposits == kDepositsBeforeCarry) bins.normalise(), deposits = 0;
  }
  // The end of a call: writes the total to `gradient` (n lanes) and empties the bins, or leaves the bins as they are.
  LOCKSTEP_EVERYWHERE void close(bool finish, typename V::Elem* gradient, int lanes = 1) {
    bins.normalise();
    if (finish || !place) bins.total().store_partial(gradient, lanes);
    if (place) (finish ? Bins::zero() : bins).store(place);
  }
};

}  // namespace lockstep
