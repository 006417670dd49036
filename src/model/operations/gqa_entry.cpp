#include "model/operations/gqa_entry.h"

#include "model/operations/ranks.h"
#include "model/operations/rope.h"

namespace lockstep {

Tensor gqa_entry(Context& ctx, const Tensor& all_k, const Tensor& all_v, const AttentionShape& shape, std::int64_t rotary) {
  const Tensor k = cut(ctx, all_k, head_columns(ctx, shape.kv_heads, shape.key)), v = cut(ctx, all_v, head_columns(ctx, shape.kv_heads, shape.value));
  const std::int64_t heads = own_heads(ctx, shape.kv_heads), size = shape.key, keys = heads * size, values = heads * shape.value;
  Tensor y = ctx.output_like(k, keys + values);
  const RopeColumns turned{heads, rotary, size - rotary, 0, size, 0, size}, copied{1, 0, values, 0, 0, keys, 0};
  launch_rope(ctx, y.view(), k.view(), turned);
  launch_rope(ctx, y.view(), v.view(), copied);
  ctx.observe("gqa_entry", y.view());
  ctx.record(y, {k.linked(), v.linked()}, [&ctx, keys, values, turned, copied](const Buffer& dy, const RecordedInputs&) -> InputGradients {
    Buffer dk = ctx.allocate(DType::f32, dy.view().rows, keys), dv = ctx.allocate(DType::f32, dy.view().rows, values);
    launch_rope_backward(ctx, dv.view(), dy.view(), copied);
    launch_rope_backward(ctx, dk.view(), dy.view(), turned);
    return {dk, dv};
  });
  return y;
}

}  // namespace lockstep
