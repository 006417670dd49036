// A training step in a layout on devices that are not here: whether it fits, its time over a range of assumed efficiencies, and why.
//   for (const RankLayout& layout : layouts_of(*model, 8, 4096)) print(simulate_step(model, profile, plan_with(layout), device));
// Computed, not measured. Of the layouts that this program has.
#pragma once
#include "planning/step_time.h"

namespace lockstep {

struct SimulatedStep {
  RankLayout layout;
  std::int64_t tokens = 0;                 // of the step
  std::int64_t needed = 0, available = 0;  // bytes of the rank that takes most, and of a device; available 0: not known
  RankStep busiest;                        // the planned rank that receives most
  StepTime slow, fast;                     // at the lower and at the higher efficiencies
  std::vector<std::string> reasons;        // sentences; none where it does not fit
  bool fits() const { return available == 0 || needed <= available; }
};

// Every tp x dp x ep x pp x cp of so many devices: ep above 1 only where there are experts, pp at most the segments, cp above 1 only where sequences of
// `length` tokens are cut. Where there are replicas, under shard=state and under shard=weights.
std::vector<RankLayout> layouts_of(const Model& model, int devices, std::int64_t length);
// Next-token sequences of `length` tokens, the last one of what is left of `tokens`.
std::vector<TrainSequence> simulated_sequences(std::int64_t tokens, std::int64_t length);
// Plans the ranks of the first replica, which has the most tokens, and of those that have the pieces of its sequences; of more ranks than a run may have
// those that stand for all (parallel/planned_layout.h). They are processes.
SimulatedStep simulate_step(const std::shared_ptr<const Model>& model, const Profile& profile, StepPlan plan, const DeviceRates& device);
// The plan in each of these layouts: the fastest first; what does not fit last, the least first.
std::vector<SimulatedStep> simulate_layouts(const std::shared_ptr<const Model>& model, const Profile& profile, StepPlan plan,
                                            const std::vector<RankLayout>& layouts, const DeviceRates& device);
// The same without layouts under shard=weights whose like under shard=state fits: they exchange more, so none of them is the first.
std::vector<SimulatedStep> simulate_fitting(const std::shared_ptr<const Model>& model, const Profile& profile, const StepPlan& plan,
                                            const std::vector<RankLayout>& layouts, const DeviceRates& device);
// Error resource_exhausted of a model that fits in none of the layouts, the least of which this is.
[[noreturn]] void refuse_layouts(const SimulatedStep& least, std::size_t layouts, const std::string& model, const DeviceRates& device);

}  // namespace lockstep
