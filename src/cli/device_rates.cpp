#include "cli/device_rates.h"

#include "base/error.h"
#include "base/free_memory.h"
#include "benchmark/gemm.h"
#include "parity/machine.h"

namespace lockstep {
namespace {
constexpr double kMeasuredNetwork = 10;   // gigabits a second between hosts, which one machine cannot measure
constexpr double kPackedAccumulator = 5;  // bytes a weight between processes: 4.78 and 4.93 were measured (docs/ranks.md)

// Ranks of one machine share processors and memory; an exchange is a copy, which reads and writes.
DeviceRates measured_device() {
  const BackendOptions machine;
  const std::int64_t threads = read_machine().usable_processors;
  const GemmTiming product = time_gemm({.rows = 256, .outputs = 1024, .inputs = 1024, .bf16_weights = true}, machine, {0.5}, 0);
  const double memory = memory_speed(threads).gigabytes_per_second * 1e9;
  DeviceRates device{.name = "measured", .arithmetic = product.gigaflops * 1e9, .memory = memory, .link = memory / 2, .network = memory / 2};
  device.source =
      fmt::format("measured here now: a product of 256 x 1024 x 1024 {:.1f} GFLOP/s, memory {:.1f} GB/s, an exchange half of that, by {} processors",
                  device.arithmetic / 1e9, memory / 1e9, threads);
  const FreeMemory free = free_memory();
  device.memory_bytes = free.limit.empty() ? 0 : free.bytes;
  device.host_devices = kMostRanks;
  device.network_accumulator_bytes = kPackedAccumulator;
  device.shared = true;
  device.low = {0.4, 0.5, 0.4, 100e-6};
  device.high = {1, 1, 1, 10e-6};
  device.assumed = "assumed: 40 to 100% of the measured arithmetic, 50 to 100% of the memory, 40 to 100% of the exchanges, 100 to 10 microseconds an exchange";
  return device;
}

}  // namespace

std::vector<std::string> rated_devices() {
  std::vector<std::string> names;
  for (const DeviceRates& device : published_devices()) names.push_back(device.name);
  names.emplace_back("measured");
  return names;
}

DeviceRates rates_of_device(const std::string& name) {
  for (const DeviceRates& device : published_devices())
    if (device.name == name) return device;
  if (name != "measured") fail(ErrorCode::not_found, "there is no device '{}', allowed are {}", name, fmt::join(rated_devices(), ", "));
  return measured_device();
}

void put_on_hosts(DeviceRates& device, int hosts, int host_devices, std::optional<double> gigabits) {
  device.host_devices = host_devices;
  if (gigabits || device.shared) device.network = gigabits.value_or(kMeasuredNetwork) * 1e9 / 8;
  device.between_hosts = fmt::format("{:g} Gbit/s a {} between hosts of {}", device.network * 8 / 1e9, device.shared ? "host" : "device", host_devices);
  if (device.shared) device.network *= hosts;  // each has its own; what ranks share is divided by all of them later
}

}  // namespace lockstep
