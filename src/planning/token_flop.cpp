#include "planning/token_flop.h"

#include <algorithm>

#include "base/error.h"
#include "numerics/flop.h"

namespace lockstep {
namespace {
bool is_index_query(const Parameter& p, const CacheShape& cache) {
  return p.indexer && p.layout == ParameterLayout::packed && cache.index_key > 0 && p.outputs > cache.index_key;
}

TokenFlop flop_of(const Model& model, const Profile& profile, std::int64_t context, bool dense) {
  ForwardCounts counts;
  counts.expect(model, context - 1, context, dense);
  const KeyWork work = key_work(model, profile);
  const CacheShape cache = model.cache_shapes(profile).front();
  TokenFlop flop;
  const std::vector<Parameter>& parameters = model.manifest().parameters();
  for (const Parameter& p : parameters)
    if (!dense || !p.indexer) flop.matrices += product_flop(1, weights_a_row(p, model.facts()));
  flop.attention = attention_flop(static_cast<double>(counts.pairs_selected), work.key, work.value);
  if (dense) return flop;
  flop.index_scores = product_flop(visible_keys(model, counts), work.index);
  flop.indexers = std::count_if(parameters.begin(), parameters.end(), [&](const Parameter& p) { return is_index_query(p, cache); });
  return flop;
}
}  // namespace

double weights_a_row(const Parameter& parameter, const ModelFacts& facts) {
  if (parameter.layout != ParameterLayout::packed) return 0;
  const double size = static_cast<double>(parameter.count) * static_cast<double>(parameter.outputs) * static_cast<double>(parameter.inputs);
  if (parameter.split != ParameterSplit::experts) return size;
  return size * static_cast<double>(facts.experts_a_token) / static_cast<double>(std::max<std::int64_t>(1, facts.expert_count));
}

KeyWork key_work(const Model& model, const Profile& profile) {
  const std::vector<CacheShape> caches = model.cache_shapes(profile);
  const CacheShape& cache = caches.front();
  // Queries meet keys (or the latent entry itself), then values are added (or the latent).
  KeyWork work;
  work.latent = cache.heads == 0;
  work.key = work.latent ? static_cast<double>(cache.entry) : static_cast<double>(cache.entry) / static_cast<double>(2 * cache.heads);
  work.value = work.latent ? static_cast<double>(cache.entry - model.facts().rope.rotary) : work.key;
  for (const Parameter& p : model.manifest().parameters())
    if (is_index_query(p, cache)) work.index += static_cast<double>(p.outputs);
  return work;
}

double visible_keys(const Model& model, const ForwardCounts& counts) {
  const ModelFacts& facts = model.facts();
  return static_cast<double>(counts.pairs_visible) / static_cast<double>(std::max<std::int64_t>(1, facts.attention_heads * facts.layers));
}

std::vector<TokenFlop> token_flop(const Json& config, const Profile& profile, std::int64_t context) {
  const std::shared_ptr<const Model> model = make_model(config);
  const ModelFacts& facts = model->facts();
  if (context < 1 || context > facts.max_positions)
    fail(ErrorCode::invalid_argument, "context is {}, allowed are 1 to {}, the model's own", context, facts.max_positions);
  std::vector<TokenFlop> forms;
  const auto add = [&](const Model& form, const char* name, bool dense) {
    forms.push_back(flop_of(form, profile, context, dense));
    forms.back().name = name;
  };
  if (facts.select_top_k > 0) {
    Json every = config;
    for (const char* key : {"indexer_types", "index_topk_pattern", "index_topk_freq", "index_skip_topk_offset"}) every.erase(key);
    add(*model, "dense", true);
    add(*make_model(every), "an indexer in every layer", false);
  }
  add(*model, "as configured", false);
  return forms;
}

}  // namespace lockstep
