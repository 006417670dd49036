#include "train/leaving_gradients.h"

#include "base/error.h"

namespace lockstep {

LeavingGradients::LeavingGradients(const RankRows& rows, const SegmentRange& segments, ParameterId head, GradientSet& gradients)
    : rows_(rows), segments_(segments), head_(head), gradients_(gradients), next_(segments.end - 1), left_(rows.manifest().parameters().size()) {}

void LeavingGradients::receive() {
  for (const auto& [i, started] : leaving_) rows_.finish_join(gradients_, i, started);
  leaving_.clear();
}

void LeavingGradients::leave(std::int64_t segment) {
  if (segment != next_) fail(ErrorCode::internal, "gradients of segment {} leave, and those of segment {} come next", segment, next_);
  --next_;
  receive();
  const std::vector<Parameter>& all = rows_.manifest().parameters();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].segment != segment || static_cast<ParameterId>(i) == head_) continue;
    leaving_.emplace_back(i, rows_.start_join(gradients_, i));
    left_[i] = true;
  }
}

void LeavingGradients::finish() {
  while (next_ >= segments_.begin) leave(next_);
  receive();
  for (std::size_t i = 0; i < left_.size(); ++i)
    if (!left_[i]) rows_.join(gradients_, i);
}

}  // namespace lockstep
