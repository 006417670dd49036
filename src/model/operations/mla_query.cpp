#include "model/operations/mla_query.h"

#include "kernels/launch.h"
#include "model/operations/linear.h"
#include "model/operations/make_rows.h"
#include "model/operations/ranks.h"
#include "model/operations/rope.h"

namespace lockstep {

namespace {
// q [T, H * (nope + R)] -> y [T, H * (L + R)]: y's latent columns += (s (q B)) A, where the absorbed query is q W.
void query_adapters(Context& ctx, const View& y, const View& q, ParameterId w_uk, std::int64_t rotary) {
  each_adapter(ctx, w_uk, [&](const AdapterRows& rows, const AdapterPair& pair) {
    const std::int64_t n = rows.end - rows.begin, heads = pair.b.count, latent = pair.a.inputs, nope = pair.b.outputs, rank = pair.rank();
    if (heads == 0) return;
    const Buffer u = ctx.allocate(DType::f32, n, heads * rank);
    LinearBackwardInput down = adapter_down_gradient(u.view(), forward_part(q, rows), pair);
    down.x_step = rank;
    down.y_step = nope + rotary;
    ctx.launch(&KernelTable::linear_backward_input, down);
    ctx.launch(&KernelTable::linear_backward_input,
               adapter_input_gradient(head_by_head(forward_part(y, rows), heads).column_range(0, latent), head_by_head(u.view(), heads), pair));
  });
}

void query_adapters_backward(Context& ctx, const View& all_dq, const View& all_dy, const View& all_q, ParameterId w_uk, std::int64_t rotary) {
  each_adapter(ctx, w_uk, [&](const AdapterRows& rows, const AdapterPair& pair) {
    const std::int64_t n = rows.tape_end - rows.tape_begin, heads = pair.b.count, latent = pair.a.inputs, nope = pair.b.outputs, rank = pair.rank();
    const View q = tape_part(all_q, rows), dy = tape_part(all_dy, rows);
    if (heads > 0) {
      const Buffer du = ctx.allocate(DType::f32, n, heads * rank);
      ctx.launch(&KernelTable::linear_forward, adapter_down(head_by_head(du.view(), heads), head_by_head(dy, heads).column_range(0, latent), pair));
      LinearForward to_q = adapter_up(tape_part(all_dq, rows), du.view(), pair);
      to_q.x_step = rank;
      to_q.y_step = nope + rotary;
      ctx.launch(&KernelTable::linear_forward, to_q);
      if (rows.gradients) {
        LinearBackwardWeight db = adapter_weight_gradient(*rows.gradients, pair.b_id, pair.b, q, du.view(), tape_part(ctx.batch().tape_rows().segment, rows));
        db.x_step = rank;
        db.y_step = nope + rotary;
        ctx.launch(&KernelTable::linear_backward_weight, db);
      }
    }
    if (!rows.gradients) return;
    const Buffer u = ctx.allocate(DType::f32, n, heads * rank);
    LinearBackwardInput down = adapter_down_gradient(u.view(), q, pair);
    down.x_step = rank;
    down.y_step = nope + rotary;
    if (heads > 0) ctx.launch(&KernelTable::linear_backward_input, down);
    deposit_shared_a(ctx, rows, pair, u.view(), dy, all_items(ctx, w_uk), latent + rotary);
  });
}
}  // namespace

Tensor mla_query(Context& ctx, const Tensor& input, ParameterId w_uk, std::int64_t rotary) {
  const Parameter& p = ctx.parameter(w_uk);  // heads items of [latent, nope]
  const std::int64_t all_heads = all_items(ctx, w_uk), x_step = p.inputs + rotary, y_step = p.outputs + rotary;
  const Tensor q = cut(ctx, input, head_columns(ctx, all_heads, x_step));
  Tensor y = ctx.output_like(q, p.count * y_step);
  y.split = head_columns(ctx, all_heads, y_step);
  LinearForward absorb{y.view(), q.view(), ctx.packed(w_uk), x_step, y_step, {}};
  absorb.round_input_bf16 = ctx.profile().bf16_activations;
  const RopeColumns turned{p.count, rotary, 0, p.inputs, x_step, p.outputs, y_step};
  const bool adapts = adapted(ctx, w_uk);
  make_rows(ctx, {&y.buffer}, [&] {
    ctx.launch(&KernelTable::linear_forward, absorb);
    launch_rope(ctx, y.view(), q.view(), turned);
    if (adapts) query_adapters(ctx, y.view(), q.view(), w_uk, rotary);
  });
  ctx.observe("mla_query", y.view(), w_uk);
  ctx.record(
      y, {q},
      [&ctx, w_uk, rotary, x_step, y_step, turned, adapts](const Buffer& dy, const RecordedInputs& in) -> InputGradients {
        const View all = in[0];
        if (ctx.gradients()) {
          LinearBackwardWeight backward = weight_gradient(ctx, w_uk, dy.view(), all);
          backward.x_step = x_step;
          backward.y_step = y_step;
          ctx.launch(&KernelTable::linear_backward_weight, backward);
        }
        Buffer dq = ctx.allocate_tape(all.cols);
        ctx.launch(&KernelTable::linear_backward_input, LinearBackwardInput{dq.view(), dy.view(), ctx.packed(w_uk), x_step, y_step, {}});
        if (adapts) query_adapters_backward(ctx, dq.view(), dy.view(), all, w_uk, rotary);
        launch_rope_backward(ctx, dq.view(), dy.view(), turned);
        return {dq};
      },
      adapts);
  return y;
}

}  // namespace lockstep
