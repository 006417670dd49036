#include "model/operations/index_select.h"

#include "kernels/launch.h"
#include "model/operations/context_rows.h"
#include "model/operations/index_loss.h"
#include "model/operations/key_rows.h"

namespace lockstep {

void write_index_keys(Context& ctx, const Tensor& k, int layer) { write_rows(ctx, ctx.cache(layer).index_key.view(), k.view()); }

Selection index_select(Context& ctx, const Tensor& q, const Tensor& w, const Tensor& k, int layer, std::int64_t heads, std::int64_t size, std::int64_t top_k) {
  const Batch& batch = ctx.batch();
  const View cache = ctx.cache(layer).index_key.view();
  write_index_keys(ctx, k, layer);
  Selection selection;
  const bool dense = ctx.options().dense_attention;
  if (!dense) {
    selection.positions = of_rows(batch, ctx.allocate(DType::i32, batch.count(), top_k));
    selection.count = of_rows(batch, ctx.allocate(DType::i32, batch.count(), 1));
    ctx.launch(&KernelTable::index_select,
               IndexSelect{selection.positions.view(), selection.count.view(), ctx.flags(), q.view(), w.view(), cache, key_rows(ctx), heads, size, top_k});
    ctx.observe("index_select", selection.positions.view(), -1, layer);
  }
  if (learns_index(ctx)) record_index_loss(ctx, q, w, k, layer, heads, size, selection);
  return selection;
}

}  // namespace lockstep
