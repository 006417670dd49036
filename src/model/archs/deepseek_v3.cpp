// DeepSeek-V3 and R1 (model_type deepseek_v3), and Kimi K2, which is the same model (kimi_k2): latent attention over all keys, dense first
// layers, then experts in groups beside a shared one. Agrees with transformers' DeepseekV3ForCausalLM (tests/golden).
#include "model/archs/archs.h"
#include "model/archs/latent_mtp.h"

namespace lockstep {

namespace {
std::unique_ptr<Model> deepseek(std::string_view model_type, const Json& config, const ModelOptions& options) {
  DecoderTraits traits{.model_type = model_type, .max_positions = 4096};
  traits.only = {{"sliding_window", {nullptr}}, {"moe_layer_freq", {1}}, {"n_hash_layers", {0}}, {"index_topk", {nullptr}}};
  auto model = std::make_unique<DecoderModel>(config, traits);
  const ConfigReader c = model->reader();
  ModelFacts& facts = model->facts_to_fill();
  LatentAttention::Traits latent{.may_turn_halves = true, .rope_types = {"default", "yarn"}};
  latent.q = "q_proj.weight";
  const auto attention = LatentAttention::read(c, latent, facts, static_cast<float>(options.mla_norm_eps > 0 ? options.mla_norm_eps : 1e-6));
  const auto dense = Mlp::read(c, {}, facts.hidden);
  const auto sparse = RoutedMlp::read(c, {.groups = 8, .kept_groups = 4}, facts, RoutedMlp::sparse_after_dense(c, facts.layers, 3));
  model->build(
      [&](Manifest& m, std::int64_t layer, const std::string& prefix) { return std::make_unique<LatentAttention>(m, layer, prefix + "self_attn.", attention); },
      [&](Manifest& m, std::int64_t layer, const std::string& prefix) { return experts_or_mlp(m, layer, prefix + "mlp.", sparse, dense, facts); });
  add_latent_mtp(*model, attention, sparse);
  return model;
}
}  // namespace

std::unique_ptr<Model> make_deepseek_v3(const Json& config, const ModelOptions& options) { return deepseek("deepseek_v3", config, options); }
std::unique_ptr<Model> make_kimi_k2(const Json& config, const ModelOptions& options) { return deepseek("kimi_k2", config, options); }

}  // namespace lockstep
