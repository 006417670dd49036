// The weights of a rank that keeps its rows of them alone (RankShard::weights, train/rank_rows.h), while passes run: a segment's parameters are gathered
// from all data-parallel ranks before it is computed, and freed behind it; what its backward deposited is joined over the ranks, and a rank keeps the sums
// of its rows. So a rank has one segment whole at a time, and the head beside it where it is needed. Bits do not change: rows are moved as they are, and
// accumulators are exact.
//   const GatheredWeights::InUse use(gathered, rows, gradients); settings.gathered = &gathered; pass.run(gathered.whole(), settings, jobs);
// All ranks gather and join together, pass after pass: a rank with fewer sequences calls idle_forward() and idle_backward() where others have a pass. Used
// by the rank's thread.
#pragma once
#include "model/segment_weights.h"
#include "model/sharding.h"
#include "train/rank_rows.h"

namespace lockstep {

class GatheredWeights final : public SegmentWeights {
 public:
  // `rows` keeps rows alone; it and the others outlive this. `sharding` null: this rank has all of the model.
  GatheredWeights(Backend& backend, const Model& model, const Profile& profile, const RankRows& rows, const Sharding* sharding);

  // While it lives, passes may run: of these rows of the compute copy, with gradients that go to `gradients` (null: the weights get none).
  class InUse {
   public:
    InUse(GatheredWeights& gathered, const WeightSet& rows, GradientSet* gradients) : gathered_(gathered) { gathered_.begin(rows, gradients); }
    ~InUse() { gathered_.end(); }
    InUse(const InUse&) = delete;

   private:
    GatheredWeights& gathered_;
  };
  // What contexts compute with: only what is whole now has a buffer.
  const WeightSet& whole() const { return whole_; }

  void use(std::int64_t segment) override;
  void leave(std::int64_t segment) override;
  // These do nothing on a stage of a pipeline that has no head.
  void use_head();    // it becomes whole beside what is whole
  void leave_head();  // its gradients are there: a backward's last
  void use_last();    // as use() of this stage's last segment, with which a backward begins
  // All of that in the order in which a pass does it; `head`: its gradients are deposited by each pass, not after all of them.
  void idle_forward();
  void idle_backward(bool head = true);

 private:
  void begin(const WeightSet& rows, GradientSet* gradients);
  void end();
  void gather(std::size_t i);

  Backend& backend_;
  const Profile& profile_;
  const RankRows& rows_;
  const SegmentRange segments_;  // of this rank's stage
  const ParameterId head_;
  const bool has_head_;
  const WeightSet* kept_ = nullptr;  // this rank's rows
  GradientSet* gradients_ = nullptr;
  WeightSet whole_;
};

}  // namespace lockstep
