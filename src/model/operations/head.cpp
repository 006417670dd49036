#include "model/operations/head.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/launch.h"
#include "model/operations/low_rank.h"
#include "model/operations/ranks.h"
#include "model/sharding.h"
#include "numerics/form.h"
#include "numerics/low_bit.h"

namespace lockstep {

namespace {
// Some rows of the head's.
struct HeadRows {
  std::int64_t begin, count;
  View of(const View& v) const { return v ? v.row_range(begin, count) : View{}; }
};

// A head's logits and their backward, where the fused kernels do not apply: of this rank's tokens; without ranks of all.
class HeadForm {
 public:
  HeadForm(Context& ctx, const HeadLoss& head, ParameterId id)
      : ctx_(ctx), head_(head), id_(id), sharding_(split_of(ctx, id) == ParameterSplit::vocabulary ? ctx.sharding() : nullptr) {}
  virtual ~HeadForm() = default;
  std::int64_t vocabulary() const { return sharding_ ? sharding_->bounds(id_)->back() : head_.w.outputs; }
  std::int64_t leaves() const { return leaf_count(vocabulary(), head_.w.maximum_leaves); }
  std::int64_t own_leaves() const { return sharding_ ? sharding_->own_leaves(id_) * sharding_->inner_leaves(id_) : leaves(); }
  std::int64_t first() const { return sharding_ ? sharding_->begin(id_) : 0; }  // token of this rank's
  // This rank's columns of a buffer with `width` columns a leaf; and those of all ranks.
  View own(const View& all, std::int64_t width) const { return own_columns(ctx_, all, columns(width)); }
  void gather(const View& all, std::int64_t width) const {
    if (sharding_) gather_columns(ctx_, all, own(all, width), columns(width));
  }
  virtual void logits(const View& z, const HeadRows& rows) {
    LinearForward forward{z, rows.of(head_.x), head_.w};
    forward.round_input_bf16 = head_.round_input_bf16;
    ctx_.launch(&KernelTable::linear_forward, forward);
  }
  // Fills the rows of head.dx.
  virtual void input_gradient(const View& dz, const HeadRows& rows) {
    const View dx = rows.of(head_.dx);
    if (own_leaves() > 0) ctx_.launch(&KernelTable::linear_backward_input, LinearBackwardInput{dx, dz, sharding_ ? packed_share(ctx_, id_) : head_.w});
    if (sharding_) join_leaves(ctx_, dx, id_);
  }
  virtual void finish(const View& log_sum, const View& slope) {}  // after all rows

 protected:
  ColumnSplit columns(std::int64_t width) const {
    return sharding_ ? sharding_->columns(sharding_->leaves(id_), sharding_->inner_leaves(id_) * width) : nullptr;
  }
  Context& ctx_;
  const HeadLoss& head_;
  ParameterId id_;
  const Sharding* sharding_;  // null: every rank has all tokens
};

// Tokens [begin, begin + count) of a head in panels; begin is a multiple of 16.
PackedWeight tokens_of(const PackedWeight& w, std::int64_t begin, std::int64_t count) {
  if (begin == 0 && count == w.outputs) return w;
  PackedWeight part = w;
  part.outputs = count;
  if (is_low_bit_format(w.bits)) {
    const std::int64_t panel = LowBitShape{16, w.inputs, static_cast<LowBitFormat>(w.bits)}.bytes();
    part.data = w.data.block(0, 1, begin / 16 * panel, part.panels() * panel);
    return part;
  }
  part.data = w.data.block(0, 1, begin * w.inputs, part.packed_size());
  return part;
}

class AdaptedHead final : public HeadForm {
 public:
  AdaptedHead(Context& ctx, const HeadLoss& head, ParameterId id, const AdapterRows& adapter, const View& segment)
      : HeadForm(ctx, head, id), adapter_(adapter), segment_(segment) {
    adapter_pair(*adapter.weights, id, ctx.profile(), pair_);
    u_ = ctx.allocate(DType::f32, head.x.rows, pair_.rank());
    if (head.dx) du_ = ctx.allocate(DType::f32, head.x.rows, pair_.rank());
    ctx.launch(&KernelTable::linear_forward, adapter_down(u_.view(), head.x, pair_));
  }
  void logits(const View& z, const HeadRows& rows) override {
    HeadForm::logits(z, rows);
    ctx_.launch(&KernelTable::linear_forward, adapter_up(z, rows.of(u_.view()), pair_));
  }
  void input_gradient(const View& dz, const HeadRows& rows) override {
    const View dx = rows.of(head_.dx), du = rows.of(du_.view());
    HeadForm::input_gradient(dz, rows);
    launch_down_gradient(ctx_, du, dz, id_, pair_);
    ctx_.launch(&KernelTable::linear_backward_input, adapter_input_gradient(dx, du, pair_));
  }
  // The gradient of B, some tokens at a time, from recomputed logits: dB[v] = sum of dz[t, v] u[t].
  void finish(const View& log_sum, const View& slope) override {
    if (!head_.dx || !adapter_.gradients) return;
    GradientSet& gradients = *adapter_.gradients;
    ctx_.launch(&KernelTable::linear_backward_weight, adapter_weight_gradient(gradients, pair_.a_id, pair_.a, du_.view(), head_.x, segment_));
    const std::int64_t rows = head_.x.rows, tokens = pair_.b.outputs;  // this rank's
    const std::int64_t step = std::min((tokens + 15) / 16 * 16, std::max<std::int64_t>(16, kLogitsAtOnce / rows / 16 * 16));
    if (tokens == 0) return;
    const Buffer logits = ctx_.allocate(DType::f32, rows, step, MemoryCategory::workspace);
    const View entropy = head_.entropy_slope ? head_.entropy : View{};
    for (std::int64_t begin = 0; begin < tokens; begin += step) {
      const std::int64_t count = std::min(step, tokens - begin);
      const View z = logits.view().column_range(0, count);
      LinearForward forward{z, head_.x, tokens_of(head_.w, begin, count)};
      forward.round_input_bf16 = head_.round_input_bf16;
      ctx_.launch(&KernelTable::linear_forward, forward);
      AdapterPair part = pair_;
      part.b = tokens_of(pair_.b, begin, count);
      ctx_.launch(&KernelTable::linear_forward, adapter_up(z, u_.view(), part));
      HeadShardGradient gradient{z, {}, log_sum, slope, head_.target, first() + begin, true, entropy, head_.entropy_slope, head_.distribution, false};
      ctx_.launch(&KernelTable::head_shard_gradient, gradient);
      LinearBackwardWeight db = adapter_weight_gradient(gradients, pair_.b_id, part.b, z, u_.view(), segment_);
      db.bins = db.bins.block(0, 1, begin * pair_.rank(), db.w.packed_size());
      ctx_.launch(&KernelTable::linear_backward_weight, db);
    }
  }

 private:
  static constexpr std::int64_t kLogitsAtOnce = std::int64_t{1} << 20;
  const AdapterRows& adapter_;
  View segment_;
  AdapterPair pair_;
  Buffer u_, du_;
};

// The teacher's weight is cut between panels, where the student's shares begin. All ranks find the same.
void check_whole_panels(const std::vector<std::int64_t>& bounds) {
  for (const std::int64_t begin : bounds)
    if (begin < bounds.back() && begin % 16 != 0)
      fail(ErrorCode::unsupported,
           "the divergence from a teacher is over shares of whole groups of 16 tokens, and of {} tokens one begins at {}; allowed is tp=1", bounds.back(),
           begin);
}

// Rows with a teacher, between their logits z, whose log-sums are known, and the gradient of their hidden states: losses, slopes, and with a gradient dz in the
// place of z. The teacher's whole head is in memory, of which this makes the logits of the student's own tokens.
void divergence_by_leaves(Context& ctx, const HeadLoss& head, const HeadForm& form, const HeadRows& rows, const View& z, const View& log_sum,
                          const View& slope) {
  const std::int64_t leaves = form.leaves(), width = 2 + head.target.cols, sums_a_leaf = divergence_sums(head.teacher.divergence);
  const bool own = form.own_leaves() > 0;
  const auto buffer = [&](std::int64_t cols) { return ctx.allocate(DType::f32, rows.count, cols, MemoryCategory::workspace); };
  HeadTeacher teacher = head.teacher;
  teacher.log_sum = rows.of(teacher.log_sum), teacher.centre = rows.of(teacher.centre);
  const View y = teacher.logits_chunk.row_range(0, rows.count), target = rows.of(head.target), flags = rows.of(head.flags);
  const Buffer sums = buffer(width * leaves), divergences = buffer(sums_a_leaf * leaves), slopes = buffer(head.target.cols),
               logprobs = buffer(head.target.cols);
  if (own) {
    LinearForward forward{y, rows.of(teacher.x), tokens_of(teacher.w, form.first(), z.cols)};
    forward.round_input_bf16 = teacher.round_input_bf16;
    ctx.launch(&KernelTable::linear_forward, forward);
    ctx.launch(&KernelTable::head_shard_sums, HeadShardSums{form.own(sums.view(), width), y, target, form.first(), form.own_leaves()});
  }
  form.gather(sums.view(), width);
  ctx.launch(&KernelTable::head_shard_loss,
             HeadShardLoss{teacher.log_sum, slopes.view(), logprobs.view(), {}, {}, flags, {}, sums.view(), target, form.vocabulary()});
  if (own) ctx.launch(&KernelTable::head_shard_taught, HeadShardTaught{z, y, form.own(divergences.view(), sums_a_leaf), log_sum, {}, target, teacher});
  form.gather(divergences.view(), sums_a_leaf);
  ctx.launch(&KernelTable::head_shard_divergence,
             HeadShardDivergence{rows.of(head.loss), slope, flags, divergences.view(), target, head.objective.row_range(rows.begin, rows.count), teacher});
  if (own && head.dx) ctx.launch(&KernelTable::head_shard_taught, HeadShardTaught{z, y, {}, log_sum, slope, target, teacher});
}

// The kernel head_loss in steps, leaf by leaf.
void loss_by_leaves(Context& ctx, const HeadLoss& head, HeadForm& form) {
  const std::int64_t count = head.x.rows, targets = head.target.cols, leaves = form.leaves(), own_leaves = form.own_leaves();
  const Buffer own_log_sum = head.log_sum ? Buffer() : ctx.allocate(DType::f32, count, 1),
               own_slope = head.slope ? Buffer() : ctx.allocate(DType::f32, count, targets);
  const View log_sums = head.log_sum ? head.log_sum : own_log_sum.view(), slopes = head.slope ? head.slope : own_slope.view();
  for (std::int64_t begin = 0; begin < count; begin += head.logits_chunk.rows) {
    const HeadRows rows{begin, std::min(count - begin, head.logits_chunk.rows)};
    const auto buffer = [&](std::int64_t cols) { return ctx.allocate(DType::f32, rows.count, cols, MemoryCategory::workspace); };
    const RowDistribution distribution = head.distribution.row_range(rows.begin, rows.count);
    const std::int64_t places = std::min(distribution.most_kept, form.vocabulary() / leaves);  // of kept logits a leaf
    const Buffer sums = buffer((2 + targets) * leaves), entropies = buffer(leaves), kept_logits = distribution.kept ? buffer(places * leaves) : Buffer();
    const View kept = kept_logits.view(), own_kept = kept ? form.own(kept, places) : View{};
    const View z = head.logits_chunk.row_range(0, rows.count), target = rows.of(head.target), log_sum = rows.of(log_sums), slope = rows.of(slopes);
    const View entropy = rows.of(head.entropy), entropy_slope = rows.of(head.entropy_slope), loss = rows.of(head.loss);
    if (own_leaves > 0) {
      form.logits(z, rows);
      ctx.launch(&KernelTable::head_shard_sums, HeadShardSums{form.own(sums.view(), 2 + targets), z, target, form.first(), own_leaves, distribution, own_kept});
    }
    form.gather(sums.view(), 2 + targets);
    if (kept) form.gather(kept, places);
    ctx.launch(&KernelTable::head_shard_loss,
               HeadShardLoss{log_sum, slope, rows.of(head.logprob), loss, rows.of(head.marks), rows.of(head.flags), entropy_slope, sums.view(), target,
                             form.vocabulary(), head.objective.row_range(rows.begin, rows.count), distribution, kept, head.w.maximum_leaves});
    // Gradients with an entropy bonus wait for the entropy, those from a teacher for its logits.
    const bool gradient = static_cast<bool>(head.dx), bonus = gradient && entropy_slope, taught = static_cast<bool>(head.teacher);
    if (own_leaves > 0)
      ctx.launch(
          &KernelTable::head_shard_gradient,
          HeadShardGradient{z, form.own(entropies.view(), 1), log_sum, slope, target, form.first(), gradient && !bonus && !taught, {}, {}, distribution});
    if (entropy) {
      form.gather(entropies.view(), 1);
      ctx.launch(&KernelTable::head_shard_entropy,
                 HeadShardEntropy{entropy, entropies.view(), log_sum, target, loss, entropy_slope, distribution, kept, head.w.maximum_leaves});
    }
    if (bonus && own_leaves > 0)
      ctx.launch(&KernelTable::head_shard_gradient, HeadShardGradient{z, {}, log_sum, slope, target, form.first(), true, entropy, entropy_slope, distribution});
    if (taught) divergence_by_leaves(ctx, head, form, rows, z, log_sum, slope);
    if (gradient) form.input_gradient(z, rows);
  }
  form.finish(log_sums, slopes);
}
}  // namespace

void head_loss(Context& ctx, const HeadLoss& head, ParameterId id, const AdapterRows* adapter, const View& segment) {
  const bool adapted = adapter && adapter->weights->layout->place(id).a >= 0, sharded = split_of(ctx, id) == ParameterSplit::vocabulary;
  if (head.teacher && adapted)
    fail(ErrorCode::unsupported,
         "the divergence from a teacher is of a head without an adapter, and one trains this head (unembedding); allowed is an adapter of other layers");
  if (head.teacher && sharded) check_whole_panels(*ctx.sharding()->bounds(id));
  if (adapted) {
    AdaptedHead form(ctx, head, id, *adapter, segment);
    loss_by_leaves(ctx, head, form);
  } else if (sharded) {
    HeadForm form(ctx, head, id);
    loss_by_leaves(ctx, head, form);
  } else {
    ctx.launch(&KernelTable::head_loss, head);
  }
}

void head_weight(Backend& backend, const HeadWeight& all) {
  // Twice as long as others, since what a kernel reads of x serves all of its panels.
  const std::int64_t panels = all.w.panels(), step = backend.rows_a_kernel(panels, all.x.rows * all.w.inputs * 16, 8);
  for (std::int64_t first = 0; first < panels; first += step) {
    const std::int64_t count = std::min(panels - first, step), size = all.w.inputs * 16;
    HeadWeight part = all;
    part.w = tokens_of(all.w, first * 16, std::min(all.w.outputs - first * 16, count * 16));
    part.first = all.first + first * 16;
    if (all.teacher) part.teacher.w = tokens_of(all.teacher.w, part.first, part.w.outputs);
    if (all.gradient) part.gradient = all.gradient.block(0, 1, first * size, count * size);
    if (all.bins) part.bins = all.bins.block(0, 1, first * size, count * size);
    backend.launch(&KernelTable::head_weight, part);
  }
}

void head_logits(Context& ctx, const View& y, const View& hidden, const View& index, ParameterId id) {
  const bool sharded = split_of(ctx, id) == ParameterSplit::vocabulary;
  const ColumnSplit split = sharded ? ctx.sharding()->bounds(id) : nullptr;
  const View own = own_columns(ctx, y, split);
  if (own.cols > 0) ctx.launch(&KernelTable::head_logits, HeadLogits{own, hidden, index, ctx.packed(id), ctx.profile().bf16_activations});
  if (split) gather_columns(ctx, y, own, split);
}

void add_adapter_logits(Context& ctx, const View& y, const View& hidden, const View& index, ParameterId id, const AdapterWeights* adapter) {
  AdapterPair pair;
  if (!adapter || !adapter_pair(*adapter, id, ctx.profile(), pair)) return;
  const Buffer x = ctx.allocate(DType::f32, y.rows, hidden.cols), u = ctx.allocate(DType::f32, y.rows, pair.rank());
  ctx.launch(&KernelTable::gather_rows, GatherRows{x.view(), hidden, index});
  ctx.launch(&KernelTable::linear_forward, adapter_down(u.view(), x.view(), pair));
  const ColumnSplit split = split_of(ctx, id) == ParameterSplit::vocabulary ? ctx.sharding()->bounds(id) : nullptr;
  const View own = own_columns(ctx, y, split);
  if (own.cols > 0) ctx.launch(&KernelTable::linear_forward, adapter_up(own, u.view(), pair));
  if (split) gather_columns(ctx, y, own, split);
}

void head_input_gradient(Context& ctx, const View& dx, const View& dz, ParameterId id, const AdapterWeights* adapter) {
  const bool sharded = split_of(ctx, id) == ParameterSplit::vocabulary;
  const View own = own_columns(ctx, dz, sharded ? ctx.sharding()->bounds(id) : nullptr);
  if (!sharded || ctx.sharding()->own_leaves(id) > 0)
    ctx.launch(&KernelTable::linear_backward_input, LinearBackwardInput{dx, own, sharded ? packed_share(ctx, id) : ctx.packed(id)});
  if (sharded) join_leaves(ctx, dx, id);
  AdapterPair pair;
  if (!adapter || !adapter_pair(*adapter, id, ctx.profile(), pair)) return;
  const Buffer du = ctx.allocate(DType::f32, dx.rows, pair.rank());
  launch_down_gradient(ctx, du.view(), own, id, pair);
  ctx.launch(&KernelTable::linear_backward_input, adapter_input_gradient(dx, du.view(), pair));
}

}  // namespace lockstep
