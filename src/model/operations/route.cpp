#include "model/operations/route.h"

#include "kernels/launch.h"

namespace lockstep {

void plan_slots(Context& ctx, ExpertSlots& slots, std::int64_t experts) {
  const View& expert = slots.expert.view();
  slots.slot_of = ctx.allocate(DType::i32, expert.rows, expert.cols);
  slots.offsets = ctx.allocate(DType::i32, experts + 1, 1);
  slots.row_of = ctx.allocate(DType::i32, expert.size(), 1);
  ctx.launch(&KernelTable::expert_plan, ExpertPlan{slots.offsets.view(), slots.row_of.view(), slots.slot_of.view(), expert});
}

Routing route(Context& ctx, const Tensor& logits, const RouterRule& rule, int sparse_layer) {
  const Batch& batch = ctx.batch();
  const std::int64_t top_k = rule.top_k;
  const std::int64_t rows = batch.count(), experts = logits.view().cols;
  const ForwardOptions& options = ctx.options();
  Routing routing;
  routing.expert = ctx.allocate(DType::i32, rows, top_k);
  routing.weight = ctx.output(top_k);
  const auto of_layer = [&](const View& all) { return all ? all.column_range(sparse_layer * top_k, top_k) : View(); };
  ctx.launch(&KernelTable::router_forward,
             RouterForward{routing.expert.view(), routing.weight.view(), ctx.flags(), logits.view(), rule.bias >= 0 ? ctx.weight(rule.bias) : View{},
                           rule.normalise, rule.scaling, of_layer(batch.experts()), rule.softmax, rule.groups, rule.kept_groups});
  if (const ExpertRecord& record = options.expert_record; record.experts)
    ctx.launch(&KernelTable::gather_rows, GatherRows{of_layer(record.experts), routing.expert.view(), record.row});
  const ParameterId named = rule.bias >= 0 ? rule.bias : rule.weight;
  ctx.observe("route", routing.expert.view(), named);
  ctx.observe("route_weight", routing.weight.view(), named);
  if (!options.dealt_rows) plan_slots(ctx, routing, experts);                          // else those of all ranks' rows are planned (operations/experts.h)
  const std::vector<Buffer>* loads = rule.bias >= 0 ? options.router_loads : nullptr;  // they move the bias
  if (batch.source() && (ctx.tape() || loads)) {
    const std::int64_t tape = batch.tape_count();
    ExpertSlots& slots = routing.tape;
    slots.expert = ctx.allocate(DType::i32, tape, top_k);
    routing.tape_source = ctx.allocate(DType::i32, tape * top_k, 1);
    ctx.launch(&KernelTable::gather_rows, GatherRows{slots.expert.view(), routing.expert.view(), batch.source()});
    plan_slots(ctx, slots, experts);
    ctx.launch(&KernelTable::slot_source, SlotSource{routing.tape_source.view(), slots.slot_of.view(), batch.source(), routing.slot_of.view()});
  }
  if (loads) ctx.launch(&KernelTable::router_load, RouterLoad{(*loads)[static_cast<std::size_t>(sparse_layer)].view(), routing.of_tape().expert.view()});
  if (!ctx.tape()) return routing;  // serving saves nothing for a backward
  ctx.record(routing.weight, {logits}, [&ctx, expert = routing.of_tape().expert, rule](const Buffer& dweight, const RecordedInputs& in) -> InputGradients {
    const View all = in[0];
    Buffer dlogits = ctx.allocate_tape(all.cols);
    ctx.launch(&KernelTable::router_backward, RouterBackward{dlogits.view(), dweight.view(), expert.view(), all, rule.normalise, rule.scaling, rule.softmax});
    return {dlogits};
  });
  return routing;
}

}  // namespace lockstep
