// Implementation of embedding.h.
#include "kernels/embedding/table_rows.h"
#include "kernels/linear/low_bit.h"
#include "kernels/linear/quantised.h"
#include "kernels/row_tools.h"

namespace lockstep {

template <class V>
void embedding_forward(const EmbeddingForward& op, ThreadPool& pool) {
  const std::int64_t h = op.y.cols;
  if (is_low_bit_format(op.bits)) {
    const LowBitShape shape{op.vocabulary, h, static_cast<LowBitFormat>(op.bits)};
    return pool.run((op.y.rows + 15) / 16, [&](std::int64_t block) {
      for (std::int64_t t = block * 16; t < std::min(op.y.rows, block * 16 + 16); ++t)
        low_bit_output<V>(device_pointer<std::uint8_t>(op.table), shape, ints(op.token)[t], elements<V>(op.y) + t * op.y.stride);
    });
  }
  if (op.bits) {
    const QuantisedShape shape{op.vocabulary, h, op.bits};
    return pool.run((op.y.rows + 15) / 16, [&](std::int64_t block) {
      for (std::int64_t t = block * 16; t < std::min(op.y.rows, block * 16 + 16); ++t)
        dequantised_output<V>(device_pointer<std::uint8_t>(op.table), shape, ints(op.token)[t], elements<V>(op.y) + t * op.y.stride);
    });
  }
  with_stored<V>(op.table, [&](const auto* table) {
    pool.run((op.y.rows + 15) / 16, [&](std::int64_t block) {
      for (std::int64_t t = block * 16; t < std::min(op.y.rows, block * 16 + 16); ++t) {
        const std::int64_t token = ints(op.token)[t];
        auto* y = elements<V>(op.y) + t * op.y.stride;
        if (op.packed) {
          const auto* column = table + token / 16 * h * 16 + token % 16;
          for (std::int64_t i = 0; i < h; ++i) y[i] = widen_element(column[i * 16]);
          continue;
        }
        const auto* row = table + token * op.table.stride;
        for (std::int64_t i = 0; i < h; i += 16) {
          const int lanes = lanes_left(h, i);
          V::load_partial(row + i, lanes).store_partial(y + i, lanes);
        }
      }
    });
  });
}

template <class V>
void embedding_backward(const EmbeddingBackward& op, ThreadPool& pool) {
  const std::int64_t T = op.dy.rows, h = op.dy.cols;
  const bool finish = op.finish || !op.bins;
  const std::int64_t vocabulary = (op.bins ? op.bins : op.gradient).rows;
  const TokenRows rows = rows_by_token<V>(op.token, T, vocabulary, 0, vocabulary);
  const std::int32_t* segment = ints(op.segment);

  constexpr std::int64_t kIds = 32;
  const V empty = AccumulatorVec<V>::zero().total();
  pool.run((vocabulary + kIds - 1) / kIds, [&](std::int64_t block) {
    for (std::int64_t v = block * kIds; v < std::min(vocabulary, block * kIds + kIds); ++v) {
      const std::int32_t *first = rows.order + rows.begin[v], *last = rows.order + rows.begin[v + 1];
      if (!finish && first == last) continue;
      for (std::int64_t i = 0; i < h; i += 16) {
        const int lanes = lanes_left(h, i);
        if (!op.bins && first == last) {
          empty.store_partial(elements<V>(op.gradient) + v * op.gradient.stride + i, lanes);
          continue;
        }
        BinGroup<V> group(op.bins, v, i / 16);
        for (const std::int32_t* at = first; at < last;) {
          const std::int32_t chain_segment = segment[*at];
          V sum = V::zero();
          for (; at < last && segment[*at] == chain_segment; ++at) sum = sum + V::load_partial(elements<V>(op.dy) + *at * op.dy.stride + i, lanes);
          group.deposit(sum);
        }
        group.close(finish, finish ? elements<V>(op.gradient) + v * op.gradient.stride + i : nullptr, lanes);
      }
    }
  });
}

LOCKSTEP_INSTANTIATE(embedding_forward, EmbeddingForward)
LOCKSTEP_INSTANTIATE(embedding_backward, EmbeddingBackward)

}  // namespace lockstep
