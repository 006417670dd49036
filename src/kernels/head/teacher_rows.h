// Rows with a teacher (teacher.h) on CPUs, vectorised. Included by head.inl; every function is a template over V.
#pragma once
#include "kernels/head/teacher_row.h"

namespace lockstep {

// One sum of a leaf of n logits z and y, whose rows' log-sums are known.
template <class V>
inline typename V::Elem divergence_leaf(Divergence kind, bool second, const typename V::Elem* z, const typename V::Elem* y, std::int64_t n, const V& of_z,
                                        const V& of_y) {
  const auto a = [&](std::int64_t i, int lanes) { return V::load_partial(z + i, lanes) - of_z; };
  const auto b = [&](std::int64_t i, int lanes) { return V::load_partial(y + i, lanes) - of_y; };
  return dot16_of<V>(
      n, [&](std::int64_t i, int lanes) { return divergence_probability<V>(kind, second, a(i, lanes), b(i, lanes)); },
      [&](std::int64_t i, int lanes) { return divergence_term<V>(kind, second, a(i, lanes), b(i, lanes)); });
}

// One sum of a row of n of them.
template <class V>
inline typename V::Elem divergence_sum(Divergence kind, bool second, const typename V::Elem* z, const typename V::Elem* y, std::int64_t n, int maximum_leaves,
                                       const typename V::Elem& student, const typename V::Elem& teacher) {
  const V of_z = V::set1(student), of_y = V::set1(teacher);
  const int leaves = leaf_count(n, maximum_leaves);
  const std::int64_t size = n / leaves;
  typename V::Elem part[16];
  for (int leaf = 0; leaf < leaves; ++leaf) part[leaf] = divergence_leaf<V>(kind, second, z + leaf * size, y + leaf * size, size, of_z, of_y);
  return join_pairwise(part, leaves);
}

// Turns n logits of row t into their gradient; y are the teacher's of the same tokens.
template <class V>
inline void taught_gradient(const TaughtGradient& op, std::int64_t t, typename V::Elem* z, const typename V::Elem* y, std::int64_t n) {
  const auto at = [t](const View& v) { return elements<V>(v)[t * v.stride]; };
  const typename V::Elem weight = at(op.slope);
  if (value_of(weight) == 0.0f) {
    for (std::int64_t i = 0; i < n; i += 16) V::zero().store_partial(z + i, lanes_left(n, i));
    return;
  }
  const V w = V::set1(weight), centre = V::set1(at(op.teacher.centre)), of_z = V::set1(at(op.log_sum)), of_y = V::set1(at(op.teacher.log_sum));
  for (std::int64_t i = 0; i < n; i += 16) {
    const int lanes = lanes_left(n, i);
    divergence_gradient<V>(op.teacher.divergence, w, centre, V::load_partial(z + i, lanes) - of_z, V::load_partial(y + i, lanes) - of_y)
        .store_partial(z + i, lanes);
  }
}

}  // namespace lockstep
