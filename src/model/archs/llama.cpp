// Llama 3.x (model_type llama): grouped-query attention with half-style RoPE and a SwiGLU MLP. Agrees with transformers' LlamaForCausalLM
// (tests/golden).
#include "model/archs/archs.h"
#include "model/blocks/decoder.h"
#include "model/blocks/grouped_attention.h"
#include "model/blocks/mlp.h"

namespace lockstep {

std::unique_ptr<Model> make_llama(const Json& config, const ModelOptions&) {
  DecoderTraits traits{.model_type = "llama", .max_positions = 2048};
  traits.only = {
      {"sliding_window", {nullptr}}, {"rope_interleave", {false}}, {"rope_interleaved", {false}}, {"qk_layernorm", {false}}, {"use_qk_norm", {false}}};
  auto model = std::make_unique<DecoderModel>(config, traits);
  const auto attention = GroupedAttention::read(model->reader(), {}, model->facts_to_fill(), model->norm_eps());
  const auto mlp = Mlp::read(model->reader(), {}, model->facts().hidden);
  model->build([&](Manifest& m, std::int64_t, const std::string& prefix) { return std::make_unique<GroupedAttention>(m, prefix + "self_attn.", attention); },
               [&](Manifest& m, std::int64_t, const std::string& prefix) { return std::make_unique<Mlp>(m, prefix + "mlp.", mlp); });
  return model;
}

}  // namespace lockstep
