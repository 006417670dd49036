// gpt-oss 20b and 120b (model_type gpt_oss): grouped attention with sinks and biases, a sliding window on every second layer, YaRN; every layer
// has experts with biases and a clamped SwiGLU under a softmax router with a bias. Agrees with transformers' GptOssForCausalLM (tests/golden).
#include "model/archs/archs.h"
#include "model/blocks/decoder.h"
#include "model/blocks/grouped_attention.h"
#include "model/blocks/routed_mlp.h"

namespace lockstep {

namespace {
// As transformers, where a config says nothing of RoPE.
Json with_rope(Json config) {
  const auto says = [&](const char* key) { return config.contains(key) && !config.at(key).is_null() && !config.at(key).empty(); };
  if (!config.is_object() || says("rope_parameters") || says("rope_scaling")) return config;
  config["rope_parameters"] = {{"rope_type", "yarn"}, {"factor", 32.0},    {"beta_fast", 32.0},
                               {"beta_slow", 1.0},    {"truncate", false}, {"original_max_position_embeddings", 4096}};
  return config;
}
}  // namespace

std::unique_ptr<Model> make_gpt_oss(const Json& config, const ModelOptions&) {
  DecoderTraits traits{.model_type = "gpt_oss", .max_positions = 131072, .norm_eps = 1e-5, .attention_bias = true, .may_clamp = true};
  traits.only = {{"rope_interleave", {false}}, {"rope_interleaved", {false}}, {"use_qk_norm", {false}}, {"norm_topk_prob", {true}}};
  auto model = std::make_unique<DecoderModel>(with_rope(config), traits);
  const ConfigReader c = model->reader();
  ModelFacts& facts = model->facts_to_fill();
  GroupedAttention::Traits heads{.head_size = 64, .most_kv_heads = 8, .theta = 150000, .window = 128, .window_by_layer = true};
  heads.q_bias = "q_proj.bias";
  heads.k_bias = "k_proj.bias";
  heads.v_bias = "v_proj.bias";
  heads.o_bias = "o_proj.bias";
  heads.sinks = "sinks";
  const auto attention = GroupedAttention::read(c, heads, facts, model->norm_eps());
  RoutedMlp::Traits routed{.count_keys = {"num_local_experts", "num_experts"}, .width_key = "intermediate_size", .softmax = true, .normalise = {}};
  routed.scaling = {};
  routed.router = "router.weight";
  routed.router_bias = "router.bias";
  routed.bias = routed.shared = {};
  routed.interleaved = true;
  const auto sparse = RoutedMlp::read(c, routed, facts, std::vector<bool>(static_cast<std::size_t>(facts.layers), true));
  c.only("experts_per_token", {facts.experts_a_token});  // the older name
  model->build(
      [&](Manifest& m, std::int64_t layer, const std::string& prefix) {
        return std::make_unique<GroupedAttention>(m, prefix + "self_attn.", attention.of_layer(layer));
      },
      [&](Manifest& m, std::int64_t layer, const std::string& prefix) { return std::make_unique<RoutedMlp>(m, layer, prefix + "mlp.", sparse, facts); });
  return model;
}

}  // namespace lockstep
