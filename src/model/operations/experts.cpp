#include "model/operations/experts.h"

#include <optional>

#include "base/error.h"
#include "kernels/launch.h"
#include "model/dealt_rows.h"
#include "model/expert_pairs.h"
#include "model/operations/linear.h"
#include "model/operations/ranks.h"
#include "model/sharding.h"
#include "numerics/form.h"

namespace lockstep {

namespace {
// A rank's experts; without ranks all of them.
struct ExpertShare {
  ExpertShare(const Context& ctx, ParameterId gate) : experts(all_items(ctx, gate)), own(ctx.parameter(gate).count), bounds(nullptr) {
    const Sharding* sharding = ctx.sharding();
    if (!sharding) return;
    dealt = ctx.options().dealt_rows;
    const auto rank = static_cast<std::size_t>(sharding->model().rank());
    first = sharding->begin(gate);
    group_begin = static_cast<int>(sharding->expert_groups()[rank]);
    group_end = static_cast<int>(sharding->expert_groups()[rank + 1]);
    bounds = sharding->bounds(gate);
    by_pair = joins_pairs(sharding->place().layout);
  }
  std::int64_t experts, own, first = 0;
  int group_begin = 0, group_end = kExpertGroups;
  ColumnSplit bounds;                // of all ranks; null: one has all
  const DealtRows* dealt = nullptr;  // each rank has rows of its own; null: all have the same
  bool by_pair = false;              // no rank has a whole group
};

// Where ranks have rows of their own: the routing of all of them, whose choices and weights are sent to all.
Routing of_all_ranks(Context& ctx, const ExpertShare& share, const Routing& own) {
  if (ctx.batch().source()) fail(ErrorCode::internal, "sequences share rows in a forward whose rows are dealt to ranks");
  Routing all;
  all.expert = rows_of_all(ctx, own.expert.view());
  all.weight.buffer = rows_of_all(ctx, own.weight.view());
  plan_slots(ctx, all, share.experts);
  return all;
}

// y[t] = the sum over the row's slots (weighted where weights are given), over all ranks. y has this rank's rows, and slots are of those of all ranks.
void combine(Context& ctx, const ExpertShare& share, const View& y, const View& x, const View& weight, const ExpertSlots& by) {
  if (share.by_pair) return sum_pairs(ctx, y, {x, weight, by.expert.view(), by.slot_of.view(), share.experts, share.bounds});
  Buffer of_all;
  if (share.dealt) of_all = ctx.allocate(DType::f32, share.dealt->count(), y.cols);
  const View& own = share.dealt ? of_all.view() : y;
  ExpertCombine sum{own, x, weight, by.expert.view(), by.slot_of.view(), share.experts, share.group_begin, share.group_end};
  if (share.group_begin < share.group_end) ctx.launch(&KernelTable::expert_combine, sum);
  if (share.dealt) join_sums_at_home(ctx, y, own, {by.expert.view(), share.bounds});
  else if (share.bounds) join_experts(ctx, y);
}

// For each (row, expert) pair, the value held by the expert's rank.
Buffer pick_of_ranks(Context& ctx, const ExpertShare& share, const View& own, const View& expert) {
  Communicator& group = ctx.sharding()->model();
  Buffer picked = ctx.allocate(DType::f32, own.rows, own.cols);
  const Buffer parts = ctx.allocate(DType::f32, own.rows * group.size(), own.cols);
  std::vector<View> all;
  for (int r = 0; r < group.size(); ++r) all.push_back(parts.view().row_range(r * own.rows, own.rows));
  all_gather(group, ctx.backend().stream(), own, all);
  ctx.launch(&KernelTable::pick, Pick{picked.view(), parts.view(), expert, *share.bounds});
  return picked;
}

// Gathers the rows into their slots.
Tensor gather(Context& ctx, const ExpertShare& share, const Tensor& x, const Routing& routing, const SlotRows& slots) {
  Tensor rows{ctx.allocate(DType::f32, routing.row_of.view().rows, x.view().cols)};
  if (slots.tape_source) rows.tape_rows = std::make_shared<TapeRows>(TapeRows{slots.tape_source, {}});
  Buffer of_all;
  if (share.dealt) of_all = rows_for_experts(ctx, x.view(), {routing.expert.view(), share.bounds});
  if (of_all || !share.dealt) ctx.launch(&KernelTable::expert_gather, ExpertGather{rows.view(), of_all ? of_all.view() : x.view(), routing.row_of.view()});
  if (!ctx.tape()) return rows;  // serving saves nothing for a backward
  ctx.record(rows, {x.linked()}, [&ctx, share, routing, cols = x.view().cols](const Buffer& dy, const RecordedInputs&) -> InputGradients {
    Buffer dx = ctx.allocate_tape(cols);
    combine(ctx, share, dx.view(), dy.view(), {}, routing.of_tape());
    return {dx};
  });
  return rows;
}

// `own_weight`: of this rank's rows.
Tensor combined(Context& ctx, const ExpertShare& share, const Tensor& out, const Routing& routing, const Tensor& own_weight) {
  Tensor y = ctx.output(out.view().cols);
  combine(ctx, share, y.view(), out.view(), routing.weight.view(), routing);
  if (!ctx.tape()) return y;
  ctx.record(y, {out, share.dealt ? own_weight.linked() : own_weight}, [&ctx, share, routing](const Buffer& dy, const RecordedInputs& in) -> InputGradients {
    const View of_slots = in[0], weight = share.dealt ? routing.weight.view() : in[1];
    const ExpertSlots& tape = routing.of_tape();
    Buffer of_all;
    if (share.dealt) of_all = rows_for_experts(ctx, dy.view(), {tape.expert.view(), share.bounds});
    Buffer dx = ctx.allocate(DType::f32, of_slots.rows, of_slots.cols), dweight = ctx.allocate(DType::f32, weight.rows, weight.cols);
    ExpertSpread spread{dx.view(), dweight.view(), share.dealt ? of_all.view() : dy.view(), of_slots, weight, tape.slot_of.view()};
    if (share.bounds) spread.expert = tape.expert.view(), spread.expert_begin = share.first, spread.expert_end = share.first + share.own;
    if (share.own > 0) ctx.launch(&KernelTable::expert_spread, spread);
    if (share.dealt) return {dx, values_of_experts(ctx, dweight.view(), {tape.expert.view(), share.bounds})};
    return {dx, share.bounds ? pick_of_ranks(ctx, share, dweight.view(), tape.expert.view()) : dweight};
  });
  return y;
}
}  // namespace

Tensor experts(Context& ctx, const Tensor& input, const Routing& own, const ExpertWeights& weights) {
  const Tensor x = whole(ctx, input);
  const ExpertShare share(ctx, weights.gate);
  std::optional<Routing> of_all;
  if (share.dealt) of_all = of_all_ranks(ctx, share, own);
  const Routing& routing = of_all ? *of_all : own;
  const ExpertSlots& tape = routing.of_tape();
  const SlotRows slots{routing.offsets.view().row_range(share.first, share.own + 1),
                       routing.row_of.view(),
                       tape.offsets.view().row_range(share.first, share.own + 1),
                       tape.row_of.view(),
                       routing.tape_source.view(),
                       routing.slot_of.view(),
                       share.dealt ? share.dealt->segment() : View()};
  // Slots of other ranks' experts are neither computed nor read.
  const auto observe = [&](std::string_view name, const Tensor& y, ParameterId w = -1) {
    if (!share.bounds) ctx.observe(name, y.view(), w, -1, routing.slot_of.view());
  };
  const auto by_expert = [&](const Tensor& rows, ParameterId w, ParameterId bias) {
    Tensor y = linear_of_slots(ctx, rows, w, slots);
    observe("expert_linear", y, w);
    if (bias < 0) return y;
    add_bias_of_slots(ctx, y, bias, slots);
    observe("expert_bias", y, bias);
    return y;
  };
  const Tensor rows = gather(ctx, share, x, routing, slots);
  observe("expert_gather", rows);
  const Tensor a = by_expert(rows, weights.gate, weights.gate_bias), b = by_expert(rows, weights.up, weights.up_bias);
  const Tensor act = swiglu_of_slots(ctx, a, b, weights.rule);
  observe("expert_swiglu", act);
  Tensor y = combined(ctx, share, by_expert(act, weights.down, weights.down_bias), routing, own.weight);
  ctx.observe("expert_combine", y.view());
  return y;
}

}  // namespace lockstep
