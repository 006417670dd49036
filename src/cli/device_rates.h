// The rates of a device by name, for `simulate` and `launch`: published ones, or what this machine does now.
//   const DeviceRates device = rates_of_device("measured");
#pragma once
#include <optional>

#include "planning/step_time.h"

namespace lockstep {

std::vector<std::string> rated_devices();  // h200, b200, measured
// "measured" takes a second. Error not_found.
DeviceRates rates_of_device(const std::string& name);
// Puts the devices on so many hosts of so many each, filled in the order of ranks, with this rate between hosts, in gigabits a second; none: that of the data
// sheet, of a measured device 10.
void put_on_hosts(DeviceRates& device, int hosts, int host_devices, std::optional<double> gigabits);

}  // namespace lockstep
