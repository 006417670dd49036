#include "model/index_pattern.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "base/error.h"

namespace lockstep {

std::vector<int> indexer_layers(const Model& model) {
  const std::string& prefix = model.manifest().layer_prefix();
  std::set<int> layers;
  for (const Parameter& p : model.manifest().parameters()) {
    if (!p.indexer || !p.name.starts_with(prefix)) continue;
    int layer = 0;
    std::from_chars(p.name.data() + prefix.size(), p.name.data() + p.name.size(), layer);
    layers.insert(layer);
  }
  return {layers.begin(), layers.end()};
}

Json with_indexers(const Json& config, std::int64_t layers, const std::vector<int>& indexers) {
  Json changed = config;
  for (const char* key : {"index_topk_pattern", "index_topk_freq", "index_skip_topk_offset"}) changed.erase(key);
  Json types = Json::array();
  for (std::int64_t i = 0; i < layers; ++i) types.push_back(std::find(indexers.begin(), indexers.end(), i) != indexers.end() ? "full" : "shared");
  changed["indexer_types"] = types;
  return changed;
}

std::string index_pattern(std::int64_t layers, const std::vector<int>& indexers) {
  std::string pattern(static_cast<std::size_t>(layers), 'S');
  for (const int layer : indexers) pattern[static_cast<std::size_t>(layer)] = 'F';
  return pattern;
}

std::shared_ptr<const Model> model_with_indexers(const Model& model, const std::vector<int>& indexers, const ModelOptions& options) {
  std::shared_ptr<const Model> changed = make_model(with_indexers(model.config(), model.facts().layers, indexers), options);
  if (indexer_layers(*changed) != indexers)
    fail(ErrorCode::unsupported,
         "a model of family '{}' has an indexer in every layer; allowed are families whose config.json says which layers have one ('indexer_types')",
         model.family());
  return changed;
}

void refuse_without_indexer(const Model& model) {
  fail(ErrorCode::unsupported, "a model of family '{}' here has no indexer, and attends to every key; allowed are models with 'index_topk'", model.family());
}

std::vector<int> layers_of_pattern(const Model& model, std::string_view pattern) {
  const std::vector<int> own = indexer_layers(model);
  if (own.empty()) refuse_without_indexer(model);
  const std::int64_t layers = model.facts().layers;
  const std::string own_pattern = index_pattern(layers, own);
  if (static_cast<std::int64_t>(pattern.size()) != layers || pattern.find_first_not_of("FS") != std::string_view::npos)
    fail(ErrorCode::invalid_argument, "pattern is '{}', allowed are {} letters F or S; the model's own is {}", pattern, layers, own_pattern);
  if (pattern[0] != 'F')
    fail(ErrorCode::invalid_argument, "pattern is '{}', whose first layer shares; allowed is an F there, for no layer is before it", pattern);
  std::vector<int> indexers;
  for (int layer = 0; layer < layers; ++layer) {
    if (pattern[static_cast<std::size_t>(layer)] != 'F') continue;
    if (std::find(own.begin(), own.end(), layer) == own.end())
      fail(ErrorCode::invalid_argument, "pattern is '{}', with an F for layer {}, which has no indexer; allowed are those of the model's own: {}", pattern,
           layer, own_pattern);
    indexers.push_back(layer);
  }
  return indexers;
}

}  // namespace lockstep
