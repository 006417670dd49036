#include "model/blocks/routed_mlp.h"

#include <algorithm>

#include "base/error.h"
#include "model/operations/add.h"
#include "model/operations/experts.h"
#include "model/operations/linear.h"

namespace lockstep {

RoutedMlp::Settings RoutedMlp::read(const ConfigReader& c, const Traits& traits, ModelFacts& facts) {
  Settings s;
  s.hidden = facts.hidden;
  s.width = c.integer("moe_intermediate_size", 1, kLargestDimension);
  s.experts = facts.expert_count = c.integer("n_routed_experts", 1, 65536);
  // A file may lie: what its numbers make us list must stay small before any weight is looked at (GLM-5.2 has 19,968).
  constexpr std::int64_t kMost = std::int64_t{1} << 19;
  if (facts.layers * s.experts > kMost)
    fail(ErrorCode::invalid_argument, "config.json: 'num_hidden_layers' x 'n_routed_experts' is {}, allowed is at most {}", facts.layers * s.experts, kMost);
  for (const char* other : {"num_experts", "num_local_experts"}) c.only(other, {s.experts});
  s.experts_a_token = facts.experts_a_token = c.integer("num_experts_per_tok", 1, s.experts);
  s.shared_experts = c.integer("n_shared_experts", 1, 1024, 1);
  s.normalise = c.boolean("norm_topk_prob", true);
  s.scaling = static_cast<float>(c.number("routed_scaling_factor", 0, 1e6, 2.5));
  for (const char* groups : {"n_group", "topk_group"}) c.only(groups, {1});
  c.only("scoring_func", {"sigmoid"});
  c.only("topk_method", {"noaux_tc"});
  const std::vector<std::string> kinds = c.layer_texts("mlp_layer_types", facts.layers, {"dense", "sparse"});
  const std::int64_t dense = c.integer("first_k_dense_replace", 0, 4096, kinds.empty() ? std::optional<std::int64_t>() : 0);
  for (std::int64_t i = 0; i < facts.layers; ++i) s.sparse.push_back(kinds.empty() ? i >= dense : kinds[static_cast<std::size_t>(i)] == "sparse");
  facts.sparse_layers = std::count(s.sparse.begin(), s.sparse.end(), true);
  s.traits = traits;
  return s;
}

RoutedMlp::RoutedMlp(Manifest& m, std::int64_t layer, const std::string& prefix, const Settings& s, ModelFacts& facts)
    : top_k_(s.experts_a_token), idle_((s.experts - s.experts_a_token) * 3 * s.hidden * s.width), normalise_(s.normalise), scaling_(s.scaling),
      sparse_layer_(static_cast<int>(std::count(s.sparse.begin(), s.sparse.begin() + static_cast<std::ptrdiff_t>(layer), true))) {
  const Traits& t = s.traits;
  router_ = m.matrix(prefix + t.router, s.experts, s.hidden);
  m.keep_exact(router_);
  bias_ = m.untrained_vector(prefix + t.bias, s.experts);
  facts.router_biases.push_back(bias_);
  const std::string experts = prefix + t.experts;
  const auto name = [&](const std::string& part) { return [&experts, part](std::int64_t e) { return fmt::format("{}{}.{}", experts, e, part); }; };
  gate_ = m.matrices(experts + "gate", s.experts, s.width, s.hidden, name(t.expert.gate));
  up_ = m.matrices(experts + "up", s.experts, s.width, s.hidden, name(t.expert.up));
  down_ = m.matrices(experts + "down", s.experts, s.hidden, s.width, name(t.expert.down));
  m.fuse(experts + t.fused_gate_up, {gate_, up_});
  m.fuse(experts + t.fused_down, {down_});
  m.split(ParameterSplit::experts, {gate_, up_, down_});
  m.adapt(AdapterKind::mlp, {gate_, up_, down_});
  shared_.emplace(m, prefix + t.shared, Mlp::Settings{s.hidden, s.width * s.shared_experts, t.expert});
}

Tensor RoutedMlp::forward(Context& ctx, const Tensor& h) const {
  const Tensor shared = shared_->forward(ctx, h);
  const Routing routing = route(ctx, linear(ctx, h, router_), bias_, top_k_, normalise_, scaling_, sparse_layer_);
  return add(ctx, experts(ctx, h, routing, gate_, up_, down_), shared);
}

}  // namespace lockstep
