// Groups the rows of a batch by token id, and sums their contributions to the gradient of a table in panels (order as in embedding.h). Included by
// the .inl of embedding/ and, for tied tables, head/; every function is a template over V.
#pragma once

namespace lockstep {

// The rows of each token id: those of id v are order[begin[v]] .. order[begin[v + 1]], ascending (so are their segments).
struct TokenRows {
  const std::int32_t *begin, *order;
};
// A counting sort, in the calling thread's scratch. Ids lie in [0, vocabulary). On a rank with a share of the table, `begin` is indexed by id -
// first, and ids outside [first, first + own) are left out.
template <class V>
TokenRows rows_by_token(const View& tokens, std::int64_t T, std::int64_t vocabulary, std::int64_t first, std::int64_t own) {
  const std::int32_t* token = ints(tokens);
  std::int32_t* begin = thread_scratch<std::int32_t>(static_cast<std::size_t>(vocabulary + 2 + T));
  std::int32_t* order = begin + vocabulary + 2;
  std::fill(begin, begin + vocabulary + 2, 0);
  const auto mine = [&](std::int64_t t) { return token[t] >= first && token[t] < first + own; };
  for (std::int64_t t = 0; t < T; ++t)
    if (mine(t)) ++begin[token[t] - first + 2];
  for (std::int64_t v = 0; v <= vocabulary; ++v) begin[v + 1] += begin[v];
  for (std::int64_t t = 0; t < T; ++t)
    if (mine(t)) order[begin[token[t] - first + 1]++] = static_cast<std::int32_t>(t);
  return {begin, order};
}

// Deposits the chains of the 16 token ids of a panel into its accumulators, dy.cols groups of 16 lanes, each chain in its id's lane.
template <class V>
void deposit_table_panel(typename AccumulatorVec<V>::Storage* totals, const View& dy, const View& segments, const TokenRows& rows, std::int64_t panel) {
  using Elem = typename V::Elem;
  using Accumulator = AccumulatorVec<V>;
  const std::int64_t h = dy.cols;
  const std::int32_t* segment = ints(segments);
  const auto each_total = [&](const auto& f) {
    for (std::int64_t i = 0; i < h; ++i) {
      Accumulator total = Accumulator::load(totals + i * Accumulator::kStorage);
      f(total, i);
      total.store(totals + i * Accumulator::kStorage);
    }
  };
  Elem* sum = thread_scratch<Elem>(static_cast<std::size_t>((h + 15) / 16 * 16));
  Elem lanes[16];
  V::zero().store(lanes);
  int deposits = 0;
  for (std::int64_t v = panel * 16; v < panel * 16 + 16; ++v) {
    for (const std::int32_t *at = rows.order + rows.begin[v], *last = rows.order + rows.begin[v + 1]; at < last;) {
      const std::int32_t chain_segment = segment[*at];
      for (std::int64_t i = 0; i < h; i += 16) V::zero().store(sum + i);
      for (; at < last && segment[*at] == chain_segment; ++at)
        for (std::int64_t i = 0; i < h; i += 16) (V::load(sum + i) + V::load_partial(elements<V>(dy) + *at * dy.stride + i, lanes_left(h, i))).store(sum + i);
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
  if (deposits > 0) each_total([](Accumulator& total, std::int64_t) { total.normalise(); });
}

}  // namespace lockstep
