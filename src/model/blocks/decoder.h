// A decoder: input embedding, layers of attention and feed-forward with residuals and norms before each, final norm, head.
//   auto model = std::make_unique<DecoderModel>(config, traits);
//   model->build([&](Manifest& m, std::int64_t i, const std::string& prefix) { return std::make_unique<Mlp>(m, prefix + "mlp.", settings); }, ...);
// Reads the keys of config.json that all families have; a family adds its blocks layer by layer.
// Shapes: T rows, h hidden.
#pragma once
#include <functional>
#include <optional>

#include "model/blocks/block.h"
#include "model/blocks/mtp_layer.h"
#include "model/model.h"

namespace lockstep {

// Keys of config.json for which a family allows only certain values; absent and null are always allowed.
using OnlyValues = std::vector<std::pair<std::string, std::vector<Json>>>;

struct DecoderTraits {
  std::string_view model_type;
  std::optional<std::int64_t> max_positions = {};  // default of 'max_position_embeddings'; none: the key is required
  double norm_eps = 1e-6;                          // default of 'rms_norm_eps'
  bool may_tie = true;                             // whether the head may be the input embedding
  bool attention_bias = false;                     // what 'attention_bias' must be
  bool may_clamp = false;                          // whether the family reads 'swiglu_limit'; else only null is allowed
  OnlyValues only = {};
  // Tensor names; those of a layer follow `layer` + its number + '.'.
  std::string table = "model.embed_tokens.weight", layer = "model.layers.", final_norm = "model.norm.weight", head = "lm_head.weight";
  std::string input_norm = "input_layernorm.weight", post_norm = "post_attention_layernorm.weight";
};

class DecoderModel final : public Model {
 public:
  template <class Block>
  using MakeBlock = std::function<std::unique_ptr<Block>(Manifest& manifest, std::int64_t layer, const std::string& prefix)>;

  // Reads the common keys; errors invalid_argument and unsupported name the key.
  DecoderModel(const Json& config, const DecoderTraits& traits);
  ConfigReader reader() const { return ConfigReader(config_); }
  float norm_eps() const { return eps_; }
  ModelFacts& facts_to_fill() { return facts_; }
  // Declares all tensors in order and completes the facts.
  void build(const MakeBlock<AttentionBlock>& attention, const MakeBlock<FeedForwardBlock>& feed_forward);
  // Call after build(): declares a layer of multi-token prediction after the last layer, under the next layer number. A model with a value head gets
  // none.
  void add_mtp(const MtpLayer::MakeAttention& attention, const MtpLayer::MakeFeedForward& feed_forward);

  std::vector<CacheShape> cache_shapes(const Profile& profile) const override;
  Tensor forward(Context& ctx) const override;
  std::int64_t segments() const override { return segment_of(facts_.layers - 1) + 1; }
  std::int64_t segment_of(std::int64_t layer) const override;
  Tensor embed(Context& ctx) const override;
  const MtpLayer* mtp() const override { return mtp_ ? &*mtp_ : nullptr; }

 private:
  struct Layer {
    ParameterId input_norm, post_norm;
    std::unique_ptr<AttentionBlock> attention;
    std::unique_ptr<FeedForwardBlock> feed_forward;
  };
  Tensor begin(Context& ctx) const;
  Tensor layer(Context& ctx, const Tensor& x, std::size_t index, Selection& selection) const;

  DecoderTraits traits_;
  bool tied_ = false, value_ = false, value_bias_ = false;  // value_: the head is model/value_head.h's
  float eps_ = 1e-6f;
  ParameterId embedding_ = 0, final_norm_ = 0;
  std::vector<Layer> layers_;
  std::optional<MtpLayer> mtp_;
};

}  // namespace lockstep
