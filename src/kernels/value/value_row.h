// One row of value.h, on CPUs and (over one lane) on GPUs. A template over V.
#pragma once
#include "kernels/value/value.h"

namespace lockstep {

template <class V>
LOCKSTEP_EVERYWHERE inline void value_row(const ValueLoss& op, std::int64_t t) {
  using Elem = typename V::Elem;
  const Elem zero = element<Elem>(0.0f);
  const auto at = [t](const View& v) { return elements<V>(v)[t * v.stride]; };
  Elem& v = elements<V>(op.value)[t * op.value.stride];
  const bool scored = ints(op.target)[t * op.target.stride] >= 0;
  if (!scored) v = zero;
  if (scored && op.flags && value_of(v) - value_of(v) != 0.0f) ints(op.flags)[t * op.flags.stride] |= 1 << 2;
  Elem loss = zero, slope = zero;
  std::int32_t marks = 0;
  const Elem weight = scored && op.kind != ValueLoss::Kind::none ? at(op.weight) : zero;
  if (value_of(weight) != 0.0f && op.kind == ValueLoss::Kind::linear) {
    slope = zero - weight;
    loss = slope * v;
  } else if (value_of(weight) != 0.0f) {
    const Elem returned = at(op.returned), distance = v - returned;
    Elem square = distance * distance;
    slope = weight * distance;
    if (op.clip > 0) {
      const Elem old = at(op.old), clip = element<Elem>(op.clip), low = old - clip, high = old + clip;
      const Elem held = (v < low ? low : v > high ? high : v) - returned, other = held * held;
      if (other > square) square = other, slope = zero, marks = 1;
    }
    loss = weight * (element<Elem>(0.5f) * square);
  }
  if (op.loss) elements<V>(op.loss)[t * op.loss.stride] = loss;
  if (op.slope) elements<V>(op.slope)[t * op.slope.stride] = slope;
  if (op.marks) ints(op.marks)[t * op.marks.stride] = marks;
}

}  // namespace lockstep
