#include "model/blocks/grouped_attention.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "model/operations/attention.h"
#include "model/operations/gqa_entry.h"
#include "model/operations/linear.h"
#include "model/operations/rms_norm.h"
#include "model/operations/rope.h"
#include "model/rope_config.h"

namespace lockstep {

namespace {
// How long the window is, and which layers have it.
void read_window(const ConfigReader& c, const GroupedAttention::Traits& traits, ModelFacts& facts, GroupedAttention::Settings& s) {
  if (!traits.window_by_layer)
    for (const std::string& kind : c.texts("layer_types"))
      if (kind != "full_attention")
        fail(ErrorCode::unsupported, "config.json: 'layer_types' contains '{}', allowed is full_attention{}", kind, did_you_mean(kind, {"full_attention"}));
  if (!traits.window) return;
  s.window = c.integer("sliding_window", 1, std::int64_t{1} << 30, c.raw().contains("sliding_window") ? 0 : *traits.window);
  std::int64_t layers = facts.layers;
  if (traits.window_by_layer) {
    const std::vector<std::string> kinds = c.layer_texts("layer_types", facts.layers, {"sliding_attention", "full_attention"});
    for (std::int64_t i = 0; i < facts.layers; ++i)
      s.windowed.push_back(kinds.empty() ? i % 2 == 0 : kinds[static_cast<std::size_t>(i)] == "sliding_attention");
    layers = std::count(s.windowed.begin(), s.windowed.end(), true);
    if (s.window == 0 && layers > 0)
      fail(ErrorCode::invalid_argument, "config.json: 'sliding_window' is null, and {} layers have sliding_attention; allowed is an integer from 1 on", layers);
  } else {
    s.shape.window = s.window;
  }
  if (s.window > 0 && layers > 0) facts.window = s.window, facts.windowed_layers = layers;
}
}  // namespace

GroupedAttention::Settings GroupedAttention::Settings::of_layer(std::int64_t layer) const {
  Settings own = *this;
  own.shape.window = windowed[static_cast<std::size_t>(layer)] ? window : 0;
  return own;
}

GroupedAttention::Settings GroupedAttention::read(const ConfigReader& c, const Traits& traits, ModelFacts& facts, float norm_eps) {
  Settings s;
  s.hidden = facts.hidden;
  s.norm_eps = norm_eps;
  s.traits = traits;
  const std::int64_t heads = s.shape.heads = facts.attention_heads = c.integer("num_attention_heads", 1, 1024);
  const bool left_out = !c.raw().contains("num_key_value_heads") && traits.most_kv_heads > 0;
  s.shape.kv_heads = c.integer("num_key_value_heads", 1, heads, left_out ? std::min(traits.most_kv_heads, heads) : heads);
  if (heads % s.shape.kv_heads)
    fail(ErrorCode::invalid_argument, "config.json: 'num_key_value_heads' is {}, allowed are divisors of 'num_attention_heads', {}", s.shape.kv_heads, heads);
  if (!c.has("head_dim") && traits.head_size == 0 && facts.hidden % heads)
    fail(ErrorCode::invalid_argument, "config.json: 'head_dim' is missing, and 'hidden_size' {} is no multiple of 'num_attention_heads' {}", facts.hidden,
         heads);
  const std::int64_t size = c.integer("head_dim", 2, 65536, traits.head_size > 0 ? traits.head_size : facts.hidden / heads);
  if (heads * size > kLargestDimension)
    fail(ErrorCode::invalid_argument, "config.json: 'num_attention_heads' x 'head_dim' is {}, allowed is at most {}", heads * size, kLargestDimension);
  if (size % 2) fail(ErrorCode::invalid_argument, "config.json: 'head_dim' is {}, allowed are even numbers", size);
  s.shape.key = s.shape.value = size;
  s.shape.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(size)));
  read_window(c, traits, facts, s);
  facts.sinks = !traits.sinks.empty();
  std::optional<double> part;
  if (traits.partial_rotary) part = static_cast<double>(c.integer("rotary_dim", 2, size, size)) / static_cast<double>(size);
  facts.rope = read_rope(c, size, true, facts.max_positions, traits.rope_types, part, traits.theta);
  s.rotary = facts.rope.rotary;
  return s;
}

GroupedAttention::GroupedAttention(Manifest& m, const std::string& prefix, const Settings& s)
    : shape_(s.shape), rotary_(s.rotary), norm_eps_(s.norm_eps), norm_of_all_heads_(s.traits.norm_of_all_heads) {
  const std::int64_t q_size = shape_.heads * shape_.key, kv_size = shape_.kv_heads * shape_.key;
  q_ = m.matrix(prefix + s.traits.q, q_size, s.hidden);
  k_ = m.matrix(prefix + s.traits.k, kv_size, s.hidden);
  v_ = m.matrix(prefix + s.traits.v, kv_size, s.hidden);
  if (!s.traits.q_bias.empty()) q_bias_ = m.bias(prefix + s.traits.q_bias, q_size);
  if (!s.traits.k_bias.empty()) k_bias_ = m.bias(prefix + s.traits.k_bias, kv_size);
  if (!s.traits.v_bias.empty()) v_bias_ = m.bias(prefix + s.traits.v_bias, kv_size);
  if (!s.traits.q_norm.empty()) {
    q_norm_ = m.vector(prefix + s.traits.q_norm, norm_of_all_heads_ ? q_size : shape_.key);
    k_norm_ = m.vector(prefix + s.traits.k_norm, norm_of_all_heads_ ? kv_size : shape_.key);
  }
  if (!s.traits.sinks.empty()) sinks_ = m.vector(prefix + s.traits.sinks, shape_.heads);
  o_ = m.matrix(prefix + s.traits.o, s.hidden, q_size);
  if (!s.traits.o_bias.empty()) o_bias_ = m.vector(prefix + s.traits.o_bias, s.hidden);  // whole on every rank, as the joined sum is
  m.split(ParameterSplit::outputs, {q_, k_, v_});
  m.split(ParameterSplit::inputs, {o_});
  m.adapt(AdapterKind::attention, {q_, k_, v_, o_});
}

Tensor GroupedAttention::forward(Context& ctx, const Tensor& h, int layer, Selection&) const {
  Tensor q = linear(ctx, h, q_, q_bias_), k = linear(ctx, h, k_, k_bias_);
  if (q_norm_ >= 0) {
    const auto norm = norm_of_all_heads_ ? rms_norm : rms_norm_heads;
    q = norm(ctx, q, q_norm_, norm_eps_);
    k = norm(ctx, k, k_norm_, norm_eps_);
  }
  q = rope_heads(ctx, q, shape_.heads, shape_.key, rotary_);
  const Tensor entry = gqa_entry(ctx, k, linear(ctx, h, v_, v_bias_), shape_, rotary_);
  return linear(ctx, attention(ctx, q, entry, layer, nullptr, shape_, sinks_), o_, o_bias_);
}

}  // namespace lockstep
