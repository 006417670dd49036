// One rank's part of frozen weights (train/frozen_base.h), and the passes over it that jobs share: each job with its own data, loss and adapter, or none.
//   BaseRank rank(runtime, true, whole, images, options, place); auto done = rank.run({.gradient = true}, jobs, nullptr);
// The bits of a job are those that it has alone, on one rank. Used by the rank's thread.
#pragma once
#include "model/weight_share.h"
#include "parallel/rank_place.h"
#include "train/forward_pass.h"
#include "train/gathered_weights.h"
#include "train/rank_record.h"

namespace lockstep {

using JobFailures = std::vector<std::optional<Error>>;  // one a job; none: it has not failed

class BaseRank {
 public:
  // `runtime` is this rank's. `whole` is the whole compute copy, whose work is done, on this runtime if `has_whole`, else on another of this process;
  // `on_host` is the same, for ranks that share the model alone.
  BaseRank(Runtime& runtime, bool has_whole, const std::shared_ptr<const WeightSet>& whole, const HostCopy& on_host, const TrainerOptions& options,
           const RankPlace& place);

  Runtime& runtime() const { return runtime_; }
  const RankPlace& place() const { return place_; }
  const Sharding* sharding() const { return sharding_.get(); }                  // null: this rank has the whole model
  const ForwardCounts& work() const { return pass_.work(); }                    // of this rank
  const std::shared_ptr<const WeightSet>& weights() const { return weights_; }  // this rank's share, or its rows of it

  struct Job {
    const std::vector<TrainSequence>* data = nullptr;  // null: the job is skipped
    const LossOptions* loss = nullptr;
    double normaliser = 1;  // 0: all targets are masked, and nothing is computed
    const AdapterWeights* adapter = nullptr;
    GradientSet* gradients = nullptr;
    std::uint64_t owner = 0, whole_adapter = 0;  // of KeptForwards::Root; an adapter without: nothing is kept of it
  };
  struct Outcome {
    ForwardBackwardResult result;
    RowSums sums;
  };
  // This rank's sequences of every job, of which each data-parallel rank has some, and then the results of all ranks. `failures`: a job whose own error
  // stands there is left out, and so is one that fails, on whatever rank; null: the first error is thrown.
  std::vector<Outcome> run(const ForwardPass::Settings& settings, const std::vector<Job>& jobs, JobFailures* failures);

 private:
  std::size_t most_turns(const std::vector<Job>& jobs, const std::vector<std::vector<DealtData>>& dealt) const;

  Runtime& runtime_;
  RankPlace place_;
  std::int64_t micro_batch_;
  std::unique_ptr<const Sharding> sharding_;
  RankRows rows_;
  std::shared_ptr<const WeightSet> weights_;
  const std::uint64_t whole_;                  // the identity of the whole weights
  std::unique_ptr<GatheredWeights> gathered_;  // null: weights_ is all that passes need
  ForwardPass pass_;
};

}  // namespace lockstep
