// Multi-head latent attention (MLA), over all keys or over the keys that an indexer selects. Absorbed: the cache holds latents, which all heads
// share. Expanded (some profiles, over all keys only): the cache holds each head's own key and value. docs/numerics.md has the orders of both. Keys:
// num_attention_heads (num_key_value_heads the same), q_lora_rank, kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim, rope_interleave,
// those of RoPE and of the indexer.
// Shapes: H heads, L kv_lora_rank, R rotary.
//   const auto attention = LatentAttention::read(model->reader(), {}, model->facts_to_fill(), model->norm_eps());
#pragma once
#include <optional>

#include "kernels/attention/attention.h"
#include "model/blocks/indexer.h"

namespace lockstep {

class LatentAttention final : public AttentionBlock {
 public:
  // Tensor names after the block's prefix. kv_b [H * (nope + v), L] is two parameters here: W_uk (the transpose) and W_uv.
  struct Traits {
    std::string q_a = "q_a_proj.weight", q_a_norm = "q_a_layernorm.weight", q_b = "q_b_proj.weight", kv_a = "kv_a_proj_with_mqa.weight",
                kv_a_norm = "kv_a_layernorm.weight", kv_b = "kv_b_proj.weight", o = "o_proj.weight";
    std::string q = {};            // the query's one matrix, where the family allows a null q_lora_rank; else empty
    bool may_turn_halves = false;  // whether 'rope_interleave' may be false
    std::vector<std::string> rope_types = {"default"};
    std::optional<Indexer::Traits> indexer = {};
  };
  struct Settings {
    std::int64_t hidden = 0, heads = 0, q_latent = 0 /* 0: none */, latent = 0, nope = 0, rotary = 0, value = 0;
    float norm_eps = 1e-6f;
    double softmax_factor = 1;
    std::optional<Indexer::Settings> indexer;
    Traits traits;
  };
  // Fills in the facts that it reads. `norm_eps` is that of the norms of latents.
  static Settings read(const ConfigReader& config, const Traits& traits, ModelFacts& facts, float norm_eps);

  LatentAttention(Manifest& manifest, std::int64_t layer, const std::string& prefix, const Settings& settings);
  CacheShape cache_shape(const Profile& profile) const override;
  bool shares_selection() const override { return selects_ && !indexer_; }
  Tensor forward(Context& ctx, const Tensor& h, int layer, Selection& selection) const override;
  void enter(Context& ctx, const Tensor& h, int layer) const override;
  Tensor remember(Context& ctx, const Tensor& h, int layer, Selection& selection, Tensor& entry) const override;
  Tensor again(Context& ctx, const Tensor& h, int layer, const Selection& selection, const Tensor& entry) const override;

 private:
  Tensor query_latent(Context& ctx, const Tensor& h) const;
  Tensor entries(Context& ctx, const Tensor& h) const;

  AttentionShape shape_, expanded_;
  std::int64_t rotary_;
  float norm_eps_;
  bool selects_;  // keys, by an indexer of this layer or an earlier one
  ParameterId q_a_ = -1, q_a_norm_ = -1, q_b_, kv_a_, kv_a_norm_, w_uk_, w_uv_, o_;
  std::optional<Indexer> indexer_;
};

}  // namespace lockstep
