// Shared by every CUDA kernel (src/kernels/*/*.cu). A .cu file holds bodies and, for each kernel of its header, one
//   void launch(const Arguments& op, Grid& grid);
// in lockstep::LOCKSTEP_CUDA_SPACE (launcher.h calls it). The orders are those of the header, so the bits are the CPU's: sums are
// explicit chains of fused(), nothing is contracted, no atomics. Correct first; a faster body keeps the order.
#pragma once
#include "kernels/cuda/launches.h"
#include "kernels/elements.h"
#include "numerics/accumulator.h"
#include "numerics/elementary.h"
#include "numerics/form.h"
#include "numerics/isa/lane.h"
#include "tensor/device_pointer.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

LOCKSTEP_DEVICE float* floats(const View& v) { return elements<Lane>(v); }

// Element `at` of a view that is fp32 or bf16 (compute copies, caches), widened; and the way back, rounded.
LOCKSTEP_DEVICE float load_stored(const View& v, std::int64_t at) { return v.dtype == DType::bf16 ? widen(device_pointer<Bf16>(v)[at]) : floats(v)[at]; }
LOCKSTEP_DEVICE void store_as(const View& v, std::int64_t at, float x) {
  if (v.dtype == DType::bf16) device_pointer<Bf16>(v)[at] = round_to_bf16(x);
  else floats(v)[at] = x;
}

// The elementary functions of numerics/elementary.h, of one number.
LOCKSTEP_DEVICE float exp_of(float x) { return exp(Lane{x}).x; }
LOCKSTEP_DEVICE float log_of(float x) { return log(Lane{x}).x; }
LOCKSTEP_DEVICE float sigmoid_of(float x) { return sigmoid(Lane{x}).x; }

// dot16 of a(i) * b(i) over n terms by the 16 threads of a group, all of which call it and get the sum.
template <class A, class B>
LOCKSTEP_DEVICE float group_dot16(const Thread& t, std::int64_t n, const A& a, const B& b) {
  float sum = 0.0f;
  for (std::int64_t i = t.lane(); i < n; i += kLanes) sum = fused(a(i), b(i), sum);
  return tree_sum(t, sum);
}

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
