// Under which identity an engine has the whole of what a rank trains, weights or an adapter, and keeps forwards of it (KeptForwards::Root).
//   SampledAs sampled(forwards, place.rank); sampled.set(whole->identity); root.weights = sampled.identity();
// What is kept under an earlier one is dropped, once for all ranks. Used by one thread at a time.
#pragma once
#include <memory>
#include <utility>

#include "model/kept_forwards.h"

namespace lockstep {

class SampledAs {
 public:
  // `forwards` null: nothing is kept.
  SampledAs(std::shared_ptr<KeptForwards> forwards, int rank) : forwards_(std::move(forwards)), drops_(rank == 0) {}
  // 0: nobody has had the whole of it.
  void set(std::uint64_t identity) {
    if (identity == identity_) return;
    if (forwards_ && drops_ && identity_ != 0) forwards_->forget(identity_);
    identity_ = identity;
  }
  std::uint64_t identity() const { return identity_; }

 private:
  std::shared_ptr<KeptForwards> forwards_;
  bool drops_;
  std::uint64_t identity_ = 0;
};

}  // namespace lockstep
