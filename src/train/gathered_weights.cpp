#include "train/gathered_weights.h"

#include "model/compute_copy.h"

namespace lockstep {

GatheredWeights::GatheredWeights(Backend& backend, const Model& model, const Profile& profile, const RankRows& rows, const Sharding* sharding)
    : backend_(backend),
      profile_(profile),
      rows_(rows),
      segments_(sharding ? sharding->segments() : SegmentRange{0, model.segments()}),
      head_(model.facts().head),
      has_head_(!sharding || sharding->last_stage()) {}

void GatheredWeights::begin(const WeightSet& rows, GradientSet* gradients) {
  kept_ = &rows;
  gradients_ = gradients;
  whole_.version = rows.version;
  whole_.parameters.assign(rows.parameters.size(), Buffer());
  for (std::size_t i = 0; i < rows.parameters.size(); ++i)
    if (!rows_.keeps_rows(i)) whole_.parameters[i] = rows.parameters[i];
}

void GatheredWeights::end() {
  whole_.parameters.clear();
  kept_ = nullptr;
  gradients_ = nullptr;
}

void GatheredWeights::gather(std::size_t i) {
  Buffer& whole = whole_.parameters[i];
  if (whole) return;
  const Parameter& p = rows_.manifest().parameters()[i];
  whole = allocate_compute_copy(backend_, p, profile_);
  rows_.gather(i, kept_->parameters[i].view(), whole.view());
}

void GatheredWeights::use(std::int64_t segment) {
  const std::vector<Parameter>& all = rows_.manifest().parameters();
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].segment != segment && rows_.keeps_rows(i)) whole_.parameters[i] = Buffer();
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].segment == segment) gather(i);
}

void GatheredWeights::leave(std::int64_t segment) {
  const std::vector<Parameter>& all = rows_.manifest().parameters();
  for (std::size_t i = 0; gradients_ && i < all.size(); ++i)
    if (all[i].segment == segment && static_cast<ParameterId>(i) != head_) rows_.join(*gradients_, i);
  if (segments_.holds(segment - 1)) use(segment - 1);
}

void GatheredWeights::use_head() {
  if (has_head_) gather(static_cast<std::size_t>(head_));
}

void GatheredWeights::leave_head() {
  if (has_head_ && gradients_) rows_.join(*gradients_, static_cast<std::size_t>(head_));
}

void GatheredWeights::use_last() { use(segments_.end - 1); }

void GatheredWeights::idle_forward() {
  for (std::int64_t s = segments_.begin; s < segments_.end; ++s) use(s);
  use_head();
}

void GatheredWeights::idle_backward(bool head) {
  use_last();
  for (std::int64_t s = segments_.end; s-- > segments_.begin;) leave(s);
  if (!head) return;
  use_head();
  leave_head();
}

}  // namespace lockstep
