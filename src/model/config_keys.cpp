#include "model/config_keys.h"

#include "base/error.h"
#include "model/quantisation_config.h"

namespace lockstep {

namespace {
struct OtherArithmetic {
  std::string_view key;
  std::vector<Json> allowed;  // absent and null always are
};

// Keys that transformers' class, an older one, or another engine reads under the same `model_type`.
const std::vector<OtherArithmetic>& rows() {
  static const std::vector<OtherArithmetic> all = {
      {"attention_dropout", {0}},
      {"is_encoder_decoder", {false}},
      {"add_cross_attention", {false}},
      {"per_layer_config", {Json::object()}},
      {"compression_config", {Json::object()}},
      {"bias", {false}},
      {"qkv_bias", {false}},
      {"attention_qkv_bias", {false}},
      {"attention_out_bias", {false}},
      {"bias_o_proj", {false}},
      {"mlp_bias", {false}},
      {"attn_logit_softcapping", {nullptr}},
      {"final_logit_softcapping", {nullptr}},
      {"logit_scale", {1}},
      {"logits_scaling", {1}},
      {"embedding_multiplier", {1}},
      {"residual_multiplier", {1}},
      {"attention_multiplier", {nullptr}},
      {"query_pre_attn_scalar", {nullptr}},
      {"clip_qkv", {nullptr}},
      {"attention_chunk_size", {nullptr}},
      {"sliding_window_pattern", {nullptr}},
      {"no_rope_layers", {nullptr, Json::array()}},
      {"no_rope_layer_interval", {nullptr}},
      {"alibi", {false}},
      {"use_parallel_residual", {false}},
      {"use_sliding_window", {false}},
      {"use_mrope", {false}},
  };
  return all;
}

// "deepseek_v3" and "DeepseekV3" are the same.
std::string without_case(std::string_view name) {
  std::string plain;
  for (const char c : name)
    if (c != '_') plain += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return plain;
}

// Whether a value of `auto_map` is a class of the family, such as "modeling_deepseek.DeepseekV3ForCausalLM" ("OWNER/NAME--" may stand before it).
// Published folders of families that were newer than transformers then have it; transformers takes its own class now, and so does this program.
bool is_of_family(const Json& code, std::string_view model_type) {
  if (!code.is_string()) return false;
  const std::string& text = code.get_ref<const std::string&>();
  const std::string_view name = std::string_view(text).substr(text.find_last_of('.') + 1);
  std::size_t stem = std::string_view::npos;
  for (const std::string_view kind : {"ForCausalLM", "Model"})
    if (name.ends_with(kind)) stem = name.size() - kind.size();
  if (stem == std::string_view::npos) return false;
  const std::string own = without_case(name.substr(0, stem));
  return own == without_case(model_type) || (model_type == "kimi_k2" && own == "deepseekv3");  // Kimi K2's folders have DeepSeek-V3's code
}

}  // namespace

void refuse_other_arithmetic(const ConfigReader& config) {
  for (const OtherArithmetic& row : rows()) config.only(std::string(row.key), row.allowed);
  check_quantisation(config);
  if (config.has("auto_map") && config.raw().at("auto_map").is_object())
    for (const auto& [name, code] : config.raw().at("auto_map").items())
      if (name.starts_with("AutoModel") && !is_of_family(code, config.text("model_type")))
        fail(ErrorCode::unsupported,
             "config.json: 'auto_map' names '{}', code of the folder's own that computes the model: {}; allowed are classes of '{}' itself", name,
             code.dump().substr(0, 100), config.text("model_type"));
  // Where both exist, transformers uses `rope_scaling` and ignores `rope_parameters`.
  const auto said = [&](const char* key) { return config.has(key) && !config.raw().at(key).empty(); };
  if (said("rope_scaling") && said("rope_parameters") && config.raw().at("rope_scaling") != config.raw().at("rope_parameters"))
    fail(ErrorCode::invalid_argument, "config.json: 'rope_scaling' and 'rope_parameters' are both there and differ, allowed is one of them");
}

}  // namespace lockstep
