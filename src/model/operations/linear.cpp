#include "model/operations/linear.h"

#include "kernels/launch.h"
#include "model/operations/make_rows.h"
#include "model/operations/ranks.h"
#include "model/sharding.h"

namespace lockstep {

LinearBackwardWeight weight_gradient(Context& ctx, ParameterId w, const View& dy, const View& x) {
  GradientSet& g = *ctx.gradients();
  LinearBackwardWeight backward;
  backward.gradient = g.gradient(w);
  backward.bins = g.bins(w);
  backward.finish = g.finish_at_once();
  backward.dy = dy;
  backward.x = x;
  backward.w = ctx.packed(w);
  backward.segment = ctx.batch().tape_rows().segment;
  return backward;
}

Tensor product(Context& ctx, const Tensor& x, ParameterId w, const ProductItems& items, const AdapterRule& adapters) {
  const Parameter& p = ctx.parameter(w);
  const bool by_outputs = split_of(ctx, w) == ParameterSplit::outputs, by_inputs = split_of(ctx, w) == ParameterSplit::inputs;
  const bool any = p.outputs > 0 && p.inputs > 0;  // this rank has a share
  Tensor y = ctx.output_like(x, items.y_step > 0 ? p.count * p.outputs : p.outputs);
  if (by_outputs) y.split = ctx.sharding()->bounds(w);
  LinearForward forward{y.view(), x.view(), by_inputs ? packed_share(ctx, w) : ctx.packed(w), items.x_step, items.y_step, items.slots.offsets};
  forward.round_input_bf16 = ctx.profile().bf16_activations;
  if (items.slots.offsets) forward.rows_made = ctx.counters().expert_rows(x.view().rows);
  const bool adapts = static_cast<bool>(adapters.forward);
  make_rows(
      ctx, {&y.buffer},
      [&] {
        if (any) ctx.launch(&KernelTable::linear_forward, forward);
        if (by_inputs) join_leaves(ctx, y.view(), w);
        if (adapts) adapters.forward(y.view(), x.view());
      },
      items.slots.slot_of);
  if (!ctx.tape()) return y;  // serving saves nothing for a backward
  ctx.record(
      y, {x},
      [&ctx, w, items, by_outputs, any, rule = adapters](const Buffer& dy, const RecordedInputs& in) -> InputGradients {
        const View all = in[0];
        if (any && ctx.gradients()) {
          LinearBackwardWeight backward = weight_gradient(ctx, w, dy.view(), all);
          backward.x_step = items.x_step;
          backward.y_step = items.y_step;
          backward.offsets = items.slots.tape_offsets;
          backward.row_of = items.slots.tape_row_of;
          if (items.slots.segment) backward.segment = items.slots.segment;
          ctx.launch(&KernelTable::linear_backward_weight, backward);
        }
        Buffer dx;
        if (in.requires_grad(0)) {
          dx = ctx.allocate(DType::f32, all.rows, all.cols);
          const PackedWeight weight = by_outputs ? packed_share(ctx, w) : ctx.packed(w);
          if (any)
            ctx.launch(&KernelTable::linear_backward_input,
                       LinearBackwardInput{dx.view(), dy.view(), weight, items.x_step, items.y_step, items.slots.tape_offsets});
          if (by_outputs) join_leaves(ctx, dx.view(), w);
        }
        if (rule.backward) rule.backward(dx.view(), dy.view(), all);
        return {dx};
      },
      adapts);
  return y;
}

namespace {
// Each expert's slots that belong to one adapter's rows.
struct SlotSpan {
  SlotSpan(Context& ctx, const View& offsets, const View& row_of, std::int64_t row_begin, std::int64_t row_end)
      : begin(ctx.allocate(DType::i32, offsets.rows - 1, 1)), end(ctx.allocate(DType::i32, offsets.rows - 1, 1)) {
    ctx.launch(&KernelTable::slot_ranges, SlotRanges{begin.view(), end.view(), offsets, row_of, row_begin, row_end});
  }
  // Restricts a product of items to these slots.
  template <class Launch>
  void put_into(Launch& launch) const {
    launch.offsets = begin.view();
    launch.ends = end.view();
  }
  Buffer begin, end;
};

void adapters_of_rows(Context& ctx, const View& y, const View& x, ParameterId w) {
  each_adapter(ctx, w, [&](const AdapterRows& rows, const AdapterPair& pair) {
    const View from = forward_part(x, rows);
    const Buffer u = ctx.allocate(DType::f32, from.rows, pair.rank());
    launch_down(ctx, u.view(), from, w, pair);
    if (pair.b.outputs > 0) ctx.launch(&KernelTable::linear_forward, adapter_up(forward_part(y, rows), u.view(), pair));
  });
}

void adapters_of_slots(Context& ctx, const View& y, const View& x, ParameterId w, const SlotRows& slots) {
  each_adapter(ctx, w, [&](const AdapterRows& rows, const AdapterPair& pair) {
    if (pair.a.count == 0) return;  // other ranks have these experts
    const Buffer u = ctx.allocate(DType::f32, x.rows, pair.rank());
    LinearForward down = adapter_down(u.view(), x, pair), up = adapter_up(y, u.view(), pair);
    const SlotSpan span(ctx, slots.offsets, slots.row_of, rows.begin, rows.end);
    span.put_into(down);
    span.put_into(up);
    ctx.launch(&KernelTable::linear_forward, down);
    ctx.launch(&KernelTable::linear_forward, up);
  });
}

// The gradients of A and B. `shape` restricts a product of items to an adapter's slots.
template <class F>
void weight_gradients(Context& ctx, const AdapterRows& rows, const AdapterPair& pair, const View& du, const View& u, const View& dy, const View& x,
                      const View& segment, const F& shape) {
  LinearBackwardWeight db = adapter_weight_gradient(*rows.gradients, pair.b_id, pair.b, dy, u, segment);
  LinearBackwardWeight da = adapter_weight_gradient(*rows.gradients, pair.a_id, pair.a, du, x, segment);
  shape(db);
  shape(da);
  if (pair.b.outputs > 0) ctx.launch(&KernelTable::linear_backward_weight, db);
  if (pair.a.inputs > 0) ctx.launch(&KernelTable::linear_backward_weight, da);
}

// dx (none: no input gradient), dy and x are an adapter's rows.
void adapter_backward(Context& ctx, const View& dx, const View& dy, const View& x, ParameterId w, const AdapterRows& rows, const AdapterPair& pair) {
  const Buffer u = ctx.allocate(DType::f32, x.rows, pair.rank()), du = ctx.allocate(DType::f32, x.rows, pair.rank());
  launch_down_gradient(ctx, du.view(), dy, w, pair);
  if (dx && pair.a.inputs > 0) ctx.launch(&KernelTable::linear_backward_input, adapter_input_gradient(dx, du.view(), pair));
  if (!rows.gradients) return;
  launch_down(ctx, u.view(), x, w, pair);
  weight_gradients(ctx, rows, pair, du.view(), u.view(), dy, x, tape_part(ctx.batch().tape_rows().segment, rows), [](LinearBackwardWeight&) {});
}

// dx, dy and x are all slots, of which an adapter's are selected.
void adapter_backward_of_slots(Context& ctx, const View& dx, const View& dy, const View& x, const SlotRows& slots, const AdapterRows& rows,
                               const AdapterPair& pair) {
  if (pair.a.count == 0) return;  // other ranks have these experts
  const SlotSpan span(ctx, slots.tape_offsets, slots.tape_row_of, rows.tape_begin, rows.tape_end);
  const Buffer u = ctx.allocate(DType::f32, x.rows, pair.rank()), du = ctx.allocate(DType::f32, x.rows, pair.rank());
  LinearForward down = adapter_down(u.view(), x, pair);
  LinearBackwardInput down_gradient = adapter_down_gradient(du.view(), dy, pair), to_x = adapter_input_gradient(dx, du.view(), pair);
  span.put_into(down);
  span.put_into(down_gradient);
  span.put_into(to_x);
  ctx.launch(&KernelTable::linear_backward_input, down_gradient);
  if (dx) ctx.launch(&KernelTable::linear_backward_input, to_x);
  if (!rows.gradients) return;
  ctx.launch(&KernelTable::linear_forward, down);
  weight_gradients(ctx, rows, pair, du.view(), u.view(), dy, x, ctx.batch().tape_rows().segment, [&](LinearBackwardWeight& of) {
    span.put_into(of);
    of.row_of = slots.tape_row_of;
  });
}

AdapterRule rule_of_rows(Context& ctx, ParameterId w) {
  if (!adapted(ctx, w)) return {};
  const auto backward = [&ctx, w](const View& dx, const View& dy, const View& x) {
    each_adapter(ctx, w, [&](const AdapterRows& rows, const AdapterPair& pair) {
      adapter_backward(ctx, dx ? tape_part(dx, rows) : View{}, tape_part(dy, rows), tape_part(x, rows), w, rows, pair);
    });
  };
  return {[&ctx, w](const View& y, const View& x) { adapters_of_rows(ctx, y, x, w); }, backward};
}

AdapterRule rule_of_slots(Context& ctx, ParameterId w, const SlotRows& slots) {
  if (!adapted(ctx, w)) return {};
  const auto backward = [&ctx, w, slots](const View& dx, const View& dy, const View& x) {
    each_adapter(ctx, w, [&](const AdapterRows& rows, const AdapterPair& pair) { adapter_backward_of_slots(ctx, dx, dy, x, slots, rows, pair); });
  };
  return {[&ctx, w, slots](const View& y, const View& x) { adapters_of_slots(ctx, y, x, w, slots); }, backward};
}
}  // namespace

namespace {
// y += b, in place: no adjoint reads the output of a linear layer. `slots`: of experts, else empty.
void add_bias(Context& ctx, Tensor& y, ParameterId b, const SlotRows& slots) {
  const bool any = ctx.parameter(b).size() > 0;  // this rank has a share
  if (any) ctx.launch(&KernelTable::bias_add, BiasAdd{y.view(), ctx.weight(b), slots.offsets});
  ctx.record(y, {y.linked()}, [&ctx, b, slots, any](const Buffer& dy, const RecordedInputs&) -> InputGradients {
    if (GradientSet* g = ctx.gradients(); g && any)
      ctx.launch(&KernelTable::bias_backward,
                 BiasBackward{g->gradient(b), g->bins(b), g->finish_at_once(), dy.view(), slots.segment ? slots.segment : ctx.batch().tape_rows().segment,
                              slots.tape_offsets, slots.tape_row_of});
    return {dy};
  });
}
}  // namespace

void add_bias_of_slots(Context& ctx, Tensor& y, ParameterId bias, const SlotRows& slots) { add_bias(ctx, y, bias, slots); }

Tensor linear(Context& ctx, const Tensor& input, ParameterId w, ParameterId bias) {
  const bool by_inputs = split_of(ctx, w) == ParameterSplit::inputs;
  const Tensor x = by_inputs ? cut(ctx, input, ctx.sharding()->bounds(w)) : whole(ctx, input);
  Tensor y = product(ctx, x, w, {}, rule_of_rows(ctx, w));
  ctx.observe("linear", y.view(), w);
  if (bias < 0) return y;
  add_bias(ctx, y, bias, {});
  ctx.observe("bias", y.view(), bias);
  return y;
}

Tensor linear_of_slots(Context& ctx, const Tensor& x, ParameterId w, const SlotRows& slots) {
  return product(ctx, x, w, {.slots = slots}, rule_of_slots(ctx, w, slots));
}

}  // namespace lockstep
