#include "serving/family_facts.h"

#include <algorithm>
#include <array>

namespace lockstep {
namespace {
Json positive_or_null(std::int64_t value) { return value > 0 ? Json(value) : Json(nullptr); }
}  // namespace

Json family_facts(const Model& model) {
  const ModelFacts& facts = model.facts();
  const std::vector<CacheShape> caches = model.cache_shapes(profile_by_name("cpu-bf16w"));
  Json json;
  json["attention"] = {{"heads", facts.attention_heads},
                       {"key_value_heads", positive_or_null(caches.front().heads)},
                       {"sliding_window", positive_or_null(facts.window)},
                       {"selected_keys", positive_or_null(facts.select_top_k)},
                       {"indexer_layers", std::count_if(caches.begin(), caches.end(), [](const CacheShape& shape) { return shape.index_key > 0; })}};
  constexpr std::array kScalings = {"none", "linear", "llama3", "yarn"};
  json["rope"] = {{"scaling", kScalings[static_cast<std::size_t>(facts.rope.scaling)]}};
  if (facts.rope.scaling != RopeSpec::Scaling::none) {
    json["rope"]["factor"] = facts.rope.factor;
    json["rope"]["original_context"] = static_cast<std::int64_t>(facts.rope.original_positions);
  }
  json["rope"]["turned_columns"] = facts.rope.rotary;
  json["router"] = nullptr;
  if (facts.sparse_layers > 0) json["router"] = {{"sparse_layers", facts.sparse_layers}, {"correction_bias", !facts.router_biases.empty()}};
  json["tied_head"] = model.manifest().parameter(facts.head).tied;
  return json;
}

}  // namespace lockstep
