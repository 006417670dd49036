#include "model/quantisation_config.h"

#include "base/error.h"

namespace lockstep {

namespace {
std::string shown(const Json& value) {
  std::string text = value.dump();
  if (text.size() > 100) text = text.substr(0, 100) + "...";
  return text;
}

// Error where `key` is neither there nor null.
void must_have(const ConfigReader& reader, const std::string& key, std::string_view allowed) {
  if (!reader.has(key)) fail(ErrorCode::invalid_argument, "config.json: '{}' is missing, allowed is {}", key, allowed);
}

const Json& object_at(const ConfigReader& reader, const std::string& key) {
  must_have(reader, key, "an object");
  const Json& found = reader.raw().at(key);
  if (!found.is_object()) fail(ErrorCode::invalid_argument, "config.json: '{}' is {}, allowed is an object", key, shown(found));
  return found;
}

// Blocks of 128 x 128 in E4M3, as DeepSeek's folders are.
void check_fp8(const ConfigReader& reader) {
  reader.only("fmt", {"e4m3", "float8_e4m3fn"});
  reader.only("activation_scheme", {"dynamic"});
  reader.only("weight_block_size", {Json::array({128, 128})});
  must_have(reader, "weight_block_size", "[128,128]");
}

// Groups of 32 inputs in E4M3, an exponent each.
void check_mxfp8(const ConfigReader& reader) {
  reader.only("fmt", {"e4m3", "float8_e4m3fn"});
  reader.only("activation_scheme", {"dynamic"});
  reader.only("weight_block_size", {Json::array({1, 32})});
}

// How the weights of one group of modules are quantised.
void check_packed_weights(const ConfigReader& weights) {
  weights.only("num_bits", {4});
  must_have(weights, "num_bits", "4");
  weights.only("type", {"int"});
  weights.only("symmetric", {true});
  weights.only("strategy", {"group"});
  must_have(weights, "strategy", "\"group\"");
  weights.only("group_size", {32});
  must_have(weights, "group_size", "32");
  weights.only("dynamic", {false});
  weights.only("block_structure", {nullptr});
  weights.only("actorder", {"static", "weight"});  // "group" permutes the columns
}

void check_compressed_tensors(const ConfigReader& reader) {
  reader.only("format", {"pack-quantized"});
  reader.only("quantization_status", {"compressed"});
  reader.only("kv_cache_scheme", {nullptr});
  for (const char* key : {"sparsity_config", "transform_config"}) reader.only(key, {nullptr, Json::object()});
  for (const auto& [name, group] : object_at(reader, "config_groups").items()) {
    with_context(fmt::format("reading the group {}", shown(name)), [&, &group = group] {
      const ConfigReader one(group);
      one.only("format", {"pack-quantized"});
      for (const char* key : {"input_activations", "output_activations"}) one.only(key, {nullptr});
      check_packed_weights(ConfigReader(object_at(one, "weights")));
      return 0;
    });
  }
}
}  // namespace

Json quantisation_of(LowBitFormat format, Json others) {
  if (format == LowBitFormat::mxfp4) return {{"quant_method", "mxfp4"}, {"modules_to_not_convert", std::move(others)}};
  if (format != LowBitFormat::int4) {
    const bool blocks = format == LowBitFormat::fp8;
    return {{"quant_method", blocks ? "fp8" : "mxfp8"},
            {"fmt", "e4m3"},
            {"activation_scheme", "dynamic"},
            {"weight_block_size", blocks ? Json::array({128, 128}) : Json::array({1, 32})},
            {"modules_to_not_convert", std::move(others)}};
  }
  const Json numbers = {{"num_bits", 4},    {"type", "int"},    {"symmetric", true},    {"strategy", "group"},
                        {"group_size", 32}, {"dynamic", false}, {"observer", "minmax"}, {"actorder", nullptr}};
  const Json group = {{"targets", Json::array({"Linear"})}, {"weights", numbers}, {"input_activations", nullptr}, {"output_activations", nullptr}};
  return {{"quant_method", "compressed-tensors"},  {"format", "pack-quantized"},  {"quantization_status", "compressed"},
          {"config_groups", {{"group_0", group}}}, {"ignore", std::move(others)}, {"kv_cache_scheme", nullptr}};
}

void check_quantisation(const ConfigReader& config) {
  if (!config.has("quantization_config")) return;
  const Json& given = config.raw().at("quantization_config");
  if (given.is_object() && given.empty()) return;
  with_context("reading 'quantization_config'", [&] {
    const ConfigReader reader(given);
    reader.only("quant_method", {"fp8", "mxfp8", "compressed-tensors", "mxfp4"});
    must_have(reader, "quant_method", "\"fp8\", \"mxfp8\", \"compressed-tensors\" or \"mxfp4\"");
    if (reader.raw().at("quant_method") == "fp8") check_fp8(reader);
    if (reader.raw().at("quant_method") == "mxfp8") check_mxfp8(reader);
    if (reader.raw().at("quant_method") == "compressed-tensors") check_compressed_tensors(reader);  // of mxfp4 the tensors say all
    return 0;
  });
}

}  // namespace lockstep
