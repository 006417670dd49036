#include "model/operations/embedding.h"

#include <algorithm>

#include "kernels/launch.h"
#include "model/operations/ranks.h"
#include "model/sharding.h"

namespace lockstep {

namespace {
// Rows whose tokens belong to this rank, known on the host.
Tensor rows_of_own_tokens(Context& ctx, ParameterId table) {
  const std::vector<std::int64_t>& bounds = *ctx.sharding()->bounds(table);
  Communicator& group = ctx.sharding()->tensor();
  const std::vector<std::int32_t>& tokens = ctx.batch().tokens();
  const auto ranks = static_cast<std::size_t>(group.size()), me = static_cast<std::size_t>(group.rank());
  std::vector<std::vector<std::int32_t>> rows_of(ranks);
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const auto after = std::upper_bound(bounds.begin(), bounds.end(), std::int64_t{tokens[t]});
    rows_of[static_cast<std::size_t>(after - bounds.begin()) - 1].push_back(static_cast<std::int32_t>(t));
  }
  std::vector<std::int32_t> place(tokens.size()), own;  // where a row stands among those of all ranks, in rank order
  std::vector<std::int64_t> begin{0};
  for (const auto& rows : rows_of) {
    for (std::size_t i = 0; i < rows.size(); ++i)
      place[static_cast<std::size_t>(rows[i])] = static_cast<std::int32_t>(begin.back()) + static_cast<std::int32_t>(i);
    begin.push_back(begin.back() + static_cast<std::int64_t>(rows.size()));
  }
  for (const std::int32_t t : rows_of[me]) own.push_back(tokens[static_cast<std::size_t>(t)] - static_cast<std::int32_t>(bounds[me]));
  const auto upload = [&](const std::vector<std::int32_t>& values) {
    return ctx.backend().device().upload(values, static_cast<std::int64_t>(values.size()), 1, MemoryCategory::activations);
  };
  const Buffer own_tokens = upload(own), places = upload(place);
  const Buffer parts = ctx.allocate(DType::f32, ctx.batch().count(), ctx.parameter(table).inputs);
  std::vector<View> all;
  for (std::size_t r = 0; r < ranks; ++r) all.push_back(parts.view().row_range(begin[r], begin[r + 1] - begin[r]));
  const Parameter& own_table = ctx.parameter(table);
  const int bits = weight_bits(own_table, ctx.profile());
  if (!own.empty()) ctx.launch(&KernelTable::embedding_forward, EmbeddingForward{all[me], ctx.weight(table), own_tokens.view(), true, bits, own_table.outputs});
  all_gather(group, ctx.backend().stream(), all[me], all);
  Tensor y = ctx.output(parts.view().cols);
  ctx.launch(&KernelTable::expert_gather, ExpertGather{y.view(), parts.view(), places.view()});
  return y;
}
}  // namespace

Tensor embedding(Context& ctx, ParameterId table) {
  const Parameter& p = ctx.parameter(table);
  const bool packed = p.layout == ParameterLayout::packed;  // tied
  Tensor y;
  if (split_of(ctx, table) == ParameterSplit::vocabulary) {
    y = rows_of_own_tokens(ctx, table);
  } else {
    y = ctx.output(p.inputs);
    if (split_of(ctx, table) == ParameterSplit::columns) y.split = ctx.sharding()->bounds(table);
    if (p.inputs > 0)
      ctx.launch(&KernelTable::embedding_forward,
                 EmbeddingForward{y.view(), ctx.weight(table), ctx.batch().rows().token, packed, weight_bits(p, ctx.profile()), p.outputs});
  }
  ctx.observe("embedding", y.view(), table);
  ctx.record(y, {}, [&ctx, table, packed](const Buffer& dy, const RecordedInputs&) -> InputGradients {
    if (dy.view().cols == 0) return {};
    if (packed) {
      ctx.tape()->set_table_gradient(dy);  // HeadWeight deposits it with the head's gradient
      return {};
    }
    GradientSet& g = *ctx.gradients();
    const Rows& rows = ctx.batch().tape_rows();
    ctx.launch(&KernelTable::embedding_backward, EmbeddingBackward{g.gradient(table), g.bins(table), g.finish_at_once(), dy.view(), rows.token, rows.segment});
    return {};
  });
  return whole(ctx, y);
}

}  // namespace lockstep
