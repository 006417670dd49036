#include "planning/step_simulation.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "model/context_pieces.h"
#include "model/sharding.h"
#include "parallel/planned_layout.h"

namespace lockstep {
namespace {
DeviceRates rates_of_a_rank(DeviceRates device, int ranks) {
  if (!device.shared) return device;
  for (double* rate : {&device.arithmetic, &device.memory, &device.link, &device.network}) *rate /= ranks;
  device.memory_bytes /= ranks;
  return device;
}

std::string part_reason(const StepTime& time) {
  const std::pair<const char*, double> parts[] = {
      {"the forward", time.forward}, {"the backward", time.backward}, {"the optimizer", time.optimizer}, {"exchanges", time.exchange()}};
  const auto& most = *std::max_element(std::begin(parts), std::end(parts), [](const auto& a, const auto& b) { return a.second < b.second; });
  return fmt::format("{} take{} most: {:.0f}% of the step at the lower efficiencies", most.first, most.second == parts[3].second ? "" : "s",
                     100 * most.second / time.total());
}

std::vector<std::string> reasons_of(const SimulatedStep& step, const DeviceRates& device, const Model& model) {
  const RankLayout& layout = step.layout;
  std::vector<std::string> reasons{part_reason(step.slow)};
  if (layout.size() == 1) return reasons;
  std::size_t group = 0, operation = 0;
  std::int64_t bytes = -1;
  for (std::size_t g = 0; g < kRankGroups; ++g)
    for (std::size_t c = 0; c < kCollectives; ++c)
      if (const std::int64_t own = step.busiest.exchanges.groups[g][c].bytes; own > bytes) bytes = own, group = g, operation = c;
  const bool far = crosses_hosts(layout, step.busiest.rank, static_cast<RankGroup>(group), device.host_devices);
  reasons.push_back(fmt::format("most bytes are {} in the {} group: {:.3f} GB in {} exchanges come to rank {}, {}", kCollectiveNames[operation],
                                kRankGroupNames[group], static_cast<double>(bytes) / 1e9, step.busiest.exchanges.groups[group][operation].calls,
                                step.busiest.rank, far ? "some from other hosts, so all are counted at the network's rate" : "all within a host"));
  reasons.push_back(fmt::format("each exchange is counted as if it were waited for; between processes {}: at most {:.3g} to {:.3g} s",
                                layout.shards_weights() ? "weights come and gradients leave while segments are computed"
                                : layout.deals_rows()   ? "gradients could leave beside the last micro-batch's backward"
                                                        : "gradients leave beside the last micro-batch's backward",
                                step.fast.hideable, step.slow.hideable));
  if (layout.pp > 1)
    reasons.push_back(
        fmt::format("stages wait for the first and the last micro-batch: their forwards and backwards take {:.2f} times their own", step.busiest.work.turns));
  if (step.slow.imbalance > 1.01)
    reasons.push_back(fmt::format("the busiest rank computes {:.2f} times what the mean does: {}", step.slow.imbalance,
                                  layout.deals_rows()
                                      ? joins_pairs(layout) ? "sequences and experts are dealt whole" : "sequences are dealt whole, and experts in 8 groups"
                                  : layout.dp > 1 ? "sequences are dealt whole, and what tp does not split is on every rank of a replica"
                                  : model.facts().expert_count > 0 && layout.model() > 1
                                      ? joins_pairs(layout) ? "experts are dealt whole, and what tp does not split is on every rank of a replica"
                                                            : "experts are dealt in 8 groups, and what tp does not split is on every rank of a replica"
                                      : "sums and heads are dealt in whole leaves and heads"));
  if (layout.size() > kMostRanks)
    reasons.push_back(fmt::format("{} of the {} ranks are planned, the first and the last of each kind; a run has at most {}", planned_ranks(layout).size(),
                                  layout.size(), kMostRanks));
  return reasons;
}

void put_fastest_first(std::vector<SimulatedStep>& steps) {
  std::stable_sort(steps.begin(), steps.end(), [](const SimulatedStep& a, const SimulatedStep& b) {
    if (a.fits() != b.fits()) return a.fits();
    return a.fits() ? a.slow.total() < b.slow.total() : a.needed < b.needed;
  });
}

std::vector<int> simulated_ranks(const RankLayout& layout) {
  if (layout.size() > kMostRanks) return planned_ranks(layout);
  std::vector<int> first(static_cast<std::size_t>(layout.replica() * layout.cp));
  std::iota(first.begin(), first.end(), 0);
  return first;
}
}  // namespace

std::vector<RankLayout> layouts_of(const Model& model, int devices, std::int64_t length) {
  std::vector<RankLayout> all;
  for (int cp = 1; cp <= devices; ++cp) {
    if (cp > 1 && !is_cut(length, cp)) continue;
    for (int pp = 1; pp <= std::min<std::int64_t>(devices, model.segments()); ++pp)
      for (int tp = 1; cp * pp * tp <= devices; ++tp)
        for (int dp = 1; cp * pp * tp * dp <= devices; ++dp)
          if (devices % (cp * pp * tp * dp) == 0)
            if (const int ep = devices / (cp * pp * tp * dp); ep == 1 || model.facts().expert_count > 0)
              for (const RankShard shard : {RankShard::state, RankShard::weights})
                if (shard == RankShard::state || cp * dp > 1) all.push_back({tp, dp, ep, pp, cp, shard});
  }
  return all;
}

SimulatedStep simulate_step(const std::shared_ptr<const Model>& model, const Profile& profile, StepPlan plan, const DeviceRates& device) {
  plan.processes = true;  // a device each
  SimulatedStep step;
  step.layout = plan.trainer.ranks;
  const DeviceRates rates = rates_of_a_rank(device, step.layout.size());
  step.available = rates.memory_bytes;
  for (const TrainSequence& s : plan.sequences) step.tokens += static_cast<std::int64_t>(s.tokens.size());
  std::vector<RankStep> ranks;
  for (const int rank : simulated_ranks(step.layout)) {
    ranks.push_back(plan_step(model, profile, plan, rank));
    step.needed = std::max(step.needed, ranks.back().memory.total);
    if (ranks.size() == 1 || ranks.back().exchanges.sum().bytes > step.busiest.exchanges.sum().bytes) step.busiest = ranks.back();
    if (!step.fits()) return step;
  }
  const std::vector<RankWork> all = works_of(*model, profile, plan);
  step.slow = step_time(step.layout, ranks, all, rates, device.low);
  step.fast = step_time(step.layout, ranks, all, rates, device.high);
  step.reasons = reasons_of(step, rates, *model);
  return step;
}

std::vector<TrainSequence> simulated_sequences(std::int64_t tokens, std::int64_t length) {
  std::vector<TrainSequence> sequences;
  for (std::int64_t left = tokens; left > 0; left -= length)
    sequences.push_back(TrainSequence::next_token(std::vector<std::int32_t>(static_cast<std::size_t>(std::min(left, length) + 1))));
  return sequences;
}

std::vector<SimulatedStep> simulate_layouts(const std::shared_ptr<const Model>& model, const Profile& profile, StepPlan plan,
                                            const std::vector<RankLayout>& layouts, const DeviceRates& device) {
  std::vector<SimulatedStep> steps;
  for (const RankLayout& layout : layouts) {
    plan.trainer.ranks = layout;
    steps.push_back(simulate_step(model, profile, plan, device));
  }
  put_fastest_first(steps);
  return steps;
}

std::vector<SimulatedStep> simulate_fitting(const std::shared_ptr<const Model>& model, const Profile& profile, const StepPlan& plan,
                                            const std::vector<RankLayout>& layouts, const DeviceRates& device) {
  std::vector<RankLayout> state, weights;
  for (const RankLayout& layout : layouts) (layout.shards_weights() ? weights : state).push_back(layout);
  std::vector<SimulatedStep> steps = simulate_layouts(model, profile, plan, state, device);
  std::erase_if(weights, [&](RankLayout layout) {
    layout.shard = RankShard::state;
    return std::any_of(steps.begin(), steps.end(), [&](const SimulatedStep& step) { return step.layout == layout && step.fits(); });
  });
  for (SimulatedStep& step : simulate_layouts(model, profile, plan, weights, device)) steps.push_back(std::move(step));
  put_fastest_first(steps);
  return steps;
}

void refuse_layouts(const SimulatedStep& least, std::size_t layouts, const std::string& model, const DeviceRates& device) {
  fail(ErrorCode::resource_exhausted,
       "{} does not fit: {:.1f} GB a rank are needed in {}{}, {:.1f} GB of a device ({}) may be filled; --checkpoint-activations, "
       "--micro-batch 1 and shorter sequences need less, `lockstep plan` says of what they are",
       model, static_cast<double>(least.needed) / 1e9, least.layout.text(), layouts > 1 ? ", the layout that needs least" : "",
       static_cast<double>(least.available) / 1e9, device.name);
}

}  // namespace lockstep
