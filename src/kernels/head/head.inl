// Implementation of head.h. Products are the linear kernels, so their orders are linear.h's; this adds the sums along a row of logits and the loss.
#include "kernels/head/log_sum.h"
#include "kernels/head/row_gradient.h"
#include "kernels/head/shard_rows.h"
#include "kernels/head/teacher_rows.h"
#include "kernels/head/weight_rows.h"
#include "kernels/kernel_parts.h"
#include "kernels/linear/low_bit.h"
#include "kernels/linear/product.h"
#include "kernels/linear/quantised.h"

namespace lockstep {

// Writes the results of row t, and returns its log-sum.
template <class V>
inline typename V::Elem row_results(const HeadLoss& op, std::int64_t t, typename V::Elem* z) {
  using Elem = typename V::Elem;
  const std::int64_t vocabulary = op.w.outputs;
  const Elem zero = element<Elem>(0.0f);
  const auto put = [t](const View& v, const Elem& x) {
    if (v) elements<V>(v)[t * v.stride] = x;
  };
  const std::int32_t* target = ints(op.target) + t * op.target.stride;
  Elem entropy = zero, log = zero;
  if (any_target<V>(op.target, t)) {
    temper_row<V>(op.distribution, t, z, vocabulary);
    const KeptRow kept = kept_row<V>(op.distribution, t);
    Elem* values = nullptr;
    if (kept) {
      values = kept_room<V>(kept);
      gather<V>(z, kept_ids<V>(kept, vocabulary), kept.count, values);
      log = kept_log_sum<V>(kept, values, op.w.maximum_leaves);
    } else {
      log = log_sum<V>(z, vocabulary, op.w.maximum_leaves).log_sum;
    }
    if (!is_finite<V>(log) && op.flags) ints(op.flags)[t * op.flags.stride] |= 1 << 2;
    if (op.entropy && kept) entropy = log - kept_entropy_sum<V>(kept, values, log, op.w.maximum_leaves);
    if (op.entropy && !kept) {
      const int leaves = leaf_count(vocabulary, op.w.maximum_leaves);
      const std::int64_t size = vocabulary / leaves;
      const V lanes = V::set1(log);
      Elem part[16];
      for (int leaf = 0; leaf < leaves; ++leaf) part[leaf] = leaf_entropy<V>(z + leaf * size, size, lanes);
      entropy = log - join_pairwise(part, leaves);
    }
  }
  row_losses<V>(op, t, log, [&](std::int64_t k) { return z[target[k]]; });
  take_entropy_bonus<V>(op.loss, op.entropy_slope, entropy, t);
  put(op.entropy, entropy);
  put(op.log_sum, log);
  return log;
}

// The same, and for a gradient of the hidden state turns its logits into theirs.
template <class V>
inline void head_row(const HeadLoss& op, std::int64_t t, typename V::Elem* z) {
  row_results<V>(op, t, z);
  if (op.dx) row_gradient<V>(RowGradient{op.target, op.slope, op.log_sum, op.entropy, op.entropy_slope, op.distribution}, t, z, op.w.outputs, 0);
}

// The same of a row with a teacher, whose logits are y.
template <class V>
inline void taught_row(const HeadLoss& op, std::int64_t t, typename V::Elem* z, const typename V::Elem* y) {
  using Elem = typename V::Elem;
  const std::int64_t vocabulary = op.w.outputs;
  const int leaves = op.w.maximum_leaves;
  const Divergence kind = op.teacher.divergence;
  const Elem log = row_results<V>(op, t, z), zero = element<Elem>(0.0f);
  const bool scored = any_target<V>(op.target, t);
  Elem teacher = zero, first = zero, second = zero;
  if (scored) {
    teacher = log_sum<V>(y, vocabulary, leaves).log_sum;
    first = divergence_sum<V>(kind, false, z, y, vocabulary, leaves, log, teacher);
    if (kind == Divergence::jensen_shannon) second = divergence_sum<V>(kind, true, z, y, vocabulary, leaves, log, teacher);
  }
  put_divergence<V>(op, t, scored, teacher, first, second);
  if (op.dx) taught_gradient<V>(TaughtGradient{op.slope, op.log_sum, op.teacher}, t, z, y, vocabulary);
}

// In parts (kernels/kernel_parts.h) a chunk has fewer rows: the backward, which packs the weight anew for each chunk, takes as many inputs at once as leave a
// part short.
constexpr std::int64_t kChunkInParts = 96;
// What a logit of a row takes, as multiply-adds of the products: its exponentials.
constexpr std::int64_t kLogitAdds = 40, kTaughtLogitAdds = 160;

template <class V>
void head_loss(const HeadLoss& op, ThreadPool& pool) {
  const std::int64_t chunk = longest_part() > 0 ? std::min(op.logits_chunk.rows, kChunkInParts) : op.logits_chunk.rows;
  for (std::int64_t begin = 0; begin < op.x.rows; begin += chunk) {
    if (begin > 0) end_of_part();
    const std::int64_t count = std::min(op.x.rows - begin, chunk);
    const View z = op.logits_chunk.row_range(0, count);
    LinearForward forward{z, op.x.row_range(begin, count), op.w};
    forward.round_input_bf16 = op.round_input_bf16;
    linear_forward<V>(forward, pool);
    end_of_part();
    View y;  // the teacher's logits
    if (op.teacher) {
      y = op.teacher.logits_chunk.row_range(0, count);
      LinearForward teacher{y, op.teacher.x.row_range(begin, count), op.teacher.w};
      teacher.round_input_bf16 = op.teacher.round_input_bf16;
      linear_forward<V>(teacher, pool);
      end_of_part();
    }
    run_in_parts(pool, (count + 15) / 16, 16 * op.w.outputs * (y ? kTaughtLogitAdds : kLogitAdds), [&](std::int64_t block) {
      for (std::int64_t t = block * 16; t < std::min(count, block * 16 + 16); ++t) {
        if (y) taught_row<V>(op, begin + t, elements<V>(z) + t * z.stride, elements<V>(y) + t * y.stride);
        else head_row<V>(op, begin + t, elements<V>(z) + t * z.stride);
      }
    });
    end_of_part();
    if (op.dx) linear_backward_input<V>(LinearBackwardInput{op.dx.row_range(begin, count), z, op.w}, pool);
  }
}

template <class V>
void quantised_logits(const HeadLogits& op, ThreadPool& pool) {
  with_integer_dot<V>([&](auto dot) {
    using Dot = decltype(dot);
    const std::int64_t rows = op.index.rows, panels = op.w.panels();
    const QuantisedRows<V, Dot> x =
        quantise_rows<V, Dot>(rows, op.w.inputs, pool, [&](std::int64_t i) { return elements<V>(op.x) + ints(op.index)[i * op.index.stride] * op.x.stride; });
    const std::int64_t panel_block = std::max<std::int64_t>(4, std::min<std::int64_t>(64, (panels + 7) / 8));
    pool.run((panels + panel_block - 1) / panel_block, [&](std::int64_t item) {
      const std::int64_t panel = item * panel_block;
      quantised_forward<V, Dot>({elements<V>(op.y), op.y.stride, x, 0, 1, device_pointer<std::uint8_t>(op.w.data), op.w.quantised(), 0, 0, 0}, rows,
                                op.w.maximum_leaves, 0, 8, panel, std::min(panels, panel + panel_block));
    });
  });
}

// `weights` null: they are packed.
template <class V, class W>
void number_logits(const HeadLogits& op, ThreadPool& pool, const W* weights) {
  using Elem = typename V::Elem;
  const std::int64_t rows = op.index.rows, inputs = op.w.inputs, panels = op.w.panels();
  const std::int64_t row_block = 48, row_blocks = (rows + row_block - 1) / row_block;
  const std::int64_t panel_block = row_blocks >= pool.threads() * 2 ? panels : std::max<std::int64_t>(8, (panels + 7) / 8);
  const std::int64_t panel_blocks = (panels + panel_block - 1) / panel_block;
  pool.run(row_blocks * panel_blocks, [&](std::int64_t item) {
    const std::int64_t begin = item / panel_blocks * row_block, count = std::min(rows - begin, row_block);
    const std::int64_t panel = item % panel_blocks * panel_block, panel_end = std::min(panels, panel + panel_block);
    Elem* chosen = thread_scratch<Elem>(static_cast<std::size_t>(count * inputs));
    for (std::int64_t i = 0; i < count; ++i) {
      const Elem* x = elements<V>(op.x) + ints(op.index)[(begin + i) * op.index.stride] * op.x.stride;
      if (op.round_input_bf16) round_rows<V>(chosen + i * inputs, x, inputs, 1, inputs);
      else std::copy(x, x + inputs, chosen + i * inputs);
    }
    const Product<V, W> product{elements<V>(op.y) + begin * op.y.stride, op.y.stride, chosen, inputs, weights, inputs, op.w.outputs, 0, 0, 0, false};
    if constexpr (std::is_same_v<W, Elem>)
      if (!weights)
        return low_bit_forward<V>(product, device_pointer<std::uint8_t>(op.w.data), low_bit_shape(op.w), count, op.w.maximum_leaves, 0, 8, panel, panel_end);
    product_forward<V, W>(product, count, op.w.maximum_leaves, 0, 8, panel, panel_end);
  });
}

template <class V>
void head_logits(const HeadLogits& op, ThreadPool& pool) {
  if (is_low_bit_format(op.w.bits)) return number_logits<V, typename V::Elem>(op, pool, nullptr);
  if (op.w.bits) return quantised_logits<V>(op, pool);
  with_stored<V>(op.w.data, [&](const auto* weights) { number_logits<V, std::remove_cv_t<std::remove_pointer_t<decltype(weights)>>>(op, pool, weights); });
}

LOCKSTEP_INSTANTIATE(head_loss, HeadLoss)
LOCKSTEP_INSTANTIATE(head_weight, HeadWeight)
LOCKSTEP_INSTANTIATE(head_logits, HeadLogits)
LOCKSTEP_INSTANTIATE(head_shard_sums, HeadShardSums)
LOCKSTEP_INSTANTIATE(head_shard_loss, HeadShardLoss)
LOCKSTEP_INSTANTIATE(head_shard_gradient, HeadShardGradient)
LOCKSTEP_INSTANTIATE(head_shard_entropy, HeadShardEntropy)
LOCKSTEP_INSTANTIATE(head_shard_taught, HeadShardTaught)
LOCKSTEP_INSTANTIATE(head_shard_divergence, HeadShardDivergence)

}  // namespace lockstep
