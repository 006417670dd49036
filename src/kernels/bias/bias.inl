// Implementation of bias.h.
#include "kernels/row_tools.h"

namespace lockstep {

// y's rows [begin, end) += b, the n elements of one bias.
template <class V, class Stored>
void add_bias_to_rows(const BiasAdd& op, std::int64_t begin, std::int64_t end, const Stored* b) {
  const std::int64_t n = op.y.cols;
  for (std::int64_t t = begin; t < end; ++t) {
    auto* y = elements<V>(op.y) + t * op.y.stride;
    for (std::int64_t i = 0; i < n; i += 16) {
      const int lanes = lanes_left(n, i);
      (V::load_partial(y + i, lanes) + V::load_partial(b + i, lanes)).store_partial(y + i, lanes);
    }
  }
}

template <class V>
void bias_add(const BiasAdd& op, ThreadPool& pool) {
  with_stored<V>(op.b, [&](const auto* b) {
    if (op.offsets) {
      const std::int32_t* offsets = ints(op.offsets);
      pool.run(op.offsets.rows - 1, [&](std::int64_t g) { add_bias_to_rows<V>(op, offsets[g], offsets[g + 1], b + g * op.b.stride); });
      return;
    }
    pool.run((op.y.rows + 15) / 16, [&](std::int64_t block) { add_bias_to_rows<V>(op, block * 16, std::min(op.y.rows, block * 16 + 16), b); });
  });
}

template <class V>
void bias_backward(const BiasBackward& op, ThreadPool& pool) {
  const std::int64_t n = op.dy.cols, columns = (n + 15) / 16, items = op.offsets ? op.offsets.rows - 1 : 1;
  const bool finish = op.finish || !op.bins;
  const auto segment = [&](std::int64_t t) { return ints(op.segment)[op.row_of ? ints(op.row_of)[t] : t]; };
  pool.run(items * columns, [&](std::int64_t item) {
    const std::int64_t g = item / columns, column = item % columns, i = column * 16;
    const std::int64_t first = op.offsets ? ints(op.offsets)[g] : 0, end = op.offsets ? ints(op.offsets)[g + 1] : op.dy.rows;
    const int lanes = lanes_left(n, i);
    const V one = V::set1(1.0f);
    BinGroup<V> group(op.bins, g, column);
    ColumnChains<V> chains;
    for (std::int64_t t = first; t < end;) {
      const std::int64_t begin = t;
      chains.clear();
      for (; t < end && segment(t) == segment(begin); ++t) chains.add(t - begin, V::load_partial(elements<V>(op.dy) + t * op.dy.stride + i, lanes), one);
      group.deposit(chains.sum());
    }
    group.close(finish, finish ? elements<V>(op.gradient) + g * op.gradient.stride + i : nullptr, lanes);
  });
}

LOCKSTEP_INSTANTIATE(bias_add, BiasAdd)
LOCKSTEP_INSTANTIATE(bias_backward, BiasBackward)

}  // namespace lockstep
