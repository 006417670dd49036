// Implementation of embedding.h.
#include "kernels/row_tools.h"

namespace lockstep {

template <class V>
void embedding_forward(const EmbeddingForward& op, ThreadPool& pool) {
  const std::int64_t h = op.y.cols;
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

// The rows of each token id: those of id v are order[begin[v]] .. order[begin[v + 1]], ascending (so are their segments).
struct TokenRows {
  const std::int32_t *begin, *order;
};
// A counting sort, in the calling thread's scratch.
template <class V>
TokenRows rows_by_token(const View& tokens, std::int64_t T, std::int64_t vocabulary) {
  const std::int32_t* token = ints(tokens);
  std::int32_t* begin = thread_scratch<std::int32_t>(static_cast<std::size_t>(vocabulary + 2 + T));
  std::int32_t* order = begin + vocabulary + 2;
  std::fill(begin, begin + vocabulary + 2, 0);
  for (std::int64_t t = 0; t < T; ++t) ++begin[token[t] + 2];
  for (std::int64_t v = 0; v <= vocabulary; ++v) begin[v + 1] += begin[v];
  for (std::int64_t t = 0; t < T; ++t) order[begin[token[t] + 1]++] = static_cast<std::int32_t>(t);
  return {begin, order};
}

// One panel of 16 token ids of a packed table: each chain goes to its id's lane of every column.
template <class V>
void embedding_backward_panel(const EmbeddingBackward& op, const TokenRows& rows, std::int64_t panel) {
  using Elem = typename V::Elem;
  using Accumulator = AccumulatorVec<V>;
  using Storage = typename Accumulator::Storage;
  const std::int64_t h = op.dy.cols, kept = h * Accumulator::kStorage;
  const std::int32_t* segment = ints(op.segment);
  Storage* totals = op.bins ? device_pointer<Storage>(op.bins) + panel * kept : thread_scratch<Storage>(static_cast<std::size_t>(kept));
  const auto each_total = [&](const auto& f) {
    for (std::int64_t i = 0; i < h; ++i) {
      Accumulator total = Accumulator::load(totals + i * Accumulator::kStorage);
      f(total, i);
      total.store(totals + i * Accumulator::kStorage);
    }
  };
  if (!op.bins)
    for (std::int64_t i = 0; i < h; ++i) Accumulator::zero().store(totals + i * Accumulator::kStorage);
  Elem* sum = thread_scratch<Elem>(static_cast<std::size_t>((h + 15) / 16 * 16));
  Elem lanes[16];
  V::zero().store(lanes);
  int deposits = 0;
  for (std::int64_t v = panel * 16; v < panel * 16 + 16; ++v) {
    for (const std::int32_t *at = rows.order + rows.begin[v], *last = rows.order + rows.begin[v + 1]; at < last;) {
      const std::int32_t chain_segment = segment[*at];
      for (std::int64_t i = 0; i < h; i += 16) V::zero().store(sum + i);
      for (; at < last && segment[*at] == chain_segment; ++at)
        for (std::int64_t i = 0; i < h; i += 16)
          (V::load(sum + i) + V::load_partial(elements<V>(op.dy) + *at * op.dy.stride + i, lanes_left(h, i))).store(sum + i);
      if (deposits++ == kDepositsBeforeCarry) {
        each_total([](Accumulator& total, std::int64_t) { total.normalise(); });
        deposits = 1;
      }
      each_total([&](Accumulator& total, std::int64_t i) {
        lanes[v % 16] = sum[i];
        total.deposit(V::load(lanes));
      });
      lanes[v % 16] = element<Elem>(0.0f);
    }
  }
  const bool finish = op.finish || !op.bins;
  each_total([&](Accumulator& total, std::int64_t i) {
    total.normalise();
    if (!finish) return;
    total.total().store(elements<V>(op.gradient) + (panel * h + i) * 16);
    total = Accumulator::zero();
  });
}

template <class V>
void embedding_backward(const EmbeddingBackward& op, ThreadPool& pool) {
  const std::int64_t T = op.dy.rows, h = op.dy.cols;
  const bool finish = op.finish || !op.bins;
  const View& shape = op.bins ? op.bins : op.gradient;
  const std::int64_t vocabulary = op.packed ? shape.size() / h : shape.rows;  // packed: to the end of the last panel
  const TokenRows rows = rows_by_token<V>(op.token, T, vocabulary);
  if (op.packed) {
    pool.run(vocabulary / 16, [&](std::int64_t panel) {
      if (finish || rows.begin[panel * 16] != rows.begin[panel * 16 + 16]) embedding_backward_panel<V>(op, rows, panel);
    });
    return;
  }
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
