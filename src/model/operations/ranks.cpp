#include "model/operations/ranks.h"

#include <algorithm>

#include "kernels/launch.h"
#include "model/sharding.h"
#include "numerics/form.h"

namespace lockstep {

SegmentRange own_segments(const Context& ctx, std::int64_t segments) { return ctx.sharding() ? ctx.sharding()->segments() : SegmentRange{0, segments}; }

ParameterSplit split_of(const Context& ctx, ParameterId w) { return ctx.sharding() ? ctx.parameter(w).split : ParameterSplit::whole; }

std::int64_t all_items(const Context& ctx, ParameterId w) { return ctx.sharding() ? ctx.sharding()->bounds(w)->back() : ctx.parameter(w).count; }

ColumnSplit head_columns(const Context& ctx, std::int64_t n, std::int64_t width) { return ctx.sharding() ? ctx.sharding()->columns(n, width) : nullptr; }

std::int64_t own_heads(const Context& ctx, std::int64_t n) { return ctx.sharding() ? ctx.sharding()->dealt(n) : n; }

namespace {
View columns_of(const View& all, const ColumnSplit& split, int rank) {
  const auto at = static_cast<std::size_t>(rank);
  return all.column_range((*split)[at], (*split)[at + 1] - (*split)[at]);
}

AddInto add_into(Context& ctx) {
  return [&ctx](const View& into, const View& from) { ctx.launch(&KernelTable::add, Add{into, into, from}); };
}
}  // namespace

View own_columns(const Context& ctx, const View& all, const ColumnSplit& split) {
  return split ? columns_of(all, split, ctx.sharding()->tensor().rank()) : all;
}

void gather_columns(Context& ctx, const View& all, const View& own, const ColumnSplit& split) {
  Communicator& group = ctx.sharding()->tensor();
  std::vector<View> parts;
  for (int r = 0; r < group.size(); ++r) parts.push_back(columns_of(all, split, r));
  all_gather(group, ctx.backend().stream(), own, parts);
}

GatheredColumns::GatheredColumns(Context& ctx, const View& own, const ColumnSplit& split) : view(own) {
  if (!split) return;
  buffer = ctx.allocate(DType::f32, own.rows, split->back());
  view = buffer.view();
  gather_columns(ctx, view, own, split);
}

Tensor whole(Context& ctx, const Tensor& x) {
  if (!x.split) return x;
  Tensor y = ctx.output_like(x, x.split->back());
  gather_columns(ctx, y.view(), x.view(), x.split);
  ctx.record(y, {x.linked()}, [&ctx, split = x.split](const Buffer& dy, const RecordedInputs& in) -> InputGradients {
    if (!in.requires_grad(0)) return {};
    const View own = own_columns(ctx, dy.view(), split);
    Buffer dx = ctx.allocate(DType::f32, own.rows, own.cols);
    ctx.backend().stream().copy(dx.view(), own);
    return {dx};
  });
  return y;
}

Tensor cut(Context& ctx, const Tensor& x, const ColumnSplit& split) {
  if (x.split == split || (x.split && split && *x.split == *split)) return x;
  const Tensor all = whole(ctx, x);
  if (!split) return all;
  const View own = own_columns(ctx, all.view(), split);
  Tensor y = ctx.output_like(all, own.cols);
  y.split = split;
  ctx.backend().stream().copy(y.view(), own);
  ctx.record(y, {all.linked()}, [&ctx, split](const Buffer& dy, const RecordedInputs& in) -> InputGradients {
    if (!in.requires_grad(0)) return {};
    return {GatheredColumns(ctx, dy.view(), split).buffer};
  });
  return y;
}

void join_leaves(Context& ctx, const View& y, ParameterId w) {
  all_reduce_tree(ctx.sharding()->tensor(), ctx.backend().device(), y, ctx.sharding()->leaves(w), add_into(ctx));
}

void join_experts(Context& ctx, const View& y) {
  all_reduce_tree(ctx.sharding()->model(), ctx.backend().device(), y, ctx.sharding()->expert_groups().back(), add_into(ctx));
}

int leaves_of_share(const Context& ctx, ParameterId w) {
  return static_cast<int>(std::max<std::int64_t>(1, ctx.sharding()->own_leaves(w)) * ctx.sharding()->inner_leaves(w));
}

int adapter_leaves_of_share(const Context& ctx, ParameterId w) {
  const Sharding& sharding = *ctx.sharding();
  const std::int64_t inner = leaf_count(sharding.bounds(w)->back(), ctx.profile().maximum_leaves) / sharding.leaves(w);
  return static_cast<int>(std::max<std::int64_t>(1, sharding.own_leaves(w)) * inner);
}

PackedWeight packed_share(const Context& ctx, ParameterId w) {
  PackedWeight share = ctx.packed(w);
  share.maximum_leaves = leaves_of_share(ctx, w);
  return share;
}

}  // namespace lockstep
