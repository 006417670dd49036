// Implementation of linear.h: splits the work into (weight, panels, rows) items and runs the products of product.h on them.
#include "kernels/kernel_parts.h"
#include "kernels/linear/low_bit.h"
#include "kernels/linear/product.h"
#include "kernels/linear/quantised.h"
#include "kernels/linear/rounded_rows.h"
#include "kernels/linear/transposed_product.h"

namespace lockstep {

// Rows of item g: all, or its slots.
struct RowRange {
  std::int64_t begin, end;
};
static RowRange rows_of(const View& offsets, std::int64_t g, std::int64_t all, const View& ends = {}) {
  if (!offsets) return {0, all};
  return {ints(offsets)[g], ends ? ints(ends)[g] : ints(offsets)[g + 1]};
}

// Counts the rows [begin, begin + count) up. An item counts with its first panel, so that no two threads share a cell.
static inline void count_rows(const View& cells, std::int64_t begin, std::int64_t count) {
  if (!cells) return;
  for (std::int64_t t = begin; t < begin + count; ++t) ++ints(cells)[t * cells.stride];
}

// The forward with a weight of integers. Items that read columns of their own (heads) quantise these as rows of their own.
template <class V>
void quantised_linear(const LinearForward& op, ThreadPool& pool) {
  if (op.w.count == 0) return;
  with_integer_dot<V>([&](auto dot) {
    using Dot = decltype(dot);
    const QuantisedShape shape = op.w.quantised();
    const std::int64_t panels = op.w.panels();
    const RowRange first = rows_of(op.offsets, 0, op.x.rows), last = rows_of(op.offsets, op.w.count - 1, op.x.rows);
    const std::int64_t used = last.end - first.begin, slices = op.x_step ? op.w.count : 1;
    if (used <= 0) return;
    const QuantisedRows<V, Dot> x = quantise_rows<V, Dot>(used * slices, op.w.inputs, pool, [&](std::int64_t at) {
      return elements<V>(op.x) + (first.begin + at / slices) * op.x.stride + at % slices * op.x_step;
    });
    const std::int64_t row_block = 96, row_blocks = std::max<std::int64_t>(1, (op.x.rows + row_block - 1) / row_block);
    const std::int64_t panel_block = row_blocks * op.w.count >= pool.threads() * 2 ? panels : std::max<std::int64_t>(4, (panels + 7) / 8);
    const std::int64_t panel_blocks = (panels + panel_block - 1) / panel_block;
    pool.run(op.w.count * row_blocks * panel_blocks, [&](std::int64_t item) {
      const std::int64_t g = item / (row_blocks * panel_blocks), rest = item % (row_blocks * panel_blocks);
      const RowRange range = rows_of(op.offsets, g, op.x.rows);
      const std::int64_t begin = range.begin + rest / panel_blocks * row_block;
      const std::int64_t count = std::min(range.end, begin + row_block) - begin;
      if (count <= 0) return;
      const std::int64_t panel = rest % panel_blocks * panel_block;
      if (panel == 0) count_rows(op.rows_made, begin, count);
      quantised_forward<V, Dot>({elements<V>(op.y) + begin * op.y.stride + g * op.y_step, op.y.stride, x, (begin - first.begin) * slices + (slices > 1 ? g : 0),
                                 slices, device_pointer<std::uint8_t>(op.w.data) + g * shape.bytes(), shape, 0, 0, 0},
                                count, op.w.maximum_leaves, op.leaf_begin, op.leaf_end, panel, std::min(panels, panel + panel_block));
    });
  });
}

constexpr std::int64_t kSameSet = 1024;                // floats: a page
constexpr std::int64_t kTransposedElements = 4 << 20;  // of a weight, at once
constexpr std::int64_t kPanelsAThread = 128;           // or more: enough work without cutting rows

// `count` products over `panels` each, of up to `rows` rows: cut into items, enough that no thread waits long for the last one,
// each with whole register tiles. of(g) gives the rows of product g and its operands, at row 0. `inputs`: of each product;
// gives_way: it may be computed in parts (kernels/kernel_parts.h).
template <class V, class W, class Of>
void run_products(ThreadPool& pool, std::int64_t count, std::int64_t rows, std::int64_t panels, std::int64_t inputs, bool gives_way, int maximum_leaves,
                  int leaf_begin, int leaf_end, bool round_input_bf16, const View& rows_made, const Of& of) {
  using Elem = typename V::Elem;
  if (count == 0 || panels == 0) return;  // a rank without experts, or without leaves
  // A weight is read anew for each block of rows.
  const bool large = rows >= 2 * kManyRows && panels >= pool.threads() * kPanelsAThread;
  const std::int64_t row_block = large || (rows >= 256 && in_parts<V>(rows, inputs)) ? 192 : rows < 256 ? 48 : 96;
  const std::int64_t row_blocks = std::max<std::int64_t>(1, (rows + row_block - 1) / row_block);
  const std::int64_t wanted = (pool.threads() * 8 + row_blocks * count - 1) / (row_blocks * count);
  std::int64_t panel_block = wanted == 1 ? panels : std::max<std::int64_t>(8, (panels + wanted - 1) / wanted + 1) / 2 * 2;
  if (const std::int64_t most = gives_way ? longest_part() : 0; most > 0)
    panel_block = std::clamp<std::int64_t>(most / (pool.threads() * row_block * 16 * inputs) / 2 * 2, std::min<std::int64_t>(8, panel_block), panel_block);
  const std::int64_t panel_blocks = (panels + panel_block - 1) / panel_block;
  const auto run = [&](const auto& work) {
    if (gives_way) run_in_parts(pool, count * row_blocks * panel_blocks, row_block * panel_block * 16 * inputs, work);
    else pool.run(count * row_blocks * panel_blocks, work);
  };
  run([&](std::int64_t item) {
    const std::int64_t g = item / (row_blocks * panel_blocks), rest = item % (row_blocks * panel_blocks);
    auto [range, product, low_bit, shape, rounds] = of(g);
    const std::int64_t begin = range.begin + rest / panel_blocks * row_block;
    const std::int64_t block = std::min(range.end, begin + row_block) - begin;
    if (block <= 0) return;
    const std::int64_t panel = rest % panel_blocks * panel_block;
    if (panel == 0) count_rows(rows_made, begin, block);
    product.y += begin * product.y_stride;
    product.x += begin * product.x_stride;
    if (rounds || round_input_bf16) {
      Elem* rounded = thread_scratch<Elem>(static_cast<std::size_t>(block * product.inputs));
      if (rounds) round_rows_to_e4m3<V>(rounded, product.x, product.x_stride, block, product.inputs, shape.format);
      else round_rows<V>(rounded, product.x, product.x_stride, block, product.inputs);
      product.x = rounded;
      product.x_stride = product.inputs;
    } else if (product.x_stride % kSameSet == 0 && block >= V::kRows && panel_block >= 16 && !in_parts<V>(block, inputs)) {
      // Rows whole pages apart lie in the same sets of the first cache, which has fewer ways than a tile has rows.
      const std::int64_t apart = product.inputs + 16;
      Elem* copy = thread_scratch<Elem>(static_cast<std::size_t>(block * apart));
      for (std::int64_t t = 0; t < block; ++t)
        __builtin_memcpy(copy + t * apart, product.x + t * product.x_stride, static_cast<std::size_t>(product.inputs) * sizeof(Elem));
      product.x = copy;
      product.x_stride = apart;
    }
    const std::int64_t panel_end = std::min(panels, panel + panel_block);
    if constexpr (std::is_same_v<W, Elem>)
      if (low_bit) return low_bit_forward<V>(product, low_bit, shape, block, maximum_leaves, leaf_begin, leaf_end, panel, panel_end);
    product_forward<V, W>(product, block, maximum_leaves, leaf_begin, leaf_end, panel, panel_end);
  });
}

template <class V, class W>
struct RowsAndProduct {
  RowRange rows;
  Product<V, W> product;
  const std::uint8_t* low_bit = nullptr;  // instead of product.w
  LowBitShape shape{};
  bool rounds = false;  // rows to E4M3, by the shape's format
};

template <class V>
void linear_forward(const LinearForward& op, ThreadPool& pool) {
  using Elem = typename V::Elem;
  if (is_low_bit_format(op.w.bits)) {
    const LowBitShape shape = low_bit_shape(op.w);
    return run_products<V, Elem>(pool, op.w.count, op.x.rows, op.w.panels(), op.w.inputs, true, op.w.maximum_leaves, op.leaf_begin, op.leaf_end,
                                 op.round_input_bf16, op.rows_made, [&](std::int64_t g) -> RowsAndProduct<V, Elem> {
                                   return {rows_of(op.offsets, g, op.x.rows, op.ends),
                                           {elements<V>(op.y) + g * op.y_step, op.y.stride, elements<V>(op.x) + g * op.x_step, op.x.stride, nullptr,
                                            op.w.inputs, op.w.outputs, 0, 0, 0, op.accumulate, op.scale},
                                           device_pointer<std::uint8_t>(op.w.data) + g * shape.bytes(),
                                           shape,
                                           (op.w.bits & kLowBitRows) != 0};
                                 });
  }
  if (op.w.bits) return quantised_linear<V>(op, pool);
  with_stored<V>(op.w.data, [&](const auto* weights) {
    using W = std::remove_cv_t<std::remove_pointer_t<decltype(weights)>>;
    run_products<V, W>(pool, op.w.count, op.x.rows, op.w.panels(), op.w.inputs, true, op.w.maximum_leaves, op.leaf_begin, op.leaf_end, op.round_input_bf16,
                       op.rows_made, [&](std::int64_t g) -> RowsAndProduct<V, W> {
                         return {rows_of(op.offsets, g, op.x.rows, op.ends),
                                 {elements<V>(op.y) + g * op.y_step, op.y.stride, elements<V>(op.x) + g * op.x_step, op.x.stride,
                                  weights + g * op.w.packed_size(), op.w.inputs, op.w.outputs, 0, 0, 0, op.accumulate, op.scale}};
                       });
  });
}

// One weight for all rows is transposed once, in parts that every thread reads, and the rest is a forward product over n. Of several
// (heads, experts) every item transposes what it needs.
// transpose(panel, g, block): transpose_block of item g.
template <class V, class Transpose>
void backward_input_with(const LinearBackwardInput& op, ThreadPool& pool, const Transpose& transpose) {
  using Elem = typename V::Elem;
  const std::int64_t blocks = (op.w.inputs + 15) / 16, rows = op.dy.rows;
  if (op.w.count == 1 && !op.offsets) {
    std::int64_t part = std::max<std::int64_t>(8, kTransposedElements / std::max<std::int64_t>(1, op.w.outputs * 16));
    if (const std::int64_t most = longest_part(); most > 0)
      part = std::clamp<std::int64_t>(most / std::max<std::int64_t>(1, rows * op.w.outputs * 16), std::min<std::int64_t>(2, part), part);
    for (std::int64_t begin = 0; begin < blocks; begin += part) {
      if (begin > 0) end_of_part();
      const std::int64_t count = std::min(blocks - begin, part);
      Elem* transposed = thread_scratch<Elem, 1>(static_cast<std::size_t>(count * op.w.outputs * 16));
      pool.run(count, [&](std::int64_t b) { transpose(transposed + b * op.w.outputs * 16, 0, begin + b); });
      const ItemRows<V> dy = item_rows<V>(op.dy, 0, rows, 1, 0, op.w.outputs, op.w.bits, pool);
      run_products<V, Elem>(pool, 1, rows, count, op.w.outputs, false, op.w.maximum_leaves, 0, 8, false, {}, [&](std::int64_t) -> RowsAndProduct<V, Elem> {
        return {{0, rows},
                {elements<V>(op.dx) + begin * 16, op.dx.stride, dy.at, dy.stride, transposed, op.w.outputs, op.w.inputs - begin * 16, 0, 0, 0, op.accumulate,
                 op.scale}};
      });
    }
    return;
  }
  const std::int64_t block_step = std::min<std::int64_t>(blocks, 2);
  const std::int64_t block_items = (blocks + block_step - 1) / block_step;
  if (op.w.count == 0) return;
  const std::int64_t first_row = rows_of(op.offsets, 0, rows).begin, last_row = op.offsets ? rows_of(op.offsets, op.w.count - 1, rows).end : rows;
  const ItemRows<V> dy = item_rows<V>(op.dy, first_row, last_row, op.w.count, op.y_step, op.w.outputs, op.w.bits, pool);
  pool.run(op.w.count * block_items, [&](std::int64_t item) {
    const std::int64_t g = item / block_items, begin = item % block_items * block_step, end = std::min(blocks, begin + block_step);
    const RowRange range = rows_of(op.offsets, g, rows, op.ends);
    if (range.end <= range.begin) return;
    Elem* scratch = thread_scratch<Elem>(static_cast<std::size_t>(block_step * op.w.outputs * 16));
    for (std::int64_t b = begin; b < end; ++b) transpose(scratch + (b - begin) * op.w.outputs * 16, g, b);
    product_forward<V, Elem>(
        {elements<V>(op.dx) + range.begin * op.dx.stride + g * op.x_step + begin * 16, op.dx.stride, dy.at + range.begin * dy.stride + g * dy.step, dy.stride,
         scratch, op.w.outputs, op.w.inputs - begin * 16, 0, 0, 0, op.accumulate, op.scale},
        range.end - range.begin, op.w.maximum_leaves, 0, 8, 0, end - begin);
  });
}

// One large weight: every item of work transposes the part that it needs. Not where kernels are to be done in parts: an item is long.
template <class V, class W>
void backward_input_in_parts(const LinearBackwardInput& op, ThreadPool& pool, const W* weights) {
  constexpr std::int64_t kMostPanels = 24;  // whose sums stay in the second cache
  const std::int64_t blocks = (op.w.inputs + 15) / 16, pairs = (blocks + 1) / 2;
  const std::int64_t panel_block = std::clamp<std::int64_t>((pairs + pool.threads() - 1) / pool.threads() * 2, 2, kMostPanels);
  pool.run((blocks + panel_block - 1) / panel_block, [&](std::int64_t item) {
    const std::int64_t begin = item * panel_block, end = std::min(blocks, begin + panel_block);
    product_transposed<V, W>(
        {elements<V>(op.dx), op.dx.stride, elements<V>(op.dy), op.dy.stride, nullptr, op.w.outputs, op.w.inputs, 0, 0, 0, op.accumulate, op.scale}, op.dy.rows,
        op.w.maximum_leaves, weights, op.w.inputs, begin, end);
  });
}

template <class V>
void linear_backward_input(const LinearBackwardInput& op, ThreadPool& pool) {
  using Elem = typename V::Elem;
  if (is_low_bit_format(op.w.bits)) {
    const LowBitShape shape = low_bit_shape(op.w);
    const std::uint8_t* bytes = device_pointer<std::uint8_t>(op.w.data);
    return backward_input_with<V>(
        op, pool, [&](Elem* panel, std::int64_t g, std::int64_t block) { transpose_low_bit<V>(panel, bytes + g * shape.bytes(), shape, block); });
  }
  with_stored<V>(op.w.data, [&](const auto* weights) {
    using W = std::remove_cv_t<std::remove_pointer_t<decltype(weights)>>;
    const bool large = op.w.count == 1 && !op.offsets && op.w.packed_size() > kTransposedElements && longest_part() == 0;
    if (large && transposes_in_parts<V>(op.dy.rows, op.w.outputs, op.w.maximum_leaves)) return backward_input_in_parts<V, W>(op, pool, weights);
    backward_input_with<V>(op, pool, [&](Elem* panel, std::int64_t g, std::int64_t block) {
      transpose_block<V, W>(panel, weights + g * op.w.packed_size(), op.w.outputs, op.w.inputs, block);
    });
  });
}

template <class V>
void linear_backward_weight(const LinearBackwardWeight& op, ThreadPool& pool) {
  using Accumulator = AccumulatorVec<V>;
  using Storage = typename Accumulator::Storage;
  constexpr std::int64_t kPanels = kWeightPanels<V>;
  const std::int64_t panels = op.w.panels(), k_step = std::min<std::int64_t>(kWeightInputs, op.w.inputs);
  // What an item copies of x serves all of its panels: some items a thread, more where they have many panels all the same.
  constexpr std::int64_t kManyPanels = 9 * kPanels;
  const std::int64_t k_items = (op.w.inputs + k_step - 1) / std::max<std::int64_t>(1, k_step), cut = std::max<std::int64_t>(1, op.w.count * k_items);
  const auto each_thread = [&](std::int64_t items) { return (pool.threads() * items + cut - 1) / cut; };
  const std::int64_t wanted = std::max(each_thread(2), std::min(each_thread(6), panels / kManyPanels));
  const std::int64_t step = std::max<std::int64_t>(1, (panels + wanted * kPanels - 1) / (wanted * kPanels)) * kPanels;
  const std::int64_t panel_items = (panels + step - 1) / step;
  run_in_parts(pool, op.w.count * panel_items * k_items, op.dy.rows * step * 16 * k_step, [&](std::int64_t item) {
    const std::int64_t g = item / (panel_items * k_items), panel = item / k_items % panel_items * step, k = item % k_items * k_step;
    const RowRange range = rows_of(op.offsets, g, op.dy.rows, op.ends);
    const std::int64_t base = g * op.w.packed_size();
    const std::int32_t* segment = ints(op.segment);
    const std::int32_t* row_of = op.row_of ? ints(op.row_of) : nullptr;
    product_weight<V>({op.gradient ? elements<V>(op.gradient) + base : nullptr,
                       op.bins ? device_pointer<Storage>(op.bins) + base / 16 * Accumulator::kStorage : nullptr, op.finish, elements<V>(op.dy) + g * op.y_step,
                       op.dy.stride, elements<V>(op.x) + g * op.x_step, op.x.stride, range.begin, range.end, op.w.outputs, op.w.inputs},
                      panel, std::min(panels, panel + step), k, std::min(op.w.inputs, k + k_step),
                      [=](std::int64_t t) { return segment[row_of ? row_of[t] : t]; });
  });
}

LOCKSTEP_INSTANTIATE(linear_forward, LinearForward)
LOCKSTEP_INSTANTIATE(linear_backward_input, LinearBackwardInput)
LOCKSTEP_INSTANTIATE(linear_backward_weight, LinearBackwardWeight)

}  // namespace lockstep
