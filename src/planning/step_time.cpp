#include "planning/step_time.h"

#include <algorithm>
#include <numeric>

#include "planning/shape_memory.h"

namespace lockstep {
namespace {
constexpr double kTera = 1e12, kGiga = 1e9;

// The ranks of a rank's group.
std::vector<int> members_of(const RankLayout& layout, int rank, RankGroup group) {
  std::vector<int> members;
  for (int other = 0; other < layout.size(); ++other) {
    const bool together = group == RankGroup::world     ? true
                          : group == RankGroup::tensor  ? other / layout.tp == rank / layout.tp
                          : group == RankGroup::model   ? other / layout.model() == rank / layout.model()
                          : group == RankGroup::data    ? layout.replica_of(other) == layout.replica_of(rank)
                          : group == RankGroup::stages  ? layout.peers_of(other) == layout.peers_of(rank)
                          : group == RankGroup::context ? layout.fellows_of(other) == layout.fellows_of(rank)
                          : group == RankGroup::before  ? other == rank || other + layout.model() == rank
                                                        : other == rank || other == rank + layout.model();
    if (together) members.push_back(other);
  }
  return members;
}

// How fast a group's bytes come, and how many come: between hosts accumulators take fewer than in memory.
struct GroupWay {
  double rate, accumulators;  // of their bytes in memory
};
GroupWay way_of(const RankLayout& layout, int rank, RankGroup group, const DeviceRates& device, const Efficiency& efficiency) {
  const bool far = crosses_hosts(layout, rank, group, device.host_devices);
  return {(far ? device.network : device.link) * efficiency.link, far ? device.network_accumulator_bytes / static_cast<double>(kBinBytes) : 1.0};
}
// Replicas exchange accumulators by this, and of rows=dealt all ranks.
double accumulators_of(const RankStep& step, RankGroup group) {
  if (group != RankGroup::data && group != RankGroup::world) return 0;
  return static_cast<double>(step.exchanges.of(group, Collective::reduce_scatter).bytes);
}
}  // namespace

// NVLink's rates are of both ways together, so what a device receives has half of it; 400 Gbit/s between hosts are of each device.
const std::vector<DeviceRates>& published_devices() {
  static const std::vector<DeviceRates> all = [] {
    const auto device = [](const char* name, const char* source, double arithmetic, double memory, double link, double memory_bytes) {
      return DeviceRates{.name = name,
                         .source = source,
                         .between_hosts = "400 Gbit/s a device between hosts of 8",
                         .arithmetic = arithmetic,
                         .memory = memory,
                         .link = link,
                         .network = 50 * kGiga,
                         .memory_bytes = static_cast<std::int64_t>(memory_bytes * kUsableMemory),
                         .low = {0.25, 0.6, 0.5, 30e-6},
                         .high = {0.55, 0.9, 0.85, 8e-6},
                         .assumed = "assumed: 25 to 55% of the arithmetic, 60 to 90% of the memory, 50 to 85% of the links, 30 to 8 microseconds an exchange"};
    };
    return std::vector{
        device("h200", "data sheet of NVIDIA's H200 SXM: dense bf16 989 TFLOP/s, 141 GB at 4.8 TB/s, NVLink 900 GB/s both ways together", 989 * kTera,
               4.8 * kTera, 450 * kGiga, 141 * kGiga),
        device("b200", "data sheet of NVIDIA's B200: dense bf16 2,250 TFLOP/s, 180 GB at 8 TB/s, NVLink 1,800 GB/s both ways together", 2250 * kTera, 8 * kTera,
               900 * kGiga, 180 * kGiga),
    };
  }();
  return all;
}

double StepTime::exchange() const { return std::accumulate(exchanges.begin(), exchanges.end(), 0.0); }

bool crosses_hosts(const RankLayout& layout, int rank, RankGroup group, int host_devices) {
  const std::vector<int> members = members_of(layout, rank, group);
  return std::any_of(members.begin(), members.end(), [&](int other) { return other / host_devices != rank / host_devices; });
}

StepTime step_time(const RankLayout& layout, const std::vector<RankStep>& steps, const std::vector<RankWork>& all, const DeviceRates& device,
                   const Efficiency& efficiency) {
  StepTime time;
  double last_backward = 0;  // of a rank's last micro-batch
  const double arithmetic = device.arithmetic * efficiency.arithmetic, memory = device.memory * efficiency.memory;
  for (const RankWork& work : all) {
    // A pass takes the longer of its arithmetic and of reading its weights; accumulators and the optimizer only move memory.
    const double reading = work.weight_bytes / memory;
    const double forward = std::max(work.forward / arithmetic, reading);
    const double backward = std::max(work.backward / arithmetic, reading * work.backward_passes) + work.accumulator_bytes / memory;
    time.forward = std::max(time.forward, forward * work.turns);
    time.backward = std::max(time.backward, backward * work.turns);
    last_backward = std::max(last_backward, backward / std::max(1.0, work.batches));
    time.optimizer = std::max(time.optimizer, work.optimizer_bytes / memory);
  }
  for (const RankStep& step : steps)
    for (int g = 0; g < kRankGroups; ++g) {
      const auto group = static_cast<RankGroup>(g);
      const CommunicatorCounters counts = step.exchanges.sum(group);
      const GroupWay way = way_of(layout, step.rank, group, device, efficiency);
      const double bytes = static_cast<double>(counts.bytes) - (1 - way.accumulators) * accumulators_of(step, group);
      const double seconds = bytes / way.rate + static_cast<double>(counts.calls) * efficiency.call_seconds;
      if (layout.size() > 1) time.exchanges[static_cast<std::size_t>(g)] = std::max(time.exchanges[static_cast<std::size_t>(g)], seconds);
    }
  // Gradients of a layer leave while the layers before it are computed: in the last micro-batch, and with weights in shares in each, where weights come too, in
  // both passes. Activations are needed at once.
  const bool weights_come = layout.shards_weights();
  double hidden = 0;
  for (const RankStep& step : steps) {
    double seconds = 0;
    for (const RankGroup group : {RankGroup::data, RankGroup::world}) {  // of all ranks those of rows=dealt, whose experts' are in the former
      const GroupWay way = way_of(layout, step.rank, group, device, efficiency);
      double bytes = way.accumulators * accumulators_of(step, group);
      if (weights_come && group == RankGroup::data) bytes += static_cast<double>(step.exchanges.of(group, Collective::all_gather).bytes);
      seconds += bytes / way.rate;
    }
    hidden = std::max(hidden, seconds);
  }
  time.hideable = std::min(hidden, weights_come ? time.forward + time.backward : last_backward);
  double sum = 0, most = 0;
  for (const RankWork& work : all) sum += work.arithmetic(), most = std::max(most, work.arithmetic());
  time.imbalance = sum > 0 ? most * static_cast<double>(all.size()) / sum : 1;
  return time;
}

}  // namespace lockstep
