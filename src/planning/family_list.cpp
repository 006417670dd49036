#include "planning/family_list.h"

#include "model/archs/registry.h"
#include "model/kv_cache.h"
#include "numerics/profile.h"
#include "planning/file_formats.h"
#include "planning/shape_configs.h"

namespace lockstep {
namespace {
// The family's largest config; null: it has none.
std::unique_ptr<Model> largest_example(const std::string& model_type, std::string& name) {
  std::unique_ptr<Model> largest;
  for (const ShapeConfig& row : shape_configs()) {
    const Json config = Json::parse(row.json);
    if (config["model_type"] != model_type) continue;
    std::unique_ptr<Model> model = make_model(config);
    if (largest && trained_size(largest->manifest()) >= trained_size(model->manifest())) continue;
    largest = std::move(model);
    name = row.name;
  }
  return largest;
}

Json family_json(const std::string& model_type) {
  Json json = {{"model_type", model_type}, {"example", nullptr}, {"read", Json::array()}, {"allowed", Json::object()}};
  for (const auto& [key, use] : config_keys_of(model_type)) {
    if (!use.allowed.empty()) json["allowed"][key] = use.allowed;
    else if (use.read) json["read"].push_back(key);
  }
  std::string name;
  const std::unique_ptr<Model> example = largest_example(model_type, name);
  if (!example) return json;
  json["example"] = name;
  std::int64_t values = 0;
  for (const CacheShape& shape : example->cache_shapes(profile_by_name("cpu-f32"))) values += shape.entry + shape.index_key;
  json["cache_values_a_token"] = values;
  for (const Profile& profile : profiles())
    if (!profile.study && example->profile_refusal(profile).empty())
      json["cache_bytes_a_token"][profile.name] = KvCache::bytes_a_position(example->cache_shapes(profile), profile);
  json["exact_under"] = exact_under_json(*example);
  return json;
}
}  // namespace

Json families_json() {
  Json json = {{"families", Json::array()}, {"profiles", Json::array()}};
  for (const Family& family : families()) json["families"].push_back(family_json(family.model_type));
  for (const Profile& profile : profiles())
    if (!profile.study)
      json["profiles"].push_back({{"name", profile.name},
                                  {"description", profile.description},
                                  {"weights", profile.bf16_weights ? "bf16" : "fp32"},
                                  {"cache", profile.bf16_cache ? "bf16" : "fp32"}});
  json["few_bits"] = few_bits_json();
  json["gguf_types"] = gguf_types_json();
  return json;
}

}  // namespace lockstep
