// The device side of one step on one rank: uploads the planned rows, runs the model (engine/passing_step.h), the head and the sampler for the rows that are
// wanted, and reads one record back. Where ranks share the model (engine/rank_steps.h) all run the same plan, and the first one samples; of stages of a
// pipeline the first one has the head (engine/stage_rows.h), and plans may follow each other: each stage works on another one (turn()).
// Knows no queue and no request beyond what it needs to sample; sizes follow from lengths alone. Used by one thread.
//   runner.run(weights, scheduler.plan(), wants, result);   // of ranks beside the first one the result is StepResult::work alone
#pragma once
#include <atomic>
#include <deque>
#include <span>

#include "engine/drafts/mtp_steps.h"
#include "engine/held_shares.h"
#include "engine/passing_step.h"
#include "engine/sampling_rows.h"

namespace lockstep {

class StepRunner {
 public:
  // `sharding` null: this rank has the whole model.
  StepRunner(Runtime& runtime, std::int64_t pages, std::int64_t page_size, const Sharding* sharding = nullptr);
  // Where this rank finds its shares of requests' adapters, from now on; it outlives the steps. Without, adapters are whole.
  void set_shares(const HeldShares* shares) { shares_ = shares; }
  // From now on every forward's rows are passed to it; it outlives the steps.
  void set_mtp(MtpSteps* mtp) { mtp_ = mtp; }
  // Stores the layer outputs of requests that ask for it. Of several ranks only the first one, for all of them.
  void set_kept_forwards(std::shared_ptr<KeptForwards> forwards) { kept_forwards_ = std::move(forwards); }
  // `wants` is for this plan, and outlives reading the result. `whole`: the identity of the weights of which `weights` is this rank's share; 0: they are
  // whole. `kept`: has the values of the plan's rows, whose entries stand in the cache, so that they are read (ForwardOptions::row_source) and nothing is
  // stored; null: they are computed.
  void run(const WeightSet& weights, const std::vector<PlannedSlice>& plan, const StepWants& wants, StepResult& result, std::uint64_t whole = 0,
           RowSource* kept = nullptr);
  // What a step works on; outlives it.
  struct Entering {
    const WeightSet& weights;
    const std::vector<PlannedSlice>& plan;
    const StepWants& wants;
  };
  // One turn of the stages: each computes the plan that has come to it, then every plan goes on by a stage. `next` enters at the first one; null: none.
  // True: the oldest has been through all, and `result` is its. `first_one`: what calls that failed have left under way is dropped, as it is by run().
  bool turn(bool first_one, const Entering* next, StepResult& result);
  // Forwards that this rank has begun; any thread may ask.
  std::int64_t forwards_begun() const { return begun_; }

 private:
  struct UnderWay {
    Entering entering;
    int stage = 0;                           // that computes it in the next turn
    std::unique_ptr<PassingStep> here = {};  // null: it has not come to this rank
  };
  // A step on its way.
  struct Step {
    const std::vector<PlannedSlice>& plan;
    const StepWants& wants;
    const StepRecord& record;
    Context& context;
    const View& hidden;
  };
  PassingStep::Place place() { return {runtime_, cache_, sharding_, kept_forwards_}; }
  void compute(PassingStep& step);
  // The head and the sampler, on the first stage, for what has been through all; then reads.
  void finish(PassingStep& through, StepResult& result);
  void score(const Step& step);
  void likeliest_of_scored(const Step& step);
  void draw(const Step& step);
  // The logits of a column's rows, some at a time, a slice after another: told(slice, rows of it, logits).
  template <class F>
  void each_chunk(const Step& step, Column column, const F& told);
  void sample(const Step& step);
  void read_hidden(const Step& step, StepResult& result);
  void add_adapters(const Step& step, const View& y, const View& index, std::int64_t begin);
  const AdapterWeights* adapter_of(const Sequence& sequence) const;  // null: none
  std::vector<AdapterRows> adapter_rows(const std::vector<PlannedSlice>& plan) const;
  bool first() const { return !sharding_ || sharding_->place().rank == 0; }

  Runtime& runtime_;
  const Sharding* sharding_;
  KvCache cache_;
  const HeldShares* shares_ = nullptr;
  MtpSteps* mtp_ = nullptr;
  std::shared_ptr<KeptForwards> kept_forwards_;  // null: none are kept
  // Reused between steps, so that a step allocates nothing per row.
  std::vector<SequenceSlice> slices_;
  std::vector<std::int32_t> integers_;
  std::vector<float> floats_;
  std::vector<SampledRow> sampled_;
  std::deque<UnderWay> under_way_;  // the oldest first; the same on all ranks
  std::atomic<std::int64_t> begun_ = 0;
};

}  // namespace lockstep
