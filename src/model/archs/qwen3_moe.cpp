// Qwen3-MoE (model_type qwen3_moe): qwen3's attention; a softmax router over experts, and plain MLPs on the layers that the config names.
// Agrees with transformers' Qwen3MoeForCausalLM (tests/golden).
#include <algorithm>

#include "model/archs/archs.h"
#include "model/blocks/decoder.h"
#include "model/blocks/grouped_attention.h"
#include "model/blocks/routed_mlp.h"

namespace lockstep {

namespace {
// Layer i has experts unless `mlp_only_layers` names it, if i + 1 is a multiple of `decoder_sparse_step`.
std::vector<bool> sparse_layers(const ConfigReader& c, std::int64_t layers) {
  const std::vector<std::int64_t> plain = c.integers("mlp_only_layers");
  const std::int64_t step = c.integer("decoder_sparse_step", 1, 4096, 1);
  std::vector<bool> sparse;
  for (std::int64_t i = 0; i < layers; ++i) sparse.push_back((i + 1) % step == 0 && std::find(plain.begin(), plain.end(), i) == plain.end());
  return sparse;
}
}  // namespace

std::unique_ptr<Model> make_qwen3_moe(const Json& config, const ModelOptions&) {
  DecoderTraits traits{.model_type = "qwen3_moe", .max_positions = 32768};
  traits.only = {{"rope_interleave", {false}}, {"rope_interleaved", {false}}, {"use_qk_norm", {true}}, {"n_shared_experts", {0}}};
  auto model = std::make_unique<DecoderModel>(config, traits);
  const ConfigReader c = model->reader();
  ModelFacts& facts = model->facts_to_fill();
  GroupedAttention::Traits heads{.most_kv_heads = 4};
  heads.q_norm = "q_norm.weight";
  heads.k_norm = "k_norm.weight";
  const auto attention = GroupedAttention::read(c, heads, facts, model->norm_eps());
  RoutedMlp::Traits routed{.count_keys = {"num_experts", "num_local_experts"}, .softmax = true, .normalise = false, .scaling = {}};
  routed.bias = routed.shared = {};
  const auto sparse = RoutedMlp::read(c, routed, facts, sparse_layers(c, facts.layers));
  const auto dense = Mlp::read(c, {}, facts.hidden);
  model->build([&](Manifest& m, std::int64_t, const std::string& prefix) { return std::make_unique<GroupedAttention>(m, prefix + "self_attn.", attention); },
               [&](Manifest& m, std::int64_t layer, const std::string& prefix) { return experts_or_mlp(m, layer, prefix + "mlp.", sparse, dense, facts); });
  return model;
}

}  // namespace lockstep
