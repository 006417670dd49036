// The losses of a row's targets (loss_parameters.h): value and derivative by the target's log-probability. One implementation for the whole head and a
// rank's share of the vocabulary, on CPUs and (over one lane, numerics/isa/lane.h) on GPUs, so that their bits are the same. Included by
// head.inl and head.cu; every function is a template over V.
// Orders as written here; docs/losses.md has the formulas. A loss is one case of policy_loss. -x is 0 - x throughout.
#pragma once
#include "kernels/head/row_distribution.h"

namespace lockstep {

template <class V>
struct TargetLoss {
  typename V::Elem loss, slope;
  std::int32_t marks = 0;
};

template <class V>
LOCKSTEP_EVERYWHERE inline typename V::Elem clamp_element(const typename V::Elem& x, const typename V::Elem& low, const typename V::Elem& high) {
  return x < low ? low : x > high ? high : x;
}

// What a target's policy loss is made of.
template <class V>
struct PolicyInputs {
  using Elem = typename V::Elem;
  Elem weight;  // times the correction's factor
  Elem advantage, logprob, anchor, ratio, clip_low, clip_high;
  bool has_gradient;  // whether the ratio follows the log-probability
};

// The binary KL of the target against all other tokens: p (log p - lq) + (1 - p) log((1 - p) / (1 - q)).
template <class V>
LOCKSTEP_EVERYWHERE inline typename V::Elem binary_kl(const typename V::Elem& log_p, const typename V::Elem& p, const typename V::Elem& log_q,
                                                      const typename V::Elem& q) {
  using Elem = typename V::Elem;
  const Elem one = element<Elem>(1.0f), least = element<Elem>(1.1920929e-7f);
  const Elem others_p = one - p < least ? least : one - p, others_q = one - q < least ? least : one - q;
  return fused(p, log_p - log_q, others_p * log_element<V>(others_p / others_q));
}

template <class V>
LOCKSTEP_EVERYWHERE inline TargetLoss<V> policy_loss(LossKind kind, const LossParameters& p, const PolicyInputs<V>& in) {
  using Elem = typename V::Elem;
  const Elem zero = element<Elem>(0.0f), w = in.weight, a = in.advantage, ratio = in.ratio, lp = in.logprob;
  // -(w A r) as a loss of which the gradient goes through the ratio.
  const auto through_ratio = [&](std::int32_t marks) { return TargetLoss<V>{zero - w * (ratio * a), in.has_gradient ? zero - (w * a) * ratio : zero, marks}; };
  // -(w A c) lp with a factor c that has no gradient.
  const auto through_logprob = [&](const Elem& c, std::int32_t marks) {
    const Elem slope = zero - (w * a) * c;
    return TargetLoss<V>{slope * lp, slope, marks};
  };
  const std::int32_t outside = ratio > in.clip_high ? kMarkClippedHigh : ratio < in.clip_low ? kMarkClippedLow : 0;
  switch (kind) {
    case LossKind::policy: {
      const Elem unclipped = ratio * a, clipped = clamp_element<V>(ratio, in.clip_low, in.clip_high) * a;
      const bool cut = unclipped > clipped;
      if (p.dual_clip > 0 && a < zero) {
        const Elem least = element<Elem>(p.dual_clip) * a;
        if ((cut ? clipped : unclipped) < least) return {zero - w * least, zero, kMarkDualClipped};
      }
      if (cut) return {zero - w * clipped, zero, outside};
      return through_ratio(0);
    }
    case LossKind::importance_sampling:
      return through_ratio(0);
    case LossKind::cispo:
      return through_logprob(clamp_element<V>(ratio, in.clip_low, in.clip_high), outside);
    case LossKind::reinforce:
      return {zero - (w * a) * lp, zero - w * a, 0};
    case LossKind::dro: {
      const Elem distance = lp - in.anchor, beta = element<Elem>(p.beta);
      return {zero - w * (lp * a - (element<Elem>(0.5f) * beta) * (distance * distance)), zero - w * (a - beta * distance), 0};
    }
    case LossKind::dppo_tv:
    case LossKind::dppo_kl: {
      const Elem now = exp_element<V>(lp), before = exp_element<V>(in.anchor), bound = element<Elem>(a > zero ? p.trust_high : p.trust_low);
      const bool outward = a > zero ? now > before : now < before;
      const Elem distance = kind == LossKind::dppo_kl ? binary_kl<V>(in.anchor, before, lp, now) : a > zero ? now - before : before - now;
      if (outward && distance > bound) return {zero, zero, kMarkUntrusted};
      const Elem cap = element<Elem>(p.ratio_cap);
      return through_logprob(ratio > cap ? cap : ratio, 0);
    }
    case LossKind::sapo: {
      const Elem one = element<Elem>(1.0f), four = element<Elem>(4.0f), tau = element<Elem>(a > zero ? p.tau_positive : p.tau_negative);
      const Elem gate = sigmoid_element<V>(tau * (ratio - one));
      return {zero - w * (((four / tau) * gate) * a), in.has_gradient ? zero - (w * a) * ((four * (gate * (one - gate))) * ratio) : zero, 0};
    }
    default:
      return {zero, zero, 0};
  }
}

// KL against the reference, and its derivative by lp; d = lp - f. The derivatives are those of the value, k3_plus excepted: k2's.
template <class V>
LOCKSTEP_EVERYWHERE inline TargetLoss<V> kl_term(const LossParameters& p, const typename V::Elem& d, const typename V::Elem& ratio, bool ratio_moves) {
  using Elem = typename V::Elem;
  const Elem zero = element<Elem>(0.0f), one = element<Elem>(1.0f), half = element<Elem>(0.5f);
  if (p.kl == KlEstimator::k1) return {d, one, 0};
  if (p.kl == KlEstimator::k2) return {half * (d * d), d, 0};
  // k3 = exp(-d) + d - 1, d clamped to [-20, 20]; near 0 its series, which does not cancel; the derivative is d - k3.
  const Elem bound = element<Elem>(20.0f), c = clamp_element<V>(d, zero - bound, bound);
  const bool inside = value_of(c) == value_of(d);
  Elem k3;
  if (c > half || c < zero - half) {
    k3 = exp_element<V>(zero - c) + (c - one);
  } else {
    Elem s = element<Elem>(-1.0f / 362880.0f);
    for (const float coefficient : {1.0f / 40320.0f, -1.0f / 5040.0f, 1.0f / 720.0f, -1.0f / 120.0f, 1.0f / 24.0f, -1.0f / 6.0f, 1.0f / 2.0f})
      s = fused(s, c, element<Elem>(coefficient));
    k3 = s * (c * c);
  }
  const Elem slope = inside ? c - k3 : zero;
  if (p.kl == KlEstimator::k3) return {k3, slope, 0};
  if (p.kl == KlEstimator::k3_plus) return {k3, d, 0};
  return {ratio * k3, ratio * (ratio_moves ? k3 + slope : slope), 0};
}

// The factor of the correction; its marks are added.
template <class V>
LOCKSTEP_EVERYWHERE inline typename V::Elem correction_factor(const LossParameters& p, const typename V::Elem& log_correction, std::int32_t& marks) {
  using Elem = typename V::Elem;
  const Elem c = exp_element<V>(log_correction), low = element<Elem>(p.correction_low), high = element<Elem>(p.correction_high), zero = element<Elem>(0.0f);
  const bool above = c > high, below = p.correction != Correction::truncate && c < low;
  if (above) marks |= kMarkCorrectionHigh;
  if (below) marks |= kMarkCorrectionLow;
  if (p.correction == Correction::icepop) return above || below ? zero : c;
  if (p.correction == Correction::mask) return above || below ? zero : element<Elem>(1.0f);
  return above ? high : below ? low : c;
}

// Target k of row t: a scored one.
template <class V>
LOCKSTEP_EVERYWHERE inline TargetLoss<V> target_loss(const Objective& o, std::int64_t t, std::int64_t k, const typename V::Elem& logprob) {
  using Elem = typename V::Elem;
  const LossParameters& p = o.parameters;
  const Elem zero = element<Elem>(0.0f);
  if (o.kind == LossKind::none || o.kind == LossKind::divergence) return {zero, zero, 0};  // the latter is of the whole row (teacher_row.h)
  const auto at = [t, k](const View& v) { return elements<V>(v)[t * v.stride + k]; };
  const Elem weight = at(o.weight);
  if (o.kind == LossKind::cross_entropy) return {zero - weight * logprob, zero - weight, 0};
  if (value_of(weight) == 0.0f) return {zero, zero, 0};
  PolicyInputs<V> in{weight,
                     at(o.advantage),
                     logprob,
                     logprob,
                     element<Elem>(1.0f),
                     o.clip_low ? at(o.clip_low) : element<Elem>(p.clip_low),
                     o.clip_high ? at(o.clip_high) : element<Elem>(p.clip_high),
                     true};
  if (p.anchor == RatioAnchor::sampler) in.anchor = at(o.old_logprob);
  if (p.anchor == RatioAnchor::proximal) in.anchor = at(o.proximal);
  std::int32_t marks = 0;
  const Elem distance = o.log_ratio ? at(o.log_ratio) : logprob - in.anchor;
  const Elem l = clamp_element<V>(distance, element<Elem>(p.log_ratio_low), element<Elem>(p.log_ratio_high));
  // A sequence's ratio is a number, capped or not: its gradient goes through each target's own log-probability.
  if (value_of(l) != value_of(distance)) in.has_gradient = static_cast<bool>(o.log_ratio), marks |= kMarkRatioCapped;
  in.ratio = exp_element<V>(l);
  if (p.correction != Correction::none) {
    const Elem own = (o.proximal ? at(o.proximal) : logprob) - at(o.old_logprob);
    in.weight = weight * correction_factor<V>(p, o.log_correction ? at(o.log_correction) : own, marks);
  }
  TargetLoss<V> r{zero, zero, 0};
  const bool nothing = value_of(in.weight) == 0.0f || (value_of(in.advantage) == 0.0f && (o.kind != LossKind::dro || p.zero_advantage_is_nothing));
  if (!nothing) r = policy_loss<V>(o.kind, p, in);
  if (p.kl != KlEstimator::none) {
    const TargetLoss<V> kl = kl_term<V>(p, logprob - at(o.reference), in.ratio, in.has_gradient);
    const Elem scale = element<Elem>(p.kl_coefficient) * weight;
    r.loss = fused(scale, kl.loss, r.loss);
    r.slope = fused(scale, kl.slope, r.slope);
  }
  r.marks |= marks;
  return r;
}

// Losses and slopes of all targets of row t, written to what `op` has for them (HeadLoss, HeadShardLoss); logit(k): of target k.
// The derivative of the loss by the entropy goes to entropy_slope.
template <class V, class Op, class F>
LOCKSTEP_EVERYWHERE inline void row_losses(const Op& op, std::int64_t t, const typename V::Elem& log_sum, const F& logit) {
  using Elem = typename V::Elem;
  const Elem zero = element<Elem>(0.0f);
  for (std::int64_t k = 0; k < op.target.cols; ++k) {
    const auto put = [t, k](const View& v, const Elem& x) {
      if (v) elements<V>(v)[t * v.stride + k] = x;
    };
    const bool scored = ints(op.target)[t * op.target.stride + k] >= 0;
    const Elem logprob = scored ? logit(k) - log_sum : zero;
    const TargetLoss<V> result = scored ? target_loss<V>(op.objective, t, k, logprob) : TargetLoss<V>{zero, zero, 0};
    put(op.logprob, logprob);
    put(op.loss, result.loss);
    put(op.slope, result.slope);
    if (op.marks) ints(op.marks)[t * op.marks.stride + k] = result.marks;
    if (op.entropy_slope && k == 0)
      put(op.entropy_slope,
          scored ? element<Elem>(op.objective.parameters.entropy_coefficient) * elements<V>(op.objective.weight)[t * op.objective.weight.stride] : zero);
  }
}

template <class V>
LOCKSTEP_EVERYWHERE inline bool any_target(const View& target, std::int64_t t) {
  const std::int32_t* row = ints(target) + t * target.stride;
  for (std::int64_t k = 0; k < target.cols; ++k)
    if (row[k] >= 0) return true;
  return false;
}

// The amount by which an entropy bonus lowers the loss of row t.
template <class V>
LOCKSTEP_EVERYWHERE inline void take_entropy_bonus(const View& loss, const View& entropy_slope, const typename V::Elem& entropy, std::int64_t t) {
  if (!loss || !entropy_slope) return;
  const typename V::Elem slope = elements<V>(entropy_slope)[t * entropy_slope.stride];
  auto& own = elements<V>(loss)[t * loss.stride];
  if (value_of(slope) != 0.0f) own = own - slope * entropy;
}

// The inputs from which row_gradient turns a row of logits into its gradient (HeadWeight of head.h has the shapes).
struct RowGradient {
  View target, slope, log_sum;
  View entropy, entropy_slope;  // or none
  RowDistribution distribution;
};

// The numbers that the gradient of row t is made of, the same for all its logits.
template <class V>
struct RowSlopes {
  using Elem = typename V::Elem;
  Elem total, log_sum, bonus, entropy;    // total: of the slopes
  std::int64_t scored;                    // how many targets are
  bool has_gradient, bonus_has_gradient;  // without either the gradient is +0
};
template <class V>
LOCKSTEP_EVERYWHERE inline RowSlopes<V> row_slopes(const RowGradient& op, std::int64_t t) {
  using Elem = typename V::Elem;
  const Elem zero = element<Elem>(0.0f), *slope = elements<V>(op.slope) + t * op.slope.stride;
  const std::int32_t* target = ints(op.target) + t * op.target.stride;
  RowSlopes<V> row{zero, zero, op.entropy_slope ? elements<V>(op.entropy_slope)[t * op.entropy_slope.stride] : zero, zero, 0, false, false};
  row.bonus_has_gradient = value_of(row.bonus) != 0.0f;
  row.has_gradient = row.bonus_has_gradient;
  for (std::int64_t k = 0; k < op.target.cols; ++k) {
    if (target[k] < 0) continue;
    row.has_gradient = row.has_gradient || value_of(slope[k]) != 0.0f;
    row.total = row.scored++ == 0 ? slope[k] : row.total + slope[k];
  }
  if (!row.has_gradient) return row;
  row.log_sum = elements<V>(op.log_sum)[t * op.log_sum.stride];
  if (row.bonus_has_gradient) row.entropy = elements<V>(op.entropy)[t * op.entropy.stride];
  return row;
}

// The gradient of logits of a row with a gradient, without what slopes add at their targets.
template <class V>
LOCKSTEP_EVERYWHERE inline V logit_gradient(const RowSlopes<V>& row, const V& z) {
  const V log_p = z - V::set1(row.log_sum), p = exp(log_p), dz = V::set1(row.total) * (V::zero() - p);
  return row.bonus_has_gradient ? fma(V::set1(row.bonus) * p, log_p + V::set1(row.entropy), dz) : dz;
}
// The whole gradient of the target's own logit, in a row with a single scored target.
template <class V>
LOCKSTEP_EVERYWHERE inline typename V::Elem target_gradient(const RowSlopes<V>& row, const typename V::Elem& slope, const typename V::Elem& z) {
  using Elem = typename V::Elem;
  const Elem log_p = z - row.log_sum, p = exp_element<V>(log_p), dz = slope * (element<Elem>(1.0f) - p);
  return row.bonus_has_gradient ? fused(row.bonus * p, log_p + row.entropy, dz) : dz;
}

}  // namespace lockstep
