#include "model/operations/mla_values.h"

#include "kernels/launch.h"
#include "model/operations/linear.h"
#include "model/operations/ranks.h"

namespace lockstep {

namespace {
// Adds the adapters' part to y: o [T, H * L] -> y [T, H * v], one A for all heads.
void values_adapters(Context& ctx, const View& y, const View& o, ParameterId w_uv) {
  each_adapter(ctx, w_uv, [&](const AdapterRows& rows, const AdapterPair& pair) {
    const std::int64_t n = rows.end - rows.begin, heads = pair.b.count;
    if (heads == 0) return;
    const Buffer u = ctx.allocate(DType::f32, n, heads * pair.rank());
    ctx.launch(&KernelTable::linear_forward, adapter_down(head_by_head(u.view(), heads), head_by_head(forward_part(o, rows), heads), pair));
    LinearForward up = adapter_up(forward_part(y, rows), u.view(), pair);
    up.x_step = pair.rank();
    up.y_step = pair.b.outputs;
    ctx.launch(&KernelTable::linear_forward, up);
  });
}

void values_adapters_backward(Context& ctx, const View& all_dx, const View& all_dy, const View& all_o, ParameterId w_uv) {
  each_adapter(ctx, w_uv, [&](const AdapterRows& rows, const AdapterPair& pair) {
    const std::int64_t n = rows.tape_end - rows.tape_begin, heads = pair.b.count, rank = pair.rank();
    const View dy = tape_part(all_dy, rows), o = tape_part(all_o, rows);
    const Buffer du = ctx.allocate(DType::f32, n, heads * rank);
    if (heads > 0) {
      LinearBackwardInput down_gradient = adapter_down_gradient(du.view(), dy, pair);
      down_gradient.x_step = rank;
      down_gradient.y_step = pair.b.outputs;
      ctx.launch(&KernelTable::linear_backward_input, down_gradient);
      if (all_dx)
        ctx.launch(&KernelTable::linear_backward_input,
                   adapter_input_gradient(head_by_head(tape_part(all_dx, rows), heads), head_by_head(du.view(), heads), pair));
      if (rows.gradients) {
        const Buffer u = ctx.allocate(DType::f32, n, heads * rank);
        ctx.launch(&KernelTable::linear_forward, adapter_down(head_by_head(u.view(), heads), head_by_head(o, heads), pair));
        LinearBackwardWeight db = adapter_weight_gradient(*rows.gradients, pair.b_id, pair.b, dy, u.view(), tape_part(ctx.batch().tape_rows().segment, rows));
        db.x_step = rank;
        db.y_step = pair.b.outputs;
        ctx.launch(&KernelTable::linear_backward_weight, db);
      }
    }
    if (rows.gradients) deposit_shared_a(ctx, rows, pair, du.view(), o, all_items(ctx, w_uv), pair.a.inputs);
  });
}
}  // namespace

Tensor mla_values(Context& ctx, const Tensor& input, ParameterId w_uv) {
  const Parameter& p = ctx.parameter(w_uv);
  const std::int64_t heads = all_items(ctx, w_uv);
  const Tensor o = cut(ctx, input, head_columns(ctx, heads, p.inputs));
  AdapterRule adapters;
  if (adapted(ctx, w_uv))
    adapters = {[&ctx, w_uv](const View& y, const View& x) { values_adapters(ctx, y, x, w_uv); },
                [&ctx, w_uv](const View& dx, const View& dy, const View& x) { values_adapters_backward(ctx, dx, dy, x, w_uv); }};
  Tensor y = product(ctx, o, w_uv, {.x_step = p.inputs, .y_step = p.outputs}, adapters);
  y.split = head_columns(ctx, heads, p.outputs);
  ctx.observe("mla_values", y.view(), w_uv);
  return y;
}

}  // namespace lockstep
