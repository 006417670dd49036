// The loss of one row and what a row of logits adds to it: shared by the whole head and by a rank's share of the vocabulary, so that
// their bits are the same. Included by head.inl; every function is a template over V. Order as written in head.h.
#pragma once

namespace lockstep {

// The loss of a scored row and its derivative by the log-probability.
template <class V>
struct RowLoss {
  typename V::Elem loss, slope;
};

template <class V, class Op>
inline RowLoss<V> row_loss(const Op& op, std::int64_t t, typename V::Elem logprob) {
  using Elem = typename V::Elem;
  const Elem zero = element<Elem>(0.0f);
  if (op.kind == LossKind::none) return {zero, zero};
  const auto at = [t](const View& v) { return elements<V>(v)[t * v.stride]; };
  const Elem weight = at(op.weight);
  if (op.kind == LossKind::cross_entropy) return {zero - weight * logprob, zero - weight};
  const Elem bound = element<Elem>(20.0f), lower_bound = element<Elem>(-20.0f);
  const Elem low = element<Elem>(1.0f - op.clip_low), high = element<Elem>(1.0f + op.clip_high);
  const Elem advantage = at(op.advantage);
  Elem l = logprob - at(op.old_logprob);
  bool moves = true;  // whether the ratio follows the log-probability
  if (l > bound) l = bound, moves = false;
  if (l < lower_bound) l = lower_bound, moves = false;
  const Elem ratio = exp_element<V>(l);
  const Elem unclipped = ratio * advantage;
  const Elem clipped = (ratio < low ? low : ratio > high ? high : ratio) * advantage;
  if (unclipped > clipped) return {zero - weight * clipped, zero};
  return {zero - weight * unclipped, moves ? zero - (weight * advantage) * ratio : zero};
}

// One leaf's part of sum p z, p = exp(z - log_sum).
template <class V>
inline typename V::Elem leaf_entropy(const typename V::Elem* z, std::int64_t n, const V& log_sum) {
  return dot16_of<V>(n, [&](std::int64_t i, int lanes) { return exp(V::load_partial(z + i, lanes) - log_sum); },
                     [&](std::int64_t i, int lanes) { return V::load_partial(z + i, lanes); });
}

// Turns n logits of a row into their gradient slope * (onehot - p); `target` is the target's place among them, or outside. A row
// without a slope gets +0.
template <class V>
inline void row_gradient(typename V::Elem* z, std::int64_t n, std::int64_t target, const typename V::Elem& slope, const typename V::Elem& log_sum) {
  using Elem = typename V::Elem;
  if (value_of(slope) == 0.0f) {
    for (std::int64_t i = 0; i < n; i += 16) V::zero().store_partial(z + i, lanes_left(n, i));
    return;
  }
  const bool here = target >= 0 && target < n;
  const Elem probability = here ? exp_element<V>(z[target] - log_sum) : element<Elem>(0.0f);
  const V slopes = V::set1(slope), log_sums = V::set1(log_sum);
  for (std::int64_t i = 0; i < n; i += 16) {
    const int lanes = lanes_left(n, i);
    (slopes * (V::zero() - exp(V::load_partial(z + i, lanes) - log_sums))).store_partial(z + i, lanes);
  }
  if (here) z[target] = slope * (element<Elem>(1.0f) - probability);
}

}  // namespace lockstep
