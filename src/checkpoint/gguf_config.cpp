#include "checkpoint/gguf_config.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>

#include "base/choice.h"
#include "base/error.h"
#include "checkpoint/tensor_file.h"

namespace lockstep {

namespace {
constexpr std::int64_t kMost = std::int64_t{1} << 31, kMostLayers = 4096, kMostExperts = 65536;

// The double with the shortest decimals that name this float: 1e-05, not 9.999999747378752e-06.
double as_written(float value) {
  const std::string text = fmt::format("{}", value);
  double number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// Metadata of the model, by their names behind the architecture's.
class Keys {
 public:
  Keys(const GgufFile& file, const GgufArchitecture& architecture) : file_(file), prefix_(std::string(architecture.name) + ".") {}
  std::string name(std::string_view key) const { return prefix_ + std::string(key); }
  std::int64_t integer(std::string_view key, std::int64_t high = kMost) const { return file_.integer(name(key), 1, high); }
  std::int64_t integer(std::string_view key, std::int64_t high, std::int64_t otherwise) const {
    return file_.integer_if(name(key), 1, high).value_or(otherwise);
  }
  std::optional<float> number(std::string_view key) const { return file_.number_if(name(key)); }
  // Refuses what asks for arithmetic that no family here computes; a missing key never does.
  void only(std::string_view key, double allowed) const {
    if (const auto found = file_.scalar_if(name(key)); found && *found != allowed) file_.not_offered(name(key), fmt::format("{}", allowed));
  }
  std::optional<std::string> text(std::string_view key) const { return file_.text_if(name(key)); }

 private:
  const GgufFile& file_;
  std::string prefix_;
};

// Keys of llama.cpp that change a model's arithmetic, with the one value under which they do not.
constexpr std::pair<std::string_view, double> kOtherArithmetic[] = {
    {"attention.sliding_window", 0},  {"attention.clamp_kqv", 0},  {"attention.scale", 0},    {"attention.max_alibi_bias", 0}, {"attn_logit_softcapping", 0},
    {"final_logit_softcapping", 0},   {"logit_scale", 1},          {"residual_scale", 1},     {"embedding_scale", 1},          {"use_parallel_residual", 0},
    {"expert_shared_count", 0},       {"expert_group_count", 1},   {"expert_gating_func", 1}, {"expert_weights_norm", 1},      {"expert_weights_scale", 1},
    {"leading_dense_block_count", 0}, {"nextn_predict_layers", 0}, {"attention.causal", 1},   {"rope.scaling.attn_factor", 1}};

// What Llama 3's scaled rope divides frequency i by (transformers' _compute_llama3_parameters).
double llama3_divisor(double theta, std::int64_t rotary, std::int64_t i, double factor, double low, double high, double original) {
  const double wavelength = 2 * std::numbers::pi * std::pow(theta, 2.0 * static_cast<double>(i) / static_cast<double>(rotary));
  if (wavelength < original / high) return 1;
  if (wavelength > original / low) return factor;
  const double smooth = (original / wavelength - low) / (high - low);
  return 1 / ((1 - smooth) / factor + smooth);
}

// llama.cpp keeps Llama 3's scaling as a tensor of divisors. Only the largest of its four numbers can be read off it: the others are those of
// every model published so, and it is checked that they give this tensor.
void read_rope_factors(const GgufFile& file, std::int64_t rotary, double theta, Json& rope) {
  const GgufTensor* tensor = file.find(kGgufRopeFactors);
  if (!tensor) return;
  constexpr double kLow = 1, kHigh = 4, kOriginal = 8192, kTolerance = 1e-3;
  if (tensor->shape != std::vector<std::int64_t>{rotary / 2})
    fail(ErrorCode::corrupt_file, "'{}': tensor {} has the shape {}, half a head's size is {}", file.label(), quoted_name(tensor->name),
         shape_text(tensor->shape), rotary / 2);
  std::vector<float> divisors(static_cast<std::size_t>(rotary / 2));
  file.read(*tensor, divisors);
  const double factor = as_written(*std::max_element(divisors.begin(), divisors.end()));
  if (factor == 1 && *std::min_element(divisors.begin(), divisors.end()) == 1) return;
  for (std::int64_t i = 0; i < rotary / 2; ++i)
    if (const double found = divisors[static_cast<std::size_t>(i)], known = llama3_divisor(theta, rotary, i, factor, kLow, kHigh, kOriginal);
        !(std::abs(found - known) <= kTolerance * known))
      fail(ErrorCode::unsupported,
           "'{}': element {} of tensor {} is {}, and Llama 3's scaling by {} (low_freq_factor 1, high_freq_factor 4, 8192 positions) has {} there; no other is "
           "read",
           file.label(), i, quoted_name(tensor->name), found, factor, known);
  rope["rope_type"] = "llama3";
  rope["factor"] = factor;
  rope["low_freq_factor"] = kLow;
  rope["high_freq_factor"] = kHigh;
  rope["original_max_position_embeddings"] = static_cast<std::int64_t>(kOriginal);
}

Json rope_of(const GgufFile& file, const Keys& keys, std::int64_t head, std::int64_t context) {
  const std::int64_t rotary = keys.integer("rope.dimension_count", kMost, head);
  if (rotary != head)
    fail(ErrorCode::unsupported, "'{}': '{}' is {}, allowed is the size of a head, {}", file.label(), keys.name("rope.dimension_count"), rotary, head);
  Json rope;
  rope["rope_theta"] = as_written(keys.number("rope.freq_base").value_or(10000.0f));
  // Old files have the factor of a linear scaling alone.
  const auto old_factor = keys.number("rope.scale_linear");
  const std::string type = keys.text("rope.scaling.type").value_or(old_factor && *old_factor != 1 ? "linear" : "none");
  rope["rope_type"] = type == "none" ? "default" : type;
  const auto factor = keys.number("rope.scaling.factor") ? keys.number("rope.scaling.factor") : old_factor;
  if (type == "linear" || type == "yarn") {
    if (!factor) fail(ErrorCode::corrupt_file, "'{}': the metadata lacks '{}'", file.label(), keys.name("rope.scaling.factor"));
    rope["factor"] = as_written(*factor);
  } else if (type != "none") {
    fail(ErrorCode::unsupported, "'{}': '{}' is {}, allowed are none, linear and yarn", file.label(), keys.name("rope.scaling.type"), quoted_name(type));
  }
  if (type == "yarn") {
    rope["original_max_position_embeddings"] = keys.integer("rope.scaling.original_context_length", kMost, context);
    for (const auto& [key, name] : {std::pair{"yarn_beta_fast", "beta_fast"}, {"yarn_beta_slow", "beta_slow"}})
      if (const auto beta = keys.number(std::string("rope.scaling.") + key)) rope[name] = as_written(*beta);
  }
  read_rope_factors(file, rotary, rope["rope_theta"].get<double>(), rope);
  return rope;
}

void put_token(Json& json, const char* name, const GgufFile& file, const char* key) {
  if (const auto id = file.integer_if(std::string("tokenizer.ggml.") + key, 0, INT32_MAX)) json[name] = *id;
}

// Ids that end an answer: the model's own first, then those that end a turn or wait for a tool.
std::vector<std::int64_t> end_ids(const GgufFile& file) {
  std::vector<std::int64_t> ids;
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"})
    if (const auto id = file.integer_if(key, 0, INT32_MAX); id && std::find(ids.begin(), ids.end(), *id) == ids.end()) ids.push_back(*id);
  return ids;
}
}  // namespace

const GgufArchitecture& gguf_architecture(const GgufFile& file) {
  const std::string name = file.text("general.architecture");
  std::vector<std::string> known;
  for (const GgufArchitecture& architecture : gguf_architectures()) {
    if (architecture.name == name) return architecture;
    known.emplace_back(architecture.name);
  }
  fail(ErrorCode::unsupported, "'{}': 'general.architecture' is {}, {}", file.label(), quoted_name(name), allowed_are(name.substr(0, 60), known));
}

Json gguf_config(const GgufFile& file) {
  const GgufArchitecture& architecture = gguf_architecture(file);
  const Keys keys(file, architecture);
  if (const auto kind = file.text_if("general.type"); kind && *kind != "model") file.not_offered("general.type", "model");
  for (const auto& [key, allowed] : kOtherArithmetic) keys.only(key, allowed);
  const std::int64_t hidden = keys.integer("embedding_length"), heads = keys.integer("attention.head_count", 65536);
  const std::int64_t context = keys.integer("context_length");
  if (!architecture.head_size && hidden % heads && !file.has(keys.name("attention.key_length")))
    fail(ErrorCode::corrupt_file, "'{}': '{}' is {}, which is no multiple of '{}', {}", file.label(), keys.name("embedding_length"), hidden,
         keys.name("attention.head_count"), heads);
  const std::int64_t head = keys.integer("attention.key_length", kMost, hidden / heads);
  if (const std::int64_t value = keys.integer("attention.value_length", kMost, head); value != head)
    fail(ErrorCode::unsupported, "'{}': '{}' is {}, allowed is that of keys, {}", file.label(), keys.name("attention.value_length"), value, head);
  if (!architecture.experts) keys.only("expert_count", 0);
  const GgufTensor* table = file.find(kGgufEmbedding);
  const std::int64_t vocabulary = keys.integer("vocab_size", kMost, table && table->shape.size() == 2 ? table->shape[0] : 0);

  Json json;
  json["architectures"] = Json::array({std::string(architecture.class_name)});
  if (architecture.attention_bias) json["attention_bias"] = false;
  put_token(json, "bos_token_id", file, "bos_token_id");
  json["dtype"] = "float32";
  put_token(json, "eos_token_id", file, "eos_token_id");
  json["head_dim"] = head;
  json["hidden_act"] = "silu";
  json["hidden_size"] = hidden;
  json["intermediate_size"] =
      architecture.experts ? keys.integer("feed_forward_length", kMost, keys.integer("expert_feed_forward_length")) : keys.integer("feed_forward_length");
  json["max_position_embeddings"] = context;
  if (architecture.mlp_bias) json["mlp_bias"] = false;
  json["model_type"] = std::string(architecture.model_type);
  if (architecture.experts) {
    json["decoder_sparse_step"] = 1;
    json["mlp_only_layers"] = Json::array();
    json["moe_intermediate_size"] = keys.integer("expert_feed_forward_length");
    json["norm_topk_prob"] = true;
    json["num_experts"] = keys.integer("expert_count", kMostExperts);
    json["num_experts_per_tok"] = keys.integer("expert_used_count", kMostExperts);
  }
  json["num_attention_heads"] = heads;
  json["num_hidden_layers"] = keys.integer("block_count", kMostLayers);
  json["num_key_value_heads"] = keys.integer("attention.head_count_kv", 65536, heads);
  put_token(json, "pad_token_id", file, "padding_token_id");
  const auto eps = keys.number("attention.layer_norm_rms_epsilon");
  if (!eps) fail(ErrorCode::corrupt_file, "'{}': the metadata lacks '{}'", file.label(), keys.name("attention.layer_norm_rms_epsilon"));
  json["rms_norm_eps"] = as_written(*eps);
  json["rope_parameters"] = rope_of(file, keys, head, context);
  json["tie_word_embeddings"] = file.find(kGgufHead) == nullptr;
  json["vocab_size"] = vocabulary;
  return json;
}

Json gguf_generation_config(const GgufFile& file) {
  Json json = Json::object();
  put_token(json, "bos_token_id", file, "bos_token_id");
  const std::vector<std::int64_t> ends = end_ids(file);
  if (ends.size() == 1) json["eos_token_id"] = ends[0];
  else if (!ends.empty()) json["eos_token_id"] = ends;
  put_token(json, "pad_token_id", file, "padding_token_id");
  return json;
}

}  // namespace lockstep
