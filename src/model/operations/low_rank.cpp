#include "model/operations/low_rank.h"

#include <algorithm>
#include <utility>

#include "kernels/launch.h"
#include "model/operations/ranks.h"

namespace lockstep {

bool adapter_pair(const AdapterWeights& adapter, ParameterId base, const Profile& profile, AdapterPair& pair) {
  const AdapterLayout::Place& place = adapter.layout->place(base);
  if (place.a < 0) return false;
  pair = {place.a, place.b, adapter.packed(place.a, profile), adapter.packed(place.b, profile), adapter.layout->scale()};
  return true;
}

bool adapted(const Context& ctx, ParameterId w) {
  const std::vector<AdapterRows>* adapters = ctx.options().adapters;
  return adapters && std::any_of(adapters->begin(), adapters->end(),
                                 [&](const AdapterRows& rows) { return rows.end > rows.begin && rows.weights->layout->place(w).a >= 0; });
}

LinearForward adapter_down(const View& u, const View& x, const AdapterPair& pair) {
  LinearForward down{u, x, pair.a};
  down.scale = pair.scale;
  return down;
}

LinearForward adapter_up(const View& y, const View& u, const AdapterPair& pair) {
  LinearForward up{y, u, pair.b};
  up.accumulate = true;
  return up;
}

LinearBackwardInput adapter_down_gradient(const View& du, const View& dy, const AdapterPair& pair) {
  LinearBackwardInput down{du, dy, pair.b};
  down.scale = pair.scale;
  return down;
}

namespace {
// This rank's leaves of the sum of `launch`, over `part` of w's columns, become the whole sum on every rank.
template <class Launch>
void launch_joined(Context& ctx, void (*KernelTable::*kernel)(const Launch&, ThreadPool&), Launch launch, const View& sum, std::int64_t part, ParameterId w) {
  const float factor = std::exchange(launch.scale, 1.0f);
  launch.w.maximum_leaves = adapter_leaves_of_share(ctx, w);
  if (part > 0) ctx.launch(kernel, launch);
  join_leaves(ctx, sum, w);
  if (factor != 1.0f) ctx.launch(&KernelTable::scale, Scale{sum, sum, factor});
}
}  // namespace

void launch_down(Context& ctx, const View& u, const View& x, ParameterId w, const AdapterPair& pair) {
  const LinearForward down = adapter_down(u, x, pair);
  if (split_of(ctx, w) == ParameterSplit::inputs) launch_joined(ctx, &KernelTable::linear_forward, down, u, pair.a.inputs, w);
  else ctx.launch(&KernelTable::linear_forward, down);
}

void launch_down_gradient(Context& ctx, const View& du, const View& dy, ParameterId w, const AdapterPair& pair) {
  const LinearBackwardInput down = adapter_down_gradient(du, dy, pair);
  const ParameterSplit split = split_of(ctx, w);
  if (split == ParameterSplit::outputs || split == ParameterSplit::vocabulary)
    launch_joined(ctx, &KernelTable::linear_backward_input, down, du, pair.b.outputs, w);
  else ctx.launch(&KernelTable::linear_backward_input, down);
}

LinearBackwardInput adapter_input_gradient(const View& dx, const View& du, const AdapterPair& pair) {
  LinearBackwardInput to_x{dx, du, pair.a};
  to_x.accumulate = true;
  return to_x;
}

LinearBackwardWeight adapter_weight_gradient(GradientSet& gradients, ParameterId id, const PackedWeight& w, const View& dy, const View& x,
                                             const View& segment) {
  LinearBackwardWeight backward;
  backward.bins = gradients.bins(id);
  backward.finish = false;
  backward.dy = dy;
  backward.x = x;
  backward.w = w;
  backward.segment = segment;
  return backward;
}

void deposit_shared_a(Context& ctx, const AdapterRows& rows, const AdapterPair& pair, const View& dy, const View& x, std::int64_t all_heads,
                      std::int64_t width) {
  const std::int64_t n = dy.rows, latent = pair.a.inputs;
  const GatheredColumns dys(ctx, dy, head_columns(ctx, all_heads, pair.rank())), xs(ctx, x, head_columns(ctx, all_heads, width));
  const Buffer row_of = head_rows(ctx, n, all_heads);
  LinearBackwardWeight da = adapter_weight_gradient(*rows.gradients, pair.a_id, pair.a, head_by_head(dys.view, all_heads),
                                                    head_by_head(xs.view, all_heads).column_range(0, latent), tape_part(ctx.batch().tape_rows().segment, rows));
  da.row_of = row_of.view();
  ctx.launch(&KernelTable::linear_backward_weight, da);
}

Buffer head_rows(Context& ctx, std::int64_t rows, std::int64_t heads) {
  std::vector<std::int32_t> row_of;
  for (std::int64_t i = 0; i < rows * heads; ++i) row_of.push_back(static_cast<std::int32_t>(i / heads));
  return ctx.backend().device().upload(row_of, rows * heads, 1, MemoryCategory::activations);
}

}  // namespace lockstep
