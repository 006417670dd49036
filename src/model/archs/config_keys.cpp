#include "model/archs/config_keys.h"

#include <algorithm>

#include "base/error.h"

namespace lockstep {

namespace {
struct OtherArithmetic {
  std::string_view key;
  std::vector<std::string_view> families;  // empty: all
  std::vector<Json> allowed;               // absent and null always are
};

// Read by transformers' class, by an older one, or by another engine under the same `model_type`.
const std::vector<OtherArithmetic>& rows() {
  static const std::vector<OtherArithmetic> all = {
      {"attention_dropout", {}, {0}},
      {"is_encoder_decoder", {}, {false}},
      {"add_cross_attention", {}, {false}},
      {"per_layer_config", {}, {Json::object()}},
      {"compression_config", {}, {Json::object()}},
      {"bias", {}, {false}},
      {"qkv_bias", {}, {false}},
      {"attention_qkv_bias", {}, {false}},
      {"attention_out_bias", {}, {false}},
      {"bias_o_proj", {}, {false}},
      {"mlp_bias", {}, {false}},
      {"attn_logit_softcapping", {}, {nullptr}},
      {"final_logit_softcapping", {}, {nullptr}},
      {"logit_scale", {}, {1}},
      {"logits_scaling", {}, {1}},
      {"embedding_multiplier", {}, {1}},
      {"residual_multiplier", {}, {1}},
      {"attention_multiplier", {}, {nullptr}},
      {"query_pre_attn_scalar", {}, {nullptr}},
      {"clip_qkv", {}, {nullptr}},
      {"swiglu_limit", {}, {nullptr}},
      {"attention_chunk_size", {}, {nullptr}},
      {"sliding_window_pattern", {}, {nullptr}},
      {"no_rope_layers", {}, {nullptr, Json::array()}},
      {"no_rope_layer_interval", {}, {nullptr}},
      {"alibi", {}, {false}},
      {"use_parallel_residual", {}, {false}},
      {"sliding_window", {"llama", "glm_moe_dsa"}, {nullptr}},
      {"use_sliding_window", {}, {false}},
      {"use_mrope", {}, {false}},
      {"rope_interleave", {"llama", "qwen3"}, {false}},
      {"rope_interleaved", {"llama", "qwen3"}, {false}},
      {"qk_layernorm", {"llama"}, {false}},
      {"use_qk_norm", {"llama"}, {false}},
      {"use_qk_norm", {"qwen3"}, {true}},
      {"rope_interleave", {"glm_moe_dsa"}, {true}},
      {"indexer_rope_interleave", {"glm_moe_dsa"}, {true}},
      {"moe_layer_freq", {"glm_moe_dsa"}, {1}},
      {"n_hash_layers", {"glm_moe_dsa"}, {0}},
  };
  return all;
}

// Stored numbers are read as what they stand for; only the kind whose tensors are read is let pass.
void check_quantisation(const ConfigReader& config) {
  if (!config.has("quantization_config")) return;
  const Json& given = config.raw().at("quantization_config");
  if (given.is_object() && given.empty()) return;
  with_context("reading 'quantization_config'", [&] {
    const ConfigReader reader(given);
    reader.only("quant_method", {"fp8"});
    if (!reader.has("quant_method")) fail(ErrorCode::invalid_argument, "config.json: 'quant_method' is missing, allowed is \"fp8\"");
    reader.only("fmt", {"e4m3", "float8_e4m3fn"});
    reader.only("activation_scheme", {"dynamic"});
    reader.only("weight_block_size", {Json::array({128, 128})});
    if (!reader.has("weight_block_size")) fail(ErrorCode::invalid_argument, "config.json: 'weight_block_size' is missing, allowed is [128,128]");
    return 0;
  });
}

// Two names of one number: transformers lets the second overrule the first.
void check_same(const ConfigReader& config, const std::string& key, const std::string& second) {
  if (config.has(key) && config.has(second)) config.only(second, {config.raw().at(key)});
}
}  // namespace

void refuse_other_arithmetic(const ConfigReader& config, std::string_view family) {
  for (const OtherArithmetic& row : rows())
    if (row.families.empty() || std::find(row.families.begin(), row.families.end(), family) != row.families.end())
      config.only(std::string(row.key), row.allowed);
  check_quantisation(config);
  if (config.has("auto_map") && config.raw().at("auto_map").is_object())
    for (const auto& [name, code] : config.raw().at("auto_map").items())
      if (name.starts_with("AutoModel"))
        fail(ErrorCode::unsupported, "config.json: 'auto_map' names '{}', code of the folder's own that computes the model; allowed are models without", name);
  // transformers takes `rope_scaling` where there is one, and `rope_parameters` is forgotten.
  const auto said = [&](const char* key) { return config.has(key) && !config.raw().at(key).empty(); };
  if (said("rope_scaling") && said("rope_parameters") && config.raw().at("rope_scaling") != config.raw().at("rope_parameters"))
    fail(ErrorCode::invalid_argument, "config.json: 'rope_scaling' and 'rope_parameters' are both there and differ, allowed is one of them");
  if (family == "glm_moe_dsa") {
    check_same(config, "n_routed_experts", "num_experts");
    check_same(config, "n_routed_experts", "num_local_experts");
    check_same(config, "num_attention_heads", "num_key_value_heads");
    for (const std::string& kind : config.texts("layer_types"))
      if (kind != "indexed_attention" && kind != "deepseek_sparse_attention" && kind != "full_attention")
        fail(ErrorCode::unsupported, "config.json: 'layer_types' contains '{}', allowed are indexed_attention, deepseek_sparse_attention and full_attention", kind);
    if (config.has("qk_head_dim"))
      config.only("qk_head_dim", {config.integer("qk_nope_head_dim", 1, 1 << 24) + config.integer("qk_rope_head_dim", 1, 1 << 24)});
  }
}

}  // namespace lockstep
