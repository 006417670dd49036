#include "model/operations/low_rank.h"

#include <algorithm>

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

Buffer head_rows(Context& ctx, std::int64_t rows, std::int64_t heads) {
  std::vector<std::int32_t> row_of;
  for (std::int64_t i = 0; i < rows * heads; ++i) row_of.push_back(static_cast<std::int32_t>(i / heads));
  return ctx.backend().device().upload(row_of, rows * heads, 1, MemoryCategory::activations);
}

}  // namespace lockstep
