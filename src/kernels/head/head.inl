// Implementation of head.h. The products are the linear kernels themselves, so their orders are linear.h's; what is added
// here are the sums along a row of logits and the loss.
#include "kernels/head/chunks.h"
#include "kernels/head/log_sum.h"
#include "kernels/head/row_loss.h"
#include "kernels/head/shard_rows.h"
#include "kernels/linear/product.h"

namespace lockstep {

// Turns the logits of row t into their gradient (where one is asked for) and writes the row's results.
template <class V>
inline void head_row(const HeadLoss& op, std::int64_t t, typename V::Elem* z, bool backward) {
  using Elem = typename V::Elem;
  const std::int64_t vocabulary = op.w.outputs;
  const Elem zero = element<Elem>(0.0f);
  const auto put = [t](const View& v, const Elem& x) {
    if (v) elements<V>(v)[t * v.stride] = x;
  };
  const std::int32_t target = ints(op.target)[t * op.target.stride];
  RowLoss<V> result{zero, zero};
  if (target < 0) {
    put(op.logprob, zero);
    put(op.entropy, zero);
    put(op.loss, zero);
  } else {
    const LogSum<V> row = log_sum<V>(z, vocabulary, op.w.maximum_leaves);
    if (!is_finite<V>(row.log_sum) && op.flags) ints(op.flags)[t * op.flags.stride] |= 1 << 2;
    const Elem logprob = z[target] - row.log_sum;
    put(op.logprob, logprob);
    result = row_loss<V>(op, t, logprob);
    put(op.loss, result.loss);
    const bool has_slope = backward && !(value_of(result.slope) == 0.0f);
    const V log_sum_lanes = V::set1(row.log_sum);
    // Probabilities, for the entropy and for the gradient; the gradient's take the place of the logits.
    const Elem target_probability = has_slope ? exp_element<V>(z[target] - row.log_sum) : zero;
    if (op.entropy) {
      const int leaves = leaf_count(vocabulary, op.w.maximum_leaves);
      const std::int64_t size = vocabulary / leaves;
      Elem part[16];
      for (int leaf = 0; leaf < leaves; ++leaf) part[leaf] = leaf_entropy<V>(z + leaf * size, size, log_sum_lanes);
      put(op.entropy, row.log_sum - join_pairwise(part, leaves));
    }
    if (has_slope) {
      logit_gradients<V>(z, vocabulary, V::set1(result.slope), log_sum_lanes);
      z[target] = result.slope * (element<Elem>(1.0f) - target_probability);
      return;
    }
  }
  if (backward)
    for (std::int64_t i = 0; i < vocabulary; i += 16) V::zero().store_partial(z + i, lanes_left(vocabulary, i));
}

template <class V>
void head_loss(const HeadLoss& op, ThreadPool& pool) {
  using Accumulator = AccumulatorVec<V>;
  using Storage = typename Accumulator::Storage;
  const std::int64_t rows = op.x.rows;
  const bool learns = op.gradient || op.bins, backward = learns || op.dx;
  const std::vector<HeadChunk> chunks = head_chunks(learns ? ints(op.segment) : nullptr, rows, op.logits_chunk.rows);
  // Over several chunks the weight's accumulators live here unless the caller keeps them.
  View bins = op.bins;
  std::unique_ptr<Storage[]> own;
  if (learns && !bins && chunks.size() > 1) {
    own = std::make_unique<Storage[]>(static_cast<std::size_t>(op.w.packed_size() / 16 * Accumulator::kStorage));
    bins.address = reinterpret_cast<std::uint64_t>(own.get());
    bins.dtype = DType::bins;
  }
  for (const HeadChunk& chunk : chunks) {
    const std::int64_t count = chunk.end - chunk.begin;
    const View z = op.logits_chunk.row_range(0, count), x = op.x.row_range(chunk.begin, count);
    LinearForward forward{z, x, op.w};
    forward.round_input_bf16 = op.round_input_bf16;
    linear_forward<V>(forward, pool);
    pool.run((count + 15) / 16, [&](std::int64_t block) {
      for (std::int64_t t = block * 16; t < std::min(count, block * 16 + 16); ++t)
        head_row<V>(op, chunk.begin + t, elements<V>(z) + t * z.stride, backward);
    });
    if (op.dx) linear_backward_input<V>(LinearBackwardInput{op.dx.row_range(chunk.begin, count), z, op.w}, pool);
    if (learns) {
      LinearBackwardWeight weight{op.gradient, bins, op.bins ? op.finish : true, z, x, op.w};
      if (chunk.end < rows) weight.finish = false;
      weight.segment = op.segment.row_range(chunk.begin, count);
      linear_backward_weight<V>(weight, pool);
    }
  }
}

template <class V>
void head_logits(const HeadLogits& op, ThreadPool& pool) {
  using Elem = typename V::Elem;
  const std::int64_t rows = op.index.rows, inputs = op.w.inputs, panels = op.w.panels();
  const std::int64_t row_block = 48, row_blocks = (rows + row_block - 1) / row_block;
  const std::int64_t panel_block = row_blocks >= pool.threads() * 2 ? panels : std::max<std::int64_t>(8, (panels + 7) / 8);
  const std::int64_t panel_blocks = (panels + panel_block - 1) / panel_block;
  with_stored<V>(op.w.data, [&](const auto* weights) {
    using W = std::remove_cv_t<std::remove_pointer_t<decltype(weights)>>;
    pool.run(row_blocks * panel_blocks, [&](std::int64_t item) {
      const std::int64_t begin = item / panel_blocks * row_block, count = std::min(rows - begin, row_block);
      const std::int64_t panel = item % panel_blocks * panel_block;
      Elem* chosen = thread_scratch<Elem>(static_cast<std::size_t>(count * inputs));
      for (std::int64_t i = 0; i < count; ++i) {
        const Elem* x = elements<V>(op.x) + ints(op.index)[(begin + i) * op.index.stride] * op.x.stride;
        if (op.round_input_bf16) round_rows<V>(chosen + i * inputs, x, inputs, 1, inputs);
        else std::copy(x, x + inputs, chosen + i * inputs);
      }
      const Product<V, W> product{elements<V>(op.y) + begin * op.y.stride, op.y.stride, chosen, inputs, weights, inputs,
                                  op.w.outputs, 0, 0, 0, false};
      product_forward<V, W>(product, count, op.w.maximum_leaves, 0, 8, panel, std::min(panels, panel + panel_block));
    });
  });
}

LOCKSTEP_INSTANTIATE(head_loss, HeadLoss)
LOCKSTEP_INSTANTIATE(head_logits, HeadLogits)
LOCKSTEP_INSTANTIATE(head_shard_sums, HeadShardSums)
LOCKSTEP_INSTANTIATE(head_shard_loss, HeadShardLoss)
LOCKSTEP_INSTANTIATE(head_shard_gradient, HeadShardGradient)
LOCKSTEP_INSTANTIATE(head_shard_entropy, HeadShardEntropy)

}  // namespace lockstep
