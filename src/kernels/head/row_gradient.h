// The gradient of a row of logits, vectorised, with row_loss.h's formulas. Included by head.inl; every
// function is a template over V.
#pragma once
#include "kernels/head/kept_sums.h"
#include "kernels/head/row_loss.h"

namespace lockstep {

// Turns n logits of row t, those of the tokens from `first` on, divided by the row's temperature (temper_row), into their gradient. A row without a
// slope gets +0.
template <class V>
inline void row_gradient(const RowGradient& op, std::int64_t t, typename V::Elem* z, std::int64_t n, std::int64_t first) {
  using Elem = typename V::Elem;
  const RowSlopes<V> row = row_slopes<V>(op, t);
  if (!row.has_gradient) {
    for (std::int64_t i = 0; i < n; i += 16) V::zero().store_partial(z + i, lanes_left(n, i));
    return;
  }
  const std::int32_t* target = ints(op.target) + t * op.target.stride;
  const Elem* slope = elements<V>(op.slope) + t * op.slope.stride;
  const auto own = [&](std::int64_t k) { return target[k] >= first && target[k] < first + n; };
  // The only target's own logit, before it is overwritten.
  Elem at_target = element<Elem>(0.0f);
  std::int64_t only = -1;
  for (std::int64_t k = 0; row.scored == 1 && k < op.target.cols; ++k)
    if (own(k)) only = target[k] - first, at_target = target_gradient<V>(row, slope[k], z[only]);
  const KeptRow kept = kept_row<V>(op.distribution, t);
  std::int64_t at = kept && !kept.bitmap ? first_id<V>(kept.words, kept.count, first) : 0;
  for (std::int64_t i = 0; i < n; i += 16) {
    const int lanes = lanes_left(n, i);
    const std::uint32_t bits = kept ? kept_lanes<V>(kept, first + i, lanes, at) : ~0u;
    const V gradient = bits != 0 ? logit_gradient<V>(row, V::load_partial(z + i, lanes)) : V::zero();
    gradient.store_partial(z + i, lanes);
    for (int l = 0; kept && bits != 0 && l < lanes; ++l)
      if ((bits >> l & 1u) == 0) z[i + l] = element<Elem>(0.0f);
  }
  if (only >= 0) z[only] = at_target;
  for (std::int64_t k = 0; row.scored > 1 && k < op.target.cols; ++k)
    if (own(k)) z[target[k] - first] = z[target[k] - first] + slope[k];
  temper_row<V>(op.distribution, t, z, n);
}

}  // namespace lockstep
