// Copies of many pieces at once, on all threads of a device: one thread alone does not reach the memory's speed, and a piece is often a row.
//   copy_all(device, {{page.row_range(3, 1), hidden.row_range(17, 1)}, ...});
#pragma once
#include <vector>

#include "tensor/device.h"

namespace lockstep {

struct Copied {
  View to, from;  // of the same shape and element size
};

// Queues the copies on the device's stream; in which order they are made is not said, so no piece may overlap what another one writes. Error internal,
// and nothing is copied, if the shapes of a piece differ.
void copy_all(Device& device, const std::vector<Copied>& pieces);

}  // namespace lockstep
