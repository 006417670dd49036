// GLM-5, 5.1, 5.2 (model_type glm_moe_dsa): absorbed multi-head latent attention, a sparse indexer shared across layers, dense
// first layers, then routed experts beside a shared one. Agrees with transformers' GlmMoeDsaForCausalLM (tests/golden).
#include "base/error.h"
#include "model/archs/archs.h"
#include "model/archs/latent_mtp.h"

namespace lockstep {

std::unique_ptr<Model> make_glm_moe_dsa(const Json& config, const ModelOptions& options) {
  DecoderTraits traits{.model_type = "glm_moe_dsa", .norm_eps = 1e-5, .may_tie = false};
  traits.only = {
      {"sliding_window", {nullptr}}, {"rope_interleave", {true}}, {"indexer_rope_interleave", {true}}, {"moe_layer_freq", {1}}, {"n_hash_layers", {0}}};
  auto model = std::make_unique<DecoderModel>(config, traits);
  const ConfigReader c = model->reader();
  for (const std::string& kind : c.texts("layer_types"))
    if (kind != "indexed_attention" && kind != "deepseek_sparse_attention" && kind != "full_attention")
      fail(ErrorCode::unsupported, "config.json: 'layer_types' contains '{}', allowed are indexed_attention, deepseek_sparse_attention and full_attention{}",
           kind, did_you_mean(kind, {"indexed_attention", "deepseek_sparse_attention", "full_attention"}));
  ModelFacts& facts = model->facts_to_fill();
  const auto latent_eps = static_cast<float>(options.mla_norm_eps > 0 ? options.mla_norm_eps : 1e-6);
  LatentAttention::Traits latent;
  latent.indexer.emplace();
  const auto attention = LatentAttention::read(c, latent, facts, latent_eps);
  const auto dense = Mlp::read(c, {}, facts.hidden);
  const auto sparse = RoutedMlp::read(c, {}, facts, RoutedMlp::sparse_after_dense(c, facts.layers));
  model->build(
      [&](Manifest& m, std::int64_t layer, const std::string& prefix) { return std::make_unique<LatentAttention>(m, layer, prefix + "self_attn.", attention); },
      [&](Manifest& m, std::int64_t layer, const std::string& prefix) { return experts_or_mlp(m, layer, prefix + "mlp.", sparse, dense, facts); });
  add_latent_mtp(*model, attention, sparse);
  return model;
}

}  // namespace lockstep
