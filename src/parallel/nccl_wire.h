// HAS NOT RUN (docs/cuda.md). The wire of GPUs' memory over NCCL: loads the module lockstep_nccl.so, from the program's folder or from ../lib of it.
//   std::unique_ptr<DeviceWire> wire = load_nccl_wire();
#pragma once
#include <memory>

#include "parallel/device_wire.h"

namespace lockstep {

// Once a process, which has one GPU: its first visible one. Errors: unsupported where there is no GPU, no module or no NCCL, with the reason.
std::unique_ptr<DeviceWire> load_nccl_wire();

}  // namespace lockstep
