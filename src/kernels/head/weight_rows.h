// The gradient of the head's weight (HeadWeight of head.h), included by head.inl. A few panels of the vocabulary at a time: their
// logits of all rows are made again, become gradients while they are in cache, and are summed over the rows at once.
#pragma once
#include "kernels/embedding/table_rows.h"

namespace lockstep {

// Scratch of their own beside the products' (thread_scratch is one a type).
template <class V>
struct HeadScratch {
  typename V::Elem lane[16];
};
template <class V>
struct HeadTotals {
  typename AccumulatorVec<V>::Storage storage[AccumulatorVec<V>::kStorage];
};

template <class V>
void head_weight(const HeadWeight& op, ThreadPool& pool) {
  using Elem = typename V::Elem;
  using Accumulator = AccumulatorVec<V>;
  using Storage = typename Accumulator::Storage;
  constexpr std::int64_t kGroup = 4, kInputs = 288;
  const std::int64_t rows = op.x.rows, inputs = op.w.inputs, panels = op.w.panels();
  const RowGradient gradient{op.target, op.slope, op.log_sum, op.entropy, op.entropy_slope};
  const bool tied = static_cast<bool>(op.table_dy);
  const std::int32_t* segment = ints(op.segment);
  const auto segment_of = [segment](std::int64_t t) { return segment[t]; };
  const TokenRows tokens = tied ? rows_by_token<V>(op.token, op.table_dy.rows, panels * 16, op.first, op.w.outputs) : TokenRows{};
  const Elem* x = elements<V>(op.x);
  const Elem* read = x;  // by the logits
  std::int64_t read_stride = op.x.stride;
  std::vector<Elem> rounded;
  if (op.round_input_bf16) {
    rounded.resize(static_cast<std::size_t>(rows * inputs));
    round_rows<V>(rounded.data(), x, op.x.stride, rows, inputs);
    read = rounded.data();
    read_stride = inputs;
  }
  with_stored<V>(op.w.data, [&](const auto* weights) {
    using W = std::remove_cv_t<std::remove_pointer_t<decltype(weights)>>;
    pool.run((panels + kGroup - 1) / kGroup, [&](std::int64_t item) {
      const std::int64_t first = item * kGroup, count = std::min(kGroup, panels - first), columns = std::min(op.w.outputs - first * 16, count * 16);
      const std::int64_t width = count * 16;
      Elem* z = reinterpret_cast<Elem*>(thread_scratch<HeadScratch<V>>(static_cast<std::size_t>(rows * count)));
      const Product<V, W> logits{z, width, read, read_stride, weights + first * inputs * 16, inputs, columns, 0, 0, 0, false};
      product_forward<V, W>(logits, rows, op.w.maximum_leaves, 0, 8, 0, count);
      for (std::int64_t t = 0; t < rows; ++t)
        row_gradient<V>(gradient, t, z + t * width, columns, op.first + first * 16);
      for_weight_panels<V>(0, count, [&](std::int64_t p, auto together) {
        const std::int64_t at = (first + p) * inputs;
        Elem* own = op.gradient ? elements<V>(op.gradient) + at * 16 : nullptr;
        Storage* bins = op.bins ? device_pointer<Storage>(op.bins) + at * Accumulator::kStorage : nullptr;
        if (tied && !bins) {
          bins = thread_scratch<HeadTotals<V>>(static_cast<std::size_t>(together * inputs))->storage;
          for (std::int64_t k = 0; k < together * inputs; ++k) Accumulator::zero().store(bins + k * Accumulator::kStorage);
        }
        for (std::int64_t i = 0; tied && i < together; ++i)
          deposit_table_panel<V>(bins + i * inputs * Accumulator::kStorage, op.table_dy, op.segment, tokens, first + p + i);
        for (std::int64_t k = 0; k < inputs; k += kInputs)
          product_weight<V, together>(own, bins, op.finish || !op.bins, z + p * 16, width, x, op.x.stride, 0, rows, columns - p * 16,
                                      inputs, 0, k, std::min(inputs, k + kInputs), segment_of);
      });
    });
  });
}

}  // namespace lockstep
