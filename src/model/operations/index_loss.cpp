#include "model/operations/index_loss.h"

#include "kernels/launch.h"
#include "model/operations/context_rows.h"
#include "model/operations/key_rows.h"

namespace lockstep {

void record_index_loss(Context& ctx, const Tensor& q, const Tensor& w, const Tensor& k, int layer, std::int64_t heads, std::int64_t size,
                       Selection& selection) {
  const Batch& batch = ctx.batch();
  const View cache = ctx.cache(layer).index_key.view();
  Tensor target = std::move(selection.target);
  selection.target = {};
  if (!target.buffer) {
    const std::int64_t keys = ctx.options().dense_attention ? batch.longest() : selection.positions.view().cols;
    target = selection.target = of_rows(batch, ctx.backend().device().allocate_zero(DType::f32, batch.count(), keys, MemoryCategory::activations));
  }
  ctx.losses().push_back(ctx.allocate_tape(1));
  // Runs in the backward, after every layer that shares the selection has added its probabilities to the target.
  ctx.record_loss({q, w, k, target, selection.positions, selection.count},
                  [&ctx, cache, heads, size, loss = ctx.losses().back(), dq_columns = q.view().cols, dw_columns = w.view().cols, dk_columns = k.view().cols](
                      const Buffer&, const RecordedInputs& in) -> InputGradients {
                    Buffer dq = ctx.allocate_tape(dq_columns), dw = ctx.allocate_tape(dw_columns);
                    const auto launch = [&](const View& dk, const Rows& rows, bool continues) {
                      ctx.launch(&KernelTable::index_loss, IndexLoss{dq.view(), dw.view(), dk, loss.view(), in[0], in[1], cache, in[3], in[4], in[5], rows,
                                                                     heads, size, ctx.options().index_loss_weight, continues});
                    };
                    if (ctx.options().pieces) {
                      write_rows(ctx, cache, in[2]);
                      Buffer dk = continue_all_sums(ctx, dk_columns,
                                                    [&](int slot, const View& sums) { launch(sums, rows_of_piece(ctx, tape_key_rows(ctx), slot, 0), true); });
                      return {dq, dw, dk};
                    }
                    Buffer dk = ctx.allocate_tape(dk_columns);
                    launch(dk.view(), tape_key_rows(ctx), false);
                    return {dq, dw, dk};
                  });
}

}  // namespace lockstep
