// Frozen weights that adapters are trained over (train/adapter_trainer.h), on the ranks of one layout (docs/ranks.md): each local one has a runtime of its
// own and its share of the weights. Owners of the other ranks make the same calls. One thread at a time for a base and all its trainers.
//   auto base = std::make_shared<FrozenBase>(runtime, weights, TrainerOptions{}); base->score(data);
#pragma once
#include <functional>

#include "train/base_rank.h"
#include "train/open_batch.h"
#include "train/rank_runtimes.h"

namespace lockstep {

class FrozenBase {
 public:
  // `weights`: the whole compute copy on `runtime`, which is the first local rank's. Ranks that share the model copy their shares of it and do not keep
  // it. `ranks`: of that runtime and of the layout options.ranks; null: its own, as threads of this process. With an optimizer_folder each adapter's
  // moments are in a file of its own there. Error unsupported for a trained indexer (TrainerOptions), which adapters do not have.
  FrozenBase(Runtime& runtime, const std::shared_ptr<const WeightSet>& weights, const TrainerOptions& options, std::shared_ptr<RankRuntimes> ranks = nullptr);
  Runtime& runtime() const { return runtime_; }
  const TrainerOptions& options() const { return options_; }
  Ranks& ranks() const { return ranks_->ranks(); }
  BaseRank& rank(int local) const { return *parts_[static_cast<std::size_t>(local)]; }
  // work(local, rank) on every local rank's thread.
  template <class F>
  void each(const F& work) const {
    ranks_->ranks().run([&](int local) { work(local, rank(local)); });
  }
  // Log-probabilities of the targets without any adapter: those of the reference policy.
  // `owner`: whose kept forwards are read (KeptForwards::Root).
  std::vector<std::vector<float>> score(const std::vector<TrainSequence>& data, std::uint64_t owner = 0);
  // The loss of a piece of `batch` (train/open_batch.h), without a gradient. adapter(local) is a rank's share of an adapter, asked for on the rank's thread;
  // `adapter` null: without any. `whole_adapter`: as BaseRank::Job's.
  void evaluate(OpenBatch& batch, const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece,
                const std::function<const AdapterWeights*(int local)>& adapter = nullptr, std::uint64_t owner = 0, std::uint64_t whole_adapter = 0);
  // The kernels' work counts of all forwards so far, on all ranks.
  ForwardCounts work() const;

 private:
  Runtime& runtime_;
  TrainerOptions options_;
  std::shared_ptr<RankRuntimes> ranks_;
  std::vector<std::unique_ptr<BaseRank>> parts_;  // of local ranks
};

}  // namespace lockstep
