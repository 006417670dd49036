// Kernels that do work which nobody asked for, with the right outputs: attention over all keys, and every expert for every row. For tests of
// what counts such work; each is put into the table as long as its plant lives.
//   const PlantedAttention planted(&KernelTable::attention_forward, read_all_keys);
#pragma once
#include "kernels/planted_kernel_test_tools.h"

namespace lockstep {

using PlantedAttention = PlantedKernel<AttentionForward>;
using PlantedLinear = PlantedKernel<LinearForward>;

inline void read_all_keys(const AttentionForward& op, ThreadPool& pool) {
  AttentionForward dense = op;
  dense.selection = dense.count = View();
  PlantedAttention::right(dense, pool);
}

// The right outputs, after every expert has had every row. Products that are added to others (of adapters) are left as they are.
inline void compute_all_experts(const LinearForward& op, ThreadPool& pool) {
  LinearForward one = op;
  one.w.count = 1;
  one.offsets = one.ends = View();
  if (op.offsets && !op.accumulate)
    for (std::int64_t g = 0; g < op.w.count; ++g) {
      PlantedLinear::right(one, pool);
      one.w.data.address += static_cast<std::uint64_t>(op.w.packed_size() * op.w.data.element_bytes);
    }
  PlantedLinear::right(op, pool);
}

}  // namespace lockstep
