// Qwen2 and Qwen2.5, dense (model_type qwen2): as llama, with biases of q, k and v. Agrees with transformers' Qwen2ForCausalLM (tests/golden).
#include "model/archs/archs.h"
#include "model/blocks/decoder.h"
#include "model/blocks/grouped_attention.h"
#include "model/blocks/mlp.h"

namespace lockstep {

std::unique_ptr<Model> make_qwen2(const Json& config, const ModelOptions&) {
  DecoderTraits traits{.model_type = "qwen2", .max_positions = 32768};
  traits.only = {{"rope_interleave", {false}}, {"rope_interleaved", {false}}, {"use_qk_norm", {false}}};
  auto model = std::make_unique<DecoderModel>(config, traits);
  GroupedAttention::Traits heads{.most_kv_heads = 32};
  heads.q_bias = "q_proj.bias";
  heads.k_bias = "k_proj.bias";
  heads.v_bias = "v_proj.bias";
  const auto attention = GroupedAttention::read(model->reader(), heads, model->facts_to_fill(), model->norm_eps());
  const auto mlp = Mlp::read(model->reader(), {}, model->facts().hidden);
  model->build([&](Manifest& m, std::int64_t, const std::string& prefix) { return std::make_unique<GroupedAttention>(m, prefix + "self_attn.", attention); },
               [&](Manifest& m, std::int64_t, const std::string& prefix) { return std::make_unique<Mlp>(m, prefix + "mlp.", mlp); });
  return model;
}

}  // namespace lockstep
