#include "planning/model_sizes.h"

#include <algorithm>
#include <charconv>

#include "model/adapter.h"

namespace lockstep {
namespace {
// The layer of a parameter called "model.layers.7.self_attn..."; -1: of none.
std::int64_t layer_number(const std::string& name, const std::string& prefix) {
  std::int64_t layer = -1;
  if (name.starts_with(prefix)) std::from_chars(name.data() + prefix.size(), name.data() + name.size(), layer);
  return layer;
}

// The width of a layer's activations for one token: the outputs of every matrix, and the inputs that are computed only for a matrix (attention's
// output, a SwiGLU product).
class LayerWidth {
 public:
  LayerWidth(const ModelFacts& facts, const CacheShape& cache) : facts_(facts), cache_(cache), width_(facts.hidden) {}  // the first norm
  void add(const Parameter& p) {
    if (p.layout != ParameterLayout::packed) return;
    if (p.split == ParameterSplit::heads) heads_ = p.count;
    else if (p.split == ParameterSplit::experts) add_expert(p);
    else width_ += p.count * p.outputs + (p.split == ParameterSplit::inputs ? p.inputs : 0);
    selects_ = selects_ || p.indexer;
  }
  std::int64_t total() const {
    // Absorbed: queries meet the latent itself and attention gives it back, both as wide as it, a head.
    const std::int64_t latent = cache_.entry - facts_.rope.rotary;
    const std::int64_t experts = last_inputs_ > 0 ? facts_.hidden + facts_.experts_a_token * (expert_ + last_inputs_) : 0;  // the router's norm
    return width_ + heads_ * (cache_.entry + latent) + (selects_ ? 2 * facts_.select_top_k : 0) + experts;                  // a chosen position is four bytes
  }

 private:
  // A chosen expert is given its input once, for gate and up together.
  void add_expert(const Parameter& p) {
    if (last_inputs_ == 0) expert_ += p.inputs;
    expert_ += p.outputs;
    last_inputs_ = p.inputs;
  }
  const ModelFacts& facts_;
  const CacheShape& cache_;
  std::int64_t width_, heads_ = 0, expert_ = 0, last_inputs_ = 0;
  bool selects_ = false;
};

bool alike(const LayerBlock& a, const LayerBlock& b) {
  return a.dense == b.dense && a.experts == b.experts && a.cache == b.cache && a.cache_by_heads == b.cache_by_heads && a.width == b.width &&
         a.adapted == b.adapted;
}
}  // namespace

std::int64_t ModelSizes::parameters() const {
  std::int64_t sum = embedding + head + rest;
  for (const LayerBlock& b : blocks) sum += b.count * (b.dense + b.experts);
  return sum;
}

ModelSizes model_sizes(const Model& model) {
  const ModelFacts& facts = model.facts();
  const Manifest& manifest = model.manifest();
  const std::string& prefix = manifest.layer_prefix();
  const std::vector<CacheShape> caches = model.cache_shapes(profile_by_name("cpu-bf16w"));
  ModelSizes sizes{.hidden = facts.hidden, .vocabulary = facts.vocabulary, .layers = facts.layers, .experts = facts.expert_count};
  sizes.heads = caches.front().heads > 0 ? caches.front().heads : facts.attention_heads;

  std::vector<LayerBlock> layers;
  std::vector<LayerWidth> widths;
  for (const CacheShape& cache : caches) {
    layers.push_back({.count = 1, .cache = cache.entry + cache.index_key, .cache_by_heads = cache.heads > 0});
    widths.emplace_back(facts, cache);
  }
  const Parameter& head = manifest.parameter(facts.head);
  for (const Parameter& p : manifest.parameters()) {
    if (!p.trained) continue;
    const std::int64_t size = p.count * p.outputs * p.inputs, layer = layer_number(p.name, prefix);
    if (layer >= 0) {
      LayerBlock& block = layers[static_cast<std::size_t>(layer)];
      (p.split == ParameterSplit::experts ? block.experts : block.dense) += size;
      widths[static_cast<std::size_t>(layer)].add(p);
    } else if (&p == &head && !p.tied) {
      sizes.head = size;
    } else {
      (p.outputs == facts.vocabulary ? sizes.embedding : sizes.rest) += size;
    }
  }
  // An adapter of rank 1 has a number for each input and each output.
  const AdapterLayout adapter(manifest, {.rank = 1});
  for (const Parameter& p : adapter.manifest().parameters())
    layers[static_cast<std::size_t>(layer_number(p.name, prefix))].adapted += p.count * p.outputs * p.inputs;

  for (std::size_t i = 0; i < layers.size(); ++i) {
    layers[i].width = widths[i].total();
    const auto same = std::find_if(sizes.blocks.begin(), sizes.blocks.end(), [&](const LayerBlock& b) { return alike(b, layers[i]); });
    if (same == sizes.blocks.end()) sizes.blocks.push_back(layers[i]);
    else ++same->count;
  }
  return sizes;
}

}  // namespace lockstep
