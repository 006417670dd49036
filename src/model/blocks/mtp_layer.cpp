#include "model/blocks/mtp_layer.h"

#include "model/operations/join_norms.h"
#include "model/operations/linear.h"
#include "model/operations/rms_norm.h"

namespace lockstep {

MtpLayer::MtpLayer(const ModelFacts& trunk, const std::string& prefix, float norm_eps, const Traits& traits, const MakeAttention& attention,
                   const MakeFeedForward& feed_forward)
    : traits_(traits), prefix_(prefix), eps_(norm_eps) {
  Manifest& m = manifest_;
  embedded_norm_ = m.vector(prefix + traits.embedded_norm, trunk.hidden);
  hidden_norm_ = m.vector(prefix + traits.hidden_norm, trunk.hidden);
  join_ = m.matrix(prefix + traits.join, trunk.hidden, 2 * trunk.hidden);
  input_norm_ = m.vector(prefix + traits.input_norm, trunk.hidden);
  attention_ = attention(m, prefix);
  post_norm_ = m.vector(prefix + traits.post_norm, trunk.hidden);
  ModelFacts own = trunk;
  own.router_biases.clear();
  feed_forward_ = feed_forward(m, prefix, own);
  router_biases_ = own.router_biases;
  head_norm_ = m.vector(prefix + traits.head_norm, trunk.hidden);
}

Tensor MtpLayer::join(Context& ctx, const Tensor& embedded, const Tensor& hidden) const {
  return linear(ctx, join_norms(ctx, embedded, hidden, embedded_norm_, hidden_norm_, eps_), join_);
}

void MtpLayer::enter(Context& ctx, const Tensor& embedded, const Tensor& hidden) const {
  attention_->enter(ctx, rms_norm(ctx, join(ctx, embedded, hidden), input_norm_, eps_), 0);
}

template <class Attend>
MtpLayer::Depth MtpLayer::compute(Context& ctx, const Tensor& embedded, const Tensor& hidden, const Attend& attend) const {
  const Tensor u = join(ctx, embedded, hidden);
  const auto [after, of_after] = add_rms_norm(ctx, u, attend(rms_norm(ctx, u, input_norm_, eps_)), post_norm_, eps_);
  const auto [y, of_y] = add_rms_norm(ctx, after, feed_forward_->forward(ctx, of_after), head_norm_, eps_);
  return {y, of_y};
}

MtpLayer::Depth MtpLayer::first(Context& ctx, const Tensor& embedded, const Tensor& hidden, Keys& keys) const {
  keys = {};  // a selection that is there would be taken for this forward's own
  return compute(ctx, embedded, hidden, [&](const Tensor& h) { return attention_->remember(ctx, h, 0, keys.selection, keys.entry); });
}

MtpLayer::Depth MtpLayer::next(Context& ctx, const Tensor& embedded, const Tensor& hidden, const Keys& keys) const {
  return compute(ctx, embedded, hidden, [&](const Tensor& h) { return attention_->again(ctx, h, 0, keys.selection, keys.entry); });
}

}  // namespace lockstep
