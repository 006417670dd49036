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
    fail(ErrorCode::invalid_argument, "config.json: 'head_dim' is missing, and 'hidden_size' {} is no multiple of 'num_attention_heads' {}", facts.hidden, heads);
  const std::int64_t size = c.integer("head_dim", 2, 65536, traits.head_size > 0 ? traits.head_size : facts.hidden / heads);
  if (heads * size > kLargestDimension)
    fail(ErrorCode::invalid_argument, "config.json: 'num_attention_heads' x 'head_dim' is {}, allowed is at most {}", heads * size, kLargestDimension);
  if (size % 2) fail(ErrorCode::invalid_argument, "config.json: 'head_dim' is {}, allowed are even numbers", size);
  s.shape.key = s.shape.value = size;
  s.shape.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(size)));
  for (const std::string& kind : c.texts("layer_types"))
    if (kind != "full_attention") fail(ErrorCode::unsupported, "config.json: 'layer_types' contains '{}', allowed is full_attention", kind);
  facts.rope = read_rope(c, size, true, facts.max_positions, traits.rope_types);
  return s;
}

GroupedAttention::GroupedAttention(Manifest& m, const std::string& prefix, const Settings& s) : shape_(s.shape), norm_eps_(s.norm_eps) {
  const std::int64_t q_size = shape_.heads * shape_.key, kv_size = shape_.kv_heads * shape_.key;
  q_ = m.matrix(prefix + s.traits.q, q_size, s.hidden);
  k_ = m.matrix(prefix + s.traits.k, kv_size, s.hidden);
  v_ = m.matrix(prefix + s.traits.v, kv_size, s.hidden);
  if (!s.traits.q_norm.empty()) {
    q_norm_ = m.vector(prefix + s.traits.q_norm, shape_.key);
    k_norm_ = m.vector(prefix + s.traits.k_norm, shape_.key);
  }
  o_ = m.matrix(prefix + s.traits.o, s.hidden, q_size);
  m.split(ParameterSplit::outputs, {q_, k_, v_});
  m.split(ParameterSplit::inputs, {o_});
  m.adapt(AdapterKind::attention, {q_, k_, v_, o_});
}

Tensor GroupedAttention::forward(Context& ctx, const Tensor& h, int layer, Selection&) const {
  Tensor q = linear(ctx, h, q_), k = linear(ctx, h, k_);
  if (q_norm_ >= 0) {
    q = rms_norm_heads(ctx, q, q_norm_, norm_eps_);
    k = rms_norm_heads(ctx, k, k_norm_, norm_eps_);
  }
  q = rope_heads(ctx, q, shape_.heads, shape_.key, shape_.key);
  const Tensor entry = gqa_entry(ctx, k, linear(ctx, h, v_), shape_);
  return linear(ctx, attention(ctx, q, entry, layer, nullptr, shape_), o_);
}

}  // namespace lockstep
