#include "model/operations/route.h"

#include "kernels/launch.h"

namespace lockstep {

Routing route(Context& ctx, const Tensor& logits, ParameterId bias, std::int64_t top_k, bool normalise, float scaling, int sparse_layer) {
  const Batch& batch = ctx.batch();
  const std::int64_t rows = batch.count(), experts = logits.view().cols;
  const ForwardOptions& options = ctx.options();
  Routing routing;
  routing.expert = ctx.allocate(DType::i32, rows, top_k);
  routing.slot_of = ctx.allocate(DType::i32, rows, top_k);
  routing.offsets = ctx.allocate(DType::i32, experts + 1, 1);
  routing.row_of = ctx.allocate(DType::i32, rows * top_k, 1);
  routing.weight = ctx.output(top_k);
  const auto of_layer = [&](const View& all) { return all ? all.column_range(sparse_layer * top_k, top_k) : View(); };
  ctx.launch(&KernelTable::router_forward, RouterForward{routing.expert.view(), routing.weight.view(), ctx.flags(), logits.view(), ctx.weight(bias),
                                                         normalise, scaling, of_layer(batch.experts())});
  if (const ExpertRecord& record = options.expert_record; record.experts)
    ctx.launch(&KernelTable::gather_rows, GatherRows{of_layer(record.experts), routing.expert.view(), record.row});
  ctx.observe("route", routing.expert.view(), bias);
  ctx.observe("route_weight", routing.weight.view(), bias);
  ctx.launch(&KernelTable::expert_plan, ExpertPlan{routing.offsets.view(), routing.row_of.view(), routing.slot_of.view(), routing.expert.view()});
  if (batch.source() && (ctx.tape() || options.router_loads)) {
    const std::int64_t tape = batch.tape_count();
    routing.tape = {ctx.allocate(DType::i32, tape, top_k), ctx.allocate(DType::i32, tape, top_k), ctx.allocate(DType::i32, experts + 1, 1),
                    ctx.allocate(DType::i32, tape * top_k, 1)};
    routing.tape_source = ctx.allocate(DType::i32, tape * top_k, 1);
    const ExpertSlots& slots = routing.tape;
    ctx.launch(&KernelTable::gather_rows, GatherRows{slots.expert.view(), routing.expert.view(), batch.source()});
    ctx.launch(&KernelTable::expert_plan, ExpertPlan{slots.offsets.view(), slots.row_of.view(), slots.slot_of.view(), slots.expert.view()});
    ctx.launch(&KernelTable::slot_source, SlotSource{routing.tape_source.view(), slots.slot_of.view(), batch.source(), routing.slot_of.view()});
  }
  if (options.router_loads)
    ctx.launch(&KernelTable::router_load, RouterLoad{(*options.router_loads)[static_cast<std::size_t>(sparse_layer)].view(), routing.of_tape().expert.view()});
  if (!ctx.tape()) return routing;  // serving does not copy what a record keeps
  ctx.record(routing.weight, {logits}, [&ctx, expert = routing.of_tape().expert, normalise, scaling](const Buffer& dweight, const RecordedInputs& in) -> InputGradients {
    const View all = in[0];
    Buffer dlogits = ctx.allocate_tape(all.cols);
    ctx.launch(&KernelTable::router_backward, RouterBackward{dlogits.view(), dweight.view(), expert.view(), all, normalise, scaling});
    return {dlogits};
  });
  return routing;
}

}  // namespace lockstep
