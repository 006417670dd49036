// Implementation of top.h: one work item per row; the best so far are kept in a list sorted by insertion.
#include "kernels/head/log_sum.h"
#include "kernels/sample/allowed.h"

namespace lockstep {

template <class V>
inline void top_row(const TopTokens& op, std::int64_t item) {
  using Elem = typename V::Elem;
  std::int32_t* id = ints(op.id) + item * op.id.stride;
  Elem* logprob = elements<V>(op.logprob) + item * op.logprob.stride;
  for (std::int64_t i = 0; i < op.id.cols; ++i) id[i] = -1, logprob[i] = element<Elem>(0.0f);
  const Elem* z = elements<V>(op.logits) + ints(op.row)[item * op.row.stride] * op.logits.stride;
  std::int64_t n = op.logits.cols;
  const std::int32_t* ids = nullptr;
  if (const std::int32_t* words = mask_words<V>(op.mask, op.mask_row, item)) {
    std::int32_t* list = thread_scratch<std::int32_t>(static_cast<std::size_t>(n));
    n = allowed_tokens<V>(words, n, list);
    if (n == 0) return;
    Elem* gathered = thread_scratch<Elem>(static_cast<std::size_t>(n));
    gather<V>(z, list, n, gathered);
    z = gathered;
    ids = list;
  }
  const LogSum<V> sum = log_sum<V>(z, n, op.maximum_leaves);
  if (!is_finite<V>(sum.log_sum)) return;
  const std::int64_t most = std::min<std::int64_t>({ints(op.count)[item * op.count.stride], op.id.cols, n});
  std::int64_t kept = 0;
  for (std::int64_t i = 0; i < n && most > 0; ++i) {
    if (kept == most && !(z[i] > z[id[kept - 1]])) continue;  // ids ascend, so an equal one comes later
    std::int64_t at = kept < most ? kept++ : kept - 1;
    for (; at > 0 && z[i] > z[id[at - 1]]; --at) id[at] = id[at - 1];
    id[at] = static_cast<std::int32_t>(i);
  }
  for (std::int64_t i = 0; i < kept; ++i) {
    logprob[i] = z[id[i]] - sum.log_sum;
    if (ids) id[i] = ids[id[i]];
  }
}

template <class V>
void top_tokens(const TopTokens& op, ThreadPool& pool) {
  pool.run(op.id.rows, [&](std::int64_t item) { top_row<V>(op, item); });
}

LOCKSTEP_INSTANTIATE(top_tokens, TopTokens)

}  // namespace lockstep
