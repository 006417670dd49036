#include "model/blocks/latent_attention.h"

#include <cmath>

#include "base/error.h"
#include "model/config_key_log.h"
#include "model/operations/attention.h"
#include "model/operations/linear.h"
#include "model/operations/mla_entry.h"
#include "model/operations/mla_expanded.h"
#include "model/operations/mla_query.h"
#include "model/operations/mla_values.h"
#include "model/operations/rms_norm.h"
#include "model/rope_config.h"

namespace lockstep {

LatentAttention::Settings LatentAttention::read(const ConfigReader& c, const Traits& traits, ModelFacts& facts, float norm_eps) {
  Settings s;
  facts.latent_attention = true;
  s.hidden = facts.hidden;
  s.heads = facts.attention_heads = c.integer("num_attention_heads", 1, 1024);
  if (traits.q.empty() || c.has("q_lora_rank") || !c.raw().contains("q_lora_rank")) s.q_latent = c.integer("q_lora_rank", 1, kLargestDimension);
  s.latent = c.integer("kv_lora_rank", 1, kLargestDimension);
  s.nope = c.integer("qk_nope_head_dim", 1, kLargestDimension);
  s.rotary = c.integer("qk_rope_head_dim", 2, 65536);
  s.value = c.integer("v_head_dim", 1, kLargestDimension);
  if (s.rotary % 2) fail(ErrorCode::invalid_argument, "config.json: 'qk_rope_head_dim' is {}, allowed are even numbers", s.rotary);
  must_equal(c, "num_key_value_heads", s.heads);
  must_equal(c, "qk_head_dim", s.nope + s.rotary);
  s.norm_eps = norm_eps;
  if (!traits.may_turn_halves) c.only("rope_interleave", {true});
  if (traits.indexer) s.indexer = Indexer::read(c, *traits.indexer, facts, s.rotary, s.q_latent);
  s.traits = traits;
  facts.rope = read_rope(c, s.rotary, !c.boolean("rope_interleave", true), facts.max_positions, traits.rope_types);
  if (traits.indexer && traits.indexer->half) {
    facts.index_rope = facts.rope;
    facts.index_rope->half = true;
  }
  s.softmax_factor = facts.rope.softmax_factor;
  return s;
}

LatentAttention::LatentAttention(Manifest& m, std::int64_t layer, const std::string& prefix, const Settings& s)
    : shape_{s.heads, 1, s.latent + s.rotary, s.latent, true, static_cast<float>(s.softmax_factor / std::sqrt(static_cast<double>(s.nope + s.rotary)))},
      expanded_{s.heads, s.heads, s.nope + s.rotary, s.value, false, shape_.scale},
      rotary_(s.rotary),
      norm_eps_(s.norm_eps),
      selects_(s.indexer.has_value()) {
  const Traits& t = s.traits;
  if (s.q_latent > 0) {
    q_a_ = m.matrix(prefix + t.q_a, s.q_latent, s.hidden);
    q_a_norm_ = m.vector(prefix + t.q_a_norm, s.q_latent);
  }
  q_b_ = m.matrix(prefix + (q_a_ >= 0 ? t.q_b : t.q), s.heads * (s.nope + s.rotary), q_a_ >= 0 ? s.q_latent : s.hidden);
  kv_a_ = m.matrix(prefix + t.kv_a, s.latent + s.rotary, s.hidden);
  kv_a_norm_ = m.vector(prefix + t.kv_a_norm, s.latent);
  w_uk_ = m.add({prefix + t.kv_b + " (keys)", ParameterLayout::packed, s.heads, s.latent, s.nope});
  w_uv_ = m.add({prefix + t.kv_b + " (values)", ParameterLayout::packed, s.heads, s.value, s.latent});
  FileTensor kv_b{prefix + t.kv_b, {s.heads * (s.nope + s.value), s.latent}, false, {}};
  for (std::int64_t h = 0; h < s.heads; ++h) {
    kv_b.pieces.push_back({w_uk_, h, h * (s.nope + s.value), s.nope, true});
    kv_b.pieces.push_back({w_uv_, h, h * (s.nope + s.value) + s.nope, s.value, false});
  }
  m.add_file(std::move(kv_b));
  o_ = m.matrix(prefix + t.o, s.hidden, s.heads * s.value);
  if (selects_ && s.indexer->owners[static_cast<std::size_t>(layer)]) indexer_.emplace(m, prefix, *s.indexer);
  m.split(ParameterSplit::outputs, {q_b_});
  m.split(ParameterSplit::inputs, {o_});
  m.split(ParameterSplit::heads, {w_uk_, w_uv_});
  m.adapt(AdapterKind::attention, {q_b_, kv_a_, w_uk_, w_uv_, o_});
  if (q_a_ >= 0) m.adapt(AdapterKind::attention, {q_a_});
}

CacheShape LatentAttention::cache_shape(const Profile& profile) const {
  if (profile.expanded_latents) return {expanded_.entry(), 0, expanded_.kv_heads};
  return {shape_.key, indexer_ ? indexer_->key_size() : 0};
}

Tensor LatentAttention::query_latent(Context& ctx, const Tensor& h) const { return q_a_ >= 0 ? rms_norm(ctx, linear(ctx, h, q_a_), q_a_norm_, norm_eps_) : h; }

Tensor LatentAttention::entries(Context& ctx, const Tensor& h) const {
  const Tensor latent = mla_entry(ctx, linear(ctx, h, kv_a_), kv_a_norm_, norm_eps_, rotary_);
  return ctx.profile().expanded_latents ? mla_head_entry(ctx, latent, w_uk_, w_uv_, rotary_) : latent;
}

void LatentAttention::enter(Context& ctx, const Tensor& h, int layer) const {
  if (indexer_) indexer_->enter(ctx, h, layer);
  write_entries(ctx, entries(ctx, h), layer);
}

Tensor LatentAttention::forward(Context& ctx, const Tensor& h, int layer, Selection& selection) const {
  Tensor entry;
  return remember(ctx, h, layer, selection, entry);
}

Tensor LatentAttention::remember(Context& ctx, const Tensor& h, int layer, Selection& selection, Tensor& entry) const {
  const Tensor q_latent = query_latent(ctx, h);
  if (indexer_) indexer_->forward(ctx, h, q_latent, layer, selection);
  if (ctx.profile().expanded_latents) {
    const Tensor q = mla_head_query(ctx, linear(ctx, q_latent, q_b_), expanded_, rotary_);
    entry = entries(ctx, h);
    return linear(ctx, attention(ctx, q, entry, layer, nullptr, expanded_), o_);
  }
  const Tensor q = mla_query(ctx, linear(ctx, q_latent, q_b_), w_uk_, rotary_);
  entry = entries(ctx, h);
  const Tensor o = attention(ctx, q, entry, layer, selects_ ? &selection : nullptr, shape_);
  return linear(ctx, mla_values(ctx, o, w_uv_), o_);
}

Tensor LatentAttention::again(Context& ctx, const Tensor& h, int layer, const Selection& selection, const Tensor& entry) const {
  const Tensor q_latent = query_latent(ctx, h);
  if (ctx.profile().expanded_latents) {
    const Tensor q = mla_head_query(ctx, linear(ctx, q_latent, q_b_), expanded_, rotary_);
    return linear(ctx, attention_again(ctx, q, entry, layer, nullptr, expanded_), o_);
  }
  const Tensor q = mla_query(ctx, linear(ctx, q_latent, q_b_), w_uk_, rotary_);
  return linear(ctx, mla_values(ctx, attention_again(ctx, q, entry, layer, selects_ ? &selection : nullptr, shape_), w_uv_), o_);
}

}  // namespace lockstep
