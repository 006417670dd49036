#include "model/operations/mla_expanded.h"

#include <algorithm>

#include "kernels/launch.h"
#include "model/operations/linear.h"
#include "model/operations/ranks.h"
#include "model/operations/rope.h"

namespace lockstep {

Tensor mla_head_query(Context& ctx, const Tensor& input, const AttentionShape& shape, std::int64_t rotary) {
  const ColumnSplit split = head_columns(ctx, shape.heads, shape.key);
  const Tensor q = cut(ctx, input, split);
  const std::int64_t heads = own_heads(ctx, shape.heads), size = shape.key, nope = size - rotary;
  Tensor y = ctx.output_like(q, heads * size);
  y.split = split;
  const RopeColumns copied{heads, 0, nope, 0, size, 0, size}, turned{heads, rotary, 0, nope, size, nope, size};
  launch_rope(ctx, y.view(), q.view(), copied);
  launch_rope(ctx, y.view(), q.view(), turned);
  ctx.observe("mla_head_query", y.view());
  ctx.record(y, {q.linked()}, [&ctx, copied, turned, columns = q.view().cols](const Buffer& dy, const RecordedInputs&) -> InputGradients {
    Buffer dq = ctx.allocate_tape(columns);
    launch_rope_backward(ctx, dq.view(), dy.view(), copied);
    launch_rope_backward(ctx, dq.view(), dy.view(), turned);
    return {dq};
  });
  return y;
}

namespace {
// Where the columns of this rank's heads lie: entry [keys | values], latent entry [latent | rope].
struct HeadColumns {
  std::int64_t all_heads, heads, latent, rotary, nope, value;
  std::int64_t key() const { return nope + rotary; }
  std::int64_t keys() const { return heads * key(); }
  View keys_of(const View& entry) const { return entry.column_range(0, keys()); }
  View values_of(const View& entry) const { return entry.column_range(keys(), heads * value); }
  View latent_of(const View& all) const { return all.column_range(0, latent); }
  View rope_of(const View& all) const { return all.column_range(latent, rotary); }
};

// sum (+)= the items of `parts` side by side, ascending, of all ranks.
void add_heads(Context& ctx, const View& sum, const View& parts, std::int64_t all_heads, bool begin) {
  const std::int64_t width = sum.cols;
  const GatheredColumns all(ctx, parts, head_columns(ctx, all_heads, width));
  for (std::int64_t h = 0; h < all_heads; ++h) {
    const View part = all.view.column_range(h * width, width);
    if (begin && h == 0) ctx.backend().stream().copy(sum, part);
    else ctx.launch(&KernelTable::add, Add{sum, sum, part});
  }
}

template <class Launch>
Launch per_head(Launch launch, std::int64_t x_step, std::int64_t y_step) {
  launch.x_step = x_step;
  launch.y_step = y_step;
  return launch;
}

// u [n, rank] = s (latent A), one for keys and values of all heads.
Buffer adapter_latent(Context& ctx, const View& latent, const AdapterPair& pair) {
  const Buffer u = ctx.allocate(DType::f32, latent.rows, pair.rank());
  ctx.launch(&KernelTable::linear_forward, adapter_down(u.view(), latent, pair));
  return u;
}

// entry's columns of one weight += u B of each head.
void expand_adapters(Context& ctx, const View& columns, const View& latent, ParameterId w, std::int64_t step) {
  each_adapter(ctx, w, [&](const AdapterRows& rows, const AdapterPair& pair) {
    const Buffer u = adapter_latent(ctx, forward_part(latent, rows), pair);
    ctx.launch(&KernelTable::linear_forward, per_head(adapter_up(forward_part(columns, rows), u.view(), pair), 0, step));
  });
}

// dlatent += (du A), du the sum over heads; deposits the gradients of A and of each head's B.
void expand_adapters_backward(Context& ctx, const View& dlatent, const View& dcolumns, const View& latent, ParameterId w, std::int64_t step) {
  each_adapter(ctx, w, [&](const AdapterRows& rows, const AdapterPair& pair) {
    const View dy = tape_part(dcolumns, rows), x = tape_part(latent, rows);
    const std::int64_t heads = pair.b.count, rank = pair.rank();
    const Buffer parts = ctx.allocate(DType::f32, x.rows, heads * rank), du = ctx.allocate(DType::f32, x.rows, rank);
    if (heads > 0) ctx.launch(&KernelTable::linear_backward_input, per_head(adapter_down_gradient(parts.view(), dy, pair), rank, step));
    add_heads(ctx, du.view(), parts.view(), all_items(ctx, w), true);
    if (dlatent) ctx.launch(&KernelTable::linear_backward_input, adapter_input_gradient(tape_part(dlatent, rows), du.view(), pair));
    if (!rows.gradients) return;
    const View segment = tape_part(ctx.batch().tape_rows().segment, rows);
    const Buffer u = adapter_latent(ctx, x, pair);
    if (heads > 0)
      ctx.launch(&KernelTable::linear_backward_weight, per_head(adapter_weight_gradient(*rows.gradients, pair.b_id, pair.b, dy, u.view(), segment), 0, step));
    ctx.launch(&KernelTable::linear_backward_weight, adapter_weight_gradient(*rows.gradients, pair.a_id, pair.a, du.view(), x, segment));
  });
}

// The gradient of the latent entry.
void latent_gradient(Context& ctx, const View& dx, const View& dy, const HeadColumns& at, ParameterId w_uk, ParameterId w_uv) {
  const std::int64_t widest = at.heads * std::max(at.latent, at.rotary);
  const Buffer parts = ctx.allocate_tape(widest);
  const View latents = parts.view().column_range(0, at.heads * at.latent), ropes = parts.view().column_range(0, at.heads * at.rotary);
  if (at.heads > 0) ctx.launch(&KernelTable::linear_forward, per_head(LinearForward{latents, at.keys_of(dy), ctx.packed(w_uk)}, at.key(), at.latent));
  add_heads(ctx, at.latent_of(dx), latents, at.all_heads, true);
  if (at.heads > 0)
    ctx.launch(&KernelTable::linear_backward_input, per_head(LinearBackwardInput{latents, at.values_of(dy), ctx.packed(w_uv)}, at.latent, at.value));
  add_heads(ctx, at.latent_of(dx), latents, at.all_heads, false);
  launch_rope_backward(ctx, ropes, dy, {at.heads, 0, at.rotary, 0, at.rotary, at.nope, at.key()});
  add_heads(ctx, at.rope_of(dx), ropes, at.all_heads, true);
}
}  // namespace

Tensor mla_head_entry(Context& ctx, const Tensor& latent, ParameterId w_uk, ParameterId w_uv, std::int64_t rotary) {
  const Parameter &uk = ctx.parameter(w_uk), &uv = ctx.parameter(w_uv);
  const HeadColumns at{all_items(ctx, w_uk), uk.count, uk.outputs, rotary, uk.inputs, uv.outputs};
  Tensor y = ctx.output_like(latent, at.keys() + at.heads * at.value);
  const RopeColumns shared{at.heads, 0, rotary, at.latent, 0, at.nope, at.key()};
  const bool adapts = adapted(ctx, w_uk);
  if (at.heads > 0) {
    const View x = at.latent_of(latent.view()), keys = at.keys_of(y.view()), values = at.values_of(y.view());
    ctx.launch(&KernelTable::linear_backward_input, per_head(LinearBackwardInput{keys, x, ctx.packed(w_uk)}, at.key(), 0));
    ctx.launch(&KernelTable::linear_forward, per_head(LinearForward{values, x, ctx.packed(w_uv)}, 0, at.value));
    launch_rope(ctx, y.view(), latent.view(), shared);
    if (adapts) {
      expand_adapters(ctx, keys, x, w_uk, at.key());
      expand_adapters(ctx, values, x, w_uv, at.value);
    }
  }
  ctx.observe("mla_head_entry", y.view(), w_uk);
  ctx.record(
      y, {latent},
      [&ctx, at, w_uk, w_uv, adapts](const Buffer& dy, const RecordedInputs& in) -> InputGradients {
        const View x = at.latent_of(in[0]), dkeys = at.keys_of(dy.view()), dvalues = at.values_of(dy.view());
        if (ctx.gradients() && at.heads > 0) {
          ctx.launch(&KernelTable::linear_backward_weight, per_head(weight_gradient(ctx, w_uk, x, dkeys), at.key(), 0));
          ctx.launch(&KernelTable::linear_backward_weight, per_head(weight_gradient(ctx, w_uv, dvalues, x), 0, at.value));
        }
        Buffer dx;
        if (in.requires_grad(0)) {
          dx = ctx.allocate_tape(in[0].cols);
          latent_gradient(ctx, dx.view(), dy.view(), at, w_uk, w_uv);
        }
        if (adapts) {
          const View dlatent = dx ? at.latent_of(dx.view()) : View{};
          expand_adapters_backward(ctx, dlatent, dkeys, x, w_uk, at.key());
          expand_adapters_backward(ctx, dlatent, dvalues, x, w_uv, at.value);
        }
        return {dx};
      },
      adapts);
  return y;
}

}  // namespace lockstep
