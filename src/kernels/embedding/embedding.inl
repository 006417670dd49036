// Implementation of embedding.h.
#include "kernels/row_tools.h"

namespace lockstep {

template <class V>
void embedding_forward(const EmbeddingForward& op, ThreadPool& pool) {
  const std::int64_t h = op.y.cols;
  with_stored<V>(op.table, [&](const auto* table) {
    pool.run((op.y.rows + 15) / 16, [&](std::int64_t block) {
      for (std::int64_t t = block * 16; t < std::min(op.y.rows, block * 16 + 16); ++t) {
        const auto* row = table + ints(op.token)[t] * op.table.stride;
        auto* y = elements<V>(op.y) + t * op.y.stride;
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
  const std::int64_t vocabulary = op.bins ? op.bins.rows : op.gradient.rows;
  const std::int32_t* token = ints(op.token);
  const std::int32_t* segment = ints(op.segment);
  // A counting sort: the rows of token v are order[begin[v]] .. order[begin[v + 1]], ascending (so are their segments).
  std::int32_t* begin = thread_scratch<std::int32_t>(static_cast<std::size_t>(vocabulary + 2 + T));
  std::int32_t* order = begin + vocabulary + 2;
  std::fill(begin, begin + vocabulary + 2, 0);
  for (std::int64_t t = 0; t < T; ++t) ++begin[token[t] + 2];
  for (std::int64_t v = 0; v <= vocabulary; ++v) begin[v + 1] += begin[v];
  for (std::int64_t t = 0; t < T; ++t) order[begin[token[t] + 1]++] = static_cast<std::int32_t>(t);

  constexpr std::int64_t kIds = 32;
  const V empty = AccumulatorVec<V>::zero().total();
  pool.run((vocabulary + kIds - 1) / kIds, [&](std::int64_t block) {
    for (std::int64_t v = block * kIds; v < std::min(vocabulary, block * kIds + kIds); ++v) {
      const std::int32_t *first = order + begin[v], *last = order + begin[v + 1];
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
          for (; at < last && segment[*at] == chain_segment; ++at)
            sum = sum + V::load_partial(elements<V>(op.dy) + *at * op.dy.stride + i, lanes);
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
