// The two summation orders of the numerics contract, chain(G) and dot16 (docs/numerics.md section 1): leaf counts, and how leaves and lanes
// are joined.
//   leaf_count(512) == 8; leaf_count(96) == 2; leaf_count(33) == 1;
#pragma once
#include <cstdint>

#include "base/device_code.h"

namespace lockstep {

// Attention reduces keys in blocks of this many, counted from position 0 (dense) or rank 0 of the selection (sparse).
inline constexpr std::int64_t kKeyBlock = 64;
// Parameter gradients: one chain per sequence and block of this many positions.
inline constexpr std::int64_t kGradientBlock = 512;
// Expert outputs are summed in this many fixed groups of expert ids.
inline constexpr int kExpertGroups = 8;

// Always inlined: no weak symbol compiled for AVX-512 may reach other machines.
// chain(G): the leaf count of a sum over k terms: the largest power of two <= maximum that divides k into leaves of at
// least 32, else 1. `maximum` is 8 in every published profile; a study profile may choose another (another contract).
LOCKSTEP_EVERYWHERE [[gnu::always_inline]] inline int leaf_count(std::int64_t k, int maximum = 8) {
  for (int g = maximum; g > 1; g /= 2)
    if (k % g == 0 && k / g >= 32) return g;
  return 1;
}

// Heads that share keys are cut into the largest power of two <= 8 that divides them (attention backward).
LOCKSTEP_EVERYWHERE [[gnu::always_inline]] inline int head_leaf_count(std::int64_t heads) {
  for (int g = 8; g > 1; g /= 2)
    if (heads % g == 0) return g;
  return 1;
}

// Joins leaves pairwise, left + right; count is a power of two; the array is overwritten.
template <class T>
LOCKSTEP_EVERYWHERE inline T join_pairwise(T* leaf, int count) {
  for (; count > 1; count /= 2)
    for (int i = 0; i < count / 2; ++i) leaf[i] = leaf[2 * i] + leaf[2 * i + 1];
  return leaf[0];
}

// The tree of dot16: lanes i and i + 8, then + 4, + 2, + 1.
template <class V>
inline typename V::Elem reduce_tree(const V& v) {
  return v.tree_sum();
}

// out[i] = the tree of the vector lanes[i], kTreesAtOnce of them, which an instruction set may take together.
inline constexpr int kTreesAtOnce = 4;
template <class V>
inline void reduce_trees(const typename V::Elem (*lanes)[16], typename V::Elem* out) {
  if constexpr (requires { V::tree_sums(lanes, out); }) {
    V::tree_sums(lanes, out);
  } else {
    for (int i = 0; i < kTreesAtOnce; ++i) out[i] = reduce_tree(V::load(lanes[i]));
  }
}

// dot16: element i in lane i mod 16, one fma chain a lane from +0, then the tree.
template <class V, class A, class B>
inline typename V::Elem dot16(const A* a, const B* b, std::int64_t n) {
  V sum = V::zero();
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) sum = fma(V::load(a + i), V::load(b + i), sum);
  if (i < n) {
    // Lanes beyond the end keep their chain: padding never enters a sum.
    const int rest = static_cast<int>(n - i);
    typename V::Elem lanes[16], next[16];
    sum.store(lanes);
    fma(V::load_partial(a + i, rest), V::load_partial(b + i, rest), sum).store(next);
    for (int l = 0; l < rest; ++l) lanes[l] = next[l];
    sum = V::load(lanes);
  }
  return reduce_tree(sum);
}

}  // namespace lockstep
