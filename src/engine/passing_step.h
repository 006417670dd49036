// A plan on its way through a rank: its rows on the device, the forward of this rank's stage, and what goes on to other stages (engine/stage_rows.h). A
// rank that has the whole model is the only stage. While it is on its way, its sequences keep their tokens and pages.
//   PassingStep step({runtime, cache, sharding, kept_forwards}, weights, plan, wants, adapters, slices);
//   step.receive(); step.compute(); step.send_on(); step.bring_back(); if (step.leads()) sample(step.hidden());
// Knows no head and no sampler. Used by the rank's thread.
#pragma once
#include <utility>
#include <vector>

#include "engine/kept_step.h"
#include "engine/stage_rows.h"
#include "engine/step_record.h"
#include "model/adapter_rows.h"
#include "model/batch.h"
#include "model/runtime.h"

namespace lockstep {

class PassingStep {
 public:
  // Where the rank's steps run.
  struct Place {
    Runtime& runtime;
    KvCache& cache;
    const Sharding* sharding;  // null: this rank has the whole model
    const std::shared_ptr<KeptForwards>& kept_forwards;
  };
  // All but `adapters` and `slices` outlive it. `slices`: what is in them is written over, their memory is used. `whole`, `read`: StepRunner::run.
  PassingStep(const Place& place, const WeightSet& weights, const std::vector<PlannedSlice>& plan, const StepWants& wants, std::vector<AdapterRows> adapters,
              std::vector<SequenceSlice> slices, std::uint64_t whole = 0, RowSource* read = nullptr);
  PassingStep(const PassingStep&) = delete;
  PassingStep& operator=(const PassingStep&) = delete;

  bool computes() const { return stages_.computes(); }
  bool leads() const { return stages_.leads(); }
  bool reads() const { return read_ != nullptr; }  // its rows were kept, and are not computed
  // What the stage before has sent on; its forward; what goes to the next stage, which this one then keeps no longer. Of the last stage it stays.
  void receive() { stages_.receive(context_.flags(), experts_); }
  void compute();
  void send_on();
  // After all stages, all of them together.
  void bring_back() { hidden_ = stages_.bring_back(hidden_, context_.flags(), experts_); }

  const WeightSet& weights() const { return weights_; }
  const std::vector<PlannedSlice>& plan() const { return plan_; }
  const StepWants& wants() const { return wants_; }
  const std::vector<SequenceSlice>& slices() const { return slices_; }
  const Batch& batch() const { return batch_; }
  const StepRecord& record() const { return record_; }
  Context& context() { return context_; }
  KeptStep& kept() { return kept_; }
  const Tensor& hidden() const { return hidden_; }
  std::vector<SequenceSlice> take_slices() { return std::move(slices_); }

 private:
  ForwardOptions forward_options(const Place& place);

  Runtime& runtime_;
  const WeightSet& weights_;
  const std::vector<PlannedSlice>& plan_;
  const StepWants& wants_;
  RowSource* const read_;
  std::vector<AdapterRows> adapters_;
  std::vector<SequenceSlice> slices_;
  Batch batch_;
  StepRecord record_;
  Buffer expert_rows_;  // which rows tell their experts
  View experts_;        // where; none: nobody asks this rank
  KeptStep kept_;
  StageRows stages_;
  Context context_;
  Tensor hidden_;
};

}  // namespace lockstep
