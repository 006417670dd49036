#include "model/blocks/routed_mlp.h"

#include <algorithm>

#include "base/error.h"
#include "model/config_key_log.h"
#include "model/operations/add.h"
#include "model/operations/linear.h"

namespace lockstep {

namespace {
void read_groups(const ConfigReader& c, const RoutedMlp::Traits& traits, std::int64_t experts, RouterRule& rule) {
  if (traits.groups == 0) {
    for (const char* key : {"n_group", "topk_group"}) c.only(key, {1});
    return;
  }
  rule.groups = c.integer("n_group", 1, experts, traits.groups);
  rule.kept_groups = c.integer("topk_group", 1, rule.groups, std::min(traits.kept_groups, rule.groups));
  const std::int64_t size = experts / rule.groups;
  if (experts % rule.groups || (rule.groups > 1 && size < 2))
    fail(ErrorCode::invalid_argument, "config.json: 'n_group' is {}, allowed are divisors of the {} experts that leave two or more a group", rule.groups,
         experts);
  if (rule.kept_groups * size < rule.top_k)
    fail(ErrorCode::invalid_argument, "config.json: 'topk_group' is {}: {} experts remain, and 'num_experts_per_tok' is {}; allowed is what leaves as many",
         rule.kept_groups, rule.kept_groups * size, rule.top_k);
}
}  // namespace

std::vector<bool> RoutedMlp::sparse_after_dense(const ConfigReader& c, std::int64_t layers, std::optional<std::int64_t> dense_layers) {
  const std::vector<std::string> kinds = c.layer_texts("mlp_layer_types", layers, {"dense", "sparse"});
  if (!kinds.empty()) dense_layers = 0;
  const std::int64_t dense = c.integer("first_k_dense_replace", 0, 4096, dense_layers);
  std::vector<bool> sparse;
  for (std::int64_t i = 0; i < layers; ++i) sparse.push_back(kinds.empty() ? i >= dense : kinds[static_cast<std::size_t>(i)] == "sparse");
  return sparse;
}

RoutedMlp::Settings RoutedMlp::read(const ConfigReader& c, const Traits& traits, ModelFacts& facts, std::vector<bool> sparse) {
  Settings s;
  s.hidden = facts.hidden;
  s.width = c.integer(traits.width_key, 1, kLargestDimension);
  const auto said = std::find_if(traits.count_keys.begin(), traits.count_keys.end(), [&](const std::string& key) { return c.has(key); });
  const std::string& count_key = said == traits.count_keys.end() ? traits.count_keys.front() : *said;
  s.experts = facts.expert_count = c.integer(count_key, 1, 65536);
  // A config is untrusted: the number of experts to list must be bounded before any weight is read (GLM-5.2 has 19,968).
  constexpr std::int64_t kMost = std::int64_t{1} << 19;
  if (facts.layers * s.experts > kMost)
    fail(ErrorCode::invalid_argument, "config.json: 'num_hidden_layers' x '{}' is {}, allowed is at most {}", count_key, facts.layers * s.experts, kMost);
  for (const std::string& other : traits.count_keys) must_equal(c, other, s.experts);
  s.rule.top_k = facts.experts_a_token = c.integer("num_experts_per_tok", 1, s.experts);
  if (!traits.shared.empty()) s.shared_experts = c.integer("n_shared_experts", 1, 1024, 1);
  s.rule.softmax = traits.softmax;
  if (traits.normalise) s.rule.normalise = c.boolean("norm_topk_prob", *traits.normalise);
  if (traits.scaling) s.rule.scaling = static_cast<float>(c.number("routed_scaling_factor", 0, 1e6, *traits.scaling));
  if (traits.interleaved)
    s.swiglu = {static_cast<float>(c.number("swiglu_alpha", -1e3, 1e3, 1.702)), static_cast<float>(c.number("swiglu_limit", 1e-3, 1e6, 7.0))};
  read_groups(c, traits, s.experts, s.rule);
  c.only("scoring_func", {traits.softmax ? "softmax" : "sigmoid"});
  c.only("topk_method", {traits.softmax ? "greedy" : "noaux_tc"});
  s.sparse = std::move(sparse);
  facts.sparse_layers = std::count(s.sparse.begin(), s.sparse.end(), true);
  s.traits = traits;
  return s;
}

RoutedMlp::RoutedMlp(Manifest& m, std::int64_t layer, const std::string& prefix, const Settings& s, ModelFacts& facts)
    : rule_(s.rule),
      // Of a slot the gathered row and its gradient, and what an expert of its width takes.
      routed_{s.experts * (3 * s.width + 1) * s.hidden, s.rule.top_k * (2 * s.hidden + Mlp::kValuesOfWidth * s.width)},
      idle_((s.experts - s.rule.top_k) * 3 * s.hidden * s.width),
      sparse_layer_(static_cast<int>(std::count(s.sparse.begin(), s.sparse.begin() + static_cast<std::ptrdiff_t>(layer), true))) {
  const Traits& t = s.traits;
  weights_.rule = s.swiglu;
  rule_.weight = m.matrix(prefix + t.router, s.experts, s.hidden);
  m.keep_exact(rule_.weight);
  if (!t.router_bias.empty()) router_bias_ = m.vector(prefix + t.router_bias, s.experts);
  if (!t.bias.empty()) {
    rule_.bias = m.untrained_vector(prefix + t.bias, s.experts);
    facts.router_biases.push_back(rule_.bias);
  }
  if (t.interleaved) declare_interleaved(m, prefix + t.experts, s);
  else declare_each(m, prefix + t.experts, s);
  m.split(ParameterSplit::experts, {weights_.gate, weights_.up, weights_.down});
  m.adapt(AdapterKind::mlp, {weights_.gate, weights_.up, weights_.down});
  if (!t.shared.empty()) shared_.emplace(m, prefix + t.shared, Mlp::Settings{s.hidden, s.width * s.shared_experts, t.expert});
}

void RoutedMlp::declare_each(Manifest& m, const std::string& experts, const Settings& s) {
  const Traits& t = s.traits;
  const auto name = [&](const std::string& part) { return [&experts, part](std::int64_t e) { return fmt::format("{}{}.{}", experts, e, part); }; };
  weights_.gate = m.matrices(experts + "gate", s.experts, s.width, s.hidden, name(t.expert.gate));
  weights_.up = m.matrices(experts + "up", s.experts, s.width, s.hidden, name(t.expert.up));
  weights_.down = m.matrices(experts + "down", s.experts, s.hidden, s.width, name(t.expert.down));
  m.fuse(experts + t.fused_gate_up, {weights_.gate, weights_.up});
  m.fuse(experts + t.fused_down, {weights_.down});
}

void RoutedMlp::declare_interleaved(Manifest& m, const std::string& experts, const Settings& s) {
  const Traits& t = s.traits;
  const auto add = [&](const char* name, ParameterLayout layout, std::int64_t outputs, std::int64_t inputs) {
    return m.add({experts + name, layout, s.experts, outputs, inputs});
  };
  // Each of `ids` takes its items' columns of the tensor [experts, rows, columns of all], in turn.
  const auto file = [&](const std::string& name, std::vector<std::int64_t> shape, const std::vector<ParameterId>& ids, const std::vector<const char*>& layers) {
    FileTensor tensor{experts + name, std::move(shape), false, {}};
    const std::int64_t rows = tensor.rows() / s.experts, step = static_cast<std::int64_t>(ids.size());
    for (std::int64_t e = 0; e < s.experts; ++e)
      for (std::int64_t i = 0; i < step; ++i) {
        const std::string layer = layers.empty() ? "" : fmt::format("{}{}.{}", experts, e, layers[static_cast<std::size_t>(i)]);
        tensor.pieces.push_back({ids[static_cast<std::size_t>(i)], e, e * rows, rows, !layers.empty(), i, step, layer});
      }
    m.add_file(std::move(tensor));
  };
  ExpertWeights& w = weights_;
  w.gate = add("gate", ParameterLayout::packed, s.width, s.hidden);
  w.up = add("up", ParameterLayout::packed, s.width, s.hidden);
  file(t.fused_gate_up, {s.experts, s.hidden, 2 * s.width}, {w.gate, w.up}, {"gate_proj", "up_proj"});
  w.gate_bias = add("gate_bias", ParameterLayout::table, 1, s.width);
  w.up_bias = add("up_bias", ParameterLayout::table, 1, s.width);
  file(t.gate_up_bias, {s.experts, 2 * s.width}, {w.gate_bias, w.up_bias}, {});
  w.down = add("down", ParameterLayout::packed, s.hidden, s.width);
  file(t.fused_down, {s.experts, s.width, s.hidden}, {w.down}, {"down_proj"});
  w.down_bias = add("down_bias", ParameterLayout::table, 1, s.hidden);
  file(t.down_bias, {s.experts, s.hidden}, {w.down_bias}, {});
  m.split(ParameterSplit::experts, {w.gate_bias, w.up_bias, w.down_bias});
  idle_ += (s.experts - s.rule.top_k) * (2 * s.width + s.hidden);
}

// The shared expert comes first: the order of the products fixes, in reverse, the order in which h's gradient is summed.
Tensor RoutedMlp::forward(Context& ctx, const Tensor& h) const {
  std::optional<Tensor> shared;
  if (shared_) shared = shared_->forward(ctx, h);
  const Routing routing = route(ctx, linear(ctx, h, rule_.weight, router_bias_), rule_, sparse_layer_);
  const Tensor routed = experts(ctx, h, routing, weights_);
  return shared ? add(ctx, routed, *shared) : routed;
}

RowCost RoutedMlp::row_cost() const {
  if (!shared_) return routed_;
  const RowCost shared = shared_->row_cost();
  return {routed_.weights + shared.weights, routed_.values + shared.values};
}

std::unique_ptr<FeedForwardBlock> experts_or_mlp(Manifest& manifest, std::int64_t layer, const std::string& prefix, const RoutedMlp::Settings& sparse,
                                                 const Mlp::Settings& dense, ModelFacts& facts) {
  if (sparse.sparse[static_cast<std::size_t>(layer)]) return std::make_unique<RoutedMlp>(manifest, layer, prefix, sparse, facts);
  return std::make_unique<Mlp>(manifest, prefix, dense);
}

}  // namespace lockstep
