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
  rows_.place().data->forget_started();  // after an error
  leaving_.clear();
  coming_.clear();
  whole_.parameters.clear();
  kept_ = nullptr;
  gradients_ = nullptr;
}

void GatheredWeights::finish() {
  for (const auto& [i, started] : leaving_) rows_.finish_join(*gradients_, i, started);
  leaving_.clear();
  for (auto& [i, whole] : coming_) {
    rows_.finish_gather(i);
    whole_.parameters[i] = std::move(whole);
  }
  coming_.clear();
}

Buffer GatheredWeights::whole_copy(std::size_t i) { return allocate_compute_copy(backend_, rows_.manifest().parameters()[i], profile_); }

void GatheredWeights::gather_one(std::size_t i) {
  if (whole_.parameters[i]) return;
  Buffer whole = whole_copy(i);
  rows_.start_gather(i, kept_->parameters[i].view(), whole.view());
  rows_.finish_gather(i);
  whole_.parameters[i] = std::move(whole);
}

void GatheredWeights::make_whole(std::int64_t segment) {
  const std::vector<Parameter>& all = rows_.manifest().parameters();
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].segment != segment && rows_.keeps_rows(i)) whole_.parameters[i] = Buffer();
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].segment == segment) gather_one(i);
}

void GatheredWeights::start_gather(std::int64_t segment) {
  const std::vector<Parameter>& all = rows_.manifest().parameters();
  for (std::size_t i = 0; segments_.holds(segment) && i < all.size(); ++i) {
    if (all[i].segment != segment || whole_.parameters[i]) continue;
    const Buffer& whole = coming_.emplace_back(i, whole_copy(i)).second;
    rows_.start_gather(i, kept_->parameters[i].view(), whole.view());
  }
}

void GatheredWeights::use(std::int64_t segment) {
  finish();
  make_whole(segment);
  start_gather(segment + 1);
}

void GatheredWeights::leave(std::int64_t segment) {
  finish();
  const std::vector<Parameter>& all = rows_.manifest().parameters();
  if (segments_.holds(segment - 1)) make_whole(segment - 1);
  for (std::size_t i = 0; gradients_ && i < all.size(); ++i)
    if (all[i].segment == segment && rows_.keeps_rows(i) && static_cast<ParameterId>(i) != head_) leaving_.emplace_back(i, rows_.start_join(*gradients_, i));
  start_gather(segment - 2);
}

void GatheredWeights::use_head() {
  finish();
  if (has_head_) gather_one(static_cast<std::size_t>(head_));
}

void GatheredWeights::leave_head() {
  finish();
  if (has_head_ && gradients_) rows_.join(*gradients_, static_cast<std::size_t>(head_));
}

void GatheredWeights::use_last() {
  finish();
  make_whole(segments_.end - 1);
  start_gather(segments_.end - 2);
}

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
