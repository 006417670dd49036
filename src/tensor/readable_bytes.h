// The memory behind a view for the host to read, without a copy where the device's memory is the host's own.
//   std::vector<char> scratch;   const char* bytes = readable_bytes(device, view, scratch);
// The device's thread; where is_readable(device), any thread while that one waits.
#pragma once
#include <vector>

#include "tensor/device.h"

namespace lockstep {

// Whether the host sees the device's memory, and all work is done when a call returns.
bool is_readable(const Device& device);
// The bytes of a view without gaps, as they stand: valid while the view's memory and `scratch` are.
const char* readable_bytes(Device& device, const View& view, std::vector<char>& scratch);

}  // namespace lockstep
