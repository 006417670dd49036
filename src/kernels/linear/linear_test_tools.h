// Shared by tests of linear.h: shapes, weights in panels, and calls with items side by side. Tests only.
#pragma once
#include "kernels/kernel_test_tools.h"
#include "kernels/linear/linear.h"

namespace lockstep::linear_test {

struct Shape {
  std::int64_t rows, inputs, outputs, count = 1;
  std::string name() const { return std::to_string(rows) + " x " + std::to_string(inputs) + " -> " + std::to_string(outputs) + " x " + std::to_string(count); }
};

// `count` weights [N][K] one after another; what a bf16 copy of them holds.
inline std::vector<float> stored(std::vector<float> w, DType dtype) {
  if (dtype == DType::bf16)
    for (float& v : w) v = widen(round_to_bf16(v));
  return w;
}
inline std::vector<float> pack(const std::vector<float>& w, std::int64_t outputs, std::int64_t inputs, std::int64_t count) {
  const std::int64_t panels = (outputs + 15) / 16;
  std::vector<float> packed(static_cast<std::size_t>(count * panels * inputs * 16), 0.0f);
  for (std::int64_t g = 0; g < count; ++g)
    for (std::int64_t n = 0; n < outputs; ++n)
      for (std::int64_t k = 0; k < inputs; ++k) packed[((g * panels + n / 16) * inputs + k) * 16 + n % 16] = w[(g * outputs + n) * inputs + k];
  return packed;
}
inline std::vector<float> unpack(const std::vector<float>& packed, std::int64_t outputs, std::int64_t inputs, std::int64_t count) {
  const std::int64_t panels = (outputs + 15) / 16;
  std::vector<float> w;
  for (std::int64_t g = 0; g < count; ++g)
    for (std::int64_t n = 0; n < outputs; ++n)
      for (std::int64_t k = 0; k < inputs; ++k) w.push_back(packed[((g * panels + n / 16) * inputs + k) * 16 + n % 16]);
  return w;
}
inline PackedWeight upload(KernelBench& b, const std::vector<float>& w, const Shape& s, DType dtype, int maximum_leaves = 8) {
  PackedWeight packed;
  packed.outputs = s.outputs;
  packed.inputs = s.inputs;
  packed.count = s.count;
  packed.maximum_leaves = maximum_leaves;
  const std::vector<float> values = pack(w, s.outputs, s.inputs, s.count);
  packed.data = b.floats(values, 1, static_cast<std::int64_t>(values.size()), dtype);
  return packed;
}

inline std::vector<std::int32_t> segments_of(std::int64_t rows, std::int64_t length) {
  std::vector<std::int32_t> segment;
  for (std::int64_t t = 0; t < rows; ++t) segment.push_back(static_cast<std::int32_t>(t / length));
  return segment;
}
inline LinearForward forward_of(KernelBench& b, const Shape& s, const std::vector<float>& x, const std::vector<float>& w, DType dtype) {
  LinearForward op;
  op.y = b.junk(s.rows, s.count * s.outputs);
  op.x = b.floats(x, s.rows, s.count * s.inputs);
  op.w = upload(b, w, s, dtype);
  op.x_step = s.inputs;
  op.y_step = s.outputs;
  return op;
}

inline LinearBackwardWeight weight_of(KernelBench& b, const Shape& s, const std::vector<float>& dy, const std::vector<float>& x,
                                      const std::vector<std::int32_t>& segment) {
  LinearBackwardWeight op;
  op.w.outputs = s.outputs;
  op.w.inputs = s.inputs;
  op.w.count = s.count;
  op.gradient = b.junk(s.count * op.w.panels(), s.inputs * 16);
  op.dy = b.floats(dy, s.rows, s.count * s.outputs);
  op.x = b.floats(x, s.rows, s.count * s.inputs);
  op.x_step = s.inputs;
  op.y_step = s.outputs;
  op.segment = b.ints(segment, s.rows);
  return op;
}

}  // namespace lockstep::linear_test
