// Reads weights for the CUDA products (product_cuda.h): element k of output `lane` of a panel of an item, as fp32.
//   kAcross: whether neighbours in memory are neighbours along k (a transposed weight) and not along lanes.
#pragma once
#include "kernels/cuda/prelude.h"
#include "numerics/low_bit.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

// Panels of numbers, float or Bf16.
template <class Number>
struct PanelsOf {
  static constexpr bool kAcross = false;
  const Number* data;
  std::int64_t inputs, item_size;
  LOCKSTEP_DEVICE float operator()(std::int64_t item, std::int64_t panel, std::int64_t k, int lane) const {
    return widen_element(data[item * item_size + (panel * inputs + k) * kLanes + lane]);
  }
};

// Low-bit formats (numerics/low_bit.h), decoded where they are read.
struct LowBitPanels {
  static constexpr bool kAcross = false;
  const std::uint8_t* data;
  LowBitShape shape;
  bool across;  // what the input gradient reads
  LOCKSTEP_DEVICE float operator()(std::int64_t item, std::int64_t panel, std::int64_t k, int lane) const {
    const std::uint8_t* at = data + item * shape.bytes() + panel * shape.panel_bytes();
    return across ? low_bit_element_across(at, shape, lane, k) : low_bit_element(at, shape, lane, k);
  }
};

// The transposed weight: its outputs are the other's inputs.
template <class Weights>
struct Transposed {
  static constexpr bool kAcross = true;
  Weights weights;
  std::int64_t outputs;
  LOCKSTEP_DEVICE float operator()(std::int64_t item, std::int64_t panel, std::int64_t k, int lane) const {
    const std::int64_t output = panel * kLanes + lane;
    return output < outputs ? weights(item, k / kLanes, output, static_cast<int>(k % kLanes)) : 0.0f;
  }
};

// Calls f(weights) for a floating-point or low-bit weight, of a forward or an input gradient; on the host.
template <class F>
void with_weights(const PackedWeight& w, bool input_gradient, const F& f) {
  if (is_low_bit_format(w.bits)) {
    const LowBitShape shape{w.outputs, w.inputs, low_bit_format_of(w.bits)};
    return f(LowBitPanels{device_pointer<std::uint8_t>(w.data), shape, input_gradient && shape.format == LowBitFormat::mxfp8_both});
  }
  if (w.data.dtype == DType::bf16) return f(PanelsOf<Bf16>{device_pointer<Bf16>(w.data), w.inputs, w.packed_size()});
  f(PanelsOf<float>{device_pointer<float>(w.data), w.inputs, w.packed_size()});
}

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
