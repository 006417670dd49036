#include "model/operations/rope.h"

#include "kernels/launch.h"
#include "model/operations/ranks.h"

namespace lockstep {

namespace {
void launch_columns(Context& ctx, const View& y, const View& x, const RopeColumns& c, bool inverse) {
  if (c.heads == 0 || c.rotary + c.pass == 0) return;  // another rank's heads
  const Rows& rows = inverse ? ctx.batch().tape_rows() : ctx.batch().rows();
  ctx.launch(&KernelTable::rope, Rope{y, x, c.heads, c.rotary, c.pass, c.x_offset, c.x_step, c.y_offset, c.y_step, ctx.rope(c.use).table, rows.position,
                                      inverse, ctx.rope(c.use).half});
}

bool cuts_heads(const ColumnSplit& split, std::int64_t size) {
  if (split)
    for (const std::int64_t b : *split)
      if (b % size) return true;
  return false;
}
}  // namespace

void launch_rope(Context& ctx, const View& y, const View& x, const RopeColumns& columns) { launch_columns(ctx, y, x, columns, false); }
void launch_rope_backward(Context& ctx, const View& dx, const View& dy, const RopeColumns& columns) { launch_columns(ctx, dx, dy, columns.back(), true); }

Tensor rope_heads(Context& ctx, const Tensor& input, std::int64_t all_heads, std::int64_t size, std::int64_t rotary, RopeUse use) {
  const Tensor x = cuts_heads(input.split, size) ? whole(ctx, input) : input;
  const std::int64_t heads = x.split ? x.view().cols / size : all_heads;
  Tensor y = ctx.output_like(x, heads * size);
  y.split = x.split;
  const RopeColumns columns{heads, rotary, size - rotary, 0, size, 0, size, use};
  launch_rope(ctx, y.view(), x.view(), columns);
  ctx.observe("rope_heads", y.view());
  ctx.record(y, {x.linked()}, [&ctx, columns, cols = x.view().cols](const Buffer& dy, const RecordedInputs&) -> InputGradients {
    Buffer dx = ctx.allocate_tape(cols);
    launch_rope_backward(ctx, dx.view(), dy.view(), columns);
    return {dx};
  });
  return y;
}

}  // namespace lockstep
