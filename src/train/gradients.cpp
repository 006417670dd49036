#include "train/gradients.h"

#include <exception>
#include <utility>

#include "base/error.h"

namespace lockstep {

void Gradients::drop_kept() const {
  if (settings_.kept && set_) settings_.kept->drop(set_.get());
}

bool Gradients::use_bins(bool bins) {
  if (set_ && bins_ == bins) return false;
  drop_kept();
  set_.reset();  // its memory first
  set_ = std::make_unique<GradientSet>(backend_, rows_.manifest(), bins, rows_.shares());
  bins_ = bins;
  return true;
}

void Gradients::check_may_open() const {
  if (calls_ > 0 && !settings_.accumulate) fail(ErrorCode::internal, "a second forward_backward before optim_step needs TrainerOptions::accumulate");
}

bool Gradients::needs_bins(bool one_backward) const {
  if (settings_.always_bins || !one_backward || (set_ && bins_)) return true;
  return settings_.accumulate && (!settings_.mostly_one_call || several_calls_ || calls_ > 0);
}

bool Gradients::open(Call call) {
  check_may_open();
  pieces_ = !call.one_backward;
  if (calls_ == 0) {
    if (!use_bins(needs_bins(call.one_backward))) set_->clear();
    calls_ = 1;
    again_ = bins_ ? nullptr : std::move(call.again);
    return true;
  }
  ++calls_;
  if (bins_) return false;
  // The first one was taken as if it were the only one.
  several_calls_ = true;
  use_bins(true);
  if (const std::function<void()> first = std::exchange(again_, nullptr)) first();
  return false;
}

void Gradients::close() {
  if (!settings_.accumulate) finish();
}

void Gradients::finish() {
  if (bins_) rows_.join(*set_);
  set_->finish();
}

GradientSet* Gradients::for_kept(bool one_backward) {
  if (!settings_.kept || !settings_.kept->enabled()) return nullptr;
  if (!set_) use_bins(needs_bins(one_backward && !pieces_));
  return set_.get();
}

GradientSet& Gradients::take() {
  if (calls_ == 0) fail(ErrorCode::invalid_argument, "optim_step without a forward_backward before it");
  calls_ = 0;
  again_ = nullptr;
  if (settings_.accumulate && bins_) finish();
  drop_kept();
  return *set_;
}

void Gradients::drop() {
  calls_ = 0;
  again_ = nullptr;
  drop_kept();
  set_.reset();
}

void Gradients::abandon() {
  try {
    backend_.stream().synchronize();
  } catch (const std::exception&) {  // of the work that is abandoned
  }
  drop();
}

GradientSet& Gradients::finished() {
  if (settings_.accumulate) fail(ErrorCode::internal, "gradients are in the accumulator until optim_step");
  if (!set_) use_bins(needs_bins(true));  // +0
  return *set_;
}

}  // namespace lockstep
