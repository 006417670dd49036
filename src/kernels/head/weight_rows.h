// The gradient of the head's weight (HeadWeight of head.h), included by head.inl. For a few panels of the vocabulary at a time, the
// logits of the rows are recomputed, turned into gradients while in cache, and summed over the rows.
#pragma once
#include "kernels/embedding/table_rows.h"
#include "kernels/head/teacher_rows.h"
#include "kernels/linear/low_bit.h"
#include "kernels/linear/product.h"

namespace lockstep {

// Scratch of their own beside the products' (thread_scratch is one a type).
template <class V>
struct HeadScratch {
  typename V::Elem lane[16];
};
template <class V>
struct TeacherScratch {
  typename V::Elem lane[16];
};
template <class V>
struct HeadTotals {
  typename AccumulatorVec<V>::Storage storage[AccumulatorVec<V>::kStorage];
};

// Rows as products read them for logits: rounded to bf16 where the profile says so. Empty where there are none.
template <class V>
struct RowsOfLogits {
  const typename V::Elem* rows = nullptr;
  std::int64_t stride = 0;
  std::vector<typename V::Elem> rounded;
  RowsOfLogits(const View& x, bool round) {
    if (!x) return;
    rows = elements<V>(x), stride = x.stride;
    if (!round) return;
    rounded.resize(static_cast<std::size_t>(x.rows * x.cols));
    round_rows<V>(rounded.data(), rows, x.stride, x.rows, x.cols);
    rows = rounded.data(), stride = x.cols;
  }
};

// x is laid out anew for the sums (pack_weight_rows) if it has at most this many elements.
inline constexpr std::int64_t kPackedElements = 4 << 20;
// Logits of more rows are not there at a time: a text of a million tokens would take half a gigabyte a thread. Between such parts sums are in accumulators.
inline constexpr std::int64_t kHeadRows = 16384;

struct HeadPart {
  std::int64_t begin, end;
};
// Parts of about kHeadRows rows: whole segments, in the blocks in which they are summed. At least one, of no rows where there are none.
template <class SegmentOf>
inline std::vector<HeadPart> head_parts(std::int64_t rows, const SegmentOf& segment_of) {
  std::vector<HeadPart> parts;
  std::int64_t end = 0;
  do {
    const std::int64_t begin = end;
    do end = weight_block(end, rows, segment_of).end;
    while (end < rows && end - begin < kHeadRows);
    parts.push_back({begin, end});
  } while (end < rows);
  return parts;
}

template <class V>
void head_weight(const HeadWeight& op, ThreadPool& pool) {
  using Elem = typename V::Elem;
  using Accumulator = AccumulatorVec<V>;
  using Storage = typename Accumulator::Storage;
  const std::int64_t rows = op.x.rows, inputs = op.w.inputs, panels = op.w.panels();
  // What an item reads of x serves all of its panels; a small vocabulary has fewer a thread.
  const std::int64_t group = std::clamp<std::int64_t>(panels / (pool.threads() * 4) / 2 * 2, 2, 8);
  const RowGradient gradient{op.target, op.slope, op.log_sum, op.entropy, op.entropy_slope, op.distribution};
  const bool tied = static_cast<bool>(op.table_dy);
  const std::int32_t* segment = ints(op.segment);
  const auto segment_of = [segment](std::int64_t t) { return segment[t]; };
  const TokenRows tokens = tied ? rows_by_token<V>(op.token, op.table_dy.rows, panels * 16, op.first, op.w.outputs) : TokenRows{};
  const Elem* x = elements<V>(op.x);
  const RowsOfLogits<V> read(op.x, op.round_input_bf16), teacher_read(op.teacher.x, op.teacher.round_input_bf16);
  const TaughtGradient taught{op.slope, op.log_sum, op.teacher};
  const std::vector<HeadPart> parts = head_parts(rows, segment_of);
  std::int64_t most_rows = 0;
  for (const HeadPart& part : parts) most_rows = std::max(most_rows, part.end - part.begin);
  // All items read x: it is laid out for them once, where that takes little memory.
  const Elem* packed = nullptr;
  if (rows * inputs <= kPackedElements && panels > pool.threads() * group) {
    Elem* const to = thread_scratch<Elem, 8>(static_cast<std::size_t>(rows * inputs));
    std::vector<WeightBlock> blocks;
    for (std::int64_t begin = 0; begin < rows; begin = blocks.back().end) blocks.push_back(weight_block(begin, rows, segment_of));
    constexpr std::int64_t kRowsAtOnce = 64;
    pool.run((rows + kRowsAtOnce - 1) / kRowsAtOnce, [&](std::int64_t item) {
      for (const WeightBlock& block : blocks) {
        const std::int64_t begin = std::max(block.begin, item * kRowsAtOnce), end = std::min(block.end, (item + 1) * kRowsAtOnce);
        if (begin < end)
          pack_weight_rows<V, kWeightPanels<V>>(to + block.begin * inputs, x + block.begin * op.x.stride, op.x.stride, block.end - block.begin,
                                                begin - block.begin, end - block.begin, inputs);
      }
    });
    packed = to;
  }
  with_stored<V>(op.w.data, [&](const auto* weights) {
    using W = std::remove_cv_t<std::remove_pointer_t<decltype(weights)>>;
    pool.run((panels + group - 1) / group, [&](std::int64_t item) {
      const std::int64_t first = item * group, count = std::min(group, panels - first), columns = std::min(op.w.outputs - first * 16, count * 16);
      const std::int64_t width = count * 16;
      Elem* z = reinterpret_cast<Elem*>(thread_scratch<HeadScratch<V>>(static_cast<std::size_t>(most_rows * count)));
      // Empty ones of the panels [p, end).
      const auto totals = [&](std::int64_t p, std::int64_t end) {
        Storage* const own = thread_scratch<HeadTotals<V>>(static_cast<std::size_t>(count * inputs))->storage;
        for (std::int64_t k = p * inputs; k < end * inputs; ++k) Accumulator::zero().store(own + k * Accumulator::kStorage);
        return own;
      };
      Storage* bins = op.bins ? device_pointer<Storage>(op.bins) + first * inputs * Accumulator::kStorage : nullptr;
      if (!bins && parts.size() > 1) bins = totals(0, count);
      // Many panels of a large vocabulary are of no token of the batch. In pairs, as they are summed.
      const auto after = [&](std::int64_t p) { return std::min(count, p + 2); };
      const auto has_tokens = [&](std::int64_t p) { return tokens.begin[(first + p) * 16] < tokens.begin[(first + after(p)) * 16]; };
      for (const HeadPart& part : parts) {
        const std::int64_t row = part.begin, here = part.end - row;
        const bool last = part.end == rows;
        const Product<V, W> logits{z, width, read.rows + row * read.stride, read.stride, weights + first * inputs * 16, inputs, columns, 0, 0, 0, false};
        product_forward<V, W>(logits, here, op.w.maximum_leaves, 0, 8, 0, count);
        if (op.teacher) {
          Elem* y = reinterpret_cast<Elem*>(thread_scratch<TeacherScratch<V>>(static_cast<std::size_t>(most_rows * count)));
          const std::int64_t own = op.teacher.w.inputs;
          const W* at = device_pointer<W>(op.teacher.w.data) + first * own * 16;
          const Product<V, W> teacher{y, width, teacher_read.rows + row * teacher_read.stride, teacher_read.stride, at, own, columns, 0, 0, 0, false};
          product_forward<V, W>(teacher, here, op.teacher.w.maximum_leaves, 0, 8, 0, count);
          for (std::int64_t t = 0; t < here; ++t) taught_gradient<V>(taught, row + t, z + t * width, y + t * width, columns);
        } else {
          for (std::int64_t t = 0; t < here; ++t) {
            temper_row<V>(op.distribution, row + t, z + t * width, columns);
            row_gradient<V>(gradient, row + t, z + t * width, columns, op.first + first * 16);
          }
        }
        const auto sum_rows = [&](std::int64_t begin, std::int64_t end, Storage* own) {
          const WeightGradient<V> weight{op.gradient ? elements<V>(op.gradient) + first * inputs * 16 : nullptr,
                                         own,
                                         last && (op.finish || !op.bins),
                                         z,
                                         width,
                                         x + row * op.x.stride,
                                         op.x.stride,
                                         0,
                                         here,
                                         columns,
                                         inputs,
                                         packed ? packed + row * inputs : nullptr};
          for (std::int64_t k = 0; k < inputs; k += kWeightInputs)
            product_weight<V>(weight, begin, end, k, std::min(inputs, k + kWeightInputs), [&](std::int64_t t) { return segment_of(row + t); });
        };
        if (!tied || row > 0) {  // a table's are deposited once
          sum_rows(0, count, bins);
          continue;
        }
        for (std::int64_t p = 0, end; p < count; p = end) {
          const bool table = has_tokens(p);
          for (end = after(p); end < count && has_tokens(end) == table;) end = after(end);
          Storage* const own = bins || !table ? bins : totals(p, end);
          for (std::int64_t i = p; table && i < end; ++i)
            deposit_table_panel<V>(own + i * inputs * Accumulator::kStorage, op.table_dy, op.segment, tokens, first + i);
          sum_rows(p, end, own);
        }
      }
    });
  });
}

}  // namespace lockstep
