// A layer of multi-token prediction (MTP): predicts the tokens that follow a text, for drafts (docs/speculation.md). It is a decoder layer whose
// input joins the embedding of a token with a hidden state; embedding and head are the main model's (the trunk's).
// - depth 1, the row of position p >= 1: u = eh_proj [enorm(Emb(t_p)) | hnorm(h_(p-1))], h of the trunk behind its final norm;
// - y = layer(u), n = shared_head.norm(y); head(n) predicts t_(p+1)
// - depth k >= 2, the same row: the token that depth k - 1 predicted and its n replace t_p and h; RoPE uses position p + k - 1
// Where `normed_state_for_mtp_iteration` is false, depth k is given y in place of n: the member `state` says which.
// Only depth 1 writes keys and values: the row of p writes an entry at p. Later depths attend to the keys that depth 1 of their row selected. With
// `index_share_for_mtp_iteration` false every depth selects and writes for itself (own_depth): guesses of depth k write at p + k - 1 and see the
// cache's entries up to there; in training, where all rows of a depth are computed at once, they see the entries of their own depth.
// Position 0 has no row and is no key (Rows::first_key), so an entry depends only on tokens up to its own.
// The layer has its own manifest, weights and cache (one layer, number 0): no number of the trunk depends on it.
//   MtpLayer::Keys keys; const MtpLayer::Depth one = layer.first(ctx, embedded, previous, keys), two = layer.next(ctx2, embedded2, layer.state(one), keys);
// Shapes: T rows, h hidden.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "model/blocks/block.h"
#include "model/model_facts.h"

namespace lockstep {

class MtpLayer {
 public:
  // Tensor names after the layer's prefix.
  struct Traits {
    std::string embedded_norm = "enorm.weight", hidden_norm = "hnorm.weight", join = "eh_proj.weight", head_norm = "shared_head.norm.weight";
    std::string input_norm = "input_layernorm.weight", post_norm = "post_attention_layernorm.weight";
    // Copies of the trunk's table and head that files may hold, and what they copy (whole names).
    std::string table_copy = "embed_tokens.weight", head_copy = "shared_head.head.weight";
    std::string table = "model.embed_tokens.weight", head = "lm_head.weight";
    bool shares_keys = true;   // between depths
    bool normed_state = true;  // whether a depth is given the normed output of the one before
  };
  using MakeAttention = std::function<std::unique_ptr<AttentionBlock>(Manifest& manifest, const std::string& prefix)>;
  // Adds a router's bias to `facts`.
  using MakeFeedForward = std::function<std::unique_ptr<FeedForwardBlock>(Manifest& manifest, const std::string& prefix, ModelFacts& facts)>;

  // Declares the tensors `prefix`...; `trunk`: the facts of the model that it belongs to. Blocks are those of a layer with number 0.
  MtpLayer(const ModelFacts& trunk, const std::string& prefix, float norm_eps, const Traits& traits, const MakeAttention& attention,
           const MakeFeedForward& feed_forward);

  static constexpr std::int32_t kFirstKey = 1;  // ForwardOptions::first_key of its contexts
  const Manifest& manifest() const { return manifest_; }
  const std::string& prefix() const { return prefix_; }
  const Traits& traits() const { return traits_; }
  CacheShape cache_shape(const Profile& profile) const { return attention_->cache_shape(profile); }
  bool shares_keys() const { return traits_.shares_keys; }
  bool normed_state() const { return traits_.normed_state; }
  const std::vector<ParameterId>& router_biases() const { return router_biases_; }

  // What depth 1 attended to.
  struct Keys {
    Selection selection;
    Tensor entry;
  };
  struct Depth {
    Tensor raw, normed;  // y and n, [T, h]
  };
  // The hidden state that the next depth is given.
  const Tensor& state(const Depth& depth) const { return traits_.normed_state ? depth.normed : depth.raw; }
  // `ctx`: of this layer's manifest, weights and cache, with kFirstKey (Runtime::mtp_context). embedded [T, h]: of each row's token; hidden
  // [T, h]: the trunk's of the position before. The row of position 0 may hold anything.
  // Only writes depth 1's entries to the cache: enough for rows whose next tokens are known.
  void enter(Context& ctx, const Tensor& embedded, const Tensor& hidden) const;
  Depth first(Context& ctx, const Tensor& embedded, const Tensor& hidden, Keys& keys) const;
  // Depth k >= 2. `ctx`: its batch has the rows of depth 1, and its RoPE is turned by k - 1 further positions (Runtime::mtp_context).
  Depth next(Context& ctx, const Tensor& embedded, const Tensor& hidden, const Keys& keys) const;
  // Any depth of a layer that shares no keys between depths. `ctx`: its cache has the entries that this depth sees.
  Depth own_depth(Context& ctx, const Tensor& embedded, const Tensor& hidden) const {
    Keys own;
    return first(ctx, embedded, hidden, own);
  }

 private:
  Tensor join(Context& ctx, const Tensor& embedded, const Tensor& hidden) const;
  template <class Attend>
  Depth compute(Context& ctx, const Tensor& embedded, const Tensor& hidden, const Attend& attend) const;

  Traits traits_;
  std::string prefix_;
  float eps_;
  Manifest manifest_;
  std::vector<ParameterId> router_biases_;
  ParameterId embedded_norm_, hidden_norm_, join_, input_norm_, post_norm_, head_norm_;
  std::unique_ptr<AttentionBlock> attention_;
  std::unique_ptr<FeedForwardBlock> feed_forward_;
};

}  // namespace lockstep
