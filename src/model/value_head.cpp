#include "model/value_head.h"

#include "base/error.h"

namespace lockstep {

namespace {
constexpr std::string_view kClass = "ForSequenceClassification";

std::string class_name(const Json& config) {
  if (!config.contains("architectures") || !config.at("architectures").is_array() || config.at("architectures").empty()) return {};
  const Json& first = config.at("architectures").front();
  return first.is_string() ? first.get<std::string>() : std::string();
}

// "glm_moe_dsa" as transformers calls its classes: GlmMoeDsa.
std::string class_stem(const Json& config) {
  const std::string name = class_name(config);
  if (const std::size_t at = name.find("For"); at != std::string::npos && at > 0) return name.substr(0, at);
  std::string stem;
  bool up = true;
  for (const char c : ConfigReader(config).text("model_type")) {
    if (c != '_') stem += up && c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    up = c == '_';
  }
  return stem;
}
}  // namespace

bool is_value_config(const Json& config) {
  if (!class_name(config).ends_with(kClass)) return false;
  std::int64_t labels = 2;  // transformers' default
  if (config.contains("id2label") && config.at("id2label").is_object()) labels = std::ssize(config.at("id2label"));
  if (config.contains("num_labels") && config.at("num_labels").is_number_integer()) labels = config.at("num_labels").get<std::int64_t>();
  if (labels != 1)
    fail(ErrorCode::unsupported, "config.json: '{}' has {} labels ('id2label'), allowed is 1: a value head says one number", class_name(config), labels);
  return true;
}

Json value_config(const Json& config) {
  Json own = config;
  own["architectures"] = Json::array({class_stem(config) + std::string(kClass)});
  own["id2label"] = {{"0", "LABEL_0"}};
  own["label2id"] = {{"LABEL_0", 0}};
  own.erase("num_labels");
  // transformers scores several sequences at once only where it knows what fills the shorter ones.
  if (!own.contains("pad_token_id") || own.at("pad_token_id").is_null())
    if (const std::vector<std::int64_t> ends = ConfigReader(config).integers("eos_token_id"); !ends.empty()) own["pad_token_id"] = ends.front();
  return own;
}

bool has_value_head(const Model& model) { return model.manifest().parameter(model.facts().head).outputs == 1; }

ParameterId value_bias(const Model& model) {
  const auto last = static_cast<ParameterId>(model.manifest().parameters().size()) - 1;
  return has_value_head(model) && last > model.facts().head ? last : -1;
}

void refuse_value_head(const Model& model, const std::string& what) {
  if (has_value_head(model))
    fail(ErrorCode::unsupported, "the model has a value head (score.weight), so {}; allowed are models with a head over the vocabulary (lm_head)", what);
}

}  // namespace lockstep
