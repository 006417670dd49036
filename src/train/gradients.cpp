#include "train/gradients.h"

#include <exception>
#include <utility>

#include "base/error.h"
#include "train/gradient_file.h"

namespace lockstep {

namespace {
// The beginning of a gradient file, which only this process reads.
struct GradientsHead {
  std::int32_t calls = 0;
  bool set = false, bins = false, several_calls = false, pieces = false;
};
constexpr std::uint8_t kHoldsBins = 1, kHoldsGradient = 2;
}  // namespace

void Gradients::drop_kept() const {
  if (settings_.kept && set_) settings_.kept->drop(set_.get());
}

bool Gradients::use_bins(bool bins) {
  if (set_ && bins_ == bins) return false;
  drop_kept();
  set_.reset();  // its memory first
  set_ = std::make_unique<GradientSet>(backend_, rows_.manifest(), bins, rows_.shares(), rows_.shards_weights());
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
  joined_ = false;
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
  if (bins_ && !joined_) rows_.join(*set_);
  set_->finish();
  if (settings_.finished) settings_.finished(*set_);
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

void Gradients::write(CheckedWriter& file) {
  file.value(GradientsHead{calls_, set_ != nullptr, bins_, several_calls_, pieces_});
  if (!set_) return;
  const std::size_t parameters = rows_.manifest().parameters().size();
  std::vector<std::uint8_t> held(parameters);
  for (std::size_t i = 0; i < parameters; ++i) {
    const auto id = static_cast<ParameterId>(i);
    held[i] = static_cast<std::uint8_t>((set_->holds_bins(id) ? kHoldsBins : 0) | (set_->holds_gradient(id) ? kHoldsGradient : 0));
  }
  file.values(held);
  for (std::size_t i = 0; i < parameters; ++i) {
    const auto id = static_cast<ParameterId>(i);
    if (held[i] & kHoldsBins) write_view(file, backend_.stream(), set_->kept_bins(id));
    if (held[i] & kHoldsGradient) write_view(file, backend_.stream(), set_->gradient(id));
  }
}

void Gradients::read(CheckedReader& file, std::function<void()> again) {
  drop();
  const auto head = file.value<GradientsHead>();
  if (head.set) {
    use_bins(head.bins);
    const std::vector<std::uint8_t> held = file.values<std::uint8_t>();
    if (held.size() != rows_.manifest().parameters().size())
      file.refuse(fmt::format("is of {} parameters, the trainer has {}", held.size(), rows_.manifest().parameters().size()));
    for (std::size_t i = 0; i < held.size(); ++i) {
      const auto id = static_cast<ParameterId>(i);
      if (held[i] & kHoldsBins) read_view(file, backend_.stream(), set_->kept_bins(id));
      if (held[i] & kHoldsGradient) read_view(file, backend_.stream(), set_->gradient(id));
    }
  }
  several_calls_ = head.several_calls;
  pieces_ = head.pieces;
  calls_ = head.calls;
  again_ = std::move(again);
}

WeightImages Gradients::images() {
  if (settings_.accumulate) fail(ErrorCode::internal, "gradients are in the accumulator until optim_step");
  if (!set_) use_bins(needs_bins(true));  // +0
  WeightImages images;
  for (std::size_t i = 0; i < rows_.manifest().parameters().size(); ++i) images.push_back(rows_.image(i, set_->gradient(static_cast<ParameterId>(i))));
  return images;
}

}  // namespace lockstep
