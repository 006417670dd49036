// DeepSeek-V3.2 (model_type deepseek_v32): deepseek_v3 with an indexer on every layer, whose RoPE turns halves where the attention's turns
// pairs. Agrees with transformers' DeepseekV32ForCausalLM (tests/golden).
#include "base/error.h"
#include "model/archs/archs.h"
#include "model/archs/latent_mtp.h"

namespace lockstep {

std::unique_ptr<Model> make_deepseek_v32(const Json& config, const ModelOptions& options) {
  DecoderTraits traits{.model_type = "deepseek_v32", .max_positions = 163840};
  traits.only = {{"sliding_window", {nullptr}}, {"moe_layer_freq", {1}}, {"n_hash_layers", {0}}, {"indexer_rope_interleave", {false}}};
  auto model = std::make_unique<DecoderModel>(config, traits);
  const ConfigReader c = model->reader();
  for (const std::string& kind : c.texts("layer_types"))
    if (kind != "indexed_attention" && kind != "deepseek_sparse_attention")
      fail(ErrorCode::unsupported, "config.json: 'layer_types' contains '{}', allowed are indexed_attention and deepseek_sparse_attention{}", kind,
           did_you_mean(kind, {"indexed_attention", "deepseek_sparse_attention"}));
  ModelFacts& facts = model->facts_to_fill();
  LatentAttention::Traits latent{.rope_types = {"default", "yarn"}};
  latent.indexer = Indexer::Traits{.half = true, .on_every_layer = true};
  const auto attention = LatentAttention::read(c, latent, facts, static_cast<float>(options.mla_norm_eps > 0 ? options.mla_norm_eps : 1e-6));
  const auto dense = Mlp::read(c, {}, facts.hidden);
  const auto sparse = RoutedMlp::read(c, {.groups = 8, .kept_groups = 4}, facts, RoutedMlp::sparse_after_dense(c, facts.layers, 3));
  model->build(
      [&](Manifest& m, std::int64_t layer, const std::string& prefix) { return std::make_unique<LatentAttention>(m, layer, prefix + "self_attn.", attention); },
      [&](Manifest& m, std::int64_t layer, const std::string& prefix) { return experts_or_mlp(m, layer, prefix + "mlp.", sparse, dense, facts); });
  add_latent_mtp(*model, attention, sparse);
  return model;
}

}  // namespace lockstep
