// Mistral 7B and what has its shape (model_type mistral): as llama, where wanted with a sliding window of keys on every layer. Agrees with
// transformers' MistralForCausalLM (tests/golden).
#include "model/archs/archs.h"
#include "model/blocks/decoder.h"
#include "model/blocks/grouped_attention.h"
#include "model/blocks/mlp.h"

namespace lockstep {

std::unique_ptr<Model> make_mistral(const Json& config, const ModelOptions&) {
  DecoderTraits traits{.model_type = "mistral", .max_positions = 131072};
  traits.only = {{"rope_interleave", {false}}, {"rope_interleaved", {false}}, {"qk_layernorm", {false}}, {"use_qk_norm", {false}}};
  auto model = std::make_unique<DecoderModel>(config, traits);
  GroupedAttention::Traits heads{.most_kv_heads = 8, .window = 4096};
  const auto attention = GroupedAttention::read(model->reader(), heads, model->facts_to_fill(), model->norm_eps());
  const auto mlp = Mlp::read(model->reader(), {}, model->facts().hidden);
  model->build([&](Manifest& m, std::int64_t, const std::string& prefix) { return std::make_unique<GroupedAttention>(m, prefix + "self_attn.", attention); },
               [&](Manifest& m, std::int64_t, const std::string& prefix) { return std::make_unique<Mlp>(m, prefix + "mlp.", mlp); });
  return model;
}

}  // namespace lockstep
