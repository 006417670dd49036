// Runs the steps of an engine on its local ranks. One rank: a StepRunner. Several (EngineOptions::ranks): a thread, a runtime, a share of the weights
// and of the cache for each; rank 0's outputs are the step's. Ranks of other processes get the same plans (engine/step_follower.h). Bits do not
// depend on it. Used by one thread at a time.
//   RankSteps steps(runtime, options); steps.set_weights(whole); steps.run(plan, wants, result);
#pragma once
#include <memory>

#include "engine/options.h"
#include "engine/step_calls.h"
#include "engine/step_runner.h"
#include "parallel/mail.h"
#include "parallel/ranks.h"

namespace lockstep {

class RankSteps {
 public:
  // `runtime` is the first local rank's; the others get one like it, with as many threads. `ranks` null: spread over the options' processes, which
  // follow each call; without such processes, threads of this one.
  RankSteps(Runtime& runtime, const EngineOptions& options, std::unique_ptr<Ranks> ranks = nullptr);
  ~RankSteps();
  // A whole compute copy on the first local rank's runtime. Several ranks copy their shares of it, a parameter at a time, and do not keep it; where it
  // says how it differs from weights that they have shares of (WeightSet::changes), each changes its share.
  void set_weights(std::shared_ptr<const WeightSet> weights);
  // In processes that follow: the calls behind it, in this order. `from` 0: every parameter comes, else the changes of some; `current`: they are not what
  // one request brings, but what all others run under. `whole` has no values.
  void begin_weights(std::uint64_t version, std::uint64_t from, bool in_place);
  void take_parameter(ParameterId id, const HostParameter& whole);
  void take_changes(ParameterId id, const ParameterChanges& changes);
  void hold_weights(const std::shared_ptr<const WeightSet>& whole, bool current);
  void take_adapter(const std::shared_ptr<const AdapterWeights>& whole, const WeightImages& images);
  // Waits for all ranks.
  void meet();
  // Sets the weights of the layer of multi-token prediction, on the first local rank's runtime; it follows every forward from now on. Each rank, in all
  // processes, has a copy of all of it; of stages of a pipeline the first. Error invalid_argument where they are another layer's.
  void set_mtp(std::shared_ptr<const WeightSet> weights);
  bool has_mtp() const { return parts_[0].mtp != nullptr; }  // of process 0
  // Other weights of that layer, from the next step on; false: they are the same. Error as above.
  bool set_mtp_weights(std::shared_ptr<const WeightSet> weights);
  // Runs under the sequences' own weights, else under the newest. Ranks that share the model cut what they have not had before, once. `kept`:
  // StepRunner::run, of a single rank.
  void run(const std::vector<PlannedSlice>& plan, const StepWants& wants, StepResult& result, RowSource* kept = nullptr);
  // Where there are several stages, run() in turns, in which each stage works on another plan (StepRunner::turn): `plan`, null for none, enters the first
  // one, and with `wants` is left alone until it has been through all. True: the oldest has, and `result` is its. `first`: none is under way; what calls
  // that failed have left is dropped.
  bool turn(bool first, const std::vector<PlannedSlice>* plan, const StepWants* wants, StepResult& result);
  std::int64_t forwards_begun(int local) const { return parts_[static_cast<std::size_t>(local)].runner->forwards_begun(); }  // any thread may ask
  // The plan's tokens have been accepted, and its sequences are at their next positions.
  void accepted(const std::vector<PlannedSlice>& plan);
  // The states that the layer stores with pages then (MtpSteps::store).
  void store(const std::vector<MtpSteps::PageState>& states);
  // The layer's predictions for sequences of one plan (engine/drafts/mtp_steps.h).
  std::vector<std::vector<std::int32_t>> guess(std::span<Sequence* const> sequences, std::int64_t tokens);

  // Whether the options' kept forwards get the rows of requests that ask for it (EngineOptions::kept_forwards).
  bool keeps_forwards() const { return keeps_forwards_; }
  // The accounts of a local rank's device; of the first one, those of the runtime that is given.
  const MemoryAccounts& memory(int local) const { return parts_[static_cast<std::size_t>(local)].runtime->backend.device().memory(); }
  CommunicatorCounters traffic() const { return traffic_of(*ranks_); }  // of all ranks

 private:
  struct Rank {
    std::unique_ptr<Runtime> own_runtime;  // null: the first one's
    Runtime* runtime = nullptr;            // its own, or the first one's
    std::unique_ptr<const Sharding> sharding;
    std::unique_ptr<HeldShares> shares;  // null: one rank
    std::unique_ptr<StepRunner> runner;
    std::shared_ptr<const WeightSet> weights;  // this rank's, of the newest
    std::unique_ptr<MtpSteps> mtp;             // null: nothing drafts with a layer
  };

  // Of that layer a copy for each local rank, the first of which gets the very weights.
  std::vector<std::shared_ptr<const WeightSet>> mtp_copies(const std::shared_ptr<const WeightSet>& weights);
  // To the processes that follow, a parameter at a time; nothing where there are none.
  void send_mtp(const WeightSet& weights);

  template <class F>
  void tell(EngineCall call, const F& put) const;
  void send_weights(const std::shared_ptr<const WeightSet>& whole, bool current);
  void send_adapter(const std::shared_ptr<const AdapterWeights>& whole);
  // Before a step of several ranks: they get what its sequences bring, and let go of what nobody has any more.
  void hold(const std::vector<PlannedSlice>& plan);

  Runtime& runtime_;
  const std::int64_t pages_, page_size_;
  ProcessMail* const lead_;  // null: nobody follows
  std::unique_ptr<Ranks> ranks_;
  std::vector<Rank> parts_;  // local ones
  const std::int64_t most_sequences_;
  bool keeps_forwards_ = false;
  std::uint64_t newest_ = 0;                                 // the identity of the newest weights, where ranks have shares
  std::map<std::uint64_t, std::weak_ptr<const void>> held_;  // by identity: what the ranks have shares of
};

}  // namespace lockstep
