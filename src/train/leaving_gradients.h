// The accumulators of a call's gradient, joined over the data-parallel ranks a segment at a time while the last backward goes on: what a segment deposited
// leaves while the segment before it is computed (Communicator::start), as under RankShard::weights (train/gathered_weights.h). Here every rank has all
// accumulators, so only the last backward may send them. Exchanges, bytes and bits are those of joining all of them after it (RankRows::join).
//   LeavingGradients leaving(rows, {0, segments}, head, gradients); settings.leaving = &leaving; pass.run(weights, settings, passes, jobs_of);
//   leaving.finish();
// All ranks send in the same order, so each makes one in the same call; a rank without a last pass, or whose last pass needs other ranks, sends in finish().
// Used by the rank's thread.
#pragma once
#include <utility>
#include <vector>

#include "model/segment_range.h"
#include "model/segment_weights.h"
#include "train/rank_rows.h"

namespace lockstep {

class LeavingGradients final : public SegmentWeights {
 public:
  // `segments`: of this rank's stage. The others outlive this. The head's gradient is there when the backward is over.
  LeavingGradients(const RankRows& rows, const SegmentRange& segments, ParameterId head, GradientSet& gradients);
  ~LeavingGradients() override { rows_.place().data->forget_started(); }  // after an error
  LeavingGradients(const LeavingGradients&) = delete;

  void use(std::int64_t segment) override {}
  // Error internal for another segment than the one before the last that was left.
  void leave(std::int64_t segment) override;
  // Sends what has not left, and waits for all that is on the way.
  void finish();

 private:
  void receive();

  const RankRows& rows_;
  const SegmentRange segments_;
  const ParameterId head_;
  GradientSet& gradients_;
  std::int64_t next_;                                                  // the segment that leaves next
  std::vector<bool> left_;                                             // by parameter
  std::vector<std::pair<std::size_t, StartedReduceScatter>> leaving_;  // of the newest segment, in this order
};

}  // namespace lockstep
