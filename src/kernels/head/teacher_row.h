// The divergence of a row's distribution from a teacher's and its gradient, with teacher.h's formulas: those of one token, over any V, on CPUs and (over one
// lane) on GPUs. Included by teacher_rows.h and head.cu; every function is a template over V.
#pragma once
#include "kernels/head/log_sum.h"
#include "kernels/head/row_loss.h"
#include "kernels/head/teacher.h"

namespace lockstep {

// What the gradient of a row with a teacher is made of (HeadLoss and HeadWeight of head.h have the shapes).
struct TaughtGradient {
  View slope, log_sum;
  HeadTeacher teacher;
};

// A sum's probability and its term, for the log-probabilities a and b of one token. Jensen-Shannon has a second sum, of the teacher's.
template <class V>
LOCKSTEP_EVERYWHERE inline V divergence_probability(Divergence kind, bool second, const V& a, const V& b) {
  return exp(kind == Divergence::forward || second ? b : a);
}
template <class V>
LOCKSTEP_EVERYWHERE inline V divergence_term(Divergence kind, bool second, const V& a, const V& b) {
  if (kind == Divergence::reverse) return a - b;
  const V d = b - a;
  if (kind == Divergence::forward) return d;
  const V zero = V::zero(), half = V::set1(0.5f), distance = max(d, zero - d);
  const V r = log(fma(half, exp(zero - distance), half));
  return second ? min(d, zero) - r : (zero - max(d, zero)) - r;
}

// From the finished sums of a row; `second` is read by Jensen-Shannon alone.
template <class V>
LOCKSTEP_EVERYWHERE inline typename V::Elem divergence_value(Divergence kind, const typename V::Elem& first, const typename V::Elem& second) {
  using Elem = typename V::Elem;
  return kind == Divergence::jensen_shannon ? element<Elem>(0.5f) * (first + second) : first;
}

template <class V>
LOCKSTEP_EVERYWHERE inline V divergence_gradient(Divergence kind, const V& weight, const V& centre, const V& a, const V& b) {
  const V q = exp(a);
  if (kind == Divergence::forward) return weight * (q - exp(b));
  const V own = kind == Divergence::jensen_shannon ? V::set1(0.5f) * weight : weight;
  return (own * q) * (divergence_term<V>(kind, false, a, b) - centre);
}

// Writes what row t's divergence is: `log_sum` of the teacher, the sums, and the row's weight, which is +0 where it is not scored.
template <class V, class Op>
LOCKSTEP_EVERYWHERE inline void put_divergence(const Op& op, std::int64_t t, bool scored, const typename V::Elem& log_sum, const typename V::Elem& first,
                                               const typename V::Elem& second) {
  using Elem = typename V::Elem;
  const auto put = [t](const View& v, const Elem& x) {
    if (v) elements<V>(v)[t * v.stride] = x;
  };
  const Elem zero = element<Elem>(0.0f), weight = scored ? elements<V>(op.objective.weight)[t * op.objective.weight.stride] : zero;
  const Elem value = scored ? divergence_value<V>(op.teacher.divergence, first, second) : zero;
  if (scored && !is_finite<V>(value) && op.flags) ints(op.flags)[t * op.flags.stride] |= 1 << 2;
  put(op.loss, weight * value);
  put(op.slope, weight);
  put(op.teacher.log_sum, log_sum);
  put(op.teacher.centre, first);
}

}  // namespace lockstep
