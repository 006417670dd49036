// Rows that are rounded to E4M3 before they meet a weight (rounded_rows.h) as a CUDA body: into scratch, a group of 16 threads for each group of numbers.
#pragma once
#include "kernels/linear/product_items_cuda.h"
#include "numerics/low_bit.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

struct RoundRowsBody {
  static constexpr bool kCooperates = true;
  static constexpr int kThreads = 128;
  ProductItems op;
  float* out;  // [rows, slices, inputs]
  std::int64_t slices;
  LowBitFormat format;
  LOCKSTEP_EVERYWHERE std::int64_t groups() const { return (op.inputs + row_group(format) - 1) / row_group(format); }
  LOCKSTEP_EVERYWHERE std::int64_t work() const { return op.rows * slices * groups(); }
  LOCKSTEP_DEVICE void operator()(const Thread& t) const {
    const std::int64_t at = t.block() * (kThreads / kLanes) + t.group();
    if (at >= work()) return;
    const std::int64_t row = at / groups() / slices, slice = at / groups() % slices, begin = at % groups() * row_group(format);
    const std::int64_t end = begin + row_group(format) < op.inputs ? begin + row_group(format) : op.inputs;
    const float* x = op.x + row * op.x_stride + slice * op.x_step;
    std::uint32_t largest = 0;
    for (std::int64_t i = begin + t.lane(); i < end; i += kLanes) {
      const std::uint32_t magnitude = float_bits(x[i]) & 0x7fffffffu;
      largest = magnitude > largest ? magnitude : largest;
    }
    for (int half = 8; half >= 1; half /= 2) {
      const std::uint32_t other = t.down(largest, half);
      largest = other > largest ? other : largest;
    }
    const GroupScale group = low_bit_scale(t.from(largest, 0), format);
    float* to = out + (row * slices + slice) * op.inputs;
    for (std::int64_t i = begin + t.lane(); i < end; i += kLanes) to[i] = e4m3_of_group(x[i], group);
  }
};

// The operands of a product, its rows rounded where `bits` says so. Items that read columns of their own get rounded rows of their own.
inline ProductItems with_rounded_rows(ProductItems op, int bits, Grid& grid) {
  if (!(bits & kLowBitRows) || op.rows == 0 || op.count == 0 || op.inputs == 0) return op;
  constexpr int kRoundedSlot = 3;  // of scratch, which no other linear kernel takes
  const std::int64_t slices = op.x_step ? op.count : 1;
  const RoundRowsBody body{op, grid.scratch<float>(kRoundedSlot, op.rows * slices * op.inputs), slices, low_bit_format_of(bits)};
  constexpr std::int64_t kGroups = RoundRowsBody::kThreads / kLanes;
  grid.run((body.work() + kGroups - 1) / kGroups, RoundRowsBody::kThreads, body);
  op.x = body.out;
  op.x_stride = slices * op.inputs;
  op.x_step = slices > 1 ? op.inputs : 0;
  return op;
}

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
