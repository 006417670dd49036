// The local ranks of a trainer (train/trainer.h): a RankTrainer for each, on its own runtime and thread. Ranks elsewhere belong to other owners, who
// make the same calls. Knows no batch and no step. One caller at a time.
//   RankTrainers ranks(runtime, images, options, nullptr); ranks.each([](RankTrainer& part) { part.close(); });
#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "train/rank_record.h"
#include "train/rank_runtimes.h"
#include "train/rank_trainer.h"
#include "train/whole_images.h"

namespace lockstep {

class RankTrainers {
 public:
  // `runtime` is the first local rank's. `ranks`: of it and of the layout options.ranks, which trainers may share; null: its own, as threads of this process.
  RankTrainers(Runtime& runtime, const WeightImages& masters, const TrainerOptions& options, std::shared_ptr<RankRuntimes> ranks);

  const Ranks& ranks() const { return ranks_->ranks(); }
  Runtime& runtime() const { return runtime_; }
  RankTrainer& first() const { return *parts_[0]; }  // asked for what is the same on all ranks
  const std::vector<std::unique_ptr<RankTrainer>>& parts() const { return parts_; }

  // work(part) on every local rank's thread.
  template <class F>
  void each(const F& work) {
    ranks_->ranks().run([&](int local) { work(*parts_[static_cast<std::size_t>(local)]); });
  }
  // The same for work that returns a result and row sums; all ranks return equal ones, so the first rank's are used.
  template <class F>
  std::pair<ForwardBackwardResult, RowSums> results(const F& work) {
    std::pair<ForwardBackwardResult, RowSums> first;
    each([&](RankTrainer& part) {
      std::pair<ForwardBackwardResult, RowSums> own;
      work(part, own.first, own.second);
      if (&part == parts_[0].get()) first = std::move(own);
    });
    return first;
  }
  // Of the whole model, assembled from of(part).
  template <class F>
  WeightImages images(const F& of) {
    check_usable();
    const auto sharding = [this](const RankPlace& place) { return Sharding(*runtime_.model, runtime_.profile, place); };
    return whole_images(ranks_->ranks(), sharding, [&](int local) { return of(*parts_[static_cast<std::size_t>(local)]); });
  }
  void abandon_gradients() const;
  // An engine has the whole weights under this identity.
  void sampled_as(std::uint64_t identity) const;
  // Error unsupported where a step or a restore failed in the middle on any of them; and what makes it so on all.
  void check_usable() const;
  void break_off() const;

  const MemoryAccounts& memory(int local) const { return ranks_->memory(local); }
  // Traffic between ranks so far: calls and bytes, of all groups and ranks.
  CommunicatorCounters traffic() const { return traffic_of(ranks_->ranks()); }
  // The kernels' work counts of all forwards so far, on all ranks.
  ForwardCounts work() const;

 private:
  Runtime& runtime_;
  std::shared_ptr<RankRuntimes> ranks_;
  std::vector<std::unique_ptr<RankTrainer>> parts_;
};

}  // namespace lockstep
