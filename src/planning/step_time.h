// The time of a training step from what each rank does (planning/step_plan.h), published rates of devices and assumed efficiencies: computed, not
// measured.
//   const StepTime time = step_time(layout, steps, all_work, device, device.high);
// Pure functions of plain values.
#pragma once
#include <string_view>

#include "parallel/bins_codec.h"
#include "planning/step_plan.h"

namespace lockstep {

// The fractions of a device's rates that a step is assumed to reach, and the fixed time of an exchange besides its bytes.
struct Efficiency {
  double arithmetic = 1, memory = 1, link = 1, call_seconds = 0;
};

// Rates of one device, per second.
struct DeviceRates {
  std::string name, source;
  std::string between_hosts;      // the network's rate in words; empty: all are on one host
  double arithmetic = 0;          // additions and multiplications of dense bf16 products
  double memory = 0;              // bytes read or written
  double link = 0, network = 0;   // bytes received, from a device of the same host and of another
  std::int64_t memory_bytes = 0;  // that a plan may fill; 0: not known
  int host_devices = 8;
  double network_accumulator_bytes = kBinBytes;  // of a weight's accumulator between hosts; here as in memory
  bool shared = false;                           // all ranks together have these rates and this memory
  Efficiency low, high;
  std::string assumed;  // the efficiencies in words
  std::string told() const { return between_hosts.empty() ? source : source + "; " + between_hosts; }
};
const std::vector<DeviceRates>& published_devices();

struct StepTime {
  double forward = 0, backward = 0, optimizer = 0;  // seconds, of the slowest rank
  std::array<double, kRankGroups> exchanges{};      // the most of any rank, by group
  double hideable = 0;                              // of them: the most that may go while ranks compute; counted in total() all the same
  double imbalance = 1;                             // arithmetic of the busiest rank to that of the mean
  double exchange() const;
  double total() const { return forward + backward + optimizer + exchange(); }
};

// Whether a group of this rank reaches beyond a host, of hosts filled in the order of ranks.
bool crosses_hosts(const RankLayout& layout, int rank, RankGroup group, int host_devices);
// `steps`: ranks that were planned, the busiest among them; `all`: the work of every rank. Every exchange waits for the slowest rank, and none is taken to
// be hidden, so times add up.
StepTime step_time(const RankLayout& layout, const std::vector<RankStep>& steps, const std::vector<RankWork>& all, const DeviceRates& device,
                   const Efficiency& efficiency);

}  // namespace lockstep
