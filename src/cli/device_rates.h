// The rates of a device by name, for `simulate` and `launch`: published ones, or what this machine does now.
//   const DeviceRates device = rates_of_device("measured");
#pragma once
#include "planning/step_time.h"

namespace lockstep {

std::vector<std::string> rated_devices();  // h200, b200, measured
// "measured" takes a second. Error not_found.
DeviceRates rates_of_device(const std::string& name);

}  // namespace lockstep
