#include "model/adapter_head.h"

#include <algorithm>

#include "numerics/form.h"
#include "numerics/packed.h"

namespace lockstep {

namespace {
constexpr std::int64_t kLogitsAtOnce = std::int64_t{1} << 20;

// Tokens [begin, begin + count) of a packed head; begin is a multiple of 16.
PackedWeight tokens_of(const PackedWeight& w, std::int64_t begin, std::int64_t count) {
  if (begin == 0 && count == w.outputs) return w;
  PackedWeight part = w;
  part.outputs = count;
  if (is_packed_format(w.bits)) {
    const std::int64_t panel = PackedShape{16, w.inputs, static_cast<PackedFormat>(w.bits)}.bytes();
    part.data = w.data.block(0, 1, begin / 16 * panel, part.panels() * panel);
    return part;
  }
  part.data = w.data.block(0, 1, begin * w.inputs, part.packed_size());
  return part;
}

void launch_logits(Context& context, const HeadLoss& head, const View& z, const View& x, const View& u, const PackedWeight& w, AdapterPair pair,
                   std::int64_t first, std::int64_t count) {
  LinearForward forward{z, x, tokens_of(w, first, count)};
  forward.round_input_bf16 = head.round_input_bf16;
  context.backend().launch(&KernelTable::linear_forward, forward);
  pair.b = tokens_of(pair.b, first, count);
  context.backend().launch(&KernelTable::linear_forward, adapter_up(z, u, pair));
}

// The gradient of B, some tokens at a time, from logits made again: dB[v] = sum of dz[t, v] u[t].
void deposit_tokens(Context& context, const HeadLoss& head, const View& log_sum, const View& slope, const View& u, const AdapterPair& pair,
                    GradientSet& gradients, const View& segment) {
  const std::int64_t rows = head.x.rows, vocabulary = head.w.outputs;
  const std::int64_t step = std::min((vocabulary + 15) / 16 * 16, std::max<std::int64_t>(16, kLogitsAtOnce / rows / 16 * 16));
  const Buffer logits = context.allocate(DType::f32, rows, step, MemoryCategory::workspace);
  for (std::int64_t first = 0; first < vocabulary; first += step) {
    const std::int64_t count = std::min(step, vocabulary - first);
    const View z = logits.view().column_range(0, count);
    launch_logits(context, head, z, head.x, u, head.w, pair, first, count);
    context.backend().launch(&KernelTable::head_shard_gradient, HeadShardGradient{z, {}, log_sum, slope, head.target, first, true, head.entropy_slope ? head.entropy : View{}, head.entropy_slope});
    LinearBackwardWeight db = adapter_weight_gradient(gradients, pair.b_id, tokens_of(pair.b, first, count), z, u, segment);
    db.bins = db.bins.block(0, 1, first * pair.rank(), db.w.packed_size());
    context.backend().launch(&KernelTable::linear_backward_weight, db);
  }
}
}  // namespace

bool adapts_head(const AdapterWeights* adapter, ParameterId id) { return adapter && adapter->layout->place(id).a >= 0; }

void adapter_head_loss(Context& context, const HeadLoss& head, ParameterId id, const AdapterRows& rows, const View& segment) {
  Backend& backend = context.backend();
  AdapterPair pair;
  adapter_pair(*rows.weights, id, context.profile(), pair);
  const std::int64_t count = head.x.rows, vocabulary = head.w.outputs, leaves = leaf_count(vocabulary, head.w.maximum_leaves);
  const auto columns = [&](std::int64_t n) { return context.allocate(DType::f32, count, n); };
  const Buffer own_log_sum = head.log_sum ? Buffer() : columns(1), own_slope = head.slope ? Buffer() : columns(head.target.cols);
  const View log_sum = head.log_sum ? head.log_sum : own_log_sum.view(), slope = head.slope ? head.slope : own_slope.view();
  const Buffer u = context.allocate(DType::f32, count, pair.rank()), du = head.dx ? context.allocate(DType::f32, count, pair.rank()) : Buffer();
  backend.launch(&KernelTable::linear_forward, adapter_down(u.view(), head.x, pair));
  for (std::int64_t begin = 0; begin < count; begin += head.logits_chunk.rows) {
    const std::int64_t n = std::min(count - begin, head.logits_chunk.rows);
    const auto part = [&](const View& v) { return v ? v.row_range(begin, n) : View{}; };
    const View z = head.logits_chunk.row_range(0, n), target = part(head.target);
    launch_logits(context, head, z, part(head.x), part(u.view()), head.w, pair, 0, vocabulary);
    const std::int64_t targets = head.target.cols;
    const Buffer sums = context.allocate(DType::f32, n, (2 + targets) * leaves, MemoryCategory::workspace), entropies = context.allocate(DType::f32, n, leaves, MemoryCategory::workspace);
    const View entropy = part(head.entropy), entropy_slope = part(head.entropy_slope), loss = part(head.loss);
    backend.launch(&KernelTable::head_shard_sums, HeadShardSums{sums.view(), z, target, 0, leaves});
    backend.launch(&KernelTable::head_shard_loss, HeadShardLoss{part(log_sum), part(slope), part(head.logprob), loss, part(head.marks), part(head.flags), entropy_slope, sums.view(), target,
                                                                vocabulary, head.objective.row_range(begin, n)});
    // Gradients with an entropy bonus wait for the entropy.
    const bool gradient = static_cast<bool>(head.dx), bonus = gradient && entropy_slope;
    backend.launch(&KernelTable::head_shard_gradient, HeadShardGradient{z, entropies.view(), part(log_sum), part(slope), target, 0, gradient && !bonus});
    if (entropy) backend.launch(&KernelTable::head_shard_entropy, HeadShardEntropy{entropy, entropies.view(), part(log_sum), target, loss, entropy_slope});
    if (bonus) backend.launch(&KernelTable::head_shard_gradient, HeadShardGradient{z, {}, part(log_sum), part(slope), target, 0, true, entropy, entropy_slope});
    if (!head.dx) continue;
    backend.launch(&KernelTable::linear_backward_input, LinearBackwardInput{part(head.dx), z, head.w});
    backend.launch(&KernelTable::linear_backward_input, adapter_down_gradient(part(du.view()), z, pair));
    LinearBackwardInput to_x{part(head.dx), part(du.view()), pair.a};
    to_x.accumulate = true;
    backend.launch(&KernelTable::linear_backward_input, to_x);
  }
  if (!head.dx || !rows.gradients) return;
  backend.launch(&KernelTable::linear_backward_weight, adapter_weight_gradient(*rows.gradients, pair.a_id, pair.a, du.view(), head.x, segment));
  deposit_tokens(context, head, log_sum, slope, u.view(), pair, *rows.gradients, segment);
}

void adapter_head_logits(Context& context, const View& y, const View& hidden, const View& index, ParameterId id, const AdapterWeights& adapter) {
  AdapterPair pair;
  if (!adapter_pair(adapter, id, context.profile(), pair)) return;
  const Buffer x = context.allocate(DType::f32, y.rows, hidden.cols), u = context.allocate(DType::f32, y.rows, pair.rank());
  context.backend().launch(&KernelTable::gather_rows, GatherRows{x.view(), hidden, index});
  context.backend().launch(&KernelTable::linear_forward, adapter_down(u.view(), x.view(), pair));
  context.backend().launch(&KernelTable::linear_forward, adapter_up(y, u.view(), pair));
}

}  // namespace lockstep
