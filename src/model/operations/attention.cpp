#include "model/operations/attention.h"

#include "kernels/launch.h"
#include "model/operations/attention_observer.h"
#include "model/operations/context_rows.h"
#include "model/operations/key_rows.h"
#include "model/operations/make_rows.h"
#include "model/operations/ranks.h"

namespace lockstep {

namespace {
// A rank's heads, and its columns of per-head activations.
struct HeadShare {
  HeadShare(const Context& ctx, const AttentionShape& all) : shape(all) {
    const bool by_group = all.kv_heads > 1 || !all.value_in_key;
    const std::int64_t groups = by_group ? all.kv_heads : all.heads, heads_a_group = all.heads / groups;
    shape.heads = own_heads(ctx, groups) * heads_a_group;
    if (by_group) shape.kv_heads = own_heads(ctx, groups);
    const auto columns = [&](std::int64_t a_head) { return head_columns(ctx, groups, heads_a_group * a_head); };
    q = columns(all.key), o = columns(all.value), log_sum = columns(1);
    whole_backward = ctx.sharding() && !by_group;
  }
  AttentionShape shape;
  ColumnSplit q, o, log_sum;
  bool whole_backward;
};

// Launches the adjoint; returns the gradient of the entries, one per row.
Buffer launch_attention_backward(Context& ctx, AttentionBackward backward, std::int64_t entry_columns) {
  backward.rows = tape_key_rows(ctx);
  if (const ContextPieces* pieces = ctx.options().pieces)
    return continue_sums(ctx, entry_columns, [&](int slot, int range, const View& of_range) {
      AttentionBackward part = backward;
      part.dentry = of_range;
      part.rows = rows_of_piece(ctx, backward.rows, slot, range);
      part.first_key = pieces->piece(range).begin, part.end_key = pieces->piece(range).end;
      part.continues = true;
      ctx.launch(&KernelTable::attention_backward, part);
    });
  const Batch::KeySums& sums = ctx.batch().key_sums();
  Buffer dentry = ctx.allocate_tape(entry_columns);
  const Buffer of_keys = sums.keys > 0 ? ctx.allocate(DType::f32, sums.keys, entry_columns) : Buffer();
  backward.dentry = of_keys ? of_keys.view() : dentry.view();
  ctx.launch(&KernelTable::attention_backward, backward);
  if (of_keys) ctx.launch(&KernelTable::sum_shared_rows, SumSharedRows{dentry.view(), of_keys.view(), sums.begin, sums.row});
  return dentry;
}
// Deposits the gradient of the sinks, whole on every rank: from this rank's heads (none: dout has no columns), whose columns `split` says.
void deposit_sinks(Context& ctx, ParameterId id, const View& dout, const View& o, const View& log_sum, const ColumnSplit& split) {
  GradientSet* g = ctx.gradients();
  if (!g) return;
  const Buffer own = ctx.allocate_tape(log_sum.cols);
  if (log_sum.cols > 0) ctx.launch(&KernelTable::attention_sinks, AttentionSinks{own.view(), dout, o, log_sum, own_columns(ctx, ctx.weight(id), split)});
  const GatheredColumns all(ctx, own.view(), split);
  ctx.launch(&KernelTable::bias_backward, BiasBackward{g->gradient(id), g->bins(id), g->finish_at_once(), all.view, ctx.batch().tape_rows().segment});
}

// Shows an observer that asks for it what all keys would give beside those of a selection.
void show_total(Context& ctx, int layer, const AttentionForward& selected) {
  auto* const observer = dynamic_cast<AttentionObserver*>(ctx.options().observer);
  if (!observer || !selected.selection || selected.shape.heads == 0) return;
  const Buffer o = ctx.allocate(DType::f32, selected.o.rows, selected.o.cols),
               log_total = ctx.allocate(DType::f32, selected.log_sum.rows, selected.shape.heads);
  AttentionForward all = selected;
  all.o = o.view(), all.log_sum = log_total.view();
  all.selection = all.count = all.keys_read = View();
  ctx.launch(&KernelTable::attention_forward, all);
  observer->attended({layer, selected.selection, selected.log_sum, log_total.view()});
}

// Attention to entries that are already in the cache.
Tensor attend(Context& ctx, const Tensor& all_q, const Tensor& entry, int layer, const Selection* selection, const AttentionShape& all, ParameterId sinks) {
  HeadShare share(ctx, all);
  const Tensor q = cut(ctx, all_q, share.q);
  const View cache = ctx.cache(layer).entry.view();
  const bool dense = !selection || ctx.options().dense_attention;
  const Tensor positions = dense ? Tensor{} : selection->positions, count = dense ? Tensor{} : selection->count;
  Tensor o = ctx.output_like(q, share.shape.heads * all.value);
  o.split = share.o;
  const Tensor log_sum = ctx.output_like(q, share.shape.heads);
  const auto forward = [&](const View& keys_read) {
    return AttentionForward{o.view(),     log_sum.view(), q.view(),    cache,     positions.view(),
                            count.view(), key_rows(ctx),  share.shape, keys_read, sinks >= 0 ? own_columns(ctx, ctx.weight(sinks), share.log_sum) : View()};
  };
  make_rows(ctx, {&o.buffer, &log_sum.buffer}, [&] {
    if (share.shape.heads > 0) ctx.launch(&KernelTable::attention_forward, forward(ctx.counters().keys_read(ctx.batch().count(), share.shape.heads)));
  });
  ctx.observe("attention", o.view(), -1, layer);
  if (ctx.options().observer) show_total(ctx, layer, forward({}));
  if (selection && selection->target.buffer) {  // a sum over all heads in order
    const GatheredColumns sums(ctx, log_sum.view(), share.log_sum), queries(ctx, q.view(), share.q);
    ctx.launch(&KernelTable::attention_target,
               AttentionTarget{selection->target.view(), sums.view, queries.view, cache, positions.view(), count.view(), key_rows(ctx), all});
  }
  const AttentionShape shape = share.whole_backward ? all : share.shape;
  const ColumnSplit heads_of_ranks = share.log_sum;
  if (!share.whole_backward) share.q = share.o = share.log_sum = nullptr;
  // The entries of pieces are gathered anew for each layer.
  const Tensor own_entry = ctx.options().pieces ? entry : entry.linked();
  ctx.record(o, {q, own_entry, o, log_sum, positions, count},
             [&ctx, share, shape, cache, sinks, heads_of_ranks, q_columns = q.view().cols, entry_columns = entry.view().cols](
                 const Buffer& dout, const RecordedInputs& in) -> InputGradients {
               if (sinks >= 0) deposit_sinks(ctx, sinks, dout.view(), in[2], in[3], heads_of_ranks);
               if (ctx.options().pieces && cache.cols > 0) write_rows(ctx, cache, in[1]);  // before gradients have memory
               Buffer dq = ctx.allocate_tape(q_columns);
               if (shape.heads == 0) return {dq, ctx.allocate_tape(entry_columns)};
               const GatheredColumns all_q(ctx, in[0], share.q), all_o(ctx, in[2], share.o), all_dout(ctx, dout.view(), share.o),
                   sums(ctx, in[3], share.log_sum);
               const Buffer all_dq = share.q ? ctx.allocate_tape(all_q.view.cols) : dq;
               Buffer dentry = launch_attention_backward(
                   ctx, {all_dq.view(), {}, all_dout.view, all_o.view, sums.view, all_q.view, cache, in[4], in[5], {}, shape}, entry_columns);
               if (share.q) ctx.backend().stream().copy(dq.view(), own_columns(ctx, all_dq.view(), share.q));
               return {dq, dentry};
             });
  return o;
}
}  // namespace

void write_entries(Context& ctx, const Tensor& entry, int layer) {
  const View cache = ctx.cache(layer).entry.view();
  if (cache.cols > 0) write_rows(ctx, cache, entry.view());
}

Tensor attention(Context& ctx, const Tensor& q, const Tensor& entry, int layer, const Selection* selection, const AttentionShape& shape, ParameterId sinks) {
  write_entries(ctx, entry, layer);
  return attend(ctx, q, entry, layer, selection, shape, sinks);
}

Tensor attention_again(Context& ctx, const Tensor& q, const Tensor& entry, int layer, const Selection* selection, const AttentionShape& shape) {
  return attend(ctx, q, entry, layer, selection, shape, -1);
}

}  // namespace lockstep
