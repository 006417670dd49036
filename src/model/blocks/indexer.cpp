#include "model/blocks/indexer.h"

#include <algorithm>

#include "base/error.h"
#include "model/operations/index_loss.h"
#include "model/operations/layer_norm.h"
#include "model/operations/linear.h"
#include "model/operations/rope.h"

namespace lockstep {

namespace {
std::vector<bool> layers_with_indexer(const ConfigReader& c, std::int64_t layers) {
  const std::vector<std::string> owners = c.layer_texts("indexer_types", layers, {"full", "shared"});
  const std::int64_t frequency = c.integer("index_topk_freq", 1, 4096, 1), offset = c.integer("index_skip_topk_offset", 0, 4096, 2);
  std::string pattern;
  if (owners.empty() && c.has("index_topk_pattern"))
    pattern = c.raw().at("index_topk_pattern").is_string() ? c.text("index_topk_pattern") : fmt::format("{}", fmt::join(c.texts("index_topk_pattern"), ""));
  if (!pattern.empty() && (static_cast<std::int64_t>(pattern.size()) != layers || pattern.find_first_not_of("FS") != std::string::npos))
    fail(ErrorCode::invalid_argument, "config.json: 'index_topk_pattern' is '{}', allowed are {} letters F or S", pattern, layers);
  std::vector<bool> owns;
  for (std::int64_t i = 0; i < layers; ++i) {
    const auto at = static_cast<std::size_t>(i);
    owns.push_back(!owners.empty() ? owners[at] == "full" : !pattern.empty() ? pattern[at] == 'F' : std::max<std::int64_t>(i - offset + 1, 0) % frequency == 0);
  }
  return owns;
}
}  // namespace

Indexer::Settings Indexer::read(const ConfigReader& c, const Traits& traits, ModelFacts& facts, std::int64_t rotary, std::int64_t q_latent) {
  Settings s;
  s.heads = c.integer("index_n_heads", 1, 65536);
  s.size = c.integer("index_head_dim", rotary, 65536);
  s.top_k = facts.select_top_k = c.integer("index_topk", 1, kLargestDimension);
  s.rotary = rotary;
  s.hidden = facts.hidden;
  s.q_latent = q_latent;
  s.owners = traits.on_every_layer ? std::vector<bool>(static_cast<std::size_t>(facts.layers), true) : layers_with_indexer(c, facts.layers);
  s.traits = traits;
  return s;
}

Indexer::Indexer(Manifest& m, const std::string& prefix, const Settings& s) : heads_(s.heads), size_(s.size), top_k_(s.top_k), rotary_(s.rotary) {
  q_ = m.matrix(prefix + s.traits.q, heads_ * size_, s.q_latent, true);
  k_ = m.matrix(prefix + s.traits.k, size_, s.hidden, true);
  norm_ = m.vector(prefix + s.traits.norm, size_, true);
  norm_bias_ = m.vector(prefix + s.traits.norm_bias, size_, true);
  weights_ = m.matrix(prefix + s.traits.weights, heads_, s.hidden, true);
}

Tensor Indexer::keys(Context& ctx, const Tensor& h) const {
  constexpr float kNormEps = 1e-6f;
  return rope_heads(ctx, layer_norm(ctx, linear(ctx, h.detached(), k_), norm_, norm_bias_, kNormEps), 1, size_, rotary_, RopeUse::indexer);
}

void Indexer::enter(Context& ctx, const Tensor& h, int layer) const { write_index_keys(ctx, keys(ctx, h), layer); }

void Indexer::forward(Context& ctx, const Tensor& h, const Tensor& q_latent, int layer, Selection& selection) const {
  const bool selected = static_cast<bool>(selection.positions.buffer);
  const bool learns = learns_index(ctx);
  // Nothing reads what it would compute. But kept values have the numbers of all operations of a forward.
  if (selected && !learns && !ctx.options().row_source) return;
  const Tensor q = rope_heads(ctx, linear(ctx, q_latent.detached(), q_), heads_, size_, rotary_, RopeUse::indexer);
  const Tensor k = keys(ctx, h);
  const Tensor w = linear(ctx, h.detached(), weights_);
  if (selected) {
    if (learns) record_index_loss(ctx, q, w, k, layer, heads_, size_, selection);
    return;
  }
  Tensor target = std::move(selection.target);
  selection = index_select(ctx, q, w, k, layer, heads_, size_, top_k_);
  if (target.buffer) selection.target = std::move(target);
}

}  // namespace lockstep
