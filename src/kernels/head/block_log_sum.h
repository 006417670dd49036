// The sums of log_sum.h over one row of logits by the threads of a block: group g of 16 threads has leaf g, lane i the terms of the CPU's
// lane i. Of CUDA kernels (head/, sample/, top/). z(i) is logit i of n; every thread of the block calls these, and all get the result.
#pragma once
#include "kernels/cuda/prelude.h"
#include "kernels/head/log_sum.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

inline constexpr int kMostLeaves = 16;  // of a row; a block has at least a group for each

// Block memory of these functions.
struct LeafMemory {
  float maximum[kMostLeaves], sum[kMostLeaves];
  LogSum<Lane> row;
};

// row_maximum and leaf_sum of log_sum.h for one leaf by one group; lane 0's are the leaf's.
template <class Z>
LOCKSTEP_DEVICE void group_leaf_sum(const Thread& t, std::int64_t begin, std::int64_t n, const Z& z, float& m, float& s) {
  float largest = z(begin + (t.lane() < n ? t.lane() : 0));
  for (std::int64_t i = t.lane() + kLanes; i < n; i += kLanes) {
    const float next = z(begin + i);
    largest = largest > next ? largest : next;
  }
  for (int half = kLanes / 2; half >= 1; half /= 2) {
    const float other = t.down(largest, half);
    largest = largest > other ? largest : other;
  }
  m = t.from(largest, 0);
  s = group_dot16(
      t, n, [](std::int64_t) { return 1.0f; }, [&](std::int64_t i) { return exp_of(z(begin + i) - m); });
}

template <class Z>
LOCKSTEP_DEVICE LogSum<Lane> block_log_sum(const Thread& t, std::int64_t n, int maximum_leaves, const Z& z, LeafMemory& memory) {
  const int leaves = leaf_count(n, maximum_leaves);
  const std::int64_t size = n / leaves;
  if (t.group() < leaves) {
    float m, s;
    group_leaf_sum(t, t.group() * size, size, z, m, s);
    if (t.lane() == 0) memory.maximum[t.group()] = m, memory.sum[t.group()] = s;
  }
  t.sync();
  if (t.index() == 0) memory.row = join_leaf_sums<Lane>(memory.maximum, memory.sum, leaves);
  t.sync();
  const LogSum<Lane> row = memory.row;
  t.sync();
  return row;
}

// One leaf's part of sum p z, p = exp(z - log_sum), by one group (leaf_entropy of log_sum.h).
template <class Z>
LOCKSTEP_DEVICE float group_leaf_entropy(const Thread& t, std::int64_t begin, std::int64_t n, const Z& z, float log_sum) {
  return group_dot16(
      t, n, [&](std::int64_t i) { return exp_of(z(begin + i) - log_sum); }, [&](std::int64_t i) { return z(begin + i); });
}

// The sum of p z over the whole row: the leaves' parts, joined pairwise.
template <class Z>
LOCKSTEP_DEVICE float block_entropy_sum(const Thread& t, std::int64_t n, int maximum_leaves, const Z& z, float log_sum, LeafMemory& memory) {
  const int leaves = leaf_count(n, maximum_leaves);
  const std::int64_t size = n / leaves;
  if (t.group() < leaves) {
    const float part = group_leaf_entropy(t, t.group() * size, size, z, log_sum);
    if (t.lane() == 0) memory.sum[t.group()] = part;
  }
  t.sync();
  if (t.index() == 0) memory.row.log_sum = join_pairwise(memory.sum, leaves);
  t.sync();
  const float sum = memory.row.log_sum;
  t.sync();
  return sum;
}

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
