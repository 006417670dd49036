#include "model/blocks/decoder.h"

#include <algorithm>

#include "base/error.h"
#include "model/operations/add.h"
#include "model/operations/embedding.h"
#include "model/operations/ranks.h"
#include "model/operations/rms_norm.h"
#include "model/operations/row_tiles.h"
#include "model/operations/segment.h"
#include "model/value_head.h"

namespace lockstep {

DecoderModel::DecoderModel(const Json& config, const DecoderTraits& traits) : Model(config), traits_(traits) {
  const ConfigReader c = reader();
  for (const auto& [key, allowed] : traits.only) c.only(key, allowed);
  facts_.model_type = traits.model_type;
  facts_.vocabulary = c.integer("vocab_size", 2, kLargestDimension);
  facts_.hidden = c.integer("hidden_size", 1, kLargestDimension);
  facts_.layers = c.integer("num_hidden_layers", 1, 4096);
  facts_.max_positions = c.integer("max_position_embeddings", 1, std::int64_t{1} << 30, traits.max_positions);
  eps_ = static_cast<float>(c.number("rms_norm_eps", 1e-12, 1, traits.norm_eps));
  if (traits.may_tie) tied_ = c.boolean("tie_word_embeddings", false);
  else c.only("tie_word_embeddings", {false});
  value_ = is_value_config(config_);
  if (value_) tied_ = false;  // there is nothing to tie to
  value_bias_ = value_ && c.boolean("score_bias", false);
  c.only("attention_bias", {traits.attention_bias});
  if (!traits.may_clamp) c.only("swiglu_limit", {nullptr});
  c.only("hidden_act", {"silu"});
  facts_.eos_tokens = c.integers("eos_token_id");
}

void DecoderModel::build(const MakeBlock<AttentionBlock>& attention, const MakeBlock<FeedForwardBlock>& feed_forward) {
  Manifest& m = manifest_;
  std::int64_t idle = 0;
  embedding_ = tied_ ? m.tied_table(traits_.table, facts_.vocabulary, facts_.hidden) : m.table(traits_.table, facts_.vocabulary, facts_.hidden);
  for (std::int64_t i = 0; i < facts_.layers; ++i) {
    const std::string prefix = fmt::format("{}{}.", traits_.layer, i);
    const auto first = static_cast<ParameterId>(m.parameters().size());
    Layer& l = layers_.emplace_back();
    l.input_norm = m.vector(prefix + traits_.input_norm, facts_.hidden);
    l.attention = attention(m, i, prefix);
    l.post_norm = m.vector(prefix + traits_.post_norm, facts_.hidden);
    l.feed_forward = feed_forward(m, i, prefix);
    idle += l.feed_forward->idle_size();
    m.set_segment(first, segment_of(i));
  }
  if (layers_[0].attention->shares_selection()) fail(ErrorCode::invalid_argument, "config.json: the first layer shares an indexer; it must own one ('full')");
  const auto behind = static_cast<ParameterId>(m.parameters().size());
  final_norm_ = m.vector(traits_.final_norm, facts_.hidden);
  facts_.head = tied_ ? embedding_ : value_ ? m.matrix("score.weight", 1, facts_.hidden) : m.matrix(traits_.head, facts_.vocabulary, facts_.hidden);
  if (tied_) m.add_alias(traits_.head, traits_.table);
  else m.split(ParameterSplit::columns, {embedding_});
  if (value_) m.keep_exact(facts_.head);
  else m.split(ParameterSplit::vocabulary, {facts_.head});
  if (value_bias_) m.vector("score.bias", 1);
  m.set_segment(behind, segments() - 1);
  m.adapt(AdapterKind::unembedding, {facts_.head});
  m.pass_over_layers(traits_.layer, facts_.layers);
  facts_.active_size = trained_size(m) - idle - (tied_ ? 0 : facts_.vocabulary * facts_.hidden);
}

void DecoderModel::add_mtp(const MtpLayer::MakeAttention& attention, const MtpLayer::MakeFeedForward& feed_forward) {
  if (value_) return;  // there is nothing to draft
  MtpLayer::Traits traits;
  traits.input_norm = traits_.input_norm, traits.post_norm = traits_.post_norm;
  traits.table = traits_.table, traits.head = tied_ ? traits_.table : traits_.head;
  traits.shares_keys = reader().boolean("index_share_for_mtp_iteration", true);
  traits.normed_state = reader().boolean("normed_state_for_mtp_iteration", true);
  mtp_.emplace(facts_, fmt::format("{}{}.", traits_.layer, facts_.layers), eps_, traits, attention, feed_forward);
}

std::vector<CacheShape> DecoderModel::cache_shapes(const Profile& profile) const {
  std::vector<CacheShape> shapes;
  for (const Layer& l : layers_) shapes.push_back(l.attention->cache_shape(profile));
  return shapes;
}

Tensor DecoderModel::embed(Context& ctx) const { return embedding(ctx, embedding_); }

// Layers that share a selection are one segment with the layer that owns it.
std::int64_t DecoderModel::segment_of(std::int64_t layer) const {
  const auto behind = layers_.begin() + layer + 1;
  return std::count_if(layers_.begin(), behind, [](const Layer& l) { return !l.attention->shares_selection(); }) - 1;
}

// The rows of the stage before, whose gradient goes back there; or the input embedding.
Tensor DecoderModel::begin(Context& ctx) const {
  StageInput* stage = ctx.options().stage;
  if (!stage) return embedding(ctx, embedding_);
  Tensor x = of_rows(ctx.batch(), stage->rows);
  ctx.record(
      x, {},
      [stage](const Buffer& dx, const RecordedInputs&) -> InputGradients {
        stage->gradient = dx;
        return {};
      },
      true);
  return x;
}

Tensor DecoderModel::forward(Context& ctx) const {
  const SegmentRange own = own_segments(ctx, segments());
  begin_segment(ctx, own.begin);
  Tensor x = begin(ctx);
  const auto run = [this](Context& c, const Tensor& input, std::size_t i, Selection& selection) { return layer(c, input, i, selection); };
  std::int64_t number = 0;
  for (std::size_t begin = 0; begin < layers_.size(); ++number) {
    std::size_t end = begin + 1;
    while (end < layers_.size() && layers_[end].attention->shares_selection()) ++end;
    if (own.holds(number)) {
      if (number > own.begin) begin_segment(ctx, number);
      x = segment(ctx, x, {begin, end, facts_.select_top_k, run});
    }
    begin = end;
  }
  return own.end == number ? rms_norm(ctx, x, final_norm_, eps_) : x;
}

Tensor DecoderModel::layer(Context& ctx, const Tensor& x, std::size_t index, Selection& selection) const {
  const Layer& l = layers_[index];
  const Tensor h = rms_norm(ctx, x, l.input_norm, eps_);
  const auto [after, normed] = add_rms_norm(ctx, x, l.attention->forward(ctx, h, static_cast<int>(index), selection), l.post_norm, eps_);
  const FeedForwardBlock& block = *l.feed_forward;
  return add(ctx, after, in_row_tiles(ctx, normed, block.row_cost(), [&ctx, &block](const Tensor& rows) { return block.forward(ctx, rows); }));
}

}  // namespace lockstep
