// Qwen3, dense (model_type qwen3): as llama, with a norm of each head of q and k before RoPE. Agrees with transformers' Qwen3ForCausalLM
// (tests/golden).
#include "model/archs/archs.h"
#include "model/blocks/decoder.h"
#include "model/blocks/grouped_attention.h"
#include "model/blocks/mlp.h"

namespace lockstep {

std::unique_ptr<Model> make_qwen3(const Json& config, const ModelOptions&) {
  DecoderTraits traits{.model_type = "qwen3", .max_positions = 32768};
  traits.only = {{"rope_interleave", {false}}, {"rope_interleaved", {false}}, {"use_qk_norm", {true}}};
  auto model = std::make_unique<DecoderModel>(config, traits);
  GroupedAttention::Traits heads{.head_size = 128, .most_kv_heads = 32};
  heads.q_norm = "q_norm.weight";
  heads.k_norm = "k_norm.weight";
  const auto attention = GroupedAttention::read(model->reader(), heads, model->facts_to_fill(), model->norm_eps());
  const auto mlp = Mlp::read(model->reader(), {}, model->facts().hidden);
  model->build([&](Manifest& m, std::int64_t, const std::string& prefix) { return std::make_unique<GroupedAttention>(m, prefix + "self_attn.", attention); },
               [&](Manifest& m, std::int64_t, const std::string& prefix) { return std::make_unique<Mlp>(m, prefix + "mlp.", mlp); });
  return model;
}

}  // namespace lockstep
